"""Calls held against the tools that were declared. The result is only counted: whether to refuse a call is for the client."""

from __future__ import annotations

from collections.abc import Callable

from athena.formats.machine.value_types import ToolBook
from athena.model.events import Error, Event, ToolCallComplete
from athena.model.request import Request
from athena.prompted.validation import LATE_STEPS, ArgumentCheck, Verdict
from athena.serving.record import RequestRecord

_AT_ONCE_CHARS = 16 * 1024
_AT_ONCE_STEPS = 50_000
_AT_ONCE_ANSWER_STEPS = 300_000
"""Arguments, and the steps of one check and of all checks of an answer, up to which a call is held against its schema as it
passes: everybody's streams wait meanwhile. What is more is checked once the client has its answer."""


class CallChecks:
    """The calls of one answer, counted in its record."""

    __slots__ = ("_check", "_late", "_record", "_request", "_tools")

    def __init__(self, request: Request, record: RequestRecord) -> None:
        self._request = request
        self._record = record
        self._tools: ToolBook | None = None
        self._check: ArgumentCheck | None = None
        self._late: list[ToolCallComplete] = []

    def note(self, event: Event) -> None:
        """Count a call, or a call that failed."""
        record = self._record
        if type(event) is ToolCallComplete:
            record.calls += 1
            record.repairs += event.repaired
            self._hold_against_schema(event)
        elif type(event) is Error and event.call is not None:
            _add(record.details.bad_calls, "malformed" if event.code == "malformed_call" else event.code)

    @property
    def has_late(self) -> bool:
        """Are there checks left that would have kept others waiting?"""
        return bool(self._late)

    def late(self) -> Callable[[], list[Verdict]] | None:
        """The checks that would have kept others waiting, to be run in a thread; None: there are none."""
        if not self._late or self._tools is None:
            return None
        check, calls = ArgumentCheck(self._tools), self._late
        return lambda: [check.verdict(call.name, call.arguments, LATE_STEPS) for call in calls]

    def judge(self, verdict: Verdict) -> None:
        """Count the outcome of one check."""
        if verdict.problem:
            self._count_bad("off_schema")
        if verdict.unchecked:
            self._record.unchecked_calls += 1
            _add(self._record.details.unchecked_calls, verdict.unchecked)

    def _hold_against_schema(self, event: ToolCallComplete) -> None:
        if self._tools is None:
            self._tools = ToolBook(self._request.tools)
        if self._check is None:
            self._check = ArgumentCheck(self._tools, _AT_ONCE_ANSWER_STEPS)
        if not self._tools.declared(event.name):
            self._count_bad("unknown_tool")
        elif event.kind != "function":
            return
        elif self._record.large or len(event.arguments) > _AT_ONCE_CHARS:
            self._late.append(event)
        else:
            verdict = self._check.verdict(event.name, event.arguments, _AT_ONCE_STEPS)
            if verdict.unchecked in ("steps", "answer_steps"):
                self._late.append(event)
            else:
                self.judge(verdict)

    def _count_bad(self, reason: str) -> None:
        self._record.bad_calls += 1
        _add(self._record.details.bad_calls, reason)


def _add(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
