"""Events as a Messages answer for a client, streamed or whole.

Clients index blocks by arrival: blocks count from 0 without gaps and one is open at a time. A call that was cut is never
closed, because to a client a closed block is a call to run. `message_delta` goes out once, when the usage is known.

Wire facts: docs/reference/wire-facts.md#writing-messages-streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

import msgspec

from athena.calls.arguments import arguments_object
from athena.calls.builder import AnswerBuilder, folded_plain
from athena.calls.ids import hashed
from athena.calls.sequence import OneCallAtATime
from athena.dialects.anthropic_messages.errors import encode_error, error_body
from athena.dialects.anthropic_messages.vocabulary import FINISH_OF, NAME, STOP_REASON_OF, TEXT_BLOCK_END, UNKNOWN_EVENT
from athena.dialects.base import EncodeContext
from athena.dialects.plain_reads import PlainFrame
from athena.model.answer import Answer
from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    Finish,
    KeepAlive,
    PlainPiece,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    WholePart,
    is_failure,
    is_terminal,
)
from athena.model.parts import (
    Audio,
    Citation,
    Document,
    Foreign,
    Image,
    Opaque,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Video,
)
from athena.wire.sse import encode_event
from athena.wire.surrogates import encode_json

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_MESSAGE_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_TEXT_START = (
    b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":{"type":"text","text":""}}\n\n'
)
_BLOCK_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
_DELTA_END = b"}}\n\n"
_BLOCK_OF: dict[type, str] = {TextDelta: "text", ThinkingDelta: "thinking", ToolCallDelta: "call"}
_BLOCK_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'

_encode = msgspec.json.encode


def write_usage(usage: Usage | None, context: EncodeContext) -> dict[str, Any]:
    """All counts a client may look for; the same dialect's own object goes out as it came."""
    if usage is None:
        usage = Usage(input_total=context.input_tokens, estimated=True)
    elif context.same_dialect and usage.raw is not None:
        return usage.raw
    written: dict[str, Any] = {
        "input_tokens": max(0, usage.input_total - usage.cache_read - usage.cache_write),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output_total,
    }
    if usage.reasoning:
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return written


def write_finish(finish: Finish, context: EncodeContext) -> dict[str, Any]:
    """stop_reason, stop_sequence and, for a refusal, what is known of it."""
    reason = STOP_REASON_OF[finish.kind]
    if context.same_dialect and finish.raw and FINISH_OF.get(finish.raw, "stop") == finish.kind:
        reason = finish.raw
    if reason == "stop_sequence" and finish.stop_sequence is None:
        reason = "end_turn"
    written: dict[str, Any] = {
        "stop_reason": reason,
        "stop_sequence": finish.stop_sequence if reason == "stop_sequence" else None,
    }
    if reason == "refusal":
        details = finish.details if context.same_dialect else None
        written["stop_details"] = details or {"type": "refusal", "category": None, "explanation": _explanation(finish)}
    elif context.same_dialect and finish.details is not None:
        written["stop_details"] = finish.details
    return written


def _explanation(finish: Finish) -> str | None:
    return finish.details if isinstance(finish.details, str) else None


def own_citation(part: Citation, context: EncodeContext) -> dict[str, Any] | None:
    """The citation as it came, or a web address in the one form clients know; other kinds mean nothing elsewhere."""
    if context.same_dialect and isinstance(part.raw, dict):
        return part.raw
    if part.url is None:
        context.losses.drop("citation", "only citations of web addresses travel", minor=True)
        return None
    return {
        "type": "web_search_result_location",
        "url": part.url,
        "title": part.title,
        "cited_text": part.quote or "",
        "encrypted_index": "",
    }


def _is_redacted(state: Opaque, *, readable: bool) -> bool:
    """State without readable text travels in a redacted block, unless it is a signature of its own (display omitted)."""
    return state.kind == "redacted" or (not readable and state.kind != "signature")


class _Head(msgspec.Struct, frozen=True):
    id: str
    model: str


def _head(start_id: str, start_model: str, context: EncodeContext) -> _Head:
    """The client's own model name, and an id of ours unless the upstream's is one of this dialect's."""
    if context.same_dialect:
        return _Head(start_id or "msg_" + hashed(context.seed), start_model or context.request.model)
    return _Head("msg_" + hashed(context.seed), context.request.model)


