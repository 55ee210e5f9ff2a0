"""Errors, retries and timeouts are the SDK's own: the same as when it talks to its own API that fails in the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google.genai import errors as genai_errors

from athena.dialects import dialect_names
from athena.transport import AsyncTransport, Transport
from support.async_sdks import ask_async
from support.faulty_upstream import FaultyUpstream
from support.sdks import Clients, ask, clients_at, is_sdk_error
from support.transport_clients import UPSTREAM_KEY, async_sdk_clients, sdk_clients, settings_for
from support.upstream_speech import TEXT, encode, error_value
from support.upstream_talk import Talk

PAIRS = [(client, upstream) for client in dialect_names() for upstream in dialect_names()]
each_pair = pytest.mark.parametrize(("client", "dialect"), PAIRS, ids=[f"{client}-over-{dialect}" for client, dialect in PAIRS])
MODES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])

STATUSES = ("400", "401-echo-key", "403", "404", "413", "429")
SERVER_FAULTS = ("500-json", "502-empty", "503", "504", "529", "500-html")
"""Each dialect has its own words for a server's failure; the class of the SDK is what counts."""
SERVER_ERRORS = (openai.InternalServerError, anthropic.APIStatusError, genai_errors.ServerError)
BEFORE = ("close-before-headers", "reset")
"""The connection is lost before a byte came."""
CUT = (
    "reset-midstream",
    "reset-midtool",
    "truncated",
    "truncated-clean",
    "truncated-eof",
    "no-finish-reason",
    "error-midstream",
)
"""The answer breaks off in its text or in its call."""


@pytest.fixture(scope="module")
def clients(upstream: FaultyUpstream) -> Iterator[Clients]:
    with sdk_clients(Transport(**settings_for(upstream.url))) as ready:
        yield ready


def failure(client: str, place: Any, model: str, *, stream: bool) -> Exception:
    try:
        seen = ask(client, place, model, stream=stream)
    except Exception as error:
        return error
    raise AssertionError(f"{model}: no error, but {seen}")


@MODES
@each_pair
def test_statuses_raise_what_the_own_api_raises(
    client: str, dialect: str, stream: bool, clients: Clients, upstream: FaultyUpstream
) -> None:
    for fault in STATUSES:
        own = failure(client, clients_at(upstream.url), f"{fault}.own", stream=stream)
        error = failure(client, clients, f"{dialect}/{fault}.{client}", stream=stream)
        assert type(error) is type(own), fault
        code = "code" if client == "gemini" else "status_code"
        assert getattr(error, code) == getattr(own, code), fault
        assert UPSTREAM_KEY not in f"{error!r}{vars(error)}", fault
    for fault in SERVER_FAULTS:
        error = failure(client, clients, f"{dialect}/{fault}.{client}", stream=stream)
        assert isinstance(error, SERVER_ERRORS), fault
        assert getattr(error, "code" if client == "gemini" else "status_code") >= 500, fault


@MODES
@each_pair
def test_a_lost_connection_raises_what_the_own_api_raises(
    client: str, dialect: str, stream: bool, clients: Clients, upstream: FaultyUpstream
) -> None:
    for fault in BEFORE:
        own = failure(client, clients_at(upstream.url), f"{fault}.own", stream=stream)
        error = failure(client, clients, f"{dialect}/{fault}.{client}", stream=stream)
        assert type(error) is type(own), fault


@each_pair
def test_a_cut_answer_is_an_error_of_the_sdk(client: str, dialect: str, clients: Clients) -> None:
    for fault in CUT:
        error = failure(client, clients, f"{dialect}/{fault}.{client}", stream=True)
        assert is_sdk_error(client, error), f"{fault}: {error!r}"


def test_a_cut_whole_answer_is_a_lost_connection(clients: Clients) -> None:
    for client, kind in (
        ("openai_chat", openai.APIConnectionError),
        ("openai_responses", openai.APIConnectionError),
        ("anthropic_messages", anthropic.APIConnectionError),
        ("gemini", httpx2.RemoteProtocolError),
    ):
        for dialect in dialect_names():
            error = failure(client, clients, f"{dialect}/truncated-length.whole-{client}", stream=False)
            assert type(error) is kind, f"{client} over {dialect}: {error!r}"


