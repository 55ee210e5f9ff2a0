"""An upstream's Messages answer as events, streamed or whole.

One reader of blocks serves both forms. A call's arguments stay the model's own text, also where an upstream sends them as an
object in one piece. Whether a call was cut is known only when the answer says why it ended, so a block whose arguments are not
whole at its own end waits for that.

Wire facts: docs/reference/wire-facts.md#anthropic-answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgspec

from athena.calls.ids import synthesized_id
from athena.calls.tracker import PlainArguments, ToolCallTracker, plain_arguments
from athena.dialects.anthropic_messages.decode_blocks import citation_part
from athena.dialects.anthropic_messages.errors import decode_error, error_of_object
from athena.dialects.anthropic_messages.vocabulary import FINISH_OF, NAME, TEXT_BLOCK_END, UNKNOWN_EVENT
from athena.dialects.base import DecodeContext
from athena.dialects.decoders import UNREADABLE, StreamDecoder, WholeDecoder, closed_error, protocol_error, token_count
from athena.dialects.plain_reads import PlainShape
from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    Finish,
    FinishKind,
    KeepAlive,
    PlainPiece,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    WholePart,
    is_failure,
)
from athena.model.parts import Foreign, Opaque, OpaqueKind
from athena.wire.json_span import is_json_object
from athena.wire.sse import is_event_name

_NOTHING = msgspec.Raw(b"")
_CUT: frozenset[FinishKind] = frozenset({"length", "context", "refusal"})
"""Endings that may come in the middle of a call."""
_BLOCK_FIELDS: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input", "toolset_name"}),
}
_MESSAGE_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage"})


class _Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: Any = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None


class _Record(msgspec.Struct, gc=False):
    type: str | msgspec.UnsetType = msgspec.UNSET
    index: int = 0
    delta: _Delta | None = None
    content_block: msgspec.Raw = _NOTHING
    message: Any = None
    usage: Any = None
    error: Any = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    citations: Any = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    toolset_name: str | None = None
    input: msgspec.Raw = _NOTHING


class _Message(msgspec.Struct, gc=False):
    type: str = ""
    id: str | None = None
    model: str | None = None
    content: list[msgspec.Raw] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    usage: Any = None
    error: Any = None


_read_record = msgspec.json.Decoder(_Record).decode
_read_block = msgspec.json.Decoder(_Block).decode
_read_message = msgspec.json.Decoder(_Message).decode
_read_any = msgspec.json.Decoder().decode


class _PlainText(msgspec.Struct, gc=False, tag_field="type", tag="text_delta"):
    text: str


class _PlainThinking(msgspec.Struct, gc=False, tag_field="type", tag="thinking_delta"):
    thinking: str


class _PlainArguments(msgspec.Struct, gc=False, tag_field="type", tag="input_json_delta"):
    partial_json: str


class _PlainRecord(msgspec.Struct, gc=False, tag_field="type", tag="content_block_delta"):
    """A piece of a block, of which nothing but the block's number and the text are read."""

    delta: _PlainText | _PlainThinking | _PlainArguments
    index: int = 0


_read_plain = msgspec.json.Decoder(_PlainRecord).decode


def _plain_piece(index: int, piece: type, name: str, payload: bytes) -> str | None:
    """The text of a record that is such a piece of this block."""
    try:
        record = _read_plain(payload)
    except UNREADABLE:
        return None
    if type(record.delta) is not piece or record.index != index:
        return None
    (text,) = msgspec.structs.astuple(record.delta)
    return str(text)


_PIECES: dict[type, tuple[type, re.Pattern[bytes]]] = {
    TextDelta: (_PlainText, re.compile(rb'"text": ?(?=")')),
    ThinkingDelta: (_PlainThinking, re.compile(rb'"thinking": ?(?=")')),
    ToolCallDelta: (_PlainArguments, re.compile(rb'"partial_json": ?(?=")')),
}
_MOST_BLOCKS = 256
"""Blocks of one answer whose pieces are known by their looks."""


