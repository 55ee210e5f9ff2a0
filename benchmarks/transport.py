"""What the transport adds to an SDK: CPU per request and per streamed chunk, beside the SDK talking to the upstream directly.

An upstream in a process of its own answers in every dialect, each event of a stream in a write of its own, as fast as it can.
Each SDK asks it directly in its own dialect, over our transport in its own dialect, and over our transport in another. Figures
are CPU microseconds of this process, medians of interleaved rounds; trust the ratios.

    ./dev bench transport
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, cast

import uvloop

CHUNKS = 200
STREAMS, REQUESTS, ROUNDS = 1, 4, 15
WORD = "word and so "
OTHER = {
    "openai_chat": "anthropic_messages",
    "anthropic_messages": "openai_chat",
    "openai_responses": "openai_chat",
    "gemini": "openai_chat",
}
TARGET = 1.3

Ask = Callable[[], object]


# -- the upstream ------------------------------------------------------------------------------------------------------------


def _sse(record: dict[str, Any], named: bool) -> bytes:
    head = f"event: {record['type']}\n" if named else ""
    return f"{head}data: {json.dumps(record, separators=(',', ':'))}\n\n".encode()


def answers() -> dict[str, tuple[list[bytes], bytes]]:
    """Per dialect, a stream of so many words and a whole answer of as many, as vendors write them."""
    text = WORD * CHUNKS
    chat = {"id": "chatcmpl-1", "created": 1, "model": "m"}
    piece = {**chat, "object": "chat.completion.chunk", "system_fingerprint": "fp", "usage": None}
    usage = {"prompt_tokens": 9, "completion_tokens": CHUNKS, "total_tokens": CHUNKS + 9}

    def delta(fields: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**piece, "choices": [{"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish}]}

    chunks = [
        delta({"role": "assistant", "content": ""}),
        *(delta({"content": WORD}) for _ in range(CHUNKS)),
        delta({}, "stop"),
    ]
    message = {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": None, "finish_reason": "stop"}
    found = {
        "openai_chat": (
            [*(_sse(chunk, named=False) for chunk in chunks), b"data: [DONE]\n\n"],
            json.dumps({**chat, "object": "chat.completion", "choices": [message], "usage": usage}).encode(),
        )
    }
    counted = {"input_tokens": 9, "output_tokens": CHUNKS}
    whole: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None, "usage": counted}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": WORD}} for _ in range(CHUNKS)),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": counted},
        {"type": "message_stop"},
    ]
    blocks = [{"type": "text", "text": text}]
    found["anthropic_messages"] = (
        [_sse(event, named=True) for event in events],
        json.dumps({**whole, "content": blocks, "stop_reason": "end_turn", "usage": counted}).encode(),
    )
    return found | {"openai_responses": _responses(text), "gemini": _gemini(text)}


def _responses(text: str) -> tuple[list[bytes], bytes]:
    counts = {"input_tokens": 9, "output_tokens": CHUNKS, "total_tokens": CHUNKS + 9}
    usage = {**counts, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    done = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [item],
            "usage": usage, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    begun = {**done, "status": "in_progress", "output": [], "usage": None}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": WORD, "logprobs": []} for _ in range(CHUNKS)),
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]
    return [_sse({**event, "sequence_number": number}, named=True) for number, event in enumerate(events)], json.dumps(
        done
    ).encode()


def _gemini(text: str) -> tuple[list[bytes], bytes]:
    def answer(shown: str, **end: Any) -> dict[str, Any]:
        usage = {"promptTokenCount": 9, "candidatesTokenCount": CHUNKS, "totalTokenCount": CHUNKS + 9}
        candidate = {"content": {"parts": [{"text": shown}], "role": "model"}, "index": 0, **end}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r1"}

    chunks = [*(answer(WORD) for _ in range(CHUNKS)), answer("", finishReason="STOP")]
    return [_sse(chunk, named=False) for chunk in chunks], json.dumps(answer(text, finishReason="STOP")).encode()


class _Server(asyncio.Protocol):
    """Answers a request as soon as it is whole; the path says the dialect, path or body the mode."""

    def __init__(self, bodies: dict[str, tuple[list[bytes], bytes]]) -> None:
        self._bodies = bodies
        self._held = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, mark, body = self._held.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if not mark or len(body) < length:
            return
        self._held = b""
        path = head.split(b" ", 2)[1].decode()
        dialect = next(
            (
                name
                for end, name in (
                    ("completions", "openai_chat"),
                    ("messages", "anthropic_messages"),
                    ("responses", "openai_responses"),
                )
                if path.endswith(end)
            ),
            "gemini",
        )
        frames, whole = self._bodies[dialect]
        streamed = "stream" in path if dialect == "gemini" else bool(json.loads(body).get("stream"))
        assert self._transport is not None
        if not streamed:
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(whole) + whole
            )
            return
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        self._send(frames, 0)

    def _send(self, frames: list[bytes], position: int) -> None:
        """One frame per turn of the loop: a write, and mostly a read on the other side, of its own."""
        assert self._transport is not None
        if position == len(frames):
            self._transport.write(b"0\r\n\r\n")
            return
        self._transport.write(b"%x\r\n%b\r\n" % (len(frames[position]), frames[position]))
        asyncio.get_running_loop().call_later(0.0002, self._send, frames, position + 1)


def serve(pipe: Connection) -> None:
    """The upstream's process."""

    async def main() -> None:
        bodies = answers()
        server = await asyncio.get_running_loop().create_server(lambda: _Server(bodies), "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


# -- the clients -------------------------------------------------------------------------------------------------------------


def subjects(url: str, dialect: str, transport: Any) -> tuple[Ask, Ask]:
    """One whole answer and one stream of an SDK, directly (`transport` None) or over our transport."""
    import anthropic
    import httpx2
    import openai
    from google import genai
    from google.genai import types

    http = httpx2.Client(transport=transport)
    asked: Any = [{"role": "user", "content": "Hi"}]
    if dialect == "anthropic_messages":
        claude = anthropic.Anthropic(base_url=url, api_key="k", http_client=http, max_retries=0).messages.create
        return (
            lambda: claude(model="m", max_tokens=99, messages=asked),
            lambda: list(claude(model="m", max_tokens=99, messages=asked, stream=True)),
        )
    if dialect == "gemini":
        client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url, httpx_client=http))
        return (
            lambda: client.models.generate_content(model="m", contents="Hi"),
            lambda: list(client.models.generate_content_stream(model="m", contents="Hi")),
        )
    both = openai.OpenAI(base_url=f"{url}/v1", api_key="k", http_client=http, max_retries=0)
    if dialect == "openai_responses":
        return (
            lambda: both.responses.create(model="m", input="Hi"),
            lambda: list(both.responses.create(model="m", input="Hi", stream=True)),
        )
    chat = both.chat.completions.create
    return lambda: chat(model="m", messages=asked), lambda: list(chat(model="m", messages=asked, stream=True))


