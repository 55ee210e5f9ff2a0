"""The parser of model text: `feed` text as it arrives, get events; `close` at the end.

One object per choice and channel of an answer. Text that can not become markup leaves at once; the search for markers is one
regular expression over the markers live in the phase (text or reasoning), and what is held back is never more than a possible
beginning of one, until a format's reader takes over. A reader that declines gives every character back.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Literal

from athena.errors import AthenaError, UsageError
from athena.formats.base import Format
from athena.formats.code_spans import CodeSpans
from athena.formats.policies import Counts, Policies
from athena.formats.recognizer import Candidate, Meaning, Recognizer, recognizer
from athena.formats.scanner import TICKS_AT_ONCE, Cut, Declined, Scanner
from athena.formats.value_types import ToolBook
from athena.formats.writer import CallWriter, Output
from athena.model.events import Error, Event, error_event
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.request import Tool

Channel = Literal["text", "reasoning"]

_QUOTE_AHEAD = 256
"""How far to look for the end of the inline code a marker stands in."""
_LINES_AHEAD = 2048
"""The same where the marker stands right behind the backtick, so that the code may have several lines."""
_WORD = re.compile(r"\S")
_LINE_END = re.compile(r"\n")
_PARAGRAPH_END = re.compile(r"\n[ \t]*+\n")
_READ_AGAIN = 4096
"""Longer declined text is not searched for other markers: the work stays linear."""

_NOTHING, _AFTER_CALL, _AFTER_TURN, _AFTER_THINKING = range(4)


class TextParser:
    """Turns the text of one channel of one choice into events."""

    def __init__(
        self,
        format: str | Format | Recognizer = "auto",  # noqa: A002 - the word users know
        *,
        tools: Sequence[Tool] | ToolBook | None = None,
        channel: Channel = "text",
        starts_in_thinking: bool = False,
        policies: Policies = Policies(),  # noqa: B008 - frozen
        limits: Limits = DEFAULT_LIMITS,
        seed: str = "",
        choice: int = 0,
        recognise_others: bool = False,
    ) -> None:
        """`tools` None accepts every name; an empty list means that nothing is parsed at all.

        `recognise_others`: besides the named format, look for every format with unmistakable markers.
        """
        book = tools if isinstance(tools, ToolBook) else ToolBook(tools)
        if isinstance(format, str):
            table = recognizer(format, others=recognise_others)
        else:
            table = Recognizer(format) if isinstance(format, Format) else format
        self._recognizer = table.for_tools(book.names)
        self._scanner = Scanner(limits.held_chars)
        self._output = Output(choice, hold=policies.text == "hold")
        self.writer = CallWriter(
            scanner=self._scanner, output=self._output, book=book, policies=policies, limits=limits, seed=seed
        )
        self.writer.in_reasoning = channel == "reasoning"
        self._policies = policies
        self._spans = CodeSpans()
        self._off = not book.open and not len(book)
        self._channel: Channel = channel
        self._reader: Generator[None, None, None] | None = None
        self._marker = ""
        self._candidates: tuple[Candidate, ...] = ()
        self._calls_before = 0
        self._commits_before = 0
        self._longest = 0
        """The most that a candidate took before it declined."""
        self._cut_head = False
        """Did a candidate of reserved tokens meet the end of the text in a call's head?"""
        self._stray_closer = False
        self._mode = _NOTHING
        self._tail: list[str] = []
        self._visible = False
        self._trim_newline = False
        self._starters_left = bool(self._recognizer.starters)
        self._closed = False
        self._failed = False
        self.format = self._recognizer.named.id if self._recognizer.named else "auto"
        """The format whose call was last seen; before that the one that was named."""
        self._thinking = False
        self._table = self._recognizer.text
        self._set_thinking(channel == "reasoning" or starts_in_thinking)
        self._idle = False
        """Nothing is held and nothing is special about the next piece of text."""

    @property
    def counts(self) -> Counts:
        """What was found so far."""
        return self.writer.counts

    @property
    def notes(self) -> list[Error]:
        """What happened without being an event."""
        return self.writer.notes

    @property
    def held(self) -> int:
        """Characters whose meaning is undecided."""
        return len(self._scanner.text) - self._scanner.at

    @property
    def work(self) -> int:
        """Characters moved so far, for tests of linear work."""
        return self._scanner.work

    # -- the two verbs -------------------------------------------------------------------------------------------------------

    def feed(self, text: str) -> list[Event]:
        """The events that `text` brought."""
        straight = self._scanner.straight
        if straight is not None:
            try:
                if not straight(text):
                    self._run()
            except AthenaError as error:
                self._fail(error)
            return self._output.drain()
        if self._closed:
            raise UsageError("feed() after close()")
        if self._failed or not text:
            return []
        if self._off:
            self._output.say(text, self._channel == "reasoning")
            return self._output.drain()
        self._scanner.push(text)
        self._run()
        return self._output.drain()

    def close(self, *, ended_well: bool = False) -> list[Event]:
        """The text has ended. Idempotent.

        `ended_well`: the upstream said that the model stopped by itself. Then tagged parameters that are all closed count as a
        whole call although its end marker is missing; otherwise they may have been cut between two parameters.
        """
        if self._closed:
            return []
        self._closed = True
        if not self._failed:
            self._scanner.final = True
            self._scanner.ended_well = ended_well
            self._scanner.push("")
            self._run()
            self._output.flush()
            self._output.release()
        return self._output.drain()

    @property
    def holds_text(self) -> bool:
        """Is a possible beginning of a marker held back?"""
        return self._reader is None and self._scanner.at < len(self._scanner.text)

    @property
    def reads_call(self) -> bool:
        """Is something being read that may be a call?"""
        return self._reader is not None

    def release(self) -> list[Event]:
        """What follows is not text: a possible beginning of a marker was text. A call under way is not touched."""
        if self._closed or self._failed or not self.holds_text:
            return []
        self._scanner.final = True
        self._run()
        if not self._closed:
            self._scanner.final = False
        return self._output.drain()

    def is_plain(self, text: str) -> bool:
        """Would this piece come out as it is, with nothing held before it? If so it counts as fed."""
        if not self._idle or self._table.any(text) is not None:
            return self._off
        spans = self._spans
        if spans.blank_line or spans.in_inline or "\n" in text:
            spans.advance(text)
        else:
            spans.last = text[-1:]
        return True

    # -- the loop ------------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._scanner.straight = None
        try:
            while self._advance_reader() if self._reader is not None else self._search():
                pass
        except AthenaError as error:
            self._fail(error)
        self._idle = (
            self._reader is None
            and self._mode == _NOTHING
            and self._visible
            and not self._trim_newline
            and not self._tail
            and self._scanner.at >= len(self._scanner.text)
            and self._policies.text == "pass"
        )

    def _fail(self, error: AthenaError) -> None:
        self._failed = True
        self._reader = None
        self._scanner.straight = None
        self._output.event(error_event(error))

    def _search(self) -> bool:
        """Say text up to the next marker and deal with it. False: everything was used, or more text is needed."""
        scanner = self._scanner
        if self._starters_left and not self._thinking and not self._visible:
            return self._try_starters()
        text = scanner.text
        found = (self._table.final if scanner.final else self._table.any)(text, scanner.at)
        if found is None:
            self._say(text[scanner.at :])
            scanner.at = len(text)
            return False
        start = found.start()
        if start > scanner.at:
            self._say(text[scanner.at : start])
            scanner.at = start
        if found.lastindex is None:
            return False
        marker = self._table.lexer.name(found)
        meaning = self._table.meanings.get(marker)
        if meaning is None:
            return self._ticks(marker)
        if meaning.candidates:
            return self._opener(marker, meaning)
        return self._delimiter(marker, meaning)

    def _ticks(self, run: str) -> bool:
        scanner = self._scanner
        if len(run) < TICKS_AT_ONCE and scanner.at + len(run) == len(scanner.text) and not scanner.final:
            return False
        scanner.at += len(run)
        self._say(run, ticks=True)
        return True

    def _delimiter(self, marker: str, meaning: Meaning) -> bool:
        scanner = self._scanner
        if self._spans.in_fence or self._spans.in_inline:
            scanner.at += len(marker)
            self._say(marker)
        elif meaning.opens_thinking and (self._thinking or not self._visible):
            scanner.at += len(marker)
            self._open_thinking(marker)
        elif meaning.closes_thinking and (self._thinking or not self._visible or not self._stray_closer):
            self._stray_closer = True
            scanner.at += len(marker)
            self._close_thinking(marker)
        elif meaning.ends and (self._mode == _AFTER_CALL or meaning.turn_end):
            scanner.at += len(marker)
            if self._mode != _AFTER_CALL:
                self._mode = _AFTER_TURN
                self._tail.append(marker)
        else:
            scanner.at += len(marker)
            self._say(marker)
        return True

    # -- text ----------------------------------------------------------------------------------------------------------------

    def _say(self, piece: str, *, ticks: bool = False) -> None:
        """Text comes out, unless it is white space whose meaning depends on what follows."""
        if not piece:
            return
        if self._trim_newline:
            self._trim_newline = False
            piece = piece.removeprefix("\n")
        if self._mode != _NOTHING:
            blank = piece.isspace()
            if self._mode == _AFTER_CALL and self._policies.after_calls == "drop":
                return
            if blank:
                if self._mode != _AFTER_THINKING:
                    self._tail.append(piece)
                return
            if self._mode == _AFTER_THINKING:
                piece = piece.lstrip()
            self._mode = _NOTHING
            if self._tail:
                tail = "".join(self._tail)
                self._tail.clear()
                self._spans.advance(tail)
                self._output.say(tail, self._shown_as_thinking)
        if not piece:
            return
        if ticks:
            self._spans.ticks(piece)
        else:
            self._spans.advance(piece)
        if not self._visible and not piece.isspace():
            self._visible = True
        self._output.say(piece, self._shown_as_thinking)

    @property
    def _shown_as_thinking(self) -> bool:
        return self._thinking and (self._policies.thinking == "split" or self._channel == "reasoning")

    def _set_thinking(self, thinking: bool) -> None:
        self._thinking = thinking
        self._table = self._recognizer.reasoning if thinking else self._recognizer.text
        self._visible = False
        self._starters_left = bool(self._recognizer.starters)

    def _open_thinking(self, marker: str) -> None:
        if self._policies.thinking == "keep" and self._channel == "text":
            self._say(marker)
        else:
            self._tail.clear()
            self._mode = _NOTHING
            self._trim_newline = True
        if not self._thinking:
            self._set_thinking(True)

    def _close_thinking(self, marker: str) -> None:
        if self._channel == "reasoning":
            return
        if self._policies.thinking == "keep":
            self._say(marker)
        else:
            self._tail.clear()
            self._trim_newline = False
            self._mode = _AFTER_THINKING
        if self._thinking:
            self._spans = CodeSpans()
            self._set_thinking(False)

    # -- calls ---------------------------------------------------------------------------------------------------------------

    def _opener(self, marker: str, meaning: Meaning) -> bool:
        candidates = meaning.candidates
        if self._spans.in_code:
            quoted = self._is_quoted(marker)
            if quoted is None:
                return False
            if quoted:
                candidates = ()
        if not meaning.anywhere:
            text, behind = self._scanner.text, self._scanner.at + len(marker)
            candidates = tuple(one for one in candidates if self._stands_right(one) and not one.is_excluded(text, behind))
        if not candidates:
            if marker.startswith("`"):
                return self._ticks(marker[: len(marker) - len(marker.lstrip("`"))])
            if meaning.opens_thinking or meaning.closes_thinking or meaning.ends:
                return self._delimiter(marker, meaning)
            self._give_up(marker)
            return True
        self._begin(marker, candidates)
        return True

    def _stands_right(self, candidate: Candidate) -> bool:
        where = candidate.opener.where
        if where == "anywhere":
            return True
        if where == "line":
            return self._spans.blank_line
        if where == "word":
            return not self._spans.last.isalnum() and self._spans.last != "_"
        return not self._visible

    def _is_quoted(self, marker: str) -> bool | None:
        """Does the marker stand in code? None: more text is needed to know."""
        spans = self._spans
        if spans.in_fence:
            return True
        if not spans.in_inline:
            return False
        scanner = self._scanner
        limit = _LINES_AHEAD if spans.last == "`" else _QUOTE_AHEAD
        ahead = scanner.text[scanner.at + len(marker) : scanner.at + len(marker) + limit]
        end = _PARAGRAPH_END.search(ahead) if spans.last == "`" else _LINE_END.search(ahead)
        if ahead.find("`" * spans.in_inline, 0, end.start() if end is not None else limit) >= 0:
            return True
        if end is not None or (scanner.final and len(ahead) < limit):
            return False
        return "\n" not in ahead if len(ahead) >= limit else None

    def _try_starters(self) -> bool:
        scanner = self._scanner
        if _WORD.search(scanner.text, scanner.at) is None:
            self._starters_left = not scanner.final
            return scanner.final
        self._starters_left = False
        self._begin("", self._recognizer.starters)
        return True

    def _begin(self, marker: str, candidates: tuple[Candidate, ...]) -> None:
        self._marker = marker
        self._candidates = candidates
        self._calls_before = self.writer.shown
        self._commits_before = self.writer.commits
        self._longest = 0
        self._cut_head = False
        self._next_candidate()

    def _next_candidate(self) -> None:
        candidate = self._candidates[0]
        self.writer.reserved = candidate.is_reserved
        self.writer.new_id = candidate.format.new_id
        self._scanner.record()
        self._scanner.take_to(self._scanner.at + len(self._marker))
        self._reader = candidate.opener.read(self._scanner, self.writer, self._marker)

    def _advance_reader(self) -> bool:
        """Let the reader go on. False: it waits for more text."""
        reader = self._reader
        if reader is None:
            return True
        try:
            next(reader)
        except StopIteration:
            self._end_section()
        except Declined:
            self._put_back()
        except Cut:
            self._cut()
        else:
            if self._scanner.final:
                # A reader that still waits has met the end of the text.
                reader.close()
                self._cut()
                return True
            return False
        return True

    def _end_section(self) -> None:
        self._reader = None
        self._scanner.forget()
        self._after_section()

    def _after_section(self) -> None:
        """Behind a call: reasoning is over, and white space is separation until text follows."""
        if self.writer.shown > self._calls_before:
            self.format = self._candidates[0].format.id
        self._tail.clear()
        self._mode = _AFTER_CALL
        self._trim_newline = False
        if self._thinking and self._channel == "text":
            self._set_thinking(False)
        self._visible = False
        self._starters_left = bool(self._recognizer.starters)
        self._spans.blank_line = True
        self._spans.last = ""

    def _put_back(self, *, cut: bool = False) -> None:
        """No call after all: its text goes on as another format's call, or as text."""
        self._reader = None
        scanner = self._scanner
        taken = scanner.recorded_size
        self.writer.abandon()
        self.writer.counts.declined += 1
        if self.writer.commits > self._commits_before:
            self._after_section()
            scanner.rewind()
            if taken > _READ_AGAIN:
                self._say_next(taken)
            return
        scanner.rewind()
        if taken > self._longest:
            self._longest = taken
        # What can not be a call was not cut either, however much of it had come when the reader began.
        cut = cut and not self._candidates[0].is_excluded(scanner.text, scanner.at + len(self._marker))
        self._cut_head = self._cut_head or (cut and self.writer.reserved and self.writer.malformed_policy != "text")
        if len(self._candidates) > 1:
            self._candidates = self._candidates[1:]
            self._next_candidate()
        elif self._cut_head:
            self.writer.cut_head(scanner.text[scanner.at :])
            scanner.at = len(scanner.text)
        else:
            self._say_declined()

    def _say_declined(self) -> None:
        """Nobody wants it: the marker is text, and what follows is searched again unless that was much."""
        marker = self._marker
        if marker.startswith("`"):
            ticks = len(marker) - len(marker.lstrip("`"))
            self._scanner.at += ticks
            self._say(marker[:ticks], ticks=True)
        elif self._longest > _READ_AGAIN:
            self._say_next(self._longest)
        else:
            self._give_up(marker)

    def _give_up(self, marker: str) -> None:
        if marker:
            self._say_next(self._table.given_up(marker))

    def _say_next(self, count: int) -> None:
        scanner = self._scanner
        start = scanner.at
        scanner.at = start + count
        self._say(scanner.text[start : scanner.at])

    def _cut(self) -> None:
        """The text ended inside the reader's markup."""
        if not self.writer.is_open and self.writer.commits == self._commits_before:
            # Nothing was shown yet, so another reading of the marker may still fit.
            self._put_back(cut=True)
            return
        self._reader = None
        scanner = self._scanner
        raw = scanner.recorded + scanner.text[scanner.at :]
        scanner.forget()
        scanner.at = len(scanner.text)
        if self.writer.is_open:
            self.writer.cut()
        elif self.writer.reserved and self.writer.malformed_policy != "text":
            self.writer.cut_head(raw)
        else:
            self._say(raw)


def opened_by_prompt(text: str, format_id: str = "auto") -> bool:
    """Does a whole answer begin inside reasoning that the prompt opened? It closes reasoning that it never opened.

    Only whole texts can tell; for a stream the caller must know (`starts_in_thinking`).
    """
    table = recognizer(format_id)
    formats = (*((table.named,) if table.named is not None else ()), *table.others)
    for begin, end in {pair for known in formats for pair in known.thinking}:
        close = text.find(end)
        if close >= 0 and begin not in text[:close]:
            return True
    return False
