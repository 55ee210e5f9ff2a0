"""The place of text formats in an exchange: between an upstream's decoder and everything after it.

Text and reasoning of each choice go through a parser of their own; whatever else the upstream says passes in order. Calls
found in text take their numbers after native ones, a call that came both ways is shown once, and the
finish says tool use when a call was found. A call the text was cut in ends the answer with an error, unless the upstream
itself said that it ran out of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter

import msgspec

from athena.calls.ids import synthesized_id
from athena.formats import get_format
from athena.formats.declared.build import declared_recognizer
from athena.formats.declared.description import FormatDescription
from athena.formats.machine.engine import TextParser
from athena.formats.machine.policies import Counts, Policies
from athena.formats.machine.recognizer import Recognizer, recognizer
from athena.formats.machine.speech import Channel
from athena.formats.machine.value_types import ToolBook
from athena.formats.machine.writer import Guard
from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    KeepAlive,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
)  # fmt: skip
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.request import Tool

_has_found = attrgetter("has_found")
_CUT_BY_UPSTREAM = frozenset({"length", "context"})
_BECOMES_TOOL = frozenset({"stop", "stop_sequence", "malformed"})
_ENDED_WELL = frozenset({"stop", "stop_sequence", "tool"})
_PIECE = 64 * 1024
"""Characters that are searched in one go: a search holds the interpreter, and with it everybody else's streams."""


_READY: set[tuple[str, bool, tuple[tuple[str, str], ...], FormatDescription | None]] = set()
_READY_KEPT = 1024
"""Formats, as options name them, whose searches are compiled in this process."""


class FormatOptions(msgspec.Struct, frozen=True):
    """How to look for calls in the text of one route's answers."""

    format: str = "auto"
    """A format's id or alias, or `auto`."""
    others: bool = True
    """Besides the named format look for all with unmistakable markers: routers answer with other models than asked."""
    policies: Policies = Policies()
    starts_in_thinking: bool = False
    """The prompt ends inside an opened reasoning block. Text behind reasoning that came apart does not begin there."""
    tokens: Mapping[str, str] = {}
    """Other markers for the named format, by the names of its `tokens`."""
    declared: FormatDescription | None = None
    """A format from a file or a chat template, in the place of the named one."""

    @property
    def begins_in_thinking(self) -> bool:
        """Does an answer begin inside reasoning, by these options or by the declared format?"""
        return self.starts_in_thinking or (self.declared is not None and self.declared.starts_in_thinking)

    @property
    def is_ready(self) -> bool:
        """Are the searches for it compiled? That takes some tenths of a second, once."""
        return self._key in _READY

    def make_ready(self, tools: tuple[str, ...] = ()) -> None:
        """Compile the searches now, for these names of tools. Not for an event loop."""
        self.recognizer().for_tools(tools).compile()
        if len(_READY) < _READY_KEPT:
            _READY.add(self._key)

    @property
    def _key(self) -> tuple[str, bool, tuple[tuple[str, str], ...], FormatDescription | None]:
        return self.format, self.others, tuple(sorted(self.tokens.items())), self.declared

    def recognizer(self) -> Recognizer:
        """What to look for."""
        if self.declared is not None:
            return declared_recognizer(self.declared, self.others)
        if not self.tokens or get_format(self.format).with_tokens is None:
            return recognizer(self.format, others=self.others)
        return _recognizer_with_tokens(self.format, self.others, tuple(sorted(self.tokens.items())))


@lru_cache(maxsize=64)
def _recognizer_with_tokens(format_id: str, others: bool, tokens: tuple[tuple[str, str], ...]) -> Recognizer:
    """Built once per configuration, not per answer."""
    with_tokens = get_format(format_id).with_tokens
    assert with_tokens is not None
    return Recognizer(with_tokens(dict(tokens)), recognizer("auto").others if others else ())


def may_hold_call(formats: Recognizer, tools: tuple[str, ...], text: str) -> bool:
    """Is there any marker but code's backticks in a whole text, or a beginning that a format without markers would look at?"""
    known = formats.for_tools(tools)
    if len(text) > _PIECE or not text.strip():
        return True
    for one in known.starters:
        if not one.is_excluded(text, 0):
            return True
    table, at = known.text, 0
    while (found := table.final(text, at)) is not None:
        if found.lastindex is None or table.meanings.get(found.group()) is not None:
            return True
        at = found.end()
    return False


