"""One answer as marks: which metrics it passes and fails. The same rules hold for what came and for what Athena made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from athena.model.events import Event
from athena.model.parts import Part, Text, ToolResult
from athena.model.request import Request, Tool
from athena.parsing import parse
from athena.quality import AnswerOutcome, AnswerReader, Finding, Found, findings
from athena.verify.bfcl import fits_loosely
from athena.verify.cases import AnswerMode, ExpectedCall, VerifyCase
from athena.verify.text_checks import passes_text_check

TOOL_FINISHES = {
    "openai_chat": ("tool_calls", "function_call"),
    "anthropic_messages": ("tool_use",),
}
"""What an answer with calls ends with; the other dialects have no word of their own for it."""
_TEXT_LOOKED_AT = 200_000


class SeenCall(msgspec.Struct, frozen=True):
    """A call as a client saw it."""

    name: str
    arguments: str
    has_own_id: bool = True
    """Did the upstream itself give it an id?"""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, as the upstream sent it or as Athena passed it on."""

    outcome: AnswerOutcome
    status: int = 200
    calls: tuple[SeenCall, ...] = ()
    text: str = ""
    finish: str = ""
    """The upstream's own word for the end."""
    input_tokens: int = 0
    output_tokens: int = 0
    is_well_formed: bool = True
    """The right content type, and no stray records."""
    error: str = ""
    """What the error said."""
    left_for: str = ""
    """Code of the error for which the gateway left this answer before its end; empty where it read all of it."""

    @property
    def found(self) -> tuple[Found, ...]:
        found = findings(self.outcome)
        return tuple(one for one in found if one.finding not in _NEEDS_THE_END) if self.left_for else found


_NEEDS_THE_END = (Finding.EMPTY, Finding.REASONING_ONLY)
"""What only a whole answer shows."""


def read_side(
    events: tuple[Event, ...],
    tools: tuple[Tool, ...],
    *,
    request: Request,
    model: str,
    sent: bytes = b"",
    status: int = 200,
    is_well_formed: bool = True,
    looks_for_leaks: bool = True,
) -> Side:
    """What the events of an answer say. `sent` are the bytes they came from, where ids of calls must stand."""
    reader = AnswerReader(tools)
    reader.feed(events)
    leaks: tuple[str, ...] = ()
    echoes = 0
    if looks_for_leaks and tools:
        leaks, echoes = _leaks(reader, tools, request, model)
    done, usage, error = reader.done, reader.usage, reader.error
    return Side(
        outcome=reader.outcome(leaks=leaks, echoes=echoes),
        status=status,
        calls=tuple(SeenCall(call.name, call.arguments, call.id.encode() in sent) for call in reader.calls),
        text=reader.text,
        finish=done.finish.raw if done is not None else "",
        input_tokens=usage.input_total if usage is not None and not usage.estimated else 0,
        output_tokens=usage.output_total if usage is not None and not usage.estimated else 0,
        is_well_formed=is_well_formed,
        error=error.message[:300] if error is not None else "",
    )


def _leaks(reader: AnswerReader, tools: tuple[Tool, ...], request: Request, model: str) -> tuple[tuple[str, ...], int]:
    """The formats in which calls stand in the text, and how many are quotations."""
    formats: list[str] = []
    echoes = 0
    untrusted = tuple(_texts(request))
    for text, channel in ((reader.text, "text"), (reader.reasoning, "reasoning")):
        if not text.strip():
            continue
        parsed = parse(
            text[:_TEXT_LOOKED_AT],
            model=model,
            tools=tools,
            channel="reasoning" if channel == "reasoning" else "text",
            untrusted=untrusted,
        )
        bad = [error for error in parsed.errors if error.code != "quoted_call"]
        echoes += len(parsed.errors) - len(bad)
        if parsed.calls or bad:
            formats.append(parsed.format)
    return tuple(formats), echoes


def _texts(request: Request) -> list[str]:
    """Whatever in a request is not the model's own."""
    found = [part.text for part in request.system if isinstance(part, Text)]
    for turn in request.turns:
        if turn.role != "assistant":
            found += _part_texts(turn.parts)
    return found


def _part_texts(parts: tuple[Part, ...]) -> list[str]:
    found: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            found.append(part.text)
        elif isinstance(part, ToolResult):
            found += _part_texts(part.parts)
    return found


