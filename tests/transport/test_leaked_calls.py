"""Raw Kimi, Qwen and DeepSeek text in an upstream's content or reasoning arrives as native calls, whatever both sides speak."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

import athena
from athena.dialects import dialect_names
from athena.transport import AsyncTransport, Transport
from support.async_sdks import ask_async
from support.canonical import FINISH_WORDS, Piece, Seen
from support.faulty_upstream import FaultyUpstream
from support.leaking_upstream import CITY, FORMS, leaked_text
from support.sdks import Clients, ask
from support.transport_clients import async_sdk_clients, sdk_clients, settings_for
from support.upstream_speech import encode
from support.upstream_talk import Talk

PAIRS = [(client, upstream) for client in dialect_names() for upstream in dialect_names()]
each_pair = pytest.mark.parametrize(("client", "dialect"), PAIRS, ids=[f"{client}-over-{dialect}" for client, dialect in PAIRS])
TOOL = "get_weather"


def leaking(model: str) -> Callable[[Talk], Awaitable[None]]:
    """A model of any dialect that says it all in its text, cut without regard to tokens."""
    text = leaked_text(model, TOOL)
    pieces = [text[start : start + 7] for start in range(0, len(text), 7)]
    said = [athena.ThinkingDelta(piece) if model.endswith(":reasoning") else athena.TextDelta(piece) for piece in pieces]
    events: list[athena.Event] = [*said, athena.Done(athena.Finish("stop"))]

    async def answer(talk: Talk) -> None:
        encoder = athena.StreamEncoder(talk.dialect, model=model)
        whole = b"" if talk.stream else encode(athena.encode_answer(events, talk.dialect, model=model))
        frames = [encoder.feed([event]) for event in events if talk.stream]
        await talk.say([raw_reasoning(frame) for frame in frames], raw_reasoning(whole))

    return answer


def raw_reasoning(body: bytes) -> bytes:
    """A Responses answer with its reasoning as the model wrote it; our encoder shows it as a summary, which is not parsed."""
    for summary, raw in (
        (b"reasoning_summary_text", b"reasoning_text"),
        (b"reasoning_summary_part", b"content_part"),
        (b"summary_text", b"reasoning_text"),
        (b"summary_index", b"content_index"),
        (b'"summary":[{', b'"summary":[],"content":[{'),
    ):
        body = body.replace(summary, raw)
    return body


@pytest.fixture(scope="module", autouse=True)
def _models(upstream: FaultyUpstream) -> None:
    upstream.scripts |= {model: leaking(model) for model in FORMS.values()}


@pytest.fixture(scope="module")
def clients(upstream: FaultyUpstream) -> Iterator[Clients]:
    with sdk_clients(Transport(**settings_for(upstream.url, rule={"format": "auto"}))) as ready:
        yield ready


def check(client: str, seen: Seen, model: str) -> None:
    assert seen.calls() == [Piece("call", TOOL, {"city": CITY})], model
    assert seen.finish in FINISH_WORDS[client]["tool"], model
    shown = seen.joined("text") + seen.joined("thinking")
    assert shown.strip() == "I will look.", f"{model}: {shown!r}"


@each_pair
def test_leaked_calls_become_native(client: str, dialect: str, clients: Clients) -> None:
    for model in FORMS.values():
        for stream in (True, False):
            check(client, ask(client, clients, f"{dialect}/{model}", stream=stream), model)


@each_pair
def test_leaked_calls_become_native_in_asynchronous_clients(client: str, dialect: str, upstream: FaultyUpstream) -> None:
    async def ask_all() -> list[Seen]:
        async with async_sdk_clients(AsyncTransport(**settings_for(upstream.url, rule={"format": "auto"}))) as clients:
            return await asyncio.gather(
                *(ask_async(client, clients, f"{dialect}/{model}", stream=True) for model in FORMS.values())
            )

    for model, seen in zip(FORMS.values(), asyncio.run(ask_all()), strict=True):
        check(client, seen, model)
