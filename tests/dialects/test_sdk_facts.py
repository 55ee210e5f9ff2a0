"""Facts about OpenAI's accumulators that shape what we write, each with proof that we keep to it (`dialects.md`, [R])."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest

from athena.dialects import get_dialect
from athena.dialects.base import EncodeContext
from athena.model.events import (
    Done,
    Event,
    Finish,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from athena.model.parts import Opaque
from athena.model.request import Request

HEAD: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **extra: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **extra}


def call(index: int, **fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **fields}]}


FIRST = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
REST = {"function": {"arguments": "{}"}}


def frames(*chunks: dict[str, Any] | str) -> bytes:
    lines = [item if isinstance(item, str) else f"data: {json.dumps(item)}" for item in (*chunks, "data: [DONE]")]
    return "".join(f"{line}\n\n" for line in lines).encode()


def client(body: bytes) -> openai.OpenAI:
    answer = httpx2.Response(200, content=body, headers={"content-type": "text/event-stream"})
    transport = httpx2.MockTransport(lambda request: answer)
    return openai.OpenAI(api_key="k", base_url="http://test/v1", max_retries=0, http_client=httpx2.Client(transport=transport))


def chat(*chunks: dict[str, Any] | str) -> Any:
    """What the Chat stream helper holds at the end."""
    return chat_bytes(frames(*chunks))


def chat_bytes(body: bytes) -> Any:
    with client(body).chat.completions.stream(model="m", messages=[{"role": "user", "content": "Hi"}]) as events:
        for _ in events:
            pass
        return events.get_final_completion()


def written(dialect: str, events: list[Event]) -> bytes:
    request = Request(dialect=dialect, model="m", stream=True, include_usage=True)
    encoder = get_dialect(dialect).encoder(EncodeContext(request=request, seed="s", created=1), stream=True)
    return b"".join(encoder.feed([event]) for event in events)


TWO_CALLS: list[Event] = [
    Start("up", "m"),
    ThinkingDelta("Hm"),
    ThinkingDelta(" so", signature=Opaque(family="anthropic", kind="signature", payload="sig")),
    TextDelta("a"),
    TextDelta("b"),
    ToolCallStart(0, "call_1", "f"),
    ToolCallStart(1, "call_2", "g"),
    ToolCallDelta(1, '{"x":'),
    ToolCallDelta(0, "{}"),
    ToolCallDelta(1, "1}"),
    ToolCallComplete(0, "call_1", "f", "{}"),
    ToolCallComplete(1, "call_2", "g", '{"x":1}'),
    Done(Finish("tool"), usage=Usage(input_total=3, output_total=2)),
]


# -- Chat ------------------------------------------------------------------------------------------------------------------


def test_fact_repeated_strings_are_joined() -> None:
    """0.3 rule 5, X4: role, id and name must come once."""
    told = chat(
        chunk({"role": "assistant", "content": "x"}),
        chunk({"role": "assistant"}),
        chunk(call(0, **FIRST)),
        chunk(call(0, **FIRST)),
        chunk(call(0, **REST)),
        chunk({}, "tool_calls"),
    )
    message = told.choices[0].message
    assert message.role == "assistantassistant"
    assert message.tool_calls[0].id == "call_1call_1"
    assert message.tool_calls[0].function.name == "ff"


def test_our_chat_stream_repeats_none_of_them() -> None:
    body = written("openai_chat", TWO_CALLS)
    message = chat_bytes(body).choices[0].message
    assert message.role == "assistant"
    assert [(item.id, item.type, item.function.name, item.function.arguments) for item in message.tool_calls] == [
        ("call_1", "function", "f", "{}"),
        ("call_2", "function", "g", '{"x":1}'),
    ]
    for key in (b'"role"', b'"id":"call_1"', b'"name":"f"', b'"finish_reason":"tool_calls"'):
        assert body.count(key) == 1, key


def test_fact_a_gap_in_call_indexes_breaks_the_accumulator() -> None:
    """4.5, X4."""
    with pytest.raises(IndexError):
        chat(chunk({"role": "assistant"}), chunk(call(1, **FIRST)), chunk(call(1, **REST)), chunk({}, "tool_calls"))


def test_fact_lists_without_index_break_at_the_second_chunk() -> None:
    """4.5: so annotations go out once, and details carry an index."""
    note = {"reasoning_details": [{"type": "reasoning.text", "text": "x"}]}
    with pytest.raises(RuntimeError):
        chat(chunk({"role": "assistant"}), chunk(note), chunk(note), chunk({}, "stop"))
    details = chat_bytes(written("openai_chat", TWO_CALLS)).choices[0].message.model_extra["reasoning_details"]
    assert [entry["index"] for entry in details] == [0]


def test_fact_a_null_delta_breaks_the_accumulator() -> None:
    """4.5: `delta` is an object, always."""
    with pytest.raises((AttributeError, TypeError, AssertionError)):
        chat(chunk({"role": "assistant"}), chunk(None, "stop"))
    assert b'"delta":null' not in written("openai_chat", TWO_CALLS)


def test_fact_usage_is_what_the_last_chunk_says() -> None:
    """4.5: nothing may follow the usage chunk."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    told = chat(
        chunk({"role": "assistant", "content": "x"}), chunk({}, "stop"), {**HEAD, "choices": [], "usage": usage},
        {**HEAD, "choices": [], "usage": None},
    )  # fmt: skip
    assert told.usage is None
    body = written("openai_chat", TWO_CALLS)
    assert chat_bytes(body).usage.total_tokens == 5
    last = [line for line in body.split(b"\n\n") if line][-2]
    assert json.loads(last.removeprefix(b"data: "))["usage"]["prompt_tokens"] == 3


