"""A tool loop of two turns through each SDK, over either way in: thinking, text, two calls at once, their results, the end;
then the same history to a model of each other family.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

from athena.dialects import dialect_names
from support.faulty_upstream import FaultyUpstream
from support.sdks import Clients
from support.tool_loops import calling_answer, converse, final_answer, history
from support.transport_clients import settings_for
from support.turn_judge import UPSTREAMS, check_state_came_home, check_state_stayed_home, check_turn, run_loop
from support.upstream_talk import Talk
from ways_in.conftest import Way

PAIRS = [(client, upstream) for client in dialect_names() for upstream in dialect_names()]
MODES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


async def looping(talk: Talk) -> None:
    answer = calling_answer if talk.number == 0 else final_answer
    await talk.say([answer(talk.dialect, True)], answer(talk.dialect, False))


async def ending(talk: Talk) -> None:
    await talk.say([final_answer(talk.dialect, True)], final_answer(talk.dialect, False))


@pytest.fixture(scope="module")
def clients(way: Way, upstream: FaultyUpstream) -> Iterator[Clients]:
    settings = settings_for(upstream.url)
    for dialect, (profile, _) in UPSTREAMS.items():
        settings["upstreams"][dialect]["profile"] = profile
    with way(settings) as ready:
        yield ready


@MODES
@pytest.mark.parametrize(("client", "dialect"), PAIRS, ids=[f"{client}-over-{dialect}" for client, dialect in PAIRS])
def test_loop_then_another_model(
    client: str, dialect: str, stream: bool, clients: Clients, upstream: FaultyUpstream, request: pytest.FixtureRequest
) -> None:
    # A router of many models tells by a model's name whose state it is: nothing of another family's may stand in it.
    number = zlib.crc32(request.node.callspec.id.encode())
    name = f"{UPSTREAMS[dialect][1]}-{number}"
    upstream.scripts[name] = looping
    talk = converse(client, clients, stream=stream)
    run_loop(talk, f"{dialect}/{name}")
    sent = upstream.of(name)[1].body
    entries = history(dialect, sent)
    check_turn(dialect, entries, ids=(client, dialect) != ("gemini", "gemini"))
    check_state_came_home(dialect, sent, entries)

    talk.say("And now?")
    for other in dialect_names():
        if other != dialect:
            away = f"{UPSTREAMS[other][1]}-{number}-away"
            upstream.scripts[away] = ending
            talk.ask_aside(f"{other}/{away}")
            check_state_stayed_home(dialect, other, upstream.of(away)[0].body)
