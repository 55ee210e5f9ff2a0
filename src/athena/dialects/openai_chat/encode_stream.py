"""Events to a Chat stream.

What SDK accumulators do decides the shape: they join every string they see twice, so role, id, name and type go out once; they
index lists, so calls are numbered densely from 0 per choice and `annotations`, which have no index, go out in one piece; usage
is overwritten by any later chunk, so it comes last. Text takes a prepared path: two byte templates around one escaped string.

Wire facts: docs/reference/wire-facts.md#chat-streams.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

import msgspec

from athena.calls.ids import hashed
from athena.dialects.base import EncodeContext
from athena.dialects.openai_chat.details import call_extra_content, state_entry, text_entry
from athena.dialects.openai_chat.errors import encode_error_value
from athena.dialects.openai_chat.media import annotation_of, url_of_source
from athena.dialects.openai_chat.usage import encode_usage
from athena.dialects.openai_chat.vocabulary import FINISH_WORDS, NAME, REASONING_MARK
from athena.dialects.plain_reads import PlainFrame
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
)  # fmt: skip
from athena.model.parts import (
    Audio,
    Base64,
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
from athena.wire.surrogates import encode_json

DONE = b"data: [DONE]\n\n"
_escape = msgspec.json.encode


class OpenCall:
    """A call that is being written."""

    __slots__ = ("head", "index", "sent", "signed", "tail")

    def __init__(self, index: int, head: bytes, tail: bytes, *, signed: bool) -> None:
        self.index = index
        self.head = head
        self.tail = tail
        self.signed = signed
        self.sent = False


def _more_arguments(call: OpenCall, text: str) -> bytes:
    """More of the arguments of a call."""
    return b"%b%b%b" % (call.head, _escape(text), call.tail)


class _ChoiceWritten:
    """One choice as the client sees it so far."""

    __slots__ = (
        "annotations", "block", "calls", "chars", "details", "fields", "format", "images", "index", "legacy",
        "open_text", "pending", "pending_delta", "refused", "summary", "text_head",
    )  # fmt: skip

    def __init__(self, index: int, text_head: bytes, fields: tuple[str, ...]) -> None:
        self.index = index
        self.text_head = text_head
        self.fields = fields
        self.format: str | None = None
        self.calls = 0
        self.legacy = 0
        self.chars = 0
        self.refused = False
        self.annotations: list[dict[str, Any]] = []
        self.images = 0
        self.details = 0
        self.open_text = False
        """The current entry of reasoning_details has text already."""
        self.summary = False
        self.block: list[str] = []
        """Text of the current thinking block, kept for the entry that will sign it."""
        self.pending: dict[str, Any] | None = None
        self.pending_delta: dict[str, Any] | None = None

    def count(self, text: str) -> None:
        """Note that this text was written."""
        self.chars += len(text)


class ChatStreamEncoder:
    def __init__(self, context: EncodeContext) -> None:
        request = context.request
        self._context = context
        self._same = context.same_dialect
        self._usage_wanted = bool(request.include_usage)
        self._legacy = is_legacy(request.raw)
        self._fields = context.reasoning_fields
        self._choices: dict[int, _ChoiceWritten] = {}
        self._calls: dict[int, OpenCall] = {}
        self._extra: dict[str, Any] | None = None
        self._ended = False
        self._tail = b'},"finish_reason":null}]%b}\n\n' % (b',"usage":null' if self._usage_wanted else b"")
        self._prefix = b""
        self._start(Start())

    def feed(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if self._ended:
                break
            match event:
                case TextDelta():
                    self._text(event, out)
                case ToolCallDelta():
                    self._call_delta(event, out)
                case ThinkingDelta():
                    self._thinking(event, out)
                case ToolCallStart():
                    self._call_start(event, out)
                case ToolCallComplete():
                    self._call_complete(event, out)
                case WholePart():
                    self._part(event, out)
                case Extra():
                    self._keep(event, out)
                case Done():
                    self._done(event, out)
                case Error():
                    self._error(event, out)
                case Start():
                    self._start(event)
                case KeepAlive():
                    pass  # the shell keeps streams open by comments of its own
                case _:
                    assert_never(event)
        return b"".join(out)

    def plain_writer(self, event: PlainPiece) -> Callable[[str], bytes] | None:
        choice = self._choices.get(event.choice)
        if choice is None or self._ended or self._has_pending_fields(choice):
            return None
        if type(event) is ToolCallDelta:
            call = self._calls.get(event.call)
            return partial(_more_arguments, call) if call is not None and call.sent else None
        return partial(self._more_text, choice) if type(event) is TextDelta else partial(self._more_thinking, event.choice)

    def plain_frame(self, event: PlainPiece) -> PlainFrame | None:
        if type(event) is ToolCallDelta:
            call = self._calls[event.call]
            return PlainFrame(call.head, call.tail)
        choice = self._choices[event.choice]
        return PlainFrame(choice.text_head, self._tail, choice.count) if type(event) is TextDelta else None

    def _more_text(self, choice: _ChoiceWritten, text: str) -> bytes:
        choice.count(text)
        return b"%b%b%b" % (choice.text_head, _escape(text), self._tail)

    def _more_thinking(self, choice: int, text: str) -> bytes:
        return self.feed([ThinkingDelta(text, choice)])

    # -- chunks ------------------------------------------------------------------------------------------------------------

    def _start(self, event: Start) -> None:
        """Everything that is the same in all chunks."""
        context = self._context
        head: dict[str, Any] = {
            "id": event.id or "chatcmpl-" + hashed(context.seed),
            "object": "chat.completion.chunk",
            "created": event.created if event.created is not None else context.created,
            "model": (event.model if self._same else "") or context.request.model,
        }
        if self._same and event.extras:
            head.update(event.extras)
        self._prefix = b"data: " + encode_json(head)[:-1]

    def _choice(self, index: int, out: list[bytes], content: bytes = b'""') -> _ChoiceWritten:
        """The choice; its first chunk names the role."""
        choice = self._choices.get(index)
        if choice is None:
            text_head = b'%b,"choices":[{"index":%d,"delta":{"content":' % (self._prefix, index)
            choice = self._choices[index] = _ChoiceWritten(index, text_head, self._fields)
            out.append(b'%b,"choices":[{"index":%d,"delta":{"role":"assistant","content":' % (self._prefix, index))
            out.append(content + self._tail)
        return choice

    def _chunk(self, choice: _ChoiceWritten, delta: dict[str, Any], out: list[bytes], finish: str | None = None) -> None:
        """Any chunk but plain text and arguments."""
        if choice.pending_delta is not None:
            delta = {**choice.pending_delta, **delta}
            choice.pending_delta = None
        entry: dict[str, Any] = {"index": choice.index, "delta": delta, "finish_reason": finish}
        if choice.pending is not None:
            entry = {**choice.pending, **entry}
            choice.pending = None
        record: dict[str, Any] = {"choices": [entry]}
        if self._extra is not None:
            record = {**self._extra, **record}
            self._extra = None
        if self._usage_wanted:
            record["usage"] = None
        out.append(b"%b,%b\n\n" % (self._prefix, encode_json(record)[1:]))

    def _has_pending_fields(self, choice: _ChoiceWritten) -> bool:
        """Do fields of the upstream wait for the next chunk?"""
        return choice.pending is not None or choice.pending_delta is not None or self._extra is not None

    # -- text and thinking ---------------------------------------------------------------------------------------------------

    def _text(self, event: TextDelta, out: list[bytes]) -> None:
        choice = self._choices.get(event.choice) or self._choice(event.choice, out)
        if event.refusal:
            choice.refused = True
            self._chunk(choice, {"refusal": event.text}, out)
        elif event.text:
            choice.chars += len(event.text)
            if self._same and self._has_pending_fields(choice):
                self._chunk(choice, {"content": event.text}, out)
                return
            try:
                out += (choice.text_head, _escape(event.text), self._tail)
            except UnicodeEncodeError:
                out += (choice.text_head, encode_json(event.text), self._tail)

    def _thinking(self, event: ThinkingDelta, out: list[bytes]) -> None:
        choice = self._choices.get(event.choice) or self._choice(event.choice, out)
        delta: dict[str, Any] = {}
        if event.text:
            choice.summary = event.summary
            delta = {field: event.text for field in choice.fields if field != "reasoning_details"}
            if "reasoning_details" in choice.fields:
                entry = text_entry(
                    event.text,
                    summary=event.summary,
                    index=choice.details,
                    # The accumulators join strings: a constant may stand in the first fragment only.
                    format=None if choice.open_text else choice.format,
                )
                delta["reasoning_details"] = [entry]
                choice.open_text = True
            else:
                choice.block.append(event.text)
        if delta:
            self._chunk(choice, delta, out)
        if event.signature is not None:
            self._chunk(choice, {"reasoning_details": self._signed(choice, event.signature)}, out)

    def _signed(self, choice: _ChoiceWritten, state: Opaque) -> list[dict[str, Any]]:
        """The end of a thinking block: its state, in an entry that a client can send back."""
        text = "".join(choice.block)
        choice.block.clear()
        if choice.open_text and state.kind == "signature":
            entry: dict[str, Any] = {"type": "reasoning.text", "signature": state.payload, "index": choice.details}
            if choice.format is None:
                entry["format"] = state_entry(state, "")["format"]
        else:
            if choice.open_text:
                choice.details += 1
            entry = state_entry(state, text, index=choice.details)
        choice.open_text = False
        choice.details += 1
        return [entry]

    # -- calls -------------------------------------------------------------------------------------------------------------

    def _call_start(self, event: ToolCallStart, out: list[bytes]) -> None:
        choice = self._choice(event.choice, out, b"null")
        if self._legacy and not choice.legacy and event.kind == "function":
            choice.legacy = 1
            self._chunk(choice, {"function_call": {"name": event.name, "arguments": ""}}, out)
            head = b'%b,"choices":[{"index":%d,"delta":{"function_call":{"arguments":' % (self._prefix, choice.index)
            self._calls[event.call] = OpenCall(0, head, b"}" + self._tail, signed=True)
            return
        index = choice.calls
        choice.calls += 1
        key, text = ("custom", "input") if event.kind == "custom" else ("function", "arguments")
        entry: dict[str, Any] = {"index": index, "id": event.id, "type": key, key: {"name": event.name, text: ""}}
        if event.signature is not None:
            entry["extra_content"] = call_extra_content(event.signature)
        self._chunk(choice, {"tool_calls": [entry]}, out)
        head = b'%b,"choices":[{"index":%d,"delta":{"tool_calls":[{"index":%d,"%b":{"%b":' % (
            self._prefix, choice.index, index, key.encode(), text.encode(),
        )  # fmt: skip
        self._calls[event.call] = OpenCall(index, head, b"}}]" + self._tail, signed=event.signature is not None)

    def _call_delta(self, event: ToolCallDelta, out: list[bytes]) -> None:
        call = self._calls.get(event.call)
        if call is None or not event.arguments:
            return
        call.sent = True
        if self._same and self._has_pending_fields(self._choices[event.choice]):
            self._chunk(self._choices[event.choice], {}, out)
        try:
            out += (call.head, _escape(event.arguments), call.tail)
        except UnicodeEncodeError:
            out += (call.head, encode_json(event.arguments), call.tail)

    def _call_complete(self, event: ToolCallComplete, out: list[bytes]) -> None:
        call = self._calls.get(event.call)
        if call is None:
            self._call_start(
                ToolCallStart(event.call, event.id, event.name, event.choice, event.kind, signature=event.signature), out
            )
            call = self._calls[event.call]
        if not call.sent and event.arguments:
            self._call_delta(ToolCallDelta(event.call, event.arguments, event.choice), out)
        if event.signature is not None and not call.signed:
            call.signed = True
            # The SDK insists on a function in every entry of a function call.
            entry = {"index": call.index, "function": {"arguments": ""}, "extra_content": call_extra_content(event.signature)}
            self._chunk(self._choice(event.choice, out), {"tool_calls": [entry]}, out)

    # -- whole parts and extras ----------------------------------------------------------------------------------------------

    def _part(self, event: WholePart, out: list[bytes]) -> None:
        part = event.part
        choice = self._choice(event.choice, out)
        match part:
            case Citation():
                annotation = annotation_of(part, choice.chars, same_dialect=self._same)
                if annotation is not None:
                    choice.annotations.append(annotation)
                else:
                    lose_part(part, self._context)
            case Image(source=Base64() | Url()):
                image = image_entry(part)
                self._chunk(choice, {"images": [{**image, "index": choice.images}]}, out)
                choice.images += 1
            case Audio(source=None | Base64()) | Audio(transcript=str()):
                self._chunk(choice, {"audio": audio_value(part, self._context.seed)}, out)
            case Text() | Refusal():
                self._text(TextDelta(part.text, event.choice, isinstance(part, Refusal)), out)
            case Foreign() if self._same and part.dialect == NAME:
                self._chunk(choice, {"content": [part.raw]}, out)
            case Image() | Document() | Audio() | Video() | Thinking() | ToolCall() | ToolResult() | Foreign():
                lose_part(part, self._context)
            case _:
                assert_never(part)

    def _keep(self, event: Extra, out: list[bytes]) -> None:
        if not self._same:
            return
        if event.choice is None:
            self._extra = {**(self._extra or {}), **event.fields}
            return
        choice = self._choice(event.choice, out)
        mark = event.fields.get(REASONING_MARK)
        if mark is not None:
            choice.fields, choice.format = mark["fields"], mark["format"]
            return
        waiting = choice.pending_delta if event.delta else choice.pending
        if waiting is not None and not waiting.keys().isdisjoint(event.fields):
            # Two records without a chunk between them: what the first said must not be overwritten.
            self._chunk(choice, {}, out)
            waiting = None
        if event.delta:
            choice.pending_delta = {**(waiting or {}), **event.fields}
        else:
            choice.pending = {**(waiting or {}), **event.fields}

    # -- endings -----------------------------------------------------------------------------------------------------------

    def _done(self, event: Done, out: list[bytes]) -> None:
        choice = self._choice(event.choice, out)
        told = explanation(event.finish)
        if told and choice.chars:
            note_explanation(self._context)
        elif told and not choice.refused:
            choice.refused = True
            self._chunk(choice, {"refusal": told}, out)
        if choice.annotations:
            self._chunk(choice, {"annotations": choice.annotations}, out)
        self._chunk(choice, {}, out, finish_word(event, refused=choice.refused, legacy=bool(choice.legacy)))
        if not event.last:
            return
        if self._usage_wanted and event.usage is not None:
            self._usage(event.usage, out)
        out.append(DONE)
        self._ended = True

    def _usage(self, usage: Usage, out: list[bytes]) -> None:
        record = {"choices": [], "usage": encode_usage(usage, same_dialect=self._same)}
        out.append(b"%b,%b\n\n" % (self._prefix, encode_json(record)[1:]))

    def _error(self, event: Error, out: list[bytes]) -> None:
        if not event.fatal:
            return
        out.append(b"data: %b\n\n" % encode_json({"error": encode_error_value(event)}))
        out.append(DONE)
        self._ended = True


def is_legacy(raw: dict[str, Any] | None) -> bool:
    """Does the client speak the older form, which knows `function_call` and no `tool_calls`?"""
    return raw is not None and bool(raw.get("functions")) and not raw.get("tools")


def explanation(finish: Finish) -> str:
    """Why a model refused, where its upstream says so beside the answer."""
    details = finish.details if finish.kind == "refusal" else None
    told = details.get("explanation") if isinstance(details, dict) else None
    return told if isinstance(told, str) else ""


def note_explanation(context: EncodeContext) -> None:
    """A refusal after text: its text is the answer, and the reason beside it has no place."""
    context.losses.drop("explanation", "the reason of a refusal has no place beside its text", minor=True)


def finish_word(event: Done, *, refused: bool, legacy: bool) -> str:
    """The finish reason; a refusal without words is a filter to Chat clients."""
    kind = event.finish.kind
    if kind == "refusal" and not refused:
        return "content_filter"
    if kind == "tool" and legacy:
        return "function_call"
    return FINISH_WORDS[kind]


def lose_part(part: Part, context: EncodeContext) -> None:
    """Note a part that has no place in a Chat answer."""
    if isinstance(part, Foreign):
        context.losses.drop(part.kind, "means something only to the upstream's own clients")
    elif isinstance(part, Citation):
        context.losses.drop("citation", "only citations of web addresses travel", minor=True)
    else:
        context.losses.drop(type(part).__name__.lower(), "answers hold no such content here")


def image_entry(part: Image) -> dict[str, Any]:
    """An image the model made, as OpenRouter writes it."""
    assert isinstance(part.source, Base64 | Url)
    return {"type": "image_url", "image_url": {"url": url_of_source(part.source)}}


def audio_value(part: Audio, seed: str) -> dict[str, Any]:
    return {
        "id": part.id or "audio_" + hashed(f"{seed}\0audio"),
        "data": part.source.data if isinstance(part.source, Base64) else "",
        "transcript": part.transcript or "",
        "expires_at": part.expires_at or 0,
    }
