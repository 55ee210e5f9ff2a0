"""Traces for OpenTelemetry: one span for each request, one below it for each attempt, exported by OTLP.

The spans are made when a request is over, from the times that were noted on its way, and in a thread of their own, so no answer
waits for them; the exporter's thread sends them. They hold names, counts and times, and never a word of a prompt or an answer.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Iterable, Mapping

import msgspec

from athena import __version__
from athena.errors import AthenaError, ConfigError
from athena.exchange import UpstreamCall
from athena.model.request import Request
from athena.serving.record import RequestRecord, Said
from athena.serving.tap import Asked, Tap
from athena.serving.targets import Target
from athena.serving.trace import Trace, new_trace
from athena.shells.config import Telemetry
from athena.shells.logs.redactor import Redactor

try:
    from opentelemetry import trace as otel
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace.span import TraceState
except ImportError as missing:
    raise ConfigError(
        "telemetry.endpoint needs the OpenTelemetry packages: pip install 'athena-gateway[otel]'", code="missing_extra"
    ) from missing

LOG = logging.getLogger("athena")
_NANOSECONDS = 1_000_000_000
_EXPORT_TIMEOUT_S = 10
_FAREWELL_S = 2
_MOST_WAITING = 2048
"""Requests whose spans are still to be made; further ones have none."""
_GATHER_S = 0.02
"""The thread that makes spans sleeps for so long: to wake it for each request would cost more than most spans."""
_PROVIDERS = {"anthropic_messages": "anthropic", "gemini": "gcp.gemini"}
"""What the conventions call the family of an upstream's API; all others speak OpenAI's."""
_FINISHES = {"tool": "tool_call", "refusal": "content_filter", "filter": "content_filter", "context": "length"}
"""The conventions' words for the reasons that have another one here."""
_EXPORTER_LOG = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
Value = str | int | float | tuple[str, ...]


class _GivenIds(IdGenerator):
    """Ids that were chosen when the request came, because upstreams were told of them."""

    def __init__(self) -> None:
        self.trace_id = 0
        self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Attempt(msgspec.Struct):
    target: Target
    url: str
    began: float
    ended: float = 0.0
    status: int = 0
    failure: str = ""


