"""A user's program over the whole public surface, for type checkers to judge and for a test to run.

Every `assert_type` is what a user's editor shows. No ignore and no cast stands here: a user would need it too.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

import httpx
import httpx2

import athena
from athena.asgi import create_app
from athena.batch import Outcome, spark_schema
from athena.errors import AthenaError, ConfigError, InvalidRequest
from athena.model.parts import ToolCall
from athena.model.request import Loss, Tool
from athena.shells.config import Config
from athena.testing import ReplayedRequest, ReplayedUpstream, replayed_upstream
from athena.transport import AsyncTransport, Transport

TOOL: dict[str, Any] = {"name": "get_time", "parameters": {"type": "object", "properties": {"tz": {"type": "string"}}}}
TEXT = 'Look.<tool_call>{"name": "get_time", "arguments": {"tz": "UTC"}}</tool_call>'
CHUNK = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'


def parsing() -> str:
    parsed = athena.parse(TEXT, model="Qwen/Qwen2.5-7B", tools=[TOOL, Tool(name="other")], repair="schema")
    assert_type(parsed, athena.Parsed)
    assert_type(parsed.calls, tuple[ToolCall, ...])
    assert_type(parsed.errors, tuple[athena.Error, ...])
    assert_type(athena.parse(TEXT, untrusted=[TEXT], echo="text").calls, tuple[ToolCall, ...])
    assert_type(athena.detect_format("kimi-k2"), str)
    assert_type(athena.render_calls(parsed.calls, format="hermes"), str)
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write('id = "acme"\n[call]\nbody = "json"\nbegin = "<tool_call>"\nend = "</tool_call>"\n')
        file.flush()
        known = athena.load_format(file.name)
    assert_type(known, athena.FormatDescription)
    assert_type(athena.parse(TEXT, format=known).calls, tuple[ToolCall, ...])
    assert_type(known.to_toml(), str)
    assert_type(athena.render_tools([TOOL], format="hermes"), str)
    assert_type(athena.render_result({"id": "1", "content": "noon"}, format="hermes"), str)
    for outcome in athena.parse_batch([{"text": TEXT, "untrusted": ["a page"]}], echo="error"):
        assert_type(outcome, Outcome)
        assert_type(outcome["tool_calls"][0]["arguments"], str)
    assert_type(spark_schema(), str)
    return parsed.calls[0].arguments


def describe(event: athena.Event) -> str:
    match event:
        case athena.TextDelta(text=text) | athena.ThinkingDelta(text=text):
            return text
        case athena.ToolCallStart(name=name):
            return name
        case athena.ToolCallDelta(arguments=arguments) | athena.ToolCallComplete(arguments=arguments):
            return arguments
        case athena.Done(finish=finish):
            return finish.kind
        case athena.Error(message=message):
            return message
        case _:
            return ""


def streaming() -> list[str]:
    parser = athena.Parser("hermes", tools=[TOOL], untrusted=("a page",), echo="allow")
    assert_type(parser.notes, list[athena.Error])
    events = parser.feed(TEXT) + parser.close()
    assert_type(events, list[athena.Event])
    answer = athena.fold([*events, athena.Done(athena.Finish("tool"))])
    assert_type(answer, athena.Answer)
    assert_type(answer.finish, athena.Finish | None)
    stream = athena.events_from([CHUNK], dialect="openai_chat")
    assert_type(stream, athena.EventStream)
    assert_type(iter(stream), Iterator[athena.Event])
    assert_type(stream.read(), athena.Answer)
    builder = athena.AnswerBuilder()
    builder.feed(events)
    encoder = athena.StreamEncoder("gemini", model="m")
    assert_type(encoder.feed(events) + encoder.close(), bytes)
    assert_type(athena.encode_answer(answer, "anthropic_messages"), dict[str, Any])
    return [describe(event) for event in events]


async def asynchronous(source: AsyncIterator[bytes]) -> athena.Answer:
    async with athena.events_from(source, dialect="openai_chat") as stream:
        async for event in stream:
            assert_type(event, athena.Event)
        return stream.answer()


def tracking() -> list[ToolCall]:
    tracker = athena.ToolCallTracker()
    start = tracker.start_call("call_1", "get_time", provider_id=0)
    assert_type(start, athena.ToolCallStart | None)
    assert_type(tracker.append_args(0, "{}"), athena.ToolCallDelta | None)
    assert_type(tracker.complete_call(0), athena.ToolCallComplete | athena.Error | None)
    assert_type(tracker.warnings, list[str])
    return tracker.into_calls()


def translating() -> bytes:
    request = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    translated = athena.translate_request(request, source="anthropic_messages", target="openai_chat", profile="vllm")
    assert_type(translated, athena.Translated)
    assert_type(translated.warnings, tuple[Loss, ...])
    translator = athena.StreamTranslator(source="openai_chat", target="anthropic_messages", request=request, echo="text")
    assert_type(translator.warnings, tuple[Loss, ...])
    written = translator.feed(CHUNK) + translator.close()
    assert_type(translator.error, athena.Error | None)
    assert_type(translator.warnings, tuple[Loss, ...])
    try:
        athena.translate_response({"error": {"message": "no"}}, source="openai_chat", target="gemini")
    except AthenaError as error:
        assert_type(error.code, str)
        assert_type(error.status, int | None)
        assert_type(error.retry_after, float | None)
    return written


def adapting() -> athena.ExtractedCalls:
    adapter = athena.ToolAdapter(policy="collect_then_stop", reask=True)
    adapted = adapter.transform_request({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
    assert_type(adapted, athena.AdaptedRequest)
    assert_type(adapter.stream([CHUNK], adapted), Iterator[bytes])
    return adapter.extract('[{"name": "get_time", "parameters": {}}]', [Tool(name="get_time")])


def clients() -> list[object]:
    """The transports go into both libraries' clients."""
    settings = {"base_url": "http://127.0.0.1:9/v1"}
    return [
        httpx2.Client(transport=Transport(**settings)),
        httpx2.AsyncClient(transport=AsyncTransport(**settings)),
        httpx.Client(transport=Transport(**settings)),
        httpx.AsyncClient(transport=AsyncTransport(**settings)),
    ]


def refused() -> str:
    try:
        create_app(Config())
        athena.translate_request({}, source="openai_chat", target="gemini")
    except (ConfigError, InvalidRequest) as error:
        return error.path
    return ""


def testing() -> int:
    """A recorded upstream that nothing was recorded for: it refuses what it is asked, and remembers it."""
    with replayed_upstream(pace="fast") as upstream:
        assert_type(upstream, ReplayedUpstream)
        status = httpx.post(f"{upstream.url}/v1/chat/completions", json={"model": "m"}).status_code
        assert_type(upstream.requests, list[ReplayedRequest])
        assert_type([request.played for request in upstream.requests], list[str])
    return status


def everything() -> list[object]:
    """What a run of this program gives."""
    return [parsing(), streaming(), tracking(), translating(), adapting(), refused(), testing()]
