"""Arguments that arrive value by value, each with the JSON path of its place (Vertex `partialArgs`)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from athena.errors import UpstreamProtocol

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['([^'\\]*+(?:\\.[^'\\]*+){0,64})'\]|\["([^"\\]*+(?:\\.[^"\\]*+){0,64})"\]""")
_ESCAPED = re.compile(r"\\(.)")
_LARGEST_INDEX = 10_000


class PartialArg(msgspec.Struct, rename="camel"):
    """One value, or the next piece of a string."""

    json_path: str = ""
    string_value: str | None = None
    number_value: int | float | None = None
    bool_value: bool | None = None
    null_value: Any = msgspec.UNSET
    will_continue: bool | None = None


class PartialArguments:
    """The object that the values add up to."""

    __slots__ = ("_strings", "_value")

    def __init__(self) -> None:
        self._value: dict[str, Any] = {}
        self._strings: dict[str, _Growing] = {}

    def add(self, piece: PartialArg) -> None:
        """Put a value in its place; a string that continues grows."""
        known = self._strings.get(piece.json_path)
        if known is not None and piece.string_value is not None:
            known.pieces.append(piece.string_value)
            return
        value: Any = piece.string_value
        if piece.string_value is not None:
            value = self._strings[piece.json_path] = _Growing(piece.string_value)
        elif piece.number_value is not None:
            value = piece.number_value
        elif piece.bool_value is not None:
            value = piece.bool_value
        elif piece.null_value is msgspec.UNSET:
            return
        _place(self._value, steps_of(piece.json_path), value)

    def text(self) -> str:
        return msgspec.json.encode(self._value, enc_hook=_Growing.joined).decode()


class _Growing:
    __slots__ = ("pieces",)

    def __init__(self, first: str) -> None:
        self.pieces = [first]

    @staticmethod
    def joined(growing: Any) -> str:
        return "".join(growing.pieces)


def steps_of(path: str) -> list[str | int]:
    """`$.a.b[0]['c d']` as keys and indexes."""
    position = 1 if path.startswith("$") else 0
    if position == 0 and path and path[0] not in ".[":
        path = "." + path
    steps: list[str | int] = []
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            raise UpstreamProtocol(f"a partial argument has the unreadable path {path[:100]!r}")
        name, index, single, double = found.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(name if name is not None else _ESCAPED.sub(r"\1", single if single is not None else double))
        position = found.end()
    if not steps or not isinstance(steps[0], str):
        raise UpstreamProtocol(f"a partial argument has the unreadable path {path[:100]!r}")
    return steps


def _place(root: dict[str, Any], steps: list[str | int], value: Any) -> None:
    holder: Any = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        fresh: Any = value if following is None else ([] if isinstance(following, int) else {})
        if isinstance(step, int):
            if not isinstance(holder, list) or step > min(len(holder), _LARGEST_INDEX):
                raise UpstreamProtocol("partial arguments contradict each other")
            if step == len(holder):
                holder.append(fresh)
            elif following is None:
                holder[step] = fresh
        else:
            if not isinstance(holder, dict):
                raise UpstreamProtocol("partial arguments contradict each other")
            if step not in holder or following is None:
                holder[step] = fresh
        holder = holder[step]
