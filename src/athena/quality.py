"""What can be wrong with an answer, as one closed list of classes that everything which judges upstreams shares.

`athena verify` counts these classes over a battery of requests, and a gateway counts them over its traffic. Both fill in an
`AnswerOutcome`, from events or from a request's record, and both ask `findings` what it shows: so a rate of one means the same
as a rate of the other.

>>> [found.label for found in findings(AnswerOutcome(calls=2, off_schema=1, leaks=("kimi_k2",)))]
['off_schema', 'leak:kimi_k2']
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from athena.errors import ErrorKind
from athena.formats.machine.value_types import ToolBook
from athena.model.events import (
    Done,
    Error,
    Event,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallStart,
    Usage,
    WholePart,
)
from athena.model.request import Tool
from athena.prompted.validation import ArgumentCheck

__all__ = ["AnswerOutcome", "AnswerReader", "Finding", "Found", "findings"]


class Finding(Enum):
    """One class of what an answer shows about its upstream."""

    INVALID_JSON = "invalid_json"
    """The arguments of a call are not a JSON object."""
    UNKNOWN_NAME = "unknown_name"
    """A call names a tool that was not declared."""
    OFF_SCHEMA = "off_schema"
    """The arguments of a call do not fit the tool's schema."""
    LEAK = "leak"
    """A call stands in the text or the reasoning instead of the dialect's own place; the detail is its format."""
    REPAIRED = "repaired"
    """A call is usable only because its arguments were repaired."""
    CUT = "cut"
    """The answer stops in the middle: without the end that its dialect asks for, or inside a call."""
    REASONING_ONLY = "reasoning_only"
    """There is reasoning, and neither text nor a call."""
    EMPTY = "empty"
    """There is nothing at all in an answer that claims to be complete."""
    ECHO = "echo"
    """A call in the text is quoted from the request."""
    ERROR = "error"
    """There is an error instead of an answer; the detail is its kind."""

    @property
    def is_fault(self) -> bool:
        """Does it speak against the upstream? A repaired call reached its client, and a quotation is the conversation's."""
        return self not in (Finding.REPAIRED, Finding.ECHO)


class Found(NamedTuple):
    """One class that an answer belongs to."""

    finding: Finding
    detail: str = ""
    """The format of a leak, the kind of an error."""

    @property
    def label(self) -> str:
        """As one word: `cut`, `leak:kimi_k2`, `error:rate_limit`."""
        return f"{self.finding.value}:{self.detail}" if self.detail else self.finding.value


class AnswerOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one answer came to."""

    calls: int = 0
    """Calls that are whole, wherever they stood."""
    invalid_json: int = 0
    unknown_names: int = 0
    off_schema: int = 0
    repaired: int = 0
    """Of them."""
    cut_calls: int = 0
    """Calls inside of which the answer ended, although it said why it ended."""
    echoes: int = 0
    leaks: tuple[str, ...] = ()
    """Formats in which calls stood in the text."""
    has_text: bool = False
    """Is there visible text that is more than white space?"""
    has_reasoning: bool = False
    has_parts: bool = False
    """Is there anything else: an image, a block of the provider's own tools?"""
    began: bool = False
    """Did anything of the answer come?"""
    finish: str = ""
    """Why it ended, in our word; empty where it did not."""
    error_kind: ErrorKind | None = None
    error_code: str = ""


_CUT = frozenset(("upstream_closed", "upstream_reset", "idle_timeout", "total_timeout"))
"""Codes of errors that end an answer in its middle."""
_OF_CALLS = {
    "malformed_call": Finding.INVALID_JSON,
    "unknown_tool": Finding.UNKNOWN_NAME,
    "quoted_call": Finding.ECHO,
}
"""Codes of errors that are about a call and have a class of their own."""
_SILENT_ON_PURPOSE = frozenset(("refusal", "filter", "pause", "continuation"))
"""Ends of answers that may well be empty."""


