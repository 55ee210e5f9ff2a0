"""Requests in the Messages dialect: what reaches a model of each generation, from this dialect and from any other.

The generic runner proves that an unchanged request comes home unchanged; here are the changes. The facts:
docs/reference/wire-facts.md#anthropic-tools-and-thinking.
"""

from __future__ import annotations

import base64
import copy
from typing import Any

import msgspec
import pytest

from athena.dialects import get_dialect
from athena.dialects.anthropic_messages.typed_tools import as_function, family_of
from athena.dialects.base import Encoded, Target
from athena.errors import UnsupportedFeature
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
    Nested,
    Opaque,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Video,
    changed,
)
from athena.model.profile import Profile
from athena.model.request import Cache, Output, Reasoning, Request, Tool, ToolChoice, Turn
from athena.prepare import prepare
from athena.schemas import for_anthropic
from support.sdk_types import check_body

DIALECT = get_dialect("anthropic_messages")
HI = Turn(role="user", parts=(Text(text="Hi"),))
BUDGET = Profile(family="anthropic", thinking_budget=True, thinking_adaptive=False, cache_marks="cache_control")
ADAPTIVE = Profile(family="anthropic", thinking_budget=False, thinking_adaptive=True, thinking_off="effort")
SIGNED = Opaque(family="anthropic", kind="signature", payload="sig")


def foreign(*turns: Turn, **fields: Any) -> Request:
    """A request of another dialect, after `prepare`."""
    return Request(dialect="openai_chat", model="gpt", turns=turns or (HI,), **fields)


def home(**fields: Any) -> Request:
    body = {"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}], **fields}
    return DIALECT.decode_request(body, version="2023-06-01")


def encode(request: Request, profile: Profile = BUDGET, *, strict: bool = False) -> Encoded:
    kept = copy.deepcopy(request.raw)
    encoded = DIALECT.encode_request(request, Target("claude", profile, strict))
    assert request.raw == kept, "encoding changed its input"
    if request.dialect != DIALECT.name:
        sampling = ("temperature", "top_p", "top_k")
        check_body(DIALECT.name, {key: value for key, value in encoded.body.items() if key not in sampling})
    return encoded


def sent(request: Request, profile: Profile = BUDGET) -> dict[str, Any]:
    return encode(request, profile).body


def user(*parts: Part) -> Turn:
    return Turn(role="user", parts=parts)


def assistant(*parts: Part) -> Turn:
    return Turn(role="assistant", parts=parts)


def losses(request: Request, profile: Profile = BUDGET) -> dict[str, str]:
    return {loss.path: loss.action for loss in encode(request, profile).losses}


def refused(request: Request, profile: Profile = BUDGET, *, strict: bool = False) -> str:
    with pytest.raises(UnsupportedFeature) as caught:
        encode(request, profile, strict=strict)
    return caught.value.path


# -- wire versions ------------------------------------------------------------


def test_versions_of_translated_requests() -> None:
    assert encode(foreign()).headers["anthropic-version"] == "2026-10-21"
    for field in ("temperature", "top_p", "top_k"):
        assert encode(foreign(**{field: 1})).headers["anthropic-version"] == "2023-06-01"


def test_a_clients_own_version_goes_on() -> None:
    for version in ("2023-06-01", "2026-10-21", "2030-01-01"):
        body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
        assert encode(DIALECT.decode_request(body, version=version)).headers["anthropic-version"] == version
    assert encode(DIALECT.decode_request(body)).headers["anthropic-version"] == "2023-06-01"


def test_an_upstream_may_know_one_version_only() -> None:
    profile = msgspec.structs.replace(BUDGET, wire_version="2023-06-01", headers={"x-extra": "1"})
    assert encode(foreign(), profile).headers == {"anthropic-version": "2023-06-01", "x-extra": "1"}


def test_the_new_version_gets_no_document_in_an_assistant_message_and_no_user_citations() -> None:
    cited = Text(text="a", citations=(Citation(url="u", raw={"type": "x"}),))
    body = sent(foreign(user(cited), assistant(Document(source=InlineText("d")), Text(text="b")), HI))
    assert body["messages"][0]["content"] == [{"type": "text", "text": "a"}]
    assert body["messages"][1]["content"] == [{"type": "text", "text": "b"}]


def test_path_is_below_a_base_without_version() -> None:
    assert encode(foreign()).path == "/v1/messages"


# -- thinking ------------------------------------------------------------


def test_effort_words_of_the_profile() -> None:
    profile = msgspec.structs.replace(ADAPTIVE, effort_map={"xhigh": "max"})
    assert sent(foreign(reasoning=Reasoning(effort="xhigh")), profile)["output_config"] == {"effort": "max"}


def test_a_budget_raises_the_bound_it_does_not_fit() -> None:
    small = sent(foreign(reasoning=Reasoning(effort="low"), max_output=500))
    assert small["thinking"]["budget_tokens"] == 1024
    assert small["max_tokens"] == 1524
    unbound = sent(foreign(reasoning=Reasoning(effort="high")))
    assert unbound["max_tokens"] == 8192 + 24576
    assert sent(foreign(), msgspec.structs.replace(BUDGET, max_tokens_default=64000))["max_tokens"] == 64000
    assert sent(foreign())["max_tokens"] == 8192


def test_other_settings_of_output_config_survive_a_changed_effort() -> None:
    request = home(output_config={"effort": "max", "task_budget": {"total": 5}})
    lowered = msgspec.structs.replace(request, reasoning=Reasoning(effort="high"))
    assert sent(lowered)["output_config"] == {"effort": "high", "task_budget": {"total": 5}}


# -- thinking in history ------------------------------------------------------------

CALL = ToolCall(id="t1", name="a", arguments='{"p":1}')
RESULT = ToolResult(call_id="t1", parts=(Text(text="ok"),))
TOOLS = (Tool(name="a"),)


def test_only_signed_thinking_is_sent() -> None:
    turn = assistant(
        Thinking(text="mine", signature=SIGNED),
        Thinking(signature=Opaque(family="anthropic", kind="redacted", payload="data")),
        Thinking(text="foreign"),
        Text(text="x"),
    )
    body = sent(foreign(HI, turn, HI))
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "mine", "signature": "sig"},
        {"type": "redacted_thinking", "data": "data"},
        {"type": "text", "text": "x"},
    ]