def cpu_us(ask: Ask, times: int) -> float:
    """CPU microseconds of one call."""
    began = time.process_time_ns()
    for _ in range(times):
        ask()
    return (time.process_time_ns() - began) / times / 1000


def measure(url: str, dialect: str) -> dict[str, tuple[float, float]]:
    """Per way: CPU of a request and of a stream."""
    from athena.transport import Transport

    def over(upstream: str) -> Transport:
        return Transport(
            upstreams={"u": {"base_url": url, "dialect": upstream}}, models=[{"match": "*", "use": "u/*"}], envelope_key="k"
        )

    ways = {
        "directly": subjects(url, dialect, None),
        "over Athena, same dialect": subjects(url, dialect, over(dialect)),
        f"over Athena, {OTHER[dialect]}": subjects(url, dialect, over(OTHER[dialect])),
    }
    figures: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ways}
    for plain, stream in ways.values():
        plain(), stream()
    for _ in range(ROUNDS):
        for name, (plain, stream) in ways.items():
            gc.collect()
            figures[name][0].append(cpu_us(plain, REQUESTS))
            figures[name][1].append(cpu_us(stream, STREAMS))
    return {name: (statistics.median(plain), statistics.median(stream)) for name, (plain, stream) in figures.items()}


def main() -> None:
    """Measure and print."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    print(f"{'SDK and way':54}{'request us':>11}{'ratio':>7}{'stream us':>11}{'per chunk':>11}{'ratio':>7}")
    try:
        for dialect in OTHER:
            rows = measure(url, dialect)
            plain, stream = rows["directly"]
            for name, (request_us, stream_us) in rows.items():
                missed = " > target" if stream_us / stream > TARGET else ""
                print(
                    f"{f'{dialect} {name}':54}{request_us:11.0f}{request_us / plain:7.2f}"
                    f"{stream_us:11.0f}{stream_us / CHUNKS:11.1f}{stream_us / stream:7.2f}{missed}"
                )
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
