"""Made-up exchanges before the first real one.

The interpreter reads code, builds its tables and finds its faster forms when it first runs something; the first answer would
wait for that. Here every client's dialect asks every upstream's for an answer with text and a call, whole and streamed, and one
asks for calls that are written as text, with nothing sent and nobody told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import EncodeContext, EncodeTarget
from athena.errors import AthenaError
from athena.exchange import Exchange, Options, Route
from athena.formats import get_format
from athena.model.events import Done, Event, Finish, Start, TextDelta, ToolCallComplete, ToolCallDelta, ToolCallStart, Usage
from athena.model.parts import Text, ToolCall
from athena.model.profile import Profile
from athena.model.request import Request, Tool, Turn
from athena.serving.call_checks import CallChecks
from athena.serving.record import RequestRecord

_MODEL = "model"
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_TOOL = Tool(name="get_weather", description="The weather of a city.", schema=_SCHEMA)
_ARGUMENTS = '{"city":"Rome"}'
_BEGIN = (Start(id="answer", model=_MODEL, created=1), TextDelta("I look it up. "))
_END = Usage(input_total=30, output_total=9)
_ANSWER: tuple[Event, ...] = (
    *_BEGIN,
    ToolCallStart(0, "call_1", "get_weather"),
    ToolCallDelta(0, _ARGUMENTS),
    ToolCallComplete(0, "call_1", "get_weather", _ARGUMENTS),
    Done(Finish("tool"), 0, _END, last=True),
)
_OFTEN = ("hermes", "kimi_k2")
"""Formats that many models write, where no format is named; the second is the demo model's."""
_ROUNDS = 2


def rehearse(routes: Iterable[Route]) -> None:
    """Run the exchanges of these routes. What fails here fails again, and is told, when a client asks for it."""
    for route in routes:
        for client in dialect_names():
            for stream in (False, True) * _ROUNDS:
                try:
                    _exchange(route, client, _ANSWER, stream=stream)
                except AthenaError:
                    break
        for answer in _in_text(route):
            with contextlib.suppress(AthenaError):
                _exchange(route, dialect_names()[0], answer, stream=True)


def _in_text(route: Route) -> Iterator[Sequence[Event]]:
    """Answers with a call as the route's model may write it: the parts of its reader are compiled when they first read."""
    if route.format is None or route.format.declared is not None:
        return
    named = route.format.format
    call = ToolCall(id="call_1", name="get_weather", arguments=_ARGUMENTS)
    for known in map(get_format, _OFTEN if named in ("auto", "standard") else (named,)):
        if known.inexpressible(call) is None:
            yield (*_BEGIN, TextDelta(known.render_calls([call])), Done(Finish("stop"), 0, _END, last=True))


def _exchange(route: Route, client: str, answer: Sequence[Event], *, stream: bool) -> None:
    asked = Request(
        dialect=client,
        model=_MODEL,
        stream=stream,
        system=(Text(text="You are helpful."),),
        turns=(Turn(role="user", parts=(Text(text="How is the weather in Rome?"),)),),
        tools=(_TOOL,),
        max_output=100,
    )
    body = get_dialect(client).encode_request(asked, EncodeTarget(_MODEL, Profile())).body
    request = get_dialect(client).decode_request(body, model=_MODEL, stream=stream)
    checks = CallChecks(request, RequestRecord("rehearsal"))
    exchange = Exchange(request, route, Options(seed="rehearsal", created=1))
    told = Request(dialect=route.dialect, model=_MODEL, stream=stream, include_usage=True)
    encoder = get_dialect(route.dialect).encoder(EncodeContext(request=told, seed="rehearsal", created=1), stream=stream)
    exchange.upstream_head(200, {})
    for event in answer:
        if output := encoder.feed([event]):
            exchange.upstream_data(output)
        checks.note(event)
    exchange.upstream_end()
