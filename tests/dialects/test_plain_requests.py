"""The short ways of usual requests read and write what the long ways do: Messages clients, Chat upstreams, tools."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from athena.dialects.anthropic_messages.decode_blocks import plain_content
from athena.dialects.base import Encoded, EncodeTarget
from athena.dialects.openai_chat.write_messages import ChatMessageWriter
from athena.errors import AthenaError
from athena.model.parts import CacheMark, Citation, Image, Opaque, Part, Refusal, Text, Thinking, ToolCall, ToolResult, Url
from athena.model.profile import Profile
from athena.model.request import Request, Tool, Turn
from athena.schemas import for_openai, kept_by_openai

decode_request = import_module("athena.dialects.anthropic_messages.decode_request")
encode_request = import_module("athena.dialects.openai_chat.encode_request")

# -- blocks and tools of a Messages client ------------------------------------------------------------------------------------

FIELDS: dict[str, tuple[Any, ...]] = {
    "type": ("text", "tool_use", "tool_result", "image", "x", None, 1, ["text"], {}),
    "text": ("Hi", "", "x-anthropic-billing-header: 1", None, 1, ["Hi"]),
    "id": ("c1", "", None, 1),
    "name": ("look", "", None, 1),
    "input": ({}, {"a": 1}, {"_raw_arguments": "{"}, None, "{}", []),
    "tool_use_id": ("c1", "", None, 1),
    "content": ("Hi", "", None, [], [{"type": "text", "text": "Hi"}], [{"type": "text"}], ["Hi"], 1),
    "is_error": (True, False, None, 1),
    "cache_control": ({"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}, {}, None, "ephemeral", []),
    "unknown": (1, None),
}
KINDS = {
    "text": ("type", "text"),
    "tool_use": ("type", "id", "name", "input"),
    "tool_result": ("type", "tool_use_id", "content"),
}


@some.composite
def blocks(draw: some.DrawFn) -> Any:
    """A block, most often one of the usual kinds with one field or two that are strange, missing or too many."""
    kind = draw(some.sampled_from(sorted(KINDS)))
    usual = {name: FIELDS[name][0] for name in KINDS[kind]} | {"type": kind}
    changed = draw(some.lists(some.sampled_from(sorted(FIELDS)), max_size=2))
    for name in changed:
        usual[name] = draw(some.sampled_from(FIELDS[name]))
    for name in draw(some.lists(some.sampled_from(sorted(usual)), max_size=1)) if draw(some.booleans()) else ():
        del usual[name]
    return draw(some.sampled_from([usual, usual, usual, usual, "Hi", 1, None, [usual]]))


def read(body: dict[str, Any]) -> object:
    try:
        return decode_request.decode_request(body)
    except AthenaError as error:
        return type(error), str(error), error.code


def read_at_length(body: dict[str, Any]) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_request, "_usual_request", lambda *given: None)
        patch.setattr(decode_request, "_plain_turn", lambda message: None)
        patch.setattr(decode_request, "_plain_system_block", lambda block: None)
        patch.setattr(decode_request, "_plain_tools", lambda declared: None)
        return read(body)


@given(some.lists(blocks(), max_size=3), some.sampled_from(["user", "assistant", "system", "tool", None, 1, ["user"]]))
def test_messages_are_read_as_at_length(content: list[Any], role: Any) -> None:
    for message in ({"role": role, "content": content}, {"role": role, "content": "Hi", "x": 1}, {"role": role}, content):
        body = {"model": "m", "max_tokens": 1, "messages": [message]}
        assert read(body) == read_at_length(body)


@given(some.lists(blocks(), max_size=3))
def test_instructions_are_read_as_at_length(system: list[Any]) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], "system": system}
    assert read(body) == read_at_length(body)


@pytest.mark.parametrize(
    "settings",
    [
        {"metadata": {"user_id": "u"}},
        {"metadata": {"user_id": "u", "more": 1}, "temperature": 0.5},
        {"metadata": {}},
        {"metadata": None},
        {"metadata": {"user_id": 1}},
        {"metadata": "u", "max_tokens": -1},
        {"metadata": {"user_id": "u"}, "max_tokens": -1, "temperature": "hot"},
        {"metadata": {"user_id": "u"}, "temperature": "hot"},
        {"metadata": {"user_id": "u"}, "stream": True, "tools": [], "system": "Be brief."},
    ],
)
def test_settings_are_read_as_at_length(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], **settings}
    short = read(body)
    monkeypatch.setattr(decode_request, "_USUAL_FIELDS", frozenset())
    assert short == read_at_length(body)


def test_a_mark_for_the_cache_is_read_in_the_short_way() -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    text = {"type": "text", "text": "Hi", **mark}
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}, **mark}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [text], "is_error": True, **mark}
    parts = plain_content([text, call, result])
    assert parts is not None
    assert [part.cache.ttl_seconds for part in parts if isinstance(part, Text | ToolCall | ToolResult) and part.cache] == [
        3600
    ] * 3


TOOL_FIELDS: dict[str, tuple[Any, ...]] = {
    "name": ("look", "find", "a b", "", None, 1),
    "description": ("Looks.", "", None, 1),
    "input_schema": (
        {"type": "object"},
        {"type": "object", "properties": {"u": {"type": "string", "format": "uri"}}},
        {"type": "string"},
        {"type": ["object"]},
        {},
        None,
        [],
    ),
    "type": ("custom", "bash_20250124", None, 1),
    "cache_control": ({"type": "ephemeral"}, None, 1),
    "strict": (True, None, 1),
    "unknown": (1, None),
}


@some.composite
def declarations(draw: some.DrawFn) -> Any:
    """A tool, most often a usual one with one field or two that are strange, missing or too many."""
    usual: dict[str, Any] = {"name": draw(some.sampled_from(["look", "find", "read", "write"]))}
    usual |= {"description": "Looks.", "input_schema": {"type": "object"}}
    for name in draw(some.lists(some.sampled_from(sorted(TOOL_FIELDS)), max_size=2)):
        usual[name] = draw(some.sampled_from(TOOL_FIELDS[name]))
    if draw(some.integers(0, 5)) == 0:
        del usual[draw(some.sampled_from(sorted(usual)))]
    return draw(some.sampled_from([usual, usual, usual, usual, usual, "look", None]))


@given(some.lists(declarations(), max_size=4))
def test_tools_are_read_and_written_as_at_length(tools: list[Any]) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    request = read(body)
    assert request == read_at_length(body)
    if isinstance(request, Request):
        for profile in (Profile(), Profile(schema_drops=("title", "pattern")), Profile(strict_tools=True)):
            assert written(request, profile) == written_at_length(request, profile)


@given(some.lists(declarations(), max_size=4), some.sampled_from(["function", "function", "function", "custom", None, 1]))
def test_tools_of_chat_clients_are_read_as_at_length(tools: list[Any], kind: Any) -> None:
    chat = import_module("athena.dialects.openai_chat.decode_request")
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    wrapped = [
        {"type": kind if index == 1 else "function", "function": _renamed(tool), **({"more": 1} if index == 3 else {})}
        for index, tool in enumerate(tools)
    ]

    def outcome(listed: list[Any], **more: Any) -> object:
        try:
            return chat.decode_request({**body, "tools": listed, **more})
        except AthenaError as error:
            return type(error), str(error), error.code

    cases: list[tuple[list[Any], dict[str, Any]]] = [
        (wrapped, {}),
        (wrapped, {"top_k": 1}),
        (wrapped, {"functions": [{"name": "old"}]}),
        (wrapped, {"web_search_options": {}}),
        (tools, {}),
    ]
    short = [outcome(listed, **more) for listed, more in cases]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat, "_plain_tools", lambda declared: None)
        assert [outcome(listed, **more) for listed, more in cases] == short


def _renamed(tool: Any) -> Any:
    """The declaration in Chat's words."""
    return {{"input_schema": "parameters"}.get(key, key): value for key, value in tool.items()} if type(tool) is dict else tool


