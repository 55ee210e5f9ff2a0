"""The walk: one Messages client, one Chat upstream whose Kimi model leaks its calls into the reasoning, a step at a time.

The upstream sends a piece, and nothing else happens until it has come out at the client. So the calls between two pieces are
those that the piece caused.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TRACED = Path(__file__).with_name("traced.py")
START_S = 60.0
PAUSES_S = (0.2, 0.13, 0.19, 0.29, 0.41)
"""How long nothing is sent after each step, in each of the rounds. The shortest walk counts: what is done for the first
request of a process only, and a timer that fires, are no part of it."""
UNWATCHED = {"ATHENA_RECORD": "off"}
"""No observer is installed."""

REASONED = "reasoning_content"
SCRIPTS: dict[str, list[tuple[str, str, str]]] = {
    "call": [
        ("", REASONED, "Let me see"),
        ("a chunk of reasoning", REASONED, " what the weather is."),
        ("the beginning of a call", REASONED, "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
         '<|tool_call_argument_begin|>{"city": "'),
        ("", REASONED, "Paris and"),
        ("a chunk of arguments", REASONED, " all that is"),
        ("the end of a call", REASONED, ' around it"}<|tool_call_end|><|tool_calls_section_end|>'),
    ],
    "text": [
        ("", REASONED, "Let me see."),
        ("", "content", "The weather"),
        ("", "content", " in Paris"),
        ("a chunk of text", "content", " is fine"),
    ],
}  # fmt: skip
"""What the model says, in pieces. Pieces without a name are not counted."""
REQUEST, END = "the request", "the end of the answer"
QUESTION = {
    "model": "moonshotai/kimi-k2-thinking",
    "max_tokens": 1000,
    "stream": True,
    "system": "You are helpful.",
    "tools": [
        {
            "name": "get_weather",
            "description": "The weather of a city.",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        }
    ],
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
}


class Walk(NamedTuple):
    """What one step caused."""

    calls: int
    """Functions of `athena` that were entered."""
    modules: int
    returns: int
    """How often control came back to a module that it had left."""


def walk(checkout: Path) -> dict[str, Walk]:
    """The steps of one checkout's gateway, by name."""
    source = checkout.resolve() / "src"
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as upstream:
        upstream.settimeout(START_S)
        output = Path(folder) / "calls"
        windows: list[tuple[str, float, float]] = []
        with _gateway(source, upstream.getsockname()[1], output, Path(folder)) as port:
            for script in SCRIPTS:
                for pause in PAUSES_S:
                    windows += _one_answer(upstream, port, script, pause)
        calls = [(float(now), module) for now, module, _ in map(str.split, output.read_text().splitlines())]
    found: dict[str, Walk] = {}
    for name, begin, end in windows:
        counted = _counted([module for now, module in calls if begin <= now < end])
        found[name] = min(counted, found.get(name, counted))
    found.pop("")
    return found


def _counted(modules: list[str]) -> Walk:
    entries = sum(module != before for module, before in zip(modules, ["", *modules], strict=False))
    distinct = len(set(modules))
    return Walk(len(modules), distinct, entries - distinct)


@contextlib.contextmanager
def _gateway(source: Path, upstream: int, output: Path, folder: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    serve = ["serve", "--port", str(port), "--base-url", f"http://127.0.0.1:{upstream}/v1", "--log-level", "error"]
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "ATHENA_API_KEY": "sk-walked"} | UNWATCHED
    process = subprocess.Popen(
        [sys.executable, str(TRACED), str(source), str(output), *serve],
        env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise RuntimeError("the gateway did not start")


def _one_answer(upstream: socket.socket, port: int, script: str, pause: float) -> list[tuple[str, float, float]]:
    """Ask, and answer piece by piece: the name of each step, when it began and when all that it caused was over."""
    windows = []
    body = json.dumps(QUESTION).encode()
    head = (
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nanthropic-version: 2023-06-01\r\n"
        f"x-api-key: sk-walked\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(START_S)
        begin = time.monotonic()
        client.sendall(head.encode() + body)
        model, _ = upstream.accept()
        with model:
            model.settimeout(START_S)
            _read_request(model)
            time.sleep(pause)
            windows.append((REQUEST, begin, time.monotonic()))
            model.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            seen = b""
            for name, field, text in SCRIPTS[script]:
                begin = time.monotonic()
                model.sendall(_event({field: text}))
                seen += client.recv(65536)
                time.sleep(pause)
                windows.append((name, begin, time.monotonic()))
            model.sendall(_event({}, "stop"))
            time.sleep(pause)
            begin = time.monotonic()
            model.sendall(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            while b"0\r\n\r\n" not in seen:
                seen += client.recv(65536)
            time.sleep(pause)
            windows.append((END if script == "call" else "", begin, time.monotonic()))
    expected = b"tool_use" if script == "call" else b"is fine"
    if b"message_stop" not in seen or expected not in seen:
        raise RuntimeError(f"the walk did not end as it should: {seen[-2000:]!r}")
    # The upstream has closed its connection, so that the next request opens a new one.
    time.sleep(pause)
    return windows


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "kimi", "choices": [choice]}
    return _chunk(b"data: " + json.dumps(value).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _read_request(model: socket.socket) -> None:
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += model.recv(65536)
    head, _, rest = seen.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    while len(rest) < length:
        rest += model.recv(65536)
