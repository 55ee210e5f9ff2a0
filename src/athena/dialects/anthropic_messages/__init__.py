"""Anthropic Messages: `POST /v1/messages`, both wire versions, both directions. Wire facts: `dialects.md` 1.1."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from athena.calls.names import ANTHROPIC_NAMES
from athena.dialects.anthropic_messages.decode_answer import MessagesStreamDecoder, MessagesWholeDecoder
from athena.dialects.anthropic_messages.decode_request import decode_request
from athena.dialects.anthropic_messages.encode_answer import PING, MessagesStreamEncoder, MessagesWholeEncoder
from athena.dialects.anthropic_messages.encode_request import encode_request
from athena.dialects.anthropic_messages.errors import decode_error, encode_error
from athena.dialects.anthropic_messages.portable import portable
from athena.dialects.anthropic_messages.vocabulary import FAMILY, NAME
from athena.dialects.base import Dialect, ModelEntry
from athena.model.request import Request

__all__ = ["DIALECT"]


def _encode_models(models: list[ModelEntry]) -> dict[str, Any]:
    """The fields that OpenAI's SDK looks for are there too, because the two APIs share the path."""
    return {
        "object": "list",
        "data": [
            {
                "id": entry.id,
                "type": "model",
                "display_name": entry.display_name or entry.id,
                "created_at": datetime.fromtimestamp(entry.created, UTC).isoformat().replace("+00:00", "Z"),
                "lifecycle": "active",
                "max_input_tokens": entry.max_input,
                "max_tokens": entry.max_output,
                "capabilities": None,
                "object": "model",
                "created": entry.created,
                "owned_by": entry.owner,
            }
            for entry in models
        ],
        "has_more": False,
        "first_id": models[0].id if models else None,
        "last_id": models[-1].id if models else None,
    }


def _encode_count(tokens: int) -> dict[str, Any]:
    return {"input_tokens": tokens}


def _decode_count_request(body: Mapping[str, Any], *, model: str | None = None) -> Request:
    """Like any other request, but without `max_tokens`."""
    return decode_request(body, model=model, counting=True)


DIALECT = Dialect(
    name=NAME,
    family=FAMILY,
    id_style="anthropic",
    names=ANTHROPIC_NAMES,
    stream_type="text/event-stream; charset=utf-8",
    system_turns=False,
    signs_thinking=True,
    signs_calls=False,
    custom_calls=False,
    stream_end=b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    named_events=True,
    usage_on_request=False,
    # A ping event: every client skips it, wherever it stands.
    keep_alive=PING,
    portable=portable,
    decode_request=decode_request,
    encode_request=encode_request,
    stream_decoder=MessagesStreamDecoder,
    whole_decoder=MessagesWholeDecoder,
    stream_encoder=MessagesStreamEncoder,
    whole_encoder=MessagesWholeEncoder,
    decode_error=decode_error,
    encode_error=encode_error,
    encode_models=_encode_models,
    encode_count=_encode_count,
    decode_count_request=_decode_count_request,
)
"""The dialect of Anthropic's API and of everything that imitates it."""