def test_an_imitation_that_reads_reasoning_gets_it_unsigned() -> None:
    profile = Profile(reasoning_replay="always")
    body = sent(foreign(HI, assistant(Thinking(text="foreign"), Text(text="x")), HI), profile)
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "foreign", "signature": ""}


def test_unsigned_thinking_of_a_client_of_this_dialect_goes_too() -> None:
    blocks = [{"type": "thinking", "thinking": "x", "signature": ""}, {"type": "text", "text": "y"}]
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": blocks}, {"role": "user", "content": "?"}]
    assert sent(home(messages=messages))["messages"][1]["content"] == [{"type": "text", "text": "y"}]
    assert sent(home(messages=messages), Profile(reasoning_replay="always"))["messages"] == messages


def test_a_step_of_another_model_switches_thinking_off() -> None:
    request = foreign(HI, assistant(CALL), user(RESULT), tools=TOOLS, reasoning=Reasoning(effort="high"), max_output=9000)
    body = sent(request)
    assert body["thinking"] == {"type": "disabled"}
    assert body["max_tokens"] == 9000
    assert losses(request)["reasoning"] == "repaired"
    assert sent(request, ADAPTIVE)["thinking"] == {"type": "adaptive"}
    own = foreign(
        HI, assistant(Thinking(text="x", signature=SIGNED), CALL), user(RESULT), tools=TOOLS, reasoning=Reasoning(effort="high")
    )
    assert sent(own)["thinking"]["type"] == "enabled"


def test_the_same_for_a_client_of_this_dialect_whose_thinking_was_dropped() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "a", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]},
    ]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    request = home(messages=messages, thinking=thinking, max_tokens=4000, tools=[{"name": "a"}])
    assert sent(request)["thinking"] == thinking, "its own words stay its own"
    turns = (request.turns[0], changed(request.turns[1]), request.turns[2])
    assert sent(msgspec.structs.replace(request, turns=turns))["thinking"] == {"type": "disabled"}


