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
from athena.wire.fragments import Fragments, Recall, shape_of

_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_item = msgspec.json.Decoder(ResponseItem).decode


class PartMemory(NamedTuple):
    """Where parts of requests are remembered, and whose they are."""

    fragments: Fragments
    space: Hashable
    """Names the caller: parts of different callers do not meet."""


class RememberedItems:
    """Reads the stored items of one request. They are as they are sent; those that were read before are the same objects."""

    def __init__(self, remembered: PartMemory, recall: Recall | None) -> None:
        self._fragments = remembered.fragments
        self._space = ("stored", remembered.space)
        self.recall = recall or Recall(remembered.fragments)
        """What is remembered of the request, these items included."""

    def chain(self, parts: Iterable[bytes]) -> list[ResponseItem]:
        """The items of stored responses in order: the input and the output of each, as JSON arrays, in turn."""
        return from_compaction(map(self._list, parts))

    def _list(self, part: bytes) -> list[ResponseItem]:
        return [self.item(bytes(item)) for item in _items(part)]

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
