"""Where recordings are kept: a ring in memory or an archive on disk, and the watcher that fills them."""