# -- turns and blocks ------------------------------------------------------------


def test_turns_of_one_role_in_a_row_become_one() -> None:
    body = sent(foreign(HI, user(Text(text="again")), assistant(Text(text="a")), assistant(Text(text="b")), HI))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block["text"] for block in body["messages"][0]["content"]] == ["Hi", "again"]


def test_results_come_first_and_calls_last() -> None:
    late = Text(text="late")
    body = sent(
        foreign(
            HI,
            assistant(CALL, late, Thinking(text="t", signature=SIGNED), ToolCall(id="t2", name="a", arguments=""), late),
            user(Text(text="first?"), RESULT, ToolResult(call_id="t2")),
            tools=TOOLS,
        )
    )
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "tool_use", "thinking", "text", "tool_use"]
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]


def test_a_conversation_begins_with_a_user_turn() -> None:
    request = foreign(assistant(Text(text="Welcome")), HI)
    assert sent(request)["messages"][0] == {"role": "user", "content": [{"type": "text", "text": "."}]}
    assert losses(request)["turns[0]"] == "repaired"


def test_a_trailing_assistant_message_ends_without_whitespace() -> None:
    request = foreign(HI, assistant(Text(text="The answer: \n")))
    assert sent(request)["messages"][-1]["content"][0]["text"] == "The answer:"
    assert losses(request)["turns"] == "repaired"
    assert refused(request, Profile(prefill=False)) == "turns"


def test_empty_text_is_never_sent() -> None:
    request = foreign(user(Text(text=""), Text(text=" \n")), assistant(Text(text="")), user(Text(text="x"), Text(text="")))
    assert sent(request)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "(empty)"}, {"type": "text", "text": "x"}]}
    ]


def test_mid_conversation_system_turns_keep_their_role() -> None:
    body = sent(foreign(HI, Turn(role="system", parts=(Text(text="rule"),)), assistant(Text(text="ok")), HI))
    assert [message["role"] for message in body["messages"]] == ["user", "system", "assistant", "user"]


def test_system_texts_stay_separate_blocks() -> None:
    system = (Text(text="a", cache=CacheMark(3600)), Text(text=""), Text(text="b"))
    assert sent(foreign(system=system))["system"] == [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "text", "text": "b"},
    ]


def test_arguments_become_objects() -> None:
    texts = ['{"a": 1}', "", "not json", "[1]", "null"]
    calls = [ToolCall(id=f"t{index}", name="a", arguments=text) for index, text in enumerate(texts)]
    results = [ToolResult(call_id=call.id) for call in calls]
    body = sent(foreign(HI, assistant(*calls), user(*results), tools=TOOLS))
    inputs = [block["input"] for block in body["messages"][1]["content"]]
    assert inputs == [{"a": 1}, {}, {"_raw_arguments": "not json"}, {"_value": [1]}, {}]


