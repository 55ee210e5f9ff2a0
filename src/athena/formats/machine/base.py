"""What a text format is: a declaration, one per file of this room, found by its file name.

A format says which markers begin a call and which reader follows them, what its names and ids look like, how reasoning is
fenced, and how tools, calls and results are written. It never touches a buffer: readers are generators over a `Scanner`
(`docs/adding-a-format.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from athena.calls.ids import synthesized_id
from athena.formats.machine.scanner import Scanner, Steps
from athena.formats.machine.writer import CallWriter, NewId
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Tool

Reader: TypeAlias = Callable[[Scanner, CallWriter, str], Steps[None]]
"""Reads what follows an opener (already taken; the third argument) to the end of the call or section.

It returns when the markup is over, raises `Declined` when this is no call of the format, lets `Cut` pass when the text ends.
"""

THINK = (("<think>", "</think>"),)


class Opener(msgspec.Struct, frozen=True):
    """A marker that may begin a call. An empty marker is tried where the answer begins."""

    marker: str
    read: Reader
    where: Literal["anywhere", "line", "word", "start"] = "anywhere"
    """`line`: only blanks before it on its line; `word`: no letter or digit before it; `start`: no visible text before it."""
    auto: bool = True
    """May it be recognised when the format was not named?"""
    rank: int = 0
    """Formats that share a marker are asked by rank; of equal rank the named format first, then by id."""
    plain: bool = False
    """Ordinary text in a format of reserved tokens: only declared names, never inside reasoning."""
    never: str = ""
    """A pattern of what cannot follow the marker (`bodies/near_misses`): where it matches, the reader would decline."""


class Format(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How one family of models writes tool calls as text."""

    id: str
    openers: tuple[Opener, ...]
    reserved: bool = False
    """The markers are reserved control tokens: a well-formed call counts even when its name was not declared."""
    in_reasoning: bool = False
    """Calls are read inside reasoning too. Always so for reserved tokens."""
    thinking: tuple[tuple[str, str], ...] = THINK
    """Delimiters of reasoning inside visible text."""
    answer: tuple[tuple[str, str], ...] = ()
    """Delimiters around the visible answer; they are left out. The opening one also ends reasoning."""
    closers: tuple[str, ...] = ()
    """End markers that are swallowed when they follow a call once more."""
    strays: tuple[str, ...] = ()
    """Control tokens from inside a call that are left out where they end an answer; reserved formats' `closers` are too."""
    turn_ends: tuple[str, ...] = ()
    """End-of-turn strings that are removed where they end the text."""
    streams: Literal["yes", "str", "value", "call"] = "yes"
    """What of the arguments is shown before the call ends: all, strings, whole values, nothing."""
    new_id: NewId = synthesized_id
    tool_openers: Callable[[tuple[str, ...]], tuple[Opener, ...]] | None = None
    """Openers that depend on the declared tool names."""
    render_calls: Callable[[Sequence[ToolCall]], str]
    """The calls of one assistant turn, as the model would have written them."""
    render_results: Callable[[Sequence[ToolResult]], str]
    """The results of one turn, as the model's template writes them."""
    render_tools: Callable[[Sequence[Tool]], str]
    """The tools and how to call them, for a system prompt."""
    inexpressible: Callable[[ToolCall], str | None] = lambda call: None
    """Why the format cannot hold this call exactly; None when it can."""
    tokens: Mapping[str, str] = {}
    """Markers that configuration may replace, by name."""
    with_tokens: Callable[[Mapping[str, str]], Format] | None = None
    """The same format with other markers."""

    @property
    def read_in_reasoning(self) -> bool:
        """Does a call inside reasoning count?"""
        return self.reserved or self.in_reasoning
