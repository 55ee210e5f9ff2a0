"""The shells: the only rooms that do IO. They move bytes; what the bytes mean is decided in the pure rooms."""