@pytest.mark.parametrize("fault", ["stall-headers", "stall-first-byte", "stall-midstream"])
@MODES
def test_timeouts_are_the_sdks_own(fault: str, stream: bool, upstream: FaultyUpstream) -> None:
    with sdk_clients(Transport(**settings_for(upstream.url)), timeout=0.3) as clients:
        for client, dialect in (
            ("openai_chat", "anthropic_messages"),
            ("anthropic_messages", "gemini"),
            ("openai_responses", "openai_chat"),
        ):
            error = failure(client, clients, f"{dialect}/{fault}.patience-{client}-{stream}", stream=stream)
            kinds: tuple[type[Exception], ...] = (openai.APITimeoutError, anthropic.APITimeoutError)
            if fault == "stall-midstream" and stream:
                # Raised while the stream is read, where the SDKs hand on what their HTTP client says.
                kinds += (httpx2.ReadTimeout,)
            assert isinstance(error, kinds), f"{client}: {error!r}"


@pytest.mark.parametrize("client", ["openai_chat", "openai_responses", "anthropic_messages"])
@pytest.mark.parametrize("retries", [0, 2])
def test_retries_are_the_sdks_own(client: str, retries: int, upstream: FaultyUpstream) -> None:
    async def busy(talk: Talk) -> None:
        body = encode(error_value(talk.dialect, 503, "busy"))
        await talk.whole(body, "503 Busy", "retry-after-ms: 20")

    async def busy_once(talk: Talk) -> None:
        await (busy(talk) if talk.number == 0 else talk.control())

    tag = f"{client}-{retries}"
    upstream.scripts |= {f"busy-{tag}": busy, f"busy-once-{tag}": busy_once}
    with sdk_clients(Transport(**settings_for(upstream.url)), max_retries=retries) as clients:
        for stream in (True, False):
            before = len(upstream.of(f"busy-{tag}"))
            failure(client, clients, f"gemini/busy-{tag}", stream=stream)
            assert len(upstream.of(f"busy-{tag}")) - before == retries + 1
        if retries:
            assert ask(client, clients, f"gemini/busy-once-{tag}", stream=True).joined("text") == "".join(TEXT)
            assert len(upstream.of(f"busy-once-{tag}")) == 2
            # Lost before a byte came, then well.
            assert ask(client, clients, f"openai_chat/flaky-reset.{tag}", stream=False).joined("text") == "".join(TEXT)
            # The upstream says that asking again is of no use.
            failure(client, clients, f"openai_chat/429-final.{tag}", stream=False)
            assert len(upstream.of(f"429-final.{tag}")) == 1


def test_asynchronous_clients_raise_the_same(upstream: FaultyUpstream) -> None:
    async def run() -> list[str]:
        problems: list[str] = []
        async with async_sdk_clients(AsyncTransport(**settings_for(upstream.url))) as clients:
            for client, dialect in PAIRS:
                for fault in (*STATUSES, *BEFORE):
                    own = failure(client, clients_at(upstream.url), f"{fault}.own", stream=True)
                    try:
                        await ask_async(client, clients, f"{dialect}/{fault}.async-{client}", stream=True)
                        problems.append(f"{client} over {dialect}: {fault} raised nothing")
                    except Exception as error:
                        if type(error) is not type(own):
                            problems.append(f"{client} over {dialect}: {fault} raised {error!r}, not {own!r}")
        return problems

    assert asyncio.run(run()) == []


_TIMED_OUT = (openai.APITimeoutError, anthropic.APITimeoutError, httpx2.TimeoutException)


@pytest.mark.parametrize("fault", ["hang-after-done", "hang-after-finish"])
def test_an_upstream_that_never_closes_costs_at_most_the_sdks_patience(fault: str, upstream: FaultyUpstream) -> None:
    """What it said before is whole, and stays whole. A busy machine may need more patience to say it at all."""
    clients_of_threads = ("openai_chat", "openai_responses", "anthropic_messages")
    pairs = [(client, dialect) for client in clients_of_threads for dialect in dialect_names()]
    for patience in (0.5, 2, 8, 32):
        transport = Transport(**settings_for(upstream.url))
        with sdk_clients(transport, timeout=patience) as clients, ThreadPoolExecutor(len(pairs)) as pool:
            asking = [pool.submit(ask, one, clients, f"{dialect}/{fault}.{one}", stream=True) for one, dialect in pairs]
            wait(asking)
        if patience < 32 and any(isinstance(future.exception(), _TIMED_OUT) for future in asking):
            continue
        for future in asking:
            assert future.result().joined("text") == "".join(TEXT)
            assert len(future.result().calls()) == 1
        return
