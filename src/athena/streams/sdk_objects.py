"""The official SDKs' objects back as the JSON they were read from, and the dialect that JSON is in.

Known by their shape, not by their class: no SDK is imported. The raw events of `openai` (Chat and Responses) and `anthropic`
and the chunks of `google-genai` are the wire's records. The helpers' streams (`messages.stream`, `chat.completions.stream`,
`responses.stream`) mix events of their own between them, which say the same once more and are passed over.
"""

from __future__ import annotations

from typing import Any

import msgspec

from athena.wire.surrogates import lossless_json

_HELPER_EVENTS = frozenset({"text", "thinking", "signature", "citation", "input_json"})
"""`anthropic`'s `MessageStream` says these beside the records they come from."""
_RECORD_TYPES = ("response.", "message", "content_block", "ping", "error")
_ADDED_BY_GOOGLE = {"sdk_http_response": True, "automatic_function_calling_history": True, "parsed": True}


def is_sdk_object(value: object) -> bool:
    """Is it one of the SDKs' own answer objects, chunks or events (all of them pydantic models)?"""
    return hasattr(value, "model_dump_json")


def wire_json(value: Any) -> bytes | None:
    """The record an SDK's object was made of; None for an event that only a helper's stream has."""
    if hasattr(value, "candidates"):
        # Not `model_dump_json`: it would write signatures in the URL's alphabet, which is not what the API sent.
        return _encoded(value.model_dump(by_alias=True, exclude_none=True, exclude=_ADDED_BY_GOOGLE))
    kind = getattr(value, "type", "")
    if kind == "chunk" and hasattr(value, "chunk"):
        value = value.chunk
    elif kind in _HELPER_EVENTS or not (kind.startswith(_RECORD_TYPES) or hasattr(value, "object")):
        return None
    try:
        text: str = value.model_dump_json(by_alias=True, exclude_unset=True, warnings=False)
        return text.encode()
    except ValueError:
        return _encoded(value.model_dump(by_alias=True, exclude_unset=True, warnings=False))


def _encoded(value: Any) -> bytes:
    return lossless_json(value)


def dialect_of(record: bytes) -> str | None:
    """The dialect of a record or a whole answer, by the fields only that dialect has."""
    try:
        shape = _read_shape(record)
    except msgspec.DecodeError:
        return None
    if shape.object.startswith("chat.completion"):
        return "openai_chat"
    if shape.object == "response" or shape.type.startswith("response."):
        return "openai_responses"
    if shape.type.startswith(("message", "content_block", "ping")):
        return "anthropic_messages"
    return "gemini" if shape.candidates is not msgspec.UNSET or shape.prompt_feedback is not msgspec.UNSET else None


class _Shape(msgspec.Struct):
    object: str = ""
    type: str = ""
    candidates: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    prompt_feedback: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="promptFeedback")


_read_shape = msgspec.json.Decoder(_Shape).decode