@cache
def _shape_of(index: int, event: type) -> PlainShape:
    """How pieces of one block look. Each block has a shape of its own: a late piece of another one is no piece of this."""
    piece, place = _PIECES[event]
    return PlainShape(place, partial(_plain_piece, index, piece))


class _Open:
    __slots__ = ("fields", "input", "kind", "pieces", "signature")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.signature = ""
        self.input = ""
        self.pieces: list[str] = []
        self.fields: dict[str, Any] = {}


class BlockReader:
    """Content blocks of one answer as events."""

    def __init__(self, context: DecodeContext) -> None:
        seed = context.seed
        self._keep_extras = context.keep_extras
        self._losses = context.losses
        self._family = context.profile.state_family
        self._open: dict[int, _Open] = {}
        self._waiting: list[int] = []
        """Calls that ended without any argument: meant so, or cut."""
        self._ended = 0
        self._last_kind = ""
        self.last = -1
        """The block that had the last piece."""
        self.calls = ToolCallTracker(
            new_id=lambda number: synthesized_id(seed, number, "toolu_"), limits=context.limits, mend=context.mend
        )

    def start(self, index: int, raw: msgspec.Raw, out: list[Event]) -> None:
        """A block begins, with whatever it already holds."""
        block = _read_block(raw)
        self.last = index
        opened = self._begin(index, block.type, out)
        if self._losses is not None and (known := _BLOCK_FIELDS.get(block.type)) is not None:
            fields = _read_any(raw)
            caller = fields.get("caller")
            if isinstance(caller, dict) and caller.get("type") == "direct":
                del fields["caller"]  # the model itself called, as it always does elsewhere
            self._losses.unknown(fields, known, block.type)
        if block.type == "text":
            if block.text:
                out.append(TextDelta(block.text))
            for citation in block.citations if isinstance(block.citations, list) else ():
                out.append(WholePart(citation_part(citation)))
        elif block.type == "thinking":
            if block.thinking:
                out.append(ThinkingDelta(block.thinking))
            opened.signature = block.signature or ""
        elif block.type == "redacted_thinking":
            out.append(ThinkingDelta(signature=self._state("redacted", block.data or "")))
        elif block.type == "tool_use":
            opened.input = _input_text(block.input)
            started = self.calls.start_call(block.id or "", block.name, index, namespace=block.toolset_name)
            self.calls.open(out, started)
        else:
            opened.fields = _read_any(raw)

    def delta(self, index: int, delta: _Delta, payload: bytes, out: list[Event]) -> Error | None:
        """The next piece of a block. An error when it belongs to no block that could take it."""
        self.last = index
        if delta.text is not None and delta.type == "text_delta":
            if index not in self._open:
                self._begin(index, "text", out)
            if delta.text:
                out.append(TextDelta(delta.text))
            return None
        opened = self._open.get(index)
        if delta.type == "thinking_delta":
            if opened is None:
                self._begin(index, "thinking", out)
            if delta.thinking:
                out.append(ThinkingDelta(delta.thinking))
            return None
        if opened is None:
            return protocol_error(f"a {delta.type} for block {index}, which never began", payload)
        if opened.kind == "tool_use" and (delta.partial_json or delta.type == "input_json_delta"):
            if delta.partial_json:
                opened.pieces.append(delta.partial_json)
                self.calls.append(out, index, delta.partial_json)
        elif delta.type == "signature_delta":
            opened.signature = delta.signature or ""
        elif delta.type == "citations_delta":
            out.append(WholePart(citation_part(delta.citation)))
        elif delta.type == "input_json_delta":
            opened.pieces.append(delta.partial_json or "")
        elif opened.kind in _BLOCK_FIELDS:
            self._unknown_delta(delta.type, payload, out)
        else:
            self._grow(opened, payload)
        return None

    def plain_arguments(self) -> PlainArguments | None:
        """What watches further pieces of the one block that is open, a call; None: there is none, or there are several."""
        if len(self._open) != 1:
            return None
        ((index, opened),) = self._open.items()
        return plain_arguments(self.calls, index) if opened.kind == "tool_use" else None

    def note_arguments(self, text: str) -> None:
        """A piece of its arguments took the short way."""
        (opened,) = self._open.values()
        opened.pieces.append(text)

    def stop(self, index: int, out: list[Event]) -> None:
        """A block ended. A call whose arguments are not whole stays open until the answer's end says why."""
        opened = self._open.pop(index, None)
        if opened is None:
            return
        self._ended += 1
        if opened.kind == "thinking":
            if opened.signature:
                out.append(ThinkingDelta(signature=self._state("signature", opened.signature)))
        elif opened.kind == "tool_use":
            self._end_call(index, opened, out)
        elif opened.kind not in ("text", "redacted_thinking"):
            if opened.pieces:
                opened.fields["input"] = _input_value("".join(opened.pieces))
            out.append(WholePart(Foreign(kind=opened.kind, dialect=NAME, raw=opened.fields)))

    @property
    def at_rest(self) -> bool:
        """Something was said and nothing is half said."""
        return self._ended > 0 and not self._open

    def abandon(self, index: int) -> None:
        """A call that is known to be cut: what came of its arguments must not count."""
        self._open.pop(index, None)

    def finish(self, reason: str, sequence: str | None, details: Any, usage: Usage | None, out: list[Event]) -> Event:
        """Close what is open and say how the answer ended: a Done, or an Error for a call that was not cut."""
        kind = FINISH_OF.get(reason, "stop")
        for index in list(self._open):
            self.stop(index, out)
        mark = len(out)
        self.calls.close_all(out, cut=kind in _CUT)
        for position in range(mark, len(out)):
            event = out[position]
            if is_failure(event):
                del out[position:]
                return event
        if self._losses is not None and not self._keep_extras:
            self._losses.unknown(details, ("type", "explanation"), "stop_details")
        called = bool(self.calls.into_calls())
        if called and kind in ("stop", "stop_sequence"):
            kind, sequence = "tool", None
        elif kind == "tool" and not called:
            kind = "stop"
        return Done(Finish(kind, reason, sequence, details), usage=usage)

    def _begin(self, index: int, kind: str, out: list[Event]) -> _Open:
        if kind == "text" and self._last_kind == "text" and self._keep_extras:
            out.append(Extra({TEXT_BLOCK_END: True}, choice=0, delta=True))
        self._last_kind = kind
        self._complete_empty_calls(out)
        opened = self._open[index] = _Open(kind)
        return opened

    def _end_call(self, index: int, opened: _Open, out: list[Event]) -> None:
        if opened.input and not opened.pieces:
            self.calls.append(out, index, opened.input)
            opened.pieces.append(opened.input)
        if not opened.pieces:
            self._waiting.append(index)
        elif is_json_object("".join(opened.pieces)):
            self.calls.write_complete(out, index)

    def _complete_empty_calls(self, out: list[Event]) -> None:
        """Another block begins: a call before it that has no arguments was meant to have none."""
        for index in self._waiting:
            self.calls.write_complete(out, index)
        self._waiting.clear()

    def _unknown_delta(self, kind: str, payload: bytes, out: list[Event]) -> None:
        """A piece of text or thinking that is neither: clients of this dialect get it as it came."""
        if self._keep_extras:
            out.append(Extra({UNKNOWN_EVENT: _read_any(payload)}, choice=0, delta=True))
        elif self._losses is not None:
            self._losses.drop(kind or "delta", "a piece of a block that only the upstream's own clients know")

    def _grow(self, opened: _Open, payload: bytes) -> None:
        """An unknown delta (compaction and later ones): text joins, anything else replaces."""
        delta = _read_any(payload).get("delta")
        for key, value in delta.items() if isinstance(delta, dict) else ():
            before = opened.fields.get(key)
            if key == "type":
                continue
            opened.fields[key] = before + value if isinstance(before, str) and isinstance(value, str) else value

    def _state(self, kind: OpaqueKind, payload: str) -> Opaque:
        return Opaque(family=self._family, kind=kind, payload=payload)


