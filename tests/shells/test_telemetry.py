"""Traces for OpenTelemetry: what a collector gets over its own protocol, and what upstreams are told of the trace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from athena.serving.trace import new_trace, passed_on
from support.fault_judge import ask_raw
from support.gateway_process import running_gateway
from support.patience import PATIENCE, until
from support.plain_upstream import PlainUpstream, Reply

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PROMPT = "Hi"
ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A secret answer."}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}


class Collector:
    """Takes OTLP over HTTP and keeps the spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.keys: list[str] = []
        self.raw = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.raw += body
                collector.keys.append(self.headers.get("x-collector-key", ""))
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans.extend(scope.spans)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                """Nothing: the test has its own eyes."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def upstream() -> Iterator[PlainUpstream]:
    table = {"/good/v1/chat/completions": Reply(ANSWER), "/bad/v1/chat/completions": Reply({"error": {"message": "no"}}, 503)}
    with PlainUpstream(table) as made:
        yield made


def _config(upstream: PlainUpstream, **settings: Any) -> dict[str, Any]:
    return {
        "upstreams": {name: {"base_url": f"{upstream.url}/{name}/v1", "dialect": "openai_chat"} for name in ("bad", "good")},
        "models": [{"match": "*", "use": "bad/one", "fallback": ["good/two"]}],
        "retries": {"attempts": 0},
        **settings,
    }


def _told(span: Span) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value") or "") for item in span.attributes}


def test_a_request_and_its_attempts_are_spans(collector: Collector, upstream: PlainUpstream, tmp_path: Path) -> None:
    telemetry = {"endpoint": collector.url, "headers": {"x-collector-key": "open sesame"}}
    with running_gateway(_config(upstream, telemetry=telemetry), tmp_path) as running:
        parent = f"traceparent: 00-{TRACE}-{CALLER}-01"
        answer = ask_raw(running.port, "anthropic_messages", "asked", parent, "tracestate: a=1", stream=False)
        assert answer.status == 200
        unsampled = f"traceparent: 00-{TRACE}-{CALLER}-00"
        assert ask_raw(running.port, "openai_chat", "asked", unsampled, stream=False).status == 200
    # The gateway is closed: what it had to export is out.
    until = time.monotonic() + PATIENCE
    while len(collector.spans) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    assert collector.keys[0] == "open sesame"
    assert PROMPT.encode() not in collector.raw
    assert b"secret answer" not in collector.raw
    by_kind = {(span.kind, _told(span).get("athena.upstream")): span for span in collector.spans}
    request = by_kind[Span.SPAN_KIND_SERVER, "good"]
    bad, good = by_kind[Span.SPAN_KIND_CLIENT, "bad"], by_kind[Span.SPAN_KIND_CLIENT, "good"]
    assert len(collector.spans) == 3
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert request.parent_span_id.hex() == CALLER
    assert bad.parent_span_id == good.parent_span_id == request.span_id
    assert request.start_time_unix_nano <= bad.start_time_unix_nano <= good.start_time_unix_nano
    assert good.end_time_unix_nano <= request.end_time_unix_nano + 1_000_000
    assert _told(bad)["http.response.status_code"] == 503
    assert _told(bad)["error.type"] == "503"
    assert bad.status.code == 2
    told = _told(request)
    assert request.name == "chat asked"
    assert (told["gen_ai.request.model"], told["gen_ai.response.model"]) == ("asked", "two")
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (7, 3)
    assert told["url.path"] == "/v1/messages"
    assert _told(good)["url.full"] == f"{upstream.url}/good/v1/chat/completions"
    # Each upstream was told of the span of its own attempt.
    for span, asked in zip((bad, good), upstream.visits[:2], strict=True):
        assert asked.headers["traceparent"] == f"00-{TRACE}-{span.span_id.hex()}-01"
        assert asked.headers["tracestate"] == "a=1"
    assert upstream.visits[2].headers["traceparent"].endswith("-00")


def test_without_a_collector_the_clients_trace_is_passed_on(upstream: PlainUpstream, tmp_path: Path) -> None:
    with running_gateway(_config(upstream), tmp_path) as running:
        parent = f"00-{TRACE}-{CALLER}-01"
        ask_raw(running.port, "openai_chat", "asked", f"traceparent: {parent}", stream=False)
        ask_raw(running.port, "openai_chat", "asked", "traceparent: nonsense", stream=False)
    first, *_, last = upstream.visits
    assert first.headers["traceparent"] == parent
    assert "traceparent" not in last.headers


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "nonsense",
        f"ff-{TRACE}-{CALLER}-01",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{CALLER}-01",
    ],
)
def test_a_malformed_parent_begins_a_new_trace(parent: str) -> None:
    made = new_trace({"traceparent": parent, "tracestate": "a=1"}, bytes(range(1, 25)))
    assert (made.trace_id, made.parent_id, made.state) == (bytes(range(1, 17)).hex(), "", "")
    assert made.is_sampled
    assert passed_on({"traceparent": parent}) == []


def test_later_versions_of_the_header_are_read() -> None:
    made = new_trace({"traceparent": f"01-{TRACE}-{CALLER}-03-more"}, bytes(24))
    assert (made.trace_id, made.parent_id, made.flags) == (TRACE, CALLER, "03")


def test_a_collector_that_is_away_touches_no_answer(upstream: PlainUpstream, tmp_path: Path) -> None:
    with running_gateway(_config(upstream, telemetry={"endpoint": "http://127.0.0.1:9"}), tmp_path) as running:
        for _ in range(3):
            assert ask_raw(running.port, "openai_chat", "asked", stream=False).status == 200
        before = {thread for thread in threading.enumerate() if "Otel" in thread.name}
    assert before, "the exporter works in a thread of its own"
    assert until(lambda: not any(thread.is_alive() for thread in before)), "it goes on trying after the gateway has ended"
