"""OpenAI Chat Completions, and every server that speaks it with an accent.

Wire facts: docs/reference/wire-facts.md#openai-chat-completions.
"""

from __future__ import annotations

from typing import Any

from athena.calls.names import OPENAI_NAMES
from athena.calls.survey import ALL
from athena.dialects.base import Dialect, ModelEntry, model_value
from athena.dialects.openai_chat.decode_answer import ChatStreamDecoder, ChatWholeDecoder
from athena.dialects.openai_chat.decode_request import decode_request
from athena.dialects.openai_chat.encode_request import encode_request
from athena.dialects.openai_chat.encode_stream import ChatStreamEncoder
from athena.dialects.openai_chat.encode_whole import ChatWholeEncoder
from athena.dialects.openai_chat.errors import decode_error, encode_error
from athena.dialects.openai_chat.plain_whole import plain_answer
from athena.dialects.openai_chat.vocabulary import NAME
from athena.model.request import Request
from athena.wire.sse import encode_comment

__all__ = ["DIALECT"]


def _portable(request: Request, kinds: int = ALL) -> Request:
    """Nothing is said otherwise: Chat knows no typed tools that the client runs itself."""
    return request


def _encode_models(models: list[ModelEntry]) -> dict[str, Any]:
    return {"object": "list", "data": [model_value(entry) for entry in models]}


def _encode_count(tokens: int) -> dict[str, Any]:
    """llama.cpp's answer to /v1/chat/completions/input_tokens, in the words of OpenAI's own counter."""
    return {"object": "response.input_tokens", "input_tokens": tokens}


DIALECT = Dialect(
    name=NAME,
    family="",
    id_style="chat",
    names=OPENAI_NAMES,
    stream_type="text/event-stream; charset=utf-8",
    system_turns=True,
    signs_thinking=False,
    signs_calls=True,
    custom_calls=True,
    stream_end=b"data: [DONE]\n\n",
    named_events=False,
    usage_on_request=True,
    # A comment: every Chat client tested skips it.
    keep_alive=encode_comment("ping"),
    portable=_portable,
    decode_request=decode_request,
    encode_request=encode_request,
    stream_decoder=ChatStreamDecoder,
    whole_decoder=ChatWholeDecoder,
    stream_encoder=ChatStreamEncoder,
    whole_encoder=ChatWholeEncoder,
    decode_error=decode_error,
    encode_error=encode_error,
    encode_models=_encode_models,
    encode_count=_encode_count,
    decode_count_request=decode_request,
    plain_answer=plain_answer,
)
"""Chat Completions in both directions; the URL of a deployment may name the model."""