class Traces:
    """Watches requests and exports their spans. One for all requests of a process."""

    def __init__(self, settings: Telemetry, secrets: Iterable[str] = ()) -> None:
        """No span holds one of these secrets, nor what looks like one."""
        self.redact = Redactor(secrets)
        self._ids = _GivenIds()
        resource = Resource.create({"service.name": settings.service, "service.version": __version__})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(
            endpoint=settings.endpoint.rstrip("/") + "/v1/traces",
            headers={name: value.reveal() for name, value in settings.headers.items()},
            timeout=_EXPORT_TIMEOUT_S,
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("athena", __version__)
        self._endpoint = settings.endpoint
        _EXPORTER_LOG.addFilter(self._name_collector)
        self._over: queue.SimpleQueue[tuple[_Span, RequestRecord] | None] = queue.SimpleQueue()
        self._maker = threading.Thread(target=self._make_spans, name="athena-spans", daemon=True)
        self._maker.start()

    def wants_bodies(self) -> bool:
        """Never: spans hold no words."""
        return False

    def begin(self, record: RequestRecord, headers: Mapping[str, str]) -> None:
        """Give a request with these headers its place in a trace, once."""
        if record.trace is None:
            record.trace = new_trace(headers, os.urandom(24))
            record.trace_id = record.trace.trace_id

    def watch(self, record: RequestRecord, request: Request, key: str | None) -> Tap | None:
        """A tap for each request that belongs to a trace which is kept."""
        return self.span_of(record)

    def span_of(self, record: RequestRecord) -> Tap | None:
        """The same for a request that nothing more is known of."""
        return _Span(self, record.trace) if record.trace is not None and record.trace.is_sampled else None

    def _name_collector(self, line: logging.LogRecord) -> bool:
        """The exporter's lines say what went wrong, and not where."""
        line.fields = {"collector": self._endpoint}
        return True

    def close(self) -> None:
        """Send what is waiting, and end. A collector that is away is waited for no longer than `_FAREWELL_S`, then given up."""
        self._over.put(None)
        sending = threading.Thread(target=self._send_rest, name="athena-traces", daemon=True)
        sending.start()
        sending.join(_FAREWELL_S)
        if sending.is_alive():
            # It would try again for as long as its time limit allows.
            self._exporter.shutdown()  # type: ignore[no-untyped-call]
            sending.join(_FAREWELL_S)
        _EXPORTER_LOG.removeFilter(self._name_collector)

    def _send_rest(self) -> None:
        self._maker.join()
        self._provider.shutdown()

    def over(self, span: _Span, record: RequestRecord) -> None:
        """Have the spans of a request made. It does not change any more."""
        if self._over.qsize() < _MOST_WAITING:
            self._over.put((span, record))

    def _make_spans(self) -> None:
        while (done := self._over.get()) is not None:
            span, record = done
            try:
                span.export(record)
            except Exception:
                LOG.exception("request %s could not be traced", record.request_id)
            if self._over.empty():
                time.sleep(_GATHER_S)

    def span(
        self,
        name: str,
        kind: otel.SpanKind,
        trace: Trace,
        span_id: str,
        parent_id: str,
        times: tuple[float, float],
        failure: str,
        attributes: Mapping[str, Value],
    ) -> None:
        """Make one span that is over. Attributes without a value are left out."""
        self._ids.trace_id, self._ids.span_id = int(trace.trace_id, 16), int(span_id, 16)
        context = None
        if parent_id:
            parent = otel.SpanContext(
                int(trace.trace_id, 16),
                int(parent_id, 16),
                is_remote=parent_id == trace.parent_id,
                trace_flags=otel.TraceFlags(int(trace.flags, 16)),
                trace_state=TraceState.from_header([trace.state]),
            )
            context = otel.set_span_in_context(otel.NonRecordingSpan(parent))
        began, ended = (int(moment * _NANOSECONDS) for moment in times)
        known = {name: value for name, value in attributes.items() if value}
        span = self._tracer.start_span(name.strip(), context, kind, known, start_time=began)
        if failure:
            span.set_attribute("error.type", failure)
            span.set_status(otel.StatusCode.ERROR)
        span.end(ended)


class _Span(Tap):
    """Notes when things happened to one request, and makes its spans at the end."""

    def __init__(self, traces: Traces, trace: Trace) -> None:
        self._traces = traces
        self._trace = trace
        self._attempts: list[_Attempt] = []
        self._offset = 0.0
        """What turns the driver's clock into the time of day."""
        self._began = 0.0
        self._method = ""

    def asked(self, asked: Asked) -> None:
        self._offset, self._began, self._method = asked.wall - asked.now, asked.wall, asked.method

    def sent(self, target: Target, call: UpstreamCall, path: str, headers: list[tuple[bytes, bytes]], now: float) -> None:
        if self._attempts and not self._attempts[-1].ended:
            # Its answer was to be made once more, or said before its end that it failed.
            self._attempts[-1].ended = now + self._offset
        self._attempts.append(_Attempt(target, target.url(path), now + self._offset))

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        self._attempts[-1].status = status

    def upstream_end(self, failure: AthenaError | None, now: float) -> None:
        if self._attempts:
            attempt = self._attempts[-1]
            attempt.ended = now + self._offset
            attempt.failure = failure.code if failure is not None else ""

    def over(self, record: RequestRecord) -> None:
        self._traces.over(self, record)

    def export(self, record: RequestRecord) -> None:
        """Make the spans of the request and of its attempts."""
        trace, traces = self._trace, self._traces
        ended = self._began + record.duration_ms / 1000
        operation, said = _operation(record.path), record.details.said or Said()
        answer: dict[str, Value] = {
            "gen_ai.response.id": said.id,
            "gen_ai.response.model": traces.redact(said.model),
            "gen_ai.response.finish_reasons": tuple([_FINISHES.get(kind, kind) for kind in said.finishes]),
        }
        if self._attempts and record.outcome == "error" and not record.details.defect:
            # What was wrong with an answer that came whole is known to the request alone.
            self._attempts[-1].failure = self._attempts[-1].failure or record.error
        for number, attempt in enumerate(self._attempts, 1):
            target, model = attempt.target, traces.redact(attempt.target.model)
            failure = str(attempt.status) if attempt.status >= 400 else attempt.failure
            traces.span(
                f"{operation} {model}",
                otel.SpanKind.CLIENT,
                trace,
                trace.attempt_id(number),
                trace.span_id,
                (attempt.began, attempt.ended or ended),
                failure=failure,
                attributes={
                    "gen_ai.operation.name": operation,
                    "gen_ai.provider.name": _PROVIDERS.get(target.dialect, "openai"),
                    "gen_ai.request.model": model,
                    "gen_ai.request.stream": record.stream,
                    "server.address": target.origin.host,
                    "server.port": target.origin.port,
                    "url.full": traces.redact(attempt.url),
                    "http.request.method": "POST",
                    "http.request.resend_count": number - 1,
                    "http.response.status_code": attempt.status,
                    "athena.upstream": target.upstream,
                    "athena.upstream.dialect": target.dialect,
                    **(answer if number == len(self._attempts) else {}),
                },
            )
        # A request that names no model was refused before it was one of these operations.
        model = traces.redact(record.model)
        about_model: dict[str, Value] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": _PROVIDERS.get(record.upstream_dialect or record.dialect, "openai"),
            "gen_ai.request.model": model,
            "gen_ai.request.stream": record.stream,
            **answer,
            **_usage(record),
        }
        if record.stream:
            about_model["gen_ai.response.time_to_first_chunk"] = record.first_byte_ms / 1000
        traces.span(
            f"{operation} {model}" if model else self._method,
            otel.SpanKind.SERVER,
            trace,
            trace.span_id,
            trace.parent_id,
            (self._began, ended),
            failure=record.error or ("" if record.outcome in ("ok", "client_closed") else record.outcome),
            attributes={
                **(about_model if model else {}),
                "http.request.method": self._method,
                "http.response.status_code": record.status,
                "url.path": traces.redact(record.path),
                "athena.request_id": record.request_id,
                "athena.outcome": record.outcome,
                "athena.client.dialect": record.dialect,
                "athena.key": record.key,
                "athena.upstream": record.upstream,
                "athena.format": record.format,
                "athena.calls": record.calls,
                "athena.calls.text": record.text_calls,
                "athena.calls.repaired": record.repairs,
                "athena.calls.bad": record.bad_calls,
                "athena.calls.quoted": record.echoes,
                "athena.first_byte_ms": record.first_byte_ms,
            },
        )


def _operation(path: str) -> str:
    """The conventions' word for what a path is asked for."""
    last = path.rpartition("/")[2]
    if "embed" in last.lower():
        return "embeddings"
    return "text_completion" if last == "completions" and not path.endswith("chat/completions") else "chat"


def _usage(record: RequestRecord) -> dict[str, Value]:
    usage = record.details.usage
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input_total,
        "gen_ai.usage.output_tokens": usage.output_total,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
