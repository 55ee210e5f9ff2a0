"""OpenAI Chat Completions, and every server that speaks it with an accent.

Wire facts: docs/reference/wire-facts.md#openai-chat-completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from athena.calls.names import OPENAI_NAMES, NameRule
from athena.dialects.base import (
    AnswerDecoder,
    AnswerEncoder,
    DecodeContext,
    EncodeContext,
    Encoded,
    HttpError,
    ModelEntry,
    Target,
    model_value,
)
from athena.dialects.openai_chat.decode_answer import ChatStreamDecoder, ChatWholeDecoder
from athena.dialects.openai_chat.decode_request import decode_request
from athena.dialects.openai_chat.encode_request import encode_request
from athena.dialects.openai_chat.encode_stream import ChatStreamEncoder
from athena.dialects.openai_chat.encode_whole import ChatWholeEncoder
from athena.dialects.openai_chat.errors import decode_error, encode_error
from athena.dialects.openai_chat.vocabulary import NAME
from athena.model.events import Error
from athena.model.profile import IdStyle
from athena.model.request import Request
from athena.wire.sse import encode_comment

__all__ = ["DIALECT", "OpenAIChat"]


class OpenAIChat:
    """Chat Completions in both directions."""

    name: str = NAME
    id_style: IdStyle = "chat"
    names: NameRule = OPENAI_NAMES
    stream_type: str = "text/event-stream; charset=utf-8"
    family: str = ""
    system_turns: bool = True
    signs_thinking: bool = False
    signs_calls = True
    custom_calls = True
    stream_end: bytes = b"data: [DONE]\n\n"
    named_events: bool = False
    usage_on_request: bool = True

    def portable(self, request: Request) -> Request:
        """Nothing to say otherwise: Chat knows no typed tools that the client runs itself."""
        return request

    def decode_request(
        self, body: Mapping[str, Any], *, model: str | None = None, stream: bool | None = None, version: str | None = None
    ) -> Request:
        """A client's body as a Request; `model` where the URL names a deployment. Raises InvalidRequest."""
        return decode_request(body, model=model, stream=stream)

    def encode_request(self, request: Request, target: Target) -> Encoded:
        """A prepared Request as a body for an upstream."""
        return encode_request(request, target)

    def decoder(self, context: DecodeContext, *, stream: bool) -> AnswerDecoder:
        return ChatStreamDecoder(context) if stream else ChatWholeDecoder(context)

    def encoder(self, context: EncodeContext, *, stream: bool) -> AnswerEncoder:
        return ChatStreamEncoder(context) if stream else ChatWholeEncoder(context)

    def decode_error(self, status: int, headers: Mapping[str, str], body: bytes) -> Error:
        return decode_error(status, headers, body)

    def encode_error(self, error: Error, request_id: str = "") -> HttpError:
        return encode_error(error, request_id)

    def keep_alive(self) -> bytes:
        """A comment: every Chat client tested skips it."""
        return encode_comment("ping")

    def encode_models(self, models: list[ModelEntry]) -> dict[str, Any]:
        """The body of GET /v1/models."""
        return {"object": "list", "data": [model_value(entry) for entry in models]}

    def encode_count(self, tokens: int) -> dict[str, Any]:
        """llama.cpp's answer to /v1/chat/completions/input_tokens, in the words of OpenAI's own counter."""
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def decode_count_request(self, body: Mapping[str, Any], *, model: str | None = None) -> Request:
        return decode_request(body, model=model)


DIALECT = OpenAIChat()
