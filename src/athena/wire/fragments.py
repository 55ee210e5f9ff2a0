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

import copy
import operator
from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from itertools import chain, compress, count, takewhile
from typing import Any, NamedTuple, TypeVar

import msgspec

_Made = TypeVar("_Made")
_Turn = TypeVar("_Turn")
_Whole = TypeVar("_Whole", bound="KnownConversation | KnownHistory")

CONVERSATIONS = ("messages", "contents", "input")
"""Fields that are a list of parts."""
_NOTES = 8192
"""How many notes there are of what came once, twice over."""
_DEPTH = 64
"""A body with a part that is nested deeper is decoded as a whole."""
_SHORT = 2048
_FEW_BRACKETS = 32
_FEW_NODES = 8
"""Nodes of a level that are looked at one by one sooner than together."""
_NO_MARKS = bytes(byte for byte in range(256) if byte not in b",:[{")
_PART = 1400
_VALUE = 130
"""What a part takes besides its text, and what each value in it takes, with all that is made of them. Measured."""
_WRITTEN = 700
"""What a form for one target takes besides its JSON."""
_MEANING = 100
"""What a message takes in a row of messages and what they mean."""
_MEANINGS = "meanings"
_CONVERSATIONS_KEPT = 8
"""Conversations of one caller whose last request is remembered as a whole."""
_FORMS = 8
"""Targets for which the forms of one part are remembered."""

_is_mapping = frozenset((dict,)).__contains__
_is_container = frozenset({dict, list}).__contains__


class Shape(msgspec.Struct, frozen=True, gc=False):
    """How much a value holds, at the most."""

    keys: int
    values: int
    depth: int
    objects: int


def _containers(values: Collection[Any]) -> Iterator[Any]:
    """Those of them that hold others, found without a step of Python's for each."""
    return compress(values, map(_is_container, map(type, values)))


def shape_of(value: Any, most: int = _DEPTH) -> Shape | None:
    """Level by level, so that depth costs no stack; None for a value that is nested deeper than `most`."""
    keys, items, depth, objects = 0, 0, 0, 0
    level = [value] if type(value) is dict or type(value) is list else []
    while level:
        depth += 1
        if depth > most:
            return None
        if len(level) <= _FEW_NODES:
            below: list[Any] = []
            for node in level:
                if type(node) is dict:
                    keys += len(node)
                    objects += 1
                    below.extend(_containers(node.values()))
                else:
                    items += len(node)
                    below.extend(_containers(node))
            level = below
            continue
        # A whole level at once, without a step of Python's for each node.
        mappings: list[Any] = list(compress(level, map(_is_mapping, map(type, level))))
        children: list[Any] = list(chain.from_iterable(map(dict.values, mappings)))
        keys += len(children)
        objects += len(mappings)
        if len(mappings) < len(level):
            children.extend(chain.from_iterable(node for node in level if type(node) is list))
            items += len(children) - sum(map(len, mappings))
        level = list(_containers(children))
    return Shape(keys, keys + items, depth, objects)


def shape_at_most(raw: bytes, value: Any) -> Shape | None:
    """What a short text can hold at the most, by its marks, which are counted sooner than its value is walked."""
    if len(raw) <= _SHORT:
        marks = raw.translate(None, _NO_MARKS)
        keys, objects = marks.count(b":"), marks.count(b"{")
        brackets = objects + marks.count(b"[")
        if brackets <= _FEW_BRACKETS:
            return Shape(keys, len(marks), brackets, objects)
    return shape_of(value)


class Fragment:
    """One part: its value, and what was made of it. Nobody changes any of that."""

    __slots__ = ("facts", "forms", "meaning", "raw", "run", "shape", "size", "text", "tokens", "value")

    def __init__(self, raw: bytes, value: Any, shape: Shape, size: int) -> None:
        self.raw = raw
        self.value = value
        self.shape = shape
        self.size = size
        self.meaning: Any = None
        """What a decoder made of the value."""
        self.facts: Any = None
        """What was found out about that."""
        self.tokens: int | None = None
        """How many tokens that is thought to be."""
        self.forms: dict[Hashable, Written] = {}
        """What it became for targets."""
        self.text: msgspec.Raw | None = None
        """The value as JSON of ours, once it was written."""
        self.run: Fragment | None = None
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


