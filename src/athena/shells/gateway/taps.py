"""What the gateway itself watches: the line about each request, the numbers, and bodies at debug."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from athena.exchange import UpstreamCall
from athena.model.request import Request
from athena.serving.record import RequestRecord
from athena.serving.tap import Asked, EndTap, Tap
from athena.serving.targets import Target
from athena.shells.gateway.metrics import Metrics
from athena.shells.gateway.numbers import Distribution, Series
from athena.shells.logs import BODY_LOG, log_body, write_line
from athena.shells.stream_mask import StreamMask

LOG = logging.getLogger("athena")
_TRANSFORMATIONS_SHOWN = 200
"""Changes of one request that are written one by one: a client decides how many there are."""


class RequestLines(EndTap):
    """Writes the line about each request, and what an operator should know besides. One for all requests."""

    def __init__(self) -> None:
        self._unchecked_said: set[str] = set()
        self._asked: set[str] = set()
        """Upstreams of which it is known how their first request went."""

    def over(self, record: RequestRecord) -> None:
        details = record.details
        if details.defect:
            LOG.error("request %s failed inside the gateway\n%s", record.request_id, details.defect)
        if details.echo_note:
            LOG.warning(
                "request %s: %s; echo: %s; calls of this kind in the answer: %d",
                record.request_id, details.echo_note, details.echo_rule, record.echoes,
            )  # fmt: skip
        for reason in details.unchecked_calls:
            self._tell_unchecked(reason, record.request_id)
        write_line(record)
        self._first_answer(record)

    def _first_answer(self, record: RequestRecord) -> None:
        """Where the very first request fails, it is mostly the set-up: name the command that finds out."""
        upstream = record.upstream
        if upstream and upstream not in self._asked:
            self._asked.add(upstream)
            if record.outcome == "error":
                LOG.warning(
                    "the first request to %s failed; athena doctor --upstream %s says why (with the flags of this gateway)",
                    upstream, upstream,
                )  # fmt: skip

    def _tell_unchecked(self, reason: str, request_id: str) -> None:
        if reason not in self._unchecked_said:
            self._unchecked_said.add(reason)
            LOG.warning(
                "calls are passed on without a check of their schema (%s; first in request %s): it would take too much work",
                reason,
                request_id,
            )


class RequestNumbers(EndTap):
    """Counts each request. One for all requests."""

    def __init__(self, metrics: Metrics, model_label: Callable[[str], str]) -> None:
        self._metrics = metrics
        self._model_label = model_label
        self._routes: dict[tuple[str, str, str, str], tuple[Series, Distribution, Distribution]] = {}
        """The series that every request has, by dialect, upstream, its dialect and the outcome: all of them from configuration
        or closed lists."""

    def over(self, record: RequestRecord) -> None:
        metrics, details = self._metrics, record.details
        requests, first_byte, duration = self._route(record.dialect, record.upstream, record.upstream_dialect, record.outcome)
        requests.inc()
        first_byte.observe(record.first_byte_ms / 1000)
        duration.observe(record.duration_ms / 1000)
        for upstream, ok in details.attempts:
            metrics.attempts.labels(upstream, "ok" if ok else "error").inc()
        for judged in details.judged:
            model = self._model_label(judged.model)
            metrics.answers.labels(judged.upstream, model).inc()
            for found in judged.found:
                metrics.findings.labels(judged.upstream, model, found.finding.value, found.detail).inc()
        if record.chosen_by == "canary" and details.judged:
            first = details.judged[0]
            metrics.canaries.labels(first.upstream, self._model_label(first.model)).inc()
        if record.chunks:
            metrics.chunk_overhead.labels(record.dialect, record.upstream).observe(record.own_us_per_chunk)
        if record.input_tokens or record.output_tokens:
            source = (record.upstream, self._model_label(record.upstream_model), record.key)
            metrics.tokens.labels(*source, "input").inc(record.input_tokens)
            metrics.tokens.labels(*source, "output").inc(record.output_tokens)
        if record.calls or record.echoes or details.bad_calls:
            self._count_calls(record)
        if record.repairs:
            metrics.repairs.labels(record.format or "standard").inc(record.repairs)
        for reason, count in details.unchecked_calls.items():
            metrics.unchecked_calls.labels(record.upstream, reason).inc(count)
        if details.prompted_style:
            metrics.prompted.labels(record.upstream, details.prompted_style).inc()
        for loss in details.losses:
            metrics.losses.labels(loss.action).inc()
        for loss in details.answer_losses:
            metrics.answer_losses.labels(loss.action).inc()
        for code, count in details.notes.items():
            metrics.format_errors.labels(record.format or "standard", code).inc(count)

    def _route(
        self, dialect: str, upstream: str, upstream_dialect: str, outcome: str
    ) -> tuple[Series, Distribution, Distribution]:
        labels = (dialect, upstream, upstream_dialect, outcome)
        known = self._routes.get(labels)
        if known is None:
            metrics = self._metrics
            known = self._routes[labels] = (
                metrics.requests.labels(*labels),
                metrics.first_byte.labels(dialect, upstream),
                metrics.duration.labels(dialect, upstream),
            )
        return known

    def _count_calls(self, record: RequestRecord) -> None:
        metrics, details, model = self._metrics, record.details, self._model_label(record.upstream_model)
        for reason, count in details.bad_calls.items():
            metrics.bad_calls.labels(record.upstream, model, reason).inc(count)
        native = record.calls - record.text_calls
        if native > 0:
            metrics.calls.labels(record.upstream, model, "native").inc(native)
        if record.calls and record.text_calls:
            metrics.calls.labels(record.upstream, model, "text").inc(record.text_calls)
            if not record.tool_mode:
                metrics.leaks.labels(record.upstream, model).inc()
            metrics.detections.labels(record.format).inc()
        if record.echoes:
            metrics.echoes.labels(record.upstream, model, details.echo_rule).inc(record.echoes)


class Transformations(EndTap):
    """Writes a line for each change that a request or its answer went through (`log.transformations`). One for all requests."""

    def over(self, record: RequestRecord) -> None:
        details = record.details
        changes = [("request", loss) for loss in details.losses] + [("answer", loss) for loss in details.answer_losses]
        for side, loss in changes[:_TRANSFORMATIONS_SHOWN]:
            place = loss.path or side
            fields = {
                "request_id": record.request_id, "side": side, "path": place, "action": loss.action, "reason": loss.reason,
            }  # fmt: skip
            LOG.info(
                "request %s: %s of the %s %s: %s",
                record.request_id, place, side, loss.action, loss.reason, extra={"fields": fields},
            )  # fmt: skip
        if len(changes) > _TRANSFORMATIONS_SHOWN:
            LOG.info("request %s: and %d more changes", record.request_id, len(changes) - _TRANSFORMATIONS_SHOWN)


class DebugBodies:
    """Writes the bodies of requests and the upstream's bytes to the log, at debug."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(secrets)

    def wants_bodies(self) -> bool:
        return BODY_LOG.isEnabledFor(logging.DEBUG)

    def watch(self, record: RequestRecord, request: Request, key: str | None) -> Tap | None:
        """A tap of its own for the request, where bodies are shown."""
        if not BODY_LOG.isEnabledFor(logging.DEBUG):
            return None
        return BodyLines(record.request_id, (*self._secrets, key or ""))


class BodyLines(Tap):
    """The bodies of one request. Each piece of a stream is a line of its own, and a secret may be cut into pieces."""

    sees_bytes = True
    sees_events = False

    def __init__(self, request_id: str, secrets: tuple[str, ...]) -> None:
        self._request_id = request_id
        self._secrets = secrets
        self._mask: StreamMask | None = None

    def asked(self, asked: Asked) -> None:
        if asked.body:
            log_body("client request", self._request_id, asked.body)

    def sent(self, target: Target, call: UpstreamCall, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        log_body("upstream request", self._request_id, call.body)

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        self._mask = StreamMask(self._secrets)

    def upstream_bytes(self, data: bytes, now: float) -> None:
        if self._mask is not None and (shown := self._mask.feed(data)):
            log_body("upstream answer", self._request_id, shown)

    def answered(self) -> None:
        mask, self._mask = self._mask, None
        if mask is not None and (rest := mask.close()):
            log_body("upstream answer", self._request_id, rest)

    def over(self, record: RequestRecord) -> None:
        self.answered()