class MessagesStreamEncoder:
    def __init__(self, context: EncodeContext) -> None:
        self._context = context
        self._sequence = OneCallAtATime()
        self._extras: dict[str, Any] = {}

    _started = False
    _ended = False
    _start = Start()
    _index = -1
    _open = ""
    """What the open block is: text, thinking, call or nothing."""
    _prefix = b""
    _pieces: list[str]
    """The arguments of the open call that were shown."""
    _call: int | None = None
    _held_kind = False
    _finish: Finish | None = None

    def feed(self, events: list[Event]) -> bytes:
        if self._open == "text" and len(events) == 1 and type(only := events[0]) is TextDelta and only.choice == 0:
            return self._prefix + encode_json(only.text) + _DELTA_END if only.text else b""
        out: list[bytes] = []
        for event in self._sequence.feed(events):
            if self._ended:
                break
            if not self._started and type(event) is not KeepAlive and not is_failure(event):
                self._begin(event, out)
            write = _WRITE[type(event)]
            if write is not None:
                write(self, event, out)
        return b"".join(out)

    def plain_writer(self, event: PlainPiece) -> Callable[[str], bytes] | None:
        if event.choice or self._ended or self._open != _BLOCK_OF[type(event)]:
            return None
        if type(event) is ToolCallDelta:
            return self._more_arguments if event.call == self._call and not self._held_kind else None
        return self._more

    def plain_frame(self, event: PlainPiece) -> PlainFrame | None:
        return PlainFrame(self._prefix, _DELTA_END, self._pieces.append if type(event) is ToolCallDelta else None)

    def _more_arguments(self, text: str) -> bytes:
        """More of the open call's arguments."""
        self._pieces.append(text)
        return self._more(text)

    def _more(self, text: str) -> bytes:
        """More of the open block's text."""
        return b"%b%b}}\n\n" % (self._prefix, _encode(text))

    # -- the frame of the message ------------------------------------------------------------------------------------------

    def _begin(self, event: Event, out: list[bytes]) -> None:
        self._started = True
        if isinstance(event, Start):
            self._start = event
        head = _head(self._start.id, self._start.model, self._context)
        message: dict[str, Any] = {
            "id": head.id,
            "type": "message",
            "role": "assistant",
            "model": head.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": write_usage(self._start.usage, self._context),
        }
        if self._context.same_dialect and self._start.extras:
            message.update(self._start.extras)
        out.append(_event("message_start", {"type": "message_start", "message": message}))
        out.append(PING)

    def _done(self, event: Done, out: list[bytes]) -> None:
        if event.choice == 0:
            self._finish = event.finish
        if not event.last:
            return
        self._close(out)
        usage = event.usage or self._start.usage
        delta = write_finish(self._finish or event.finish, self._context)
        body: dict[str, Any] = {"type": "message_delta", "delta": delta, "usage": write_usage(usage, self._context)}
        if "container" in self._extras:
            delta["container"] = self._extras.pop("container")
        body.update(self._extras)
        out.append(_event("message_delta", body))
        out.append(_MESSAGE_STOP)
        self._ended = True

    def _keep_alive(self, event: KeepAlive, out: list[bytes]) -> None:
        out.append(PING)

    def _error(self, event: Error, out: list[bytes]) -> None:
        if not event.fatal:
            if event.call is not None and event.call == self._call:
                # Cut: the block stays open for good, and the next one simply begins.
                self._open, self._call = "", None
            return
        out.append(_event("error", error_body(event, self._context.seed)))
        if self._context.stream_error_stop:
            out.append(_MESSAGE_STOP)
        self._open, self._ended = "", True

    def _extra(self, event: Extra, out: list[bytes]) -> None:
        if not self._context.same_dialect:
            return
        if TEXT_BLOCK_END in event.fields:
            if self._open == "text":
                self._close(out)
        elif isinstance(unknown := event.fields.get(UNKNOWN_EVENT), dict):
            kind = str(unknown.get("type", ""))
            if kind == "content_block_delta":
                if not self._open:
                    # Its block has not said anything yet, so it has not begun here either.
                    self._context.losses.drop("delta", "a piece of a block that came before the block's text")
                    return
                unknown = {**unknown, "index": self._index}
            out.append(_event(kind, unknown))
        elif event.choice is None:
            self._extras.update(event.fields)

    # -- blocks ------------------------------------------------------------------------------------------------------------

    def _start_block(self, block: dict[str, Any], out: list[bytes]) -> None:
        self._close(out)
        self._index += 1
        value = {"type": "content_block_start", "index": self._index, "content_block": block}
        out.append(_event("content_block_start", value))

    def _close(self, out: list[bytes]) -> None:
        if self._open in ("", "call"):
            # A call is closed by its completion and by nothing else.
            return
        self._open = ""
        self._stop_block(out)

    def _stop_block(self, out: list[bytes]) -> None:
        out.append(_BLOCK_STOP % self._index)

    def _delta_prefix(self, kind: bytes, field: bytes) -> bytes:
        """Everything of a delta before its text; prepared once per block."""
        return _BLOCK_DELTA % (self._index, kind, field)

    def _text(self, event: TextDelta, out: list[bytes]) -> None:
        if event.choice or not event.text:
            return
        if self._open != "text":
            self._open_text(out)
        out += (self._prefix, encode_json(event.text), _DELTA_END)

    def _open_text(self, out: list[bytes]) -> None:
        self._close(out)
        self._index += 1
        out.append(_TEXT_START % self._index)
        self._open = "text"
        self._prefix = _BLOCK_DELTA % (self._index, b"text_delta", b"text")

    def _thinking(self, event: ThinkingDelta, out: list[bytes]) -> None:
        if event.choice:
            return
        if event.text:
            if self._open != "thinking":
                self._open_thinking(out)
            out += (self._prefix, encode_json(event.text), _DELTA_END)
        state = event.signature
        if state is None:
            return
        if _is_redacted(state, readable=self._open == "thinking"):
            self._start_block({"type": "redacted_thinking", "data": state.payload}, out)
            self._stop_block(out)
            return
        if self._open != "thinking":
            self._open_thinking(out)
        out += (self._delta_prefix(b"signature_delta", b"signature"), encode_json(state.payload), _DELTA_END)
        self._close(out)

    def _open_thinking(self, out: list[bytes]) -> None:
        self._start_block({"type": "thinking", "thinking": "", "signature": ""}, out)
        self._open = "thinking"
        self._prefix = self._delta_prefix(b"thinking_delta", b"thinking")

    # -- calls -------------------------------------------------------------------------------------------------------------

    def _call_start(self, event: ToolCallStart, out: list[bytes]) -> None:
        if event.choice:
            return
        block: dict[str, Any] = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
        if event.namespace is not None:
            block["toolset_name"] = event.namespace
        self._start_block(block, out)
        self._open, self._call, self._pieces = "call", event.call, []
        self._held_kind = event.kind == "custom"
        self._prefix = self._delta_prefix(b"input_json_delta", b"partial_json")

    def _call_delta(self, event: ToolCallDelta, out: list[bytes]) -> None:
        if event.call != self._call or self._held_kind or not event.arguments:
            return
        self._pieces.append(event.arguments)
        out += (self._prefix, encode_json(event.arguments), _DELTA_END)

    def _call_complete(self, event: ToolCallComplete, out: list[bytes]) -> None:
        if event.call != self._call:
            return
        arguments = event.arguments
        if event.kind == "custom":
            arguments = _encode({"input": arguments}).decode()
        if event.repaired or not self._pieces:
            shown = "".join(self._pieces)
            if not arguments.startswith(shown):
                # What was streamed cannot be taken back, and the client must not run it.
                self._error(Error(f"the arguments of {event.name} are not JSON", code="malformed_call"), out)
                return
            rest = arguments[len(shown) :]
            if rest:
                out += (self._prefix, encode_json(rest), _DELTA_END)
        self._open, self._call = "", None
        self._stop_block(out)

    # -- whole parts ---------------------------------------------------------------------------------------------------------

    def _whole(self, event: WholePart, out: list[bytes]) -> None:
        part = event.part
        if event.choice:
            return
        if isinstance(part, Citation):
            citation = own_citation(part, self._context)
            if citation is not None:
                if self._open != "text":
                    self._open_text(out)
                out += (self._delta_prefix(b"citations_delta", b"citation"), _encode(citation), _DELTA_END)
        elif isinstance(part, Foreign):
            self._foreign(part, out)
        else:
            text = shown_text(part, self._context)
            if text:
                self._text(TextDelta(text), out)

    def _foreign(self, part: Foreign, out: list[bytes]) -> None:
        block = own_block(part, self._context)
        if block is None:
            return
        value = block.get("input")
        if part.kind.endswith("tool_use") and isinstance(value, dict):
            # Agents read a tool's input from deltas only.
            self._start_block({**block, "input": {}}, out)
            prefix = self._delta_prefix(b"input_json_delta", b"partial_json")
            out += (prefix, encode_json(_encode(value).decode()), _DELTA_END)
        else:
            self._start_block(block, out)
        self._stop_block(out)


