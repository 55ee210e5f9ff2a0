"""One hundred types that no API has yet: at home they go along, elsewhere they are left out with a warning; none is an error.

What stands beside them (the text, the call and its result) is there in any case.
"""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from athena.dialects import dialect_names
from athena.model.request import Loss
from athena.translate import StreamTranslator, translate_request, translate_response
from support.sweep_answers import PROFILES
from support.sweep_requests import MODELS

_FILE = Path(__file__).parent.parent / "cases" / "future.toml"
FUTURE: dict[str, dict[str, dict[str, dict[str, Any]]]] = tomllib.loads(_FILE.read_text("utf-8"))
TEXT, CALLED, RESULT = "good morning", "wake_up", "it is awake"
"""What must arrive whatever stands beside it."""


def _cases(kind: str) -> list[Any]:
    return [
        pytest.param(dialect, case, id=f"{dialect}-{name}")
        for dialect, kinds in FUTURE.items()
        for name, case in kinds.get(kind, {}).items()
    ]


def test_there_are_a_hundred() -> None:
    cases = [case for kinds in FUTURE.values() for named in kinds.values() for case in named.values()]
    assert len(cases) >= 100
    assert set(FUTURE) == set(dialect_names())
    assert all("tried" in json.dumps(case["value"]).lower() for case in cases)


_SCHEMA = {"type": "object", "properties": {"hour": {"type": "integer"}}}
REQUESTS: dict[str, dict[str, Any]] = {
    "anthropic_messages": {
        "model": "m",
        "max_tokens": 4096,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": TEXT}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Yes."},
                    {"type": "tool_use", "id": "toolu_1", "name": CALLED, "input": {"hour": 7}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": RESULT}]}],
            },
        ],
        "tools": [{"name": CALLED, "input_schema": _SCHEMA}],
    },
    "openai_chat": {
        "model": "m",
        "stream": True,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": TEXT}]},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "Yes."}],
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": CALLED, "arguments": '{"hour": 7}'}},
                    {"id": "call_2", "type": "function", "function": {"name": CALLED, "arguments": '{"hour": 8}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": RESULT}]},
            {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": RESULT}]},
        ],
        "tools": [{"type": "function", "function": {"name": CALLED, "parameters": _SCHEMA}}],
    },
    "openai_responses": {
        "model": "m",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": TEXT}]},
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
            },
            {"type": "function_call", "call_id": "call_1", "name": CALLED, "arguments": '{"hour": 7}'},
            {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": RESULT}]},
        ],
        "tools": [{"type": "function", "name": CALLED, "parameters": _SCHEMA}],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": TEXT}]},
            {"role": "model", "parts": [{"text": "Yes."}, {"functionCall": {"name": CALLED, "args": {"hour": 7}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": CALLED, "response": {"output": RESULT}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": CALLED, "parameters": _SCHEMA}]}],
    },
}
ANSWERS: dict[str, dict[str, Any]] = {
    "anthropic_messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "text", "text": TEXT},
            {"type": "tool_use", "id": "toolu_1", "name": CALLED, "input": {"hour": 7}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "openai_chat": {
        "id": "c",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": TEXT,
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": CALLED, "arguments": '{"hour": 7}'}}
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
    },
    "openai_responses": {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": CALLED,
                "arguments": '{"hour": 7}',
                "status": "completed",
            },
        ],
    },
    "gemini": {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [{"text": TEXT}, {"functionCall": {"name": CALLED, "args": {"hour": 7}}}],
                },
                "finishReason": "STOP",
            }
        ]
    },
}
STREAMS: dict[str, list[dict[str, Any]]] = {
    "anthropic_messages": [
        {"type": "message_start", "message": {**ANSWERS["anthropic_messages"], "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": CALLED, "input": {}},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"hour": 7}'}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "bye"}},
        {"type": "content_block_stop", "index": 2},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ],
    "openai_chat": [
        {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": TEXT}}]},
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": CALLED, "arguments": '{"hour": 7}'}}
            ]}}],
        },
        {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ],
    "openai_responses": [
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "msg_1", "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "item_id": "msg_1", "content_index": 0, "delta": TEXT},
        {"type": "response.output_item.done", "output_index": 0, "item": ANSWERS["openai_responses"]["output"][0]},
        {"type": "response.output_item.added", "output_index": 1, "item": ANSWERS["openai_responses"]["output"][1]},
        {"type": "response.output_item.done", "output_index": 1, "item": ANSWERS["openai_responses"]["output"][1]},
        {"type": "response.output_item.added", "output_index": 2, "item": {"type": "reasoning", "id": "rs_1", "summary": []}},
        {"type": "response.output_item.done", "output_index": 2, "item": {"type": "reasoning", "id": "rs_1", "summary": []}},
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}},
    ],
    "gemini": [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": TEXT}]}}]},
        {"candidates": [{"content": {"role": "model", "parts": [{"functionCall": {"name": CALLED, "args": {"hour": 7}}}]}}]},
        {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}]},
    ],
}  # fmt: skip