def judge(
    case: VerifyCase, mode: AnswerMode, side: Side, *, dialect: str = "openai_chat", is_raw: bool = True
) -> dict[str, bool]:
    """The metrics that this answer says something about, and whether it passes them."""
    classes = {found.finding for found in side.found}
    if case.expects == "refusal":
        return {"error_form": 400 <= side.status < 500 and bool(side.error)}
    if Finding.ERROR in classes:
        # What a case asks for on purpose and is refused speaks of that alone.
        is_refusal = side.outcome.error_kind in ("invalid", "not_found") and case.metric in ("parameters", "late_system")
        return {case.metric: False} if is_refusal else {"answered": False}
    if side.left_for:
        # What did not come was not waited for: only what made the gateway leave speaks against the upstream.
        marks = {"answered": True, "form": side.is_well_formed}
        return marks | {"tool_choice": False} if side.left_for == "tool_choice_unmet" else marks
    marks = {"answered": True, "complete": Finding.CUT not in classes}
    if Finding.CUT in classes:
        return marks
    marks["not_empty"] = Finding.EMPTY not in classes
    marks["not_reasoning_only"] = Finding.REASONING_ONLY not in classes
    if case.body.get("tools"):
        marks["no_leak"] = Finding.LEAK not in classes
    if side.calls or Finding.INVALID_JSON in classes:
        marks["valid_json"] = Finding.INVALID_JSON not in classes
    if side.calls:
        marks["known_names"] = Finding.UNKNOWN_NAME not in classes
        if marks["known_names"]:
            marks["schema"] = Finding.OFF_SCHEMA not in classes
    if is_raw and not side.outcome.error_kind:
        marks |= _wire_marks(case, side, dialect)
    spoilt = {Finding.INVALID_JSON, Finding.EMPTY, Finding.REASONING_ONLY, Finding.UNKNOWN_NAME, Finding.OFF_SCHEMA}
    if not spoilt & classes:
        marks |= _own_marks(case, side)
    return marks


def _wire_marks(case: VerifyCase, side: Side, dialect: str) -> dict[str, bool]:
    marks = {"usage": side.input_tokens > 0 and side.output_tokens > 0, "form": side.is_well_formed}
    expected = TOOL_FINISHES.get(dialect)
    if side.calls and dialect != "gemini":
        ids = [call.has_own_id for call in side.calls]
        marks["ids"] = all(ids)
    if expected is not None and side.finish:
        # A call that the request forces by name may end with the plain word, as at OpenAI itself.
        is_named = isinstance(case.body.get("tool_choice"), dict)
        is_tool = side.finish in expected
        marks["finish"] = (is_tool or is_named) if side.calls else not is_tool
    return marks


def _own_marks(case: VerifyCase, side: Side) -> dict[str, bool]:
    """What only this kind of case can tell."""
    if case.metric in ("streams_alike", "reference"):
        return {}  # a single answer does not tell
    if case.metric == "tool_choice":
        return _choice_marks(case, side)
    return {case.metric: _is_as_expected(case, side)}


def _choice_marks(case: VerifyCase, side: Side) -> dict[str, bool]:
    """Was the choice kept, and apart from that: do the forced calls hold what the user asked for? A server keeps the choice,
    a model chooses the values."""
    is_kept = _keeps_choice(case.body.get("tool_choice"), side.calls)
    if not is_kept or not any(call.arguments or call.allowed for call in case.calls):
        return {"tool_choice": is_kept}
    return {"tool_choice": True, "values": _fits(case.calls, side.calls)}


def _keeps_choice(choice: object, calls: tuple[SeenCall, ...]) -> bool:
    """`choice` as a Chat request holds it."""
    if choice == "none":
        return not calls
    if isinstance(choice, dict):
        return bool(calls) and {call.name for call in calls} == {choice["function"]["name"]}
    return bool(calls)


def _is_as_expected(case: VerifyCase, side: Side) -> bool:
    if case.metric in ("parameters", "late_system"):
        return True
    if case.text_check:
        return passes_text_check(case.text_check, side.text, case.body)
    if case.expects == "no_call":
        return not side.calls and (not case.contains or case.contains.lower() in side.text.lower())
    if case.expects == "call":
        return _fits(case.calls, side.calls) if case.calls else bool(side.calls)
    return True


def _fits(wanted: tuple[ExpectedCall, ...], calls: tuple[SeenCall, ...]) -> bool:
    """Is each wanted call made, in any order, and none besides?"""
    left = list(calls)
    for expected in wanted:
        match = next((call for call in left if _is(expected, call)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _is(expected: ExpectedCall, call: SeenCall) -> bool:
    if expected.name != call.name:
        return False
    try:
        given: Mapping[str, Any] = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return False
    if any(given.get(key) != value for key, value in expected.arguments.items()):
        return False
    if expected.loosely:
        return fits_loosely(expected.allowed, given)
    for key, values in expected.allowed.items():
        if key not in given:
            if "" not in values:
                return False
        elif given[key] not in values:
            return False
    return True
