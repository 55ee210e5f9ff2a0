"""The files of `log.sse_dir`: the raw frames of every stream, written from its recording once the request is over.

The frames are the upstream's own bytes, except for secrets of the configuration and the client's key, which are masked in them,
also where a secret is cut into pieces on its way. Writing is the work of a thread: a failure is a warning and never reaches an
answer.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from athena.errors import AthenaError
from athena.recording.tap import RecordingTap
from athena.shells.own_files import open_own, own_directory
from athena.shells.stream_mask import StreamMask

LOG = logging.getLogger("athena")


class Frames:
    """What is to be written about one request: a file for each answer of an upstream."""

    __slots__ = ("answers", "directory", "request_id", "secrets", "size")

    def __init__(self, directory: str, tap: RecordingTap, secrets: Iterable[str]) -> None:
        self.directory = directory
        self.request_id = tap.record.request_id
        self.secrets = tap.secrets(secrets)
        self.answers = tap.answers()
        self.size = sum(len(piece) for _, pieces in self.answers for piece in pieces)

    def write(self) -> None:
        """Write them all. Raises OSError."""
        for number, (began, pieces) in enumerate(self.answers, 1):
            moment = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(began))
            name = self.request_id if number == 1 else f"{self.request_id}_{number}"
            path = Path(self.directory).expanduser() / f"sse_{moment}_{name}.log"
            own_directory(path.parent)
            mask = StreamMask(self.secrets)
            with os.fdopen(open_own(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL), "wb") as file:
                for piece in pieces:
                    file.write(mask.feed(piece))
                file.write(mask.close())


class FrameWriter:
    """The thread that writes them. What waits for it is at most `most_bytes` large."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._put = 0
        self._written = 0
        self._queue: queue.SimpleQueue[Frames | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, frames: Frames) -> None:
        """Hand them over. For the event loop."""
        if self._put - self._written + frames.size > self._most_bytes:
            LOG.warning("the stream of request %s is not in log.sse_dir: too many wait to be written", frames.request_id)
            return
        self._put += frames.size
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="athena-frames", daemon=True)
            self._thread.start()
        self._queue.put(frames)

    def close(self, wait_s: float = 10.0) -> None:
        """Write what waits, and end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(wait_s)
            self._thread = None

    def _run(self) -> None:
        while (frames := self._queue.get()) is not None:
            try:
                frames.write()
            except OSError as error:
                LOG.warning("the stream of request %s is not in log.sse_dir: %s", frames.request_id, error)
            except Exception:
                # A fault of ours in one stream must not take the others with it.
                LOG.exception("the stream of request %s is not in log.sse_dir", frames.request_id)
            self._written += frames.size


def check_sse_dir(directory: str) -> None:
    """Make the directory, before anything is served. Raises AthenaError when it cannot or may not be used."""
    if not directory:
        return
    try:
        own_directory(Path(directory).expanduser())
    except OSError as error:
        raise AthenaError(f"log.sse_dir cannot be used: {error}", code="sse_dir", path="log.sse_dir") from None
