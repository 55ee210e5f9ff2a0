"""A memory for what strangers make us compute: bounded by the size of what it holds, not by the number of entries."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Two generations of entries, each at most half of the limit.

    New entries go into the younger generation. When that is full it becomes the older one, whose entries are dropped unless
    they are asked for again meanwhile. Nothing is counted down or searched, so several threads may use one cache: at worst an
    entry is computed twice.
    """

    __slots__ = ("_half", "_old", "_size", "_young")

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def get(self, key: K) -> V | None:
        """The value kept under a key; None when there is none."""
        found = self._young.get(key)
        if found is not None:
            return found[0]
        found = self._old.get(key)
        if found is None:
            return None
        self.put(key, *found)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value of this size. What is larger than a whole generation is not kept."""
        if size > self._half:
            return
        if self._size + size > self._half:
            self._old, self._young, self._size = self._young, {}, 0
        self._young[key] = (value, size)
        self._size += size
