"""How the process deals with its memory: a long life, many small objects, and now and then a request of many megabytes.

Left alone, glibc gives the memory of a large request back to the kernel as soon as it is free and asks for it again, page by
page, at the next copy: measured, half of what a request with an image of 1 MB costs. So freed memory is kept while large
requests come, and given back as soon as a second has passed without one. The other C libraries have neither `mallopt` nor
`malloc_trim` and are left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable

from athena.serving.budget import Budget

_OBJECTS_BEFORE_COLLECTION = 50_000
"""A request of many small messages makes and frees some ten thousand objects; next to nothing is left to the collector, and to
look through them for it was a tenth of what reading such a request costs."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""glibc's `malloc.h`."""
_KEPT_BYTES = 96 * 1024 * 1024
"""Free memory that the process keeps: what a request of 20 MB needs on its way."""
_MUCH = 16 * 1024 * 1024
"""Bytes held in requests above which freed memory is worth giving back afterwards."""
_HEAP_BYTES = 32 * 1024 * 1024
"""Blocks up to this size come from what is kept; the most that glibc allows."""


def keep_freed_memory() -> None:
    """Large blocks are taken from memory used before. Call it before any thread begins: they share one heap then."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _HEAP_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back() -> None:
    """Return what is free to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class FreedMemory:
    """Remembers whether memory was freed that could be given back. Look at it about once a second."""

    def __init__(self, budget: Budget, give_back: Callable[[], object]) -> None:
        self._budget = budget
        self._give_back = give_back
        self._is_owed = False

    def look(self) -> None:
        """Give it back, if much was held before and little has been held since the last look."""
        peak, self._budget.peak = self._budget.peak, self._budget.used
        if peak > _MUCH:
            self._is_owed = True
        elif self._is_owed:
            self._is_owed = False
            self._give_back()


def freeze_objects(_: object = None) -> None:
    """What was built until now stays: the collector need not look at it again, nor after every few hundred new objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION, 20, 20)
