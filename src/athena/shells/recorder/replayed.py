"""A replay server in a thread: what `athena.testing` gives to those who test their own agents."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from athena.recording import file
from athena.recording.playback import Playlist
from athena.shells.recorder.replay_server import ReplayServer


class ReplayedRequest(msgspec.Struct, frozen=True):
    """A request that a replayed upstream got."""

    path: str
    """The path, with its query."""
    body: bytes
    """The body, as it came."""
    played: str
    """The id of the exchange whose answer it got; empty where none fits."""


class ReplayedUpstream(msgspec.Struct):
    """A running upstream that answers with recorded exchanges."""

    url: str
    """Where it listens, without a path: the base URL for Anthropic's and Google's SDKs. OpenAI's take it with `/v1`."""
    requests: list[ReplayedRequest] = []
    """What was asked so far."""


@contextlib.contextmanager
def replayed_upstream(*paths: str | os.PathLike[str], pace: Literal["fast", "recorded"] = "fast") -> Iterator[ReplayedUpstream]:
    """An upstream on a loopback port that answers as recorded, for as long as the block runs.

        with athena.testing.replayed_upstream("weather.athena") as upstream:
            client = openai.OpenAI(base_url=upstream.url + "/v1", api_key="any")

    A request gets the answer of the recorded request that is most like it, turn by turn; both what upstreams said and what
    clients were told is played, each at its own path. As a pytest fixture:

        @pytest.fixture
        def upstream():
            with athena.testing.replayed_upstream("tests/weather.athena") as running:
                yield running

    Args:
        paths: Files of `athena record export`.
        pace: `recorded` waits between pieces as long as the upstream did; `fast` does not.
    """
    recordings = [recording for path in paths for recording in file.decode(Path(path).read_bytes(), str(path))]
    running = ReplayedUpstream("", [])
    server = ReplayServer(
        Playlist(recordings),
        recorded_pace=pace == "recorded",
        on_request=lambda path, body, name: running.requests.append(ReplayedRequest(path, body, name)),
    )
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        await server.start()
        running.url = f"http://127.0.0.1:{server.port}"
        ready.set()
        await stop.wait()
        await server.close()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            loop.close()
            ready.set()

    thread = threading.Thread(target=run, name="athena-replay", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield running
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