class _ParsedChoice(msgspec.Struct, eq=False):
    """One choice of the answer."""

    parsers: dict[Channel, TextParser] = {}
    found: int = 0
    """Calls found in text."""
    native_open: set[int] = set()
    native: list[ToolCallComplete] = []
    """Native calls that ended and have no double yet."""
    parsed: list[ToolCallComplete] = []
    """Calls found in text that have no native double yet."""
    held_native: dict[int, list[Event]] = {}
    queue: list[tuple[Channel, Event]] = []
    """What parsers said while it is open whether a call is a double."""
    shown: dict[tuple[Channel, int], int] = {}
    signed: int = 0
    """Calls found in reasoning when it was last signed."""
    has_native: bool = False
    """Did the upstream send a call in its own form?"""

    @property
    def has_echo(self) -> bool:
        """Was a call of the text quoted from the request?"""
        return any(not parser.idle and parser.counts.echoes for parser in self.parsers.values())


class FormatStage:
    """Feed the events of one answer, get them with the calls of its text."""

    def __init__(
        self,
        options: FormatOptions | str = "auto",
        *,
        tools: Sequence[Tool] | None,
        limits: Limits = DEFAULT_LIMITS,
        seed: str = "",
        guard: Guard | None = None,
    ) -> None:
        """`tools` None accepts every name; an empty list means that nothing is parsed at all.

        `guard`: knows which calls stand in the request and are quotations.
        """
        if isinstance(options, str):
            options = FormatOptions(options)
        self._options = options
        self._recognizer = options.recognizer()
        self._book = ToolBook(tools)
        self._limits = limits
        self._seed = seed
        self._guard = guard
        self._choices: dict[int, _ParsedChoice] = {}
        self._parsers: list[TextParser] = []
        """Those of all choices."""
        self._numbers: dict[int, int] = {}
        self._ids: set[str] = set()
        self._renamed: dict[int, str] = {}
        self._off = not self._book.open and not len(self._book)

    _next = 0
    """The number of the next call."""
    _ended = False

    @property
    def counts(self) -> Counts:
        """What was found so far, over all choices and channels."""
        total = Counts()
        for parser in self._used():
            for name in Counts.__struct_fields__:
                setattr(total, name, getattr(total, name) + getattr(parser.counts, name))
        return total

    def _used(self) -> list[TextParser]:
        """The parsers that met anything but plain text."""
        return [parser for parser in self._parsers if not parser.idle]

    @property
    def has_found(self) -> bool:
        """Is there a call, a quotation or a note?"""
        return any(map(_has_found, self._parsers))

    @property
    def calls(self) -> int:
        """How many calls were found so far."""
        return sum(parser.counts.calls for parser in self._used())

    @property
    def echoes(self) -> int:
        """How many of them were quotations."""
        return sum(parser.counts.echoes for parser in self._used())

    @property
    def held(self) -> int:
        """Characters whose meaning is undecided, over all choices and channels."""
        return sum(parser.held for parser in self._used())

    @property
    def held_texts(self) -> tuple[str, ...]:
        """The characters that are held, choice by choice and channel by channel."""
        return tuple(parser.held_text for parser in self._used() if parser.held)

    @property
    def notes(self) -> list[Error]:
        """What happened without being an event: unknown tools passed on, quotations left as text."""
        return [note for parser in self._used() for note in parser.notes]

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats in which calls were found."""
        return tuple(sorted({parser.format for parser in self._used() if parser.counts.calls}))

    @property
    def origins(self) -> dict[int, tuple[Channel, str]]:
        """The calls that were found in text, by number: in which channel, and in which format."""
        return {
            number: (channel, choice.parsers[channel].format_of(call))
            for choice in self._choices.values()
            for (channel, call), number in choice.shown.items()
            if number >= 0
        }

    def feed(self, events: Sequence[Event]) -> list[Event]:
        out: list[Event] = []
        if self._off:
            out.extend(events)
            return out
        for event in events:
            if self._ended:
                break
            kind = type(event)
            if kind is TextDelta or kind is ThinkingDelta:
                self._text(event, out)  # type: ignore[arg-type]  # told apart by type() for speed
            else:
                self._other(event, out)
        return out

    def finds_nothing(self, events: Sequence[Event]) -> bool:
        """Would these events, which are a whole answer, pass as they are, because no marker stands in their text?

        Then no parser is made for them. An answer of several pieces of text in one choice is not looked at: a marker may be
        cut between two. Native calls pass if they are numbered in their order and no two have the same id.
        """
        options = self._options
        if self._choices or self._ended or options.policies.text != "pass" or options.begins_in_thinking:
            return False
        told: set[int] = set()
        ids: set[str] = set()
        for event in events:
            kind = type(event)
            if kind is ToolCallComplete or kind is ToolCallDelta:
                continue
            if kind is ToolCallStart and isinstance(event, ToolCallStart):
                if event.call != len(ids) or event.id in ids:
                    return False
                ids.add(event.id)
            elif kind is TextDelta and isinstance(event, TextDelta):
                if event.refusal or event.choice in told or event.signature is not None or self._may_hold_call(event.text):
                    return False
                told.add(event.choice)
            elif kind is not Start and kind is not Done:
                return False
        return True

    def _may_hold_call(self, text: str) -> bool:
        return may_hold_call(self._recognizer, self._book.names, text)

    # -- text ----------------------------------------------------------------------------------------------------------------

    def is_plain(self, event: TextDelta) -> bool:
        """Would this text come out as it is, by itself? If so it counts as fed."""
        choice = self._choices.get(event.choice)
        if choice is None or choice.queue or event.refusal or self._ended:
            return False
        reasoning = choice.parsers.get("reasoning")
        if reasoning is not None and reasoning.holds_text:
            return False
        parser = choice.parsers.get("text")
        return parser is not None and len(event.text) <= _PIECE and parser.is_plain(event.text)

    def plain_watch(self, event: TextDelta | ThinkingDelta) -> TextParser | None:
        """The parser that tells of further pieces like this event whether they come out as they are, until the next `feed`;
        it wants to know of those that `passed`. None: only `feed` can tell."""
        choice = self._choices.get(event.choice)
        if choice is None or choice.queue or self._ended:
            return None
        channel: Channel = "text" if type(event) is TextDelta else "reasoning"
        for other, parser in choice.parsers.items():
            if other != channel and parser.holds_text:
                return None
        return choice.parsers.get(channel)

    def _text(self, event: TextDelta | ThinkingDelta, out: list[Event]) -> None:
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = _ParsedChoice()
        channel: Channel = "text" if type(event) is TextDelta else "reasoning"
        parser = choice.parsers.get(channel)
        may_pass = True
        if parser is None:
            parser = self._new_parser(choice, event.choice, channel)
            # The first piece is shown for itself: what else its event holds is told behind it.
            may_pass = event.signature is None and (isinstance(event, TextDelta) or event.item_id is None)
        if len(choice.parsers) > 1:
            self._release(choice, out, but=channel)
        aside = event.refusal if isinstance(event, TextDelta) else event.summary
        text = event.text
        if aside or (may_pass and not choice.queue and len(text) <= _PIECE and parser.is_plain(text)):
            if event.signature is not None and self._has_changed(choice, channel):
                event = msgspec.structs.replace(event, signature=None)
                if not text:
                    return
            out.append(event)
            return
        for at in range(0, len(text) or 1, _PIECE):
            self._show(choice, channel, parser.feed(text[at : at + _PIECE]), out)
        if event.signature is not None:
            self._show(choice, channel, parser.release(), out)
            if not self._has_changed(choice, channel):
                out.append(msgspec.structs.replace(event, text=""))

    def _has_changed(self, choice: _ParsedChoice, channel: Channel) -> bool:
        """Were calls taken out of the reasoning that is signed now? Its maker would refuse the rest with that signature."""
        if channel != "reasoning":
            return False
        parser = choice.parsers[channel]
        before, choice.signed = choice.signed, 0 if parser.idle else parser.counts.calls
        return choice.signed != before

    def _new_parser(self, choice: _ParsedChoice, index: int, channel: Channel) -> TextParser:
        parser = TextParser(
            self._recognizer,
            tools=self._book,
            channel=channel,
            starts_in_thinking=self._options.begins_in_thinking and "reasoning" not in choice.parsers,
            policies=self._options.policies,
            limits=self._limits,
            seed=f"{self._seed}/{index}/{channel}",
            choice=index,
            guard=self._guard,
        )
        if choice.native or choice.native_open:
            parser.hold_calls()
        choice.parsers[channel] = parser
        self._parsers.append(parser)
        return parser

    def _release(self, choice: _ParsedChoice, out: list[Event], *, but: Channel | None = None) -> None:
        """Another kind of content begins: a possible beginning of a marker was text."""
        for channel, parser in choice.parsers.items():
            if channel != but and parser.holds_text:
                # Reasoning is over where text follows it; text may go on behind reasoning or a call.
                self._show(choice, channel, parser.release(is_over=but == "text"), out)

    def _show(self, choice: _ParsedChoice, channel: Channel, events: list[Event], out: list[Event]) -> None:
        """Pass on what a parser said."""
        for event in events:
            if self._ended:
                return
            if choice.queue or (choice.native_open and isinstance(event, ToolCallStart)):
                choice.queue.append((channel, event))
                continue
            if isinstance(event, ToolCallStart | ToolCallDelta | ToolCallComplete):
                self._call(choice, channel, event, events, out)
            elif isinstance(event, Error):
                self._problem(choice, channel, event, out)
            else:
                out.append(event)

    def _call(
        self,
        choice: _ParsedChoice,
        channel: Channel,
        event: ToolCallStart | ToolCallDelta | ToolCallComplete,
        events: Sequence[Event],
        out: list[Event],
    ) -> None:
        key = (channel, event.call)
        if isinstance(event, ToolCallStart):
            if choice.native and self._is_double(choice, event, events):
                choice.shown[key] = -1
                choice.parsers[channel].counts.doubles += 1
                return
            choice.shown[key] = self._next
            self._next += 1
        number = choice.shown.get(key, -1)
        if number < 0:
            return
        if isinstance(event, ToolCallComplete):
            choice.found += 1
            choice.parsed.append(event)
        self._write(event, number, out)

    def _write(self, event: ToolCallStart | ToolCallDelta | ToolCallComplete, number: int, out: list[Event]) -> None:
        """Write a call event under its number in this answer, its id unique."""
        if isinstance(event, ToolCallStart):
            if event.id in self._ids:
                self._renamed[number] = synthesized_id(self._seed, number)
            self._ids.add(self._renamed.get(number, event.id))
        if event.call != number:
            event = msgspec.structs.replace(event, call=number)
        if number in self._renamed and not isinstance(event, ToolCallDelta):
            event = msgspec.structs.replace(event, id=self._renamed[number])
        out.append(event)

    def _is_double(self, choice: _ParsedChoice, start: ToolCallStart, events: Sequence[Event]) -> bool:
        """Did the upstream send the same call natively? Parsers hold their calls then, so the whole call is in `events`."""
        for event in events:
            if isinstance(event, ToolCallComplete) and event.call == start.call:
                for native in choice.native:
                    if _same_call(native, event):
                        choice.native.remove(native)
                        return True
        return False

    def _problem(self, choice: _ParsedChoice, channel: Channel, event: Error, out: list[Event]) -> None:
        number = choice.shown.get((channel, event.call), None) if event.call is not None else None
        if number is not None and number != event.call:
            event = msgspec.structs.replace(event, call=number)
        if event.code == "truncated_call" and not event.fatal:
            # Only the upstream's finish can tell whether this is an error of the answer.
            out.append(event)
            return
        self._fail(event, out)

    def _fail(self, error: Error, out: list[Event]) -> None:
        out.append(msgspec.structs.replace(error, fatal=True))
        self._ended = True

    # -- everything else -----------------------------------------------------------------------------------------------------

    def _other(self, event: Event, out: list[Event]) -> None:
        if isinstance(event, Start | KeepAlive | Extra):
            out.append(event)
        elif isinstance(event, ToolCallStart | ToolCallDelta | ToolCallComplete):
            self._native(event, out)
        elif isinstance(event, Done):
            self._done(event, out)
        elif isinstance(event, Error):
            self._error(event, out)
        else:
            choice = self._choices.get(event.choice)
            if choice is not None:
                self._release(choice, out)
            out.append(event)

    def _native(self, event: ToolCallStart | ToolCallDelta | ToolCallComplete, out: list[Event]) -> None:
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = _ParsedChoice()
        if isinstance(event, ToolCallStart):
            choice.has_native = True
            self._release(choice, out)
            for parser in choice.parsers.values():
                parser.hold_calls()
            choice.native_open.add(event.call)
            if choice.parsed:
                choice.held_native[event.call] = []
        held = choice.held_native.get(event.call)
        if held is not None:
            held.append(event)
        else:
            self._pass_native(event, out)
        if isinstance(event, ToolCallComplete):
            choice.native_open.discard(event.call)
            self._end_native(choice, event, out)

    def _pass_native(self, event: ToolCallStart | ToolCallDelta | ToolCallComplete, out: list[Event]) -> None:
        if isinstance(event, ToolCallStart):
            self._numbers[event.call] = self._next
            self._next += 1
        self._write(event, self._numbers.get(event.call, event.call), out)

    def _end_native(self, choice: _ParsedChoice, event: ToolCallComplete, out: list[Event]) -> None:
        held = choice.held_native.pop(event.call, None)
        if held is not None:
            for parsed in choice.parsed:
                if _same_call(parsed, event):
                    choice.parsed.remove(parsed)
                    next(iter(choice.parsers.values())).counts.doubles += 1
                    break
            else:
                choice.native.append(event)
                for waiting in held:
                    if isinstance(waiting, ToolCallStart | ToolCallDelta | ToolCallComplete):
                        self._pass_native(waiting, out)
        else:
            choice.native.append(event)
        if not choice.native_open:
            self._drain(choice, out)

    def _drain(self, choice: _ParsedChoice, out: list[Event]) -> None:
        queue, choice.queue = choice.queue, []
        for channel in ("reasoning", "text"):
            events = [event for one, event in queue if one == channel]
            if events:
                self._show(choice, channel, events, out)

    def _done(self, event: Done, out: list[Event]) -> None:
        choice = self._choices.get(event.choice)
        if choice is None:
            out.append(event)
            return
        choice.native_open.clear()
        if choice.queue:
            self._drain(choice, out)
        start, kind = len(out), event.finish.kind
        for channel in ("reasoning", "text"):
            parser = choice.parsers.get(channel)
            if parser is not None:
                rest = parser.close(ended_well=kind in _ENDED_WELL, was_cut=kind not in _ENDED_WELL)
                if rest:
                    self._show(choice, channel, rest, out)
        if self._ended:
            return
        if len(out) > start and kind not in _CUT_BY_UPSTREAM:
            cut = next((one for one in out[start:] if isinstance(one, Error) and one.code == "truncated_call"), None)
            if cut is not None:
                out.remove(cut)
                self._fail(cut, out)
                return
        if choice.found and kind in _BECOMES_TOOL:
            event = msgspec.structs.replace(event, finish=msgspec.structs.replace(event.finish, kind="tool", raw=""))
        elif kind == "tool" and not choice.found and not choice.has_native and choice.has_echo:
            # What the upstream took for a call is text.
            event = msgspec.structs.replace(event, finish=msgspec.structs.replace(event.finish, kind="stop", raw=""))
        out.append(event)
        self._ended = event.last

    def _error(self, event: Error, out: list[Event]) -> None:
        number = self._numbers.get(event.call) if event.call is not None else None
        if number is not None and number != event.call:
            event = msgspec.structs.replace(event, call=number)
        if event.call is not None and event.choice in self._choices:
            choice = self._choices[event.choice]
            choice.native_open.discard(event.call)
            for waiting in choice.held_native.pop(event.call, ()):
                if isinstance(waiting, ToolCallStart | ToolCallDelta | ToolCallComplete):
                    self._pass_native(waiting, out)
        if event.fatal:
            for choice in self._choices.values():
                self._drain(choice, out)
                for channel, parser in choice.parsers.items():
                    # The upstream's own error explains whatever is cut here.
                    self._show(choice, channel, [one for one in parser.close(was_cut=True) if not isinstance(one, Error)], out)
            self._ended = True
        out.append(event)


def _same_call(first: ToolCallComplete, second: ToolCallComplete) -> bool:
    if first.name != second.name:
        return False
    if first.arguments == second.arguments:
        return True
    try:
        return bool(msgspec.json.decode(first.arguments) == msgspec.json.decode(second.arguments))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
