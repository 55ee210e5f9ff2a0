"""What a chunk or a whole answer looks like on the wire, as far as we read it.

Types are loose where servers differ (`dialects.md` 1.5): a field of a surprising type must not cost the whole answer. Arguments
stay raw JSON text, so a server that sends them as an object does not make us rewrite the model's numbers (trap 35).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Function(msgspec.Struct, gc=False):
    """A function call, or a piece of one."""

    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"")


class Custom(msgspec.Struct, gc=False):
    """A call of a free-form tool."""

    name: str | None = None
    input: str | None = None


class CallEntry(msgspec.Struct, gc=False):
    """One entry of `tool_calls`."""

    index: Any = None
    id: Any = None
    type: Any = None
    function: Function | None = None
    custom: Custom | None = None
    extra_content: Any = None


class Message(msgspec.Struct, gc=False):
    """A delta, or the message of a whole answer."""

    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_details: Any = None
    tool_calls: list[CallEntry] | None = None
    function_call: Function | None = None
    refusal: Any = None
    annotations: Any = None
    audio: Any = None
    images: Any = None
    finish_reason: Any = None


class ChoiceEntry(msgspec.Struct, gc=False):
    """One entry of `choices`."""

    index: Any = 0
    delta: Message | None = None
    message: Message | None = None
    finish_reason: Any = None
    usage: Any = None
    logprobs: Any = None
    stop_reason: Any = None
    matched_stop: Any = None
    error: Any = None


class Chunk(msgspec.Struct, gc=False):
    """One record of a stream, or a whole answer."""

    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    choices: list[ChoiceEntry] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Any = None
    timings: Any = None


class TextOnlyDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A delta that says nothing but text."""

    content: str
    role: Any = None
    reasoning: None = None
    reasoning_content: None = None
    tool_calls: None = None
    function_call: None = None
    refusal: None = None


class TextOnlyChoice(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The first choice, still running."""

    delta: TextOnlyDelta
    index: Literal[0] = 0
    finish_reason: None = None
    native_finish_reason: None = None
    logprobs: None = None


class TextOnlyChunk(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The record most streams are made of. Decoding into it is the check: anything more does not fit."""

    choices: tuple[TextOnlyChoice]
    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    provider: Any = None
    system_fingerprint: Any = None
    service_tier: Any = None
    obfuscation: Any = None
    usage: None = None


decode_text_only = msgspec.json.Decoder(TextOnlyChunk).decode
decode_chunk = msgspec.json.Decoder(Chunk).decode
decode_value = msgspec.json.Decoder().decode
_decode_text = msgspec.json.Decoder(str).decode


def arguments_of(raw: msgspec.Raw) -> str:
    """A piece of arguments as text, whether it came as a string or as an object."""
    data = bytes(raw)
    if data[:1] == b'"':
        return _decode_text(data)
    return "" if data in (b"", b"null") else data.decode("utf-8", "replace")
