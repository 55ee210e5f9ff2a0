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
        """Where the very first request fails, it is mostly the set-up: name the command that finds out. What the gateway
        refused by itself says nothing about an upstream."""
        upstream = record.upstream
        if upstream and record.attempts and upstream not in self._asked:
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
        self._usual: dict[tuple[str, ...], _UsualSeries] = {}
        """By the client's dialect, the upstream, its dialect, the outcome, the model's label and the key's name: all of them
        from configuration or closed lists."""

    def over(self, record: RequestRecord) -> None:
        metrics, details = self._metrics, record.details
        judged = details.judged
        if (
            len(judged) == 1
            and not judged[0].found
            and judged[0].model == record.upstream_model
            and details.attempts == [(record.upstream, True)]
            and record.chosen_by != "canary"
        ):
            model = self._model_label(record.upstream_model)
            labels = (record.dialect, record.upstream, record.upstream_dialect, record.outcome, model, record.key)
            usual = self._usual.get(labels)
            if usual is None:
                usual = self._usual[labels] = _UsualSeries(metrics, labels)
            usual.count(record)
        else:
            self._count_each(record)
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

    def _count_each(self, record: RequestRecord) -> None:
        """What `_UsualSeries` counts, for a request of which not all of it can be said, or more."""
        metrics, details = self._metrics, record.details
        metrics.requests.labels(record.dialect, record.upstream, record.upstream_dialect, record.outcome).inc()
        metrics.first_byte.labels(record.dialect, record.upstream).observe(record.first_byte_ms / 1000)
        metrics.duration.labels(record.dialect, record.upstream).observe(record.duration_ms / 1000)
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


class _UsualSeries:
    """The series in which a usual request is counted: one answer of one upstream, with nothing wrong."""

    __slots__ = (
        "_answers",
        "_attempts",
        "_duration",
        "_first_byte",
        "_labels",
        "_metrics",
        "_overhead",
        "_requests",
        "_tokens",
    )

    def __init__(self, metrics: Metrics, labels: tuple[str, str, str, str, str, str]) -> None:
        """`labels` are those of `RequestNumbers`."""
        self._metrics = metrics
        self._labels = labels
        dialect, upstream, upstream_dialect, outcome, model, _ = labels
        self._requests = metrics.requests.labels(dialect, upstream, upstream_dialect, outcome)
        self._first_byte = metrics.first_byte.labels(dialect, upstream)
        self._duration = metrics.duration.labels(dialect, upstream)
        self._attempts = metrics.attempts.labels(upstream, "ok")
        self._answers = metrics.answers.labels(upstream, model)
        self._overhead: Distribution | None = None
        self._tokens: tuple[Series, Series] | None = None
        """A series that nothing is counted in is not shown: these are made when they are needed."""

    def count(self, record: RequestRecord) -> None:
        """One more such request."""
        self._requests.inc()
        self._first_byte.observe(record.first_byte_ms / 1000)
        self._duration.observe(record.duration_ms / 1000)
        self._attempts.inc()
        self._answers.inc()
        if record.chunks:
            if self._overhead is None:
                self._overhead = self._metrics.chunk_overhead.labels(*self._labels[:2])
            self._overhead.observe(record.own_us_per_chunk)
        if record.input_tokens or record.output_tokens:
            if self._tokens is None:
                _, upstream, _, _, model, key = self._labels
                tokens = self._metrics.tokens.labels
                self._tokens = (tokens(upstream, model, key, "input"), tokens(upstream, model, key, "output"))
            self._tokens[0].inc(record.input_tokens)
            self._tokens[1].inc(record.output_tokens)


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
            log_body("client request", self._request_id, self._masked(asked.body))

    def sent(self, target: Target, call: UpstreamCall, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        log_body("upstream request", self._request_id, self._masked(call.body))

    def _masked(self, body: bytes) -> bytes:
        mask = StreamMask(self._secrets)
        return mask.feed(body) + mask.close()

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
