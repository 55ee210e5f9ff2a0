"""Who reads a call: the formats that share a marker are asked in turn, and what none of them takes is text again.

A reader that declines gives every character back (`Scanner.rewind`) unless it has shown or dropped something for good. Where
the text ends inside a reader's markup, it was a call that is never completed, or text.

Models that go astray write the same few words, with a marker among them, thousands of times. What readers decide on some
copies of them and nothing else, they decide on every copy with as many behind it (`Scanner` answers a question only once the
answer can no longer change), so a run is decided once and not copy by copy.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from enum import Enum, auto

from athena.formats.machine.recognizer import Candidate
from athena.formats.machine.scanner import Cut, Declined, Scanner, end_of_run
from athena.formats.machine.speech import Speech
from athena.formats.machine.writer import CallWriter

_READ_AGAIN = 4096
"""Longer declined text is not searched for other markers: the work stays linear."""
_DECIDES = 1024
"""Characters of a run that readers are given to decide it; none looks further for what follows a marker."""
_LONGEST_UNIT = 512
"""Characters of what is repeated in a run, from a marker to the same marker again."""
_PLACES = 4
"""The last places of a marker at one of which a repetition may have begun."""
_LINE_END = re.compile(r"\n")


class _Fate(Enum):
    """What became of a marker that begins no call."""

    TEXT = auto()
    """Every candidate declined it."""
    NOTHING = auto()
    """A reader took it and left it out, with nothing shown."""


class CallReading:
    """The active reader and the remaining candidates."""

    __slots__ = (
        "_all", "_asked", "_calls_before", "_candidates", "_commits_before", "_cut_head", "_faults_before", "_longest",
        "_marker", "_places", "_scanner", "_silent", "_speech", "_start", "_starters", "_table", "_text", "_writer",
        "format", "reader",
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
        self._asked = ("", 0)
        """A text, and up to where in it a run goes on that readers were asked about: what is left of it is too short to decide
        it, or takes more than copies."""
        self._silent = ""
        self._places: dict[str, list[int]] = {}
        """A text, and where in it markers stood that nobody took, since a reader last kept anything for good."""
        self._longest = 0
        """The most that a candidate took before it declined."""
        self._cut_head = False
        """Did a candidate of reserved tokens meet the end of the text in a call's head?"""
        self.format = format_id
        """The format whose call was last seen; before that the one that was named."""

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
        elif self._marker and not self._say_run():
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
            length = self._run(marker)
            if length and self._fate_of(marker, _copies(marker), 0, self._all) is _Fate.NOTHING:
                scanner.at += length

    def _say_run(self) -> bool:
        """Nobody takes the marker. Say the copies of it that nobody takes either; False: say the first as any other."""
        return self._scanner.text is self._text and self._say_text_run(self._marker)

    def give_up_run(self, marker: str) -> None:
        """No format may take the marker here, behind words. Say the copies of it that are text too."""
        if not self._say_text_run(marker):
            self.give_up(marker)

    def _say_text_run(self, marker: str) -> bool:
        """Say the run that begins with this marker, which is text, as far as all of it is; False: there is none."""
        unit = self._unit(marker)
        length = self._run(unit) if unit and self._is_like_behind(unit) else 0
        faults = self._faults_in_text(_copies(unit), len(unit)) if length else None
        if faults is None:
            return False
        # What readers find wrong with one copy they find wrong with each; they have with the first marker.
        first, every = faults
        self._writer.counts.malformed += every * (length // len(unit)) - first
        self._say_next(length)
        return True

    def _unit(self, marker: str) -> str:
        """What stands here twice: from the marker back to where it stood before, and once more from it on. "": nothing does.

        In the first copy nobody took a marker, so readers that are asked about further copies show nothing either.
        """
        text, at = self._scanner.text, self._scanner.at
        if text is not self._silent:
            self._silent = text
            self._places.clear()
        places = self._places.setdefault(marker, [])
        unit = ""
        for place in reversed(places):
            if at - place > _LONGEST_UNIT:
                break
            if text.startswith(text[place:at], at):
                unit = text[place:at]
                break
        places.append(at)
        del places[:-_PLACES]
        return unit

    def _is_like_behind(self, unit: str) -> bool:
        """Is this place, as far as it matters to markers, like that behind any other copy of the unit?"""
        spans = self._speech.spans
        return self._speech.visible and spans.last == unit[-1] and spans.blank_line == _ends_line(unit)

    def _faults_in_text(self, copies: str, size: int) -> tuple[int, int] | None:
        """How many faults readers find behind the first marker of a copy, and how many in all of it. None: it is not just text.

        `size`: of one copy. The second is asked about; the first tells what stands before it.
        """
        table, counts = self._speech.table, self._writer.counts
        before, first = counts.malformed, -1
        at, end = size, 2 * size
        while at < end:
            found = table.any(copies, at)
            marker = table.name(found) if found is not None and found.lastindex is not None else ""
            if found is None or not marker:
                break
            at = found.start()
            if at < end:
                if not self._is_text(marker, copies, at, size):
                    break
                first = counts.malformed - before if first < 0 else first
                at += table.given_up(marker)
        every, counts.malformed = counts.malformed - before, before
        return (first, every) if at == end else None

    def _is_text(self, marker: str, copies: str, at: int, size: int) -> bool:
        """Does nobody take the marker that stands there in the copies, and does it mean nothing else?"""
        meaning = self._speech.table.meanings.get(marker)
        if meaning is None:
            return False
        blank, last = _ends_line(copies[at - size : at]), copies[at - 1]
        right = [one for one in meaning.candidates if one.stands_right(blank_line=blank, last=last, visible=True)]
        asked = tuple(one for one in right if not one.is_excluded(copies, at + len(marker)))
        if not asked:
            return not meaning.is_delimiter
        self._writer.begin_markup()
        return self._fate_of(marker, copies, at, asked) is _Fate.TEXT

    def say_fences(self, ticks: str) -> bool:
        """Say equal lines that open and close fences by turns: two of them change nothing. False: there are too few."""
        scanner, table = self._scanner, self._speech.table
        text, at = scanner.text, scanner.at
        end = _LINE_END.search(text, at, at + _DECIDES)
        line = text[at : end.end()] if end is not None else ""
        if not line or not text.startswith(line, at + len(line)):
            return False
        copies = line * (_DECIDES // len(line) + 1)
        length = end_of_run(text, at, line) - at - len(copies)
        length -= length % (2 * len(line))
        found = table.any(copies, len(ticks)) if length > 0 else None
        if found is None or found.start() != len(line) or table.name(found) != ticks:
            return False
        self._say_next(length)
        return True

    def _run(self, unit: str) -> int:
        """The length of the run of the unit that begins here, but for as many of its last copies as decide it; 0: none, or
        readers were asked about it before."""
        scanner = self._scanner
        if not scanner.text.startswith(unit, scanner.at + len(unit)) or "`" in unit:
            return 0
        if scanner.text is self._asked[0] and scanner.at < self._asked[1]:
            return 0
        end = end_of_run(scanner.text, scanner.at, unit)
        self._asked = scanner.text, end
        return max(0, end - scanner.at - len(_copies(unit)))

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

    def give_up(self, marker: str) -> None:
        """No format takes this marker: it is text, and what follows it is searched again."""
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


def _copies(unit: str) -> str:
    """As many copies as decide a run."""
    return unit * (_DECIDES // len(unit) + 2)


def _ends_line(text: str) -> bool:
    """Do nothing but blanks follow the last line break?"""
    behind = text.rpartition("\n")
    return bool(behind[1]) and not behind[2].strip()