def test_tool_results() -> None:
    image = Image(source=Base64("image/png", "AA=="))
    results = [
        ToolResult(call_id="a", parts=(Text(text="plain"),)),
        ToolResult(call_id="b"),
        ToolResult(call_id="c", parts=(Text(text="bad"),), is_error=True),
        ToolResult(call_id="d", parts=(Text(text="see"), image)),
        ToolResult(call_id="e", structured={"output": "text"}),
        ToolResult(call_id="f", structured={"x": 1}),
    ]
    calls = [ToolCall(id=result.call_id, name="a", arguments="{}") for result in results]
    blocks = sent(foreign(HI, assistant(*calls), user(*results), tools=TOOLS))["messages"][2]["content"]
    assert [block.get("content") for block in blocks] == [
        "plain",
        None,
        "bad",
        [
            {"type": "text", "text": "see"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        ],
        "text",
        '{"x":1}',
    ]
    assert [block.get("is_error") for block in blocks] == [None, None, True, None, None, None]


def test_images_and_documents() -> None:
    text = base64.b64encode("größe".encode()).decode()
    parts = (
        Image(source=Url("https://e.org/a.png"), detail="low"),
        Document(source=Base64("application/pdf", "JVBERi0="), title="T", context="C", citations=True),
        Document(source=Base64("text/markdown", text)),
        Document(source=InlineText("plain")),
        Document(source=Url("https://e.org/a.pdf")),
        Document(source=Nested((Text(text="a"), Image(source=Base64("image/webp", "AA=="))))),
    )
    blocks = sent(foreign(user(*parts)))["messages"][0]["content"]
    assert [block["source"]["type"] for block in blocks] == ["url", "base64", "text", "text", "url", "content"]
    assert blocks[1]["title"] == "T"
    assert blocks[1]["citations"] == {"enabled": True}
    assert blocks[2]["source"]["data"] == "größe"


@pytest.mark.parametrize(
    "part",
    [
        Image(source=Base64("image/tiff", "AA==")),
        Image(source=FileRef("file-1")),
        Document(source=FileRef("file-1")),
        Document(source=Base64("application/zip", "AA==")),
        Document(source=Base64("text/plain", "!!")),
        Audio(source=Base64("audio/wav", "AA==")),
        Video(source=Url("https://e.org/v.mp4")),
        Foreign(kind="compaction", dialect="openai_responses", raw={}),
    ],
)
def test_what_cannot_be_shown_is_refused(part: Part) -> None:
    assert refused(foreign(user(part))) == "turns[0].parts[0]"


def test_what_can_be_missed_is_reported() -> None:
    turn = assistant(
        Refusal(text="No."),
        Image(source=Url("https://e.org")),
        Foreign(kind="web_search_call", dialect="openai_responses", raw={}),
        Audio(transcript="said"),
        Citation(url="u"),
    )
    request = foreign(Turn(role="user", name="ann", parts=(Text(text="Hi", extras={"x": 1}),), extras={"y": 2}), turn, HI)
    body = sent(request)
    assert [block["text"] for block in body["messages"][1]["content"]] == ["No.", "said"]
    assert set(losses(request)) == {
        "turns[0].name", "turns[0].y", "turns[0].parts[0].x", "turns[1].parts[1]", "turns[1].parts[2]", "turns[1].parts[3]",
        "turns[1].parts[4]",
    }  # fmt: skip
    assert refused(request, strict=True) == "turns[1].parts[1]"


def test_cache_marks_are_four_at_most_and_the_last_ones_stay() -> None:
    mark = CacheMark(1800)
    turns = [user(Text(text=f"{index}", cache=mark)) for index in range(3)]
    request = foreign(*turns, system=(Text(text="s", cache=mark),), tools=(Tool(name="a", cache=mark),), cache=Cache(mark=mark))
    body = sent(request)
    assert body["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in body["tools"][0]
    assert "cache_control" not in body["system"][0]
    assert [block.get("cache_control") for block in body["messages"][0]["content"]] == [{"type": "ephemeral"}] * 3
    assert "cache_control" not in str(sent(request, Profile()))


# -- tools ------------------------------------------------------------


def test_tool_definitions() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}}
    tools = (
        Tool(name="plain", description="d", schema=schema, extras={"x": 1}),
        Tool(name="strict", schema=schema, strict=True),
        Tool(name="bare", deferred=True),
    )
    body = sent(foreign(tools=tools))
    assert body["tools"][0] == {"name": "plain", "description": "d", "input_schema": schema}
    assert body["tools"][1] == {"name": "strict", "input_schema": for_anthropic(schema, strict=True), "strict": True}
    assert body["tools"][2] == {"name": "bare", "input_schema": {"type": "object", "properties": {}}}
    assert "strict" not in sent(foreign(tools=tools), Profile(strict_tools=False))["tools"][1]
    assert refused(foreign(tools=tools), Profile(tools_limit=2)) == "tools"


def test_calls_of_a_history_without_tools_get_their_definitions() -> None:
    request = foreign(HI, assistant(CALL), user(RESULT), HI)
    body = sent(request)
    assert [tool["name"] for tool in body["tools"]] == ["a"]
    assert body["tool_choice"] == {"type": "none"}
    assert losses(request)["tools"] == "repaired"


