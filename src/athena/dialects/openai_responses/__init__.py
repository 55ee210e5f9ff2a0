"""OpenAI's Responses API: `POST /v1/responses`. Items instead of messages, typed stream events, reasoning
state that travels encrypted.

Wire facts: docs/reference/wire-facts.md#openai-responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from athena.calls.names import OPENAI_NAMES
from athena.dialects.base import (
    AnswerDecoder,
    AnswerEncoder,
    DecodeContext,
    Dialect,
    EncodeContext,
    Encoded,
    HttpError,
    ModelEntry,
    Target,
    model_value,
)
from athena.dialects.openai_responses.decode_answer import ResponsesStreamDecoder, ResponsesWholeDecoder
from athena.dialects.openai_responses.decode_request import decode_request
from athena.dialects.openai_responses.encode_answer import encoder
from athena.dialects.openai_responses.encode_request import encode_request
from athena.dialects.openai_responses.errors import decode_error, encode_error
from athena.dialects.openai_responses.portable import portable
from athena.dialects.openai_responses.vocabulary import NAME
from athena.model.events import Error
from athena.model.profile import IdStyle
from athena.model.request import Request
from athena.wire.sse import encode_comment

__all__ = ["DIALECT"]


class ResponsesDialect:
    """The Responses API as the engine sees it."""

    name = NAME
    id_style: IdStyle = "responses"
    names = OPENAI_NAMES
    stream_type = "text/event-stream; charset=utf-8"
    family = "openai"
    system_turns = True
    # Unsigned reasoning would come back with an id that no server of this API knows; the envelope tells it is ours.
    signs_thinking = True
    signs_calls = False
    custom_calls = True
    stream_end: bytes = b""
    named_events: bool = True
    usage_on_request: bool = False

    def portable(self, request: Request) -> Request:
        """Typed tools that the client runs as functions, their items as calls and results."""
        return portable(request)

    def decode_request(
        self, body: Mapping[str, Any], *, model: str | None = None, stream: bool | None = None, version: str | None = None
    ) -> Request:
        """A client's body as a Request. Raises InvalidRequest."""
        return decode_request(body, model=model, stream=stream)

    def encode_request(self, request: Request, target: Target) -> Encoded:
        """A prepared Request as a body for an upstream. Raises UnsupportedFeature."""
        return encode_request(request, target)

    def decoder(self, context: DecodeContext, *, stream: bool) -> AnswerDecoder:
        """The decoder of one answer."""
        return ResponsesStreamDecoder(context) if stream else ResponsesWholeDecoder(context)

    def encoder(self, context: EncodeContext, *, stream: bool) -> AnswerEncoder:
        """The encoder of one answer."""
        return encoder(context, stream=stream)

    def decode_error(self, status: int, headers: Mapping[str, str], body: bytes) -> Error:
        """An upstream's HTTP error."""
        return decode_error(status, headers, body)

    def encode_error(self, error: Error, request_id: str = "") -> HttpError:
        """An error as an HTTP answer."""
        return encode_error(error)

    def keep_alive(self) -> bytes:
        """A comment: clients fail on events they do not know, pings among them."""
        return encode_comment("keep-alive")

    def encode_models(self, models: list[ModelEntry]) -> dict[str, Any]:
        """OpenAI's list of models."""
        return {"object": "list", "data": [model_value(entry) for entry in models]}

    def encode_count(self, tokens: int) -> dict[str, Any]:
        """The answer of /v1/responses/input_tokens."""
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def decode_count_request(self, body: Mapping[str, Any], *, model: str | None = None) -> Request:
        """The body of /v1/responses/input_tokens: a request without its output settings."""
        return decode_request(body, model=model, stream=False, counting=True)


DIALECT: Dialect = ResponsesDialect()
