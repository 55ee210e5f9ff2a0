"""Raw frames of a stream in a file of its own: for reports, and to be replayed as a test. At debug they go to the log as well.

The frames are the upstream's own bytes, except for secrets of the configuration, which are masked in them, also where a secret
is cut into pieces on its way. A failure to write never reaches the stream: recording just ends, once, with a warning.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from athena.errors import AthenaError
from athena.shells.logs import log_body
from athena.shells.own_files import open_own, own_directory
from athena.shells.stream_mask import StreamMask

LOG = logging.getLogger("athena")


class StreamRecorder:
    """One file per stream, `sse_<date>_<time>_<name>.log`, readable by its owner only; none when no directory is named."""

    def __init__(self, directory: str, request_id: str, secrets: Iterable[str] = (), name: str = "") -> None:
        self._file: BinaryIO | None = None
        self._request_id = request_id
        self._mask = StreamMask(secrets)
        if not directory:
            return
        path = Path(directory).expanduser() / f"sse_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{name or request_id}.log"
        try:
            own_directory(path.parent)
            self._file = os.fdopen(open_own(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL), "wb")
        except OSError as error:
            LOG.warning("the stream cannot be recorded: %s", error)

    def write(self, data: bytes) -> None:
        """The next bytes of the upstream, as they came."""
        shown = self._mask.feed(data)
        if shown:
            self._keep(shown)

    def close(self) -> None:
        if rest := self._mask.close():
            self._keep(rest)
        self._end()

    def _keep(self, data: bytes) -> None:
        log_body("upstream answer", self._request_id, data)
        if self._file is None:
            return
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            LOG.warning("recording of a stream ended: %s", error)
            self._end()

    def _end(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError as error:
                LOG.warning("recording of a stream ended: %s", error)


def check_recordings(directory: str) -> None:
    """Make the directory of recordings, before anything is served. Raises AthenaError when it cannot or may not be used."""
    if not directory:
        return
    try:
        own_directory(Path(directory).expanduser())
    except OSError as error:
        raise AthenaError(f"log.sse_dir cannot be used: {error}", code="sse_dir", path="log.sse_dir") from None
