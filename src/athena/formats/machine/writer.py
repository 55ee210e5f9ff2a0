"""From what readers find to call events: names, ids, policies, limits, and the last check before a call counts as complete.

Readers say `open`, `write`, `close`; everything a client may rely on is decided here once for all formats. A call is complete
only if its arguments are one JSON object; a call the text ended in is never completed, whatever could be guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

import msgspec

from athena.calls.ids import synthesized_id
from athena.errors import LimitExceeded
from athena.formats.bodies.json_text import quoted
from athena.formats.machine.policies import Counts, Malformed, Policies
from athena.formats.machine.repair import coerced, may_be_wrapped, unwrapped
from athena.formats.machine.scanner import LOOK_AHEAD, Declined, Scanner, ValueSink
from athena.formats.machine.value_types import ToolBook, ValueType
from athena.model.events import (
    Error,
    Event,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
)  # fmt: skip
from athena.model.limits import Limits
from athena.wire.json_span import is_json_object

NewId = Callable[[str, int], str]
MOST_NOTES = 64
"""Quotations that are noted one by one; all of them are counted."""
_HEAD_KEPT = 4096
"""Characters of settled markup before a call that are kept in case the call is a quotation."""


class Guard(Protocol):
    """Knows what the request holds (`formats.machine.echo`)."""

    def suspects(self, name: str, markup: str) -> bool:
        """May a call that begins with this markup be a quotation from the request?"""
        ...

    def quotes(self, name: str, arguments: str, markup: str, *, open_ended: bool) -> bool:
        """Is this call, of which `markup` is all that was written, a quotation?"""
        ...


class _Behind(Enum):
    """What stands before the text that readers take now, since the markup began."""

    OPENING = auto()
    """No call yet: what is settled belongs to the first one."""
    CALL = auto()
    """A call that was shown, or failed: what is settled belongs to it, and is gone."""
    QUOTATION = auto()
    """A call that is text: what is settled belongs to it, and is text too."""


def quoted_call(name: str, choice: int = 0) -> Error:
    """The note, or the error, that says that a call is a quotation."""
    return Error(
        f"a call of {name[:80]} in the model's text is quoted from the request, where another author wrote it",
        kind="content_policy",
        code="quoted_call",
        fatal=False,
        choice=choice,
        param=name[:80],
    )


class EventBuffer:
    """The events of one feed, adjacent text joined."""

    __slots__ = ("_hold", "_pieces", "_thinking", "_waiting", "choice", "events")

    def __init__(self, choice: int, *, hold: bool) -> None:
        self.choice = choice
        self.events: list[Event] = []
        self._pieces: list[str] = []
        self._thinking = False
        self._hold = hold
        self._waiting: list[str] = []

    def say(self, piece: str, thinking: bool) -> None:
        if self._pieces and thinking is not self._thinking:
            self.flush()
        self._thinking = thinking
        self._pieces.append(piece)

    def flush(self) -> None:
        """Make an event of the text so far."""
        if not self._pieces:
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        if self._thinking:
            self.events.append(ThinkingDelta(text, self.choice))
        elif self._hold:
            self._waiting.append(text)
        else:
            self.events.append(TextDelta(text, self.choice))

    def event(self, event: Event) -> None:
        """Add an event behind the text before it."""
        if self._pieces:
            self.flush()
        if self._hold:
            self.release()
        self.events.append(event)

    def release(self) -> None:
        """Show the text that was held back."""
        if self._waiting:
            self.events.append(TextDelta("".join(self._waiting), self.choice))
            self._waiting.clear()
        self._hold = False

    def drain(self) -> list[Event]:
        """What is ready; the list is the caller's."""
        if self._pieces:
            self.flush()
        events = self.events
        self.events = []
        return events


Seed = str | Callable[[], str]
"""What makes the ids of calls without one differ between answers; a function where it costs something to know."""


