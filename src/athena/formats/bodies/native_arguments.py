"""Arguments of native calls, put right as they stream: the same slips that `json_text` mends in calls written as text.

Strict JSON comes out byte for byte. What is not even nearly JSON comes out as it is, and whoever ends the call finds that out.
Nothing is made up at the end: a bracket that is missing there may have been cut off.
"""

from __future__ import annotations

from athena.formats.bodies.arguments import decoded_arguments
from athena.formats.bodies.json_text import JsonPipe
from athena.formats.bodies.json_tokens import STRING


class ArgumentMender:
    """The arguments of one call."""

    __slots__ = ("_began", "_held", "_pipe", "_rest")

    def __init__(self, depth_limit: int = 512) -> None:
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

    def feed(self, piece: str) -> str:
        """What of the arguments is known now."""
        if self._rest:
            return piece
        pipe = self._pipe
        if pipe.quote == '"' and not self._held and STRING.leaves(piece) is None:
            return piece
        text = self._held + piece
        if not self._began:
            stripped = text.lstrip(" \t\r\n")
            if not stripped.startswith("{"):
                self._held = text
                return ""
            self._began = True
        return self._read(text, final=False)

    def end(self) -> str:
        """The rest, where the call has ended."""
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
