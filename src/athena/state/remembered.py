"""Stored items that were read before: what they mean is not worked out again.

A continuation repeats everything that was said before it, and the items of a stored conversation never change. So they are
remembered like the parts of requests are (`athena.wire.fragments`), as they are sent: without the ids that mean nothing to
upstreams. They are known by the bytes under which they are stored, apart from the parts of requests, whose values are others.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

import msgspec

from athena.state.resolve import from_compaction, output_compacts, sent_item
from athena.state.values import ResponseItem
from athena.wire.fragments import Fragment, Fragments, KnownHistory
from athena.wire.recall import Recall
from athena.wire.shape import Shape, shape_of

_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_item = msgspec.json.Decoder(ResponseItem).decode

_NO_SHAPE = Shape(0, 0, 0, 0)
_KEY = 100
"""What a key takes besides the bytes of its item."""


class PartMemory(NamedTuple):
    """Where parts of requests are remembered, and whose they are."""

    fragments: Fragments
    space: Hashable
    """Names the caller: parts of different callers do not meet."""


class StoredKeys(NamedTuple):
    """Under which keys the items of one stored response are remembered."""

    size: int
    """Bytes of the response."""
    given: list[tuple[Hashable, bytes]]
    output: list[tuple[Hashable, bytes]]


class KnownPart(msgspec.Struct, frozen=True):
    """A stored response, which never changes, where its items are remembered."""

    size: int
    """Its bytes."""


class KnownResponse(KnownPart, frozen=True):
    """The parts that are remembered of its items."""

    given: list[Fragment]
    output: list[Fragment]


class KnownPlace(KnownPart, frozen=True):
    """Its place in a history that is remembered as a whole."""

    history: KnownHistory
    place: int


StoredPart: TypeAlias = tuple[bytes, bytes] | KnownPart
"""The input and the output of a stored response as JSON arrays, or what is remembered of them."""
_Side: TypeAlias = list[Fragment | ResponseItem]
"""Items, most of them as parts; one that is nested too deep to be remembered is itself."""


class RememberedItems:
    """Reads the stored items of one request. They are as they are sent; those that were read before are the same objects."""

    def __init__(self, remembered: PartMemory, recall: Recall | None) -> None:
        self._fragments = remembered.fragments
        self._owner = remembered.space
        self._space = ("stored", remembered.space)
        self._responses = ("responses", remembered.space)
        self._since = remembered.fragments.turned_over
        self._histories = remembered.fragments.histories(remembered.space)
        self.recall = recall or Recall(remembered.fragments)
        """What is remembered of the request, these items included."""

    def known(self, name: str) -> KnownPart | None:
        """What the items of a stored response were, where all of them are remembered. Another thread may ask."""
        for history in self._histories:
            place = history.places.get(name)
            if place is not None:
                return KnownPlace(history.sizes[place], history, place)
        found = self._fragments.find((self._responses, name.encode()))
        if found is None:
            return None
        keys: StoredKeys = found.value
        given, output = [[self._fragments.find(key) for key in side] for side in (keys.given, keys.output)]
        if not all(given) or not all(output):
            return None
        return KnownResponse(keys.size, given, output)  # type: ignore[arg-type]  # none of them is None

    def chain(self, parts: list[tuple[str, StoredPart]]) -> list[ResponseItem]:
        """The items of stored responses in order, each given by its id and its input and output."""
        begun, count = _begun(parts)
        added = [(name, part, self._sides(name, part)) for name, part in parts[count:]]
        made = begun if begun is not None and not added else self._extended(begun, count, added)
        if made is None:
            sides = [*(self._sides(name, part) for name, part in parts[:count]), *(sides for _, _, sides in added)]
            return from_compaction([self._value(each) for each in side] for both in sides for side in both)
        end = made.ends[len(parts) - 1]
        recall = self.recall
        values = made.values[:end]
        recall.begin(values, made.parts[:end])
        recall.runs = made.runs
        recall.known += made.ends[count - 1] if count else 0
        instead = begun if begun is not None and 2 * count >= len(begun.names) else None
        self._fragments.keep_history(self._owner, made, instead)
        return values

    def _extended(
        self,
        begun: KnownHistory | None,
        count: int,
        added: list[tuple[str, StoredPart, tuple[_Side, _Side]]],
    ) -> KnownHistory | None:
        """The history of the first responses of another one, as many as are counted, and of those that are added. None where
        it cannot be remembered as a whole: a compaction stands for what was before it."""
        generation = self._since if begun is None or begun.generation == self._since else None
        made = KnownHistory(generation, {} if begun is None else begun.runs)
        if begun is not None:
            end = begun.ends[count - 1]
            made.names, made.sizes = begun.names[:count], begun.sizes[:count]
            made.splits, made.ends = begun.splits[:count], begun.ends[:count]
            made.parts, made.values = begun.parts[:end], begun.values[:end]
            made.size = begun.size * count // len(begun.names)
        seen = set(map(id, made.values))
        for name, part, (given, output) in added:
            made.names.append(name)
            made.sizes.append(stored_size(part))
            for side, ends in ((given, made.splits), (output, made.ends)):
                for each in side:
                    if not isinstance(each, Fragment) or (side is output and each.value.get("type") == "compaction"):
                        return None
                    if id(each.value) in seen:  # no two places of a request share an object
                        each = Fragment(each.key, copy.deepcopy(each.value), each.shape, each.size)
                        made.size += each.size
                    seen.add(id(each.value))
                    made.parts.append(each)
                    made.values.append(each.value)
                ends.append(len(made.parts))
            made.size += _KEY + _KEY * (len(given) + len(output))
        made.places = {name: place for place, name in enumerate(made.names)}
        return made if made.size <= self._fragments.largest else None

    def _sides(self, name: str, part: StoredPart) -> tuple[_Side, _Side]:
        if isinstance(part, KnownPlace):
            history, place = part.history, part.place
            start = history.ends[place - 1] if place else 0
            split, end = history.splits[place], history.ends[place]
            self.recall.known += end - start
            return [*history.parts[start:split]], [*history.parts[split:end]]
        if isinstance(part, KnownResponse):
            self.recall.known += len(part.given) + len(part.output)
            return [*part.given], [*part.output]
        assert isinstance(part, tuple)
        raws = [list(map(bytes, _items(side))) for side in part]
        given, output = [[self._read(raw) for raw in side] for side in raws]
        keys = StoredKeys(stored_size(part), [(self._space, raw) for raw in raws[0]], [(self._space, raw) for raw in raws[1]])
        fragment = self._fragments.add((self._responses, name.encode()), keys, _NO_SHAPE)
        # Its keys hold the bytes of the items, also of those that are forgotten.
        self._fragments.grow(fragment, keys.size + _KEY * (len(given) + len(output)))
        return given, output

    def item(self, raw: bytes) -> ResponseItem:
        """One item by its JSON."""
        return self._value(self._read(raw))

    def _read(self, raw: bytes) -> Fragment | ResponseItem:
        key = (self._space, raw)
        found = self._fragments.find(key)
        if found is not None:
            self.recall.known += 1
            return found
        item = sent_item(_item(raw))
        shape = shape_of(item)
        if shape is None:
            return item
        self.recall.new += 1
        return self._fragments.add(key, item, shape)

    def _value(self, read: Fragment | ResponseItem) -> ResponseItem:
        value: ResponseItem = self.recall.stand_in(read) if isinstance(read, Fragment) else read
        return value


def needed_responses(parts: list[tuple[str, StoredPart]]) -> list[tuple[str, StoredPart]]:
    """Of stored responses in order: what a continuation needs of them. The last compaction stands for everything before it."""
    for place in range(len(parts) - 1, -1, -1):
        name, part = parts[place]
        if isinstance(part, tuple):
            if output_compacts(part[1]):
                return [(name, (b"[]", part[1])), *parts[place + 1 :]]
        elif isinstance(part, KnownResponse) and any(each.value.get("type") == "compaction" for each in part.output):
            return [(name, KnownResponse(sum(len(each.key[1]) for each in part.output), [], part.output)), *parts[place + 1 :]]
    return parts


def stored_size(part: StoredPart) -> int:
    """Its bytes."""
    return len(part[0]) + len(part[1]) if isinstance(part, tuple) else part.size


def _begun(parts: list[tuple[str, StoredPart]]) -> tuple[KnownHistory | None, int]:
    """The history that begins with the most of these responses, and how many those are."""
    for count in range(len(parts), 0, -1):
        last = parts[count - 1][1]
        if isinstance(last, KnownPlace) and last.history.names[: last.place + 1] == [name for name, _ in parts[:count]]:
            return last.history, count
    return None, 0
