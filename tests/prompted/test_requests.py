"""The request side: where instructions go, how history reads, what is refused."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from athena.dialects import get_dialect
from athena.errors import InvalidRequest
from athena.exchange import Exchange, Options, Route
from athena.formats import get_format
from athena.formats.machine.engine import TextParser
from athena.model.events import ToolCallComplete
from athena.model.parts import Base64, Image, Part, Text, ToolCall, ToolResult
from athena.model.profile import Profile
from athena.model.request import Request, Role, Tool, ToolChoice, Turn
from athena.prompted import PromptedOptions, render_request
from athena.prompted.errors import ToolConfigurationError, ToolValidationError, http_status
from athena.prompted.options import checked_options
from athena.prompted.render import Rendered
from athena.prompted.templates import JSON_TEMPLATE, PLACEHOLDER, template_problem
from prompted.prompted_cases import parsed_lines

WEATHER = Tool(
    name="get_weather",
    description="Weather {now} in 100% of cities",
    schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    strict=True,
)
PICTURE = Image(source=Base64("image/png", "AAAA"))


def turn(role: Role, *parts: Part | str) -> Turn:
    return Turn(role=role, parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def ask(*turns: Turn, tools: tuple[Tool, ...] = (WEATHER,), system: tuple[Part, ...] = (), **fields: Any) -> Request:
    return Request(dialect="openai_chat", model="gemma", turns=turns, tools=tools, system=system, **fields)


def texts(rendered: Rendered) -> list[tuple[str, str]]:
    return [(one.role, "\n".join(part.text for part in one.parts if isinstance(part, Text))) for one in rendered.request.turns]


def test_the_default_text_has_one_place_for_tools() -> None:
    assert template_problem(JSON_TEMPLATE) == ""
    assert JSON_TEMPLATE.count(PLACEHOLDER) == 1


def test_nothing_changes_without_tools_and_results() -> None:
    request = ask(turn("user", "Hi"), tools=())
    assert render_request(request, PromptedOptions()).request is request


def test_percent_signs_and_braces_mean_nothing() -> None:
    options = PromptedOptions(template="100% {x} %d\n%s\n%% {{y}}")
    prompt = texts(render_request(ask(turn("user", "Hi")), options))[0][1]
    assert prompt.startswith("100% {x} %d\n{")
    assert prompt.endswith("\n%% {{y}}\n\nHi")
    tool = parsed_lines(prompt)[0]
    assert tool == {
        "name": "get_weather", "description": WEATHER.description, "parameters": WEATHER.schema, "strict": True
    }  # fmt: skip


INJECTIONS: dict[str, tuple[Request, bool, list[str], int]] = {
    # name: request, system_messages, roles after, which turn holds the prompt (-1: the system text)
    "first user message": (ask(turn("user", "Hi")), False, ["user"], 0),
    "new system message": (ask(turn("user", "Hi")), True, ["user"], -1),
    "system text": (ask(turn("user", "Hi"), system=(Text(text="Be brief."),)), False, ["user"], -1),
    "last of the leading instructions": (
        ask(turn("user", "Hi"), system=(Text(text="One."), Text(text="Two."))),
        False,
        ["user"],
        -1,
    ),
    "never instructions in mid-conversation": (
        ask(turn("user", "a"), turn("system", "One."), turn("user", "b"), turn("system", "Two."), turn("user", "c")),
        False,
        ["user", "system", "user", "system", "user"],
        0,
    ),
    "no messages": (ask(), False, ["user"], 0),
    "only assistant messages": (ask(turn("assistant", "Hello")), False, ["user", "assistant"], 0),
    "assistant first": (ask(turn("assistant", "Hello"), turn("user", "Hi")), False, ["assistant", "user"], 1),
    "multimodal": (ask(turn("user", PICTURE, "What is this?")), False, ["user"], 0),
    "two users in a row": (ask(turn("user", "a"), turn("user", "b")), False, ["user"], 0),
}


@pytest.mark.parametrize("name", INJECTIONS)
def test_injection(name: str) -> None:
    request, system_messages, roles, place = INJECTIONS[name]
    rendered = render_request(request, PromptedOptions(system_messages=system_messages))
    after = rendered.request
    assert [one.role for one in after.turns] == roles
    assert all(first != second or first == "system" for first, second in itertools.pairwise(roles))
    everything = [part for one in after.turns for part in one.parts] + list(after.system)
    holders = [part for part in everything if isinstance(part, Text) and '"get_weather"' in part.text]
    assert len(holders) == 1
    if place >= 0:
        assert any(part is holders[0] for part in after.turns[place].parts)
    else:
        assert holders[0] is after.system[-1]
    said = "\n".join(part.text for part in everything if isinstance(part, Text))
    for one in request.turns:
        for part in one.parts:
            assert (part in everything) if isinstance(part, Image) else (isinstance(part, Text) and part.text in said)
    assert all(isinstance(part, Text) and part.text in said for part in request.system)
    assert not after.tools
    assert after.tool_choice is None
    if name == "multimodal":
        assert isinstance(after.turns[0].parts[0], Text)


def history(**result: Any) -> Request:
    return ask(
        turn("user", "Weather?"),
        turn(
            "assistant",
            "Looking.",
            ToolCall(id="call_1", name="get_weather", arguments='{"city": "Paris"}'),
            ToolCall(id="call_2", name="get_weather", arguments="{}"),
        ),
        turn(
            "user",
            ToolResult(call_id="call_1", name="get_weather", parts=(Text(text="sunny\n20°"), PICTURE)),
            ToolResult(call_id="call_2", name="get_weather", parts=(Text(text="no city"),), is_error=True),
            "And tomorrow?",
        ),
        **result,
    )


def test_history_inline() -> None:
    rendered = render_request(history(), PromptedOptions())
    roles = [role for role, _ in texts(rendered)]
    assert roles == ["user", "assistant", "user"]
    said = texts(rendered)[1][1]
    assert said.startswith("Looking.\n\n[")
    assert json.loads(said.split("\n\n")[1]) == [
        {"id": "call_1", "name": "get_weather", "parameters": {"city": "Paris"}},
        {"id": "call_2", "name": "get_weather", "parameters": {}},
    ]
    assert parsed_lines(texts(rendered)[2][1]) == [
        {"tool_call_id": "call_1", "name": "get_weather", "result": "sunny\n20°"},
        {"tool_call_id": "call_2", "name": "get_weather", "is_error": True, "result": "no city"},
    ]
    parts = rendered.request.turns[2].parts
    assert PICTURE in parts
    assert isinstance(parts[-1], Text)
    assert parts[-1].text == "And tomorrow?"


def test_history_in_the_prompt() -> None:
    rendered = render_request(history(), PromptedOptions(results="prompt"))
    prompt = texts(rendered)[0][1]
    assert [line["tool_call_id"] for line in parsed_lines(prompt) if "tool_call_id" in line] == ["call_1", "call_2"]
    assert [role for role, _ in texts(rendered)] == ["user", "assistant", "user"]
    assert not any("sunny" in text for _, text in texts(rendered)[1:])
    assert PICTURE in rendered.request.turns[2].parts


def test_results_without_tools_and_none() -> None:
    without = render_request(history(tools=()), PromptedOptions())
    assert without.plan is None
    assert "Rules:" not in texts(without)[0][1]
    none = render_request(history(tool_choice=ToolChoice("none")), PromptedOptions())
    assert none.plan is None
    assert texts(none) == texts(without)


@pytest.mark.parametrize(
    ("choice", "parallel", "words", "required", "names"),
    [
        (ToolChoice("required"), None, "must use at least one tool", True, ["get_weather", "other"]),
        (ToolChoice("named", ("other",)), None, 'must use the tool "other"', True, ["other"]),
        (ToolChoice("allowed", ("other",)), None, 'only use these tools: "other"', False, ["other"]),
        (ToolChoice("allowed", ("other",), required=True), None, "must use at least one tool", True, ["other"]),
        (ToolChoice("auto"), False, "at most one tool", False, ["get_weather", "other"]),
    ],
)
def test_choices_are_stated_and_planned(
    choice: ToolChoice, parallel: bool | None, words: str, required: bool, names: list[str]
) -> None:
    request = ask(turn("user", "Hi"), tools=(WEATHER, Tool(name="other")), tool_choice=choice, parallel=parallel)
    rendered = render_request(request, PromptedOptions())
    assert words in texts(rendered)[0][1]
    assert rendered.plan is not None
    assert rendered.plan.required is required
    assert [tool.name for tool in rendered.plan.tools] == names
    assert rendered.plan.single is (parallel is False)


@pytest.mark.parametrize(
    ("tools", "options", "number"),
    [
        (tuple(Tool(name=f"t{index}") for index in range(1001)), PromptedOptions(), "1001 tools; at most 1000"),
        ((Tool(name="n" * 65),), PromptedOptions(), "65 characters; at most 64"),
        ((Tool(name="big", description="x" * 1_100_000),), PromptedOptions(), "at most 1048576"),
        ((Tool(name="a"), Tool(name="a")), PromptedOptions(), "used twice"),
    ],
)
def test_limits_name_the_number(tools: tuple[Tool, ...], options: PromptedOptions, number: str) -> None:
    with pytest.raises(ToolValidationError, match=number) as caught:
        render_request(ask(turn("user", "Hi"), tools=tools), options)
    assert http_status(caught.value) == 400
    assert isinstance(caught.value, InvalidRequest)


def test_all_problems_at_once() -> None:
    bad = PromptedOptions(
        policy="sometimes", style="klingon", template="no place", max_calls=-1, results="post",  # type: ignore[arg-type]  # wrong on purpose
    )  # fmt: skip
    with pytest.raises(ToolConfigurationError) as caught:
        checked_options(bad)
    assert {problem.key for problem in caught.value.problems} == {"policy", "style", "template", "max_calls", "results"}
    assert http_status(caught.value) == 500
    options, warnings = checked_options(PromptedOptions(window_ms=-5))
    assert options.window_ms == 0
    assert [warning.key for warning in warnings] == ["window_ms"]


@pytest.mark.parametrize("style", ["hermes", "qwen_xml", "kimi_k2", "pythonic", "deepseek_v3"])
def test_a_family_is_taught_its_own_format(style: str) -> None:
    """What history shows is what the format's own parser reads."""
    request = ask(
        turn("user", "Hi"),
        turn("assistant", ToolCall(id="c1", name="get_weather", arguments='{"city": "Paris"}')),
        turn("user", ToolResult(call_id="c1", name="get_weather", parts=(Text(text="</tool_response> sunny"),))),
    )
    rendered = render_request(request, PromptedOptions(style=style))
    assert rendered.plan is not None
    assert rendered.plan.style == get_format(style).id
    parser = TextParser(style, tools=(WEATHER,))
    events = parser.feed(texts(rendered)[1][1]) + parser.close(ended_well=True)
    assert [event.name for event in events if isinstance(event, ToolCallComplete)] == ["get_weather"]
    result = texts(rendered)[2][1]
    assert "sunny" in result
    assert "</tool_response> sunny" not in result


