"""What only the garbage collector could free: objects of Athena that refer to each other in a circle after their work."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import athena

_SOURCES = str(Path(athena.__file__).parent)


@contextlib.contextmanager
def without_collector() -> Iterator[list[str]]:
    """The collector does not run inside; afterwards the list holds what it would have had to free of ours, counted.

    Everything that exists before is left out of the search, so a search costs what the block itself made. Where all searches of
    the tests leave things out (`conftest.py`), these stay so.
    """
    found: list[str] = []
    had_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        names = Counter(name for thing in gc.garbage if (name := _name(thing)))
        found.extend(f"{count} x {name}" for name, count in names.most_common())
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        if not had_frozen:
            gc.unfreeze()
        gc.collect()


def _name(thing: Any) -> str:
    """What an object of ours is; empty for those of others."""
    if isinstance(thing, TracebackType):
        thing = thing.tb_frame
    if isinstance(thing, FrameType):
        code = thing.f_code
        return f"frame of {code.co_qualname}" if code.co_filename.startswith(_SOURCES) else ""
    kind = type(thing)
    return f"{kind.__module__}.{kind.__qualname__}" if kind.__module__.partition(".")[0] == "athena" else ""