_WRITE: dict[type, Callable[[MessagesStreamEncoder, Any, list[bytes]], None] | None] = {
    TextDelta: MessagesStreamEncoder._text,
    ToolCallDelta: MessagesStreamEncoder._call_delta,
    ThinkingDelta: MessagesStreamEncoder._thinking,
    ToolCallStart: MessagesStreamEncoder._call_start,
    ToolCallComplete: MessagesStreamEncoder._call_complete,
    WholePart: MessagesStreamEncoder._whole,
    Extra: MessagesStreamEncoder._extra,
    Done: MessagesStreamEncoder._done,
    Error: MessagesStreamEncoder._error,
    KeepAlive: MessagesStreamEncoder._keep_alive,
    Start: None,
}
"""What writes each event. None: the message has begun with it, or before it. A table, because `match` is slower here
(docs/decisions.md)."""


class MessagesWholeEncoder:
    """Events to one body, at the end."""

    def __init__(self, context: EncodeContext) -> None:
        self._context = context
        self._builder = AnswerBuilder()
        self._begun = False
        self._ended = False

    def feed(self, events: list[Event]) -> bytes:
        """Nothing until the terminal event, then everything."""
        if self._ended:
            return b""
        if not self._begun and (plain := folded_plain(events)) is not None:
            self._ended = True
            return _encode(write_message(plain, self._context))
        self._begun = self._begun or bool(events)
        for position, event in enumerate(events):
            if is_failure(event):
                self._ended = True
                return encode_error(event, self._context.seed).body
            if is_terminal(event):
                self._builder.feed(events[: position + 1])
                self._ended = True
                return _encode(write_message(self._builder.answer(), self._context))
        self._builder.feed(events)
        return b""


