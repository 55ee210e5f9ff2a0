"""Whole answers that are one text take a short way, which is held against the long one: bytes, events and counts."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import product
from typing import Any, cast
from unittest import mock

import pytest

from athena import exchange as exchanges
from athena.answer_path import AnswerPath
from athena.dialects import dialect_names, get_dialect
from athena.errors import UpstreamClosed
from athena.exchange import Exchange, Options, Route
from athena.formats.machine.policies import Policies
from athena.formats.machine.stage import FormatOptions
from athena.model.limits import Limits
from athena.model.parts import Text, ToolCall, ToolResult
from athena.model.request import Request, Tool, ToolChoice, Turn
from exchange.ways import long_ways_only
from support.cases import answer_modes, case_bytes
from support.grammar import merged

DIALECTS = tuple(dialect_names())
TOOL = Tool(name="get_weather", schema={"type": "object", "properties": {"city": {"type": "string"}}})
REQUESTS: tuple[dict[str, Any], ...] = (
    {"tools": (TOOL,)},
    {},
    {"tools": (TOOL,), "n": 2},
    {"tools": (TOOL,), "stop": ("fine",)},
    {"tools": (TOOL,), "tool_choice": ToolChoice(mode="required")},
    {"tools": (TOOL,), "tool_choice": ToolChoice(mode="none")},
    {"tools": (TOOL,), "parallel": False},
    {"tools": (Tool(name="search", kind="hosted", hosted="web_search"),)},
    {"stream": True, "tools": (TOOL,)},
)
CHAT: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "fake",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "The weather is fine."}, "finish_reason": "stop"},
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
}
KEYS = (
    "id", "object", "created", "model", "choices", "usage", "error", "obfuscation", "system_fingerprint", "service_tier",
    "provider", "x_groq", "timings", "prompt_logprobs", "index", "delta", "message", "finish_reason", "logprobs",
    "stop_reason", "matched_stop", "native_finish_reason", "token_ids", "role", "content", "reasoning", "reasoning_content",
    "reasoning_details", "tool_calls", "function_call", "refusal", "annotations", "audio", "images", "never_heard_of",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, "", [], {}, 0, 1, -1, True, 1.5, 1e300, "stop", "length", "tool_calls", "error", "END", ["x"], [{}], {"a": 1},
    {"prompt_n": 4, "predicted_n": 2}, {"prompt_tokens": "3", "completion_tokens": -1}, {"message": "broken"}, "\ud800", 2**70,
)  # fmt: skip

MISSING = object()


def outcome(client: str, upstream: str, body: bytes, asked: dict[str, Any], **more: Any) -> tuple[object, ...]:
    """What the client gets, and what is counted."""
    called = ToolCall(id="call_0", name="get_weather", arguments="{}")
    turns = (
        Turn(role="user", parts=(Text(text="Hi"),)),
        Turn(role="assistant", parts=(called,)),
        Turn(role="user", parts=(ToolResult(call_id="call_0", parts=(Text(text="fine"),)),)),
    )
    request = Request(dialect=client, model="m", max_output=100, turns=turns, **asked)
    reading = more.get("reading", FormatOptions())
    exchange = Exchange(
        request,
        Route(dialect=upstream, model="m", format=reading),
        Options(seed="s", created=1, limits=more.get("limits", Limits())),
    )
    exchange.upstream_head(200, {})
    cut = more.get("cut", len(body))
    steps = [exchange.upstream_data(piece) for piece in (body[:cut], body[cut:]) if piece]
    steps.append(exchange.upstream_end(more.get("failure")))
    counted = [
        getattr(exchange, name)
        for name in ("outcome", "error", "usage", "losses", "bad_records", "text_calls", "echoes", "format_found", "notes")
    ]
    events = merged([event for step in steps for event in step.events])
    heads = [step.head for step in steps if step.head is not None]
    return heads, b"".join(step.output for step in steps), steps[-1].done, events, counted, exchange.echo_rule


def compare(client: str, upstream: str, body: bytes, asked: dict[str, Any], **more: Any) -> None:
    if upstream != "openai_chat" and ("n" in asked or any(tool.hosted for tool in asked.get("tools", ()))):
        return  # some upstreams cannot be asked this
    quick = outcome(client, upstream, body, asked, **more)
    with long_ways_only():
        assert outcome(client, upstream, body, asked, **more) == quick


@pytest.mark.parametrize("upstream", DIALECTS)
def test_every_case_comes_out_the_same(upstream: str) -> None:
    for (case, mode), client, asked in product(answer_modes(upstream), DIALECTS, REQUESTS):
        if mode == "whole":
            compare(client, upstream, case_bytes(case, mode), asked)


@pytest.mark.parametrize("client", ["openai_chat", "anthropic_messages"])
@pytest.mark.parametrize("place", ["answer", "choice", "message"])
def test_any_field_of_any_value_comes_out_the_same(client: str, place: str) -> None:
    for key, value in product(KEYS, (*VALUES, MISSING)):
        answer = deepcopy(CHAT)
        changed = {"answer": answer, "choice": answer["choices"][0], "message": answer["choices"][0]["message"]}[place]
        if value is MISSING:
            changed.pop(key, None)
        else:
            changed[key] = value
        compare(client, "openai_chat", json.dumps(answer).encode(), {"tools": (TOOL,)})


@pytest.mark.parametrize(
    "text", ["", " \n", "```\ncode\n```", "<tool_call>", '{"name": "get_weather"}', "fi\ufb01ne", "x" * 70_000]
)
@pytest.mark.parametrize("client", DIALECTS)
def test_any_text_comes_out_the_same(client: str, text: str) -> None:
    answer = deepcopy(CHAT)
    answer["choices"][0]["message"]["content"] = text
    body = json.dumps(answer, ensure_ascii=False).encode()
    for asked in REQUESTS:
        if "```" in text and asked.get("stream"):
            continue  # a stream may be cut at the backticks
        compare(client, "openai_chat", body, asked)
        compare(client, "openai_chat", b" \n" + body, asked, cut=1)
        compare(client, "openai_chat", body, asked, cut=40)
        compare(client, "openai_chat", body[:-2], asked)
        compare(client, "openai_chat", body, asked, failure=UpstreamClosed("gone"))
        compare(client, "openai_chat", body, asked, limits=Limits(answer_bytes=100))
        compare(client, "openai_chat", body, asked, reading=None)
        compare(client, "openai_chat", body, asked, reading=FormatOptions("kimi_k2", policies=Policies(text="hold")))
        compare(client, "openai_chat", body, asked, reading=FormatOptions("deepseek_v31", starts_in_thinking=True))


CALLS: tuple[Any, ...] = (
    [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}],
    [
        {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
        {"id": "call_2", "type": "function", "function": {"name": "other", "arguments": '{"a": 1e5, "a": 2}'}},
    ],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": "{}"}, "index": 3}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": "{}"}, "strange": 3}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": "{}", "strange": 3}}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": ' {"city": "Paris"} '}}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": '{"city": "Paris",}'}}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": '{"city": "Par'}}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": '{"arguments": {"city": "Paris"}}'}}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": '{"parameters": "{}"}'}}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": '{"city": "\\ud800"}'}}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": ""}}],
    [{"id": "call_1", "function": {"name": "get_weather"}}],
    [{"id": "call_1", "function": {"arguments": "{}"}}],
    [{"id": "functions.get_weather:0", "function": {"name": "get_weather", "arguments": "{}"}}],
    [{"id": "call_0", "function": {"name": "get_weather", "arguments": "{}"}}],
    [{"id": "", "function": {"name": "get_weather", "arguments": "{}"}}],
    [{"function": {"name": "get_weather", "arguments": "{}"}}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": "{}"}}] * 2,
    [{"id": "call_1", "type": "custom", "custom": {"name": "get_weather", "input": "x"}}],
    [{"id": "call_1", "function": {"name": "get_weather", "arguments": "{}"}, "extra_content": {"google": 1}}],
    [],
    "x",
    [None],
)
CALLING: tuple[dict[str, Any], ...] = (
    *REQUESTS,
    {"tools": (Tool(name="a name", schema={}), TOOL)},
    {"tools": (Tool(name="get_weather", kind="custom"),)},
)


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("reason", ["tool_calls", "stop", "length", "stop_sequence", "error"])
def test_calls_come_out_the_same(client: str, reason: str) -> None:
    usual = reason == "tool_calls"
    texts, requests = ((None, "", "I look.", "<tool_call>"), CALLING) if usual else (("I look.",), CALLING[:1])
    for calls, text, asked in product(CALLS, texts, requests):
        answer = deepcopy(CHAT)
        answer["choices"][0]["message"] |= {"content": text, "tool_calls": calls}
        answer["choices"][0]["finish_reason"] = reason
        compare(client, "openai_chat", json.dumps(answer).encode(), asked)
    body = json.dumps(answer | {"choices": [{"message": {"content": "x", "tool_calls": CALLS[1]}, "finish_reason": reason}]})
    for level in ("off", "schema"):
        reading = FormatOptions(policies=Policies(repair=level))
        compare(client, "openai_chat", body.encode(), {"tools": (TOOL,)}, reading=reading)
    for limits in (Limits(calls=1), Limits(argument_chars=3)):
        compare(client, "openai_chat", body.encode(), {"tools": (TOOL,)}, limits=limits)


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("calls", [None, *CALLS[:3]])
def test_plain_answers_need_no_stages(client: str, calls: Any) -> None:
    answer = deepcopy(CHAT)
    answer["choices"][0]["message"]["tool_calls"] = calls
    with mock.patch.object(exchanges, "AnswerPath", side_effect=AssertionError(AnswerPath)):
        found = outcome(client, "openai_chat", json.dumps(answer).encode(), {"tools": (TOOL,)})
    assert found[0]
    assert b"The weather is fine." in cast(bytes, found[1])
    assert found[2]
    assert get_dialect("openai_chat").plain_answer is not None
