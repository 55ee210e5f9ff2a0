"""What a reader of answers says: text, calls, and calls that could not be used, in their order.

A reader sees the text of one choice. `feed` and `close` return what is decided; what is undecided it keeps. The reader of
taught JSON is `scanner.JsonReader`; `FormatReader` lets a text format's own parser read what that format taught.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from athena.formats.machine.engine import TextParser
from athena.formats.machine.policies import EchoRule, Policies, RepairLevel
from athena.formats.machine.value_types import ToolBook
from athena.formats.machine.writer import Guard
from athena.model.events import Error, Event, TextDelta, ThinkingDelta, ToolCallComplete
from athena.model.limits import DEFAULT_LIMITS, Limits


class FoundText(msgspec.Struct, frozen=True, gc=False):
    """Words for the user, or `thinking`."""

    text: str
    thinking: bool = False


class PromptedCall(msgspec.Struct, frozen=True, gc=False):
    """One call: a declared name and the JSON text of an object."""

    name: str
    arguments: str
    repaired: bool = False


class CallGroup(msgspec.Struct, frozen=True, gc=False):
    """The calls of one JSON value, or one call of a text format. `raw` is all that they took of the answer."""

    calls: tuple[PromptedCall, ...]
    raw: str = ""
    array: bool = False
    """They stood in one array: its end is the end of them."""


class Trouble(msgspec.Struct, frozen=True, gc=False):
    """Something that was meant as a call and cannot be used. Its text follows as text."""

    reason: str
    code: str = "malformed_call"


PromptedItem: TypeAlias = FoundText | CallGroup | Trouble


class PromptedReader(Protocol):
    """Reads the text of one choice."""

    @property
    def pending(self) -> bool:
        """May what is held still become a call?"""
        ...

    def is_plain(self, text: str) -> bool:
        """Would this piece come out at once and unchanged? If so it counts as fed."""
        ...

    def feed(self, text: str) -> list[PromptedItem]: ...

    def close(self, *, ended_well: bool) -> list[PromptedItem]:
        """The text ended; `ended_well`: the model stopped by itself."""
        ...


class FormatReader:
    """The parser of a text format as a reader; calls are shown whole."""

    def __init__(
        self,
        format_id: str,
        book: ToolBook,
        *,
        repair: RepairLevel = "syntax",
        limits: Limits = DEFAULT_LIMITS,
        seed: str = "",
        guard: Guard | None = None,
        echo: EchoRule = "text",
    ) -> None:
        policies = Policies(arguments="hold", malformed="text", unknown_tool="text", repair=repair, echo=echo)
        self._parser = TextParser(format_id, tools=book, policies=policies, limits=limits, seed=seed, guard=guard)
        self._told = 0

    @property
    def pending(self) -> bool:
        return self._parser.holds_text or self._parser.reads_call

    def is_plain(self, text: str) -> bool:
        return self._parser.is_plain(text)

    def feed(self, text: str) -> list[PromptedItem]:
        return self._with_notes(_items(self._parser.feed(text)))

    def close(self, *, ended_well: bool) -> list[PromptedItem]:
        return self._with_notes(_items(self._parser.close(ended_well=ended_well)))

    def _with_notes(self, items: list[PromptedItem]) -> list[PromptedItem]:
        """What the parser found without making an event of it: calls that stay text."""
        notes = self._parser.notes
        if len(notes) > self._told:
            items += [Trouble(note.message, note.code) for note in notes[self._told :]]
            self._told = len(notes)
        return items


def _items(events: list[Event]) -> list[PromptedItem]:
    items: list[PromptedItem] = []
    for event in events:
        if isinstance(event, TextDelta):
            items.append(FoundText(event.text))
        elif isinstance(event, ThinkingDelta):
            items.append(FoundText(event.text, thinking=True))
        elif isinstance(event, ToolCallComplete):
            items.append(CallGroup((PromptedCall(event.name, event.arguments, event.repaired),), event.arguments))
        elif isinstance(event, Error):
            items.append(Trouble(event.message, event.code))
    return items
