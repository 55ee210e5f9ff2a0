"""Raw frames of a stream in a file of its own (requirement B15): for reports, and to be replayed as a test.

A failure to write never reaches the stream: recording just ends, once, with a warning.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import BinaryIO

LOG = logging.getLogger("athena")


class StreamRecorder:
    """One file per stream: `sse_<date>_<time>_<id>.log`, readable by its owner only."""

    def __init__(self, directory: str, request_id: str) -> None:
        self._file: BinaryIO | None = None
        if not directory:
            return
        name = f"sse_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{request_id}.log"
        path = Path(directory).expanduser() / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb")
        except OSError as error:
            LOG.warning("the stream can not be recorded: %s", error)

    def write(self, data: bytes) -> None:
        """The next bytes of the upstream, as they came."""
        if self._file is None:
            return
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            LOG.warning("recording of a stream ended: %s", error)
            self.close()

    def close(self) -> None:
        """No more will come."""
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError as error:
                LOG.warning("recording of a stream ended: %s", error)


NO_RECORDER = StreamRecorder("", "")
