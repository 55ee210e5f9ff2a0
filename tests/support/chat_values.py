"""Values that the tests of Chat's requests and of its answers share."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import msgspec
import openai

from athena.dialects.base import EncodeContext, EncodeTarget
from athena.dialects.openai_chat import DIALECT
from athena.model.events import (
    Event,
    TextDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
)
from athena.model.parts import (
    Opaque,
    Text,
    ToolCall,
)
from athena.model.profile import Profile
from athena.model.request import Loss, Request, Tool, Turn

SIGNED = Opaque(family="anthropic", kind="signature", payload="sig")


REDACTED = Opaque(family="anthropic", kind="redacted", payload="secret")


THOUGHT = Opaque(family="gemini", kind="thought_signature", payload="c2ln")


def client_request(**changes: Any) -> Request:
    return msgspec.structs.replace(Request(dialect="openai_chat", model="m", stream=True, include_usage=True), **changes)


def encode(events: list[Event], *, request: Request | None = None, **context: Any) -> bytes:
    request = request or client_request()
    encoder = DIALECT.encoder(EncodeContext(request=request, seed="s", created=7, **context), stream=request.stream)
    written = b"".join(encoder.feed([event]) for event in events)
    assert encoder.feed([TextDelta("after the end")]) == b""
    return written


def whole(events: list[Event], **context: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encode(events, request=client_request(stream=False), **context))
    return body


def sdk(body: bytes, kind: str = "text/event-stream", status: int = 200) -> openai.OpenAI:
    """The official client, with our bytes as its server."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, content=body, headers={"content-type": kind})

    http = openai.DefaultHttpxClient(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="k", base_url="http://test/v1", max_retries=0, http_client=http)


def accumulate(written: bytes) -> Any:
    """What the SDK's stream helper holds at the end."""
    with sdk(written).chat.completions.stream(model="m", messages=[{"role": "user", "content": "Hi"}]) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def sent(request: Request, profile: Profile | None = None, *, strict: bool = False) -> dict[str, Any]:
    target = EncodeTarget("upstream", profile or Profile(), strict)
    body: dict[str, Any] = json.loads(msgspec.json.encode(DIALECT.encode_request(request, target).body))
    return body


def losses(request: Request, profile: Profile | None = None) -> tuple[Loss, ...]:
    return DIALECT.encode_request(request, EncodeTarget("upstream", profile or Profile())).losses


def foreign(*turns: Turn, **changes: Any) -> Request:
    """A request that came in another dialect."""
    base = Request(dialect="anthropic_messages", model="m", turns=turns or (Turn(role="user", parts=(Text(text="Hi"),)),))
    return msgspec.structs.replace(base, **changes)


def user(*parts: Any) -> Turn:
    return Turn(role="user", parts=parts)


def assistant(*parts: Any) -> Turn:
    return Turn(role="assistant", parts=parts)


CALL = ToolCall(id="call_1", name="get_weather", arguments='{"city": "Oslo"}')


WEATHER = Tool(name="get_weather", schema={"type": "object", "properties": {"city": {"type": "string"}}})


def call_events(number: int, call_id: str, name: str, *pieces: str, choice: int = 0, **more: Any) -> list[Event]:
    arguments = "".join(pieces)
    return [
        ToolCallStart(number, call_id, name, choice, **more),
        *(ToolCallDelta(number, piece, choice) for piece in pieces),
        ToolCallComplete(number, call_id, name, arguments, choice, **more),
    ]