def test_fact_comments_are_skipped_and_errors_raise() -> None:
    """4.1 keep-alive, X3, X6."""
    assert chat(": OPENROUTER PROCESSING", chunk({"role": "assistant", "content": "x"}), ": ping", chunk({}, "stop")).choices
    with pytest.raises(openai.APIError):
        chat(chunk({"role": "assistant", "content": "x"}), {"error": {"message": "no", "code": 502}}, chunk({}, "stop"))
    assert get_dialect("openai_chat").keep_alive.startswith(b":")


def test_fact_what_is_not_json_breaks_the_reader_and_what_follows_done_is_not_read() -> None:
    """X3, M25."""
    with pytest.raises(json.JSONDecodeError):
        chat(chunk({"role": "assistant", "content": "x"}), "data: {nope", chunk({}, "stop"))
    body = frames(chunk({"role": "assistant", "content": "x"}), chunk({}, "stop")) + b"data: {nope\n\n"
    assert chat_bytes(body).choices[0].message.content == "x"


# -- Responses ---------------------------------------------------------------------------------------------------------------


def responses(body: bytes) -> Any:
    with client(body).responses.stream(model="m", input="Hi") as events:
        for _ in events:
            pass
        return events.get_final_response()


def test_fact_a_nested_error_payload_raises_and_ours_is_flat() -> None:
    """1.3.4."""
    with pytest.raises(openai.APIError):
        responses(b'event: error\ndata: {"type":"error","error":{"message":"no","code":"x"}}\n\n')


def test_fact_interleaved_items_are_fine() -> None:
    """4.6: items are independent."""
    held = responses(written("openai_responses", TWO_CALLS))
    calls = [item for item in held.output if item.type == "function_call"]
    assert [(item.call_id, item.arguments) for item in calls] == [("call_1", "{}"), ("call_2", '{"x":1}')]


def test_sequence_numbers_grow_by_one() -> None:
    body = written("openai_responses", TWO_CALLS).decode()
    numbers = [json.loads(line[6:])["sequence_number"] for line in body.split("\n") if line.startswith("data: ")]
    assert numbers == list(range(len(numbers)))