# -- messages and tools for a Chat upstream -----------------------------------------------------------------------------------


def written(request: Request, profile: Profile) -> object:
    try:
        return encode_request.encode_request(request, EncodeTarget("m", profile))
    except AthenaError as error:
        return type(error), str(error)


def written_at_length(request: Request, profile: Profile) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_request, "_are_plain", lambda tools, profile, *, home: [False] * len(tools))
        patch.setattr(ChatMessageWriter, "_plain", lambda self, part: None)
        patch.setattr(ChatMessageWriter, "_plain_assistant", lambda self, turn: None)
        patch.setattr(ChatMessageWriter, "_plain_texts", lambda self, parts: None)
        return written(request, profile)


MARK = CacheMark()
SEALED = Opaque(family="gemini", kind="thought_signature", payload="x")
PARTS: tuple[Part, ...] = (
    Text(text="Hi"),
    Text(text="you"),
    Text(text=""),
    Text(text="Hi", cache=MARK),
    Text(text="Hi", citations=(Citation(url="https://a.example"),)),
    Text(text="Hi", extras={"unknown": 1}),
    ToolCall(id="c1", name="look", arguments='{"a":1}'),
    ToolCall(id="c1", name="look", arguments="{}", signature=SEALED),
    ToolCall(id="c1", name="look", arguments="Hi", kind="custom"),
    ToolCall(id="c1", name="look", arguments="{}", cache=MARK, extras={"unknown": 1}),
    ToolResult(call_id="c1", parts=(Text(text="42"),)),
    ToolResult(call_id="c1", parts=(Text(text="42", cache=MARK),), cache=MARK),
    ToolResult(call_id="c1", parts=(Text(text="42"),), is_error=True),
    Thinking(text="So"),
    Thinking(signature=SEALED),
    Refusal(text="No"),
    Image(source=Url("https://a.example/a.png"), cache=MARK),
)
PROFILES = (
    Profile(),
    Profile(cache_marks="cache_control"),
    Profile(text_content=True),
    Profile(result_role="function"),
    Profile(signed_calls=True),
    Profile(reasoning_replay="always"),
    Profile(reasoning_replay="calls", reasoning_filler=" "),
    Profile(reasoning_replay="details"),
    Profile(reasoning_replay="chunks", empty_assistant=False),
)