def test_auto_teaches_the_family_where_it_is_known() -> None:
    known = render_request(ask(turn("user", "Hi")), PromptedOptions(style="auto"), model="Qwen/Qwen2.5-7B-Instruct")
    unknown = render_request(ask(turn("user", "Hi")), PromptedOptions(style="auto"), model="tinyllama")
    assert known.plan is not None
    assert unknown.plan is not None
    assert (known.plan.style, unknown.plan.style) == ("hermes", "json")


BODIES: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "model": "m", "messages": [{"role": "user", "content": "Hi"}], "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    },
    "anthropic_messages": {
        "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], "tool_choice": {"type": "auto"},
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    },
    "openai_responses": {
        "model": "m", "input": "Hi", "tool_choice": "auto", "parallel_tool_calls": True,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}],
    },
}  # fmt: skip


@pytest.mark.parametrize("source", BODIES)
@pytest.mark.parametrize("target", BODIES)
@pytest.mark.parametrize("system", [False, True])
def test_no_dialect_sends_tools(source: str, target: str, system: bool) -> None:
    request = get_dialect(source).decode_request(BODIES[source], model="m", stream=False)
    profile = Profile(dialect=target, system_messages=system)
    options = PromptedOptions(system_messages=system)
    exchange = Exchange(request, Route(dialect=target, model="m", profile=profile, prompted=options), Options(seed="s"))
    body = json.loads(exchange.call.body)
    for key in ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "toolConfig", "tool_config"):
        assert key not in body
    assert "To use tools, reply with one JSON array" in json.dumps(body)
    assert "Hi" in json.dumps(body)
    assert any(loss.path == "tools" and loss.action == "emulated" for loss in exchange.losses)
