"""What is remembered of the parts of one request, and what is made of them to be remembered (`athena.wire.fragments`)."""

from __future__ import annotations

import copy
import operator
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate, chain, compress, count, repeat
from typing import Any, NamedTuple, TypeVar

import msgspec

from athena.wire.fragments import CONVERSATIONS, MEANING, PART, WRITTEN, Fragment, Fragments, Surroundings, Written
from athena.wire.shape import Shape

_Made = TypeVar("_Made")
_Turn = TypeVar("_Turn")

_MEANINGS = "meanings"
_FORMS = 8
"""Targets for which the forms of one part are remembered."""

_is_mapping = frozenset((dict,)).__contains__
_value_of = operator.attrgetter("value")
_meaning_of = operator.attrgetter("meaning")
_facts_of = operator.attrgetter("facts")
_tokens_of = operator.attrgetter("tokens")


def same_objects(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many objects at the beginning of both are the same; found without a step of Python's for each."""
    return next(compress(count(), map(operator.is_not, one, other)), min(len(one), len(other)))


def _nones(values: list[Any]) -> Iterator[int]:
    """Where None stands; found like that, too."""
    return compress(count(), map(operator.is_, values, repeat(None)))


def _before_none(values: list[Any]) -> int:
    """How many values stand before the first None."""
    return next(_nones(values), len(values))


class MeaningRun(NamedTuple):
    """Messages in a row and what a decoder made of them, where several may mean one thing; behind how many of the messages
    each meaning ends, and the parts that the meanings stand for."""

    values: list[Any]
    ends: list[int]
    meanings: list[Any]
    parts: list[Fragment]


class TextRun(msgspec.Struct, frozen=True, eq=False):
    """Messages in a row and where their JSON stands in a body: behind the bracket at one place, with commas between."""

    leading: list[Any]
    """Those before them: instructions, which are written anew for each request."""
    values: list[Any]
    begins: list[int]
    """Where each of the values begins, and one more would, counted from the first."""
    body: bytes = b""
    bracket: int = 0
    first: int = 0
    """Where the bracket stands, and where the first of the values begins."""
    generation: int = -1
    """The one of remembered parts in which the body is counted."""


_NOTHING = Shape(0, 0, 0, 0)
_NO_KEY = (None, b"")
"""Of a part that nobody looks for."""
_NO_TEXT = TextRun([], [], [0])


class Recall:
    """What is remembered of the parts of one request, by the objects that stand for them.

    An object stands for a part as long as the part holds it: no other object can have its identity meanwhile.
    """

    __slots__ = (
        "_asked",
        "_asked_parts",
        "_beginning",
        "_first",
        "_fragments",
        "_frame",
        "_framed",
        "_listed",
        "_meant",
        "_nodes",
        "_pieces",
        "_waiting",
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
        self._frame: Surroundings | None = None
        self._framed: dict[str, Any] | None = None
        self._first: object = None
        """The first message for the target of a conversation that is remembered as a whole."""
        self._meant: list[Fragment] = []
        """The parts of which a decoder makes turns, as far as they stand in a row."""
        self._asked: object = None
        self._asked_parts: list[Fragment] = []
        """The turns that were asked about last, and the parts that they stand for."""
        self._nodes: dict[int, Fragment] = {}
        self._waiting: list[tuple[list[Any], list[Fragment]]] = []
        """Objects in a row and the parts that they stand for, as far as there are parts; not among the nodes yet."""
        self._pieces: dict[int, tuple[Fragment, Written, int]] = {}

    @property
    def is_empty(self) -> bool:
        """Does no object stand for a part?"""
        return not self._nodes and not self._waiting

    def _fill(self) -> None:
        """Note which parts the objects in a row stand for. A conversation that is remembered as a whole is seldom asked for
        one of them."""
        for values, parts in self._waiting:
            self._nodes.update(zip(map(id, values), parts, strict=False))
        self._waiting.clear()

    def begin(self, listed: list[Any], parts: list[Fragment]) -> None:
        """The request's list of messages begins with the values of these parts, no two of which are the same."""
        self._listed = listed
        self._beginning = parts
        self._waiting.append((listed, parts))

    def frame(self, frame: Surroundings, body: dict[str, Any]) -> None:
        """Everything but the messages of this body is what it was in the last request of the conversation."""
        self._frame = frame
        self._framed = body

    def meaning_around(self, body: object, key: Hashable) -> Any:
        """What a decoder made of everything but the messages of this body before, and of what `key` names; None where none
        did."""
        known = self._frame.meaning if self._frame is not None and body is self._framed else None
        return known[1] if known is not None and known[0] == key else None

    def keep_meaning_around(self, body: object, key: Hashable, meaning: object) -> None:
        """Remember what a decoder made of everything but the messages of this body, of what `key` names and of nothing else."""
        if self._frame is not None and body is self._framed:
            self._frame.meaning = key, meaning

    def meanings(self, listed: object, first: int = 0) -> list[Any]:
        """What a decoder made of the messages at the beginning of this list before, from the `first` one on: of all those
        that have a meaning of their own. They stand for their parts from now on."""
        if listed is not self._listed or not self._beginning:
            return []
        parts = self._beginning[first:] if first else self._beginning
        meanings = list(map(_meaning_of, parts))
        del meanings[_before_none(meanings) :]
        self._waiting.append((meanings, parts))
        self._meant = parts
        return meanings

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
        self._waiting.append((run.meanings, run.parts))
        self._meant = run.parts
        return run

    def keep_meanings(self, before: MeaningRun | None, values: list[Any], ends: list[int], meanings: list[Any]) -> None:
        """Remember what a decoder made of these messages, all in a row, for the next request of the conversation: behind what
        it made `before`, as far as each is something that was made of parts and of nothing else."""
        if self.runs is None or not meanings:
            return
        parts = list(map(self.of, meanings))
        known = _before_none(parts)
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

    def _parts(self, turns: tuple[Any, ...]) -> list[Fragment]:
        """The parts that these stand for. One that stands for none has a part of its own that is forgotten with the request."""
        if turns is not self._asked:
            meant = self._meant
            same = same_objects(list(map(_meaning_of, meant)), turns)
            parts = meant[:same]
            parts += [self.of(turn) or Fragment(_NO_KEY, turn, _NOTHING, 0) for turn in turns[same:]]
            self._asked, self._asked_parts = turns, parts
        return self._asked_parts

    def facts_known(self, turns: tuple[Any, ...]) -> int:
        """About how many of these, from the first on, something was found out before."""
        return _before_none(list(map(_facts_of, self._parts(turns))))

    def facts(self, turns: tuple[_Turn, ...], find: Callable[[_Turn], _Made]) -> list[_Made]:
        """What is found out about each of these, once for all requests that hold it."""
        parts = self._parts(turns)
        found: list[_Made] = list(map(_facts_of, parts))
        for place in _nones(found):
            found[place] = parts[place].facts = find(turns[place])
        return found

    def tokens(self, turns: tuple[_Turn, ...], measure: Callable[[_Turn], int]) -> list[int]:
        """What each of these measures, measured once for all requests that hold it."""
        parts = self._parts(turns)
        found: list[int] = list(map(_tokens_of, parts))
        for place in _nones(found):
            found[place] = parts[place].tokens = measure(turns[place])
        return found

    def tokens_around(self, about: tuple[Any, ...], measure: Callable[[], int]) -> int:
        """What everything but the messages measures, measured once for all requests of a conversation. It depends on the
        objects that it is `about` and on nothing else."""
        frame = self._frame
        if frame is None:
            return measure()
        known = frame.tokens
        if known is None or same_objects(known[0], about) < len(about):
            known = frame.tokens = about, measure()
        return known[1]

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
            run = Fragment(_NO_KEY, list(values), first.shape, PART)
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
        if self._waiting:
            self._fill()
        if id(value) in self._nodes:
            return copy.deepcopy(value)
        self._nodes[id(value)] = fragment
        return value

    def stand_in_new(self, fragments: list[Fragment]) -> list[Any]:
        """The values of parts that were just made, which are no others'."""
        values = list(map(_value_of, fragments))
        if not all(map(_is_mapping, map(type, values))):
            return list(map(self.stand_in, fragments))
        self._nodes.update(zip(map(id, values), fragments, strict=True))
        return values

    def of(self, node: object) -> Fragment | None:
        """The part that an object stands for; None for any other object."""
        fragment = self._nodes.get(id(node))
        if fragment is None and self._waiting:
            self._fill()
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
        pieces: list[bytes | memoryview | msgspec.Raw] = []
        joined: TextRun | None = None
        place = 0
        for name, value in body.items():
            pieces += (b"," if pieces else b"{", encode(name), b":")
            if name in CONVERSATIONS and type(value) is list:
                place, joined = len(pieces), self._join(value, pieces)
                if joined is None:
                    pieces.append(encode(list(map(self._message, value))))
            elif type(value) is list or type(value) is dict:
                pieces.append(self._text(value) or encode(value))
            else:
                pieces.append(encode(value))
        pieces.append(b"}" if pieces else b"{}")
        text = b"".join(pieces)
        if joined is not None:
            self._keep_text(joined, text, sum(map(len, pieces[:place])))
        return text

    def _join(self, messages: list[Any], pieces: list[bytes | memoryview | msgspec.Raw]) -> TextRun | None:
        """Add the JSON of messages of a conversation that is remembered as a whole; None for others. Most of it is a piece of
        the last body."""
        if self.runs is None:
            return None
        own = self._listed[0] if self._listed else None
        start = 0
        for one in messages[:3]:
            if one is own or one is self._first:
                break
            start += 1
        else:
            return None
        encode = msgspec.json.encode
        leading, values = messages[:start], messages[start:]
        before: TextRun = self.runs.get(id(values[0]), _NO_TEXT)
        count = same_objects(before.values, values)
        last, end = memoryview(before.body), before.first + before.begins[count] - 1
        if count and before.leading == leading:
            pieces.append(last[before.bracket : end])
            first = before.first - before.bracket
        else:
            opening = encode(leading)[:-1] + (b"," if leading else b"")
            pieces += (opening, last[before.first : end] if count else b"")
            first = len(opening)
        added = list(map(encode, values[count:]))
        pieces += chain.from_iterable(zip(repeat(b","), added, strict=False)) if count else (b",".join(added),)
        pieces.append(b"]")
        begins = before.begins[:count]
        begins += accumulate(map(operator.add, map(len, added), repeat(1)), initial=before.begins[count])
        return TextRun(leading, values, begins, b"", 0, first)

    def _keep_text(self, joined: TextRun, body: bytes, bracket: int) -> None:
        """Remember where the messages stand in this body, for the next request of the conversation."""
        assert self.runs is not None
        key = id(joined.values[0])
        before: TextRun = self.runs.get(key, _NO_TEXT)
        generation = self._fragments.turned_over
        kept = TextRun(joined.leading, joined.values, joined.begins, body, bracket, bracket + joined.first, generation)
        # What was counted in a generation that has gone is not counted any more.
        self._put(key, kept, len(body) - (len(before.body) if before.generation == generation else 0))

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
        part = self.of(value)
        if part is None or part.value is not value:
            return None
        if part.text is None:
            encoded = msgspec.json.encode(value)
            part.text = msgspec.Raw(encoded)
            self._fragments.grow(part, len(encoded))
        return part.text
