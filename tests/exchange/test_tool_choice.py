"""The tool choice is kept or the client is told, for every upstream; native arguments are mended as those of text are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from athena.dialects import get_dialect
from athena.exchange import Exchange, Options, Route
from athena.formats.bodies.native_arguments import ArgumentMender
from athena.formats.machine.policies import Policies
from athena.formats.machine.stage import FormatOptions

MARKUP = '<tool_call>{"name": "a", "arguments": {}}</tool_call>'
NAMED = {"type": "function", "function": {"name": "a"}}


def answer(
    calls: dict[str, str],
    *,
    choice: Any = None,
    parallel: bool | None = None,
    text: str | None = None,
    finish: str = "tool_calls",
    repair: Any = "syntax",
) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("a", "b")]
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools}
    body |= {"tool_choice": choice} if choice else {}
    body |= {"parallel_tool_calls": parallel} if parallel is not None else {}
    request = get_dialect("openai_chat").decode_request(body)
    reading = FormatOptions(policies=Policies(repair=repair))
    exchange = Exchange(request, Route(dialect="openai_chat", model="m", format=reading), Options())
    exchange.upstream_head(200, {"content-type": "application/json"})
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls.items()
        ]
    whole = {"id": "1", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": finish, "message": message}]}
    steps = [exchange.upstream_data(json.dumps(whole).encode()), exchange.upstream_end()]
    found: dict[str, Any] = json.loads(b"".join(step.output for step in steps))
    return found


@pytest.mark.parametrize(
    ("choice", "calls", "finish"),
    [("none", {"a": "{}"}, "tool_calls"), (NAMED, {"b": "{}"}, "tool_calls"), (NAMED, {}, "stop"), ("required", {}, "stop")],
)
def test_a_choice_that_is_not_kept_is_an_error(choice: Any, calls: dict[str, str], finish: str) -> None:
    assert answer(calls, choice=choice, text="no", finish=finish)["error"]["code"] == "tool_choice_unmet"


def test_a_choice_that_is_kept_passes() -> None:
    for choice in (NAMED, "required", "auto"):
        assert answer({"a": "{}"}, choice=choice)["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "a"
    assert answer({}, choice="required", text="cut", finish="length")["choices"][0]["finish_reason"] == "length"


def test_markup_is_text_where_calls_are_forbidden() -> None:
    assert answer({}, choice="none", text=MARKUP, finish="stop")["choices"][0]["message"]["content"] == MARKUP
    assert answer({}, text=MARKUP, finish="stop")["choices"][0]["message"]["tool_calls"]


def test_one_call_where_one_is_allowed() -> None:
    calls = answer({"a": "{}", "b": "{}"}, parallel=False)["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["a"]


SLIPS = {'{"p": "x\ny"}': '{"p": "x\\ny"}', "{'p': True,}": '{"p": true}', '"{\\"p\\": 1}"': '{"p": 1}'}


@pytest.mark.parametrize("written", SLIPS)
def test_native_arguments_are_mended(written: str) -> None:
    call = answer({"a": written})["choices"][0]["message"]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == json.loads(SLIPS[written])
    assert answer({"a": written}, repair="off")["error"]["code"] == "malformed_call"


@pytest.mark.parametrize(
    "written", [*SLIPS, '{"a": [1, 2.50, {"b": null}]}', ' {"a":1} ', '{"a": 1}{"b": 2}', "[1]", '{"a": x y}', ""]
)
def test_a_mender_does_not_care_how_arguments_are_cut(written: str) -> None:
    def mended(size: int) -> str:
        mender = ArgumentMender()
        pieces = [mender.feed(written[at : at + size]) for at in range(0, len(written), size)]
        return "".join((*pieces, mender.end()))

    assert {mended(size) for size in (1, 2, 3, 5, 100)} == {mended(1)}
    try:
        json.loads(written)
    except ValueError:
        return
    if written.lstrip().startswith("{"):
        assert mended(3) == written


NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}


@pytest.mark.parametrize(
    ("level", "written", "expected"),
    [
        ("schema", '{"n": "3", "s": "4"}', {"n": 3, "s": "4"}),
        ("schema", '{"n": "three"}', {"n": "three"}),
        ("schema", "{'n': '3',}", {"n": 3}),
        ("schema", '{"arguments": {"n": "3"}}', {"n": 3}),
        ("syntax", '{"n": "3"}', {"n": "3"}),
        ("syntax", '{"arguments": {"n": "3"}}', {"n": "3"}),
        ("syntax", '{"arguments": {"other": 1}}', {"arguments": {"other": 1}}),
        ("off", '{"arguments": {"n": "3"}}', {"arguments": {"n": "3"}}),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_native_arguments_are_mended_at_the_level_of_those_in_text(
    level: Any, written: str, expected: dict[str, Any], size: int
) -> None:
    """Streamed, in pieces: the same as the same call in text comes to."""
    tools = [{"type": "function", "function": {"name": "a", "parameters": NUMBERS}}]
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools, "stream": True}
    request = get_dialect("openai_chat").decode_request(body)
    found = []
    for native in (True, False):
        reading = FormatOptions("hermes", policies=Policies(repair=level))
        exchange = Exchange(request, Route(dialect="openai_chat", model="m", format=reading), Options())
        exchange.upstream_head(200, {"content-type": "text/event-stream"})
        text = f'<tool_call>\n{{"name": "a", "arguments": {written}}}\n</tool_call>'
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        deltas: list[dict[str, Any]] = [{"content": piece} for piece in pieces]
        if native:
            named = {"index": 0, "id": "c", "type": "function", "function": {"name": "a", "arguments": ""}}
            pieces = [written[at : at + size] for at in range(0, len(written), size)]
            deltas = [{"tool_calls": [named]}]
            deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
        records: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        records.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if native else "stop"}]})
        lines = "".join(f"data: {json.dumps({'id': '1', **record})}\n\n" for record in records) + "data: [DONE]\n\n"
        steps = [exchange.upstream_data(lines.encode()), exchange.upstream_end()]
        output = b"".join(step.output for step in steps).decode()
        shown = [json.loads(line[6:]) for line in output.splitlines() if line.startswith("data: {")]
        calls = [call for one in shown for choice in one["choices"] for call in choice["delta"].get("tool_calls", ())]
        found.append(json.loads("".join(call["function"].get("arguments") or "" for call in calls)))
    assert found == [expected, expected]
