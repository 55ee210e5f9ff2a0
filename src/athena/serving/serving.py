"""One client's request through all its attempts, until its last byte, without IO.

A driver moves the bytes and asks what to do:

    action = serving.next(now)          Build, Send, Pause, Keep or Tell

and tells what came of it. The states, and the calls that each allows:

| state | what is happening | calls, and the state that follows |
|---|---|---|
| CHOOSING | the first target is to be chosen | `next`: BUILDING, or OVER with an error |
| BUILDING | the upstream's request is to be made | `build`: READY; FAILED or MOVING when it cannot be made |
| READY | it is made | `next` says what to send; `sending`: SENDING; `failed`: FAILED |
| SENDING | it is on its way | `head`: READING; `failed`: FAILED, or OVER when the client has its head |
| READING | the answer comes in | `data`, `end`: READING, KEEPING, OVER; FAILED if unseen; READY if the model is asked again |
| FAILED | the client has seen nothing of it | `next`: BUILDING for the next attempt, PAUSING, or OVER with the error |
| MOVING | a fallback cannot be asked this | `next`: BUILDING for the one after it, or OVER with the failure that led here |
| KEEPING | the answer is whole and is to be kept | `next` says what; `kept`: OVER |
| PAUSING | the same target is asked again in a moment | `next`: PAUSING or BUILDING |
| OVER | the client has its answer, or is gone | `close`: CLOSED |
| CLOSED | everything that watches was told | none |

Any other call raises UsageError. `stop`, `tick` and `close` may be called in every state.

The rules, in the order in which they bite:

- Until the client has a byte, a failed attempt may be repeated or the next target asked. After it, never.
- The client's head waits for the first event that decides the answer, but only so long; then keep-alives begin.
- An upstream that refuses what a request holds is asked again without it, tools in the prompt; where that fails too, the
  first error is told.
- A fallback that cannot be asked this request is none: the failure that led to it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from itertools import compress
from types import MappingProxyType
from typing import Any, get_args

import msgspec

from athena.dialects import get_dialect
from athena.dialects.base import KeepingEncoder
from athena.dialects.plain_reads import PlainSplice
from athena.errors import AthenaError, ClientError, UpstreamError, UsageError
from athena.exchange import NOTHING, Exchange, Head, Route, Step, warnings_header
from athena.model.events import (
    Error,
    Event,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    error_event,
)  # fmt: skip
from athena.model.request import Request
from athena.serving.actions import Action, Build, Keep, Pause, Send, Stop, Tell
from athena.serving.attempts import Attempts
from athena.serving.breaker import Visit
from athena.serving.call_checks import CallChecks
from athena.serving.clock import Clock, Due, says_something, timeout_error
from athena.serving.holding import AnswerMemory, RequestMemory, out_of_memory
from athena.serving.judging import AnswerMarks
from athena.serving.learning import Trial
from athena.serving.record import MESSAGE_SHOWN, Judged, RequestRecord
from athena.serving.request_taps import ReadsNoted, RequestTaps
from athena.serving.retries import is_outage, is_own_limit, may_move_on
from athena.serving.shared import Shared
from athena.serving.summary import summarise
from athena.serving.tap import Asked
from athena.serving.targets import Target, fitted_request, near_size_limit
from athena.serving.tokens import Measured
from athena.serving.trace import passed_on
from athena.wire.recall import Recall

_MANY_TOOLS = 64
"""Tools above which a request is translated in a thread."""
_SHUTDOWN = UpstreamError("the gateway is shutting down", kind="overloaded", code="shutting_down")
_INTERNAL = UpstreamError("the gateway failed; its log says why", kind="server", code="internal_error")
_NOTED = frozenset(get_args(Event)) - {TextDelta, ToolCallDelta}
"""Of which events an answer's marks and checks are told."""
_CHECKED = (ToolCallComplete, Error)


