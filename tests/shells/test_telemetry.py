"""Traces for OpenTelemetry: what a collector gets over its own protocol, and what upstreams are told of the trace."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from athena.serving.trace import new_trace, passed_on
from support.config_file import load_config
from support.fault_judge import ask_raw, read_answer, request_bytes, send
from support.gateway_process import running_gateway
from support.patience import PATIENCE, until
from support.plain_upstream import PlainUpstream, Reply

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
REMOTE_PARENT = 0x200
"""Of a span's flags: its parent is another service's."""
PROMPT = "Hi"
ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A secret answer."}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}},
}


Mood = Literal["takes all", "takes a part", "refuses", "resets", "is slow"]


class Collector:
    """Takes OTLP over HTTP and keeps the spans, if it is in the mood."""

    def __init__(self) -> None:
        self.mood: Mood = "takes all"
        self.closing = threading.Event()
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
                if collector.mood == "is slow":
                    collector.closing.wait(PATIENCE)
                if collector.mood == "resets":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                answer = ExportTraceServiceResponse()
                if collector.mood == "takes a part":
                    answer.partial_success.rejected_spans = 1
                    answer.partial_success.error_message = "too many"
                said = answer.SerializeToString()
                self.send_response(400 if collector.mood == "refuses" else 200)
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *words: Any) -> None:
                """Nothing: the test has its own eyes."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
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


def test_the_collectors_address_may_have_the_path_of_traces(tmp_path: Path) -> None:
    for given in ("http://127.0.0.1:4318", "http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"):
        config = load_config({"base_url": "http://127.0.0.1:9/v1", "telemetry": {"endpoint": given}}, tmp_path)
        assert config.telemetry.endpoint == "http://127.0.0.1:4318"


def _config(upstream: PlainUpstream, **settings: Any) -> dict[str, Any]:
    return {
        "upstreams": {name: {"base_url": f"{upstream.url}/{name}/v1", "dialect": "openai_chat"} for name in ("bad", "good")},
        "models": [{"match": "*", "use": "bad/one", "fallback": ["good/two"]}],
        "retries": {"attempts": 0},
        **settings,
    }