def test_hosted_tools_of_other_families() -> None:
    search = Tool(
        name="web_search",
        kind="hosted",
        hosted="web_search",
        config={
            "type": "web_search",
            "filters": {"allowed_domains": ["e.org"]},
            "user_location": {"type": "approximate", "approximate": {"city": "Bern"}},
            "search_context_size": "low",
        },
    )
    other = Tool(name="file_search", kind="hosted", hosted="file_search")
    hosting = msgspec.structs.replace(BUDGET, hosted_tools=True)
    body = sent(foreign(tools=(search, other)), hosting)
    assert body["tools"] == [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "allowed_domains": ["e.org"],
            "user_location": {"type": "approximate", "city": "Bern"},
        }
    ]
    assert set(losses(foreign(tools=(search, other)), hosting)) == {"tools[0].search_context_size", "tools[1]"}
    assert "tools" not in sent(foreign(tools=(search,)))
    assert refused(foreign(tools=(other,)), strict=True) == "tools[0]"
    forced = ToolChoice("named", ("file_search",), kind="hosted")
    assert refused(foreign(tools=(other,), tool_choice=forced)) == "tool_choice"


TYPED = [
    ("bash_20250124", "bash", "bash", {"command", "restart"}),
    ("text_editor_20250728", "str_replace_based_edit_tool", "text_editor", {"command", "path", "insert_text", "old_str"}),
    ("text_editor_20250124", "str_replace_editor", "text_editor", {"command", "path", "new_str"}),
    ("memory_20250818", "memory", "memory", {"command", "old_path", "new_path", "insert_text"}),
    ("computer_20251124", "computer", "computer", {"action", "coordinate", "scroll_amount"}),
    ("computer_20241022", "computer", "computer", {"action", "coordinate"}),
]


@pytest.mark.parametrize(("kind", "name", "family", "fields"), TYPED)
def test_typed_client_tools_have_a_function_form(kind: str, name: str, family: str, fields: set[str]) -> None:
    tool = home(tools=[{"type": kind, "name": name, "cache_control": {"type": "ephemeral"}}]).tools[0]
    assert (tool.kind, tool.hosted, tool.name) == ("hosted", family, name)
    (function,) = DIALECT.portable(home(tools=[tool.raw])).tools
    assert (function.kind, function.name, function.hosted, function.raw) == ("function", name, None, None)
    assert function.description
    assert function.schema is not None
    assert fields <= set(function.schema["properties"])
    assert set(function.schema["required"]) <= set(function.schema["properties"])
    assert for_anthropic(function.schema, strict=False) == function.schema


def test_typed_tools_know_their_version() -> None:
    def properties(kind: str, **config: Any) -> dict[str, Any]:
        function = as_function(home(tools=[{"type": kind, "name": "t", **config}]).tools[0])
        assert function is not None
        assert function.schema is not None
        return dict(function.schema["properties"])

    assert "undo_edit" in properties("text_editor_20250124")["command"]["enum"]
    assert "undo_edit" not in properties("text_editor_20250429")["command"]["enum"]
    assert "insert_text" not in properties("text_editor_20250429")
    assert "scroll" not in properties("computer_20241022")["action"]["enum"]
    assert "region" not in properties("computer_20251124")
    assert "zoom" in properties("computer_20251124", enable_zoom=True)["action"]["enum"]


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("web_search_20260318", "web_search"),
        ("code_execution_20260521", "code_execution"),
        ("tool_search_tool_bm25_20251119", "tool_search"),
        ("tool_search_tool_regex", "tool_search"),
        ("computer_toolset_20260801", "computer_toolset"),
        ("mcp_toolset", "mcp_toolset"),
    ],
)
def test_tools_without_a_function_form(kind: str, family: str) -> None:
    assert family_of(kind) == family
    assert as_function(Tool(name="x", kind="hosted", hosted=family, config={"type": kind})) is None
    assert as_function(Tool(name="x")) is None