def findings(outcome: AnswerOutcome) -> tuple[Found, ...]:
    """The classes that an answer belongs to, each once, in the order of `Finding`; none for an answer without a flaw."""
    code = outcome.error_code
    found: list[Found] = []
    if outcome.invalid_json or code == "malformed_call" or outcome.finish == "malformed":
        found.append(Found(Finding.INVALID_JSON))
    if outcome.unknown_names or code == "unknown_tool":
        found.append(Found(Finding.UNKNOWN_NAME))
    if outcome.off_schema:
        found.append(Found(Finding.OFF_SCHEMA))
    found += [Found(Finding.LEAK, name) for name in dict.fromkeys(outcome.leaks)]
    if outcome.repaired:
        found.append(Found(Finding.REPAIRED))
    is_cut = bool(outcome.cut_calls) or code == "truncated_call" or (code in _CUT and outcome.began)
    if is_cut:
        found.append(Found(Finding.CUT))
    if outcome.error_kind is None and not (outcome.calls or outcome.leaks or outcome.has_text or outcome.has_parts):
        if outcome.has_reasoning:
            found.append(Found(Finding.REASONING_ONLY))
        elif outcome.finish not in _SILENT_ON_PURPOSE and not found:
            found.append(Found(Finding.EMPTY))
    if outcome.echoes or code == "quoted_call":
        found.append(Found(Finding.ECHO))
    if outcome.error_kind is not None and not is_cut and code not in _OF_CALLS:
        found.append(Found(Finding.ERROR, outcome.error_kind))
    return tuple(found)


class AnswerReader:
    """Fills in an `AnswerOutcome` from the events of one answer, and keeps what a closer look needs.

    Calls that stand in text are no events of a decoder: whoever looks for them puts their formats into `leaks`.
    """

    def __init__(self, tools: Sequence[Tool], *, most_chars: int = 1024 * 1024) -> None:
        """`most_chars`: how much text and reasoning is kept."""
        self._book = ToolBook(tuple(tools))
        self._check = ArgumentCheck(self._book)
        self._room = most_chars
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._failed: set[int] = set()
        self.calls: list[ToolCallComplete] = []
        self.usage: Usage | None = None
        self.done: Done | None = None
        self.error: Error | None = None
        """The one that ended the answer."""
        self._began = self._has_parts = False
        self._invalid = self._unknown = self._off_schema = self._repaired = self._echoes = self._cut = 0

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    def feed(self, events: Iterable[Event]) -> None:
        """The next events of the answer."""
        for event in events:
            match event:
                case TextDelta():
                    self._began = True
                    self._keep(self._text, event.text)
                case ThinkingDelta():
                    self._began = True
                    self._keep(self._reasoning, event.text)
                case ToolCallStart():
                    self._began = True
                case ToolCallComplete():
                    self._call(event)
                case WholePart():
                    self._has_parts = True
                case Done():
                    self.done, self.usage = event, event.usage or self.usage
                case Error():
                    self._error(event)
                case _:
                    pass

    def _keep(self, place: list[str], text: str) -> None:
        if self._room > 0:
            place.append(text)
            self._room -= len(text)

    def _call(self, call: ToolCallComplete) -> None:
        self.calls.append(call)
        self._repaired += call.repaired
        if not self._book.declared(call.name):
            self._unknown += 1
        elif call.kind == "function" and self._check.verdict(call.name, call.arguments).problem:
            self._off_schema += 1

    def _error(self, error: Error) -> None:
        if error.fatal:
            self.error = error
        finding = _OF_CALLS.get(error.code)
        if finding is Finding.INVALID_JSON:
            self._invalid += 1
        elif finding is Finding.UNKNOWN_NAME:
            self._unknown += 1
        elif finding is Finding.ECHO:
            self._echoes += 1
        elif error.code == "truncated_call":
            self._cut += 1

    def outcome(self, *, leaks: tuple[str, ...] = (), echoes: int = 0) -> AnswerOutcome:
        """What the answer came to, with what was found in its text."""
        error, done = self.error, self.done
        return AnswerOutcome(
            calls=len(self.calls),
            invalid_json=self._invalid,
            unknown_names=self._unknown,
            off_schema=self._off_schema,
            repaired=self._repaired,
            cut_calls=self._cut,
            echoes=self._echoes + echoes,
            leaks=leaks,
            has_text=any(piece.strip() for piece in self._text),
            has_reasoning=any(piece.strip() for piece in self._reasoning),
            has_parts=self._has_parts,
            began=self._began or bool(self.calls),
            finish=done.finish.kind if done is not None else "",
            error_kind=error.kind if error is not None else None,
            error_code=error.code if error is not None else "",
        )
