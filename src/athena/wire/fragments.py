"""Parts of requests that were seen before, known by their bytes: each message, the list of tools, the instructions.

An agent's request repeats nearly all of its last one. A body is cut where its JSON says so, without decoding it, and each part
is looked up by its bytes. A part that is known has its decoded value, and what others made of that value: the turn, what the
turn holds, the messages for a target, their JSON.

Whatever is remembered is a function of the part's bytes and of what its key names, and none of it is ever changed. So a value
that is the same object as a remembered one says the same, and a step that changes something makes a new object, of which
nothing is remembered. No answer depends on what is remembered: whatever is not known, or not usual, goes the long way.

What comes once costs nothing to remember: only a note is kept that it came. A conversation, a list of tools or instructions
that were noted before are kept as parts from then on.

Parts of different callers do not meet: the caller is a part of the key, so that the time a request takes says nothing about
what others have sent. All parts together stay within a bound of bytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from athena.wire.shape import Shape

_Whole = TypeVar("_Whole", bound="KnownConversation | KnownHistory")

CONVERSATIONS = ("messages", "contents", "input")
"""Fields that are a list of parts."""
_NOTES = 8192
"""How many notes there are of what came once, twice over."""
PART = 1400
VALUE = 130
"""What a part takes besides its text, and what each value in it takes, with all that is made of them. Measured."""
WRITTEN = 700
"""What a form for one target takes besides its JSON."""
MEANING = 100
"""What a message takes in a row of messages and what they mean."""
_CONVERSATIONS_KEPT = 8
"""Conversations of one caller whose last request is remembered as a whole."""


class Fragment(msgspec.Struct, eq=False):
    """One part: its value, and what was made of it. Nobody changes any of that."""

    key: tuple[Hashable, bytes]
    """Where it came from, which decides what it means, and its bytes."""
    value: Any
    shape: Shape
    size: int
    meaning: Any = None
    """What a decoder made of the value."""
    facts: Any = None
    """What was found out about that."""
    tokens: int | None = None
    """How many tokens that is thought to be."""
    forms: dict[Hashable, Written] = {}
    """What it became for targets."""
    text: msgspec.Raw | None = None
    """The value as JSON of ours, once it was written."""
    run: Fragment | None = None
    """The parts from this one on that together mean one thing, as one part whose value is the list of theirs."""


class Written:
    """What a turn or the tools became for one target: values, what was lost, and the JSON of each value once it was written."""

    __slots__ = ("kept", "losses", "texts", "values")

    def __init__(self, values: list[Any], losses: tuple[Any, ...], kept: Any) -> None:
        self.values = values
        self.losses = losses
        self.texts: list[msgspec.Raw | None] = [None] * len(values)
        self.kept = kept
        """Objects that are named in the key by their identity: they live as long as what is remembered under it."""


class Surroundings(msgspec.Struct, eq=False):
    """What all requests of a conversation have in common that is remembered as a whole: everything but its messages."""

    name: str
    names: tuple[str, ...]
    """The conversation's field, and all fields in their order."""
    settings: bytes
    """The fields that are no parts, as the JSON of one object."""
    wholes: dict[str, Fragment]
    """The fields that are one part each."""
    unkept: list[bytes]
    """The JSON of those settings that would be parts if they had come before."""
    shape: Shape
    """What a body holds besides its messages."""
    known: Shape
    """What the fields hold that are one part each."""
    tail: bytes = b""
    """What stands after the last message."""
    size: int = 0
    """What all this takes, with what is made of it, besides its parts."""
    meaning: tuple[Hashable, Any] | None = None
    """What a decoder made of all this, and what else went into it."""
    tokens: tuple[tuple[Any, ...], int] | None = None
    """How many tokens that is thought to be, and the objects that were measured."""
    runs: dict[Hashable, Any] = {}
    """What messages in a row became: of the last request and of those before it."""


