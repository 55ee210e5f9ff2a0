"""Every text format through a running gateway, read by every official SDK: content and, where it is read, reasoning.

The scripted upstream answers over a real socket what a model of that format writes; a client's second turn brings the result.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from athena.dialects import dialect_names
from athena.formats import all_formats, format_names, get_format
from athena.formats.declared.build import declared_format
from athena.formats.machine.base import Format
from athena.model.parts import ToolCall
from learning.invented import INVENTED
from support.canonical import FINISH_WORDS, Piece
from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE
from support.scripted_upstream import ScriptedUpstream
from support.sdks import anthropic_client, ask
from support.upstream_speech import chat_stream, chat_whole
from support.upstream_talk import Talk

CALLS = (
    ToolCall(id="functions.get_weather:0", name="get_weather", arguments='{"city": "Tokyo"}'),
    ToolCall(id="functions.a:1", name="a", arguments='{"p": 7}'),
)
WANTED = [Piece("call", "get_weather", {"city": "Tokyo"}), Piece("call", "a", {"p": 7})]


LEARNT = {"own_control_tokens": "template", "own_tags": "template", "own_attributes": "file"}
"""Formats that are not shipped, and how the configuration names them."""


def written(format_id: str) -> str:
    """The calls as a model of that format writes them."""
    known = declared_format(INVENTED[format_id.removeprefix("own_")].expected) if format_id in LEARNT else get_format(format_id)
    return known.render_calls(CALLS)


def learnt_rule(name: str, kind: str, directory: Path) -> dict[str, Any]:
    template, description = INVENTED[name.removeprefix("own_")]
    file = directory / (f"{name}.jinja" if kind == "template" else f"{name}.toml")
    file.write_text(template if kind == "template" else description.to_toml())
    return {"match": f"text-{name}", "use": f"local/text-{name}", "format": {kind: str(file)}}


class _Upstream(ScriptedUpstream):
    """Answers in the format that the model's name says, in small pieces."""

    base_path = "/v1"

    async def answer(self, talk: Talk) -> None:
        place, _, format_id = talk.model.partition("-")
        if talk.body["messages"][-1]["role"] == "tool":
            field, text = "content", "done"
        else:
            field, text = ("content" if place == "text" else "reasoning_content"), written(format_id)
        pieces = [{field: text[start : start + 5]} for start in range(0, len(text), 5)]
        await talk.say(chat_stream(pieces, "stop"), chat_whole({field: text}, "stop"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayThread, _Upstream]]:
    directory: Path = tmp_path_factory.mktemp("formats")
    config: dict[str, Any] = {
        "models": [
            {"match": f"{place}-{name}", "use": f"local/{place}-{name}", "format": name}
            for name in format_names()
            for place in ("text", "reasoning")
        ]
        + [learnt_rule(name, kind, directory) for name, kind in LEARNT.items()],
        "envelope_key": "test",
    }
    with _Upstream() as upstream:
        config["upstreams"] = {"local": {"base_url": upstream.url}}
        with running_gateway(config, directory) as running:
            yield running, upstream


def is_read_in_reasoning(known: Format) -> bool:
    """Is what the format's template writes read there? Openers of ordinary text are not, even in formats of control tokens."""
    text = known.render_calls(CALLS).lstrip()
    return known.read_in_reasoning and any(
        opener.marker and not opener.plain and text.startswith(opener.marker) for opener in known.openers
    )


PLACES = [
    *(("text", name) for name in (*format_names(), *LEARNT)),
    *(("reasoning", known.id) for known in all_formats() if is_read_in_reasoning(known)),
]


@pytest.mark.parametrize(
    ("place", "name", "client"),
    # Formats and dialects meet at the neutral events only: each format in two dialects, all of them in turn.
    [
        (place, name, dialect_names()[(number + step) % len(dialect_names())])
        for number, (place, name) in enumerate(PLACES)
        for step in (0, 2)
    ],
)
def test_calls_written_as_text_arrive_as_native_ones(
    place: str, name: str, client: str, gateway: tuple[GatewayThread, _Upstream]
) -> None:
    for stream in (True, False) if place == "text" else (True,):
        seen = ask(client, gateway[0].url, f"{place}-{name}", stream=stream)
        assert seen.calls() == WANTED
        assert seen.finish in FINISH_WORDS[client]["tool"]
        assert seen.joined("text").strip() == ""
        assert len(set(seen.ids)) == 2


def test_calls_off_their_schema_and_of_unknown_tools_are_counted(gateway: tuple[GatewayThread, _Upstream]) -> None:
    running, _ = gateway
    client = anthropic_client(running.url)
    wrong = {"type": "object", "properties": {"city": {"type": "integer"}}}
    arguments: dict[str, Any] = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    arguments["tools"] = [{"name": "get_weather", "input_schema": wrong}]
    client.messages.create(model="text-kimi_k2", **arguments)
    numbers = urllib.request.urlopen(f"{running.url}/metrics", timeout=PATIENCE).read().decode()
    labels = 'model="text-kimi_k2",reason="{}",upstream="local"'
    for reason in ("off_schema", "unknown_tool"):
        assert f"athena_bad_calls_total{{{labels.format(reason)}}} 1.0" in numbers
    assert 'athena_upstream_up{upstream="local"} 1.0' in numbers
    assert "athena_held_bytes 0.0" in numbers


def test_the_result_comes_back_under_the_calls_own_id(gateway: tuple[GatewayThread, _Upstream]) -> None:
    running, upstream = gateway
    client: anthropic.Anthropic = anthropic_client(running.url)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    arguments: dict[str, Any] = {
        "model": "text-hermes",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [{"name": name, "input_schema": schema} for name in ("get_weather", "a")],
    }
    first = client.messages.create(**arguments)
    uses = [block for block in first.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": f"of {use.name}"} for use in uses]
    arguments["messages"] += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second = client.messages.create(**arguments)
    assert [block.text for block in second.content if block.type == "text"] == ["done"]
    sent = upstream.bodies[-1]["messages"]
    calls = sent[1]["tool_calls"]
    assert [message["tool_call_id"] for message in sent[2:]] == [call["id"] for call in calls] == [use.id for use in uses]
    assert [message["content"] for message in sent[2:]] == ["of get_weather", "of a"]
