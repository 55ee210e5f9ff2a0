"""Where lines go: standard error or a file that is put aside at a size, through a bounded queue and a thread of their own."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import threading
import time
from pathlib import Path
from typing import Protocol

from athena.shells.logs.lines import local_time
from athena.shells.own_files import UnsafePlace, open_own

_QUEUE_LINES = 10_000
_BACKUPS = 3


class Sink(Protocol):
    """Takes finished lines."""

    def write(self, text: str) -> None: ...

    def close(self) -> None: ...


class StderrSink:
    def write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(2, data) :]

    def close(self) -> None:
        """Nothing to close."""


_OWN_LINE = re.compile(
    rb"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3} (debug|info|warning|error|critical) "
    rb'|\{"time":"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}Z","level":"[a-z]+","logger":"'
    rb"|athena: "
)
"""How a log of ours begins: a line in text or JSON, or what `athena` itself said while it was started in the background."""


def open_log(path: Path) -> int:
    """A descriptor that appends to a log of ours, made with mode 600 where it is missing.

    Raises UnsafePlace for anything else that is there already: the lines hold names that clients choose, and in a file that
    some other program reads they could be instructions.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        _check_is_log(path, descriptor)
        os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_is_log(path: Path, descriptor: int) -> None:
    beginning = os.pread(descriptor, 128, 0)
    if beginning and not _OWN_LINE.match(beginning):
        raise UnsafePlace(f"{path} is there already and is not a log of Athena; name another file, or move this one away")


class FileSink:
    """A file of mode 600 that is put aside at a size. Several processes may write to the same one, or somebody may move it.

    Raises UnsafePlace when the file, or one that a full log would be moved to, is there and is not a log of ours.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._file = -1
        for number in range(1, _BACKUPS + 1):
            self._check_backup(self._backup(number))
        self._open()

    def write(self, text: str) -> None:
        """Write whole lines; may raise OSError."""
        data = text.encode("utf-8", "backslashreplace")
        if not self._is_current():
            self._open()
        size = os.fstat(self._file).st_size
        if size and size + len(data) > self._limit:
            self._rotate()
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self.close()
        self._file = open_log(self._path)

    def _check_backup(self, path: Path) -> None:
        try:
            descriptor = open_own(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            _check_is_log(path, descriptor)
        finally:
            os.close(descriptor)

    def _is_current(self) -> bool:
        if self._file < 0:
            return False
        try:
            found = os.lstat(self._path)
        except OSError:
            return False
        own = os.fstat(self._file)
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def _rotate(self) -> None:
        for number in range(_BACKUPS, 0, -1):
            source = self._path if number == 1 else self._backup(number - 1)
            with contextlib.suppress(FileNotFoundError):
                os.replace(source, self._backup(number))
        self._open()

    def _backup(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


_GATHER_S = 0.02


class LinesHandler(logging.Handler):
    """Formats and writes records; with `threaded` in a thread of its own, behind a bounded queue."""

    def __init__(self, sink: Sink, *, threaded: bool) -> None:
        super().__init__()
        self._sink = sink
        self._dropped = 0
        self._queue: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._drain, name="athena-log", daemon=True)
            self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that were dropped since the last report of it."""
        return self._dropped

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record; never waits, never raises."""
        if self._thread is None:
            self._write([record])
            return
        if self._queue.qsize() < _QUEUE_LINES:
            self._queue.put(record)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Write what is waiting, for at most two seconds."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(2)
            self._thread = None
        self._sink.close()
        super().close()

    def _drain(self) -> None:
        while True:
            records = [self._queue.get()]
            while len(records) < 500:
                try:
                    records.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            last = records[-1] is None
            self._write([record for record in records if record is not None])
            if last:
                return
            # What comes meanwhile is written in one go: waking up for each line costs more than the line.
            time.sleep(_GATHER_S)

    def _write(self, records: list[logging.LogRecord]) -> None:
        lines = [self._line(record) for record in records]
        if self._dropped:
            lost, self._dropped = self._dropped, 0
            notice = {"msg": f"{lost} log lines were dropped", "levelname": "WARNING", "levelno": 30, "name": "athena"}
            lines.append(self._line(logging.makeLogRecord(notice)))
        try:
            if lines:
                self._sink.write("\n".join(lines) + "\n")
        except OSError:
            self._dropped += len(records)

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as error:
            # A log line that cannot be formatted must not end the thread that writes all others.
            return f"{local_time(record.created)} error   a log line of {record.name} cannot be shown: {type(error).__name__}"