class CallWriter:
    """The calls of one parser."""

    def __init__(
        self,
        *,
        scanner: Scanner,
        output: EventBuffer,
        book: ToolBook,
        policies: Policies,
        limits: Limits,
        seed: Seed,
        guard: Guard | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """With a `guard`, calls that are quotations are said as the text they are, by `say`."""
        self.book = book
        self.policies = policies
        self.limits = limits
        self.counts = Counts()
        self.notes: list[Error] = []
        """What happened without being an event: unknown tools that were passed on."""
        self.reserved = True
        self.new_id: NewId = synthesized_id
        self.hold_calls = False
        """Show calls only when they are whole, whatever the policy says."""
        self.in_reasoning = False
        """All text of this parser is reasoning."""
        self.broken = (0, False)
        """Where JSON could not be read on: how many of its brackets were open, and whether that was in a string."""
        self.commits = 0
        """Rises whenever something is shown or dropped for good: the text before it cannot go back."""
        self._scanner = scanner
        self._output = output
        self._seed = seed
        self._guard = guard if policies.echo != "allow" and say is not None else None
        self._say = say
        self._behind = _Behind.OPENING
        self._head: list[str] = []
        """Markup before the call that was settled; kept only with a guard."""
        self._head_size = 0
        self._opening = ""
        """The markup of the last call when it was opened."""
        self._most = limits.argument_chars
        self._ids: set[str] = set()
        self._number = 0
        self._section = 0
        self._repairs_before = 0
        self._reset()

    def _reset(self) -> None:
        self.is_open = False
        self.name = ""
        self._id = ""
        self._started = False
        self._muted = False
        self._repaired = False
        self._pieces: list[str] = []
        self._size = 0
        self._waiting = 0
        self._shows = False
        """Arguments are shown as they arrive; else they wait for the call's end, or for what the probe finds."""
        self._probing = False
        self._suspect = False
        """The call may be a quotation: its arguments wait."""
        self._unknown: Error | None = None
        """The note about an undeclared tool, while the call may be a quotation."""

    # -- for readers ---------------------------------------------------------------------------------------------------------

    @property
    def lenient(self) -> bool:
        """May syntax be put right?"""
        return self.policies.repair != "off"

    def value_type(self, parameter: str) -> ValueType:
        """What the schema says about a parameter of the open call."""
        return self.book.value_type(self.name, parameter)

    def admits(self, name: str) -> bool:
        """Would `open` take this name?"""
        name = self.book.resolve(name)
        return self.book.admits(name) or (self.reserved and self.policies.unknown_tool != "text")

    def open(self, name: str, call_id: str = "", *, whole: bool = False) -> None:
        """A call begins. Declined when its name makes it text. `whole`: it is shown at its end, if it is a call then."""
        name = self.book.resolve(name)
        if not name or not self.admits(name):
            raise Declined
        self._begin(name, call_id)
        self._suspect = self._is_suspect(name)
        if not self.book.admits(name):
            self._unknown = Error(
                f"the model called {name}, which was not declared", code="unknown_tool", fatal=False, param=name
            )
        if not self._suspect and not self._is_refused() and not whole:
            self._show_as_it_comes()

    def open_unnamed(self, call_id: str) -> None:
        """A call whose name can only be told from its arguments (Kimi's bare counters and foreign ids)."""
        self._begin("", call_id)
        self._suspect = self._guard is not None

    def write(self, piece: str) -> None:
        """The next piece of arguments: always the continuation of valid JSON."""
        if not piece or self._muted:
            return
        self._size += len(piece)
        if self._size > self._most:
            raise LimitExceeded(
                f"arguments of one call are longer than {self.limits.argument_chars} characters", code="arguments_too_large"
            )
        self._pieces.append(piece)
        if self._shows:
            # No text stands before it: the call has begun.
            self._output.events.append(ToolCallDelta(self._number, piece, self._output.choice))
        elif self._probing:
            self._probe()

    def write_text(self, piece: str) -> None:
        """The next piece of an open string, as the model means it: written with JSON's escapes."""
        self.write(quoted(piece)[1:-1])

    def keeper(self, pieces: list[str]) -> ValueSink:
        """Collects the pieces of a value that waits for its end."""

        def keep(piece: str) -> None:
            pieces.append(piece)
            self._waiting += len(piece)
            if self._waiting > self._most:
                self.hold(0)

        return keep

    def hold(self, size: int) -> None:
        """A reader keeps `size` more characters of a value until its end."""
        self._waiting += size
        if self._waiting > self._most:
            raise LimitExceeded(
                f"arguments of one call are longer than {self.limits.argument_chars} characters", code="arguments_too_large"
            )

    def say(self, text: str, *, thinking: bool) -> None:
        """Words of the model inside the markup of a format whose messages have channels (Harmony)."""
        if text:
            self._scanner.forget()
            self._drop_head()
            self.commits += 1
            self._output.say(text, thinking or self.in_reasoning)

    def repaired(self, count: int = 1) -> None:
        """Something of the open call had to be put right."""
        if count:
            self.counts.repairs += count
            self._repaired = True

    def repaired_later(self, count: int) -> None:
        """Something was put right in a call that is not open yet, or of which only part was read."""
        self._repairs_before += count

    def close(self) -> None:
        """The arguments ended well. Declined when they are unusable, nothing was shown and the policy says text."""
        if not self.is_open:
            return
        if self._muted:
            self._done()
            return
        arguments = "".join(self._pieces)
        if arguments.strip() in ("", "null"):
            arguments = "{}"
        if not is_json_object(arguments):
            self.fail(f"the arguments of {self.name or 'a call'} are not a JSON object")
            return
        if not self.name and not self._infer(arguments):
            return
        shown = "".join(self._pieces) if self._shows else ""
        if not shown:
            arguments = self._mended(arguments)
        if self._suspect and self._is_quotation(arguments):
            return
        if self._is_refused():
            self._done()
            return
        self._start()
        if not shown:
            self._output.event(ToolCallDelta(self._number, arguments, self._output.choice))
        self._output.event(
            ToolCallComplete(self._number, self._id, self.name, arguments, self._output.choice, repaired=self._repaired)
        )
        self._number += 1
        self.counts.calls += 1
        self._done()

    def fail(self, reason: str) -> None:
        """The open call cannot be used. Declined when nothing of it was shown and the policy says text."""
        if self._muted:
            self._done()
            return
        self.counts.malformed += 1
        self._broken(reason, "malformed_call", self.malformed_policy)

    def cut(self) -> None:
        """The text ended inside the open call: it is never completed."""
        if self._muted:
            self._done()
            return
        self.counts.truncated += 1
        policy: Malformed = "error" if self.malformed_policy == "text" else self.malformed_policy
        self._broken(f"the answer ended inside a call of {self.name or 'a tool'}", "truncated_call", policy)

    def cut_head(self, raw: str) -> None:
        """The text ended inside markup that had not become a call yet."""
        self.counts.truncated += 1
        if self.malformed_policy != "drop":
            self._output.event(Error("the answer ended inside a tool call", code="truncated_call", fatal=False, raw=raw[:2000]))

    def bad_head(self, reason: str, raw: str = "") -> None:
        """Markup of a call that names no tool. Declined when the policy says text."""
        self.counts.malformed += 1
        if self.malformed_policy == "text":
            raise Declined
        self.commits += 1
        if self.malformed_policy == "error":
            self._output.event(Error(reason, code="malformed_call", fatal=False, raw=raw[:2000]))
        self._after(_Behind.CALL)
        self._scanner.record()

    def abandon(self) -> None:
        """The reader declined: a call it had opened and not shown never was."""
        if self.is_open and not self._started:
            self._reset()

    def noise(self, text: str) -> None:
        """Text inside a section that is neither a call nor its arguments."""
        self._section += len(text)
        if self.limits.section_chars and self._section > self.limits.section_chars:
            raise LimitExceeded("a tool call section holds too much that is no call", code="section_too_large")

    def settle(self) -> None:
        """What was taken so far belongs to the markup for good."""
        self.commits += 1
        if self._guard is not None:
            self._keep_settled()
        self._scanner.record()

    def begin_markup(self) -> None:
        """A marker stands here, and a reader is asked for what follows."""
        if self._guard is not None:
            self._after(_Behind.OPENING)

    def end_markup(self) -> None:
        """The reader has ended. Where its last call is text, so is what it took behind it."""
        if self.ends_in_quotation:
            self._say_settled()

    @property
    def ends_in_quotation(self) -> bool:
        """Is the last call of this markup a quotation, and with it what follows?"""
        return self._behind is _Behind.QUOTATION

    @property
    def shown(self) -> int:
        """How many calls were begun and ended, well or not."""
        return self._number

    @property
    def malformed_policy(self) -> Malformed:
        return self.policies.malformed or ("error" if self.reserved else "text")

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _begin(self, name: str, call_id: str) -> None:
        if self._number >= self.limits.calls:
            raise LimitExceeded(f"more than {self.limits.calls} tool calls in one answer", code="too_many_calls")
        self._reset()
        self.is_open = True
        self.name = name
        self._id = call_id
        self.repaired(self._repairs_before)
        self._repairs_before = 0

    def _is_refused(self) -> bool:
        """Deal with an undeclared tool. True: nothing of its call is shown."""
        note, self._unknown = self._unknown, None
        if note is None:
            return False
        self.counts.unknown_tools += 1
        if self.policies.unknown_tool != "error":
            self.notes.append(note)
            return False
        self._muted = True
        self.commits += 1
        self._scanner.forget()
        self._output.event(note)
        return True

    def _show_as_it_comes(self) -> None:
        """Show the open call, unless calls are shown whole."""
        if self.hold_calls or self.policies.arguments == "hold" or self.policies.repair == "schema":
            return
        self._probing = self.lenient and bool(self.book.parameters(self.name))
        self._shows = not self._probing
        self._start()

    # -- quotations ----------------------------------------------------------------------------------------------------------

    def _is_suspect(self, name: str) -> bool:
        """Must the call wait until it is clear whether the model quotes it?"""
        guard = self._guard
        if guard is None:
            return False
        # Where nothing was taken since the last call, both come out of the same markup.
        self._opening = self._markup or self._opening
        ahead = self._scanner.text[self._scanner.at : self._scanner.at + LOOK_AHEAD]
        return guard.suspects(name, self._opening + ahead)

    @property
    def _markup(self) -> str:
        """All that was written of the open call so far, from its first marker on."""
        return "".join((*self._head, self._scanner.recorded))

    def _is_quotation(self, arguments: str) -> bool:
        """If the model quotes this call, make it what the policy wants."""
        guard, markup = self._guard, self._markup
        if guard is None or not guard.quotes(self.name, arguments, markup or self._opening, open_ended=self._scanner.ended()):
            return False
        self.counts.echoes += 1
        self.commits += 1
        note = quoted_call(self.name, self._output.choice)
        if self.policies.echo == "error":
            self._output.event(note)
            self._done()
            return True
        if self.counts.echoes <= MOST_NOTES:
            self.notes.append(note)
        self._after(_Behind.QUOTATION)
        if self._say is not None:
            self._say(markup)
        self._reset()
        self._scanner.record()
        return True

    def _release_suspect(self) -> None:
        """The call failed, so it is no quotation of a whole one: what waited is shown as if it had not."""
        self._suspect = False
        self._show_as_it_comes()
        if self._probing and self._pieces:
            self._probe()
        elif self._shows and self._pieces:
            self._output.event(ToolCallDelta(self._number, "".join(self._pieces), self._output.choice))

    def _after(self, behind: _Behind) -> None:
        self._behind = behind
        self._drop_head()

    def _drop_head(self) -> None:
        if self._head:
            self._head = []
            self._head_size = 0

    def _keep_settled(self) -> None:
        """Markup is settled: it belongs to the call before it, or to the one that follows."""
        if self._behind is _Behind.QUOTATION:
            self._say_settled()
        elif self._behind is _Behind.OPENING and not self.is_open and self._head_size <= _HEAD_KEPT:
            settled = self._scanner.recorded
            self._head.append(settled)
            self._head_size += len(settled)

    def _say_settled(self) -> None:
        settled = self._scanner.recorded
        if settled and self._say is not None:
            self._say(settled)

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        if not self._id or self._id in self._ids:
            self._id = self.new_id(self._seed if isinstance(self._seed, str) else self._seed(), self._number)
        self._ids.add(self._id)
        self.commits += 1
        self._scanner.forget()
        self._output.event(ToolCallStart(self._number, self._id, self.name, self._output.choice))

    def _probe(self) -> None:
        """Hold the beginning until it is clear that it is no wrapper key."""
        beginning = "".join(self._pieces)
        wrapped = may_be_wrapped(beginning, self.book, self.name)
        if wrapped is None:
            return
        self._probing = False
        if not wrapped:
            self._shows = True
            self._output.event(ToolCallDelta(self._number, beginning, self._output.choice))

    def _mended(self, arguments: str) -> str:
        if self.lenient:
            inner = unwrapped(arguments, self.book, self.name)
            if inner is not None:
                self.repaired()
                arguments = inner
        if self.policies.repair == "schema":
            better = coerced(arguments, self.book, self.name)
            if better is not None:
                self.repaired()
                arguments = better
        return arguments

    def _infer(self, arguments: str) -> bool:
        name = self.book.infer(_keys(arguments))
        if name is None:
            self.fail("a call that names no tool, and whose arguments fit none or several")
            return False
        self.name = name
        self.repaired()
        return True

    def _broken(self, reason: str, code: str, policy: Malformed) -> None:
        if self._suspect and self.name:
            if self._is_refused():
                self._done()
                return
            self._release_suspect()
        started, number = self._started, self._number
        raw = "".join(self._pieces)[:2000]
        if not started and policy == "text":
            self._reset()
            raise Declined
        self.commits += 1
        if started:
            self._number += 1
        if started or policy == "error":
            self._output.event(
                Error(reason, code=code, fatal=False, call=number if started else None, choice=self._output.choice, raw=raw)
            )
        self._done()

    def _done(self) -> None:
        self._reset()
        self._after(_Behind.CALL)
        self._scanner.record()


def _keys(arguments: str) -> list[str]:
    try:
        return list(msgspec.json.decode(arguments, type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return []