class KnownConversation(msgspec.Struct, eq=False):
    """The last request of a conversation: where its messages end in its body, and the parts that they are.

    Its parts are as many of its first messages as are objects of which no two are the same.
    """

    generation: int | None
    """Where all its parts are in one generation: how often one had gone before."""
    body: bytes
    frame: Surroundings
    ends: list[int] = []
    parts: list[Fragment] = []
    values: list[Any] = []
    sums: list[Shape] = []
    """What the messages up to each hold together."""
    size: int = 0

    def held(self) -> Iterator[Fragment]:
        """Its parts, those of its other fields included."""
        return chain(self.parts, self.frame.wholes.values())

    def begins(self, body: bytes) -> int:
        """How many of its messages another body begins with, and with all that stands before them."""
        mine, ends = memoryview(self.body), self.ends
        if not body.startswith(mine[: ends[0]]):
            return 0
        known, above, step = len(ends), len(ends) + 1, 1
        while known > 1 and not body.startswith(mine[: ends[known - 1]]):
            above = known
            known = max(1, known - step)
            step *= 2
        while above - known > 1:
            middle = (known + above) // 2
            if body.startswith(mine[: ends[middle - 1]]):
                known = middle
            else:
                above = middle
        return known


class KnownHistory:
    """What stored responses hold that continue one another: the parts that their items are, no two of which are the same."""

    __slots__ = ("ends", "generation", "names", "parts", "places", "runs", "size", "sizes", "splits", "values")

    def __init__(self, generation: int | None, runs: dict[Hashable, Any]) -> None:
        self.generation = generation
        """Where all its parts are in one generation: how often one had gone before."""
        self.names: list[str] = []
        """The ids of the responses, in order."""
        self.places: dict[str, int] = {}
        self.sizes: list[int] = []
        """The bytes of each response."""
        self.splits: list[int] = []
        self.ends: list[int] = []
        """Behind how many of the parts the input and the output of each response end."""
        self.parts: list[Fragment] = []
        self.values: list[Any] = []
        self.runs = runs
        """What items in a row became: of the last request that continued these responses, and of those before it."""
        self.size = 0

    def held(self) -> Iterator[Fragment]:
        """Its parts."""
        return iter(self.parts)


_size_of = attrgetter("size")
_Wholes = dict[Hashable, tuple[_Whole, ...]]
"""Conversations or histories by caller, those that came last first."""


