"""Schemas: what hostile tool schemas cost a running gateway, in loop lag, CPU and memory.

Each schema of `benchmarks.hostile_schemas` goes to a gateway of its own process as the one tool of a request, to three kinds
of upstream: one that takes JSON Schema as it is, one that needs references written out (Gemini's older form), and one without
tools, to which they are taught in the prompt. The upstream answers with a call that makes the schema work.

The lag is taken inside the gateway: the longest that a timer of two milliseconds came late, less the time in which the loop's
thread was ready to run and other programs had the cores, and never less than what the loop's thread spent. It still counts what
other programs took from threads for which the loop waited, so each request is made several times and the least counts; the CPU
of the loop's own thread in that time is printed beside it. Memory is the growth of the peak over the memory before the first
request; memory that was freed before is not in it, because the server gives that back when it has a quiet second.

    ./dev bench schemas [--all] [--families NAME,...] [--numbers 16,34] [--repeats 3] [--source ../other/src]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from athena.shells.server.memory import give_back
from benchmarks.hostile_schemas import FAMILIES, SIZES, Hostile, hostile_schema

TARGETS = {"chat": "native", "gemini": "written out", "prompted": "in the prompt"}
LAG_MS = 50.0
MEMORY_MIB = 64.0
_PATIENCE_S = 300.0
_TICK_S = 0.002
_MORE_TRIES = 5
"""Of a request that came out above the bound: the machine may have been busy."""


class Look(msgspec.Struct):
    """What the gateway measured since the last look."""

    lag_ms: float
    loop_cpu_ms: float
    cpu_ms: float
    memory_mib: float


class Found(msgspec.Struct):
    """The figures of one schema at one target."""

    name: str
    target: str
    status: int
    lag_ms: float
    loop_cpu_ms: float
    cpu_ms: float
    memory_mib: float


def main(arguments: list[str]) -> int:
    """Measure, print the worst, and say whether all stay within their bounds."""
    if arguments[:1] == ["--serve"]:
        asyncio.run(_serve(Path(arguments[1])))
        return 0
    parser = argparse.ArgumentParser(prog="./dev bench schemas", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every number of every family")
    parser.add_argument("--families", default=",".join(FAMILIES), help="comma separated (default: all)")
    parser.add_argument("--numbers", default="4,16,34", help="of each family (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="how often each request is made (default: %(default)s)")
    parser.add_argument("--targets", default=",".join(TARGETS), help="comma separated (default: %(default)s)")
    parser.add_argument("--source", help="the src folder of another checkout, to measure that one")
    options = parser.parse_args(arguments)
    numbers = list(SIZES) if options.all else [int(number) for number in options.numbers.split(",")]
    schemas = [hostile_schema(family, number) for family in options.families.split(",") for number in numbers]
    found: list[Found] = []
    with _upstream() as port, _Measured(port, options.source) as gateway:
        for schema in schemas:
            for target in options.targets.split(","):
                found.append(gateway.measure(schema, target, options.repeats))
    return _report(found)


def _report(found: list[Found]) -> int:
    print(f"\n{len(found)} requests, the least of several tries each; the worst by lag, then by memory")
    for key in (lambda one: one.lag_ms, lambda one: one.memory_mib):
        for one in sorted(found, key=key, reverse=True)[:12]:
            print(
                f"  {one.name:<28}{TARGETS[one.target]:<16}{one.status:>4}  lag {one.lag_ms:8.1f} ms"
                f"  (loop's CPU {one.loop_cpu_ms:7.1f} ms)  CPU {one.cpu_ms:8.1f} ms  memory {one.memory_mib:+8.1f} MiB"
            )
        print()
    lag, memory = max(one.lag_ms for one in found), max(one.memory_mib for one in found)
    odd = [one for one in found if one.status not in (200, 400)]
    print(f"loop lag: at most {lag:.1f} ms, target {LAG_MS:g}: {'met' if lag <= LAG_MS else 'MISSED'}")
    print(f"memory: at most {memory:+.1f} MiB, target {MEMORY_MIB:+g}: {'met' if memory <= MEMORY_MIB else 'MISSED'}")
    print(f"answers: {len(found) - len(odd)} of {len(found)} are 200 or 400")
    return 0 if lag <= LAG_MS and memory <= MEMORY_MIB and not odd else 1


# -- the gateway, in a process of its own -----------------------------------------------------------------------------------


class _Measured:
    """A gateway that watches its own loop."""

    def __init__(self, upstream_port: int, source: str | None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        config = Path(self._folder.name) / "athena.yml"
        config.write_text(json.dumps(_config(upstream_port)))
        environment = {**os.environ, "HOME": self._folder.name}
        if source is not None:
            environment["PYTHONPATH"] = str(Path(source).resolve())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.schemas", "--serve", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    def __enter__(self) -> _Measured:
        for target in TARGETS:  # every way is warm before it is measured
            self.measure(hostile_schema("many_properties", 1), target, 1)
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()

    def measure(self, schema: Hostile, target: str, repeats: int) -> Found:
        """One schema at one target."""
        looks: list[Look] = []
        status = 0
        while len(looks) < repeats or (len(looks) < repeats + _MORE_TRIES and min(look.lag_ms for look in looks) > LAG_MS):
            self._look()
            status = self._ask(schema, target, len(looks))
            looks.append(self._look())
        best = min(looks, key=lambda look: look.lag_ms)
        memory = max(look.memory_mib for look in looks)
        return Found(schema.name, target, status, best.lag_ms, best.loop_cpu_ms, best.cpu_ms, memory)

    def _look(self) -> Look:
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGUSR1)
        return msgspec.json.decode(self._process.stdout.readline(), type=Look)

    def _ask(self, schema: Hostile, target: str, number: int) -> int:
        # Another title each time: nothing is known from the last try.
        parameters = {**schema.schema, "title": f"{schema.name}, {target}, {number}"}
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}
        message = {"role": "user", "content": json.dumps(schema.arguments)}
        body = json.dumps({"model": f"{target}/model", "messages": [message], "tools": [tool]})
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE_S)
        try:
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()


def _config(port: int) -> dict[str, Any]:
    address = f"http://127.0.0.1:{port}"
    gemini = {"dialect": "gemini", "quirks": {"json_schema_tools": False}}
    return {
        "upstreams": {
            "chat": {"base_url": f"{address}/v1", "dialect": "openai_chat"},
            "gemini": {"base_url": address, **gemini},
        },
        "models": [
            {"match": "prompted/*", "use": "chat/*", "tools": "prompted"},
            {"match": "gemini/*", "use": "gemini/*"},
            {"match": "*", "use": "chat/*"},
        ],
        "tool_adapter": {"reask": True, "style": "apertus"},
        "retries": {"attempts": 0},
        "envelope_key": "bench",
    }


async def _serve(config_file: Path) -> None:
    from athena.shells.config import Sources, load
    from athena.shells.gateway.app import Gateway
    from athena.shells.server.front import Front, front_limits
    from athena.shells.server.http import HttpConnection
    from athena.shells.server.listen import listen
    from athena.shells.server.memory import keep_freed_memory
    from athena.shells.server.ready import warm_up

    keep_freed_memory()
    folder = config_file.parent
    config = load(Sources(environment={}, home=folder, directory=folder, config_file=config_file)).config
    warm_up(config)
    gateway = Gateway(config)
    front = Front(front_limits(config))
    loop = asyncio.get_running_loop()
    (slot,) = listen("127.0.0.1", 0)
    await loop.create_server(lambda: HttpConnection(gateway, front, loop), sock=slot[0])
    watch = _Watch(loop)
    loop.add_signal_handler(signal.SIGUSR1, watch.say)
    print(slot[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


class _Watch:
    """The longest gap between two ticks of the loop, and what was spent meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waits = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._resident = _status("VmRSS")
        self._begin()
        self._tick()

    def _begin(self) -> None:
        gc.collect()
        give_back()
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._lag = self._loop_cpu = 0.0
        self._cpu = time.process_time()
        self._last, self._last_cpu, self._last_waited = time.perf_counter(), time.thread_time(), self._waited()

    def _tick(self) -> None:
        now, cpu, waited = time.perf_counter(), time.thread_time(), self._waited()
        spent = cpu - self._last_cpu
        late = max(spent, now - self._last - _TICK_S - (waited - self._last_waited))
        if late > self._lag:
            self._lag, self._loop_cpu = late, spent
        self._last, self._last_cpu, self._last_waited = now, cpu, waited
        self._loop.call_later(_TICK_S, self._tick)

    def _waited(self) -> float:
        """Seconds in which this thread was ready to run and had no core."""
        return int(os.pread(self._waits, 100, 0).split()[1]) / 1e9

    def say(self) -> None:
        look = Look(
            lag_ms=self._lag * 1000,
            loop_cpu_ms=self._loop_cpu * 1000,
            cpu_ms=(time.process_time() - self._cpu) * 1000,
            memory_mib=(_status("VmHWM") - self._resident) / 1024,
        )
        print(msgspec.json.encode(look).decode(), flush=True)
        self._begin()


def _status(field: str) -> int:
    """A figure of this process in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


# -- the upstream -----------------------------------------------------------------------------------------------------------


class _Upstream(BaseHTTPRequestHandler):
    """Calls the tool with the arguments that the user's text holds."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        arguments = _arguments_in(json.loads(body))
        if "generateContent" in self.path:
            call = {"functionCall": {"name": "get_weather", "args": json.loads(arguments)}}
            answer: Any = {"candidates": [{"content": {"role": "model", "parts": [call]}, "finishReason": "STOP"}]}
        else:
            function = {"name": "get_weather", "arguments": arguments}
            message: dict[str, Any] = {"role": "assistant", "content": None}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
            if b'"tools"' not in body:
                message = {"role": "assistant", "content": f'<|tools_prefix|>[{{"get_weather": {arguments}}}]<|tools_suffix|>'}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            answer = {"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the name the base class gives it
        """Says nothing."""


def _arguments_in(body: dict[str, Any]) -> str:
    """The last text of the conversation."""
    if "contents" in body:
        return str(body["contents"][-1]["parts"][-1]["text"])
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else content[-1]["text"]
    return str(text[text.rindex("\n\n") + 2 :] if "\n\n" in text else text)


@contextlib.contextmanager
def _upstream() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
