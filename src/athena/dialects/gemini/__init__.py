"""Gemini's generateContent and streamGenerateContent (`dialects.md` 1.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from athena.calls.names import GEMINI_NAMES
from athena.dialects.base import Dialect, ModelEntry
from athena.dialects.gemini.decode_answer import GeminiStreamDecoder, GeminiWholeDecoder
from athena.dialects.gemini.decode_contents import NAME
from athena.dialects.gemini.decode_request import decode_request
from athena.dialects.gemini.encode_answer import GeminiStreamEncoder, GeminiWholeEncoder
from athena.dialects.gemini.encode_request import encode_request
from athena.dialects.gemini.errors import decode_error, encode_error
from athena.dialects.gemini.portable import portable
from athena.dialects.gemini.spelling import EitherCase
from athena.model.request import Request

__all__ = ["DIALECT"]


def _encode_models(models: list[ModelEntry]) -> dict[str, Any]:
    return {"models": [_model(entry) for entry in models]}


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


def _encode_count(tokens: int) -> dict[str, Any]:
    return {"totalTokens": tokens}


def _decode_count_request(body: Mapping[str, Any], *, model: str | None = None) -> Request:
    """`contents`, or a whole request under `generateContentRequest`."""
    inner = EitherCase(dict(body)).mapping("generateContentRequest")
    return decode_request(body if inner is None else inner, model=model)


DIALECT = Dialect(
    name=NAME,
    family="gemini",
    id_style="any",
    names=GEMINI_NAMES,
    stream_type="text/event-stream",
    system_turns=False,
    signs_thinking=False,
    signs_calls=True,
    custom_calls=False,
    stream_end=b"",
    named_events=False,
    usage_on_request=False,
    # A bare line end: comments, pings and empty events break the vendor's SDKs.
    keep_alive=b"\r\n",
    portable=portable,
    decode_request=decode_request,
    encode_request=encode_request,
    stream_decoder=GeminiStreamDecoder,
    whole_decoder=GeminiWholeDecoder,
    stream_encoder=GeminiStreamEncoder,
    whole_encoder=GeminiWholeEncoder,
    decode_error=decode_error,
    encode_error=encode_error,
    encode_models=_encode_models,
    encode_count=_encode_count,
    decode_count_request=_decode_count_request,
)
"""Model and stream of a request come from its URL."""
