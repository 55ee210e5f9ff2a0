"""Is this place inside inline code or a code fence? Markup quoted there is text (`design.md` 3.4).

A fence opens with three or more backticks at the start of a line and closes with as many at the start of another. Inline code
ends at the latest with its line, so a stray backtick silences at most the rest of one line.
"""

from __future__ import annotations


class CodeSpans:
    """Follows the text that was said."""

    __slots__ = ("_fence", "_inline", "blank_line", "last")

    def __init__(self) -> None:
        self._fence = 0
        self._inline = 0
        self.blank_line = True
        """Is there nothing but blanks on this line so far?"""
        self.last = ""
        """The last character said."""

    @property
    def in_fence(self) -> bool:
        """Inside a code fence?"""
        return self._fence > 0

    @property
    def in_inline(self) -> int:
        """How many backticks opened the inline code we are in; 0: none."""
        return self._inline

    def advance(self, text: str) -> None:
        """Text without backticks that mean anything was said."""
        if not text:
            return
        self.last = text[-1]
        newline = text.rfind("\n")
        if newline >= 0:
            self._inline = 0
            rest = text[newline + 1 :]
            self.blank_line = not rest or rest.isspace()
        elif self.blank_line and not text.isspace():
            self.blank_line = False

    def ticks(self, count: int) -> None:
        """A run of backticks was said."""
        if self._fence:
            if count >= self._fence and self.blank_line:
                self._fence = 0
        elif count >= 3 and self.blank_line:
            self._fence = count
            self._inline = 0
        elif not self._inline:
            self._inline = count
        elif count == self._inline:
            self._inline = 0
        self.blank_line = False
        self.last = "`"