def test_a_changed_hosted_tool_is_written_from_its_settings() -> None:
    item = {"type": "web_search_20260318", "name": "web_search", "max_uses": 2, "defer_loading": True, "strict": True,
            "cache_control": {"type": "ephemeral", "scope": "x"}}  # fmt: skip
    toolset = {"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}}}
    request = home(tools=[item, toolset, {"name": "a", "defer_loading": True, "input_examples": [{}]}])
    tools = tuple(changed(tool) for tool in request.tools)
    written = sent(msgspec.structs.replace(request, tools=tools))["tools"]
    assert written[:2] == [item, toolset]
    assert written[2] == {"name": "a", "input_schema": {"type": "object", "properties": {}}, "defer_loading": True,
                          "input_examples": [{}]}  # fmt: skip


# -- controls and the rest ------------------------------------------------------------


def test_sampling() -> None:
    request = foreign(temperature=1.7, top_p=0.5, top_k=3, stop=("END", " \n"))
    body = sent(request)
    assert (body["temperature"], body["top_p"], body["top_k"], body["stop_sequences"]) == (1, 0.5, 3, ["END"])
    assert losses(request) == {"temperature": "repaired", "stop": "dropped"}
    assert refused(request, strict=True) == "stop"


def test_structured_output() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]}
    output = Output(kind="schema", name="n", schema=schema, strict=True)
    wanted = sent(foreign(output=output))["output_config"]["format"]
    assert wanted["type"] == "json_schema"
    assert wanted["schema"]["additionalProperties"] is False
    assert "minimum" not in wanted["schema"]["properties"]["a"]
    told = sent(foreign(output=output, system=(Text(text="s"),)), Profile(json_schema=False))
    assert "output_config" not in told
    assert '"minimum":1' in told["system"][-1]["text"]
    free = foreign(output=Output(kind="json"))
    assert "JSON" in sent(free)["system"][0]["text"]
    assert losses(free) == {"response_format": "emulated"}


def test_identity_and_tier() -> None:
    body = sent(foreign(end_user="u1", tier="default", metadata={"a": "b"}, stream=True))
    assert body["metadata"] == {"user_id": "u1"}
    assert body["service_tier"] == "standard_only"
    assert body["stream"] is True
    assert sent(foreign(tier="flex"))["service_tier"] == "auto"
    assert "service_tier" not in sent(foreign(tier="flex"), Profile(tier=False))


def test_fields_of_no_meaning_elsewhere_are_dropped_even_by_strict_targets() -> None:
    request = foreign(metadata={"a": "b"}, store=True, cache=Cache(key="k"), extras={"novel": 1})
    assert {loss.path for loss in encode(request, strict=True).losses} == {"metadata", "prompt_cache_key", "novel"}
    target = Target("claude", strict=True)
    told = prepare(request, target, get_dialect(request.dialect), DIALECT).losses
    assert {(loss.path, loss.minor) for loss in told} == {("store", True)}, (
        "nothing is stored at any upstream of another dialect"
    )


def test_profile_fields() -> None:
    profile = msgspec.structs.replace(
        BUDGET,
        pass_fields=("inference_geo",),
        body={"speed": "fast", "max_tokens": 1},
        drop_fields=("service_tier", "cache_control.scope", "eager_input_streaming"),
    )
    body = sent(foreign(extras={"inference_geo": "eu", "model": "evil"}, tier="auto"), profile)
    assert (body["inference_geo"], body["speed"], body["max_tokens"], body["model"]) == ("eu", "fast", 8192, "claude")
    assert "service_tier" not in body
    marked = {"type": "ephemeral", "scope": "global"}
    schema = {"type": "object", "properties": {"service_tier": {"type": "string"}, "cache_control": {"scope": 1}}}
    request = home(
        service_tier="auto",
        system=[{"type": "text", "text": "s", "cache_control": marked}],
        tools=[{"name": "a", "eager_input_streaming": True, "cache_control": marked, "input_schema": schema}],
    )
    body = sent(request, profile)
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert body["tools"] == [{"name": "a", "cache_control": {"type": "ephemeral"}, "input_schema": schema}]
    assert "service_tier" not in body


# -- home again, changed ------------------------------------------------------------