def _told(span: Span) -> dict[str, Any]:
    return {item.key: _value(item.value) for item in span.attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value") or ""
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


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
    assert bad.end_time_unix_nano <= good.start_time_unix_nano
    assert good.end_time_unix_nano <= request.end_time_unix_nano + 1_000_000
    assert _told(bad)["http.response.status_code"] == 503
    assert _told(bad)["error.type"] == "503"
    assert bad.status.code == 2
    told = _told(request)
    assert request.name == "chat asked"
    assert (told["gen_ai.request.model"], _told(good)["gen_ai.request.model"]) == ("asked", "two")
    for span in (request, good):
        answered = _told(span)
        assert (answered["gen_ai.response.model"], answered["gen_ai.response.id"]) == ("m", "c1")
        assert answered["gen_ai.response.finish_reasons"] == ["stop"]
    assert "gen_ai.response.model" not in _told(bad)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (7, 3)
    assert told["gen_ai.usage.cache_read.input_tokens"] == 4
    assert "gen_ai.request.stream" not in told
    assert {span.trace_state for span in collector.spans} == {"a=1"}
    assert [span.flags & REMOTE_PARENT for span in (request, bad, good)] == [REMOTE_PARENT, 0, 0]
    assert told["url.path"] == "/v1/messages"
    assert _told(good)["url.full"] == f"{upstream.url}/good/v1/chat/completions"
    # Each upstream was told of the span of its own attempt.
    for span, asked in zip((bad, good), upstream.visits[:2], strict=True):
        assert asked.headers["traceparent"] == f"00-{TRACE}-{span.span_id.hex()}-01"
        assert asked.headers["tracestate"] == "a=1"
    assert upstream.visits[2].headers["traceparent"].endswith("-00")


def _asked(port: int, path: str, body: bytes, *headers: str) -> int:
    with send(port, request_bytes(path, body, *headers)) as sock:
        return read_answer(sock).status


def test_a_stream_says_when_it_began(collector: Collector, upstream: PlainUpstream, tmp_path: Path) -> None:
    chunk = b'data: {"id":"c9","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%b}]}\n\n'
    call = b'{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"get_weather","arguments":"{}"}}]}'
    pieces = (chunk % call, chunk % b'{},"finish_reason":"tool_calls"', b"data: [DONE]\n\n")
    upstream.table["/good/v1/chat/completions"] = Reply(pieces=pieces, kind="text/event-stream")
    with running_gateway(_config(upstream, telemetry={"endpoint": collector.url}), tmp_path) as running:
        assert ask_raw(running.port, "openai_chat", "asked", stream=True).status == 200
    assert until(lambda: len(collector.spans) == 3)
    told = _told(collector.spans[-1])
    assert told["gen_ai.request.stream"] is True
    assert type(told["gen_ai.response.time_to_first_chunk"]) is float
    assert told["gen_ai.response.time_to_first_chunk"] == told["athena.first_byte_ms"] / 1000
    assert told["gen_ai.response.finish_reasons"] == ["tool_call"]


def test_what_is_passed_through_or_refused_has_spans(collector: Collector, upstream: PlainUpstream, tmp_path: Path) -> None:
    upstream.table["/bad/v1/embeddings"] = Reply({"data": []})
    config = _config(upstream, telemetry={"endpoint": collector.url})
    with running_gateway(config, tmp_path) as running:
        parent = f"traceparent: 00-{TRACE}-{CALLER}-01"
        assert _asked(running.port, "/v1/embeddings", b'{"model":"e","input":"x"}', parent) == 200
        assert _asked(running.port, "/v1/chat/completions", b"{", parent) == 400
        assert _asked(running.port, "/v1/messages/count_tokens", b'{"model":"e","messages":[]}', parent) in (200, 400)
    assert until(lambda: len(collector.spans) >= 3)
    attempt, embedding, refused = collector.spans[:3]
    assert embedding.parent_span_id.hex() == refused.parent_span_id.hex() == CALLER
    assert attempt.parent_span_id == embedding.span_id
    assert (attempt.name, embedding.name, refused.name) == ("embeddings one", "embeddings e", "POST")
    assert upstream.visits[0].headers["traceparent"] == f"00-{TRACE}-{attempt.span_id.hex()}-01"
    told = _told(refused)
    assert (told["error.type"], told["http.response.status_code"]) == ("invalid_json", 400)
    assert "gen_ai.operation.name" not in told
    assert sum(f"'trace_id': '{TRACE}'" in line for line in running.logs.lines if "'error': 'invalid_json'" in line) == 1


def test_no_span_holds_a_key(collector: Collector, upstream: PlainUpstream, tmp_path: Path) -> None:
    key = "sk-ant-api03-0123456789abcdefghijklmnop"
    config = _config(upstream, telemetry={"endpoint": collector.url, "headers": {"x-collector-key": "open sesame"}})
    config["upstreams"]["good"]["api_key"] = "only-known-by-its-text"
    upstream.table["/good/v1/chat/completions"] = Reply({**ANSWER, "model": key})
    with running_gateway(config, tmp_path) as running:
        for model in (key, "only-known-by-its-text"):
            assert ask_raw(running.port, "openai_chat", model, f"authorization: Bearer {key}", stream=False).status == 200
        assert _asked(running.port, f"/v1/{key}?key={key}", b"{}") == 404
    assert until(lambda: len(collector.spans) >= 7)
    for secret in (key, "only-known-by-its-text", "open sesame"):
        assert secret.encode() not in collector.raw


@pytest.mark.parametrize("mood", ["refuses", "resets", "is slow", "takes a part"])
def test_what_a_collector_does_touches_no_answer(
    mood: Mood, collector: Collector, upstream: PlainUpstream, tmp_path: Path
) -> None:
    collector.mood = mood
    with running_gateway(_config(upstream, telemetry={"endpoint": collector.url}), tmp_path) as running:
        for _ in range(3):
            assert ask_raw(running.port, "openai_chat", "asked", stream=False).status == 200
    assert collector.raw, "it was asked"
    if mood == "refuses":
        assert any("Failed to export" in line and collector.url in line for line in running.logs.lines)


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
        f"00-{TRACE}-{CALLER}-01-more",
    ],
)
def test_a_malformed_parent_begins_a_new_trace(parent: str) -> None:
    made = new_trace({"traceparent": parent, "tracestate": "a=1"}, bytes(range(1, 25)))
    assert (made.trace_id, made.parent_id, made.state) == (bytes(range(1, 17)).hex(), "", "")
    assert made.is_sampled
    assert passed_on({"traceparent": parent}) == []


def test_later_versions_of_the_header_are_read() -> None:
    made = new_trace({"traceparent": f"01-{TRACE}-{CALLER}-ff-more"}, bytes(24))
    assert (made.trace_id, made.parent_id) == (TRACE, CALLER)
    assert made.flags == "03", "flags whose meaning is not known are not passed on"


def test_a_collector_that_is_away_touches_no_answer(upstream: PlainUpstream, tmp_path: Path) -> None:
    with running_gateway(_config(upstream, telemetry={"endpoint": "http://127.0.0.1:9"}), tmp_path) as running:
        for _ in range(3):
            assert ask_raw(running.port, "openai_chat", "asked", stream=False).status == 200
        before = {thread for thread in threading.enumerate() if "Otel" in thread.name}
    assert before, "the exporter works in a thread of its own"
    assert until(lambda: not any(thread.is_alive() for thread in before)), "it goes on trying after the gateway has ended"