class MessagesStreamDecoder(StreamDecoder):
    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._blocks = BlockReader(context)
        self._begun = False
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._sequence: str | None = None
        self._details: Any = None

    def record(self, name: str, payload: bytes, out: list[Event]) -> None:
        record = _read_record(payload)
        kind = name if record.type is msgspec.UNSET else record.type
        if kind == "content_block_delta" and record.delta is not None:
            failed = self._blocks.delta(record.index, record.delta, payload, out)
            if failed is not None:
                self.fail(out, failed)
        elif kind == "content_block_start":
            self._begun = True
            self._blocks.start(record.index, record.content_block, out)
        elif kind == "content_block_stop":
            self._blocks.stop(record.index, out)
        elif kind == "ping":
            out.append(KeepAlive())
        elif kind == "message_start":
            self._start(record.message, out)
        elif kind == "message_delta":
            self._message_delta(record, payload, out)
        elif kind == "message_stop":
            self._stop(out)
        elif "error" in (kind, name) or record.error is not None:
            # llama.cpp writes the error's fields into the record itself, so that `type` is the error's and not the event's.
            told = record.error if record.error is not None else _read_any(payload)
            self.fail(out, error_of_object(told, raw=payload[:2000].decode("utf-8", "replace")))
        elif self.context.keep_extras and is_event_name(kind):
            out.append(Extra({UNKNOWN_EVENT: {"type": kind, **_read_any(payload)}}, choice=0, delta=True))
        elif self.context.losses is not None:
            self.context.losses.drop(kind or "event", "an event that only the upstream's own clients know")

    def plain_shape(self, event: PlainPiece) -> PlainShape | None:
        # A block that had a piece is open, and a piece changes nothing.
        index = self._blocks.last
        return _shape_of(index, type(event)) if 0 <= index < _MOST_BLOCKS else None

    def plain_arguments(self) -> PlainArguments | None:
        return self._blocks.plain_arguments()

    def plain_note(self, event: PlainPiece) -> Callable[[str], None] | None:
        return self._blocks.note_arguments if type(event) is ToolCallDelta else None

    @property
    def finished(self) -> bool:
        return self._reason is not None

    def end(self, out: list[Event]) -> None:
        """Without `message_stop` the answer is still whole when it said why it ended."""
        self._stop(out)

    def _start(self, message: Any, out: list[Event]) -> None:
        fields: dict[str, Any] = message if isinstance(message, dict) else {}
        self._merge_usage(fields.get("usage"))
        if self._begun:
            return
        self._begun = True
        extras = {key: value for key, value in fields.items() if key not in _MESSAGE_FIELDS}
        self._note(extras)
        out.append(
            Start(
                id=_text(fields.get("id")),
                model=_text(fields.get("model")),
                usage=read_usage(self._usage),
                extras=extras if extras and self.context.keep_extras else None,
            )
        )

    def _message_delta(self, record: _Record, payload: bytes, out: list[Event]) -> None:
        self._merge_usage(record.usage)
        delta = record.delta
        if delta is None:
            return
        if delta.stop_reason is not None:
            self._reason = delta.stop_reason
            self._sequence = delta.stop_sequence
        self._details = delta.stop_details if delta.stop_details is not None else self._details
        if self.context.keep_extras or self.context.losses is not None:
            whole = _read_any(payload)
            extras = {key: value for key, value in whole.items() if key not in ("type", "delta", "usage")}
            inner = whole["delta"].items()
            extras |= {key: value for key, value in inner if key not in _MESSAGE_FIELDS and value is not None}
            self._note(extras)
            if extras and self.context.keep_extras:
                out.append(Extra(extras))

    def _note(self, extras: dict[str, Any]) -> None:
        if self.context.losses is not None and not self.context.keep_extras:
            self.context.losses.unknown(extras, ())

    def _stop(self, out: list[Event]) -> None:
        reason = self._reason
        if reason is None:
            if not (self.context.profile.lenient_end and self._blocks.at_rest):
                self.fail(out, closed_error())
                return
            reason = ""
        terminal = self._blocks.finish(reason, self._sequence, self._details, read_usage(self._usage), out)
        out.append(terminal)
        self.ended = True

    def _merge_usage(self, usage: Any) -> None:
        """Counts are cumulative: later ones replace earlier ones, absent ones leave them."""
        if isinstance(usage, dict):
            self._usage.update({key: value for key, value in usage.items() if value is not None})


