"""Which calls a format cannot write exactly, as data: a format's `inexpressible`."""

from __future__ import annotations

from typing import Literal

import msgspec

from athena.formats.machine.render import arguments_of, tagged_trouble
from athena.model.parts import ToolCall


class BareNameRule(msgspec.Struct, frozen=True, kw_only=True):
    """For formats that write names bare: between tokens, in a header, in a tag."""

    reason: str = ""
    """What is wrong with a name that breaks one of the rules below."""
    characters: str = ""
    """None of these stands in a name."""
    pieces: tuple[str, ...] = ()
    """None of these stands in a name."""
    taken: tuple[str, ...] = ()
    """Names that mean something else."""
    blanks: Literal["anywhere", "inside", "nowhere"] = "anywhere"
    """Where white space may stand in a name."""
    empty: bool = False
    """May a name be empty?"""
    markers: tuple[str, ...] | None = None
    """What no value may hold, in formats of tags without escapes; None: values have escapes."""

    def __call__(self, call: ToolCall) -> str | None:
        if self._breaks(call.name):
            return self.reason
        return None if self.markers is None else tagged_trouble(call, self.markers)

    def _breaks(self, name: str) -> bool:
        return (
            not (name or self.empty)
            or not set(self.characters).isdisjoint(name)
            or any(piece in name for piece in self.pieces)
            or name in self.taken
            or (self.blanks != "anywhere" and name != name.strip())
            or (self.blanks == "nowhere" and len(name.split()) > 1)
        )


def python_words(call: ToolCall) -> str | None:
    """Names and keys must be words of Python."""
    if not all(part.isidentifier() for part in call.name.replace("-", "_").split(".")):
        return "the name is no Python name"
    if not all(key.isidentifier() for key in arguments_of(call)):
        return "a parameter's name is no Python word"
    return None
