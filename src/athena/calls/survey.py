"""One look over a history: which kinds of things are in it, and which turns call and answer.

Most steps that fit a request to a target have nothing to do with most requests: no part is foreign, nothing is signed, every
call is answered in order. They ask the survey instead of walking over every part of every turn themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import chain
from typing import Final, TypeAlias

import msgspec

from athena.model.parts import (
    Audio,
    Citation,
    Document,
    Foreign,
    Image,
    Nested,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Video,
)
from athena.model.request import Turn
from athena.wire.json_span import is_json_object
from athena.wire.recall import Recall

FOREIGN: Final = 1 << 0
"""A part that only its own dialect understands."""
EXTRAS: Final = 1 << 1
"""Unknown fields of a turn or of a part."""
CITED: Final = 1 << 2
"""Text with citations."""
DOCUMENTS: Final = 1 << 3
IMAGES: Final = 1 << 4
BLANK: Final = 1 << 5
"""Text without a visible character, or a result that holds nothing."""
SIGNED: Final = 1 << 6
"""Reasoning state on a part."""
THOUGHTS: Final = 1 << 7
"""Readable reasoning."""
CUSTOM: Final = 1 << 8
"""Free-form calls or results of them."""
PHASES: Final = 1 << 9
SYSTEM: Final = 1 << 10
"""Turns of instructions."""
BROKEN: Final = 1 << 11
"""A function call of an assistant's turn whose arguments are no JSON object."""
TOLD: Final = 1 << 12
"""Anything but reasoning."""
ADRIFT: Final = 1 << 13
"""Calls outside of an assistant's turn, or results inside of one or without the id of a call."""


ALL: Final = -1
"""What a history can hold of which nothing is known."""


_id_of = operator.attrgetter("id")
_calls_of = operator.attrgetter("calls")
_call_ids_of = operator.attrgetter("call_ids")
_answered_of = operator.attrgetter("answered")
_results_first_of = operator.attrgetter("results_first")
_kinds_of = operator.attrgetter("kinds")


class TurnFacts(msgspec.Struct, frozen=True, gc=False):
    """What one turn holds, read once and kept: calls, results and their ids."""

    kinds: int
    calls: tuple[ToolCall, ...] = ()
    call_ids: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    """The ids of the calls that its results answer."""
    results_first: bool = True
    """No other part stands before a result."""
    results_only: bool = False
    """There are results and nothing else."""


class Survey(msgspec.Struct, frozen=True, gc=False):
    """What a history holds: of all turns together, and of each."""

    turns: tuple[Turn, ...]
    facts: list[TurnFacts]
    kinds: int

    def has(self, kinds: int) -> bool:
        """Is there anything of these kinds?"""
        return self.kinds & kinds != 0

    def calls(self) -> Iterator[ToolCall]:
        """All calls, in order."""
        return chain.from_iterable(map(_calls_of, self.facts))

    def call_ids(self) -> Iterator[str]:
        """The ids of all calls, in order."""
        return chain.from_iterable(map(_call_ids_of, self.facts))


KnownFacts: TypeAlias = Callable[[tuple[Turn, ...]], list[TurnFacts]]
"""What each turn of a history holds, some of it from memory."""


def survey(turns: tuple[Turn, ...], known: KnownFacts | None = None) -> Survey:
    """Look at every turn once; `known` gives what is already known of turns."""
    facts = list(map(turn_facts, turns)) if known is None else known(turns)
    return Survey(turns, facts, reduce(operator.or_, map(_kinds_of, facts), 0))


def known_facts(recall: Recall, turns: tuple[Turn, ...]) -> list[TurnFacts]:
    """What each turn holds, looked at once for all requests that hold it."""
    return recall.facts(turns, turn_facts)


def turn_facts(turn: Turn) -> TurnFacts:
    """What this turn holds."""
    kinds = 0
    calls: list[ToolCall] = []
    answered: list[str] = []
    role = turn.role
    said, results_first = False, True
    for part in turn.parts:
        kind = type(part)
        # mypy does not see that the type was just looked at.
        if kind is Text:
            kinds |= _text(part)  # type: ignore[arg-type]
            said = True
        elif kind is ToolCall:
            calls.append(part)  # type: ignore[arg-type]
            kinds |= _call(part)  # type: ignore[arg-type]
            said = True
        elif kind is ToolResult:
            answered.append(part.call_id)  # type: ignore[union-attr]
            results_first = results_first and not said
            kinds |= _result(part)  # type: ignore[arg-type]
        else:
            kinds |= _other(part)
            said = True
    if turn.extras:
        kinds |= EXTRAS
    if turn.phase is not None:
        kinds |= PHASES
    if role == "assistant":
        if answered:
            kinds |= ADRIFT
    else:
        # Only an assistant's calls are mended.
        kinds &= ~BROKEN
        if calls:
            kinds |= ADRIFT
        if role == "system":
            kinds |= SYSTEM
    if not answered:
        return TurnFacts(kinds, tuple(calls), tuple(map(_id_of, calls))) if calls else TurnFacts(kinds)
    only = len(answered) == len(turn.parts)
    return TurnFacts(kinds, tuple(calls), tuple(map(_id_of, calls)), tuple(answered), results_first, only)


