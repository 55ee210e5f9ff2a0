"""Requests in the Messages dialect: what reaches a model of each generation, from this dialect and from any other.

The generic runner proves that an unchanged request comes home unchanged, tests/cases/requests holds the translations; here is
what a row of data cannot say: headers, paths, and requests that were changed on their way. The facts:
docs/reference/wire-facts.md#anthropic-tools-and-thinking.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import msgspec
import pytest

from athena.dialects import get_dialect
from athena.dialects.anthropic_messages.typed_tools import as_function, family_of
from athena.dialects.base import Encoded, EncodeTarget
from athena.errors import AthenaError
from athena.model.parts import (
    Document,
    Nested,
    Text,
    ToolCall,
    ToolResult,
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


def foreign(*turns: Turn, **fields: Any) -> Request:
    """A request of another dialect, after `prepare`."""
    return Request(dialect="openai_chat", model="gpt", turns=turns or (HI,), **fields)


def home(**fields: Any) -> Request:
    body = {"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}], **fields}
    return DIALECT.decode_request(body, version="2023-06-01")


def encode(request: Request, profile: Profile = BUDGET, *, strict: bool = False) -> Encoded:
    kept = copy.deepcopy(request.raw)
    encoded = DIALECT.encode_request(request, EncodeTarget("claude", profile, strict))
    assert request.raw == kept, "encoding changed its input"
    if request.dialect != DIALECT.name:
        sampling = ("temperature", "top_p", "top_k")
        check_body(DIALECT.name, {key: value for key, value in encoded.body.items() if key not in sampling})
    return encoded


def sent(request: Request, profile: Profile = BUDGET) -> dict[str, Any]:
    return encode(request, profile).body


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


def test_path_is_below_a_base_without_version() -> None:
    assert encode(foreign()).path == "/v1/messages"


# -- thinking ------------------------------------------------------------


def test_other_settings_of_output_config_survive_a_changed_effort() -> None:
    request = home(output_config={"effort": "max", "task_budget": {"total": 5}})
    lowered = msgspec.structs.replace(request, reasoning=Reasoning(effort="high"))
    assert sent(lowered)["output_config"] == {"effort": "high", "task_budget": {"total": 5}}


def test_a_step_whose_thinking_was_dropped_switches_thinking_off() -> None:
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


# -- tools ------------------------------------------------------------


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


def test_fields_of_no_meaning_elsewhere_are_dropped_even_by_strict_targets() -> None:
    request = foreign(metadata={"a": "b"}, store=True, cache=Cache(key="k"), extras={"novel": 1})
    assert {loss.path for loss in encode(request, strict=True).losses} == {"metadata", "prompt_cache_key", "novel"}
    target = EncodeTarget("claude", strict=True)
    told = prepare(request, target, get_dialect(request.dialect), DIALECT).losses
    assert {(loss.path, loss.minor) for loss in told} == {("store", True)}, (
        "nothing is stored at any upstream of another dialect"
    )


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


TOOL = {"name": "t", "description": "d", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"system": "s", "stream": True, "temperature": 1, "tools": [TOOL, {**TOOL, "name": "u"}]},
        {"system": None, "stream": None, "temperature": None, "tools": None},
        {"system": "", "stream": False, "temperature": 0.5, "tools": []},
        {"system": [{"type": "text", "text": "s"}]},
        {"system": 1},
        {"tools": [TOOL, TOOL]},
        {"tools": [{**TOOL, "name": "a b"}]},
        {"tools": [{"type": "bash_20250124", "name": "bash"}, TOOL]},
        {"tools": {}},
        {"tools": [None]},
        {"max_tokens": True},
        {"max_tokens": -1},
        {"max_tokens": 5.0},
        {"max_tokens": None},
        {"model": ""},
        {"model": 1},
        {"messages": []},
        {"messages": None},
        {"messages": {"role": "user"}},
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "user", "content": [{"type": "strange"}]}]},
        {"messages": [{"role": "user", "content": "Hi", "more": 1}]},
        {"messages": [{"role": "user", "content": "Hi"}] * 70},
        {"temperature": "hot"},
        {"temperature": True},
        {"stream": 1},
        {"top_p": 1},
    ],
)
def test_a_usual_request_is_read_as_any_other(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}], **fields}

    def read(stream: bool | None) -> Request | tuple[type, str]:
        try:
            return DIALECT.decode_request(body, stream=stream, version="2023-06-01")
        except AthenaError as error:
            return type(error), str(error)

    short = [read(stream) for stream in (None, True, False)]
    module = sys.modules["athena.dialects.anthropic_messages.decode_request"]
    monkeypatch.setattr(module, "_usual_request", lambda *given: None)
    assert [read(stream) for stream in (None, True, False)] == short