class ServingState(Enum):
    """Where a request is; see the table of this module."""

    CHOOSING = auto()
    BUILDING = auto()
    READY = auto()
    SENDING = auto()
    READING = auto()
    FAILED = auto()
    MOVING = auto()
    PAUSING = auto()
    KEEPING = auto()
    OVER = auto()
    CLOSED = auto()


class _Unjudged(msgspec.Struct, frozen=True):
    """An attempt that is over, while checks of its calls may still be going on."""

    target: Target
    exchange: Exchange
    marks: AnswerMarks


class _Failure(msgspec.Struct, frozen=True):
    """An attempt that failed before the client had seen anything, and the error for the client if it was the last one."""

    exchange: Exchange | None
    step: Step
    is_lost: bool = False

    @property
    def error(self) -> Error | None:
        return self.exchange.error if self.exchange is not None else None


class Serving:
    """One request. All times are those of the driver's clock, in seconds."""

    # What holds for every request until something else is known of it.
    state: ServingState = ServingState.CHOOSING
    has_head = False
    """Has the client its status and headers?"""
    upstream_headers: Mapping[str, str] = MappingProxyType({})
    """Of the answer that is being read."""
    _checks: CallChecks | None = None
    """Made for the first call of an answer."""
    _marks: AnswerMarks
    """Of the attempt that was sent last."""
    _unjudged: _Unjudged | None = None
    _asked_last: Target | None = None
    """The target that a request went to last."""
    _resume_at = 0.0
    _exchange: Exchange | None = None
    _measured: Measured | None = None
    """What its request measures, where that was to be known before its answer."""
    _route: Route | None = None
    _builds_aside = False
    """Is the upstream's request made in a thread?"""
    _trial: Trial | None = None
    """Of the present target; made when it has failed, where nothing is known about any target before."""
    _waiting: KeepingEncoder | None = None
    """Holds a response that is to be kept, and the end of its answer."""
    _held_head: Head | None = None
    """Of a whole answer that is to be kept first."""
    _failure: _Failure | None = None
    _refusal: _Failure | None = None
    """The first answer of an upstream that refused the request's shape, while it is asked again without that."""
    _visit: Visit | None = None
    _answer: AnswerMemory | None = None
    _warnings: tuple[str, ...] = ()
    _short_way: Callable[[bytes], bytes | None] | None = None
    """What to ask first about the next read."""

    def __init__(
        self,
        shared: Shared,
        request: Request,
        targets: tuple[Target, ...],
        record: RequestRecord,
        memory: RequestMemory,
        *,
        headers: Mapping[str, str],
        key: str | None,
        array: bool,
        now: float,
        body: bytes = b"",
        method: str = "POST",
        path: str = "",
        query: str = "",
        recall: Recall | None = None,
    ) -> None:
        """`headers` and `key` are the client's, and so is `body`, where a tap wants to see it. `method`, `path` and `query` say
        where its request came in; only taps read them. `recall` knows what parts of the request became before."""
        self.record = record
        self.request = request
        self.clock = Clock(shared.client_limits, now)
        self._shared = shared
        self._recall = recall
        self._memory = memory
        self._client_headers = headers
        self._key = key
        self._array = array
        self._started = self._fed_at = now
        """When it began, and when the bytes came that are being worked on."""
        self._attempts = Attempts(shared, targets, record)
        self._taps = taps = RequestTaps(shared, record, request, key)
        if taps.active:
            asked = Asked(
                now=now,
                wall=shared.wall_clock(),
                method=method,
                path=path,
                query=query,
                headers=headers,
                body=body,
                targets=targets,
                answers=shared.answers,
                retries=shared.retries,
                kept=request.kept,
                correct=shared.learnt.corrects,
            )
            taps.asked(asked)

    # -- what to do --------------------------------------------------------------------------------------------------------

    def next(self, now: float) -> Action:
        """What the driver is to do now."""
        match self.state:
            case ServingState.CHOOSING:
                return self._choose(now)
            case ServingState.READY:
                return self._send(now)
            case ServingState.FAILED:
                return self._recover(now)
            case ServingState.MOVING:
                return self._move_on(now)
            case ServingState.KEEPING:
                waiting = self._waiting
                assert waiting is not None
                assert waiting.final is not None
                return Keep(waiting.final, waiting.written())
            case ServingState.PAUSING:
                return Pause(self._resume_at) if now < self._resume_at else self._try_target()
            case _:
                raise UsageError(f"next() while {self.state.name}")

    def _choose(self, now: float) -> Action:
        attempts, taps = self._attempts, self._taps
        given = attempts.targets
        try:
            attempts.choose(self.request, self._client_headers)
        except AthenaError as none_is_up:
            if taps.active:
                taps.tell(lambda tap: tap.chosen((), none_is_up))  # noqa: F821  # it is called at once
            return self._tell(_Failure(None, self._refused(none_is_up)), now)
        if taps.active and attempts.targets != given:
            taps.tell(lambda tap: tap.chosen(attempts.targets, None))
        return self._move_on(now)

    def _move_on(self, now: float) -> Action:
        """Ask the next target, or tell the last failure where there is none."""
        if self._attempts.advance():
            return self._try_target()
        assert self._failure is not None
        return self._tell(self._failure, now)

    def _try_target(self) -> Build:
        target, learnt = self._attempts.target, self._shared.learnt
        if not learnt.has_lessons:
            self._trial = None
            return self._ask(target.route)
        trial = self._trial = learnt.trial(target, self.request, self.record.key)
        if self._taps.active and trial.corrections:
            self._taps.tell(lambda tap: tap.trying(target, trial.corrections))
        return self._ask(trial.route)

    def _ask(self, route: Route) -> Build:
        self._exchange, self._route = None, route
        self._attempts.begin()
        self.state = ServingState.BUILDING
        self._builds_aside = self._is_heavy(route)
        return Build(self._builds_aside)

    def _is_heavy(self, route: Route) -> bool:
        """May building take so long that others would wait? So does the first answer of a format: its searches are compiled."""
        tools, form = self.request.tools, route.format
        if self.record.large or len(tools) > _MANY_TOOLS:
            return True
        return form is not None and bool(tools) and route.prompted is None and not form.is_ready

    def _send(self, now: float) -> Send:
        exchange, record, target = self._exchange, self.record, self._attempts.target
        assert exchange is not None
        call = exchange.call
        record.attempts += 1
        self._asked_last = target
        headers = target.headers(call.headers, self.request, self._client_headers, self._key)
        if record.trace is not None:
            headers += record.trace.headers(record.attempts)
        else:
            headers += passed_on(self._client_headers)
        path = target.path(call.path)
        record.url = target.url(path)
        if self._taps.active:
            self._taps.sent(target, call, path, headers, now)
        return Send(target, path, headers, call.body)

    def _recover(self, now: float) -> Action:
        """The attempt failed, and it was not shown."""
        failure = self._failure
        assert failure is not None
        trial = self._trial
        if trial is None:
            trial = self._trial = Trial(self._shared.learnt, self._attempts.target, self.request, self.record.key)
        if trial.corrects(failure.exchange):
            self._refusal = self._refusal or failure
            return self._ask(trial.route)
        self.record.corrections = ",".join(trial.corrections)
        if self._refusal is not None and trial.was_in_vain(failure.exchange):
            # It was not what was left out after all: the first error is the one to tell.
            failure = self._failure = self._refusal
            self.record.tool_mode = ""
        self._refusal = None
        error = failure.error
        if error is None:
            return self._tell(failure, now)
        if self._attempts.has_more:
            return self._move_on(now) if may_move_on(error) else self._tell(failure, now)
        delay = self._attempts.pause_after(error)
        if delay is None:
            return self._tell(failure, now)
        self._resume_at = now + delay
        self.state = ServingState.PAUSING
        return Pause(self._resume_at)

    def _tell(self, failure: _Failure, now: float) -> Tell:
        self._exchange = failure.exchange
        step = self._with_head(failure.step, now)
        self.state = ServingState.OVER
        self._taps.left(step, now)
        return Tell(step, failure.is_lost)

    # -- the upstream's request ----------------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        """The target that is being asked."""
        return self._attempts.target

    def build(self) -> None:
        """Make the upstream's request. This is the one call that a thread may make, while nothing else touches this object."""
        if self.state is not ServingState.BUILDING:
            raise self._misused(ServingState.BUILDING)
        target, record, route = self._attempts.target, self.record, self._route
        assert route is not None
        record.upstream, record.upstream_model, record.upstream_dialect = target.upstream, target.model, target.dialect
        try:
            self._memory.building()
            request = fitted_request(self.request, target) if target.tools == "none" else self.request
            # What a small request measures is found out when an answer teaches something about it.
            is_small = self._recall is None and not self._builds_aside and not request.stream
            measured = self._measured = self._shared.tokens.measure(request, self._recall) if not is_small else None
            options = self._shared.options(record, request, target, measured, array=self._array)
            if self._taps.active:
                options = self._taps.options(options)
            exchange = Exchange(request, route, options, self._recall)
            warning = near_size_limit(exchange, target) if target.context_limit_kb else ""
        except (ClientError, UpstreamError) as error:
            self._not_built(error)
            return
        if self._builds_aside and route.format is not None:
            exchange.warm_up()
        if warning or self._warnings:
            self._warnings = (warning,) if warning else ()
        self._memory.built()
        record.warnings = len(exchange.request_losses)
        rendered = exchange.prepared.rendered
        record.tool_mode = "prompted" if rendered is not None and rendered.plan is not None else ""
        self._exchange = exchange
        self.state = ServingState.READY

    def _not_built(self, error: AthenaError) -> None:
        if self._refusal is not None:
            self.state = ServingState.FAILED
        elif self._failure is not None:
            self.state = ServingState.MOVING
        else:
            self._failure = _Failure(None, self._refused(error))
            self.state = ServingState.FAILED

    def _refused(self, error: AthenaError) -> Step:
        """The request cannot be put to a target: an answer like any other failure, but never tried again."""
        event = error_event(error)
        answer = get_dialect(self.request.dialect).encode_error(event, self.record.request_id)
        self.record.error, self.record.error_message = event.code, event.message[:MESSAGE_SHOWN]
        return Step(Head(answer.status, {"content-type": "application/json", **answer.headers}), answer.body, True)

    def sending(self, now: float) -> None:
        """The driver starts to send the request: the limits of the attempt run from here."""
        if self.state is not ServingState.READY:
            raise self._misused(ServingState.READY)
        self.state = ServingState.SENDING
        target, chooser = self._attempts.target, self._shared.chooser
        self._visit = self._shared.health.visit(target.upstream)
        if self._unjudged is not None:
            self._judge()
        turn = chooser.routes.turn(target.upstream, target.model) if chooser is not None else 0
        self._marks = AnswerMarks(self.record, turn, now)
        self.clock.sending(now, target.timeouts)

    def failed(self, error: UpstreamError, now: float) -> Step:
        """No answer came: there was no place at the upstream, no connection, or the connection broke."""
        if self.state is not ServingState.READY and self.state is not ServingState.SENDING:
            raise self._misused(ServingState.SENDING)
        self._attempts.request_sent = error.request_sent
        if self._taps.active:
            self._taps.upstream_end(error, now)
        step = self._present().upstream_end(error)
        return self._ended(step, now, is_lost=True)

    # -- the upstream's answer -----------------------------------------------------------------------------------------------

    def head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        """The upstream's status and headers, by lower-case name; a wait in them is in seconds."""
        exchange = self._exchange
        if self.state is not ServingState.SENDING or exchange is None:
            raise self._misused(ServingState.SENDING)
        self.state = ServingState.READING
        attempts = self._attempts
        attempts.request_sent = True
        attempts.retry_is_useless = "x-should-retry" in headers and headers["x-should-retry"].lower() == "false"
        self.upstream_headers = headers
        self._answer = AnswerMemory(self._shared.memory, streamed=self.request.stream)
        exchange.upstream_head(status, headers)
        self.clock.reading(now)
        if self._taps.active:
            self._taps.upstream_head(status, headers, now)

    def plain(self, data: bytes, now: float) -> bytes | None:
        """What the client is to get for a read that is one more piece of plain text; None, and nothing is done: call `data`.

        Everything that `data` would have told to those who watch, to the clock and to the memory is told here.
        """
        short_way = self._short_way
        if short_way is None or self.state is not ServingState.READING:
            return None
        output = short_way(data)
        if output is None:
            self._short_way = None
            return None
        if self._taps.byte_taps:
            self._taps.passed(data, output, now, self._present().spliced)
        self.clock.spoke(now)
        return output

    @property
    def splice(self) -> PlainSplice | None:
        """How the next reads of plain text may be passed on without this object: by a driver that tells `reads_noted` of each
        and `relayed` of all of them before it calls anything else here; None: not at all."""
        if self._short_way is None or self.state is not ServingState.READING or self._exchange is None:
            return None
        return self._exchange.splice

    @property
    def reads_noted(self) -> ReadsNoted:
        """What is to be told of each such read."""
        return self._taps.reads

    def relayed(self, strings: list[bytes], times: list[float], last: bytes) -> None:
        """Reads with these texts, JSON strings as they came, were passed on by `splice` at these times; `last` is the last one,
        where records go out as they came."""
        exchange, taps = self._present(), self._taps
        if taps.byte_taps:
            taps.relayed(strings, times, exchange.spliced)
        exchange.relayed(strings, last)
        self.clock.spoke(times[-1])

    def data(self, data: bytes, now: float) -> Step:
        """The next bytes of its body; what the client is to get for them."""
        return self.worked(data, self.work(data, now), now)

    def end(self, failure: UpstreamError | None, now: float) -> Step:
        """Its body ended; `failure` says why when it did not end by itself."""
        return self.ended(failure, self.work_end(failure), now)

    def work(self, data: bytes, now: float) -> Step:
        """The part of `data` that can take long and may be done in a thread; `worked` takes what it returns."""
        exchange = self._exchange
        if exchange is None or self.state is not ServingState.READING:
            raise UsageError(f"data() while {self.state.name}")
        self._fed_at = now
        self._short_way = None
        return exchange.upstream_data(data, now)

    def work_end(self, failure: UpstreamError | None) -> Step:
        """The same for `end`; `ended` takes what it returns."""
        exchange = self._exchange
        if self.state is not ServingState.READING or exchange is None:
            raise self._misused(ServingState.READING)
        return exchange.upstream_end(failure)

    def ended(self, failure: UpstreamError | None, step: Step, now: float) -> Step:
        """What the client is to get for the end, of which `work_end` made this step."""
        if self._taps.active:
            self._taps.upstream_end(failure, now)
        return self.worked(b"", step, now, is_lost=failure is not None)

    def worked(self, data: bytes, step: Step, now: float, *, is_lost: bool = False) -> Step:
        """What the client is to get for these bytes, of which `work` made this step."""
        taps, exchange, events, output = self._taps, self._exchange, step.events, step.output
        assert exchange is not None
        if data:
            if taps.byte_taps:
                taps.came(data, self._fed_at, exchange.burst)
            if says_something(data, events):
                self.clock.heard(now)
        if events:
            self._note(events)
            marks = self._marks
            if marks.first_byte_s is None and marks.has_begun:
                marks.first_byte_s = now - marks.sent_at
        if step.done or step.again is not None:
            return self._ended(step, now, is_lost=is_lost)
        answer = self._answer
        if output:
            if answer is not None and answer.held:
                answer.shown()
        elif answer is not None and data and not answer.hold(len(data)):
            full = out_of_memory()
            taps.upstream_end(full, now)
            return self._ended(exchange.upstream_end(full), now)
        if (window := exchange.deadline) is not None:
            self.clock.window(window)
        if step.head is not None:
            step = self._with_head(step, now)
        if output or step.head is not None:
            self.clock.shown(now)
            if taps.active:
                taps.left(step, now)
            if step.head is None and not taps.event_taps and events and self._marks.knows(events[-1]):
                self._short_way = exchange.short_way
        return step

    def _note(self, events: tuple[Event, ...]) -> None:
        marks = self._marks
        if not marks.has_text:
            for event in events:
                if type(event) is TextDelta and event.text.strip():
                    marks.has_text = True
                    break
        # Nearly all events of a long read are pieces of text, which nothing more is to be noted of.
        for noted in compress(events, map(_NOTED.__contains__, map(type, events))):
            if isinstance(noted, _CHECKED):
                if self._checks is None:
                    self._checks = CallChecks(self.request, self.record)
                self._checks.note(noted)
            elif not marks.has_reasoning or type(noted) is not ThinkingDelta:
                marks.note(noted)
        if self._taps.event_taps:
            self._taps.understood(events)

    def _ended(self, step: Step, now: float, *, is_lost: bool = False) -> Step:
        """The attempt is over: shown to the end, to be made once more, or failed with nothing shown."""
        exchange = self._exchange
        assert exchange is not None
        self._short_way = None
        if self._taps.answer_taps:
            self._taps.answered()
        self.clock.read()
        if self._answer is not None:
            self._answer.close()
            self._answer = None
        if step.again is not None:
            # The model is asked once more: its answer was not shown.
            self._abandon()
            self.state = ServingState.READY
            return NOTHING
        outcome = exchange.outcome
        is_hidden = step.head is not None and outcome == "error"
        if self._visit is not None:
            self._attempted(exchange, self._visit, ok=outcome == "ok" if not is_hidden else not is_outage(exchange.error))
        if is_hidden:
            self._failure = _Failure(exchange, step, is_lost)
            self.state = ServingState.FAILED
            return NOTHING
        if outcome == "ok":
            trial, usage = self._trial, exchange.usage
            if trial is not None and trial.corrections:
                self.record.corrections = ",".join(trial.corrections)
                trial.answered()
            else:
                self.record.corrections = ""
            if usage is not None and not usage.estimated:
                self._shared.tokens.learn(exchange.request, self._attempts.target.model, usage.input_total, self._measured)
        self._waiting = exchange.waiting
        if self._waiting is not None:
            return self._hold(step, now)
        step = self._with_head(step, now)
        self.state = ServingState.OVER
        self._taps.left(step, now)
        return step

    def _hold(self, step: Step, now: float) -> Step:
        """Everything but the end of an answer that is to be kept. A whole answer is nothing but its end."""
        if not self.request.stream:
            self._held_head = step.head
            self.state = ServingState.KEEPING
            return NOTHING
        step = self._with_head(Step(step.head, step.output, False, step.events), now)
        self.state = ServingState.KEEPING
        self.clock.shown(now)
        self._taps.left(step, now)
        return step

    def kept(self, now: float, changed: dict[str, Any] | None = None, failure: AthenaError | None = None) -> Step:
        """The response is kept; or it is not, which `changed` fields of it say, or which is a `failure` of the request."""
        if self.state is not ServingState.KEEPING:
            raise self._misused(ServingState.KEEPING)
        exchange, waiting = self._present(), self._waiting
        assert waiting is not None
        if self._taps.active and (changed or failure is not None):
            self._taps.tell(lambda tap: tap.not_kept(changed, failure, now))
        if failure is not None:
            exchange.outcome, exchange.error = "error", error_event(failure)
            if not self.request.stream:
                self._held_head = None
                step = self._refused(failure)
            else:
                told = {"status": "failed", "error": {"code": "server_error", "message": failure.message}}
                step = Step(None, waiting.release(told), True)
        else:
            if changed:
                self._warnings += ("store dropped: the gateway could not keep this response",)
            step = Step(self._held_head, waiting.release(changed), True)
        step = self._with_head(step, now)
        self.state = ServingState.OVER
        self._taps.left(step, now)
        return step

    def _attempted(self, exchange: Exchange, visit: Visit, *, ok: bool) -> None:
        """An attempt that had its place at the upstream is over."""
        target = self._attempts.target
        self.record.details.attempts.append((target.upstream, ok))
        if exchange.error is not None and is_own_limit(exchange.error):
            visit.abandoned()
        else:
            visit.ended(ok=ok)
            self._unjudged = _Unjudged(target, exchange, self._marks)
        self._visit = None

    def _judge(self) -> None:
        """Write down what the last answer shows about its upstream: its calls are checked by now."""
        over, self._unjudged = self._unjudged, None
        if over is not None:
            judged = Judged(
                upstream=over.target.upstream,
                model=over.target.model,
                found=over.marks.findings(over.exchange, self.record),
                has_tools=bool(self.request.tools),
                streamed=self.request.stream,
                first_byte_s=over.marks.first_byte_s,
                turn=over.marks.turn,
            )
            self.record.details.judged.append(judged)

    def _abandon(self) -> None:
        """The attempt ends and says nothing about the upstream's health."""
        if self._visit is not None:
            self._visit.abandoned()
            self._visit = None

    # -- what a driver may want to know --------------------------------------------------------------------------------------

    @property
    def has_said_all(self) -> bool:
        """Has the upstream said why it ended, so that only the end itself is missing?"""
        return self._exchange is not None and self._exchange.finished

    @property
    def keeps_connection(self) -> bool:
        """Did the upstream itself say all of its answer? Then its connection may be used again as soon as its end has come."""
        exchange = self._exchange
        return exchange is not None and exchange.outcome == "ok" and exchange.prompted is None

    @property
    def reads_text(self) -> bool:
        """Are calls looked for in the model's text? Then a large piece of it can take long."""
        return self._exchange is not None and self._exchange.reads_text

    @property
    def held(self) -> int:
        """Bytes that wait in this request."""
        return self._exchange.held if self._exchange is not None else 0

    # -- time ----------------------------------------------------------------------------------------------------------------

    def tick(self, now: float, *, waits_for_us: bool = False, has_unread: bool = False) -> Step:
        """Time has passed: call it at `clock.deadline`. What the client is to get, if anything.

        `waits_for_us`: nothing is read from the upstream right now. `has_unread`: it sent what is still unread.
        """
        exchange = self._exchange
        if exchange is not None and self.state is ServingState.READING and self.clock.is_window_over(now):
            self.clock.window(None)
            if self._taps.active:
                self._taps.tell(lambda tap: tap.moment("tick", now))
            return self.worked(b"", exchange.tick(now), now)
        due = self.clock.look(
            now, finished=self.has_said_all, has_head=self.has_head, waits_for_us=waits_for_us, has_unread=has_unread
        )
        match due:
            case Due.NOTHING:
                return NOTHING
            case Due.KEEP_ALIVE:
                return self.keep_alive(now)
            case Due.CLIENT_STALLED:
                return self.stop("client_stalled", now)
            case Due.FIRST_BYTE | Due.IDLE | Due.TOTAL:
                return self.end(timeout_error(due), now) if self.state is ServingState.READING else NOTHING

    def keep_alive(self, now: float) -> Step:
        """Something that the client passes over, with its head if that can wait no longer."""
        exchange = self._exchange
        if (
            not self.request.stream
            or exchange is None
            or exchange.done
            or self.state in (ServingState.OVER, ServingState.CLOSED)
        ):
            return NOTHING
        step = self._with_head(exchange.commit(), now)
        if not self.has_head:
            return NOTHING
        if self._taps.active:
            self._taps.tell(lambda tap: tap.moment("keep_alive", now))
        step = Step(step.head, step.output + exchange.keep_alive())
        self.clock.shown(now)
        self._taps.left(step, now)
        return step

    # -- the end -------------------------------------------------------------------------------------------------------------

    def stop(self, reason: Stop, now: float) -> Step:
        """End the request now; the reason decides what the client still gets."""
        if self.state in (ServingState.OVER, ServingState.CLOSED):
            return NOTHING
        if self._taps.active:
            self._taps.tell(lambda tap: tap.stopped(reason, now))
        self.record.outcome = "error" if reason == "internal_error" else reason
        exchange = self._exchange
        step = NOTHING
        if reason in ("shutdown", "internal_error"):
            why = _SHUTDOWN if reason == "shutdown" else _INTERNAL
            if self.state is ServingState.KEEPING:
                return self.kept(now, failure=why)
            if exchange is not None and not exchange.done:
                step = exchange.upstream_end(why)
            elif not self.has_head:
                step = self._refused(why)
            step = self._with_head(step, now)
            self._taps.left(step, now)
        self.state = ServingState.OVER
        return step

    def close(self, now: float) -> None:
        """The request is over, however it ended: every tap is called."""
        if self.state is ServingState.CLOSED:
            return
        self.state = ServingState.CLOSED
        if self._visit is not None:
            self.clock.read()
            self._abandon()
        if self._answer is not None:
            self._answer.close()
            self._answer = None
        self.record.duration_ms = (now - self._started) * 1000
        if self._exchange is not None:
            summarise(self._exchange, self.record)
        self.record.outcome = self.record.outcome or "error"
        if self._unjudged is not None:
            self._judge()
        self._taps.over(self.record)
        # Everything an answer held is free now, not when the collector next looks at old cycles.
        self._short_way = None
        self._exchange = self._failure = self._refusal = self._waiting = None

    @property
    def exchange(self) -> Exchange | None:
        """The present attempt, for those who look on."""
        return self._exchange

    @property
    def checks(self) -> CallChecks | None:
        """Knows the calls of this answer that are still to be held against their schemas; None: it has no calls."""
        return self._checks

    # -- inside ----------------------------------------------------------------------------------------------------------------

    def _misused(self, state: ServingState) -> UsageError:
        return UsageError(f"not while {self.state.name}: this belongs to {state.name}")

    def _present(self) -> Exchange:
        assert self._exchange is not None
        return self._exchange

    def _with_head(self, step: Step, now: float) -> Step:
        """The step with everything that the client's head holds; a second head is left out."""
        head = step.head
        if head is None:
            return step
        if self.has_head:
            return Step(None, step.output, step.done, step.events)
        self.has_head = True
        record, exchange, status, warnings = self.record, self._exchange, head.status, self._warnings
        record.first_byte_ms = (now - self._started) * 1000
        record.status = status
        headers = {**head.headers, "request-id": record.request_id, "x-request-id": record.request_id}
        if exchange is not None and (losses := exchange.losses):
            warnings = (*warnings, warnings_header(losses))
        if warnings:
            headers["x-athena-warnings"] = "; ".join(warnings)
        if exchange is not None and self._asked_last is not None:
            headers["x-athena-served-by"] = self._asked_last.shown_name
        if (
            status >= 400
            and self._shared.answers.stop_retries
            and self._attempts.is_final(exchange.error if exchange is not None else None)
        ):
            headers["x-should-retry"] = "false"
        if exchange is not None and self.state is ServingState.READING:
            # The client gets this upstream's answer: no other target will be asked.
            exchange.forget_call()
            self._recall = None
            self._memory.answering()
            if status == 200:
                if self._visit is not None:
                    self._visit.answers()
                self._attempts.answers()
        return Step(Head(status, headers), step.output, step.done, step.events)
