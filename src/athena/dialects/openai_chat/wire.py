"""What a chunk or a whole answer looks like on the wire, as far as we read it.

Types are loose where servers differ: a field of a surprising type must not cost the whole answer. Arguments
stay raw JSON text, so a server that sends them as an object does not make us rewrite the model's numbers.

Wire facts: docs/reference/wire-facts.md#servers-that-bend-a-dialect.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec


class FunctionEntry(msgspec.Struct, gc=False):
    """A function call, or a piece of one."""

    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"")


class Custom(msgspec.Struct, gc=False):
    """A call of a free-form tool."""

    name: str | None = None
    input: str | None = None


class CallEntry(msgspec.Struct, gc=False):
    index: Any = None
    id: Any = None
    type: Any = None
    function: FunctionEntry | None = None
    custom: Custom | None = None
    extra_content: Any = None


class ChatMessage(msgspec.Struct, gc=False):
    """A delta, or the message of a whole answer."""

    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_details: Any = None
    tool_calls: list[CallEntry] | None = None
    function_call: FunctionEntry | None = None
    refusal: Any = None
    annotations: Any = None
    audio: Any = None
    images: Any = None
    finish_reason: Any = None


class ChoiceEntry(msgspec.Struct, gc=False):
    index: Any = 0
    delta: ChatMessage | None = None
    message: ChatMessage | None = None
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


class SaysNothingElse(msgspec.Struct, gc=False, kw_only=True):
    """Fields of a delta that mean something, all of them empty; unknown ones may hold what they like, because nothing reads
    them."""

    reasoning_details: None = None
    function_call: None = None
    refusal: None = None
    annotations: None = None
    audio: None = None
    images: None = None
    finish_reason: None = None


class PlainDelta(SaysNothingElse, gc=False, kw_only=True):
    """A delta that says something in one field of words."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[()] | None = None


class PlainFunction(msgspec.Struct, gc=False):
    """A piece of arguments."""

    arguments: str
    name: Literal[""] | None = None


class PlainCall(CallEntry, gc=False, kw_only=True):
    """An entry that adds to the arguments of a call that has begun, and to nothing else."""

    index: int
    function: PlainFunction  # type: ignore[assignment]  # read, never written
    id: Literal[""] | None = None
    custom: None = None
    extra_content: None = None


class PlainCallDelta(SaysNothingElse, gc=False, kw_only=True):
    """A delta that holds one such entry."""

    tool_calls: tuple[PlainCall]
    content: Literal[""] | None = None
    reasoning: None = None
    reasoning_content: None = None


DeltaT = TypeVar("DeltaT", PlainDelta, PlainCallDelta)


class PlainChoice(ChoiceEntry, Generic[DeltaT], gc=False, kw_only=True):
    """The first choice, still running."""

    delta: DeltaT  # type: ignore[assignment]  # read, never written
    index: Literal[0] = 0
    message: None = None
    finish_reason: None = None
    usage: None = None
    logprobs: None = None
    error: None = None


class PlainChunk(Chunk, Generic[DeltaT], gc=False, kw_only=True):
    """A record in which one field of one delta is all that can have an effect. It has all fields of a chunk, though nobody
    looks at them: a record that cannot be read as a chunk must not be read as this."""

    choices: tuple[PlainChoice[DeltaT]]  # type: ignore[assignment]  # read, never written
    usage: None = None
    error: None = None
    x_groq: None = None
    timings: None = None


_decode_plain = msgspec.json.Decoder(PlainChunk[PlainDelta]).decode
_decode_plain_call = msgspec.json.Decoder(PlainChunk[PlainCallDelta]).decode


def _plain_delta(name: str, payload: bytes) -> PlainDelta | None:
    if name == "error":
        return None
    try:
        chunk = _decode_plain(payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return chunk.choices[0].delta if chunk.object != "error" else None


def plain_content(name: str, payload: bytes) -> str | None:
    """The text of a record that says nothing but this text."""
    delta = _plain_delta(name, payload)
    return None if delta is None or delta.reasoning or delta.reasoning_content else delta.content


def plain_reasoning(name: str, payload: bytes) -> str | None:
    """The reasoning of a record that says nothing but this, in one of the two fields that carry plain text."""
    delta = _plain_delta(name, payload)
    if delta is None or delta.content or (delta.reasoning and delta.reasoning_content):
        return None
    return delta.reasoning or delta.reasoning_content


def plain_arguments(name: str, payload: bytes, *, index: int) -> str | None:
    """The arguments of a record that says nothing but these, of the call with this index."""
    if name == "error":
        return None
    try:
        chunk = _decode_plain_call(payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    (call,) = chunk.choices[0].delta.tool_calls
    return call.function.arguments if chunk.object != "error" and call.index == index else None


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
