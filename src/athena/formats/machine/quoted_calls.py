"""Calls that stand in text the model did not write: a tool's result, a document, a prompt.

The readers are those of the formats, every one of them, asked where one of their markers stands before a tool's name. Nothing
counts as code, reasoning or prose here, and the text may be escaped: it is read as it stands and without its escapes. How much
is read is counted, so no text can make this expensive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from athena.errors import AthenaError
from athena.formats import all_formats
from athena.formats.bodies.named import CallKeys, read_named_calls
from athena.formats.machine.base import Format, Reader
from athena.formats.machine.call_places import is_late
from athena.formats.machine.policies import Policies, RepairLevel
from athena.formats.machine.scanner import Cut, Declined, Scanner, Steps
from athena.formats.machine.value_types import ToolBook
from athena.formats.machine.writer import CallWriter, EventBuffer
from athena.model.events import ToolCallComplete
from athena.model.limits import DEFAULT_LIMITS
from athena.wire.escapes import unescaped, without_entities, without_invisible

_LAYERS = 3
"""How many layers of escapes are looked behind."""
_NEAREST = 3
_NEAREST_BRACKETS = 6
_ALL_BRACKETS = 256
"""How many markers before a name are tried, the nearest first; more of them where the name stands behind the arguments."""
_RUN_COST = 256
"""What asking a reader costs, in characters read."""

_TOKEN = re.compile(r"[\w.\-]*+\Z")
_LABEL = re.compile(r"to[ \t]*+=[ \t]*+(?:functions\.)?\Z")
_LABEL_CHARS = 32
"""What a call may begin with, right before the name, in formats without a marker there."""
_STARTS_CALL = re.compile(r"[\w.\-/:]++[ \t]*+(?:\r?\n|[<{\[])")
"""A name that may begin a call by itself: its line ends, or a bracket follows."""
_ANY_TOOL = ToolBook(None)

Marker = tuple[str, tuple[tuple[Reader, "re.Pattern[str] | None"], ...], int]
"""A marker, who reads what follows it and what cannot follow it, and how many of it to try."""
MarkedPlace = tuple[int, str, Reader]
"""Where a marker stands, the marker, and a reader for what follows it."""


class QuotedCall(msgspec.Struct, frozen=True, gc=False):
    """One call that stands in the text."""

    name: str
    arguments: str
    open_ended: bool
    """It ended with the text, and might have ended elsewhere in another one."""


class QuotedCalls(msgspec.Struct, frozen=True, gc=False):
    """What was found around a name."""

    calls: tuple[QuotedCall, ...]
    is_cut: bool
    """A call is cut by the end of the text: with more text there would be more to read."""


class WorkBudget(msgspec.Struct, eq=False):
    """What may still be read, in characters; shared by all that belongs to one answer."""

    left: int

    @property
    def is_spent(self) -> bool:
        return self.left <= 0


class QuotedCallReader:
    """Reads calls of some tools around places where their names stand."""

    def __init__(self, book: ToolBook, *, repair: RepairLevel = "syntax", formats: Sequence[Format] = ()) -> None:
        """`formats`: others than the known ones, such as one whose markers were configured."""
        self._book = book
        self._formats = tuple(formats)
        self._policies = Policies(
            arguments="hold", malformed="text", unknown_tool="pass", repair="schema" if repair == "schema" else "syntax"
        )

    def read(self, before: str, behind: str, names: tuple[str, ...], budget: WorkBudget) -> QuotedCalls:
        """The calls of these tools whose markup begins in `before` and goes on with `behind`, which begins with a name.

        Every format that may be meant is asked, because some can read what another one wrote, but not rightly.
        """
        calls: dict[QuotedCall, None] = {}
        is_cut = False
        for head, tail in _readings(before, behind):
            text = head + tail
            for place, marker, read in _candidates(head, tail, names, self._formats):
                run = self._run(text, place, marker, read, names, budget)
                is_cut |= run.is_cut
                calls.update(dict.fromkeys(run.calls))
                if budget.is_spent:
                    break
        return QuotedCalls(tuple(calls), is_cut)

    def _run(self, text: str, at: int, marker: str, read: Reader, names: tuple[str, ...], budget: WorkBudget) -> _Run:
        """Ask one reader at one place."""
        scanner = Scanner(len(text) + 1)
        scanner.push(text[at:])
        scanner.final = scanner.ended_well = True
        scanner.record()
        scanner.take_to(len(marker))
        writer = _Listener(self._book_of(names), scanner, self._policies)
        reader = read(scanner, writer, marker)
        try:
            next(reader)
            # It waits for text that does not come.
            reader.close()
        except (StopIteration, Declined, Cut, AthenaError):
            pass
        budget.left -= _RUN_COST + scanner.at
        calls = [call for call in writer.heard() if call.name in names]
        return _Run(calls, writer.is_open and writer.name in names)

    def _book_of(self, names: tuple[str, ...]) -> ToolBook:
        """The declared tools, whose schemas type the values; where none of the names is declared, every name is admitted."""
        return self._book if any(map(self._book.declared, names)) else _ANY_TOOL


class _Run(NamedTuple):
    """What one reader found in a text: its calls, and how it ended."""

    calls: list[QuotedCall]
    is_cut: bool
    """It was inside a call when the text ended."""


class _Listener(CallWriter):
    """Takes every call, and knows of each whether the text ended with it."""

    def __init__(self, book: ToolBook, scanner: Scanner, policies: Policies) -> None:
        self._events = EventBuffer(0, hold=False)
        self._ends: list[bool] = []
        super().__init__(scanner=scanner, output=self._events, book=book, policies=policies, limits=DEFAULT_LIMITS, seed="")

    def close(self) -> None:
        before = self.shown
        ended = self._scanner.ended()
        super().close()
        if self.shown > before:
            self._ends.append(ended)

    def heard(self) -> list[QuotedCall]:
        """The calls that were complete."""
        whole = [event for event in self._events.drain() if isinstance(event, ToolCallComplete)]
        return [QuotedCall(call.name, call.arguments, ended) for call, ended in zip(whole, self._ends, strict=True)]


# -- the text, and the text behind its escapes ---------------------------------------------------------------------------------


def _readings(before: str, behind: str) -> Iterator[tuple[str, str]]:
    """The two texts as they stand, and with one, two and three layers of escapes undone, each reading once."""
    fresh = [(without_invisible(before), without_invisible(behind))]
    seen = set(fresh)
    for layer in range(_LAYERS + 1):
        yield from fresh
        if layer == _LAYERS:
            return
        deeper: list[tuple[str, str]] = []
        for head, tail in fresh:
            for undo in _UNDO:
                reading = undo(head), undo(tail)
                if reading not in seen:
                    seen.add(reading)
                    deeper.append(reading)
        fresh = deeper


_UNDO: tuple[Callable[[str], str], ...] = (unescaped, without_entities)


def _candidates(head: str, tail: str, names: tuple[str, ...], formats: tuple[Format, ...]) -> list[MarkedPlace]:
    """Whom to ask, and where: the markers before the name, the nearest first, then readers that need none."""
    text, at = head + tail, len(head)
    late = is_late(head)
    found: list[MarkedPlace] = []
    for marker, readers, nearest in _markers(names, formats):
        place = text.rfind(marker, 0, at + len(marker))
        left = _ALL_BRACKETS if late and nearest == _NEAREST_BRACKETS else nearest
        while place >= 0 and left:
            behind = place + len(marker)
            found += [(place, marker, read) for read, never in readers if never is None or never.match(text, behind) is None]
            left -= 1
            place = text.rfind(marker, 0, behind - 1)
    found.sort(key=lambda candidate: -candidate[0])
    if _STARTS_CALL.match(tail) is not None:
        found += [(place, "", read) for place in _beginnings(head) for read in _starters(formats)]
    return found


def _beginnings(head: str) -> Iterator[int]:
    """Where a call without a marker would begin: at the name with what is glued to it, at its label, or at its line."""
    label = _LABEL.search(head, max(0, len(head) - _LABEL_CHARS))
    if label is not None:
        yield label.start()
    found = _TOKEN.search(head)
    token = found.start() if found is not None else len(head)
    yield token
    line = head.rfind("\n") + 1
    if line != token:
        yield line


# -- every marker there is -----------------------------------------------------------------------------------------------------

_LOOSE = CallKeys(
    name=("name", "tool_name", "function", "tool", "recipient_name", "action", "function_name"),
    lists=("tool_calls", "tool_uses", "calls"),
    needs_arguments=True,
)
"""Any object that has a name and arguments."""
_BARE = CallKeys(others=("type", "index"), name_is_key=True)
"""A name alone counts where nothing else stands in the object."""


def _json_reader(fields: CallKeys) -> Reader:
    def read(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
        scan.put_back_taken(len(opener))
        if not (yield from read_named_calls(scan, calls, (), fields)):
            raise Declined

    return read


_JSON_READERS = (_json_reader(_LOOSE), _json_reader(_BARE))


@lru_cache(maxsize=256)
def _markers(names: tuple[str, ...], formats: tuple[Format, ...]) -> tuple[Marker, ...]:
    table: dict[str, dict[tuple[Reader, str], None]] = {}
    for known in (*formats, *all_formats()):
        own = known.tool_openers(names) if known.tool_openers is not None else ()
        for opener in (*known.openers, *own):
            if opener.marker:
                table.setdefault(opener.marker, {})[(opener.read, opener.never)] = None
    for reader in _JSON_READERS:
        table.setdefault("{", {})[(reader, "")] = None
    return tuple(
        (
            marker,
            tuple((read, re.compile(never) if never else None) for read, never in readers),
            _NEAREST if len(marker) > 1 else _NEAREST_BRACKETS,
        )
        for marker, readers in table.items()
    )


@lru_cache(maxsize=64)
def _starters(formats: tuple[Format, ...]) -> tuple[Reader, ...]:
    return tuple(
        dict.fromkeys(opener.read for known in (*formats, *all_formats()) for opener in known.openers if not opener.marker)
    )
