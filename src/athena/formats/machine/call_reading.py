"""Who reads a call: the formats that share a marker are asked in turn, and what none of them takes is text again.

A reader that declines gives every character back (`Scanner.rewind`) unless it has shown or dropped something for good. Where
the text ends inside a reader's markup, it was a call that is never completed, or text.

Models that go astray write the same few words, with a marker among them, thousands of times. What readers decide on some
copies of them and nothing else, they decide on every copy with as many after it (`Scanner` answers a question only once the
answer can no longer change), so a run is decided once and not copy by copy. That takes a copy after which the kind of place is
the one before it: in code or not, at the beginning of a line or not (`CodeSpans.place`).
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto

from athena.formats.machine.code_spans import FARTHEST, CodeSpans, TextPlace
from athena.formats.machine.recognizer import Candidate
from athena.formats.machine.scanner import Cut, Declined, Scanner, end_of_run
from athena.formats.machine.speech import Speech
from athena.formats.machine.writer import CallWriter

_READ_AGAIN = 4096
"""Longer declined text is not searched for other markers: the work stays linear."""
_DECIDES = 1024
"""Characters of a run that readers are given to decide it; none looks further for what follows a marker."""
_DECIDES_FENCES = FARTHEST + _DECIDES
"""The same where it takes the end of a code fence to decide it."""
_LONGEST_UNIT = 512
"""Characters of what is repeated in a run, from a marker to the same marker again."""
_PLACES = 4
"""The last places of a marker at one of which a repetition may have begun."""


class _Fate(Enum):
    """What became of a marker that begins no call."""

    TEXT = auto()
    """Every candidate declined it."""
    NOTHING = auto()
    """A reader took it and left it out, with nothing shown."""


class CallReading:
    """The active reader and the remaining candidates."""

    __slots__ = (
        "_all", "_asked", "_calls_before", "_candidates", "_commits_before", "_cut_head", "_faults_before", "_formats",
        "_longest", "_marker", "_places", "_scanner", "_silent", "_speech", "_start", "_starters", "_table", "_text",
        "_writer", "format", "reader",
    )  # fmt: skip

    def __init__(
        self, scanner: Scanner, writer: CallWriter, speech: Speech, format_id: str, starters: tuple[Candidate, ...]
    ) -> None:
        self._scanner = scanner
        self._starters = starters
        self._writer = writer
        self._speech = speech
        self.reader: Generator[None, None, None] | None = None
        """Reads what may be a call; None: no reader is active."""
        self._marker = ""
        self._candidates: tuple[Candidate, ...] = ()
        self._all: tuple[Candidate, ...] = ()
        """The candidates of the marker; those left to ask are `_candidates`."""
        self._calls_before = 0
        self._commits_before = 0
        self._faults_before = 0
        self._text = ""
        """What the scanner held when the marker was found, where in it the marker stood, and which markers counted then."""
        self._start = 0
        self._table = speech.table
        self._asked = ("", 0, 0)
        """A text, and from where to where in it a run goes on that readers were asked about: what is left of it is too short to
        decide it, or takes more than copies."""
        self._silent = ""
        self._places: dict[str, list[tuple[int, TextPlace]]] = {}
        """A text, and where in it markers stood that nobody took, since a reader last kept anything for good."""
        self._longest = 0
        """The most that a candidate took before it declined."""
        self._cut_head = False
        """Did a candidate of reserved tokens meet the end of the text in a call's head?"""
        self.format = format_id
        """The format whose call was last seen; before that the one that was named."""
        self._formats: dict[int, str] = {}
        """The calls of this channel by number, each with the format in which it was written."""

    def format_of(self, call: int) -> str:
        """The format in which a call was written, also while it is still being read."""
        reading = self._candidates[0].format.id if self.reader is not None else self.format
        return self._formats.get(call, reading)

    def begin(self, marker: str, candidates: tuple[Candidate, ...]) -> None:
        """The marker stands here, and may begin a call of these."""
        self._marker = marker
        self._candidates = self._all = candidates
        self._calls_before = self._writer.shown
        self._commits_before = self._writer.commits
        self._faults_before = self._writer.counts.faults
        self._longest = 0
        self._cut_head = False
        self._text, self._start, self._table = self._scanner.text, self._scanner.at, self._speech.table
        self._writer.begin_markup()
        self._ask()

    def _ask(self) -> None:
        """The first candidate has the word."""
        candidate = self._candidates[0]
        self._open(candidate, self._marker)
        self.reader = candidate.opener.read(self._scanner, self._writer, self._marker)

    def _open(self, candidate: Candidate, marker: str) -> None:
        """Take the marker, as this candidate's."""
        scanner, writer = self._scanner, self._writer
        writer.reserved = candidate.is_reserved
        writer.new_id = candidate.format.new_id
        scanner.record()
        scanner.take_to(scanner.at + len(marker))

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
            self._pass_run()
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
            self._formats.update(dict.fromkeys(range(self._calls_before, self._writer.shown), self.format))
        if not self._writer.ends_in_quotation:
            self._speech.end_call()
        self._places.clear()

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
            # What cannot be a call was not cut either, however much of it had come when the reader began.
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

    # -- one marker again and again ------------------------------------------------------------------------------------------

    def _pass_run(self) -> None:
        """The reader has ended. If it left the marker out and nothing else, it leaves out the copies that follow."""
        scanner, speech, marker = self._scanner, self._speech, self._marker
        if not marker or scanner.at != self._start + len(marker) or not scanner.text.startswith(marker, scanner.at):
            return
        same = scanner.text is self._text and speech.table is self._table
        silent = self._writer.shown == self._calls_before and self._writer.counts.faults == self._faults_before
        everybody = len(self._all) == len(speech.table.meanings[marker].candidates)
        if same and silent and everybody and all(one.is_excluded(scanner.text, scanner.at) for one in self._starters):
            copies = _copies(marker, _DECIDES)
            length = self._run(marker, len(copies))
            if length and self._fate_of(marker, copies, 0, self._all) is _Fate.NOTHING:
                scanner.at += length

    def give_up(self, marker: str) -> None:
        """No format takes this marker: it is text, and so are the copies of it that nobody takes either."""
        if not self._say_run(marker):
            self._say_marker(marker)

    def _say_run(self, marker: str) -> bool:
        """Say the run that begins with this marker, which is text, as far as all of it is; False: there is none."""
        unit = self._unit(marker)
        if not unit or not self._speech.is_in_words:
            return False
        copies = _copies(unit, _DECIDES)
        length = self._run(unit, len(copies))
        faults = self._faults_in_text(copies, len(unit)) if length else None
        if length and faults is None and ("`" in unit or "~" in unit):
            copies = _copies(unit, _DECIDES_FENCES)
            length = self._run(unit, len(copies))
            faults = self._faults_in_text(copies, len(unit)) if length else None
        if faults is None:
            return False
        # What readers find wrong with one copy they find wrong with each; they have with the first marker.
        first, every = faults
        self._writer.counts.malformed += every * (length // len(unit)) - first
        start = self._scanner.at
        self._scanner.at += length
        self._speech.say_copies(self._scanner.text[start : start + length])
        return True

    def _unit(self, marker: str) -> str:
        """What stands here twice: from the marker back to where it stood before, at the same kind of place, and once more from
        it on. "": nothing does.

        In the first copy nobody took a marker, so readers that are asked about further copies show nothing either.
        """
        text, at, kind = self._scanner.text, self._scanner.at, self._speech.spans.place
        if text is not self._silent:
            self._silent = text
            self._places.clear()
        places = self._places.setdefault(marker, [])
        unit = ""
        for place, before in reversed(places):
            if at - place > _LONGEST_UNIT:
                break
            if before == kind and text.startswith(text[place:at], at):
                unit = text[place:at]
                break
        places.append((at, kind))
        del places[:-_PLACES]
        return unit

    def _faults_in_text(self, copies: str, size: int) -> tuple[int, int] | None:
        """How many faults readers find behind the first marker of a copy, and how many in all of it. None: it is not just text.

        `size`: of one copy. The second is asked about; the first tells what stands before it.
        """
        table, counts, spans = self._speech.table, self._writer.counts, self._speech.spans.from_here()
        kind = spans.place
        before, first = counts.malformed, -1
        at, end = size, 2 * size
        while at < end:
            found = table.any(copies, at)
            marker = found.group() if found is not None and found.lastindex is not None else ""
            if found is None or not marker:
                break
            spans.advance(copies[at : found.start()])
            at = found.start()
            if at < end:
                if not self._is_text(marker, copies, at, spans):
                    break
                first = counts.malformed - before if first < 0 else first
                ticks = _ticks(marker)
                if ticks:
                    spans.ticks(ticks)
                    at += len(ticks)
                else:
                    length = table.given_up(marker)
                    spans.advance(copies[at : at + length])
                    at += length
        every, counts.malformed = counts.malformed - before, before
        return (first, every) if at == end and spans.place == kind else None

    def _is_text(self, marker: str, copies: str, at: int, spans: CodeSpans) -> bool:
        """Does nobody take the marker that stands there in the copies, and does it mean nothing else?"""
        meaning = self._speech.table.meanings.get(marker)
        if meaning is None:
            return True
        behind = at + len(marker)
        quoted = spans.quotes(copies, behind, final=False) if spans.in_code and meaning.candidates else False
        if quoted is None or meaning.is_delimiter:
            return False
        if quoted:
            return True
        blank, last = spans.blank_line, spans.last
        right = [one for one in meaning.candidates if one.stands_right(blank_line=blank, last=last, visible=True)]
        asked = tuple(one for one in right if not one.is_excluded(copies, behind))
        if not asked:
            return True
        self._writer.begin_markup()
        return self._fate_of(marker, copies, at, asked) is _Fate.TEXT

    def _run(self, unit: str, kept: int) -> int:
        """The length of the run of the unit that begins here, but for `kept` characters of it, which decide it; 0: none, or
        readers were asked about it before."""
        scanner = self._scanner
        if not scanner.text.startswith(unit, scanner.at + len(unit)):
            return 0
        text, begin, end = self._asked
        if scanner.text is not text or scanner.at >= end:
            begin, end = scanner.at, end_of_run(scanner.text, scanner.at, unit)
            self._asked = scanner.text, begin, end
        return max(0, end - scanner.at - kept) if begin == scanner.at else 0

    def _fate_of(self, marker: str, copies: str, at: int, candidates: tuple[Candidate, ...]) -> _Fate | None:
        """What the candidates make of the marker there in the copies; None: they would have to see what follows.

        The text is known to go on like this, and nothing was shown of the first copy: so nothing is shown here.
        """
        scanner, writer = self._scanner, self._writer
        before = scanner.text, scanner.at, scanner.final
        scanner.text, scanner.at, scanner.final = copies, at, False
        fate: _Fate | None = _Fate.TEXT
        for candidate in candidates:
            self._open(candidate, marker)
            reader = candidate.opener.read(scanner, writer, marker)
            try:
                next(reader)
            except Declined:
                scanner.rewind()
                writer.abandon()
                continue
            except StopIteration:
                fate = _Fate.NOTHING if scanner.at == at + len(marker) else None
            except Cut:
                fate = None
            else:
                reader.close()
                writer.abandon()
                fate = None
            break
        scanner.forget()
        scanner.straight = None
        scanner.text, scanner.at, scanner.final = before
        return fate

    def _say_marker(self, marker: str) -> None:
        """Say a marker that is text; what follows it is searched again."""
        ticks = _ticks(marker)
        if ticks:
            self._scanner.at += len(ticks)
            self._speech.say_ticks(ticks)
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


def _copies(unit: str, decides: int) -> str:
    """As many copies as decide a run."""
    return unit * (decides // len(unit) + 2)


def _ticks(marker: str) -> str:
    """The backticks or tildes that a marker begins with."""
    first = marker[0]
    return marker[: len(marker) - len(marker.lstrip(first))] if first in "`~" else ""
