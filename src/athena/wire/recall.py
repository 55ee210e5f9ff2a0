"""What is remembered of the parts of one request, and what is made of them to be remembered (`athena.wire.fragments`)."""

from __future__ import annotations

import copy
import operator
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from itertools import chain, compress, count, takewhile
from typing import Any, NamedTuple, TypeVar

import msgspec

from athena.wire.fragments import CONVERSATIONS, MEANING, PART, WRITTEN, Fragment, Fragments, Written

_Made = TypeVar("_Made")
_Turn = TypeVar("_Turn")

_MEANINGS = "meanings"
_FORMS = 8
"""Targets for which the forms of one part are remembered."""

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
        self._put(_MEANINGS, run, MEANING * known)

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
            run = Fragment(b"", list(values), first.shape, PART)
            run.meaning = make()
            first.run = run
            self._fragments.grow(first, PART)
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
                self._fragments.grow(fragment, -WRITTEN - sum(len(bytes(text)) for text in gone.texts if text is not None))
        forms[key] = written
        self._fragments.grow(fragment, WRITTEN)
        self.put_out(fragment, written)

    def keep_run(self, key: Hashable, run: Any, first: object, more: int) -> None:
        """Remember what the turns of a conversation became for a target, of which `first` is the first message; `more` turns
        than before."""
        if self.runs is None:
            return
        self._first = first
        self._put(key, run, WRITTEN * more)

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
