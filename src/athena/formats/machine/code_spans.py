"""Is this place inside inline code or a code fence? Markup quoted there is text.

A fence opens with three or more backticks or tildes at the start of a line and closes with as many of them at the start of
another. Inline code ends at the latest with its line, so a stray backtick silences at most the rest of one line; only markup
that stands right after a backtick may be quoted over several lines (`quotes` looks ahead for the other backtick). A fence that
never closes quotes nothing: models forget to close one before they call. So markup in a fence waits until the fence closes, the
text ends, or so much has come that the fence counts as closed; which of them is known for all markup of the same fence.
"""

from __future__ import annotations

import re
from copy import copy
from functools import lru_cache
from typing import TypeAlias

import msgspec

_QUOTE_AHEAD = 256
"""How far to look for the end of the inline code a marker stands in."""
_LINES_AHEAD = 2048
"""The same where the marker stands right behind the backtick, so that the code may have several lines."""
FENCE_AHEAD = 8192
"""How far to look for the end of the fence a marker stands in."""
FARTHEST = FENCE_AHEAD + _QUOTE_AHEAD
"""How far ahead the end of code is looked for at most."""
_LINE_END = re.compile(r"\n")
_PARAGRAPH_END = re.compile(r"\n[ \t]*+\n")


TextPlace: TypeAlias = tuple[str, bool | None, int, bool, str]
"""All that the meaning of what follows depends on: equal texts behind equal places come to the same place."""


class CodeSpans(msgspec.Struct, eq=False):
    """Follows the text that was said."""

    _fence: str = ""
    _closes: bool | None = None
    """Is the open fence known to close? None: nobody has looked."""
    _inline: int = 0
    said: int = 0
    """How many characters were said since a line began anew behind a call."""
    _unclosed: dict[str, int] = {}
    """By the fence: up to which of them no such fence is known to end."""
    blank_line: bool = True
    """Is there nothing but blanks on this line so far?"""
    last: str = ""
    """The last character said."""

    def reset(self) -> None:
        self._fence = ""
        self._closes = None
        self._inline = 0
        self._unclosed = {}
        self.begin_line()

    def begin_line(self) -> None:
        """What comes next counts as the beginning of a line."""
        self.said = 0
        if self._unclosed:
            self._unclosed = {}
        self.blank_line = True
        self.last = ""

    @property
    def in_code(self) -> bool:
        return bool(self._fence) or self._inline > 0

    @property
    def in_inline(self) -> int:
        """How many backticks opened the inline code we are in; 0: none."""
        return self._inline

    @property
    def place(self) -> TextPlace:
        """What kind of place this is."""
        return self._fence, self._closes if self._fence else None, self._inline, self.blank_line, self.last

    def from_here(self) -> CodeSpans:
        """Follows a text that was not said, as if it followed what was."""
        other = copy(self)
        other._unclosed = {}
        return other

    def advance(self, text: str) -> None:
        """Text without backticks that mean anything was said."""
        if not text:
            return
        self.last = text[-1]
        self.said += len(text)
        newline = text.rfind("\n")
        if newline >= 0:
            self._inline = 0
            rest = text[newline + 1 :]
            self.blank_line = not rest or rest.isspace()
        elif self.blank_line and not text.isspace():
            self.blank_line = False

    def ticks(self, run: str) -> None:
        """A run of backticks or tildes was said."""
        count = len(run)
        self.said += count
        if self._fence:
            if self.blank_line and run.startswith(self._fence):
                self._fence = ""
        elif count >= 3 and self.blank_line:
            self._fence = run
            self._closes = None
            self._inline = 0
        elif run[0] == "`" and not self._inline:
            self._inline = count
        elif run[0] == "`" and count == self._inline:
            self._inline = 0
        self.blank_line = False
        self.last = run[0]

    def quotes(self, text: str, behind: int, *, final: bool, was_cut: bool = False) -> bool | None:
        """Does the marker that ends at `behind` stand in code? None: more text is needed to know.

        `was_cut`: the text ended early, so that the end of a fence may be missing.
        """
        if self._fence:
            if self._closes is None:
                self._closes = self._fence_closes(text, behind, final=final, was_cut=was_cut)
            return self._closes
        if not self._inline:
            return False
        limit = _LINES_AHEAD if self.last == "`" else _QUOTE_AHEAD
        ahead = text[behind : behind + limit]
        end = _PARAGRAPH_END.search(ahead) if self.last == "`" else _LINE_END.search(ahead)
        if ahead.find("`" * self._inline, 0, end.start() if end is not None else limit) >= 0:
            return True
        if end is not None or (final and len(ahead) < limit):
            return False
        return "\n" not in ahead if len(ahead) >= limit else None

    @property
    def in_fence(self) -> bool:
        """Inside a fence that may or may not close?"""
        return bool(self._fence) and self._closes is None

    def may_close(self, text: str) -> bool:
        """Does the open fence end in this text?"""
        found = _fence_end(self._fence[0], len(self._fence)).search(text) if self._fence else None
        return found is not None and found.group(1) is not None

    def _fence_closes(self, text: str, behind: int, *, final: bool, was_cut: bool) -> bool | None:
        """Does a line with nothing but the end of the fence follow?"""
        start = max(behind, behind + self._unclosed.get(self._fence, 0) - self.said - _QUOTE_AHEAD)
        end = behind + FENCE_AHEAD + _QUOTE_AHEAD
        found = _fence_end(self._fence[0], len(self._fence)).search(text, start, end)
        if found is not None and (found.group(1) or final):
            return True
        self._unclosed[self._fence] = self.said + min(len(text), end) - behind
        if len(text) - behind > FENCE_AHEAD + _QUOTE_AHEAD or (final and was_cut):
            return True
        return False if final else None


@lru_cache(maxsize=64)
def _fence_end(character: str, count: int) -> re.Pattern[str]:
    return re.compile(rf"\n[ \t]*+{re.escape(character)}{{{count},}}+[ \t\r]*+(?:(\n)|\Z)")