def write_message(answer: Answer, context: EncodeContext) -> dict[str, Any]:
    """A whole answer as the body of a Message."""
    choice = answer.choices[0] if answer.choices else None
    finish = (choice.finish if choice is not None else None) or Finish()
    head = _head(answer.id, answer.model, context)
    content = [block for part in (choice.parts if choice is not None else ()) if (block := _write_part(part, context))]
    message: dict[str, Any] = {
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        **write_finish(finish, context),
        "usage": write_usage(answer.usage, context),
    }
    if context.same_dialect and answer.extras:
        message.update(answer.extras)
    return message


def _write_part(part: Part, context: EncodeContext) -> dict[str, Any] | None:
    match part:
        case Text():
            block: dict[str, Any] = {"type": "text", "text": msgspec.Raw(encode_json(part.text))}
            citations = [value for citation in part.citations if (value := own_citation(citation, context)) is not None]
            if citations:
                block["citations"] = citations
            return block if part.text or citations else None
        case Thinking():
            state = part.signature
            if state is not None and _is_redacted(state, readable=bool(part.text)):
                return {"type": "redacted_thinking", "data": state.payload}
            return {
                "type": "thinking",
                "thinking": msgspec.Raw(encode_json(part.text)),
                "signature": state.payload if state is not None else "",
            }
        case ToolCall():
            return _write_call(part)
        case Foreign():
            return own_block(part, context)
        case Citation():
            own = own_citation(part, context)
            return None if own is None else {"type": "text", "text": "", "citations": [own]}
        case Refusal() | Image() | Document() | Audio() | Video() | ToolResult():
            text = shown_text(part, context)
            return {"type": "text", "text": msgspec.Raw(encode_json(text))} if text else None
        case _:
            assert_never(part)


def own_block(part: Foreign, context: EncodeContext) -> dict[str, Any] | None:
    """A block of this dialect as it came; what only another dialect has is noted."""
    if part.dialect == NAME and isinstance(part.raw, dict):
        return part.raw
    context.losses.drop(part.kind, "means something only to the upstream's own clients")
    return None


def _write_call(part: ToolCall) -> dict[str, Any]:
    """The model's own JSON text goes in as it stands."""
    value: Any
    if part.kind == "custom":
        value = {"input": part.arguments}
    else:
        try:
            value = msgspec.Raw(part.arguments.encode())
        except UnicodeEncodeError:
            value = arguments_object(part.arguments)
    block: dict[str, Any] = {"type": "tool_use", "id": part.id, "name": part.name, "input": value}
    if part.namespace is not None:
        block["toolset_name"] = part.namespace
    return block


def shown_text(part: Part, context: EncodeContext) -> str:
    """What can be shown as text of a part that has no block of its own here; of any other part, the loss is noted."""
    match part:
        case Text() | Refusal():
            return part.text
        case Audio(transcript=str() as transcript) if transcript:
            context.losses.emulate("audio", "shown as its transcript")
            return transcript
        case Image(source=Url(url=url)):
            context.losses.emulate("image", "shown as a link")
            return f"![image]({url})"
        case Image() | Document() | Audio() | Video() | Thinking() | ToolCall() | ToolResult() | Citation() | Foreign():
            context.losses.drop(type(part).__name__.lower(), "answers hold no such content here")
        case _:
            assert_never(part)
    return ""


def _event(name: str, value: dict[str, Any]) -> bytes:
    return encode_event(_encode(value), name)
