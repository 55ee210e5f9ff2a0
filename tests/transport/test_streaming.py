"""Streams are streams: the first token passes before the second is sent, and leaving a stream ends the upstream's request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from types import ModuleType

import httpx
import httpx2
import pytest
import trio

from athena.dialects import dialect_names
from athena.transport import AsyncTransport, Transport
from support.async_sdks import AsyncClients
from support.faulty_upstream import FaultyUpstream
from support.scripted_upstream import Visit
from support.sdk_streams import open_async_stream, open_stream, text_in
from support.sdks import Clients
from support.transport_clients import async_sdk_clients, sdk_clients, settings_for
from support.upstream_speech import TEXT
from support.upstream_talk import Talk

PAIRS = [(client, upstream) for client in dialect_names() for upstream in dialect_names()]
each_pair = pytest.mark.parametrize(("client", "dialect"), PAIRS, ids=[f"{client}-over-{dialect}" for client, dialect in PAIRS])
LIBRARIES = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])


@pytest.fixture(scope="module")
def clients(upstream: FaultyUpstream) -> Iterator[Clients]:
    with sdk_clients(Transport(**settings_for(upstream.url))) as ready:
        yield ready


class Pacer:
    """A model that sends its second token only after somebody has seen the first."""

    def __init__(self, upstream: FaultyUpstream, name: str) -> None:
        self.seen = threading.Event()
        self.held_back = False
        upstream.scripts[name] = self._answer

    async def _answer(self, talk: Talk) -> None:
        await talk.head()
        await talk.send(*talk.speech.frames[: talk.speech.in_text])
        self.held_back = not await asyncio.to_thread(self.seen.wait, 30)
        await talk.send(*talk.speech.frames[talk.speech.in_text :])
        await talk.end()

    def take(self, text: str, texts: list[str]) -> None:
        if text:
            texts.append(text)
            self.seen.set()


@each_pair
def test_first_token_passes_before_the_second_is_sent(
    client: str, dialect: str, clients: Clients, upstream: FaultyUpstream
) -> None:
    pacer, texts = Pacer(upstream, f"paced-{client}"), list[str]()
    for event in open_stream(client, clients, f"{dialect}/paced-{client}"):
        pacer.take(text_in(client, event), texts)
    assert not pacer.held_back
    assert texts == list(TEXT)


@LIBRARIES
@each_pair
def test_first_token_passes_in_asynchronous_clients(
    client: str, dialect: str, upstream: FaultyUpstream, library: ModuleType
) -> None:
    name = f"paced-async-{client}"
    pacer, texts = Pacer(upstream, name), list[str]()

    async def read() -> None:
        async with async_sdk_clients(AsyncTransport(**settings_for(upstream.url)), library) as clients:
            async for event in await open_async_stream(client, clients, f"{dialect}/{name}"):
                pacer.take(text_in(client, event), texts)

    asyncio.run(read())
    assert not pacer.held_back
    assert texts == list(TEXT)


@each_pair
def test_closing_a_stream_ends_the_upstream_request(
    client: str, dialect: str, clients: Clients, upstream: FaultyUpstream
) -> None:
    model = f"stall-midstream.closed-{client}-{dialect}"
    stream = open_stream(client, clients, f"{dialect}/{model}")
    for event in stream:
        if text_in(client, event):
            break
    (visit,) = upstream.of(model)
    assert visit.gone_at is None
    stream.close()
    assert upstream.wait_for(lambda: visit.gone_at is not None), "the upstream's connection stayed open"


def _came(upstream: FaultyUpstream, model: str) -> bool:
    return bool(upstream.of(model))


def _gone(visit: Visit) -> bool:
    return visit.gone_at is not None


async def read_until_text(client: str, clients: AsyncClients, model: str) -> None:
    """Shows its text and never ends by itself."""
    async for _ in await open_async_stream(client, clients, model):
        pass


@each_pair
def test_cancelling_a_task_ends_the_upstream_request(client: str, dialect: str, upstream: FaultyUpstream) -> None:
    model = f"stall-midstream.cancelled-{client}-{dialect}"
    early = f"stall-first-byte.cancelled-{client}-{dialect}"

    async def run() -> None:
        async with async_sdk_clients(AsyncTransport(**settings_for(upstream.url))) as clients:
            for name in (model, early):
                task = asyncio.create_task(read_until_text(client, clients, f"{dialect}/{name}"))
                await asyncio.to_thread(upstream.wait_for, partial(_came, upstream, name))
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                (visit,) = upstream.of(name)
                gone = await asyncio.to_thread(upstream.wait_for, partial(_gone, visit))
                assert gone, f"the upstream's connection stayed open: {name}"

    asyncio.run(run())


TRIO_PAIRS = [pair for pair in PAIRS if pair[0] != "gemini"]
"""Google's asynchronous client is made for asyncio."""


# OpenAI's client leaves its own generators where the stream says [DONE]; none of ours may be among them.
@pytest.mark.filterwarnings("ignore:Async generator '(openai|anthropic|httpx2|httpcore2)[.]:ResourceWarning")
@pytest.mark.parametrize(("client", "dialect"), TRIO_PAIRS, ids=[f"{client}-over-{dialect}" for client, dialect in TRIO_PAIRS])
def test_trio(client: str, dialect: str, upstream: FaultyUpstream) -> None:
    paced, held = f"paced-trio-{client}", f"stall-midstream.trio-{client}-{dialect}"
    pacer, texts = Pacer(upstream, paced), list[str]()

    async def run() -> None:
        async with async_sdk_clients(AsyncTransport(**settings_for(upstream.url))) as clients:
            async for event in await open_async_stream(client, clients, f"{dialect}/{paced}"):
                pacer.take(text_in(client, event), texts)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_until_text, client, clients, f"{dialect}/{held}")
                assert await trio.to_thread.run_sync(upstream.waits, held)
                nursery.cancel_scope.cancel()
            (visit,) = upstream.of(held)
            gone = await trio.to_thread.run_sync(upstream.wait_for, lambda: visit.gone_at is not None)
            assert gone, "the upstream's connection stayed open"

    trio.run(run)
    assert not pacer.held_back
    assert texts == list(TEXT)
