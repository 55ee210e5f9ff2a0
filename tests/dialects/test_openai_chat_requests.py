"""Chat Completions requests beyond the generic runners: profile quirks, requests that stay at home, reasoning slots."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from athena.dialects.base import EncodeTarget
from athena.dialects.openai_chat import DIALECT
from athena.errors import AthenaError, ErrorKind
from athena.model.events import (
    Done,
    Error,
    Event,
    Finish,
    TextDelta,
    ThinkingDelta,
)
from athena.model.parts import (
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from athena.model.profile import Profile
from athena.model.request import ToolChoice
from athena.translate import translate_request
from support.chat_values import (
    CALL,
    REDACTED,
    SIGNED,
    THOUGHT,
    accumulate,
    assistant,
    call_events,
    encode,
    foreign,
    sent,
    user,
    whole,
)

# -- requests to upstreams -------------------------------------------------------------------------------------------------


def test_reasoning_details_go_back_as_they_came() -> None:
    openrouter = Profile(reasoning_replay="details", reasoning_field="reasoning", family="anthropic")
    turn = assistant(Thinking(text="Hm", signature=SIGNED), Thinking(signature=REDACTED), Text(text="Hi"))
    assert sent(foreign(turn, user(Text(text="?"))), openrouter)["messages"][0]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Hm", "signature": "sig", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "secret", "format": "anthropic-claude-v1", "index": 1},
    ]
    unsigned = assistant(Thinking(text="Hm"), Text(text="Hi"))
    message = sent(foreign(unsigned, user(Text(text="?"))), openrouter)["messages"][0]
    assert (message["reasoning"], "reasoning_details" in message) == ("Hm", False)
    signed_call = assistant(msgspec.structs.replace(CALL, signature=THOUGHT))
    message = sent(foreign(signed_call), openrouter)["messages"][0]
    assert message["reasoning_details"] == [
        {"type": "reasoning.encrypted", "data": "c2ln", "id": "call_1", "format": "google-gemini-v1", "index": 0}
    ]
    entry = {"type": "reasoning.text", "text": "Hm", "signature": "sig", "format": "anthropic-claude-v1", "index": 0, "x": 1}
    body = {"model": "m", "messages": [{"role": "assistant", "content": "Hi", "reasoning_details": [entry]}]}
    request = DIALECT.decode_request(body)
    renamed = msgspec.structs.replace(request, turns=(msgspec.structs.replace(request.turns[0], raw=None),))
    assert sent(renamed, openrouter)["messages"][0]["reasoning_details"] == [entry]


def test_schema_keywords_the_upstream_refuses_go_even_at_home() -> None:
    schema = {"type": "object", "properties": {"url": {"type": "string", "format": "uri"}}}
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "a", "parameters": schema, "strict": False, "x": 1}, "y": 2}],
    }
    cleaned = sent(DIALECT.decode_request(body), Profile(schema_drops=("format:uri",), strict_tools=False))["tools"]
    expected = {"type": "object", "properties": {"url": {"type": "string"}}}
    assert cleaned[0]["function"] == {"name": "a", "parameters": expected, "x": 1}
    assert cleaned[0]["y"] == 2
    assert schema["properties"] == {"url": {"type": "string", "format": "uri"}}


# -- requests that stay at home --------------------------------------------------------------------------------------------


HOME: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "Yes",
            "reasoning_content": "Hm",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "a", "arguments": '{"p": 1.0}'}, "index": 0}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "ok", "custom": 1},
    ],
    "max_tokens": 5,
    "temperature": 0.5,
    "reasoning_effort": "high",
    "unknown": [1],
}


def test_only_what_changed_is_written_anew() -> None:
    request = DIALECT.decode_request(HOME)
    cooler = msgspec.structs.replace(request, temperature=None, stop=("x",))
    expected = {**HOME, "model": "upstream", "stop": ["x"]}
    del expected["temperature"]
    assert sent(cooler) == expected
    told = msgspec.structs.replace(request, system=(*request.system, Text(text="More")))
    messages = sent(told)["messages"]
    assert messages[:2] == [{"role": "system", "content": "S"}, {"role": "system", "content": "More"}]
    assert messages[2:] == HOME["messages"][1:]


def test_a_changed_turn_keeps_its_unknown_fields() -> None:
    request = DIALECT.decode_request(HOME)
    result = request.turns[2].parts[0]
    assert isinstance(result, ToolResult)
    renamed = msgspec.structs.replace(result, call_id="other", raw=None)
    turns = (*request.turns[:2], msgspec.structs.replace(request.turns[2], parts=(renamed,), raw=None))
    message = sent(msgspec.structs.replace(request, turns=turns))["messages"][-1]
    assert message == {"role": "tool", "tool_call_id": "other", "content": "ok", "custom": 1}


def test_fields_an_upstream_refuses_are_said_otherwise_or_left_out() -> None:
    request = DIALECT.decode_request(HOME)
    openai_profile = Profile(
        max_tokens_field="max_completion_tokens", drop_fields=("reasoning_content", "unknown", "reasoning_effort"),
        reasoning_control="thinking",
    )  # fmt: skip
    body = sent(request, openai_profile)
    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body
    assert body["thinking"] == {"type": "enabled"}
    assert "unknown" not in body
    assert "reasoning_content" not in body["messages"][2]
    assert "reasoning_content" in HOME["messages"][2]
    nested = DIALECT.decode_request({**HOME, "cache_control": {"type": "ephemeral", "scope": "x"}})
    assert sent(nested, Profile(drop_fields=("cache_control.scope",)))["cache_control"] == {"type": "ephemeral"}


def test_older_functions_become_tools_when_something_changes() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "functions": [{"name": "a"}],
        "function_call": {"name": "a"},
    }
    request = DIALECT.decode_request(body)
    assert request.tool_choice == ToolChoice("named", ("a",))
    dropped = sent(request, Profile(schema_drops=("format:uri",), drop_fields=("function_call",)))
    assert dropped["tools"][0]["function"]["name"] == "a"
    assert dropped["tool_choice"] == {"type": "function", "function": {"name": "a"}}
    assert "functions" not in dropped


# -- reasoning state of clients --------------------------------------------------------------------------------------------


def parts_of(message: dict[str, Any]) -> tuple[Any, ...]:
    return DIALECT.decode_request({"model": "m", "messages": [{"role": "assistant", **message}]}).turns[0].parts


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("anthropic-claude-v1", "anthropic"), ("openai-responses-v1", "openai"), ("google-gemini-v1", "gemini"),
        ("xai-responses-v1", "xai"), ("azure-openai-responses-v1", "openai"), ("bedrock-anthropic-v1", "anthropic"),
        ("unknown", "unknown"),
    ],
)  # fmt: skip
def test_formats_of_details_name_their_family(name: str, family: str) -> None:
    (part,) = parts_of({"reasoning_details": [{"type": "reasoning.text", "text": "t", "signature": "s", "format": name}]})
    assert part.signature == Opaque(family, "signature", "s", format=name)


def test_details_win_over_plain_reasoning() -> None:
    details = [{"type": "reasoning.text", "text": "Hm", "signature": "s", "format": "anthropic-claude-v1"}]
    parts = parts_of({"content": "Hi", "reasoning": "Hm", "reasoning_content": "Hm", "reasoning_details": details})
    assert [type(part) for part in parts] == [Thinking, Text]
    alone = parts_of({"content": "Hi", "reasoning_content": "Hm", "reasoning_details": [{**details[0], "text": ""}]})
    assert (alone[0].text, alone[0].signature.payload) == ("Hm", "s")


def test_state_of_calls_is_read_from_both_slots() -> None:
    call = {"id": "x", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    native = {**call, "extra_content": {"google": {"thought_signature": "gw1.e.m"}}}
    assert parts_of({"tool_calls": [native]})[0].signature == Opaque("gemini", "thought_signature", "gw1.e.m")
    detail = {"type": "reasoning.encrypted", "data": "d", "id": "x", "format": "google-gemini-v1"}
    (part,) = parts_of({"tool_calls": [call], "reasoning_details": [detail]})
    assert (part.signature.payload, part.signature.family) == ("d", "gemini")


def test_what_the_encoder_wrote_comes_back_with_the_state() -> None:
    events: list[Event] = [
        ThinkingDelta("Let me see."), ThinkingDelta(signature=SIGNED), ThinkingDelta(signature=REDACTED), TextDelta("Hi"),
        *call_events(0, "x", "a", "{}", signature=THOUGHT), Done(Finish("tool")),
    ]  # fmt: skip
    for message in (whole(events)["choices"][0]["message"], accumulate(encode(events)).choices[0].message.model_dump()):
        thinking, redacted, text, call = parts_of(message)
        assert (thinking.text, thinking.signature.payload, thinking.signature.family) == ("Let me see.", "sig", "anthropic")
        assert (redacted.signature.kind, redacted.signature.payload) == ("redacted", "secret")
        assert (text.text, call.signature) == ("Hi", THOUGHT)


def test_older_calls_and_results_are_paired() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "function_call": {"name": "a", "arguments": "{}"}},
        {"role": "function", "name": "a", "content": "1"},
        {"role": "assistant", "content": None, "function_call": {"name": "a", "arguments": "{}"}},
        {"role": "function", "name": "a", "content": "2"},
    ]
    turns = DIALECT.decode_request({"model": "m", "messages": messages}).turns
    pairs = [(turns[at].parts[0], turns[at + 1].parts[0]) for at in (1, 3)]
    for call, result in pairs:
        assert isinstance(call, ToolCall)
        assert isinstance(result, ToolResult)
        assert call.id == result.call_id
    assert pairs[0][0] != pairs[1][0]


def test_the_rest_of_the_dialect() -> None:
    from athena.dialects.base import ModelEntry

    assert DIALECT.keep_alive == b": ping\n\n"
    assert DIALECT.encode_models([ModelEntry("m", 1)])["data"] == [
        {"id": "m", "object": "model", "created": 1, "owned_by": "athena"}
    ]
    assert DIALECT.encode_count(3)["input_tokens"] == 3
    assert DIALECT.decode_request(HOME, model="deployment", stream=True).model == "deployment"


def test_results_of_the_older_role_carry_the_tools_name() -> None:
    """Qwen-Agent finds a result by its tool's name, in a message of role function."""
    translated = translate_request(
        {
            "model": "qwen",
            "max_tokens": 9,
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "get_time", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "noon"}]},
            ],
            "tools": [{"name": "get_time", "input_schema": {"type": "object"}}],
        },
        source="anthropic_messages",
        target="openai_chat",
        profile="qwen_agent",
    )
    assert translated.body["messages"][-1] == {"role": "function", "name": "get_time", "content": "noon"}


