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
