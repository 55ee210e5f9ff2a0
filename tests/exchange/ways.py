"""One answer taken by every way there is: streamed in any pieces, whole, by the parser alone, with the short ways on or off.

A short way is code that handles a common case with less work: text without a marker, one event in one read, a record that holds
nothing but text, the body of a call that goes on. Each of them repeats in short what the long way does at length, so each can
be wrong on its own. `long_ways_only` switches all of them off; what a client sees must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec

from athena import exchange as exchanges
from athena.answer_path import AnswerPath
from athena.dialects import get_dialect
from athena.dialects.base import DecodeContext, EncodeContext
from athena.dialects.openai_chat import decode_answer as chat_answers
from athena.exchange import Exchange, Options, Route
from athena.formats.machine.engine import TextParser
from athena.formats.machine.scanner import Scanner
from athena.formats.machine.speech import Channel
from athena.formats.machine.stage import FormatOptions, FormatStage
from athena.model.events import (
    Done,
    Error,
    Event,
    Finish,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    Usage,
)
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.parts import Text
from athena.model.request import Request, Tool, Turn
from athena.wire.sse import SseDecoder


class Seen(msgspec.Struct):
    """What somebody at the end of a way holds."""

    text: str
    thinking: str
    calls: list[tuple[str, Any]]
    failed: bool


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a model wrote, and how it is to be read."""

    text: str
    tools: tuple[Tool, ...]
    options: FormatOptions
    channel: Channel = "text"
    limits: Limits = DEFAULT_LIMITS


@contextmanager
def long_ways_only() -> Iterator[None]:
    """Switch every short way of the answer's path off."""
    begin = AnswerPath.__init__

    def without_direct_way(path: AnswerPath, *arguments: Any, **named: Any) -> None:
        begin(path, *arguments, **named)
        path._direct = False
        path._streams = None

    def never(*_: object) -> bool:
        return False

    nothing = property(lambda _: None, lambda _, __: None)
    with (
        mock.patch.object(AnswerPath, "__init__", without_direct_way),
        mock.patch.object(FormatStage, "is_plain", never),
        mock.patch.object(FormatStage, "finds_nothing", never),
        mock.patch.object(exchanges, "may_be_plain", never),
        mock.patch.object(TextParser, "is_plain", never),
        mock.patch.object(Scanner, "straight", nothing),
        mock.patch.object(SseDecoder, "idle", property(never, lambda _, __: None)),
        mock.patch.object(chat_answers, "_MISSES", 0),
    ):
        yield


def seen_in(events: Iterable[Event]) -> Seen:
    """The events put together: words joined by their kind, calls in order."""
    seen = Seen("", "", [], False)
    for event in events:
        if isinstance(event, TextDelta):
            seen.text += event.text
        elif isinstance(event, ThinkingDelta):
            seen.thinking += event.text
        elif isinstance(event, ToolCallComplete):
            seen.calls.append((event.name, json.loads(event.arguments)))
        elif isinstance(event, Error):
            seen.failed = True
    return seen


def by_parser(answer: Answer) -> Seen:
    """The parser alone, the whole text at once."""
    parser = TextParser(
        answer.options.recognizer(),
        tools=answer.tools,
        channel=answer.channel,
        starts_in_thinking=answer.options.starts_in_thinking,
        policies=answer.options.policies,
        limits=answer.limits,
    )
    return seen_in([*parser.feed(answer.text), *parser.close(ended_well=True)])


def by_exchange(
    answer: Answer, pieces: Sequence[str], *, upstream: str, client: str, stream: bool, joined: bool = False
) -> Seen:
    """Through a whole exchange: the upstream writes `pieces`, and the client's own reader says what arrived.

    `joined`: all of the upstream's bytes arrive in one read, else every event in one of its own.
    """
    exchange = Exchange(
        _request(client, answer.tools, stream=stream),
        Route(dialect=upstream, model="m", format=answer.options),
        Options(limits=answer.limits),
    )
    exchange.upstream_head(200, {"content-type": "text/event-stream" if stream else "application/json"})
    reads = _upstream_bytes(upstream, answer.channel, pieces, stream=stream)
    output = b""
    status = 0
    for data in (b"".join(reads),) if joined else reads:
        step = exchange.upstream_data(data)
        status = step.head.status if step.head is not None else status
        output += step.output
    step = exchange.upstream_end()
    status = step.head.status if step.head is not None else status
    output += step.output
    if status != 200:
        return Seen("", "", [], True)
    decoder = get_dialect(client).decoder(DecodeContext(), stream=stream)
    return seen_in([*decoder.feed(output), *decoder.close()])


def _request(dialect: str, tools: tuple[Tool, ...], *, stream: bool) -> Request:
    turn = Turn(role="user", parts=(Text(text="Hi"),))
    return Request(dialect=dialect, model="m", stream=stream, max_output=100, turns=(turn,), tools=tools, include_usage=True)


def _upstream_bytes(dialect: str, channel: Channel, pieces: Sequence[str], *, stream: bool) -> list[bytes]:
    """The reads of an upstream whose model wrote these pieces and then stopped by itself."""
    words: list[Event] = [TextDelta(piece) if channel == "text" else ThinkingDelta(piece) for piece in pieces]
    if channel == "reasoning":
        words.append(TextDelta("Done."))
    events: list[Event] = [Start(id="a", model="m", created=1), *words]
    events.append(Done(Finish("stop"), 0, Usage(input_total=3, output_total=5), last=True))
    # A server that hands out the model's own reasoning: what Responses calls a summary is another's words, and holds no calls.
    context = EncodeContext(_request(dialect, (), stream=stream), created=1, same_dialect=True)
    encoder = get_dialect(dialect).encoder(context, stream=stream)
    return [data for event in events if (data := encoder.feed([event]))]
