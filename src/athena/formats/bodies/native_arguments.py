"""Arguments of native calls, put right as they stream: the same slips that `json_text` mends in calls written as text.

Strict JSON comes out byte for byte. What is not even nearly JSON comes out as it is, and whoever ends the call finds that out.
Nothing is made up at the end: a bracket that is missing there may have been cut off. With the declared tools at hand a wrapper
key that no schema has is taken away, and at the level `schema` strings become the declared types; both need the whole object,
so such arguments wait for the end of their call.
"""

from __future__ import annotations

from collections.abc import Callable

from athena.formats.bodies.arguments import decoded_arguments
from athena.formats.bodies.json_text import JsonPipe
from athena.formats.bodies.json_tokens import STRING
from athena.formats.machine.policies import RepairLevel
from athena.formats.machine.repair import coerced, may_be_wrapped, unwrapped
from athena.formats.machine.value_types import ToolBook
from athena.wire.json_span import is_json_object


class ArgumentMender:
    """The arguments of one call. Without a `book` of the declared tools only their syntax is put right."""

    __slots__ = ("_began", "_book", "_held", "_level", "_pipe", "_rest", "_waiting", "_whole")

    def __init__(self, book: ToolBook | None = None, level: RepairLevel = "syntax", *, depth_limit: int = 512) -> None:
        self._book = book
        self._level = level
        self._waiting: list[str] | None = [] if book is not None else None
        """What was put right and is not shown yet; None: everything is shown as it comes."""
        self._whole = level == "schema"
        """Does it wait for the end of the call?"""
        self._pipe = JsonPipe(depth_limit=depth_limit)
        self._held = ""
        """What the pipe waits with, or all of arguments that do not begin with a brace."""
        self._began = False
        self._rest = False
        """The arguments are over, or cannot be read on: what follows comes out as it is."""

    @property
    def repairs(self) -> int:
        """How much was put right so far."""
        return self._pipe.repairs

    @property
    def held(self) -> str:
        """What was put right and waits for the end of the call."""
        return "".join(self._waiting) if self._waiting else ""

    @property
    def leaves(self) -> Callable[[str], object] | None:
        """Finds in a piece what ends the open string, or what is to be put right in it: one without comes out as it is. None:
        every piece has to be fed."""
        return STRING.leaves if self._pipe.quote == '"' and not (self._held or self._rest) and self._waiting is None else None

    def feed(self, piece: str, name: str = "") -> str:
        """What of the arguments of this tool may be shown now."""
        if self._waiting is None:
            return self._mended(piece)
        self._waiting.append(self._mended(piece))
        if self._whole or not name or self._book is None:
            return ""
        wrapped = may_be_wrapped(self.held, self._book, name) if self._book.parameters(name) else False
        if wrapped is None:
            return ""
        if wrapped:
            self._whole = True
            return ""
        known, self._waiting = self.held, None
        return known

    def end(self, name: str = "") -> str:
        """The rest, where the call of this tool has ended."""
        rest = self._end()
        if self._waiting is None:
            return rest
        text, self._waiting = self.held + rest, None
        if self._book is None or not is_json_object(text):
            return text
        inner = unwrapped(text, self._book, name)
        better = coerced(inner or text, self._book, name) if self._level == "schema" else None
        self._pipe.repairs += (inner is not None) + (better is not None)
        return better or inner or text

    def _mended(self, piece: str) -> str:
        if self._rest:
            return piece
        pipe = self._pipe
        if pipe.quote == '"' and not self._held and STRING.leaves(piece) is None:
            return piece
        text = self._held + piece
        if not self._began:
            if not self._held and piece[:1] == "{" and piece[-1:] == "}" and is_json_object(piece):
                # All of them at once, and strict JSON: the pipe would find nothing to do.
                self._began = self._rest = True
                return piece
            stripped = text.lstrip(" \t\r\n")
            if not stripped.startswith("{"):
                self._held = text
                return ""
            self._began = True
        return self._read(text, final=False)

    def _end(self) -> str:
        held, self._held = self._held, ""
        if self._rest:
            return ""
        if self._began:
            return self._read(held, final=True) if held else ""
        inner = decoded_arguments(held, lenient=True)
        if inner is None or held.strip() in ("", "null"):
            return held
        self._pipe.repairs += inner != held
        return inner

    def _read(self, text: str, *, final: bool) -> str:
        out: list[str] = []
        at = self._pipe.feed(text, 0, final, out)
        self._held = text[at:]
        if self._pipe.done or self._pipe.stuck:
            self._rest = True
            out.append(self._held)
            self._held = ""
        return "".join(out)
