"""An exchange that nobody uses any more is gone at once: requests hold megabytes, and the collector comes seldom."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from athena.dialects import dialect_names, get_dialect
from athena.exchange import Exchange, Options, Route
from athena.formats.machine.stage import FormatOptions
from support.tool_loops import calling_answer

NAMES = ("get_weather", "get_time")
OBJECT = {"type": "object"}
BODIES: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": name, "parameters": OBJECT}} for name in NAMES],
    },
    "anthropic_messages": {
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": name, "input_schema": OBJECT} for name in NAMES],
    },
    "openai_responses": {
        "input": "hi",
        "tools": [{"type": "function", "name": name, "parameters": OBJECT} for name in NAMES],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": [{"name": name} for name in NAMES]}],
    },
}


def exchange_once(client: str, upstream: str, stream: bool) -> None:
    request = get_dialect(client).decode_request(BODIES[client], model="m", stream=stream, version=None)
    exchange = Exchange(request, Route(dialect=upstream, model="m", format=FormatOptions(format="auto")), Options(seed="s"))
    exchange.upstream_head(200, {"content-type": "text/event-stream" if stream else "application/json"})
    exchange.upstream_data(calling_answer(upstream, stream))
    exchange.upstream_end(None)
    assert exchange.outcome == "ok"


@pytest.fixture(scope="module", autouse=True)
def others() -> Iterator[None]:
    """Whatever exists before is left out of all searches: each would take a second otherwise."""
    had_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    yield
    if not had_frozen:
        gc.unfreeze()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream", dialect_names())
@pytest.mark.parametrize("client", dialect_names())
def test_nothing_is_left_to_the_collector(client: str, upstream: str, stream: bool) -> None:
    exchange_once(client, upstream, stream)  # whatever is built once is built here
    gc.collect()
    gc.disable()
    try:
        exchange_once(client, upstream, stream)
        assert gc.collect() == 0
    finally:
        gc.enable()
