"""The parser of model text: `feed` text as it arrives, get events; `close` at the end.

One object per choice and channel of an answer. Text that cannot become markup leaves at once; the search for markers is one
regular expression over the markers live in the phase (text or reasoning), and what is held back is never more than a possible
beginning of one, until a format's reader takes over (`call_reading`). What is text is said by `speech`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from athena.errors import AthenaError, UsageError
from athena.formats.machine.base import Format
from athena.formats.machine.call_reading import CallReading
from athena.formats.machine.code_spans import FENCE_AHEAD, CodeSpans
from athena.formats.machine.policies import Counts, Policies
from athena.formats.machine.recognizer import Meaning, Recognizer, Search, Table, recognizer
from athena.formats.machine.scanner import TICKS_AT_ONCE, Scanner
from athena.formats.machine.speech import Channel, Speech
from athena.formats.machine.value_types import ToolBook
from athena.formats.machine.writer import CallWriter, EventBuffer, Guard, Seed
from athena.model.events import Error, Event, error_event
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.request import Tool

_FENCE_END = 128
"""Characters that the end of a fence may take, with the blanks around it."""
_WORD = re.compile(r"\S")
_ALWAYS: Search = re.compile("").search
"""Finds something in every piece."""
_PARTS = frozenset({"_scanner", "_output", "_speech", "_reading", "writer", "_parked"})


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
        seed: Seed = "",
        choice: int = 0,
        recognise_others: bool = False,
        guard: Guard | None = None,
    ) -> None:
        """`tools` None accepts every name; an empty list means that nothing is parsed at all.

        `recognise_others`: besides the named format, look for every format with unmistakable markers. `guard`: knows which
        calls stand in the request and are quotations.
        """
        book = tools if isinstance(tools, ToolBook) else ToolBook(tools)
        if isinstance(format, str):
            table = recognizer(format, others=recognise_others)
        else:
            table = Recognizer(format) if isinstance(format, Format) else format
        self._recognizer = table.for_tools(book.names)
        self._book = book
        self._policies = policies
        self._limits = limits
        self._seed = seed
        self._choice = choice
        self._guard = guard
        self._channel: Channel = channel
        self._starts_in_thinking = starts_in_thinking
        self._spans = CodeSpans()
        self._passes = policies.text == "pass"
        self._off = not book.open and not len(book)
        self._may_begin_plain = self._passes and (channel == "reasoning" or not starts_in_thinking)
        """Was nothing looked at yet, and would words without a marker come out as they are?"""

    idle = True
    """Was everything so far plain text? Then there is no more of the parser than finds the first piece that is not."""
    _closed = False
    _failed = False
    _holds_calls = False
    _unplain: Search = _ALWAYS
    """Finds what makes the next piece more than text: markers, or anything where something is held before it."""
    _table: Table
    """The markers that it finds, where it is a search for markers."""

    # -- what the first piece that is not plain text needs ---------------------------------------------------------------------

    _scanner: Scanner
    _output: EventBuffer
    _speech: Speech
    _reading: CallReading
    writer: CallWriter
    _parked: list[str]
    """Text behind a marker in a code fence, put aside until it is known whether the fence closes."""
    _parks = False
    _parked_size = 0
    _parked_end = ""

    def __getattr__(self, name: str) -> Any:
        # Made on first use: most answers are plain text from their first piece to their last.
        if name not in _PARTS:
            raise AttributeError(name)
        self._make_parts()
        return getattr(self, name)

    def _make_parts(self) -> None:
        self.idle = self._may_begin_plain = False
        policies, known = self._policies, self._recognizer
        scanner = self._scanner = Scanner(self._limits.held_chars)
        output = self._output = EventBuffer(self._choice, hold=policies.text == "hold")
        speech = self._speech = Speech(
            known,
            output,
            policies,
            channel=self._channel,
            starts_in_thinking=self._starts_in_thinking,
            spans=self._spans,
            visible=self._unplain is not _ALWAYS,
        )
        writer = self.writer = CallWriter(
            scanner=scanner,
            output=output,
            book=self._book,
            policies=policies,
            limits=self._limits,
            seed=self._seed,
            guard=self._guard,
            say=speech.say if self._guard is not None else None,
        )
        writer.in_reasoning = self._channel == "reasoning"
        writer.hold_calls = self._holds_calls
        named = known.named
        self._reading = CallReading(scanner, writer, speech, named.id if named is not None else "auto", known.starters)
        self._parked = []

    # -- what was found --------------------------------------------------------------------------------------------------------

    @property
    def format(self) -> str:
        """The format whose call was last seen; before that the one that was named."""
        return self._reading.format

    def format_of(self, call: int) -> str:
        """The format in which the call with this number was written."""
        return self._reading.format_of(call)

    @property
    def counts(self) -> Counts:
        """How many calls, quotations and repairs there were so far."""
        return self.writer.counts

    @property
    def notes(self) -> list[Error]:
        """What happened without being an event."""
        return self.writer.notes

    @property
    def has_found(self) -> bool:
        """Is there a call, a quotation or a note?"""
        return not self.idle and bool(self.counts.calls or self.counts.echoes or self.notes)

    def hold_calls(self) -> None:
        """From here on show calls only when they are whole, whatever the policy says."""
        self._holds_calls = True
        if not self.idle:
            self.writer.hold_calls = True

    @property
    def held(self) -> int:
        """Characters whose meaning is undecided."""
        if self.idle:
            return 0
        return len(self._scanner.text) - self._scanner.at + self._scanner.recorded_size + self._parked_size

    @property
    def held_text(self) -> str:
        """The characters that are held, for whoever shows them: it takes as long as there are."""
        scanner = self._scanner
        return "" if self.idle else "".join((scanner.recorded, scanner.text[scanner.at :], *self._parked))

    @property
    def work(self) -> int:
        """Characters moved so far, for tests of linear work."""
        return self._scanner.work

    # -- the two verbs -------------------------------------------------------------------------------------------------------

    def feed(self, text: str) -> list[Event]:
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
        if self._parks:
            if self._park(text):
                return []
            text = self._unpark()
        self._scanner.push(text)
        self._run()
        return self._output.drain()

    def close(self, *, ended_well: bool = False, was_cut: bool = False) -> list[Event]:
        """The text has ended. Idempotent.

        `ended_well`: the upstream said that the model stopped by itself. Then tagged parameters that are all closed count as a
        whole call although its end marker is missing; otherwise they may have been cut between two parameters. `was_cut`: it
        said that the text was cut off. Then a value that was not closed is not closed by the end marker of its call either:
        the marker may be part of the value.
        """
        if self._closed:
            return []
        self._closed = True
        if self.idle:
            self._may_begin_plain = False
            return []
        if not self._failed:
            self._scanner.final = True
            self._scanner.ended_well = ended_well
            self._scanner.was_cut = was_cut
            self._scanner.push(self._unpark())
            self._run()
            self._output.flush()
            self._output.release()
        return self._output.drain()

    @property
    def holds_text(self) -> bool:
        """Is a possible beginning of a marker held back?"""
        return not self.idle and self._reading.reader is None and self._scanner.at < len(self._scanner.text)

    @property
    def reads_call(self) -> bool:
        """Is something being read that may be a call?"""
        return not self.idle and self._reading.reader is not None

    def release(self, *, is_over: bool = False) -> list[Event]:
        """What follows is not text: a possible beginning of a marker was text. A call under way is not touched.

        `is_over`: nothing goes on behind what follows, so that a fence which has not closed never does.
        """
        if self._closed or self._failed or not self.holds_text:
            return []
        if self._parks:
            self._scanner.push(self._unpark())
        self._scanner.final = True
        self._scanner.was_cut = not is_over
        self._run()
        if not self._closed:
            self._scanner.final = self._scanner.was_cut = False
        return self._output.drain()

    def is_plain(self, text: str) -> bool:
        """Would this piece come out as it is, with nothing held before it? If so it counts as fed."""
        if self._unplain(text) is not None:
            return self._off or (self._may_begin_plain and self._begins_plain(text))
        self.passed(text)
        return True

    def _begins_plain(self, text: str) -> bool:
        """The same for the first piece: words in which no marker stands, and no call without one."""
        known, is_thinking = self._recognizer, self._channel == "reasoning"
        table = known.reasoning if is_thinking else known.text
        if not text or text.isspace() or not (is_thinking or known.starts_no_call(text)) or table.any(text) is not None:
            return False
        self._may_begin_plain = False
        self._table, self._unplain = table, table.any
        self.passed(text)
        return True

    @property
    def search(self) -> Search:
        """Finds what makes a piece more than text, until the next `feed`; `passed` counts one without as fed."""
        return self._unplain

    def are_plain(self, pieces: Sequence[str]) -> bool:
        """Would `search` find nothing in any of these pieces? They are looked at in one go where that is enough."""
        search = self._unplain
        if search is _ALWAYS:
            return not pieces
        return not self._table.may_begin(pieces) or all(search(piece) is None for piece in pieces)

    def passed(self, text: str) -> None:
        """This piece came out as it is, or these pieces, joined."""
        spans = self._spans
        if spans.blank_line or spans.in_inline or "\n" in text:
            spans.advance(text)
        else:
            spans.last = text[-1:]
            spans.said += len(text)

    # -- what waits for the end of a fence ------------------------------------------------------------------------------------

    def _park(self, text: str) -> bool:
        """Put text aside. False: now it is known whether the fence closes, or enough has come."""
        self._parked.append(text)
        self._parked_size += len(text)
        end = self._parked_end + text
        self._parked_end = end[-_FENCE_END:]
        return self._parked_size <= 2 * FENCE_AHEAD and not self._spans.may_close(end)

    def _unpark(self) -> str:
        """What was put aside."""
        text = "".join(self._parked)
        self._parked.clear()
        self._parks, self._parked_size, self._parked_end = False, 0, ""
        return text

    # -- the loop ------------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        scanner, reading = self._scanner, self._reading
        scanner.straight = None
        try:
            while reading.advance() if reading.reader is not None else self._search():
                pass
        except AthenaError as error:
            self._fail(error)
            return
        if reading.reader is None and self._passes and scanner.at >= len(scanner.text) and self._speech.lets_pass:
            self._table = self._speech.table
            self._unplain = self._table.any
        else:
            self._unplain = _ALWAYS

    def _fail(self, error: AthenaError) -> None:
        self._failed = True
        self._unplain = _ALWAYS
        self._reading.reader = None
        self._scanner.straight = None
        self._output.event(error_event(error))

    def _search(self) -> bool:
        """Say text up to the next marker and deal with it. False: everything was used, or more text is needed."""
        scanner, speech = self._scanner, self._speech
        if speech.begins and not speech.thinking and not speech.visible:
            return self._try_starters()
        text, table = scanner.text, speech.table
        found = (table.final if scanner.final else table.any)(text, scanner.at)
        if found is None:
            rest = text[scanner.at :]
            scanner.at = len(text)
            speech.say(rest)
            return False
        start = found.start()
        if start > scanner.at:
            before = text[scanner.at : start]
            scanner.at = start
            speech.say(before)
        if found.lastindex is None:
            return False
        marker = found.group()
        meaning = table.meanings.get(marker)
        if meaning is None:
            return self._ticks(marker)
        if meaning.candidates:
            return self._opener(marker, meaning)
        scanner.at += len(marker)
        speech.say_delimiter(marker, meaning)
        return True

    def _ticks(self, run: str) -> bool:
        scanner = self._scanner
        if len(run) < TICKS_AT_ONCE and scanner.at + len(run) == len(scanner.text) and not scanner.final:
            return False
        self._reading.give_up(run)
        return True

    # -- where a call may begin ----------------------------------------------------------------------------------------------

    def _opener(self, marker: str, meaning: Meaning) -> bool:
        scanner = self._scanner
        candidates = meaning.candidates
        if self._spans.in_code:
            behind = scanner.at + len(marker)
            quoted = self._spans.quotes(scanner.text, behind, final=scanner.final, was_cut=scanner.was_cut)
            if quoted is None:
                self._parks = self._spans.in_fence
                self._parked_end = scanner.text[-_FENCE_END:] if self._parks else ""
                return False
            if quoted:
                candidates = ()
        if not meaning.anywhere:
            text, behind = scanner.text, scanner.at + len(marker)
            # A list made at once is cheaper than a generator, and most markers in prose end here.
            blank, last, visible = self._spans.blank_line, self._spans.last, self._speech.visible
            candidates = tuple(
                [
                    one
                    for one in candidates
                    if one.stands_right(blank_line=blank, last=last, visible=visible) and not one.is_excluded(text, behind)
                ]
            )
        if candidates:
            self._reading.begin(marker, candidates)
        elif meaning.is_delimiter:
            scanner.at += len(marker)
            self._speech.say_delimiter(marker, meaning)
        else:
            self._reading.give_up(marker)
        return True

    def _try_starters(self) -> bool:
        scanner = self._scanner
        if _WORD.search(scanner.text, scanner.at) is None:
            self._speech.begins = not scanner.final
            return scanner.final
        self._speech.begins = False
        candidates = tuple(one for one in self._recognizer.starters if not one.is_excluded(scanner.text, scanner.at))
        if candidates:
            self._reading.begin("", candidates)
        return True
