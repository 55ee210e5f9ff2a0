"""Gemini's generateContent and streamGenerateContent.

Wire facts: docs/reference/wire-facts.md#gemini.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from athena.calls.names import GEMINI_NAMES
from athena.dialects.base import (
    AnswerDecoder,
    AnswerEncoder,
    DecodeContext,
    EncodeContext,
    Encoded,
    HttpError,
    ModelEntry,
    Target,
)
from athena.dialects.gemini import errors
from athena.dialects.gemini.decode_answer import GeminiStreamDecoder, GeminiWholeDecoder
from athena.dialects.gemini.decode_contents import NAME
from athena.dialects.gemini.decode_request import decode_request
from athena.dialects.gemini.encode_answer import GeminiStreamEncoder, GeminiWholeEncoder
from athena.dialects.gemini.encode_request import encode_request
from athena.dialects.gemini.portable import portable
from athena.dialects.gemini.spelling import EitherCase
from athena.model.events import Error
from athena.model.profile import IdStyle
from athena.model.request import Request

__all__ = ["DIALECT", "Gemini"]


class Gemini:
    """The dialect's face; the work is in the modules beside it."""

    name = NAME
    id_style: IdStyle = "any"
    names = GEMINI_NAMES
    stream_type = "text/event-stream"
    family = "gemini"
    system_turns = False
    signs_thinking = False
    signs_calls = True
    custom_calls = False
    stream_end: bytes = b""
    named_events: bool = False
    usage_on_request: bool = False

    def portable(self, request: Request) -> Request:
        """The computer tool as the functions that the client runs; every other hosted tool runs at Google."""
        return portable(request)

    def decode_request(
        self, body: Mapping[str, Any], *, model: str | None = None, stream: bool | None = None, version: str | None = None
    ) -> Request:
        """A client's body; model and stream come from the URL."""
        return decode_request(body, model=model, stream=stream)

    def encode_request(self, request: Request, target: Target) -> Encoded:
        """A body for a Gemini upstream."""
        return encode_request(request, target)

    def decoder(self, context: DecodeContext, *, stream: bool) -> AnswerDecoder:
        """An upstream's answer to events."""
        return GeminiStreamDecoder(context) if stream else GeminiWholeDecoder(context)

    def encoder(self, context: EncodeContext, *, stream: bool) -> AnswerEncoder:
        """Events to a client's answer."""
        return GeminiStreamEncoder(context) if stream else GeminiWholeEncoder(context)

    def decode_error(self, status: int, headers: Mapping[str, str], body: bytes) -> Error:
        """An upstream's error answer."""
        return errors.decode_error(status, headers, body)

    def encode_error(self, error: Error, request_id: str = "") -> HttpError:
        """An error for a client."""
        return errors.encode_error(error, request_id)

    def keep_alive(self) -> bytes:
        """A bare line end: comments, pings and empty events break the vendor's SDKs."""
        return b"\r\n"

    def encode_models(self, models: list[ModelEntry]) -> dict[str, Any]:
        """The list of models."""
        return {"models": [_model(entry) for entry in models]}

    def encode_count(self, tokens: int) -> dict[str, Any]:
        """The answer to countTokens."""
        return {"totalTokens": tokens}

    def decode_count_request(self, body: Mapping[str, Any], *, model: str | None = None) -> Request:
        """`contents`, or a whole request under `generateContentRequest`."""
        inner = EitherCase(dict(body)).mapping("generateContentRequest")
        return decode_request(body if inner is None else inner, model=model)


def _model(entry: ModelEntry) -> dict[str, Any]:
    model: dict[str, Any] = {
        "name": f"models/{entry.id}",
        "version": "001",
        "displayName": entry.display_name or entry.id,
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
    }
    if entry.max_input is not None:
        model["inputTokenLimit"] = entry.max_input
    if entry.max_output is not None:
        model["outputTokenLimit"] = entry.max_output
    return model


DIALECT = Gemini()
