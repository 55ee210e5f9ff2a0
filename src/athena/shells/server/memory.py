"""How the process deals with its memory: a long life, many small objects, and now and then a request of many megabytes.

Left alone, glibc gives the memory of a large request back to the kernel as soon as it is free and asks for it again, page by
page, at the next copy: measured, half of what a request with an image of 1 MB costs. The other C libraries have no `mallopt`
and are left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc

_OBJECTS_BEFORE_COLLECTION = 10_000
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""glibc's `malloc.h`."""
_KEPT_BYTES = 96 * 1024 * 1024
"""Free memory that the process keeps: what a request of 20 MB needs on its way."""
_HEAP_BYTES = 32 * 1024 * 1024
"""Blocks up to this size come from what is kept; the most that glibc allows."""


def keep_freed_memory() -> None:
    """Large blocks are taken from memory used before. Call it before any thread begins: they share one heap then."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _HEAP_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def settle_objects(_: object = None) -> None:
    """What was built until now stays: the collector need not look at it again, nor after every few hundred new objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION, 20, 20)