class MessagesWholeDecoder(WholeDecoder):
    """A whole body to the events its stream would have given."""

    def whole(self, body: bytes, out: list[Event]) -> None:
        message = _read_message(body)
        if message.error is not None or message.type == "error":
            out.append(decode_error(200, {}, body))
            return
        if message.content is None:
            out.append(protocol_error("the answer has no content", body))
            return
        usage = read_usage(message.usage)
        out.append(Start(message.id or "", message.model or "", usage=usage, extras=self._extras(body)))
        blocks = BlockReader(self.context)
        reason = message.stop_reason
        if reason is None and not self.context.profile.lenient_end:
            out.append(closed_error())
            return
        last = len(message.content) - 1
        for index, raw in enumerate(message.content):
            blocks.start(index, raw, out)
            if index == last and FINISH_OF.get(reason or "") in _CUT and _read_block(raw).type == "tool_use":
                # Here a cut call shows as an object with fields missing: it looks like a whole one.
                blocks.abandon(index)
                break
            blocks.stop(index, out)
        out.append(blocks.finish(reason or "", message.stop_sequence, message.stop_details, usage, out))

    def _extras(self, body: bytes) -> dict[str, Any] | None:
        extras = {key: value for key, value in _read_any(body).items() if key not in _MESSAGE_FIELDS}
        if self.context.keep_extras:
            return extras or None
        if self.context.losses is not None:
            self.context.losses.unknown(extras, ())
        return None