class KnownConversation:
    """The last request of a conversation: where its messages end in its body, and the parts that they are.

    Its parts are as many of its first messages as are objects of which no two are the same.
    """

    __slots__ = (
        "body", "ends", "generation", "name", "names", "parts", "runs", "settings", "size", "sums", "tail", "values", "wholes",
    )  # fmt: skip

    def __init__(
        self,
        generation: int | None,
        body: bytes,
        tail: bytes,
        name: str,
        names: tuple[str, ...],
        settings: dict[str, bytes],
        wholes: dict[str, Fragment],
        runs: dict[Hashable, Any],
    ) -> None:
        self.generation = generation
        """Where all its parts are in one generation: how often one had gone before."""
        self.body = body
        self.tail = tail
        """What stands after the last message."""
        self.name = name
        self.names = names
        """The conversation's field, and all fields in their order."""
        self.settings = settings
        """The JSON of the fields that are no parts."""
        self.wholes = wholes
        """The fields that are one part each."""
        self.runs = runs
        """What messages in a row became: of this request and of those before it."""
        self.ends: list[int] = []
        self.parts: list[Fragment] = []
        self.values: list[Any] = []
        self.sums: list[Shape] = []
        """What the messages up to each hold together."""
        self.size = 0

    def held(self) -> Iterator[Fragment]:
        """Its parts, those of its other fields included."""
        return chain(self.parts, self.wholes.values())

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

    def add(self, key: tuple[Hashable, bytes], value: Any, shape: Shape) -> Fragment:
        """Remember a part."""
        raw = key[1]
        size = len(raw) + (len(raw) if raw.isascii() else 4 * len(raw)) + shape.values * _VALUE + _PART
        fragment = Fragment(raw, value, shape, size)
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
        if self._bring(space, conversation):
            self._keep_latest(self._conversations, space, conversation, instead)

    def histories(self, space: Hashable) -> tuple[KnownHistory, ...]:
        """Those of stored responses that were continued last, the latest first."""
        return self._histories.get(space, ()) + self._old_histories.get(space, ())

    def keep_history(self, space: Hashable, parts: Hashable, history: KnownHistory, instead: KnownHistory | None) -> None:
        """The same as `keep_conversation` for what stored responses hold, whose parts are in a space of their own."""
        if self._bring(parts, history):
            self._keep_latest(self._histories, space, history, instead)

    def _bring(self, space: Hashable, whole: KnownConversation | KnownHistory) -> bool:
        """Have all its parts in the younger generation. False: they do not fit into one."""
        if whole.generation == self.turned_over:
            return True
        more = whole.size + (_WRITTEN + _MEANING) * len(whole.parts)  # what its parts became, as they stand in a row
        if more + sum(part.size for part in whole.held()) > self._half:
            return False
        for _ in range(2):
            generation = self.turned_over
            for part in whole.held():
                key = (space, part.raw)
                if key not in self._young:
                    self._keep(key, part)
            self.take(more)
            if self.turned_over == generation:
                whole.generation = generation
                return True
        return False

    def _keep_latest(self, kept: _Wholes[_Whole], space: Hashable, latest: _Whole, instead: _Whole | None) -> None:
        before = kept.get(space, ())
        others = [one for one in before if one is not instead and one is not latest]
        now = kept[space] = (latest, *others[: _CONVERSATIONS_KEPT - 1])
        self.take(sum(one.size for one in now) - sum(one.size for one in before))

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


_meaning_of = operator.attrgetter("meaning")
_facts_of = operator.attrgetter("facts")
_tokens_of = operator.attrgetter("tokens")


