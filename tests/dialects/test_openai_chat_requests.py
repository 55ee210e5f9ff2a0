"""Chat Completions requests beyond the generic runners: profile quirks, requests that stay at home, reasoning slots."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from athena.dialects.openai_chat import DIALECT
from athena.errors import ErrorKind, UnsupportedFeature
from athena.model.events import (
    Done,
    Error,
    Event,
    Finish,
    TextDelta,
    ThinkingDelta,
)
from athena.model.parts import (
    Audio,
    Base64,
    CacheMark,
    Citation,
    Document,
    FileRef,
    Foreign,
    Image,
    InlineText,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Video,
)
from athena.model.profile import Profile
from athena.model.request import Cache, Output, Tool, ToolChoice
from athena.translate import translate_request
from support.chat_values import (
    CALL,
    REDACTED,
    SIGNED,
    THOUGHT,
    WEATHER,
    accumulate,
    assistant,
    call_events,
    encode,
    foreign,
    losses,
    sent,
    user,
    whole,
)

# -- requests to upstreams -------------------------------------------------------------------------------------------------


def test_system_blocks_stay_apart_or_become_one_string() -> None:
    system = (Text(text="A"), Text(text="B"))
    assert sent(foreign(system=system))["messages"][0] == {
        "role": "system",
        "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
    }
    assert sent(foreign(system=system[:1]))["messages"][0] == {"role": "system", "content": "A"}
    assert sent(foreign(system=system), Profile(text_content=True))["messages"][0]["content"] == "A\n\nB"
    assert sent(foreign(system=system[:1]), Profile(developer_role=True))["messages"][0]["role"] == "developer"


def test_results_come_first_then_what_they_cannot_hold_then_the_user() -> None:
    image = Image(source=Base64("image/png", "AAAA"))
    results = (
        ToolResult(call_id="call_1", parts=(Text(text="a"), Text(text="b"), image)),
        ToolResult(call_id="call_2", parts=(Text(text="bad"),), is_error=True),
        ToolResult(call_id="call_3"),
        ToolResult(call_id="call_4", structured={"x": 1}),
        ToolResult(call_id="call_5", parts=(Document(source=InlineText("doc"), title="T"),)),
    )
    messages = sent(foreign(user(*results, Text(text="Go on"))))["messages"]
    assert [message["role"] for message in messages] == ["tool"] * 5 + ["user"]
    assert [message["content"] for message in messages[:5]] == [
        "a\nb\n[image: see the next message]", "[tool error] bad", "", '{"x":1}', "T\n\ndoc",
    ]  # fmt: skip
    assert messages[5]["content"] == [
        {"type": "text", "text": "[image from tool call call_1]"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "text", "text": "Go on"},
    ]
    native = sent(foreign(user(results[0])), Profile(images_in_results=True))["messages"]
    assert [item["type"] for item in native[0]["content"]] == ["text", "text", "image_url"]


def test_assistant_turns() -> None:
    turn = assistant(Text(text="One."), Text(text="Two."), CALL)
    assert sent(foreign(turn, user(ToolResult(call_id="call_1"))))["messages"][0] == {
        "role": "assistant",
        "content": "One.\nTwo.",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
        ],
    }
    assert sent(foreign(assistant(CALL)))["messages"][0]["content"] is None
    cited = (Text(text="One, ", citations=(Citation(url="u"),)), Text(text="two."))
    assert sent(foreign(assistant(*cited), user(Text(text="?"))))["messages"][0]["content"] == "One, two."


def test_reasoning_of_the_history_follows_the_profile() -> None:
    plain, calling = assistant(Thinking(text="Hm"), Text(text="Hi")), assistant(Thinking(text="So"), CALL)
    bare = assistant(Text(text="No thought"))
    request = foreign(plain, user(Text(text="?")), calling, user(ToolResult(call_id="call_1")), bare, user(Text(text="!")))

    def shown(**profile: Any) -> list[Any]:
        messages = sent(request, Profile(**profile))["messages"]
        return [message.get("reasoning_content") for message in messages if message["role"] == "assistant"]

    assert shown() == [None, None, None]
    assert shown(reasoning_replay="calls") == [None, "So", None]
    # Once one turn carries the field, all do.
    assert shown(reasoning_replay="always") == ["Hm", "So", ""]
    assert shown(reasoning_replay="always", reasoning_filler="") == ["Hm", "So", ""]
    assert shown(reasoning_replay="calls", reasoning_filler=" ") == [None, "So", None]
    lost = msgspec.structs.replace(request, turns=(assistant(CALL), user(ToolResult(call_id="call_1"))))
    kimi = Profile(reasoning_replay="calls", reasoning_filler=" ")
    assert sent(lost, kimi)["messages"][0]["reasoning_content"] == " "
    vllm = sent(request, Profile(reasoning_replay="always", reasoning_field="reasoning"))["messages"]
    assert vllm[0]["reasoning"] == "Hm"
    mistral = sent(request, Profile(reasoning_replay="chunks"))["messages"]
    assert mistral[0]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}], "closed": True},
        {"type": "text", "text": "Hi"},
    ]
    assert any("reasoning" in loss.reason for loss in losses(request))


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


def test_signatures_of_calls_go_where_google_reads_them() -> None:
    signed = foreign(assistant(msgspec.structs.replace(CALL, signature=THOUGHT)))
    call = sent(signed)["messages"][0]["tool_calls"][0]
    assert call["extra_content"] == {"google": {"thought_signature": "c2ln"}}
    two = foreign(assistant(CALL, msgspec.structs.replace(CALL, id="call_2")))
    calls = sent(two, Profile(signed_calls=True))["messages"][0]["tool_calls"]
    assert calls[0]["extra_content"]["google"]["thought_signature"] == "skip_thought_signature_validator"
    assert "extra_content" not in calls[1]


def test_controls_in_the_upstreams_words() -> None:
    request = foreign(
        max_output=100, temperature=0.5, stop=("a",), seed=3, n=2, logprobs=2, parallel=False, tools=(WEATHER,),
        tool_choice=ToolChoice("required"), end_user="u", tier="standard_only", metadata={"a": "b"}, store=True,
        cache=Cache(key="k"), output=Output(verbosity="low"), stream=True,
    )  # fmt: skip
    profile = Profile(
        max_tokens_field="max_completion_tokens", seed_field="random_seed", required_word="any", user_field="user",
        metadata=True, store=True, cache_key=True, verbosity=True, body={"safe_prompt": False, "n": 9},
    )  # fmt: skip
    body = sent(request, profile)
    del body["messages"], body["tools"]
    assert body == {
        "model": "upstream", "max_completion_tokens": 100, "temperature": 0.5, "stop": ["a"], "random_seed": 3, "n": 2,
        "logprobs": True, "top_logprobs": 2, "parallel_tool_calls": False, "tool_choice": "any", "user": "u",
        "service_tier": "default", "metadata": {"a": "b"}, "store": True, "prompt_cache_key": "k", "verbosity": "low",
        "safe_prompt": False, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    paths = {loss.path for loss in losses(request)}
    assert {"user", "metadata", "prompt_cache_key", "verbosity"} <= paths
    assert "stream_options" not in sent(request, Profile(stream_usage=False))


def test_end_users_fit_their_field() -> None:
    long = foreign(end_user="x" * 200)
    assert len(sent(long, Profile(user_field="safety_identifier"))["safety_identifier"]) == 32
    assert sent(foreign(end_user="a b"), Profile(user_field="user_id"))["user_id"].isalnum()
    assert sent(foreign(end_user="a"), Profile(user_field="metadata.user_id"))["metadata"] == {"user_id": "a"}


def test_tools_and_choices() -> None:
    patch = Tool(name="patch", kind="custom", grammar={"syntax": "lark", "definition": "start: x"})
    bare = Tool(name="now", description="Time")
    request = foreign(tools=(WEATHER, patch, bare), tool_choice=ToolChoice("allowed", ("get_weather", "patch"), required=True))
    body = sent(request)
    assert body["tools"] == [
        {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER.schema}},
        {
            "type": "custom",
            "custom": {"name": "patch", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}},
        },
        {
            "type": "function",
            "function": {"name": "now", "description": "Time", "parameters": {"type": "object", "properties": {}}},
        },
    ]
    assert body["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [
                {"type": "function", "function": {"name": "get_weather"}},
                {"type": "custom", "custom": {"name": "patch"}},
            ],
        },
    }
    named = sent(foreign(tools=(WEATHER,), tool_choice=ToolChoice("named", ("get_weather",))))
    assert named["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}
    with pytest.raises(UnsupportedFeature):
        sent(foreign(tools=(WEATHER,), tool_choice=ToolChoice("named", ("web_search",), "hosted")))
    with pytest.raises(UnsupportedFeature):
        sent(foreign(tools=(WEATHER, bare)), Profile(tools_limit=1))


def test_strict_tools_get_the_strict_subset_or_lose_the_flag() -> None:
    request = foreign(tools=(msgspec.structs.replace(WEATHER, strict=True),))
    function = sent(request)["tools"][0]["function"]
    assert function["strict"] is True
    assert function["parameters"]["additionalProperties"] is False
    assert function["parameters"]["required"] == ["city"]
    loose = sent(request, Profile(strict_tools=False))["tools"][0]["function"]
    assert "strict" not in loose
    assert loose["parameters"] == WEATHER.schema


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


def test_hosted_tools_are_reported_or_mapped() -> None:
    search = Tool(name="web_search", kind="hosted", hosted="web_search_20260318", config={"user_location": {"city": "Oslo"}})
    assert "tools" not in sent(foreign(tools=(search,)))
    assert losses(foreign(tools=(search,)))[0].path == "tools[0]"
    with pytest.raises(UnsupportedFeature):
        sent(foreign(tools=(search,)), strict=True)
    mapped = sent(foreign(tools=(search,)), Profile(pass_fields=("web_search_options",)))
    assert mapped["web_search_options"] == {"user_location": {"type": "approximate", "approximate": {"city": "Oslo"}}}


def test_structured_output() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    request = foreign(output=Output(kind="schema", name="my answer", schema=schema, strict=True))
    form = sent(request)["response_format"]["json_schema"]
    assert form["name"] == "my_answer"
    assert form["schema"]["required"] == ["x"]
    deepseek = sent(request, Profile(json_schema=False))
    assert deepseek["response_format"] == {"type": "json_object"}
    assert '"x"' in deepseek["messages"][0]["content"]
    words = sent(foreign(output=Output(kind="json")), Profile(json_object=False))
    assert "response_format" not in words
    assert "JSON" in words["messages"][0]["content"]


def test_cache_marks() -> None:
    hour = CacheMark(ttl_seconds=3600)
    request = foreign(user(Text(text="Hi", cache=hour)), system=(Text(text="S"),), tools=(Tool(name="a", cache=hour),))
    assert sent(request)["messages"][1] == {"role": "user", "content": "Hi"}
    openrouter = sent(request, Profile(cache_marks="cache_control"))
    assert openrouter["messages"][1]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert openrouter["tools"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    native = sent(request, Profile(cache_marks="breakpoint"))
    assert native["messages"][0]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "12h"}
    many = foreign(user(*(Text(text=str(number), cache=CacheMark()) for number in range(6))))
    items = sent(many, Profile(cache_marks="cache_control"))["messages"][0]["content"]
    assert ["cache_control" in item for item in items] == [False, False, True, True, True, True]


def test_content_of_other_dialects() -> None:
    parts = (
        Text(text="See"), Image(source=Url("https://a.example/b.png"), detail="low"),
        Document(source=Base64("application/pdf", "AAAA"), title="a.pdf"), Document(source=InlineText("words"), title="T"),
        Audio(source=Base64("audio/mpeg", "BBBB")),
    )  # fmt: skip
    assert sent(foreign(user(*parts)))["messages"][0]["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png", "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
        {"type": "text", "text": "T\n\nwords"},
        {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "mp3"}},
    ]
    video = foreign(user(Video(source=Url("https://a.example/b.mp4"))))
    assert sent(video, Profile(video=True))["messages"][0]["content"][0]["type"] == "video_url"
    refused = (
        (video, Profile()),
        (foreign(user(Image(source=FileRef("file_1")))), Profile()),
        (foreign(user(Document(source=Url("https://a.example/b.pdf")))), Profile()),
        (foreign(user(Image(source=Url("https://a.example/b.png")))), Profile(image_urls=False)),
        (foreign(assistant(Foreign(kind="compaction", dialect="anthropic_messages"))), Profile()),
    )
    for request, profile in refused:
        with pytest.raises(UnsupportedFeature) as caught:
            sent(request, profile)
        assert caught.value.path == "messages[0]"


def test_what_is_unknown_abroad_is_reported_and_refused_when_strict() -> None:
    request = foreign(extras={"container": "c", "top_a": 1}, server={"context_management": {}})
    assert {loss.path for loss in losses(request)} == {"container", "top_a", "context_management"}
    assert sent(request, Profile(pass_fields=("top_a",)))["top_a"] == 1
    with pytest.raises(UnsupportedFeature) as caught:
        sent(request, strict=True)
    assert caught.value.path == "container"


def test_prefill() -> None:
    request = foreign(user(Text(text="Hi")), assistant(Text(text="The answer is")))
    assert sent(request, Profile(prefill_flag="prefix"))["messages"][-1]["prefix"] is True
    assert sent(request, Profile(prefill_body={"continue_final_message": True}))["continue_final_message"] is True
    with pytest.raises(UnsupportedFeature):
        sent(request, Profile(prefill=False))


def test_arrangements_of_messages() -> None:
    request = foreign(
        user(Text(text="a")), user(Text(text="b")), assistant(), assistant(CALL),
        user(ToolResult(call_id="call_1", name="get_weather")), user(Text(text="c")),
    )  # fmt: skip
    profile = Profile(merge_turns=True, empty_assistant=False, user_after_results=False, name_in_results=True)
    messages = sent(request, profile)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[0]["content"] == "a\n\nb"
    assert messages[2]["name"] == "get_weather"


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


def test_home_messages_get_the_reasoning_their_upstream_demands() -> None:
    body = {**HOME, "messages": [*HOME["messages"], {"role": "assistant", "content": "Ok"}, {"role": "user", "content": "?"}]}
    profile = Profile(reasoning_replay="always", reasoning_filler="")
    messages = sent(DIALECT.decode_request(body), profile)["messages"]
    assert [message.get("reasoning_content") for message in messages if message["role"] == "assistant"] == ["Hm", ""]


def test_usage_is_always_asked_for_upstream() -> None:
    request = DIALECT.decode_request({**HOME, "stream": True})
    assert request.include_usage is None
    assert sent(request) == {**HOME, "model": "upstream", "stream": True, "stream_options": {"include_usage": True}}


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
