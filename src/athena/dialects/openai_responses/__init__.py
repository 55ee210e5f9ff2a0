"""OpenAI's Responses API: `POST /v1/responses` (`dialects.md` 1.3). Items instead of messages, typed stream events, reasoning
state that travels encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from athena.calls.names import OPENAI_NAMES
from athena.dialects.base import Dialect, ModelEntry, model_value
from athena.dialects.openai_responses.decode_answer import ResponsesStreamDecoder, ResponsesWholeDecoder
from athena.dialects.openai_responses.decode_request import decode_request
from athena.dialects.openai_responses.encode_answer import OutputWriter, WholeEncoder
from athena.dialects.openai_responses.encode_request import encode_request
from athena.dialects.openai_responses.errors import decode_error, encode_error
from athena.dialects.openai_responses.portable import portable
from athena.dialects.openai_responses.vocabulary import NAME
from athena.model.request import Request
from athena.wire.sse import encode_comment

__all__ = ["DIALECT"]


def _encode_models(models: list[ModelEntry]) -> dict[str, Any]:
    return {"object": "list", "data": [model_value(entry) for entry in models]}


def _encode_count(tokens: int) -> dict[str, Any]:
    return {"object": "response.input_tokens", "input_tokens": tokens}


def _decode_count_request(body: Mapping[str, Any], *, model: str | None = None) -> Request:
    """The body of /v1/responses/input_tokens: a request without its output settings."""
    return decode_request(body, model=model, stream=False, counting=True)


DIALECT = Dialect(
    name=NAME,
    family="openai",
    id_style="responses",
    names=OPENAI_NAMES,
    stream_type="text/event-stream; charset=utf-8",
    system_turns=True,
    # Unsigned reasoning would come back with an id that no server of this API knows; the envelope tells it is ours.
    signs_thinking=True,
    signs_calls=False,
    custom_calls=True,
    stream_end=b"",
    named_events=True,
    usage_on_request=False,
    # A comment: clients fail on events they do not know, pings among them.
    keep_alive=encode_comment("keep-alive"),
    portable=portable,
    decode_request=decode_request,
    encode_request=encode_request,
    stream_decoder=ResponsesStreamDecoder,
    whole_decoder=ResponsesWholeDecoder,
    stream_encoder=OutputWriter,
    whole_encoder=WholeEncoder,
    decode_error=decode_error,
    encode_error=encode_error,
    encode_models=_encode_models,
    encode_count=_encode_count,
    decode_count_request=_decode_count_request,
)
"""The Responses API."""
