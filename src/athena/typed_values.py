"""Plain values as structs, from any thread.

msgspec takes a struct apart when it is first asked to read one, and a second thread that asks meanwhile reads with what is
there so far: the process crashes (seen with 0.22). So every struct is taken apart where its reader is made, while a module is
imported. JSON is read by a `msgspec.json.Decoder` that is made in the same place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

_ValueT = TypeVar("_ValueT")


def reader(kind: type[_ValueT]) -> Callable[[object], _ValueT]:
    """A function that turns plain values into this type and raises msgspec.ValidationError for others."""
    msgspec.json.Decoder(kind)
    return partial(msgspec.convert, type=kind)
