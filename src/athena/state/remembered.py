"""Stored items that were read before: what they mean is not worked out again.

A continuation repeats everything that was said before it, and the items of a stored conversation never change. So they are
remembered like the parts of requests are (`athena.wire.fragments`), as they are sent: without the ids that mean nothing to
upstreams. They are known by the bytes under which they are stored, apart from the parts of requests, whose values are others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import msgspec

from athena.state.resolve import from_compaction, sent_item
from athena.state.values import ResponseItem
from athena.wire.fragments import Fragment, Fragments, Recall, Shape, shape_of

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


class KnownResponse(msgspec.Struct, frozen=True):
    """The items of a stored response, which never change, as the parts that are remembered of them."""

    size: int
    given: list[Fragment]
    output: list[Fragment]


class RememberedItems:
    """Reads the stored items of one request. They are as they are sent; those that were read before are the same objects."""

    def __init__(self, remembered: PartMemory, recall: Recall | None) -> None:
        self._fragments = remembered.fragments
        self._space = ("stored", remembered.space)
        self._responses = ("responses", remembered.space)
        self.recall = recall or Recall(remembered.fragments)
        """What is remembered of the request, these items included."""

    def known(self, name: str) -> KnownResponse | None:
        """What the items of a stored response were, where all of them are remembered. Another thread may ask."""
        found = self._fragments.find((self._responses, name.encode()))
        if found is None:
            return None
        keys: StoredKeys = found.value
        given, output = [[self._fragments.find(key) for key in side] for side in (keys.given, keys.output)]
        if not all(given) or not all(output):
            return None
        return KnownResponse(keys.size, given, output)  # type: ignore[arg-type]  # none of them is None

    def chain(self, parts: Iterable[tuple[str, tuple[bytes, bytes] | KnownResponse]]) -> list[ResponseItem]:
        """The items of stored responses in order, each given by its id and its input and output."""
        return from_compaction(side for name, part in parts for side in self._sides(name, part))

    def _sides(self, name: str, part: tuple[bytes, bytes] | KnownResponse) -> tuple[list[ResponseItem], list[ResponseItem]]:
        recall = self.recall
        if isinstance(part, KnownResponse):
            recall.known += len(part.given) + len(part.output)
            return [recall.stand_in(each) for each in part.given], [recall.stand_in(each) for each in part.output]
        raws = [list(map(bytes, _items(side))) for side in part]
        given, output = [[self.item(raw) for raw in side] for side in raws]
        keys = StoredKeys(
            len(part[0]) + len(part[1]), [(self._space, raw) for raw in raws[0]], [(self._space, raw) for raw in raws[1]]
        )
        fragment = self._fragments.add((self._responses, name.encode()), keys, _NO_SHAPE)
        # Its keys hold the bytes of the items, also of those that are forgotten.
        self._fragments.grow(fragment, keys.size + _KEY * (len(given) + len(output)))
        return given, output

    def item(self, raw: bytes) -> ResponseItem:
        """One item by its JSON."""
        key = (self._space, raw)
        found = self._fragments.find(key)
        if found is None:
            item = sent_item(_item(raw))
            shape = shape_of(item)
            if shape is None:
                return item
            found = self._fragments.add(key, item, shape)
            self.recall.new += 1
        else:
            self.recall.known += 1
        value: ResponseItem = self.recall.stand_in(found)
        return value
