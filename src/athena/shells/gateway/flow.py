"""One request served: targets tried in turn, the exchange driven, the client kept informed until the last byte.

The rules, in the order in which they bite:

- Until the client has a byte, a failed attempt may be repeated or the next target tried (`reliability.md` 7). After it, never.
- The client's head waits for the first event that decides the answer, but no longer than `hold_head_s`; then keep-alives begin.
- A client that leaves, stops reading, or outlives the gateway's drain ends the upstream's request within a moment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from athena.errors import AthenaError, ClientError, UpstreamError
from athena.exchange import Exchange, Head, Route, Step, warnings_header
from athena.formats.value_types import ToolBook
from athena.model.events import Error, Event, ToolCallComplete, error_event
from athena.model.request import Request
from athena.prompted.validation import LATE_STEPS, ArgumentCheck, Verdict
from athena.shells.gateway.client import Client
from athena.shells.gateway.health import Visit
from athena.shells.gateway.holding import AnswerMemory, RequestMemory
from athena.shells.gateway.lanes import Place
from athena.shells.gateway.record import Record
from athena.shells.gateway.relay import Relay
from athena.shells.gateway.retries import (
    is_outage,
    is_own_limit,
    is_retryable,
    may_move_on,
    pause_before,
    with_relative_wait,
)
from athena.shells.gateway.targets import Target, fitted_request, near_size_limit
from athena.shells.logs import log_body
from athena.shells.upstream import UpstreamResponse

if TYPE_CHECKING:
    from athena.shells.gateway.app import Gateway

LOG = logging.getLogger("athena")
Stop = Literal["", "client_closed", "client_stalled", "shutdown"]

_AT_ONCE_CHARS = 16 * 1024
_AT_ONCE_STEPS = 50_000
_AT_ONCE_ANSWER_STEPS = 300_000
"""Arguments, and the steps of one check and of all checks of an answer, up to which a call is held against its schema as it
passes: everybody's streams wait meanwhile. What is more is checked in a thread once the client has its answer."""
_MANY_TOOLS = 64
"""Tools above which a request is translated in a thread."""
_SHUTDOWN = UpstreamError("the gateway is shutting down", kind="overloaded", code="shutting_down")
_INTERNAL = UpstreamError("the gateway failed; its log says why", kind="server", code="internal_error")


