"""Is this place inside inline code or a code fence? Markup quoted there is text (`design.md` 3.4).

A fence opens with three or more backticks or tildes at the start of a line and closes with as many of them at the start of
another. Inline code ends at the latest with its line, so a stray backtick silences at most the rest of one line; only markup
that stands right behind a backtick may be quoted over several lines (the engine looks ahead for the other backtick).
"""

from __future__ import annotations


class CodeSpans:
    """Follows the text that was said."""

    __slots__ = ("_fence", "_inline", "blank_line", "last")

    def __init__(self) -> None:
        self._fence = ""
        self._inline = 0
        self.blank_line = True
        """Is there nothing but blanks on this line so far?"""
        self.last = ""
        """The last character said."""

    @property
    def in_code(self) -> bool:
        """Inside either?"""
        return bool(self._fence) or self._inline > 0

    @property
    def in_fence(self) -> bool:
        """Inside a code fence?"""
        return bool(self._fence)

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

    def ticks(self, run: str) -> None:
        """A run of backticks or tildes was said."""
        count = len(run)
        if self._fence:
            if self.blank_line and run.startswith(self._fence):
                self._fence = ""
        elif count >= 3 and self.blank_line:
            self._fence = run
            self._inline = 0
        elif run[0] == "`" and not self._inline:
            self._inline = count
        elif run[0] == "`" and count == self._inline:
            self._inline = 0
        self.blank_line = False
        self.last = run[0]
