"""The promise, checked from outside: every upstream answer of every dialect, read by every official SDK, over every way in.

Each case of each upstream dialect goes from a real socket to a client of each dialect, with nothing between but what users run.
The SDK must hold exactly what the case says, or raise an error of its own. Nothing in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest

from athena.dialects import dialect_names
from athena.transport import AsyncTransport
from support.async_sdks import AsyncClients, ask_async
from support.canonical import Seen
from support.case_judge import check_case
from support.cases import Mode, answer_modes, case_bytes
from support.faulty_upstream import FaultyUpstream
from support.sdks import Clients, ask
from support.transport_clients import async_sdk_clients, settings_for
from support.upstream_talk import Talk
from ways_in.conftest import Way

CASES = [
    (dialect, number, case, mode) for dialect in dialect_names() for number, (case, mode) in enumerate(answer_modes(dialect))
]
# No vendor's own server: these say what no vendor's own server says.
QUIRKS = {f"{dialect}.{number}": {"clean": False, **case.profile} for dialect, number, case, _ in CASES}
PAIRS = [(client, upstream) for client in dialect_names() for upstream in dialect_names()]
IDS = [f"{client}-over-{upstream}" for client, upstream in PAIRS]


def model_of(dialect: str, number: int) -> str:
    return f"{dialect}.{number}/case-{dialect}-{number}"


@pytest.fixture(scope="module")
def scripted(upstream: FaultyUpstream) -> FaultyUpstream:
    """The upstream with a model for every case."""

    def script(body: bytes) -> Callable[[Talk], Awaitable[None]]:
        async def answer(talk: Talk) -> None:
            await talk.say([body], body)

        return answer

    for dialect, number, case, mode in CASES:
        upstream.scripts[model_of(dialect, number).partition("/")[2]] = script(case_bytes(case, mode))
    return upstream


@pytest.fixture(scope="module")
def clients(way: Way, scripted: FaultyUpstream) -> Iterator[Clients]:
    # Errors are asked for once: a gateway that waits as long as they say would make this slow.
    with way(settings_for(scripted.url, QUIRKS, retries={"attempts": 0})) as ready:
        yield ready


@pytest.mark.parametrize(("client", "upstream_dialect"), PAIRS, ids=IDS)
def test_every_answer(client: str, upstream_dialect: str, clients: Clients) -> None:
    problems = []
    for number, (case, mode) in enumerate(answer_modes(upstream_dialect)):
        asking = partial(ask, client, clients, model_of(upstream_dialect, number), stream=mode == "stream")
        try:
            check_case(case, mode, client, asking)
        except (Exception, pytest.fail.Exception) as error:
            problems.append(f"{case.name} {mode}: {error!r}"[:600])
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(("client", "upstream_dialect"), PAIRS, ids=IDS)
def test_every_answer_over_the_asynchronous_transport(client: str, upstream_dialect: str, scripted: FaultyUpstream) -> None:
    cases = answer_modes(upstream_dialect)

    async def outcome(clients: AsyncClients, number: int, mode: Mode) -> Seen | Exception:
        try:
            return await ask_async(client, clients, model_of(upstream_dialect, number), stream=mode == "stream")
        except Exception as error:
            return error

    async def ask_all() -> list[Seen | Exception]:
        async with async_sdk_clients(AsyncTransport(**settings_for(scripted.url, QUIRKS))) as clients:
            return await asyncio.gather(*(outcome(clients, number, mode) for number, (_, mode) in enumerate(cases)))

    problems = []
    for (case, mode), seen in zip(cases, asyncio.run(ask_all()), strict=True):
        try:
            check_case(case, mode, client, partial(_given, seen))
        except (Exception, pytest.fail.Exception) as error:
            problems.append(f"{case.name} {mode}: {error!r}"[:600])
    assert not problems, "\n".join(problems)


def _given(seen: Seen | Exception) -> Seen:
    if isinstance(seen, Exception):
        raise seen
    return seen