class Flow:
    """One client request on its way."""

    def __init__(
        self,
        gateway: Gateway,
        request: Request,
        record: Record,
        client: Client,
        memory: RequestMemory,
        *,
        key: str | None,
        array: bool,
    ) -> None:
        self._gateway = gateway
        self._request = request
        self._record = record
        self._client = client
        self._memory = memory
        self._key = key
        self._array = array
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._exchange: Exchange | None = None
        self._response: UpstreamResponse | None = None
        self._place: Place | None = None
        """At the upstream that is being asked."""
        self._visit: Visit | None = None
        """What this request will have to say about that upstream."""
        self._relay: Relay | None = None
        self._head_sent = False
        self._finished = False
        self._started = self._last_sent = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._stop: Stop = ""
        self._own_time = 0.0
        self._checks: tuple[ToolBook, ArgumentCheck] | None = None
        self._late: list[ToolCallComplete] = []
        """Calls to be held against their schemas when the answer is out."""
        self._request_sent = False
        self._final = False
        """The upstream said that asking again is of no use."""
        self._warnings: list[str] = []

    # -- from outside ------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Bytes that wait in this request."""
        return self._exchange.held if self._exchange is not None else 0

    def stop(self, reason: Stop) -> None:
        """End the request now; the reason decides what the client still gets."""
        if not self._stop and not self._finished and self._task is not None:
            self._stop = reason
            self._task.cancel()

    def probe(self) -> None:
        """The client may have left: send what it would pass over, so that its absence shows."""
        if self._request.stream and self._head_sent:
            self._keep_alive()

    # -- the request -------------------------------------------------------------------------------------------------------

    async def run(self, targets: tuple[Target, ...]) -> None:
        """Serve the request; every way out leaves the client with an answer, or gone."""
        self._beat()
        try:
            await self._try_targets(targets)
            if self._late:
                await self._check_late()
        except asyncio.CancelledError:
            if not self._stop or self._task is None:
                raise
            self._task.uncancel()
            self._stopped()
        except AthenaError:
            raise
        except Exception:
            if not self._head_sent:
                raise
            # The status is gone: a stream that just ended would pass for a whole answer with some clients.
            LOG.exception("request %s failed inside the gateway", self._record.request_id)
            self._break_off(_INTERNAL)
        finally:
            self._finished = True
            if self._timer is not None:
                self._timer.cancel()
            self._drop_response()
            try:
                self._settle()
            except Exception:
                # The answer is out: what is written about it can not change it any more.
                LOG.exception("request %s could not be counted", self._record.request_id)
            # Everything an answer held is free now, not when the collector next looks at old cycles.
            self._exchange = self._relay = self._task = self._timer = None

    async def _try_targets(self, targets: tuple[Target, ...]) -> None:
        gateway = self._gateway
        gateway.budget.request()
        try:
            candidates = gateway.health.candidates(targets)
        except AthenaError as none_is_up:
            self._show(self._refuse(none_is_up))
            return
        waited = 0.0
        last: Step | None = None
        for position, target in enumerate(candidates):
            more_targets = position + 1 < len(candidates)
            if more_targets and not gateway.health.is_up(target.upstream):
                continue  # by now somebody else tries whether it is back
            for attempt in range(gateway.config.retries.attempts + 1):
                last = await self._attempt(target)
                if last is None:
                    return
                error = self._exchange.error if self._exchange is not None else None
                if error is None or self._head_sent:
                    break
                delay = pause_before(error, attempt, self._record.request_id)
                may_retry = (
                    attempt < gateway.config.retries.attempts
                    and not more_targets
                    and not self._final
                    and is_retryable(error, request_sent=self._request_sent, after_timeout=gateway.config.retries.after_timeout)
                    and waited + delay <= gateway.config.retries.wait_s
                    and gateway.budget.take()
                )
                if not may_retry:
                    break
                waited += delay
                await asyncio.sleep(delay)
            error = self._exchange.error if self._exchange is not None else None
            if not (more_targets and error is not None and not self._head_sent and may_move_on(error)):
                break
        if last is not None:
            self._show(last)

    async def _attempt(self, target: Target) -> Step | None:
        """One try at one target. None: the answer went out. A step: the failure to show if nothing else is tried."""
        trial = self._gateway.learnt.trial(target, self._request, self._record.key)
        step = await self._ask(target, trial.route)
        first, refusal = step, self._exchange
        while step is not None and not self._head_sent and trial.corrects(self._exchange):
            step = await self._ask(target, trial.route)
        self._record.corrections = ",".join(trial.corrections)
        if step is None:
            trial.answered()
        elif not self._head_sent and trial.was_in_vain(self._exchange):
            # It was not what was left out after all: the first error is the one to tell.
            self._exchange, self._record.tool_mode = refusal, ""
            return first
        return step

    async def _ask(self, target: Target, route: Route) -> Step | None:
        gateway, record = self._gateway, self._record
        self._drop_response()
        record.attempts += 1
        record.upstream, record.upstream_model = target.upstream, target.model
        record.upstream_dialect = target.dialect
        self._exchange = None
        self._request_sent = self._final = False
        try:
            self._memory.building()
            request = fitted_request(self._request, target)
            options = gateway.options(record, request, target, array=self._array)
            build = partial(Exchange, request, route, options)
            heavy = record.large or len(request.tools) > _MANY_TOOLS
            exchange = await asyncio.to_thread(_warmed_up, build) if heavy else build()
            self._check_size(exchange, target)
        except (ClientError, UpstreamError) as error:
            return self._refuse(error)
        self._memory.built()
        self._exchange = exchange
        record.warnings = len(exchange.losses)
        rendered = exchange.prepared.rendered
        record.tool_mode = "prompted" if rendered is not None and rendered.plan is not None else ""
        return await self._send_upstream(target, exchange)

    async def _send_upstream(self, target: Target, exchange: Exchange) -> Step | None:
        gateway = self._gateway
        log_body("upstream request", self._record.request_id, exchange.call.body)
        try:
            self._place = await gateway.lanes.enter(target.upstream, self._record.key)
        except UpstreamError as refusal:
            return exchange.upstream_end(refusal)  # no place there: that says nothing about the upstream
        self._visit = gateway.health.visit(target.upstream)
        try:
            response = await gateway.client.send(
                "POST",
                target.origin,
                target.path(exchange.call.path),
                target.headers(exchange.call.headers, self._request, self._client.headers, self._key),
                exchange.call.body,
                target.timeouts,
                target.pool,
            )
        except UpstreamError as failure:
            step = exchange.upstream_end(failure)
            self._attempted(target, ok=False)
            self._request_sent = failure.request_sent
            return step
        self._response, self._request_sent = response, True
        self._final = response.headers.get("x-should-retry", "").lower() == "false"
        return await self._pass_on(target, exchange, response)

    def _check_size(self, exchange: Exchange, target: Target) -> None:
        warning = near_size_limit(exchange, target)
        if warning:
            self._warnings = [warning]
            LOG.warning("%s (context_limit_kb), request %s", warning, self._record.request_id)

    async def _pass_on(self, target: Target, exchange: Exchange, response: UpstreamResponse) -> Step | None:
        """Upstream bytes through the exchange to the client."""
        gateway, record = self._gateway, self._record
        exchange.upstream_head(response.status, with_relative_wait(response.headers, time.time()))
        relay = self._relay = Relay(
            self._loop,
            exchange,
            response,
            self._client,
            memory=AnswerMemory(gateway.memory, streamed=self._request.stream),
            recorder=gateway.recorder(record, self._request, self._key),
            show=self._show,
            note=self._note,
        )
        try:
            failed = await relay.run(target.timeouts)
        finally:
            record.chunks += relay.chunks
            self._own_time += relay.own_time
        if failed is not None:
            self._attempted(target, ok=not is_outage(exchange.error))
            return failed
        if not exchange.done:
            # The model is asked once more: nobody has seen what it said.
            self._drop_response()
            record.attempts += 1
            return await self._send_upstream(target, exchange)
        self._attempted(target, ok=exchange.outcome == "ok")
        if exchange.outcome == "ok" and exchange.usage is not None and not exchange.usage.estimated:
            gateway.tokens.learn(self._request, target.model, exchange.usage.input_total)
        return None

    def _refuse(self, error: AthenaError) -> Step:
        """The request can not be put to this target: an answer like any other failure, but never tried again."""
        event = error_event(error)
        answer = self._gateway.dialect_of(self._request).encode_error(event, self._record.request_id)
        self._record.error = event.code
        return Step(Head(answer.status, {"content-type": "application/json", **answer.headers}), answer.body, True)

    def _attempted(self, target: Target, *, ok: bool) -> None:
        gateway = self._gateway
        gateway.metrics.attempts.labels(target.upstream, "ok" if ok else "error").inc()
        if self._visit is None:
            return
        if is_own_limit(self._exchange.error if self._exchange is not None else None):
            self._visit.abandoned()
        else:
            self._visit.ended(ok=ok)

    # -- the client --------------------------------------------------------------------------------------------------------

    def _show(self, step: Step) -> None:
        """Write a step's head and bytes."""
        if step.head is not None and not self._head_sent:
            self._write_head(step.head, len(step.output) if step.done else None)
            self._is_answered(step.head)
        if step.done:
            self._finished = True
            self._client.finish(step.output)
        elif step.output:
            self._client.write(step.output)
        self._last_sent = self._loop.time()

    def _is_answered(self, head: Head) -> None:
        """The client gets an upstream's answer: nobody else will be asked."""
        if self._exchange is not None and self._response is not None:
            self._exchange.forget_call()
            self._memory.answering()
            if head.status == 200 and self._visit is not None:
                self._visit.answers()

    def _write_head(self, head: Head, length: int | None) -> None:
        self._head_sent = True
        now = self._loop.time()
        self._record.first_byte_ms = (now - self._started) * 1000
        self._record.status = head.status
        headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in head.headers.items()]
        headers += self._gateway.answer_headers(self._record)
        losses = self._exchange.losses if self._exchange is not None else ()
        warnings = [*self._warnings, warnings_header(losses)] if losses else self._warnings
        if warnings:
            headers.append((b"x-athena-warnings", "; ".join(warnings).encode("latin-1", "replace")))
        if head.status >= 400 and self._is_final():
            headers.append((b"x-should-retry", b"false"))
        self._client.start(head.status, headers, length)

    def _is_final(self) -> bool:
        """Is a client's own retry of no use? We retried already, the upstream said so, or its key is wrong."""
        error = self._exchange.error if self._exchange is not None else None
        if is_own_limit(error):
            return False
        return self._record.attempts > 1 or self._final or (error is not None and error.code == "upstream_auth")

    def _beat(self) -> None:
        """The clock of one request: keep-alives, the head that can wait no longer, a client that stopped reading."""
        timeouts = self._gateway.config.timeouts
        now = self._loop.time()
        blocked_since = self._relay.blocked_since if self._relay is not None else 0.0
        if blocked_since and now - blocked_since > timeouts.client_write_s:
            self.stop("client_stalled")
            return
        silent = now - self._last_sent
        due = timeouts.keep_alive_s if self._head_sent else timeouts.hold_head_s
        if self._request.stream and silent >= due and not blocked_since:
            self._keep_alive()
            silent, due = 0.0, timeouts.keep_alive_s
        next_look = min(due - silent, timeouts.keep_alive_s, timeouts.client_write_s)
        self._timer = self._loop.call_later(max(0.05, next_look), self._beat)

    def _keep_alive(self) -> None:
        exchange = self._exchange
        if exchange is None or self._finished or (self._relay is not None and self._relay.is_working) or exchange.done:
            return
        step = exchange.commit()
        if step.head is not None:
            self._write_head(step.head, None)
        if self._head_sent:
            self._last_sent = self._loop.time()
            self._client.write(step.output + exchange.keep_alive())

    def _stopped(self) -> None:
        """The request was ended from outside."""
        self._record.outcome = self._stop
        if self._stop == "shutdown":
            self._break_off(_SHUTDOWN)
        elif self._stop == "client_stalled":
            # What it did not read would be kept for as long as its connection stays.
            self._client.cut_off()

    def _break_off(self, reason: UpstreamError) -> None:
        """Tell the client, in whatever form is still open to it."""
        if self._exchange is not None and not self._exchange.done:
            self._show(self._exchange.upstream_end(reason))
        elif not self._head_sent:
            self._show(self._refuse(reason))

    # -- the books ---------------------------------------------------------------------------------------------------------

    def _note(self, events: tuple[Event, ...]) -> None:
        record = self._record
        for event in events:
            if isinstance(event, ToolCallComplete):
                record.calls += 1
                record.repairs += event.repaired
                self._check_call(event)
            elif isinstance(event, Error) and event.call is not None:
                reason = "malformed" if event.code == "malformed_call" else event.code
                self._gateway.metrics.bad_calls.labels(record.upstream, self._gateway.model_label(record), reason).inc()

    def _check_call(self, event: ToolCallComplete) -> None:
        """Count calls of tools nobody declared and arguments off their schema: how good a model is at calling."""
        if self._checks is None:
            book = ToolBook(self._request.tools)
            self._checks = book, ArgumentCheck(book, _AT_ONCE_ANSWER_STEPS)
        book, check = self._checks
        if not book.declared(event.name):
            self._count_bad("unknown_tool")
        elif event.kind != "function":
            return
        elif self._record.large or len(event.arguments) > _AT_ONCE_CHARS:
            self._late.append(event)
        else:
            verdict = check.verdict(event.name, event.arguments, _AT_ONCE_STEPS)
            if verdict.unchecked in ("steps", "answer_steps"):
                self._late.append(event)
            else:
                self._judge(verdict)

    async def _check_late(self) -> None:
        """The checks that would have kept others waiting. The client has its answer."""
        assert self._checks is not None
        check, late = ArgumentCheck(self._checks[0]), self._late
        verdicts = await asyncio.to_thread(lambda: [check.verdict(call.name, call.arguments, LATE_STEPS) for call in late])
        for verdict in verdicts:
            self._judge(verdict)

    def _judge(self, verdict: Verdict) -> None:
        if verdict.problem:
            self._count_bad("off_schema")
        if verdict.unchecked:
            self._record.unchecked_calls += 1
            self._gateway.note_unchecked(self._record, verdict.unchecked)

    def _count_bad(self, reason: str) -> None:
        self._record.bad_calls += 1
        self._gateway.metrics.bad_calls.labels(self._record.upstream, self._gateway.model_label(self._record), reason).inc()

    def _settle(self) -> None:
        record, exchange = self._record, self._exchange
        record.duration_ms = (self._loop.time() - self._started) * 1000
        if record.chunks:
            record.own_us_per_chunk = self._own_time * 1e6 / record.chunks
        if exchange is not None:
            if exchange.usage is not None:
                record.input_tokens, record.output_tokens = exchange.usage.input_total, exchange.usage.output_total
            if exchange.error is not None:
                record.error = exchange.error.code
            if exchange.defect:
                LOG.error("request %s failed inside the gateway\n%s", record.request_id, exchange.defect)
            record.outcome = record.outcome or exchange.outcome
            record.bad_records = exchange.bad_records
            record.answer_warnings = len(exchange.answer_losses)
            record.text_calls, record.format = exchange.text_calls, exchange.format_found or record.format
            record.echoes = exchange.echoes
            if record.echoes:
                self._tell_of_echoes(exchange)
        record.outcome = record.outcome or "error"
        self._gateway.settle(record, exchange)

    def _tell_of_echoes(self, exchange: Exchange) -> None:
        notes = [note for note in (*exchange.notes, exchange.error) if note is not None and note.code == "quoted_call"]
        LOG.warning(
            "request %s: %s; echo: %s; calls of this kind in the answer: %d",
            self._record.request_id, notes[0].message if notes else "a call is quoted from the request",
            exchange.echo_rule, exchange.echoes,
        )  # fmt: skip

    def _drop_response(self) -> None:
        """What is left at the upstream: the answer, the place there, and the word about it that nobody has said."""
        if self._response is not None:
            self._response.close()
            self._response = None
        if self._place is not None:
            self._place.give_back()
            self._place = None
        if self._visit is not None:
            self._visit.abandoned()
            self._visit = None


def _warmed_up(build: Callable[[], Exchange]) -> Exchange:
    exchange = build()
    exchange.warm_up()
    return exchange
