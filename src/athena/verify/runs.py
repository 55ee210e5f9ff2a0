"""A run as lines of JSON: the head says what was asked of whom, then one line per answer. A run that was interrupted is resumed
from its file, and a file is all that a report or a comparison needs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from athena.errors import InvalidRequest
from athena.verify.cases import AnswerMode, VerifyCase


class SideResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of one answer on one side."""

    classes: tuple[str, ...] = ()
    """Labels of `athena.quality.Found`."""
    marks: dict[str, bool] = {}
    """Metrics that the answer passed or failed."""
    calls: str = ""
    """Its calls in one form for all dialects, to compare streamed and whole answers; empty where there are none."""
    finish: str = ""
    word: str = ""
    """The upstream's own word for the end."""


class VerifyTrial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request and what came of it."""

    case: str
    mode: AnswerMode
    raw: SideResult
    through: SideResult
    status: int = 0
    error: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    first_byte_ms: float = 0.0
    gap_ms: float = 0.0
    """The longest silence within a stream."""
    duration_ms: float = 0.0
    recording: str = ""
    """The exchange's id for `athena record show`; empty where it is not kept."""
    again: int = 0
    """How often it was asked before, and told to wait."""
    differs: tuple[str, ...] = ()
    """Metrics that it fails beside an earlier answer to the same case, and not by itself."""
    facts: dict[str, str] = {}
    """What the answer shows about the upstream's settings."""


class RunHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of a run: which upstream was asked for what."""

    version: int = 1
    athena: str = ""
    upstream: str
    model: str
    dialect: str
    base_url: str
    profile: str = ""
    format: str = ""
    """Text format that was looked for."""
    tools: str = ""
    started: str = ""
    seed: int = 0
    battery: str = ""
    """The digest of the cases; equal runs asked the same."""
    price_in: float = 0.0
    price_out: float = 0.0
    """Money for a million tokens, where it was said."""
    window: tuple[int, int] = (0, 0)
    """Context and longest answer by the upstream's list; 0: not said."""


class VerifyRun(msgspec.Struct, frozen=True):
    """A run, finished or not."""

    head: RunHead
    trials: tuple[VerifyTrial, ...]


def battery_digest(cases: Iterable[VerifyCase]) -> str:
    """Equal where the same cases are asked."""
    return hashlib.sha256(msgspec.json.encode(list(cases), order="sorted")).hexdigest()[:16]


def line_of(value: RunHead | VerifyTrial) -> bytes:
    """One line of the file."""
    return msgspec.json.encode(value) + b"\n"


_read_head = msgspec.json.Decoder(RunHead).decode


_read_trial = msgspec.json.Decoder(VerifyTrial).decode


def read_run(data: bytes) -> VerifyRun:
    """A run from its file. A last line that is cut, as an interruption leaves it, is passed over."""
    lines = data.split(b"\n")
    try:
        head = _read_head(lines[0])
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"this is not a file of athena verify: {error}") from None
    trials = []
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            trials.append(_read_trial(line))
        except msgspec.DecodeError as error:
            if number == len(lines):
                break
            raise InvalidRequest(f"line {number} of the run is damaged: {error}") from None
    return VerifyRun(head, tuple(trials))