class Fragments:
    """The parts of all requests. Two generations, each at most half of the limit, less what one part may add: what is not asked
    for while the younger one fills is forgotten. Several threads may use one: at worst a part is decoded twice.

    A conversation that is remembered as a whole is in the generation in which all its parts are.
    """

    def __init__(self, limit: int) -> None:
        self._young: dict[tuple[Hashable, bytes], Fragment] = {}
        self._old: dict[tuple[Hashable, bytes], Fragment] = {}
        self._size = 0
        self._old_size = 0
        self._notes: dict[int, None] = {}
        self._old_notes: dict[int, None] = {}
        self._conversations: _Wholes[KnownConversation] = {}
        self._old_conversations: _Wholes[KnownConversation] = {}
        self._histories: _Wholes[KnownHistory] = {}
        self._old_histories: _Wholes[KnownHistory] = {}
        self.turned_over = 0
        """How often a generation went."""
        self.set_limit(limit)

    def set_limit(self, limit: int) -> None:
        """Bytes; 0: nothing is remembered."""
        self.limit = limit
        self.largest = limit // 16
        """A part that takes more is not kept beyond its request, nor a conversation whose body does."""
        self._half = limit // 16 * 7
        if not limit:
            self._young, self._old, self._size, self._old_size = {}, {}, 0, 0
            self._notes, self._old_notes = {}, {}
            self._conversations, self._old_conversations = {}, {}
            self._histories, self._old_histories = {}, {}

    @property
    def used(self) -> int:
        """What the parts take, as far as that can be known."""
        return self._size + self._old_size

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def came_before(self, *keys: Hashable) -> bool:
        """Was any of these noted before? Where none was, the last of them is."""
        hashes = list(map(hash, keys))
        notes = self._notes
        if any(one in notes or one in self._old_notes for one in hashes):
            return True
        if len(notes) >= _NOTES:
            self._old_notes, self._notes = notes, {}
        self._notes[hashes[-1]] = None
        return False

    def find(self, key: tuple[Hashable, bytes]) -> Fragment | None:
        """The part with these bytes."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self._keep(key, found)
        return found

    def find_each(self, keys: list[tuple[Hashable, bytes]]) -> list[Fragment | None]:
        """The same for several parts, most of which are in the younger generation or in none."""
        if self._old and any(map(self._old.get, keys)):
            return list(map(self.find, keys))
        return list(map(self._young.get, keys))

    def add(self, key: tuple[Hashable, bytes], value: Any, shape: Shape) -> Fragment:
        """Remember a part."""
        raw = key[1]
        size = len(raw) * (2 if raw.isascii() else 5) + shape.values * VALUE + PART
        fragment = Fragment(key, value, shape, size)
        if size <= self.largest:
            self._keep(key, fragment)
        return fragment

    def grow(self, fragment: Fragment, more: int) -> None:
        """Something of that size was made of a part."""
        fragment.size += more
        self.take(more)

    def conversations(self, space: Hashable) -> tuple[KnownConversation, ...]:
        """Those that came last, the latest first."""
        return self._conversations.get(space, ()) + self._old_conversations.get(space, ())

    def keep_conversation(self, space: Hashable, conversation: KnownConversation, instead: KnownConversation | None) -> None:
        """Remember a conversation `instead` of what it was before."""
        if self._bring(conversation):
            self._keep_latest(self._conversations, space, conversation, instead)

    def histories(self, space: Hashable) -> tuple[KnownHistory, ...]:
        """Those of stored responses that were continued last, the latest first."""
        return self._histories.get(space, ()) + self._old_histories.get(space, ())

    def keep_history(self, space: Hashable, history: KnownHistory, instead: KnownHistory | None) -> None:
        """The same as `keep_conversation` for what stored responses hold."""
        if self._bring(history):
            self._keep_latest(self._histories, space, history, instead)

    def _bring(self, whole: KnownConversation | KnownHistory) -> bool:
        """Have all its parts in the younger generation. False: they do not fit into one."""
        if whole.generation == self.turned_over:
            return True
        more = whole.size + (WRITTEN + MEANING) * len(whole.parts)  # what its parts became, as they stand in a row
        if more + sum(part.size for part in whole.held()) > self._half:
            return False
        for _ in range(2):
            generation = self.turned_over
            for part in whole.held():
                if part.key not in self._young:
                    self._keep(part.key, part)
            self.take(more)
            if self.turned_over == generation:
                whole.generation = generation
                return True
        return False

    def _keep_latest(self, kept: _Wholes[_Whole], space: Hashable, latest: _Whole, instead: _Whole | None) -> None:
        before = kept.get(space, ())
        others = [one for one in before if one is not instead and one is not latest]
        now = kept[space] = (latest, *others[: _CONVERSATIONS_KEPT - 1])
        self.take(sum(map(_size_of, now)) - sum(map(_size_of, before)))

    def take(self, more: int) -> None:
        """Something of that size is kept with a conversation."""
        self._size += more
        if self._size > self._half:
            self._turn_over()

    def _keep(self, key: tuple[Hashable, bytes], fragment: Fragment) -> None:
        if self._size + fragment.size > self._half:
            self._turn_over()
        self._young[key] = fragment
        self._size += fragment.size

    def _turn_over(self) -> None:
        self._old, self._old_size = self._young, self._size
        self._young, self._size = {}, 0
        self._old_conversations, self._conversations = self._conversations, {}
        self._old_histories, self._histories = self._histories, {}
        self.turned_over += 1
