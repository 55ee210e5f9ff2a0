"""A tool loop of two turns through each SDK over the transport: thinking, text, two calls at once, their results, the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from athena.dialects import dialect_names
from athena.transport import Transport
from support.faulty_upstream import FaultyUpstream, Talk
from support.sdks import Clients
from support.tool_loops import STATE, TEXT, THOUGHT, WEATHER, calling_answer, converse, final_answer, history
from support.transport_clients import sdk_clients, settings_for

PAIRS = [(client, upstream) for client in dialect_names() for upstream in dialect_names()]
MODES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
TURN = [
    ("user", "Weather and time?"),
    ("text", TEXT),
    ("call", WEATHER),
    ("call", "{}"),
    ("result", "sunny"),
    ("result", "12:00"),
]


async def looping(talk: Talk) -> None:
    answer = calling_answer if talk.number == 0 else final_answer
    await talk.say([answer(talk.dialect, True)], answer(talk.dialect, False))


@pytest.fixture(scope="module")
def clients(upstream: FaultyUpstream) -> Iterator[Clients]:
    settings = settings_for(upstream.url)
    settings["upstreams"]["openai_chat"]["profile"] = "openrouter"
    with sdk_clients(Transport(**settings)) as ready:
        yield ready


@MODES
@pytest.mark.parametrize(("client", "dialect"), PAIRS, ids=[f"{client}-over-{dialect}" for client, dialect in PAIRS])
def test_two_turns(client: str, dialect: str, stream: bool, clients: Clients, upstream: FaultyUpstream) -> None:
    # Whose state it is, a router of many models tells by the model's name.
    family = "x-ai/grok-4" if dialect == "openai_chat" else "model"
    name = f"{family}-{PAIRS.index((client, dialect))}-{stream}"
    upstream.scripts[name] = looping
    talk = converse(client, clients, stream=stream)
    talk.say("Weather and time?")
    talk.ask(f"{dialect}/{name}")
    assert [called for _, called in talk.calls] == ["get_weather", "get_time"]
    talk.give_results("sunny", "12:00")
    talk.ask(f"{dialect}/{name}")
    assert talk.calls == []
    sent = history(dialect, upstream.of(name)[1].body)
    said: list[tuple[str, str]] = []
    for entry in sent:
        if entry.kind == "text" and said and said[-1][0] == "text":
            said[-1] = ("text", said[-1][1] + entry.text)
        elif entry.kind != "thinking" and (entry.kind != "text" or entry.text):
            said.append((entry.kind, entry.text))
    assert said == TURN
    assert [entry.id for entry in sent if entry.kind == "call"] == [entry.id for entry in sent if entry.kind == "result"]
    # The upstream's own reasoning and its state come home, through whichever slot the client has for them.
    assert STATE[dialect] in [entry.state for entry in sent]
    assert dialect == "gemini" or THOUGHT in [entry.text for entry in sent if entry.kind == "thinking"]
