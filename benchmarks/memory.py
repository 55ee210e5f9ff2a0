"""What a request's body and a whole answer take in memory, beside what the memory budget counts for them.

Peaks are those of `tracemalloc`, for one byte of the body; a ratio above 1.00 means that the budget counts too little.

    python -m benchmarks memory
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from athena.dialects import dialect_names, get_dialect
from athena.exchange import Exchange, Options, Route
from athena.formats.machine.stage import FormatOptions
from athena.serving.holding import WHOLE
from athena.shells.gateway.incoming import measure, shaped

SIZE = 4_000_000
TEXTS = {
    "ASCII": "a" * SIZE,
    "escapes": 'a\n"b' * (SIZE // 4),
    "Latin-1": "a" * (SIZE - 2) + "\N{LATIN SMALL LETTER E WITH ACUTE}",
    "Chinese": "\u4e2d" * (SIZE // 3),
    "one emoji": "a" * (SIZE - 4) + "\N{GRINNING FACE}",
}
Result = TypeVar("Result")


def request(dialect: str, text: str) -> dict[str, Any]:
    """A request of that dialect with that text."""
    if dialect == "openai_responses":
        return {"model": "m", "input": text}
    if dialect == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}


def bodies() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, dialect and value of every body."""
    for dialect in dialect_names():
        for name, text in TEXTS.items():
            yield f"{dialect}, {name}", dialect, request(dialect, text)
    for name, schema in {
        "empty objects": {"type": "object", "properties": {f"p{number}": {} for number in range(30_000)}},
        "empty lists": {"type": "object", "enum": [[] for _ in range(100_000)]},
        "nested objects": {"type": "object", "enum": [{"a": {}} for _ in range(30_000)]},
    }.items():
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        yield f"openai_chat, {name}", "openai_chat", request("openai_chat", "x") | {"tools": [tool]}
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] * 5000
    yield "openai_chat, many turns", "openai_chat", {"model": "m", "messages": [*turns, turns[0]]}


def peak_of(work: Callable[[], Result]) -> tuple[Result, int]:
    """The result of some work, and how much memory it took at the most."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    result = work()
    return result, tracemalloc.get_traced_memory()[1] - before


def body_peaks(dialect: str, value: dict[str, Any]) -> tuple[int, int, int, int]:
    """Size of a body; its peak while it is decoded, with itself; the peak while it is encoded; what the budget counts."""
    body = msgspec.json.encode(value)
    weight, _ = measure(body, 100_000)
    other = "anthropic_messages" if dialect != "anthropic_messages" else "openai_chat"
    gc.collect()
    tracemalloc.start()
    try:
        values, reading = peak_of(lambda: [shaped(body, 128, 100_000)])
        begun, converting = peak_of(
            lambda: get_dialect(dialect).decode_request(values.pop(), model="m", stream=True, version=None)
        )
        kept = tracemalloc.get_traced_memory()[0]
        route = Route(dialect=other, model="m", format=FormatOptions(format="auto"))
        _, building = peak_of(lambda: Exchange(begun, route, Options(seed="s")))
    finally:
        tracemalloc.stop()
    return len(body), len(body) + max(reading, converting), kept + building, weight.work


def answer_peak(client: str, text: str) -> tuple[int, int]:
    """Size of a whole Chat answer, and the most it took on its way to a client of that dialect."""
    message = {"role": "assistant", "content": text}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": message}]}
    answer["choices"][0]["finish_reason"] = "stop"  # type: ignore[index]  # a list of objects
    body = json.dumps(answer, ensure_ascii=False).encode()
    asked = get_dialect(client).decode_request(request(client, "x"), model="m", stream=False, version=None)
    exchange = Exchange(asked, Route(dialect="openai_chat", model="m"), Options(seed="s"))
    exchange.upstream_head(200, {"content-type": "application/json"})
    gc.collect()
    tracemalloc.start()
    try:
        for at in range(0, len(body), 65536):
            exchange.upstream_data(body[at : at + 65536])
        exchange.upstream_end(None)
        return len(body), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    """Measure and print."""
    print(f"{'request body':36} {'bytes':>9} {'decoding':>9} {'encoding':>9} {'counted':>8} {'ratio':>6}")
    for name, dialect, value in bodies():
        size, decoding, encoding, counted = body_peaks(dialect, value)
        ratio = max(decoding, encoding) / counted
        print(f"{name:36} {size:9} {decoding / size:9.2f} {encoding / size:9.2f} {counted / size:8.2f} {ratio:6.2f}")
    print(f"\n{'whole answer, Chat to':36} {'bytes':>9} {'peak':>9} {'counted':>8}")
    for client in dialect_names():
        for name, text in TEXTS.items():
            size, peak = answer_peak(client, text)
            print(f"{client + ', ' + name:36} {size:9} {peak / size:9.2f} {WHOLE:8.2f}")


if __name__ == "__main__":
    main()
