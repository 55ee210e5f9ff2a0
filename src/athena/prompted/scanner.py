"""Finds calls in the text of an answer that was taught JSON.

Calls may stand bare in prose, in inline code, or in a code fence of any tag, which then hold nothing else. All other JSON and
all other code passes as text: JSON that is no call is followed to its end, so nothing inside it can be taken for one, and a
bracket that turns out to be prose costs nothing after it. What the model thinks in a leading `<think>` block is not searched.

One pass, work linear in the text; what is held is never more than one candidate. The machinery that makes a cut text equal to a
whole one is the formats' `Scanner`.
"""

from __future__ import annotations

from collections.abc import Generator

from athena.formats.bodies.json_text import JsonPipe
from athena.formats.machine.policies import RepairLevel
from athena.formats.machine.scanner import Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.value_types import ToolBook
from athena.prompted.candidates import CandidateReader, Unusable
from athena.prompted.readers import CallGroup, FoundText, PromptedItem, Trouble

_OUTSIDE = Lexer(("{", "["), ticks=True)
_TICKS = Lexer((), ticks=True)
_INLINE = Lexer(("\n", "{", "["), ticks=True)
_THINK, _THINK_END = "<think>", "</think>"
_END_OF_THINKING = Lexer((_THINK_END,))
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-.#")
_TAG_LIMIT = 40
_RUN_LIMIT = 64
"""Longer runs of backticks are taken in pieces."""
_QUOTE_AHEAD = 256
"""How far to look for the end of the inline code a call seems to stand in."""
_READ_AGAIN = 4096
"""Longer text that was declined after its JSON broke is not searched again: the work stays linear."""


