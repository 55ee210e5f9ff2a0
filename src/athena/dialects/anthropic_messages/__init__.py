"""Anthropic Messages: `POST /v1/messages`, both wire versions, both directions.

Wire facts: docs/reference/wire-facts.md#anthropic-messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from athena.calls.names import ANTHROPIC_NAMES, NameRule
from athena.dialects.anthropic_messages.decode_answer import MessagesStreamDecoder, MessagesWholeDecoder
from athena.dialects.anthropic_messages.decode_request import decode_request
from athena.dialects.anthropic_messages.encode_answer import PING, MessagesStreamEncoder, MessagesWholeEncoder
from athena.dialects.anthropic_messages.encode_request import encode_request
from athena.dialects.anthropic_messages.errors import decode_error, encode_error
from athena.dialects.anthropic_messages.portable import portable
from athena.dialects.anthropic_messages.vocabulary import FAMILY, NAME
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
)
from athena.model.events import Error
from athena.model.profile import IdStyle
from athena.model.request import Request

__all__ = ["DIALECT", "AnthropicMessages"]


class AnthropicMessages:
    """The dialect of Anthropic's API and of everything that imitates it."""

    name: str = NAME
    family: str = FAMILY
    id_style: IdStyle = "anthropic"
    names: NameRule = ANTHROPIC_NAMES
    stream_type: str = "text/event-stream; charset=utf-8"
    system_turns: bool = False
    signs_thinking: bool = True
    signs_calls = False
    custom_calls = False
    stream_end: bytes = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    named_events: bool = True
    usage_on_request: bool = False

    def portable(self, request: Request) -> Request:
        """Tools that the caller runs as functions, and what only this API has in plain words."""
        return portable(request)

    def decode_request(
        self, body: Mapping[str, Any], *, model: str | None = None, stream: bool | None = None, version: str | None = None
    ) -> Request:
        """`version` is the client's `anthropic-version` header."""
        return decode_request(body, model=model, stream=stream, version=version)

    def encode_request(self, request: Request, target: Target) -> Encoded:
        """The path is below a base URL without `/v1`, as this API's own SDKs have it."""
        return encode_request(request, target)

    def decoder(self, context: DecodeContext, *, stream: bool) -> AnswerDecoder:
        """Upstream bytes to events."""
        return MessagesStreamDecoder(context) if stream else MessagesWholeDecoder(context)

    def encoder(self, context: EncodeContext, *, stream: bool) -> AnswerEncoder:
        """Events to client bytes."""
        return MessagesStreamEncoder(context) if stream else MessagesWholeEncoder(context)

    def decode_error(self, status: int, headers: Mapping[str, str], body: bytes) -> Error:
        """An upstream's error answer."""
        return decode_error(status, headers, body)

    def encode_error(self, error: Error, request_id: str = "") -> HttpError:
        """An error answer for a client."""
        return encode_error(error, request_id)

    def keep_alive(self) -> bytes:
        """A ping event: every client skips it, wherever it stands."""
        return PING

    def encode_models(self, models: list[ModelEntry]) -> dict[str, Any]:
        """A model list; the fields OpenAI's SDK looks for are there too, because the two share the path."""
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

    def encode_count(self, tokens: int) -> dict[str, Any]:
        """The answer of `count_tokens`."""
        return {"input_tokens": tokens}

    def decode_count_request(self, body: Mapping[str, Any], *, model: str | None = None) -> Request:
        """A request to be counted: like any other, but without `max_tokens`."""
        return decode_request(body, model=model, counting=True)


DIALECT: Dialect = AnthropicMessages()