def test_only_what_changed_is_written_anew() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Hi", "novel": 1}], "novel": 2},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "bad id", "name": "a", "input": {"x": 1.0}, "caller": {}},
                                          {"type": "server_tool_use", "id": "s", "name": "n", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "bad id", "content": []}]},
    ]  # fmt: skip
    tools = [{"name": "a", "novel": 3}, {"name": "b"}]
    request = home(messages=messages, tools=tools, novel=4, system="S", tool_choice={"type": "auto"}, temperature=1)
    call, server = request.turns[1].parts
    assert isinstance(call, ToolCall)
    turns = (request.turns[0], changed(request.turns[1], parts=(server, changed(call, id="good"))), request.turns[2])
    changed_request = msgspec.structs.replace(
        request,
        turns=turns,
        tools=request.tools[:1],
        tool_choice=ToolChoice("required"),
        temperature=None,
        stop=("x",),
        stream=True,
    )
    body = sent(changed_request)
    assert body == {
        "model": "claude",
        "max_tokens": 1000,
        "messages": [
            messages[0],
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "s", "name": "n", "input": {}},
                    {"type": "tool_use", "id": "good", "name": "a", "input": {"x": 1.0}, "caller": {}},
                ],
            },
            messages[2],
        ],
        "tools": [{"name": "a", "novel": 3}],
        "tool_choice": {"type": "any"},
        "novel": 4,
        "system": "S",
        "stop_sequences": ["x"],
        "stream": True,
    }


def test_instructions_added_on_the_way_join_the_clients_own() -> None:
    request = home(system="S")
    added = msgspec.structs.replace(request, system=(*request.system, Text(text="Call the tool a.")))
    assert sent(added)["system"] == [{"type": "text", "text": "S"}, {"type": "text", "text": "Call the tool a."}]


def test_tools_that_were_taken_away_stay_away() -> None:
    request = home(tools=[{"name": "a"}], tool_choice={"type": "any"})
    body = sent(msgspec.structs.replace(request, tools=(), tool_choice=None))
    assert "tools" not in body
    assert "tool_choice" not in body


def test_a_changed_answer_format_replaces_the_older_spelling() -> None:
    request = home(output_format={"type": "json_schema", "schema": {"type": "object"}}, max_tokens=7)
    other = msgspec.structs.replace(request, output=Output(), max_output=9)
    body = sent(other)
    assert "output_format" not in body
    assert "output_config" not in body
    assert body["max_tokens"] == 9
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    renewed = msgspec.structs.replace(request, output=Output(kind="schema", schema=schema))
    assert sent(renewed)["output_config"] == {"format": {"type": "json_schema", "schema": schema}}


def test_neutral_meaning_of_a_request() -> None:
    """What other dialects' encoders will see."""
    request = home(
        system=[{"type": "text", "text": "S", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        metadata={"user_id": "u"},
        thinking={"type": "adaptive", "display": "omitted"},
        output_config={"effort": "high"},
        tool_choice={"type": "tool", "name": "a", "disable_parallel_tool_use": True},
        tools=[{"name": "a", "input_schema": {"type": "object"}, "defer_loading": True}],
        stop_sequences=["x"],
        context_management={"edits": []},
        novel=1,
        messages=[
            {
                "role": "user",
                "content": [
                    {
                        "type": "search_result",
                        "source": "https://e.org",
                        "title": "T",
                        "content": [{"type": "text", "text": "f"}],
                    },
                    {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": "bad"},
                ],
            }
        ],
    )
    system = request.system[0]
    assert isinstance(system, Text)
    assert system.cache is not None
    assert system.cache.ttl_seconds == 3600
    assert request.end_user == "u"
    assert request.reasoning == Reasoning(mode="adaptive", effort="high", visible=False, display="omitted")
    assert request.tool_choice == ToolChoice("named", ("a",))
    assert request.parallel is False
    assert request.tools[0].deferred
    assert request.stop == ("x",)
    assert request.server == {"context_management": {"edits": []}}
    assert request.extras == {"novel": 1}
    found, result = request.turns[0].parts
    assert isinstance(found, Document)
    assert (found.title, found.context) == ("T", "https://e.org")
    assert isinstance(found.source, Nested)
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert result.parts == (Text(text="bad", raw="bad"),)