def _is_something(value: object) -> bool:
    return value is not None


def same_objects(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many objects at the beginning of both are the same; found without a step of Python's for each."""
    return next(compress(count(), map(operator.is_not, one, other)), min(len(one), len(other)))


class MeaningRun(NamedTuple):
    """Messages in a row and what a decoder made of them, where several may mean one thing; behind how many of the messages
    each meaning ends, and the parts that the meanings stand for."""

    values: list[Any]
    ends: list[int]
    meanings: list[Any]
    parts: list[Fragment]


class TextRun(NamedTuple):
    """Messages in a row and their JSON, with commas between; where each of them ends in it."""

    values: list[Any]
    ends: list[int]
    text: bytes


class Recall:
    """What is remembered of the parts of one request, by the objects that stand for them.

    An object stands for a part as long as the part holds it: no other object can have its identity meanwhile.
    """

    __slots__ = (
        "_beginning",
        "_first",
        "_fragments",
        "_listed",
        "_meanings",
        "_meant",
        "_nodes",
        "_pieces",
        "known",
        "new",
        "runs",
    )

    def __init__(self, fragments: Fragments, known: int = 0, new: int = 0) -> None:
        self._fragments = fragments
        self.known = known
        self.new = new
        """How many parts of the request were known, and how many are new."""
        self.runs: dict[Hashable, Any] | None = None
        """What messages in a row became before; None where the conversation is not remembered as a whole."""
        self._beginning: list[Fragment] = []
        self._listed: list[Any] | None = None
        self._first: object = None
        """The first message for the target of a conversation that is remembered as a whole."""
        self._meanings: list[Any] = []
        self._meant: list[Fragment] = []
        self._nodes: dict[int, Fragment] = {}
        self._pieces: dict[int, tuple[Fragment, Written, int]] = {}

    @property
    def is_empty(self) -> bool:
        """Does no object stand for a part?"""
        return not self._nodes

    def begin(self, listed: list[Any], parts: list[Fragment]) -> None:
        """The request's list of messages begins with the values of these parts, no two of which are the same."""
        self._listed = listed
        self._beginning = parts
        self._nodes.update(zip(map(id, listed), parts, strict=False))

    def meanings(self, listed: object, first: int = 0) -> list[Any]:
        """What a decoder made of the messages at the beginning of this list before, from the `first` one on: of all those
        that have a meaning of their own. They stand for their parts from now on."""
        if listed is not self._listed or not self._beginning:
            return []
        parts = self._beginning[first:]
        meanings = list(map(_meaning_of, parts))
        if not all(meanings):
            meanings = list(takewhile(_is_something, meanings))
        self._nodes.update(zip(map(id, meanings), parts, strict=False))
        self._meanings = meanings
        self._meant = parts[: len(meanings)]
        return list(meanings)

    def joined_meanings(self, values: list[Any], first: int, may_grow: Callable[[Any], bool]) -> MeaningRun | None:
        """What a decoder made of the messages from the `first` one on when the conversation came last, as far as they are the
        same, without a last meaning that `may_grow` by what follows. The meanings stand for their parts from now on."""
        before: MeaningRun | None = self.runs.get(_MEANINGS) if self.runs is not None else None
        if before is None:
            return None
        given = values[first:] if first else values
        same = same_objects(before.values, given)
        count = bisect_right(before.ends, same)
        if count and may_grow(before.meanings[count - 1]):
            count -= 1
        if not count:
            return None
        run = before
        if count < len(before.ends):
            end = before.ends[count - 1]
            run = MeaningRun(before.values[:end], before.ends[:count], before.meanings[:count], before.parts[:count])
        self._nodes.update(zip(map(id, run.meanings), run.parts, strict=True))
        self._meanings, self._meant = run.meanings, run.parts
        return run

    def keep_meanings(self, before: MeaningRun | None, values: list[Any], ends: list[int], meanings: list[Any]) -> None:
        """Remember what a decoder made of these messages, all in a row, for the next request of the conversation: behind what
        it made `before`, as far as each is something that was made of parts and of nothing else."""
        if self.runs is None or not meanings:
            return
        parts = list(map(self.of, meanings))
        known = len(list(takewhile(_is_something, parts)))
        if not known:
            return
        end = ends[known - 1]
        run = MeaningRun(values[:end], ends[:known], meanings[:known], parts[:known])  # type: ignore[arg-type]  # none is None
        if before is not None:
            run = MeaningRun(
                before.values + run.values,
                before.ends + [len(before.values) + each for each in run.ends],
                before.meanings + run.meanings,
                before.parts + run.parts,
            )
        self._put(_MEANINGS, run, _MEANING * known)

    def first_facts(self, turns: Sequence[Any]) -> list[Any]:
        """What was found out about the first of these, as far as they are what the conversation began with before."""
        meanings = self._meanings
        count = same_objects(meanings, turns)
        facts = list(map(_facts_of, self._meant if count == len(meanings) else self._meant[:count]))
        return facts if all(facts) else list(takewhile(_is_something, facts))

    def tokens(self, turns: Sequence[_Turn], measure: Callable[[_Turn], int]) -> list[int]:
        """What each of these measures, measured once for all requests that hold it."""
        same = same_objects(self._meanings, turns)
        found: list[int] = list(takewhile(_is_something, map(_tokens_of, self._meant[:same])))
        known = len(found)
        for turn, part in zip(turns[known:], chain(self._meant[known:same], map(self.of, turns[same:])), strict=True):
            tokens = part.tokens if part is not None else None
            if tokens is None:
                tokens = measure(turn)
                if part is not None:
                    part.tokens = tokens
            found.append(tokens)
        return found

    def meant(self, fragment: Fragment, meaning: object) -> None:
        """A decoder made this of the part's value: from now on it stands for the part."""
        fragment.meaning = meaning
        self._nodes[id(meaning)] = fragment

    def meaning(self, fragment: Fragment) -> Any:
        """What a decoder made of the part's value before; None where none did. It stands for the part from now on."""
        meaning = fragment.meaning
        if meaning is not None:
            self._nodes[id(meaning)] = fragment
        return meaning

    def together(self, values: list[Any], make: Callable[[], _Made]) -> _Made:
        """What several parts mean together, which is what `make` makes of them and of nothing else."""
        first = self.of(values[0])
        if first is None or any(self.of(value) is None for value in values):
            return make()
        run = first.run
        if run is None or len(run.value) != len(values) or not all(map(operator.is_, run.value, values)):
            run = Fragment(b"", list(values), first.shape, _PART)
            run.meaning = make()
            first.run = run
            self._fragments.grow(first, _PART)
        meaning: _Made = run.meaning
        self._nodes[id(meaning)] = run
        return meaning

    def stand_in(self, fragment: Fragment) -> Any:
        """The part's value. Where the part occurs for a second time in the request it is a copy of which nothing is remembered:
        no two places of a request share an object."""
        value = fragment.value
        if type(value) is not dict and type(value) is not list:
            return value
        if id(value) in self._nodes:
            return copy.deepcopy(value)
        self._nodes[id(value)] = fragment
        return value

    def of(self, node: object) -> Fragment | None:
        """The part that an object stands for; None for any other object."""
        fragment = self._nodes.get(id(node))
        # A part holds the objects that stand for it; one that it no longer holds may have left its identity to another.
        return fragment if fragment is not None and (fragment.value is node or fragment.meaning is node) else None

    def put_out(self, fragment: Fragment, written: Written) -> None:
        """These values go into a body: their JSON is remembered, too."""
        for index, value in enumerate(written.values):
            self._pieces[id(value)] = (fragment, written, index)

    def keep_written(self, fragment: Fragment, key: Hashable, written: Written) -> None:
        """Remember what a part became for a target. Of many targets the oldest goes."""
        forms = fragment.forms
        if len(forms) >= _FORMS:
            gone = forms.pop(next(iter(tuple(forms))), None)
            if gone is not None:
                self._fragments.grow(fragment, -_WRITTEN - sum(len(bytes(text)) for text in gone.texts if text is not None))
        forms[key] = written
        self._fragments.grow(fragment, _WRITTEN)
        self.put_out(fragment, written)

    def keep_run(self, key: Hashable, run: Any, first: object, more: int) -> None:
        """Remember what the turns of a conversation became for a target, of which `first` is the first message; `more` turns
        than before."""
        if self.runs is None:
            return
        self._first = first
        self._put(key, run, _WRITTEN * more)

    def _put(self, key: Hashable, run: Any, more: int) -> None:
        runs = self.runs
        assert runs is not None
        if key not in runs and len(runs) >= _FORMS:
            # What it took is counted until its generation goes.
            runs.pop(next(iter(tuple(runs))), None)
        runs[key] = run
        self._fragments.take(more)

    def encode(self, body: dict[str, Any]) -> bytes:
        """The body as JSON; what was written before is copied, and copied once."""
        encode = msgspec.json.encode
        pieces: list[bytes | msgspec.Raw] = []
        for name, value in body.items():
            pieces += (b"," if pieces else b"{", encode(name), b":")
            if name in CONVERSATIONS and type(value) is list:
                pieces += self._joined(value) or (encode(list(map(self._message, value))),)
            elif type(value) is list or type(value) is dict:
                pieces.append(self._text(value) or encode(value))
            else:
                pieces.append(encode(value))
        pieces.append(b"}" if pieces else b"{}")
        return b"".join(pieces)

    def _joined(self, messages: list[Any]) -> list[bytes] | None:
        """The JSON of messages of a conversation that is remembered as a whole, in pieces; None for others."""
        if self.runs is None:
            return None
        own = self._listed[0] if self._listed else None
        start = next((place for place, one in enumerate(messages[:3]) if one is own or one is self._first), None)
        if start is None:
            return None
        encode = msgspec.json.encode
        values = messages[start:]
        first = values[0]
        before: TextRun | None = self.runs.get(id(first))
        count = same_objects(before.values, values) if before is not None else 0
        if before is not None and count == len(before.values) == len(values):
            text: bytes = before.text
        else:
            ends: list[int] = before.ends[:count] if before is not None else []
            pieces: list[bytes | memoryview] = list(map(encode, values[count:]))
            place = ends[-1] + 1 if ends else 0
            for piece in pieces:
                place += len(piece)
                ends.append(place)
                place += 1
            if before is not None and count:
                pieces.insert(0, memoryview(before.text)[: before.ends[count - 1]])
            text = b",".join(pieces)
            self._put(id(first), TextRun(values, ends, text), len(text) - (len(before.text) if before is not None else 0))
        return [b"[", *chain.from_iterable((encode(one), b",") for one in messages[:start]), text, b"]"]

    def _message(self, message: Any) -> Any:
        text = self._text(message)
        if text is not None:
            return text
        if isinstance(message, dict):
            for name in ("content", "parts"):
                inner = message.get(name)
                if type(inner) is list:
                    return {**message, name: [self._text(block) or block for block in inner]}
        return message

    def _text(self, value: object) -> msgspec.Raw | None:
        """The JSON of a value of which it is remembered, or remembered from now on."""
        piece = self._pieces.get(id(value))
        if piece is not None:
            fragment, written, index = piece
            text = written.texts[index]
            if text is None:
                encoded = msgspec.json.encode(value)
                text = written.texts[index] = msgspec.Raw(encoded)
                self._fragments.grow(fragment, len(encoded))
            return text
        part = self._nodes.get(id(value))
        if part is None or part.value is not value:
            return None
        if part.text is None:
            encoded = msgspec.json.encode(value)
            part.text = msgspec.Raw(encoded)
            self._fragments.grow(part, len(encoded))
        return part.text
