"""Tool names: within the target's rule, different for different tools, the same in every turn, and back again."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.calls.names import (
    ANTHROPIC_NAMES,
    CALL_ID_CHARS,
    GEMINI_NAMES,
    MODEL_CHARS,
    OPENAI_NAMES,
    TOOL_NAME_CHARS,
    NameMap,
    NameRule,
    check_names,
    fitted_names,
    rename,
)
from athena.errors import InvalidRequest
from athena.model.parts import ToolCall, ToolResult
from athena.model.request import Request, Tool, ToolChoice, Turn

_PATTERNS = {
    OPENAI_NAMES: r"[a-zA-Z0-9_-]{1,64}",
    ANTHROPIC_NAMES: r"[a-zA-Z0-9_-]{1,128}",
    GEMINI_NAMES: r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}",
}
_NAMES = (
    st.text(max_size=12)
    | st.text(alphabet="ab_.-", min_size=1, max_size=140)
    | st.sampled_from(
        ["get_weather", "a__b", "b", "a", "a.b", "a:b", "9lives", "", "é", "\ud800", "x" * 64, "x" * 65, "x" * 129]
    )
)
_KEYS = st.tuples(st.none() | st.sampled_from(["a", "mcp__x", "a b", "", "a__b"]), _NAMES)
_RULES = pytest.mark.parametrize("rule", list(_PATTERNS), ids=["openai", "anthropic", "gemini"])


@_RULES
@given(keys=st.lists(_KEYS, unique=True, max_size=10))
def test_names_fit_differ_and_come_back(rule: NameRule, keys: list[tuple[str | None, str]]) -> None:
    names = NameMap(keys, rule)
    targets = [names.target(name, namespace) for namespace, name in keys]
    assert all(re.fullmatch(_PATTERNS[rule], target) for target in targets)
    assert len(set(targets)) == len(keys)
    assert [names.client(target) for target in targets] == keys
    for (namespace, name), target in zip(keys, targets, strict=True):
        if namespace is None and re.fullmatch(_PATTERNS[rule], name):
            assert target == name, "a name that fits is kept, whatever else is there"


@_RULES
@given(keys=st.lists(_KEYS, unique=True, min_size=1, max_size=6))
def test_names_are_deterministic(rule: NameRule, keys: list[tuple[str | None, str]]) -> None:
    first, again = NameMap(keys, rule), NameMap([*keys, *keys], rule)
    assert [first.target(name, space) for space, name in keys] == [again.target(name, space) for space, name in keys]


def test_shape_of_rewritten_names() -> None:
    names = NameMap([(None, "my tool!"), (None, "9"), (None, "x" * 200)], GEMINI_NAMES)
    assert re.fullmatch(r"my_tool__[0-9a-f]{8}", names.target("my tool!"))
    assert re.fullmatch(r"_9_[0-9a-f]{8}", names.target("9"))
    assert len(names.target("x" * 200)) == 128


def test_rewriting_one_name_does_not_depend_on_the_others() -> None:
    alone = NameMap([(None, "bad name")], OPENAI_NAMES).target("bad name")
    assert NameMap([(None, "a"), ("ns", "b"), (None, "bad name")], OPENAI_NAMES).target("bad name") == alone


def test_namespaces_flatten_and_give_way_to_real_names() -> None:
    names = NameMap([("ns", "run"), (None, "ns__run"), ("ns__a", "b"), ("ns", "a__b")], OPENAI_NAMES)
    assert names.target("ns__run") == "ns__run"
    assert names.target("run", "ns") != "ns__run"
    assert names.client(names.target("run", "ns")) == ("ns", "run")
    assert names.target("b", "ns__a") == "ns__a__b"
    assert names.client(names.target("a__b", "ns")) == ("ns", "a__b")


def test_three_keys_with_one_flat_name_stay_apart() -> None:
    keys: list[tuple[str | None, str]] = [(None, "a__b__c"), ("a", "b__c"), ("a__b", "c")]
    names = NameMap(keys, OPENAI_NAMES)
    targets = [names.target(name, space) for space, name in keys]
    assert len(set(targets)) == 3
    assert [names.client(target) for target in targets] == keys


def test_a_real_name_that_looks_rewritten_is_respected() -> None:
    rewritten = NameMap([(None, "a b")], OPENAI_NAMES).target("a b")
    names = NameMap([(None, "a b"), (None, rewritten)], OPENAI_NAMES)
    assert names.target(rewritten) == rewritten
    assert names.target("a b") != rewritten
    assert names.client(rewritten) == (None, rewritten)


def test_nothing_to_do_is_false_and_unknown_names_pass() -> None:
    names = NameMap([(None, "ok"), (None, "ok")], OPENAI_NAMES)
    assert not names
    assert names.target("never seen!") == "never seen!"
    assert names.client("invented") == (None, "invented")
    any_names = NameRule(r"[\s\S]", 1 << 20)
    assert not NameMap([(None, "any thing at all")], any_names)
    assert NameMap([("ns", "x")], any_names)


# -- whole requests ----------------------------------------------------------------------------------------------------------


def _request() -> Request:
    return Request(
        dialect="anthropic_messages",
        model="m",
        tools=(
            Tool(name="plain", raw={"name": "plain"}),
            Tool(name="bad name", raw={"name": "bad name"}),
            Tool(name="run", namespace="ns"),
            Tool(name="web search", kind="hosted", hosted="web_search"),
        ),
        turns=(
            Turn(role="assistant", parts=(ToolCall(id="1", name="plain", arguments="{}", raw={}),), raw={"turn": 0}),
            Turn(role="user", parts=(ToolResult(call_id="1", name="plain", raw={}),), raw={"turn": 1}),
            Turn(
                role="assistant",
                parts=(
                    ToolCall(id="2", name="bad name", arguments="{}"),
                    ToolCall(id="3", name="run", arguments="{}", namespace="ns"),
                    ToolCall(id="4", name="old tool", arguments="{}"),
                ),
            ),
            Turn(
                role="user",
                parts=(
                    ToolResult(call_id="2", name="bad name"),
                    ToolResult(call_id="3", name="run"),
                    ToolResult(call_id="4"),
                ),
            ),
        ),
        tool_choice=ToolChoice("allowed", ("bad name", "run")),
    )


def test_every_place_of_a_name_is_renamed_alike() -> None:
    request = _request()
    names = fitted_names(request, OPENAI_NAMES)
    renamed = rename(request, names)
    bad, run, old = names.target("bad name"), "ns__run", names.target("old tool")
    assert [tool.name for tool in renamed.tools] == ["plain", bad, run, "web search"]
    assert [tool.namespace for tool in renamed.tools] == [None] * 4
    assert [part.name for part in renamed.turns[2].parts if isinstance(part, ToolCall)] == [bad, run, old]
    assert [part.name for part in renamed.turns[3].parts if isinstance(part, ToolResult)] == [bad, run, None]
    assert renamed.tool_choice == ToolChoice("allowed", (bad, run))
    assert renamed.turns[0] is request.turns[0]
    assert renamed.turns[1] is request.turns[1]
    assert renamed.tools[0] is request.tools[0]
    assert renamed.tools[1].raw is None


def test_history_names_are_part_of_the_map() -> None:
    names = fitted_names(_request(), OPENAI_NAMES)
    assert names.holds("old tool", None)
    assert not names.holds("web search", None)


@_RULES
@given(keys=st.lists(_KEYS, max_size=5), called=st.lists(_KEYS, max_size=5), later=st.lists(_KEYS, max_size=5))
def test_a_later_call_changes_no_earlier_name(
    rule: NameRule,
    keys: list[tuple[str | None, str]],
    called: list[tuple[str | None, str]],
    later: list[tuple[str | None, str]],
) -> None:
    before, after = NameMap(keys, rule, called), NameMap(keys, rule, [*called, *later])
    known = [*keys, *called]
    assert [after.target(name, space) for space, name in known] == [before.target(name, space) for space, name in known]


def test_request_that_fits_is_the_same_object() -> None:
    request = Request(dialect="d", model="m", tools=(Tool(name="ok"),))
    assert rename(request, fitted_names(request, OPENAI_NAMES)) is request


@_RULES
def test_renaming_twice_changes_nothing(rule: NameRule) -> None:
    request = _request()
    once = rename(request, fitted_names(request, rule))
    names = fitted_names(once, rule)
    assert not names
    assert rename(once, names) is once


def _named(part: ToolCall | ToolResult) -> Request:
    return Request(dialect="openai_chat", model="m", turns=(Turn(role="assistant", parts=(part,)),))


_NAMED: dict[str, tuple[int, Callable[[str], Request]]] = {
    "model": (MODEL_CHARS, lambda name: Request(dialect="openai_chat", model=name)),
    "tools[0].name": (TOOL_NAME_CHARS, lambda name: Request(dialect="openai_chat", model="m", tools=(Tool(name=name),))),
    "tool_choice": (
        TOOL_NAME_CHARS,
        lambda name: Request(dialect="openai_chat", model="m", tool_choice=ToolChoice("named", names=(name,))),
    ),
    "turns[0]: name of a tool call": (TOOL_NAME_CHARS, lambda name: _named(ToolCall(id="c", name=name, arguments="{}"))),
    "turns[0]: id of a tool call": (CALL_ID_CHARS, lambda name: _named(ToolCall(id=name, name="f", arguments="{}"))),
    "turns[0]: call id of a tool result": (CALL_ID_CHARS, lambda name: _named(ToolResult(call_id=name, parts=()))),
    "turns[0]: name of a tool result": (TOOL_NAME_CHARS, lambda name: _named(ToolResult(call_id="c", name=name, parts=()))),
}


@pytest.mark.parametrize("place", _NAMED)
def test_a_name_that_is_longer_than_any_real_one_is_refused_with_its_place(place: str) -> None:
    most, request = _NAMED[place]
    check_names(request("n" * most))
    with pytest.raises(InvalidRequest, match=f"^{re.escape(place)}: {most + 1} characters; at most {most} are allowed"):
        check_names(request("n" * (most + 1)))