def read_usage(usage: Any) -> Usage | None:
    """Token counts; `input_tokens` on the wire excludes what the cache read or wrote."""
    if not isinstance(usage, dict) or not usage:
        return None
    read, write = token_count(usage.get("cache_read_input_tokens")), token_count(usage.get("cache_creation_input_tokens"))
    details, creation = usage.get("output_tokens_details"), usage.get("cache_creation")
    return Usage(
        input_total=token_count(usage.get("input_tokens")) + read + write,
        output_total=token_count(usage.get("output_tokens")),
        cache_read=read,
        cache_write=write,
        cache_write_1h=token_count(creation.get("ephemeral_1h_input_tokens")) if isinstance(creation, dict) else 0,
        reasoning=token_count(details.get("thinking_tokens")) if isinstance(details, dict) else 0,
        raw=dict(usage),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _input_text(raw: msgspec.Raw) -> str:
    """Arguments that arrived with the block's start; an empty object is what every stream starts with and says nothing."""
    text = bytes(raw).decode("utf-8", "surrogatepass").strip()
    if text in ("", "null") or (len(text) < 16 and text.replace(" ", "").replace("\n", "") == "{}"):
        return ""
    if text.startswith('"'):
        # Some servers write the object as JSON text.
        inner = _read_any(text)
        return inner if isinstance(inner, str) else text
    return text


def _input_value(text: str) -> Any:
    try:
        return _read_any(text)
    except msgspec.DecodeError:
        return {}