@pytest.mark.parametrize(
    ("kind", "given", "shown"),
    [
        ("context_length", "string_above_max_length", "context_length_exceeded"),
        ("auth", "bad_key", "invalid_api_key"),
        ("billing", "1113", "insufficient_quota"),
        ("not_found", "NotFoundError", "model_not_found"),
        ("too_large", "413", "request_too_large"),
        ("rate_limit", "1302", "rate_limit_exceeded"),
        ("overloaded", "engine_overloaded_error", "server_is_overloaded"),
        ("timeout", "idle_timeout", "timeout"),
        ("content_policy", "content_filter", "content_policy_violation"),
        # Where the table has no name to look for, the exact word is worth more than none.
        ("invalid", "unsupported_value", "unsupported_value"),
        ("invalid", "invalid_request", None),
        ("permission", "country_blocked", "country_blocked"),
        ("upstream", "upstream_closed", "upstream_closed"),
    ],
)
def test_error_codes_are_those_that_clients_look_for(kind: ErrorKind, given: str, shown: str | None) -> None:
    """OpenAI's own names, whatever the upstream called it."""
    body = msgspec.json.decode(DIALECT.encode_error(Error("x", kind=kind, code=given)).body)
    assert body["error"]["code"] == shown


DECLARED = {"type": "function", "function": {"name": "t", "description": "d", "parameters": {"type": "object"}}}
SAID = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream": True, "stream_options": {"include_usage": True}, "temperature": 1, "top_p": 0.5, "max_tokens": 7},
        {"stream": None, "stream_options": None, "temperature": None, "top_p": None, "max_tokens": None, "tools": None},
        {"stream_options": {}, "max_completion_tokens": 0, "max_tokens": 9},
        {"stream_options": {"include_usage": None}},
        {"stream_options": {"include_usage": 1}},
        {"stream_options": {"include_obfuscation": False}},
        {"stream_options": []},
        {"max_tokens": True},
        {"max_tokens": -1},
        {"max_completion_tokens": 5.0},
        {"temperature": "hot"},
        {"temperature": True},
        {"stream": 1},
        {"model": ""},
        {"model": None},
        {"tools": []},
        {"tools": [DECLARED]},
        {"tools": [DECLARED, DECLARED]},
        {"tools": [DECLARED, {"type": "custom", "custom": {"name": "c"}}]},
        {"tools": {}},
        {"tools": [1]},
        {"messages": []},
        {"messages": None},
        {"messages": [None]},
        {"messages": [{"role": "system", "content": "s"}, {"role": "developer", "content": ""}, SAID]},
        {"messages": [{"role": "system", "content": "s"}]},
        {"messages": [{"role": "system", "content": [{"type": "text", "text": "s"}]}, SAID]},
        {"messages": [{"role": "system", "content": "s", "name": "n"}, SAID]},
        {"messages": [{"role": "system", "content": None}, SAID]},
        {"messages": [SAID, {"role": "system", "content": "s"}]},
        {"messages": [SAID, {"role": "strange", "content": "s"}]},
        {"messages": [SAID] * 70},
        {"seed": 1},
        {"strange": 1},
    ],
)
def test_a_usual_request_is_read_as_any_other(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"model": "m", "messages": [SAID], **fields}

    def read(stream: bool | None) -> tuple[Any, ...]:
        try:
            request = DIALECT.decode_request(body, stream=stream)
            return request, DIALECT.encode_request(request, EncodeTarget("gpt"))
        except AthenaError as error:
            return type(error), str(error)

    short = [read(stream) for stream in (None, True, False)]
    monkeypatch.setattr(sys.modules["athena.dialects.openai_chat.decode_request"], "usual_controls", lambda raw: None)
    monkeypatch.setattr(sys.modules["athena.dialects.openai_chat.encode_request"], "usual_controls", lambda raw: None)
    assert [read(stream) for stream in (None, True, False)] == short
