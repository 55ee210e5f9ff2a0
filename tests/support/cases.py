"""The data files of `tests/cases`: read once, typed, checked."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

CASES = Path(__file__).parent.parent / "cases"

MANDATORY = (
    "text",
    "thinking",
    "thinking_signed",
    "redacted",
    "one_call",
    "parallel_calls",
    "interleaved_calls",
    "calls_in_one_chunk",
    "late_id",
    "missing_id",
    "name_after_arguments",
    "arguments_whole",
    "zero_arguments",
    "unicode",
    "text_after_call",
    "stop_beside_call",
    "length",
    "length_cut_call",
    "refusal",
    "usage_details",
    "error_before",
    "error_in_stream",
    "empty",
    "truncated",
    "malformed_arguments",
)


class ExpectedPart(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One part of a canonical answer, by the field that is set."""

    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    redacted: str | None = None
    refusal: str | None = None
    call: str | None = None
    id: str | None = None
    arguments: str | None = None
    input: str | None = None
    foreign: str | None = None
    choice: int = 0


class ExpectedError(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    code: str | None = None
    message: str | None = None


class AnswerCase(msgspec.Struct, forbid_unknown_fields=True):
    """An upstream answer in its dialect's bytes, and what it means."""

    name: str
    parts: tuple[ExpectedPart, ...] = ()
    stream: str | None = None
    whole: str | None = None
    finish: str | None = None
    stop_sequence: str | None = None
    usage: dict[str, int] | None = None
    error: ExpectedError | None = None
    note: str = ""
    profile: dict[str, Any] = {}


class RequestCase(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    body: str
    model: str | None = None
    stream: bool | None = None
    note: str = ""


class BadRequestCase(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    body: str
    path: str
    note: str = ""


class DialectCases(msgspec.Struct, forbid_unknown_fields=True):
    answer: tuple[AnswerCase, ...]
    request: tuple[RequestCase, ...] = ()
    bad_request: tuple[BadRequestCase, ...] = ()
    not_applicable: dict[str, str] = {}


@cache
def dialect_cases(name: str) -> DialectCases:
    """The case file of one dialect."""
    value = tomllib.loads((CASES / "dialects" / f"{name}.toml").read_text(encoding="utf-8"))
    return msgspec.convert(value, DialectCases)


Mode = Literal["stream", "whole"]


def answer_modes(name: str) -> list[tuple[AnswerCase, Mode]]:
    """Every case of a dialect, once per form it has."""
    found: list[tuple[AnswerCase, Mode]] = []
    for case in dialect_cases(name).answer:
        if case.stream is not None:
            found.append((case, "stream"))
        if case.whole is not None:
            found.append((case, "whole"))
    return found


def case_bytes(case: AnswerCase, mode: Mode) -> bytes:
    """The upstream's bytes of one form."""
    text = case.stream if mode == "stream" else case.whole
    assert text is not None
    return text.encode("utf-8")
