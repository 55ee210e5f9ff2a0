"""The place of prompted tools in an answer's path: where text formats stand for models that speak one.

The text of each choice goes through a reader; the policy decides what of it is shown, and when the answer is over. Everything
else the upstream says passes in order. Calls are shown whole, in order, with ids of ours. White space that only separates calls
is left out; all other text is shown exactly or, where the policy says so, not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from athena.calls.ids import synthesized_id
from athena.formats.machine.value_types import ToolBook
from athena.formats.machine.writer import MOST_NOTES, Guard, quoted_call
from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    Finish,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.prompted.options import PromptedOptions
from athena.prompted.policy import POLICIES, StreamPolicy
from athena.prompted.readers import CallGroup, FormatReader, FoundText, PromptedCall, PromptedItem, PromptedReader, Trouble
from athena.prompted.render import PromptPlan
from athena.prompted.scanner import JsonReader
from athena.prompted.validation import ArgumentCheck

_STOPPED = frozenset({"stop", "stop_sequence", "tool", "malformed"})
_CALL_MISSING = "a tool call was required and the reply holds none that can be used"
_CHARS_PER_TOKEN = 4


class Correction(msgspec.Struct, frozen=True):
    """Why the model is to be asked once more, what it had said, and what that cost."""

    reason: str
    answer: str
    usage: Usage | None = None


class _PromptedChoice:
    __slots__ = (
        "aside", "bytes", "calls", "ended", "held", "held_bytes", "hold_limit", "names", "raws", "reader", "rejected", "said",
        "shown", "size", "stopped", "trouble", "visible",
    )  # fmt: skip

    def __init__(self, reader: PromptedReader, hold_limit: int) -> None:
        self.reader = reader
        self.hold_limit = hold_limit
        """How many characters of text may wait for a call; -1: all of it."""
        self.held: list[str] = []
        self.held_bytes = 0
        self.visible = False
        """Since the beginning or the last call, was there text that is not white space?"""
        self.calls = 0
        self.names: list[str] = []
        self.bytes = 0
        self.size = 0
        self.raws: set[str] = set()
        self.said: list[str] | None = None
        """The whole answer, kept only where it may be needed for asking again."""
        self.stopped = False
        self.ended = False
        self.shown = False
        self.trouble = ""
        """Why something meant as a call was not taken."""
        self.rejected = ""
        """Why the answer is to be thrown away and asked for again."""
        self.aside: list[PromptedItem] = []
        """What came since then."""


class PromptedStage:
    """Feed the events of one answer, get them with the calls of its text. `now` is the shell's clock, in seconds."""

    def __init__(
        self,
        options: PromptedOptions,
        plan: PromptPlan,
        *,
        choices: int = 1,
        limits: Limits = DEFAULT_LIMITS,
        seed: str = "",
        spent: Usage | None = None,
        input_tokens: int = 0,
        guard: Guard | None = None,
    ) -> None:
        """`guard`: knows which calls stand in the request and are quotations."""
        self._options = options
        self._plan = plan
        self._policy: StreamPolicy = POLICIES[options.policy]
        self._max_calls = 1 if plan.single or self._policy.single else options.max_calls
        self._expected = max(1, choices)
        self._limits = limits
        self._seed = seed
        self._spent = spent
        self._input_tokens = input_tokens
        self._guard = guard if options.echo != "allow" else None
        self.echoes = 0
        """Calls that were quoted from the request, over all choices."""
        self._book = ToolBook(plan.tools)
        self._check = ArgumentCheck(self._book)
        self._said_unchecked = False
        self._counted: Usage | None = None
        """The upstream's own counts, when they came along with the end of the answer."""
        self._choices: dict[int, _PromptedChoice] = {}
        self._next = 0
        self._numbers: dict[int, int] = {}
        self._ended = False
        self.clock: Callable[[], float] | None = None
        """For `seconds` only: with it the parts of the work are timed."""
        self.seconds = {"json_parsing": 0.0, "call_extraction": 0.0}
        self.most_held = 0
        """The most characters of text that waited at once."""
        self._may_reask = options.reask and self._expected == 1
        self.deadline: float | None = None
        """When the collect window closes; the shell calls `tick` then."""
        self.notes: list[Error] = []
        """What happened without being an event."""
        self.correction: Correction | None = None
        """Set instead of ending: ask once more."""
        """The policy ended the answer before the upstream did."""

    # -- for the exchange ----------------------------------------------------------------------------------------------------

    @property
    def calls(self) -> int:
        """Calls found so far, over all choices."""
        return sum(choice.calls for choice in self._choices.values())

    @property
    def style(self) -> str:
        """What the model was taught to write."""
        return self._plan.style

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the calls found."""
        return tuple(name for choice in self._choices.values() for name in choice.names)

    @property
    def content_length(self) -> int:
        """Characters of text read."""
        return sum(choice.size for choice in self._choices.values())

    @property
    def candidates(self) -> int:
        """JSON values looked at."""
        return sum(getattr(choice.reader, "candidates", choice.calls) for choice in self._choices.values())

    def forbid_reask(self) -> None:
        """The client has seen something: the answer cannot be taken back."""
        self._may_reask = False

    def feed(self, events: Sequence[Event], now: float = 0.0) -> list[Event]:
        out: list[Event] = []
        if self.deadline is not None and now >= self.deadline:
            self._close_window(out)
        if events and isinstance(events[-1], Done):
            self._counted = events[-1].usage
        for event in events:
            if self._ended:
                break
            kind = type(event)
            if kind is TextDelta:
                self._text(event, out, now)  # type: ignore[arg-type]  # told apart by type() for speed
            elif kind is Done:
                self._done(event, out)  # type: ignore[arg-type]  # told apart by type() for speed
            elif kind is Error:
                self._error(event, out)  # type: ignore[arg-type]  # told apart by type() for speed
            else:
                self._other(event, out)
        return out

    def tick(self, now: float) -> list[Event]:
        """Time passed: is the collect window over?"""
        out: list[Event] = []
        if self.deadline is not None and now >= self.deadline and not self._ended:
            self._close_window(out)
        return out

    # -- text ----------------------------------------------------------------------------------------------------------------

    def _text(self, event: TextDelta, out: list[Event], now: float) -> None:
        choice = self._choice(event.choice)
        if choice.stopped:
            return
        if event.refusal:
            out.append(event)
            return
        choice.size += len(event.text)
        if choice.said is not None:
            choice.said.append(event.text)
        reader = choice.reader
        if (
            choice.visible
            and not choice.held
            and not choice.rejected
            and self._shows_text(choice)
            and reader.is_plain(event.text)
        ):
            out.append(event)
        else:
            self._read(event.choice, choice, event.text, out)
        if event.signature is not None and not choice.stopped:
            out.append(msgspec.structs.replace(event, text=""))
        self._set_window(choice, now)

    def _read(self, index: int, choice: _PromptedChoice, text: str, out: list[Event]) -> None:
        if self.clock is None:
            self._items(index, choice, choice.reader.feed(text), out)
            return
        began = self.clock()
        items = choice.reader.feed(text)
        read = self.clock()
        self._items(index, choice, items, out)
        self.seconds["json_parsing"] += read - began
        self.seconds["call_extraction"] += self.clock() - read

    def _choice(self, index: int) -> _PromptedChoice:
        choice = self._choices.get(index)
        if choice is None:
            options = self._options
            holds = self._policy.holds_text or (self._plan.required and not self._policy.mixed)
            choice = _PromptedChoice(self._reader(index), -1 if holds else options.early_detection_chars)
            if self._may_reask:
                choice.said = []
            self._choices[index] = choice
        return choice

    def _reader(self, index: int) -> PromptedReader:
        options, plan = self._options, self._plan
        factory = options.parsers.get(plan.style)
        if factory is not None:
            custom: PromptedReader = factory(self._book)
            return custom
        if plan.style != "json":
            return FormatReader(
                plan.style,
                self._book,
                repair=options.repair,
                limits=self._limits,
                seed=f"{self._seed}/{index}",
                guard=self._guard,
                echo=options.echo,
            )
        bounds = [bound for bound in (options.collect_bytes, options.stream_buffer_bytes) if bound]
        return JsonReader(
            self._book,
            repair=options.repair,
            byte_limit=min(bounds, default=self._limits.held_chars),
            depth_limit=self._limits.json_depth,
        )

    def _items(self, index: int, choice: _PromptedChoice, items: list[PromptedItem], out: list[Event]) -> None:
        for item in items:
            if choice.stopped or self._ended:
                return
            if choice.rejected:
                choice.aside.append(item)
            elif isinstance(item, FoundText):
                if item.thinking:
                    out.append(ThinkingDelta(item.text, index))
                else:
                    self._say(index, choice, item.text, out)
            elif isinstance(item, Trouble):
                self._trouble(index, choice, item, out)
            else:
                self._group(index, choice, item, out)

    def _shows_text(self, choice: _PromptedChoice) -> bool:
        """May text be shown at this place?"""
        return self._policy.mixed or not choice.calls

    def _say(self, index: int, choice: _PromptedChoice, text: str, out: list[Event]) -> None:
        if not text or not self._shows_text(choice):
            return
        if choice.visible and not choice.held:
            self._show(index, choice, text, out)
            return
        choice.held.append(text)
        choice.held_bytes += len(text)
        self.most_held = max(self.most_held, choice.held_bytes)
        if not choice.visible:
            choice.visible = not text.isspace()
        limit = self._options.stream_buffer_bytes
        if choice.hold_limit < 0:
            if limit and choice.held_bytes > limit:
                self._note(index, f"more than {limit} bytes of text were held back", "stream_buffer_limit")
                choice.hold_limit = 0
                self._release(index, choice, out)
        elif choice.visible and choice.held_bytes > choice.hold_limit:
            self._release(index, choice, out)

    def _show(self, index: int, choice: _PromptedChoice, text: str, out: list[Event]) -> None:
        choice.shown = True
        out.append(TextDelta(text, index))

    def _release(self, index: int, choice: _PromptedChoice, out: list[Event]) -> None:
        if choice.held:
            text = "".join(choice.held)
            choice.held.clear()
            choice.held_bytes = 0
            self._show(index, choice, text, out)

    def _drop_held(self, choice: _PromptedChoice) -> None:
        """A call follows: text that waited for that is not shown. In mixed answers only white space is left out."""
        choice.held.clear()
        choice.held_bytes = 0

    # -- calls ---------------------------------------------------------------------------------------------------------------

    def _trouble(self, index: int, choice: _PromptedChoice, trouble: Trouble, out: list[Event]) -> None:
        if trouble.code == "quoted_call":
            self._quotation(trouble.reason, index, out)
            return
        self._note(index, trouble.reason, trouble.code)
        if trouble.code != "collect_limit" and not choice.calls:
            choice.trouble = choice.trouble or trouble.reason
            if self._can_reask(choice):
                # Whatever follows, the answer is whole before anybody sees it.
                choice.hold_limit = -1

    def _note(self, index: int, reason: str, code: str) -> None:
        self.notes.append(Error(reason, code=code, fatal=False, choice=index))

    def _can_reask(self, choice: _PromptedChoice) -> bool:
        return self._may_reask and not choice.shown and not choice.calls

    def _group(self, index: int, choice: _PromptedChoice, group: CallGroup, out: list[Event]) -> None:
        if group.raw and group.raw in choice.raws:
            self._note(index, "the same calls once more, word for word", "repeated_calls")
            return
        if self._is_quotation(index, choice, group, out) or not self._is_fit(index, choice, group, out):
            return
        choice.raws.add(group.raw)
        choice.bytes += len(group.raw.encode("utf-8", "surrogatepass"))
        if self._policy.mixed and choice.visible:
            self._release(index, choice, out)
        self._drop_held(choice)
        choice.visible = False
        for call in group.calls:
            if self._max_calls and choice.calls >= self._max_calls:
                self._note(index, f"more than {self._max_calls} calls in one answer", "too_many_calls")
                break
            self._call(index, choice, call, out)
        if self._is_enough(choice, group):
            self._stop(index, choice, out)

    def _is_quotation(self, index: int, choice: _PromptedChoice, group: CallGroup, out: list[Event]) -> bool:
        """Does the model quote one of these calls from the request? Then the group is what the policy wants."""
        guard = self._guard
        # The parser of a text format has asked already, and its groups do not hold all of their text.
        if guard is None or isinstance(choice.reader, FormatReader):
            return False
        for call in group.calls:
            if guard.quotes(call.name, call.arguments, group.raw, open_ended=False):
                self._quotation(quoted_call(call.name).message, index, out)
                if not self._ended:
                    self._say(index, choice, group.raw, out)
                return True
        return False

    def _quotation(self, reason: str, index: int, out: list[Event]) -> None:
        self.echoes += 1
        is_error = self._options.echo == "error"
        note = Error(reason, kind="content_policy", code="quoted_call", fatal=is_error, choice=index)
        if is_error:
            self._fail(note, out)
        elif self.echoes <= MOST_NOTES:
            self.notes.append(note)

    def _is_fit(self, index: int, choice: _PromptedChoice, group: CallGroup, out: list[Event]) -> bool:
        """Do the arguments fit the schemas? Else the option says what becomes of the group."""
        for call in group.calls:
            problem, unchecked = self._check.verdict(call.name, call.arguments)
            if unchecked and not self._said_unchecked:
                self._said_unchecked = True
                words = f"the arguments of {call.name} were not held against the whole schema ({unchecked}): too much work"
                self._note(index, words, "schema_unchecked")
            if not problem:
                continue
            self._note(index, problem, "schema_mismatch")
            if self._can_reask(choice):
                choice.rejected = problem
                choice.aside.append(group)
                return False
            if self._options.invalid == "error":
                self._fail(Error(problem, code="schema_mismatch", choice=index), out)
                return False
            if self._options.invalid == "text":
                choice.trouble = choice.trouble or problem
                self._say(index, choice, group.raw, out)
                return False
        return True

    def _call(self, index: int, choice: _PromptedChoice, call: PromptedCall, out: list[Event]) -> None:
        number = self._next
        self._next += 1
        choice.calls += 1
        choice.names.append(call.name)
        choice.shown = True
        call_id = synthesized_id(f"{self._seed}/prompted", number)
        out.append(ToolCallStart(number, call_id, call.name, index))
        out.append(ToolCallDelta(number, call.arguments, index))
        out.append(ToolCallComplete(number, call_id, call.name, call.arguments, index, repaired=call.repaired))

    def _is_enough(self, choice: _PromptedChoice, group: CallGroup) -> bool:
        policy, options = self._policy, self._options
        if self._plan.single and choice.calls:
            return not policy.mixed
        if not policy.stops:
            return False
        if self._max_calls and choice.calls >= self._max_calls:
            return True
        if policy.array_ends and group.array:
            return True
        return bool(options.collect_bytes) and choice.bytes >= options.collect_bytes

    # -- ends ----------------------------------------------------------------------------------------------------------------

    def _set_window(self, choice: _PromptedChoice, now: float) -> None:
        if not self._policy.window or not self._options.window_ms or not choice.calls:
            return
        if choice.stopped or choice.reader.pending:
            self.deadline = None
        elif self.deadline is None:
            self.deadline = now + self._options.window_ms / 1000

    def _close_window(self, out: list[Event]) -> None:
        self.deadline = None
        for index, choice in list(self._choices.items()):
            if choice.calls and not choice.stopped and not choice.reader.pending:
                self._stop(index, choice, out)

    def _stop(self, index: int, choice: _PromptedChoice, out: list[Event]) -> None:
        """The policy has what it wants of this choice."""
        choice.stopped = True
        self._drop_held(choice)
        if not self._options.cancel_upstream:
            return
        if len(self._choices) < self._expected or not all(one.stopped or one.ended for one in self._choices.values()):
            return
        # Choices that had ended before have their own end already.
        open_choices = [number for number, one in sorted(self._choices.items()) if not one.ended]
        for number in open_choices:
            last = number == open_choices[-1]
            out.append(Done(Finish("tool"), number, usage=self._estimated() if last else None, last=last))
        self._ended = True
        self.deadline = None

    def _estimated(self) -> Usage:
        """The upstream is not asked to its end, so the count is estimated here."""
        if self._counted is not None:
            return self._with_spent(self._counted)
        tokens = max(1, self.content_length // _CHARS_PER_TOKEN)
        return self._with_spent(Usage(input_total=self._input_tokens, output_total=tokens, estimated=True))

    def _with_spent(self, usage: Usage) -> Usage:
        spent = self._spent
        if spent is None:
            return usage
        return Usage(
            input_total=usage.input_total + spent.input_total,
            output_total=usage.output_total + spent.output_total,
            cache_read=usage.cache_read + spent.cache_read,
            cache_write=usage.cache_write + spent.cache_write,
            cache_write_1h=usage.cache_write_1h + spent.cache_write_1h,
            reasoning=usage.reasoning + spent.reasoning,
            audio_in=usage.audio_in + spent.audio_in,
            audio_out=usage.audio_out + spent.audio_out,
            estimated=usage.estimated or spent.estimated,
        )

    def _done(self, event: Done, out: list[Event]) -> None:
        choice = self._choice(event.choice)
        finish = event.finish
        if not choice.stopped:
            self._items(event.choice, choice, choice.reader.close(ended_well=finish.kind in _STOPPED), out)
            if self._ended:
                return
            if self._wants_correction(choice, finish):
                reason = choice.rejected or choice.trouble or _CALL_MISSING
                self.correction = Correction(reason, "".join(choice.said or ()), event.usage)
                self._ended = True
                return
            if choice.rejected and not self._take_after_all(event.choice, choice, out):
                return
            if not choice.calls or (self._policy.mixed and choice.visible):
                self._release(event.choice, choice, out)
        choice.ended = True
        self.deadline = None
        if choice.calls:
            if choice.stopped or finish.kind in _STOPPED:
                finish = msgspec.structs.replace(finish, kind="tool", raw="")
        elif self._plan.required and finish.kind in _STOPPED:
            self._fail(Error(choice.trouble or _CALL_MISSING, code="tool_choice_unmet", choice=event.choice), out)
            return
        elif finish.kind == "tool":
            finish = msgspec.structs.replace(finish, kind="stop", raw="")
        usage = event.usage if event.usage is None or self._spent is None else self._with_spent(event.usage)
        if finish is not event.finish or usage is not event.usage:
            event = msgspec.structs.replace(event, finish=finish, usage=usage)
        out.append(event)
        self._ended = event.last

    def _take_after_all(self, index: int, choice: _PromptedChoice, out: list[Event]) -> bool:
        """The answer was put aside to be asked for again, and that cannot be: it counts as it is. False: that was the end."""
        items, choice.aside, choice.rejected = choice.aside, [], ""
        self._may_reask = False
        self._items(index, choice, items, out)
        return not self._ended

    def _wants_correction(self, choice: _PromptedChoice, finish: Finish) -> bool:
        if not self._can_reask(choice) or finish.kind not in _STOPPED:
            return False
        return bool(choice.rejected or choice.trouble or self._plan.required)

    def _fail(self, error: Error, out: list[Event]) -> None:
        out.append(error)
        self._ended = True
        self.deadline = None

    def _error(self, event: Error, out: list[Event]) -> None:
        if event.fatal:
            for index, choice in self._choices.items():
                if not choice.stopped and not choice.ended:
                    rest = choice.reader.close(ended_well=False)
                    items: list[PromptedItem] = [item for item in rest if isinstance(item, FoundText)]
                    self._items(index, choice, items, out)
                    if not choice.calls:
                        self._release(index, choice, out)
            self._ended = True
            self.deadline = None
        out.append(event)

    def _other(self, event: Event, out: list[Event]) -> None:
        choice_index = getattr(event, "choice", None)
        choice = self._choices.get(choice_index) if choice_index is not None else None
        if choice is not None and choice.stopped and not isinstance(event, Extra):
            return
        if isinstance(event, ToolCallStart | ToolCallDelta | ToolCallComplete):
            self._native(event, out)
            return
        if choice is not None and isinstance(event, ThinkingDelta):
            choice.shown = True
        out.append(event)

    def _native(self, event: ToolCallStart | ToolCallDelta | ToolCallComplete, out: list[Event]) -> None:
        """A call in the upstream's own form although it was offered none: it takes its number among ours."""
        choice = self._choice(event.choice)
        if isinstance(event, ToolCallStart):
            self._numbers[event.call] = self._next
            self._next += 1
            choice.shown = True
        elif isinstance(event, ToolCallComplete):
            choice.calls += 1
            choice.names.append(event.name)
        out.append(msgspec.structs.replace(event, call=self._numbers.get(event.call, event.call)))
