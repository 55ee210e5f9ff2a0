"""Who reads a call: the formats that share a marker are asked in turn, and what nobody wants is text again.

A reader that declines gives every character back (`Scanner.rewind`) unless it has shown or dropped something for good. Where
the text ends inside a reader's markup, it was a call that is never completed, or text.
"""

from __future__ import annotations

from collections.abc import Generator

from athena.formats.machine.recognizer import Candidate
from athena.formats.machine.scanner import Cut, Declined, Scanner
from athena.formats.machine.speech import Speech
from athena.formats.machine.writer import CallWriter

_READ_AGAIN = 4096
"""Longer declined text is not searched for other markers: the work stays linear."""


class CallReading:
    """The reader that has the word, and those that may have it next."""

    __slots__ = (
        "_calls_before", "_candidates", "_commits_before", "_cut_head", "_longest", "_marker", "_scanner", "_speech", "_writer",
        "format", "reader",
    )  # fmt: skip

    def __init__(self, scanner: Scanner, writer: CallWriter, speech: Speech, format_id: str) -> None:
        self._scanner = scanner
        self._writer = writer
        self._speech = speech
        self.reader: Generator[None, None, None] | None = None
        """Reads what may be a call; None: nobody does."""
        self._marker = ""
        self._candidates: tuple[Candidate, ...] = ()
        self._calls_before = 0
        self._commits_before = 0
        self._longest = 0
        """The most that a candidate took before it declined."""
        self._cut_head = False
        """Did a candidate of reserved tokens meet the end of the text in a call's head?"""
        self.format = format_id
        """The format whose call was last seen; before that the one that was named."""

    def begin(self, marker: str, candidates: tuple[Candidate, ...]) -> None:
        """The marker stands here, and may begin a call of these."""
        self._marker = marker
        self._candidates = candidates
        self._calls_before = self._writer.shown
        self._commits_before = self._writer.commits
        self._longest = 0
        self._cut_head = False
        self._writer.begin_markup()
        self._ask()

    def _ask(self) -> None:
        """The first candidate has the word."""
        candidate = self._candidates[0]
        scanner, writer, marker = self._scanner, self._writer, self._marker
        writer.reserved = candidate.is_reserved
        writer.new_id = candidate.format.new_id
        scanner.record()
        scanner.take_to(scanner.at + len(marker))
        self.reader = candidate.opener.read(scanner, writer, marker)

    def advance(self) -> bool:
        """Let the reader go on. False: it waits for more text."""
        reader = self.reader
        if reader is None:
            return True
        try:
            next(reader)
        except StopIteration:
            self.reader = None
            self._writer.end_markup()
            self._scanner.forget()
            self._end_section()
        except Declined:
            self._put_back()
        except Cut:
            self._cut()
        else:
            if not self._scanner.final:
                return False
            # A reader that still waits has met the end of the text.
            reader.close()
            self._cut()
        return True

    def _end_section(self) -> None:
        if self._writer.shown > self._calls_before:
            self.format = self._candidates[0].format.id
        if not self._writer.ends_in_quotation:
            self._speech.end_call()

    # -- no call after all ---------------------------------------------------------------------------------------------------

    def _put_back(self, *, cut: bool = False) -> None:
        """Its text goes on as another format's call, or as text."""
        self.reader = None
        scanner, writer = self._scanner, self._writer
        taken = scanner.rewind()
        writer.abandon()
        writer.counts.declined += 1
        if writer.commits > self._commits_before:
            self._end_section()
            if taken > _READ_AGAIN:
                self._say_next(taken)
            return
        if taken > self._longest:
            self._longest = taken
        if cut and writer.reserved and writer.malformed_policy != "text":
            # What can not be a call was not cut either, however much of it had come when the reader began.
            excluded = self._candidates[0].is_excluded(scanner.text, scanner.at + len(self._marker))
            self._cut_head = self._cut_head or not excluded
        if len(self._candidates) > 1:
            self._candidates = self._candidates[1:]
            self._ask()
        elif self._cut_head:
            writer.cut_head(scanner.text[scanner.at :])
            scanner.at = len(scanner.text)
        elif self._longest > _READ_AGAIN and not self._marker.startswith("`"):
            self._say_next(self._longest)
        elif self._marker:
            self.give_up(self._marker)

    def give_up(self, marker: str) -> None:
        """Nobody wants the marker that stands here: it is text, and what follows it is searched again."""
        if marker.startswith("`"):
            run = marker[: len(marker) - len(marker.lstrip("`"))]
            self._scanner.at += len(run)
            self._speech.say_ticks(run)
        else:
            self._say_next(self._speech.table.given_up(marker))

    def _say_next(self, count: int) -> None:
        scanner = self._scanner
        start = scanner.at
        scanner.at = start + count
        self._speech.say(scanner.text[start : start + count])

    # -- the end of the text -------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        """The text ended inside the reader's markup."""
        scanner, writer = self._scanner, self._writer
        if not writer.is_open and writer.commits == self._commits_before:
            # Nothing was shown yet, so another reading of the marker may still fit.
            self._put_back(cut=True)
            return
        self.reader = None
        raw = scanner.recorded + scanner.text[scanner.at :]
        scanner.forget()
        scanner.at = len(scanner.text)
        if writer.is_open:
            writer.cut()
        elif writer.ends_in_quotation:
            self._speech.say(raw)
        elif writer.reserved and writer.malformed_policy != "text":
            writer.cut_head(raw)
        else:
            self._speech.say(raw)
