"""Chunk: CPU of one paced chunk and of one plain request inside the gateway, from read callback to write, without the sockets.

The same objects as in a running gateway, with the taps that it has by default. Cold: the caches are emptied between two chunks,
as they are in a real stream, whose machine does something else meanwhile; the number to steer by is the cold one. `NAME@FOLDER`
as in the gateway suite: `./dev bench chunk --source ../other/src` measures another checkout in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

CHUNKS = 200
_EVICTED, _OTHER = bytearray(16 << 20), bytes(16 << 20)
_PAIRS = (("openai_chat", "anthropic_messages"), ("openai_chat", "openai_chat"), ("anthropic_messages", "anthropic_messages"))
_PATHS = {"openai_chat": "/v1/chat/completions", "anthropic_messages": "/v1/messages"}


def main(arguments: list[str]) -> int:
    """Measure and print; with a second source, both in turns."""
    parser = argparse.ArgumentParser(prog="./dev bench chunk", description=__doc__)
    parser.add_argument("--source", default="", help="the src folder of another checkout, beside this one")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    sources = {"this": str(Path(__file__).parents[1] / "src"), **({"other": options.source} if options.source else {})}
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(options.rounds):
        for name, source in sources.items():
            environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{Path(__file__).parents[1]}"}
            command = [sys.executable, "-m", "benchmarks.chunk", "--worker"]
            said = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
            for case, value in json.loads(said).items():
                found.setdefault(case, {}).setdefault(name, []).append(value)
    print(f"{'microseconds of CPU':<52}" + "".join(f"{name:>16}" for name in sources))
    for case, values in found.items():
        shown = "".join(f"{median(values[name]):>9.1f} {min(values[name]):>6.1f}" for name in sources)
        ratio = f"{median(values['this']) / median(values['other']):>8.2f}x" if "other" in values else ""
        print(f"  {case:<50}{shown}{ratio}")
    return 0


class _Transport:
    """Takes everything."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += 1

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def _nothing(self) -> None: ...

    pause_reading = resume_reading = close = abort = write_eof = _nothing

    def can_write_eof(self) -> bool:
        return False


class _Owner:
    def release(self, connection: Any) -> None: ...

    def discard(self, connection: Any, *, stray: bool) -> None: ...


async def _streams(upstream: str, client: str, *, cold: bool, found: dict[str, float]) -> None:
    from athena.serving.network import ClientSettings
    from athena.shells.config import Sources, load
    from athena.shells.gateway.app import Gateway
    from athena.shells.server.front import Front, front_limits
    from athena.shells.server.http import HttpConnection
    from athena.shells.upstream.connection import Connection
    from athena.shells.upstream.response import UpstreamResponse
    from benchmarks.gateway import bodies
    from benchmarks.micro import stream_of, text_events

    loop = asyncio.get_running_loop()
    held: list[Connection] = []
    streamed = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    whole = _whole(upstream)

    class Upstreams:
        streams = True

        async def send(self, method: str, origin: Any, path: str, headers: Any, body: bytes, timeouts: Any, *more: Any) -> Any:
            connection = Connection(_Owner())
            connection.connection_made(_Transport())  # type: ignore[arg-type]
            response = UpstreamResponse(loop, connection, ClientSettings(), timeouts, inf)
            connection.begin(response, b"", b"")
            connection.data_received(streamed if self.streams else whole)
            held.append(connection)
            return response

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        file = directory / "athena.yml"
        dialect = {"base_url": "http://127.0.0.1:1/v1", "dialect": upstream}
        file.write_text(json.dumps({"upstreams": {"fake": dialect}, "models": [{"match": "*", "use": "fake"}]}))
        config = load(Sources(environment={}, home=directory, directory=directory, config_file=file)).config
        gateway = Gateway(config, envelope_key=b"k" * 32, bound=("127.0.0.1",))
        upstreams = Upstreams()
        holder: Any = getattr(gateway, "resources", gateway)  # another checkout may be older
        holder._client = upstreams
        front = Front(front_limits(config), gateway.memory)
        kind: Any = "chat" if client == "openai_chat" else "messages"

        def ask(*, stream: bool) -> HttpConnection:
            body = json.dumps(bodies.request(kind, "m", streamed=stream)).encode()
            connection = HttpConnection(gateway, front, loop)
            connection.connection_made(_Transport())  # type: ignore[arg-type]
            head = f"POST {_PATHS[client]} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            connection.data_received(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            return connection

        frames = [b"%x\r\n%b\r\n" % (len(frame), frame) for frame in stream_of(upstream, text_events(CHUNKS)) if frame]
        times: list[float] = []
        for round_ in range(2):
            connection = ask(stream=True)
            while not held:
                await asyncio.sleep(0)
            for _ in range(3):
                await asyncio.sleep(0)
            source = held.pop()
            for number, frame in enumerate(frames):
                if cold:
                    _EVICTED[:] = _OTHER
                began = time.thread_time_ns()
                source.data_received(frame)
                took = (time.thread_time_ns() - began) / 1000
                if round_ and 10 < number < CHUNKS - 5:
                    times.append(took)
            source.data_received(b"0\r\n\r\n")
            for _ in range(5):
                await asyncio.sleep(0)
            connection.connection_lost(None)
        found[f"chunk, {upstream} to {client}, {'cold' if cold else 'hot'}"] = median(times)
        upstreams.streams = False
        times = []
        for number in range(40 if cold else 300):
            if cold:
                _EVICTED[:] = _OTHER
            began = time.thread_time_ns()
            connection = ask(stream=False)
            while front.tasks:
                await asyncio.sleep(0)
            took = (time.thread_time_ns() - began) / 1000
            connection.connection_lost(None)
            held.clear()
            if number > 10:
                times.append(took)
        found[f"plain request, {upstream} to {client}, {'cold' if cold else 'hot'}"] = median(times)
        holder._client = None
        await gateway.close()


def _whole(upstream: str) -> bytes:
    from athena.dialects import get_dialect
    from athena.dialects.base import EncodeContext
    from athena.model.events import Done, Finish, Start, TextDelta, Usage
    from athena.model.request import Request

    request = Request(dialect=upstream, model="m", stream=False)
    encoder = get_dialect(upstream).encoder(EncodeContext(request, seed="s", created=1), stream=False)
    done = Done(Finish("stop"), 0, Usage(input_total=3, output_total=5), last=True)
    body = encoder.feed([Start(id="a", model="m", created=1), TextDelta("The weather in Paris is fine. " * 60), done])
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def worker() -> None:
    """One process: all cases, printed as JSON."""
    import logging

    import uvloop

    logging.disable(logging.CRITICAL)
    found: dict[str, float] = {}
    for upstream, client in _PAIRS:
        for cold in (False, True):
            uvloop.run(_streams(upstream, client, cold=cold, found=found))
    print(json.dumps(found))


if __name__ == "__main__":
    worker()