def put(body: Any, case: dict[str, Any]) -> Any:
    """The body with the value in its place."""
    body = copy.deepcopy(body)
    if "before" in case:
        body.insert(case["before"], case["value"])
        return body
    *way, last = case["at"].split(".")
    place = body
    for position, step in enumerate(way):
        if isinstance(place, list):
            place = place[int(step)]
        else:
            following = [*way, last][position + 1]
            place = place.setdefault(step, [] if following == "+" else {})
    if last == "+":
        place.append(case["value"])
    elif isinstance(place, list):
        place[int(last)] = case["value"]
    else:
        place[last] = case["value"]
    return body


def _is_told(shown: str, warnings: tuple[Loss, ...], before: tuple[Loss, ...]) -> bool:
    return "tried" in shown.lower() or any(loss not in before for loss in warnings)


@pytest.mark.parametrize(("source", "case"), _cases("request"))
def test_requests(source: str, case: dict[str, Any]) -> None:
    body = put(REQUESTS[source], case)
    for target in dialect_names():
        sent = translate_request(body, source=source, target=target, model=MODELS[target])
        plain = translate_request(REQUESTS[source], source=source, target=target, model=MODELS[target])
        shown = json.dumps(sent.body)
        assert [word for word in (TEXT, CALLED, RESULT) if word not in shown] == [], target
        if target == source:
            assert put(plain.body, case) == sent.body
        assert _is_told(shown, sent.warnings, plain.warnings), target


@pytest.mark.parametrize(("source", "case"), _cases("answer"))
def test_answers(source: str, case: dict[str, Any]) -> None:
    body = put(ANSWERS[source], case)
    for target in dialect_names():
        got = translate_response(body, source=source, target=target, profile=PROFILES[source], envelope_key=b"k")
        plain = translate_response(ANSWERS[source], source=source, target=target, profile=PROFILES[source], envelope_key=b"k")
        shown = json.dumps(got.body)
        assert CALLED in shown, target
        assert TEXT in shown, target
        assert _is_told(shown, got.warnings, plain.warnings), target


@pytest.mark.parametrize(("source", "case"), _cases("stream"))
def test_streams(source: str, case: dict[str, Any]) -> None:
    for target in dialect_names():
        shown, warnings = _streamed(put(STREAMS[source], case), source, target)
        _, before = _streamed(STREAMS[source], source, target)
        assert CALLED in shown, target
        assert TEXT in shown, target
        assert _is_told(shown, warnings, before), target


@pytest.mark.parametrize("name", ["holo\ngram", "holo\r\n\r\ndata: 1", "", "h" * 101, "höl"], ids=repr)
@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_responses"])
def test_names_of_events_that_are_none(dialect: str, name: str) -> None:
    """Nothing that an upstream calls an event may begin a line of its own."""
    events = [*STREAMS[dialect][:1], {"type": name, "beam": "tried"}, *STREAMS[dialect][1:]]
    shown, warnings = _streamed(events, dialect, dialect)
    lines = {line.partition(":")[0] for line in shown.split("\n") if line}
    assert lines == {"event", "data"}
    assert "tried" not in shown
    assert warnings
    assert TEXT in shown


def _streamed(events: list[dict[str, Any]], source: str, target: str) -> tuple[str, tuple[Loss, ...]]:
    stream = StreamTranslator(source=source, target=target, profile=PROFILES[source], envelope_key=b"k")
    shown = stream.feed(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)) + stream.close()
    assert stream.error is None, (target, stream.error)
    return shown.decode(), stream.warnings
