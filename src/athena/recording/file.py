"""A recording as text: `*.athena`, one JSON object per line, each with its kind in `line`.

One exchange is the lines `recording`, `settings`, `seals`, `request`, what happened, `outcome`, in that order; a file may hold
several exchanges one after another. Empty lines are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from athena.errors import AthenaError
from athena.recording.lines import (
    VERSION,
    ClientRequest,
    Happened,
    Header,
    Line,
    RecordedOutcome,
    Recording,
    Seals,
    Settings,
)

_decode = msgspec.json.Decoder(Line).decode
_encode = msgspec.json.Encoder().encode


class UnreadableRecording(AthenaError):
    """A recording cannot be read: it is none, it is empty, a newer version made it, or it was cut.

    The message names the file and the line; export it again with the version that reads it.
    """

    code = "unreadable_recording"


def encode(recording: Recording) -> bytes:
    """The recording as the text of a file."""
    lines: list[Line] = [recording.header, recording.settings]
    if recording.seals != Seals():
        lines.append(recording.seals)
    lines += [recording.request, *recording.happened, recording.outcome]
    return b"".join(_encode(line) + b"\n" for line in lines)


def decode(data: bytes, name: str = "") -> list[Recording]:
    """The recordings of a file, at least one. Raises UnreadableRecording, which names the file if its name is given."""
    try:
        found = list(read(data.split(b"\n")))
        if not found:
            raise UnreadableRecording("there is no exchange in this file")
    except UnreadableRecording as error:
        raise UnreadableRecording(f"{name}: {error.message}" if name else error.message) from None
    return found


def read(lines: Iterable[bytes]) -> Iterator[Recording]:
    """The recordings of a file, read line by line."""
    parts: list[Line] = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        line = _line(text, number)
        if isinstance(line, Header) == bool(parts):
            raise UnreadableRecording(
                f"line {number}: " + ("the exchange before it has no outcome" if parts else "no recording")
            )
        parts.append(line)
        if isinstance(line, RecordedOutcome):
            yield _recording(parts, number)
            parts = []
    if parts:
        raise UnreadableRecording("the file ends inside of an exchange")


def _line(text: bytes, number: int) -> Line:
    try:
        line: Line = _decode(text)
    except (msgspec.DecodeError, ValueError) as error:
        if _version(text) > VERSION:
            raise UnreadableRecording(f"line {number}: made by a newer version of Athena") from None
        raise UnreadableRecording(f"line {number} is not a line of a recording: {error}") from None
    if isinstance(line, Header) and line.version > VERSION:
        raise UnreadableRecording(f"line {number}: version {line.version} of the file; this Athena reads up to {VERSION}")
    return line


class _Versioned(msgspec.Struct):
    version: int = 0


_read_version = msgspec.json.Decoder(_Versioned).decode


def _version(text: bytes) -> int:
    try:
        return _read_version(text).version
    except msgspec.DecodeError:
        return 0


def _recording(parts: list[Line], number: int) -> Recording:
    header = parts[0]
    outcome = parts[-1]
    assert isinstance(header, Header)
    assert isinstance(outcome, RecordedOutcome)
    settings, seals, request = None, Seals(), None
    happened: list[Happened] = []
    for line in parts[1:-1]:
        if isinstance(line, Settings):
            settings = line
        elif isinstance(line, Seals):
            seals = line
        elif isinstance(line, ClientRequest):
            request = line
        elif not isinstance(line, Header | RecordedOutcome):
            happened.append(line)
    if settings is None or request is None:
        missing = "settings" if settings is None else "request"
        raise UnreadableRecording(f"the exchange that ends in line {number} has no {missing}")
    return Recording(header=header, settings=settings, seals=seals, request=request, happened=tuple(happened), outcome=outcome)