class JsonReader:
    """Reads the text of one choice."""

    def __init__(self, book: ToolBook, *, repair: RepairLevel = "syntax", byte_limit: int = 0, depth_limit: int = 512) -> None:
        self._scan = Scanner(1 << 62)
        self._book = book
        self._repair: RepairLevel = repair
        self._byte_limit = byte_limit
        self._depth_limit = depth_limit
        self._out: list[PromptedItem] = []
        self._text: list[str] = []
        self._ended_well = False
        self._reading = False
        self._spilled = False
        self._plain = False
        self._closed = False
        self.candidates = 0
        """JSON values that were looked at."""
        self._steps: Generator[None, None, None] = self._answer()
        self._open = True

    # -- the verbs -----------------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Is something held that may still become a call?"""
        return self._reading

    @property
    def work(self) -> int:
        """Characters moved so far, for tests of linear work."""
        return self._scan.work

    def is_plain(self, text: str) -> bool:
        """Would this piece come out at once and unchanged?"""
        return self._plain and "{" not in text and "[" not in text and "`" not in text

    def feed(self, text: str) -> list[PromptedItem]:
        if text and not self._closed:
            self._scan.push(text)
            self._advance()
        return self._drain()

    def close(self, *, ended_well: bool = True) -> list[PromptedItem]:
        if not self._closed:
            self._closed = True
            self._ended_well = ended_well
            self._scan.final = True
            self._advance()
        return self._drain()

    def _advance(self) -> None:
        if not self._open:
            return
        try:
            next(self._steps)
            while self._scan.final:
                next(self._steps)
        except StopIteration:
            self._open = False

    def _drain(self) -> list[PromptedItem]:
        self._flush()
        out, self._out = self._out, []
        return out

    def _flush(self) -> None:
        if self._text:
            self._out.append(FoundText("".join(self._text)))
            self._text.clear()

    def _say(self, text: str) -> None:
        if text:
            self._text.append(text)

    def _item(self, item: PromptedItem) -> None:
        self._flush()
        self._out.append(item)

    # -- the answer ----------------------------------------------------------------------------------------------------------

    def _answer(self) -> Steps[None]:
        scan = self._scan
        yield from self._leading_thinking()
        while True:
            self._plain = scan.at >= len(scan.text)
            text, marker = yield from scan.piece(_OUTSIDE)
            self._plain = False
            self._say(text)
            if marker == "":
                return
            if marker is None:
                continue
            if marker in "{[":
                yield from self._bare(quoted=0)
            else:
                yield from self._code()

    def _leading_thinking(self) -> Steps[None]:
        scan = self._scan
        self._say((yield from scan.space()))
        if not (yield from scan.found(_THINK)):
            return
        self._say(_THINK)
        while True:
            text, marker = yield from scan.piece(_END_OF_THINKING)
            self._say(text)
            if marker == "":
                return
            if marker is not None:
                self._say(scan.take(len(marker)))
                return

    # -- candidates ----------------------------------------------------------------------------------------------------------

    def _bare(self, quoted: int) -> Steps[None]:
        """A bracket in prose, or in inline code of `quoted` backticks after something else."""
        reader = self._begin()
        ended = yield from self._attempt(self._unquoted(reader, quoted))
        raw, spilled = self._end()
        if spilled:
            return
        if ended is None:
            self._found(reader, raw)
        elif isinstance(ended, Cut):
            self._cut(reader, raw)
        else:
            self._note(ended)
            yield from self._follow(raw)

    def _unquoted(self, reader: CandidateReader, quoted: int) -> Steps[None]:
        yield from reader.read()
        if quoted and (yield from self._is_closed()):
            raise Declined

    def _begin(self) -> CandidateReader:
        self._scan.record()
        self._reading = True
        self._spilled = False
        self.candidates += 1
        return CandidateReader(self._scan, self._book, repair=self._repair, depth_limit=self._depth_limit)

    def _end(self) -> tuple[str, bool]:
        """What the candidate took, and whether it was too long to be one; then it has been said."""
        scan = self._scan
        raw = scan.recorded
        scan.forget()
        self._reading = False
        if self._spilled:
            self._say(raw)
        return raw, self._spilled

    def _attempt(self, steps: Steps[None]) -> Steps[Declined | Cut | None]:
        """Let a candidate be read to its end: None when it is one. What grows too long is said as it comes."""
        while True:
            ended: Declined | Cut | None = None
            waiting = False
            try:
                next(steps)
                waiting = True
            except StopIteration:
                pass
            except (Declined, Cut) as reason:
                ended = reason
            if isinstance(ended, Cut):
                self._scan.take(len(self._scan.text) - self._scan.at)
            self._spill(whole=not waiting)
            if not waiting:
                return ended
            yield

    def _spill(self, *, whole: bool) -> None:
        """Is there more than may be held? Bytes are counted where it matters, at the end: characters are never more."""
        scan, limit = self._scan, self._byte_limit
        if not limit:
            return
        if not self._spilled:
            long = scan.recorded_size > limit or (
                whole and scan.recorded_size * 4 > limit and len(scan.recorded.encode("utf-8", "surrogatepass")) > limit
            )
            if not long:
                return
            self._spilled = True
            self._reading = False
            self._item(Trouble(f"more than {limit} bytes of JSON in one piece", "collect_limit"))
        if not whole:
            self._say(scan.recorded)
            scan.record()

    def _note(self, reason: Declined) -> None:
        if isinstance(reason, Unusable):
            self._item(Trouble(str(reason)))

    def _found(self, reader: CandidateReader, raw: str) -> None:
        self._item(CallGroup(tuple(reader.calls), raw, reader.array))

    def _cut(self, reader: CandidateReader, raw: str) -> None:
        """The text ended inside a candidate: whole calls count when the model stopped by itself, all else is text."""
        meant = reader.names_a_tool
        if self._ended_well and reader.salvage():
            self._found(reader, raw)
            return
        if meant:
            self._item(Trouble("the answer ended inside a call", "truncated_call"))
        self._say(raw)

    def _follow(self, raw: str) -> Steps[None]:
        """JSON that is no call: let it pass to its end, or to where it stops being JSON."""
        scan = self._scan
        pipe = JsonPipe(lenient=False, depth_limit=1 << 30)
        ignored: list[str] = []
        stop = pipe.feed(raw, 0, False, ignored)
        if pipe.done or pipe.stuck:
            stop = max(stop, 1)
            if len(raw) - stop > _READ_AGAIN:
                stop = len(raw)
            self._say(raw[:stop])
            if stop < len(raw):
                scan.put_back(raw[stop:])
            return
        # A token at the end of the declined text is fed again with what follows it.
        self._say(raw[:stop])
        if stop < len(raw):
            scan.put_back(raw[stop:])
        while True:
            ignored.clear()
            start = scan.at
            stop = pipe.feed(scan.text, start, scan.final, ignored)
            self._say(scan.take(stop - start))
            if pipe.done or pipe.stuck or (scan.final and stop == start):
                return
            if not scan.final:
                yield

    # -- code ----------------------------------------------------------------------------------------------------------------

    def _code(self) -> Steps[None]:
        """A run of backticks: a fence or inline code, which may hold calls and nothing else."""
        scan = self._scan
        run = yield from self._run_length()
        reader = self._begin()
        scan.take(run)
        ended = yield from self._attempt(self._enclosed(reader, run))
        raw, spilled = self._end()
        if ended is None:
            if not spilled:
                self._enclosed_calls(reader, raw, run)
            return
        if isinstance(ended, Cut):
            if not spilled:
                self._cut(reader, raw)
            return
        if not spilled:
            self._note(ended)
            self._say(raw[:run])
            scan.put_back(raw[run:])
        yield from self._code_text(run)

    def _enclosed_calls(self, reader: CandidateReader, raw: str, run: int) -> None:
        bare = raw.rstrip()
        if run < 3 and not bare.endswith("`"):
            # The backtick was never closed, so it quotes nothing, and what follows is text.
            self._say(raw[:run])
            self._scan.put_back(raw[len(bare) :])
            raw = bare[run:]
        self._found(reader, raw)

    def _run_length(self) -> Steps[int]:
        count = 1
        while count < _RUN_LIMIT:
            ahead = yield from self._scan.peek(count + 1)
            if len(ahead) <= count or ahead[count] != "`":
                break
            count += 1
        return count

    def _enclosed(self, reader: CandidateReader, run: int) -> Steps[None]:
        """Calls up to the closing backticks. A fence may have a tag, and several values in it."""
        scan = self._scan
        if run >= 3:
            yield from self._tag()
        yield from scan.space()
        values = 0
        while True:
            head = yield from scan.peek(1)
            if head in ("{", "[") and (values == 0 or run >= 3):
                part = CandidateReader(scan, self._book, repair=self._repair, depth_limit=self._depth_limit)
                try:
                    yield from part.read()
                except Cut:
                    self._take_over(reader, part)
                    raise
                reader.calls += part.calls
                reader.array = part.array and not values
                values += 1
                yield from scan.space()
                if run >= 3 and (yield from scan.found(",")):
                    yield from scan.space()
            elif head == "`" and values:
                closing = yield from self._run_length()
                if closing != run and not (run >= 3 and closing > run):
                    raise Declined
                scan.take(closing)
                return
            elif values and (not head or (run < 3 and not (yield from self._is_closed()))):
                return
            else:
                raise Declined

    def _take_over(self, reader: CandidateReader, part: CandidateReader) -> None:
        """The text ended inside a later value of a fence: only the whole of it can still count."""
        part.calls[:0] = reader.calls
        reader.adopt(part)

    def _tag(self) -> Steps[None]:
        scan = self._scan
        for _ in range(_TAG_LIMIT):
            head = yield from scan.peek(1)
            if not head or head not in _WORD:
                return
            scan.take(1)
        raise Declined

    def _code_text(self, run: int) -> Steps[None]:
        """Code that holds no call: a fence to its closing backticks, inline code to its end or the end of its line."""
        scan = self._scan
        lexer = _TICKS if run >= 3 else _INLINE
        while True:
            text, marker = yield from scan.piece(lexer)
            self._say(text)
            if marker == "":
                return
            if marker is None:
                continue
            if marker == "\n":
                return
            if marker in "{[":
                yield from self._bare(quoted=run)
                continue
            count = yield from self._run_length()
            self._say(scan.take(count))
            if count == run or (run >= 3 and count > run):
                return

    def _is_closed(self) -> Steps[bool]:
        """Do backticks follow on this line? Then what stands before them is quoted."""
        scan = self._scan
        size = 0
        while size <= _QUOTE_AHEAD:
            ahead = yield from scan.peek(size + 1)
            if len(ahead) <= size or ahead[size] == "\n":
                return False
            if ahead[size] == "`":
                return True
            size += 1
        return False