_marks_of = operator.attrgetter("extras", "citations", "signature")
_NO_MARKS = (None, (), None)


def _text(part: Text) -> int:
    text = part.text
    if text and _marks_of(part) == _NO_MARKS and not text.isspace():
        return TOLD
    kinds = TOLD
    if part.extras:
        kinds |= EXTRAS
    if part.citations:
        kinds |= CITED
    if part.signature is not None:
        kinds |= SIGNED
    if not text or text.isspace():
        kinds |= BLANK
    return kinds


def _call(part: ToolCall) -> int:
    kinds = TOLD
    if part.extras:
        kinds |= EXTRAS
    if part.signature is not None:
        kinds |= SIGNED
    if part.kind != "function":
        kinds |= CUSTOM
    elif is_broken(part):
        kinds |= BROKEN
    return kinds


def is_broken(part: ToolCall) -> bool:
    """Are the arguments of this function call something, but no JSON object?"""
    arguments = part.arguments
    return part.kind == "function" and arguments != "{}" and bool(arguments.strip()) and not is_json_object(arguments)


def _result(part: ToolResult) -> int:
    kinds = TOLD
    if part.extras:
        kinds |= EXTRAS
    if part.kind != "function":
        kinds |= CUSTOM
    if not part.parts:
        kinds |= BLANK
    if not part.call_id:
        kinds |= ADRIFT
    for inner in part.parts:
        kinds |= _text(inner) if type(inner) is Text else _other(inner)
    return kinds


def _other(part: Part) -> int:
    kinds = TOLD
    if part.extras:
        kinds |= EXTRAS
    match part:
        case Thinking():
            kinds &= ~TOLD
            if part.signature is not None:
                kinds |= SIGNED
            if part.text:
                kinds |= THOUGHTS
        case Foreign():
            kinds |= FOREIGN
        case Image():
            kinds |= IMAGES
        case Document():
            kinds |= DOCUMENTS
            if isinstance(part.source, Nested):
                kinds |= kinds_of(part.source.parts)
        case Refusal():
            if not part.text or part.text.isspace():
                kinds |= BLANK
        case Text():
            kinds |= _text(part)
        case ToolCall():
            kinds |= _call(part)
        case ToolResult():
            kinds |= _result(part)
        case Audio() | Video() | Citation():
            pass
    return kinds


def kinds_of(parts: Iterable[Part]) -> int:
    """What these parts hold, and those inside of them."""
    kinds = 0
    for part in parts:
        kinds |= _text(part) if type(part) is Text else _other(part)
    return kinds


def is_orderly(looked: Survey, fits: Callable[[str], object]) -> bool:
    """Is every call answered right after its turn, in the order of the calls and by nothing else, under ids that occur once
    and that `fits` takes? Then there is nothing to pair, and no id to make unique or to fit.
    """
    if looked.kinds & ADRIFT:
        return False
    ids = list(looked.call_ids())
    if len(set(ids)) < len(ids) or not all(map(fits, ids)):
        return False
    return are_answered_next(looked.facts) or are_answered(looked)


def are_answered_next(facts: list[TurnFacts]) -> bool:
    """Is what each turn calls what the next one answers, before anything else? So it is in most histories, which are long: no
    turn takes a step of Python's. Where nothing is adrift, `are_answered` says the same of all these histories."""
    called: list[tuple[str, ...]] = list(map(_call_ids_of, facts))
    answered: list[tuple[str, ...]] = list(map(_answered_of, facts))
    return [(), *called] == [*answered, ()] and all(map(_results_first_of, facts))


def are_answered(looked: Survey) -> bool:
    """Is every call answered before the next turn of the assistant, in the order of the calls and before anything else? For
    histories in which nothing is adrift."""
    wanted: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    first = True
    for turn, facts in zip(looked.turns, looked.facts, strict=True):
        if turn.role == "assistant":
            if wanted != given:
                return False
            wanted, given, first = facts.call_ids, (), True
        elif facts.answered:
            # A part before the results, in this turn or one before it, is moved after them.
            if not first or not facts.results_first:
                return False
            given += facts.answered
            first = facts.results_only
        elif turn.parts:
            first = False
    return wanted == given