@given(
    some.lists(
        some.tuples(
            some.sampled_from(["user", "assistant"]), some.lists(some.sampled_from(PARTS), max_size=4), some.integers(0, 9)
        ),
        min_size=1,
        max_size=4,
    ),
    some.sampled_from(PROFILES),
)
def test_turns_are_written_as_at_length(told: list[tuple[Any, list[Part], int]], profile: Profile) -> None:
    about: dict[int, dict[str, Any]] = {0: {"name": "Ann"}, 1: {"extras": {"unknown": 1}}}
    turns = tuple(Turn(role=role, parts=tuple(parts), **about.get(rare, {})) for role, parts, rare in told)
    request = Request(dialect="anthropic_messages", model="m", turns=turns)
    assert written(request, profile) == written_at_length(request, profile)


@pytest.mark.parametrize("parts", list(product(PARTS[:10], repeat=2)))
def test_assistants_are_written_as_at_length(parts: tuple[Part, ...]) -> None:
    request = Request(dialect="anthropic_messages", model="m", turns=(Turn(role="assistant", parts=parts),))
    for profile in PROFILES:
        assert written(request, profile) == written_at_length(request, profile)


def test_what_agents_send_most_is_written_in_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_here(*_: object, **__: object) -> object:
        raise AssertionError("the long way was taken")

    for name in ("_result", "_part", "_call", "_put_thinking"):
        monkeypatch.setattr(ChatMessageWriter, name, not_here)
    monkeypatch.setattr(encode_request, "_tool", not_here)
    turns = (
        Turn(role="user", parts=(Text(text="Hi"), Text(text="you"))),
        Turn(role="assistant", parts=(Text(text="So"), ToolCall(id="c1", name="look", arguments="{}"))),
        Turn(role="user", parts=(ToolResult(call_id="c1", parts=(Text(text="42"),), cache=MARK),)),
    )
    tools = (Tool(name="look", description="Looks.", schema={"type": "object"}),)
    told = written(Request(dialect="anthropic_messages", model="m", turns=turns, tools=tools), Profile())
    assert isinstance(told, Encoded)


# -- schemas ------------------------------------------------------------------------------------------------------------------

SCHEMAS = some.none() | some.recursive(
    some.sampled_from([{"type": "object"}, {"type": "string", "format": "uri"}, {"title": "uri"}, {}]),
    lambda inner: some.fixed_dictionaries(
        {"properties": some.dictionaries(some.sampled_from(["a", "title", "uri"]), inner, max_size=2)},
        optional={"type": some.sampled_from(["object", "string", ["object"], None]), "items": inner},
    ),
    max_leaves=6,
)


@given(some.lists(SCHEMAS, max_size=4), some.sampled_from([(), ("format:uri",), ("title", "format:uri")]))
def test_schemas_that_are_kept_come_out_as_they_are(schemas: list[Any], drops: tuple[str, ...]) -> None:
    for schema, is_kept in zip(schemas, kept_by_openai(schemas, drops), strict=True):
        assert not is_kept or for_openai(schema, strict=False, drops=drops) is schema


def test_one_schema_does_not_spoil_the_others() -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(150):
        deep = {"type": "object", "items": deep}
    link = {"type": "object", "properties": {"url": {"type": "string", "format": "uri"}}}
    plain = {"type": "object", "properties": {"url": {"type": "string"}}}
    assert kept_by_openai([plain, link, None, plain], ("format:uri",)) == [True, False, False, True]
    assert kept_by_openai([plain, deep], ("format:uri",)) == [True, False]
    assert kept_by_openai([plain, deep, link]) == [True, True, True]
    assert msgspec.json.encode(link)
