"""Events as a Responses answer, streamed or whole.

The order is what the strictest client takes: created and in_progress first; every item announced before its content and every
part before its deltas; done events for part and item; then one terminal event that repeats the finished items. Items are
independent here, so interleaved calls stay interleaved. A call that was cut is announced and never done, so no client runs it.

`OutputWriter` is the machine. A stream writes its frames; a whole answer runs it silently and keeps the final object, so both
say the same. Frames of deltas are prepared when their part opens: one delta is one join.

Wire facts: docs/reference/wire-facts.md#responses-streams.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

import msgspec

from athena.calls.ids import hashed
from athena.dialects.base import EncodeContext
from athena.dialects.decoders import estimated
from athena.dialects.openai_responses.encode_items import encode_citation
from athena.dialects.openai_responses.errors import encode_error, failed_error
from athena.dialects.openai_responses.response_object import compaction_object, echo, encode_usage
from athena.dialects.openai_responses.typed_tools import TypedTools
from athena.dialects.openai_responses.vocabulary import OTHER_EVENT
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
    WholePart,
)
from athena.model.parts import (
    Audio,
    Base64,
    Citation,
    Document,
    Foreign,
    Image,
    Opaque,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Video,
)
from athena.wire.response_json import ResponseJson, response_json
from athena.wire.sse import encode_comment
from athena.wire.surrogates import encode_json

_INCOMPLETE = {
    "length": "max_output_tokens",
    "context": "max_output_tokens",
    "continuation": "max_output_tokens",
    "filter": "content_filter",
}
_PROGRESS_HELD = 1000
"""Events of an upstream that may wait for their item: one that never finishes any must not fill the memory."""
_REFUSED = "The model refused to answer."
_KEEP_ALIVE = encode_comment("keep-alive")


class _Content:
    """A part of a message or of reasoning that grows."""

    __slots__ = ("annotations", "head", "index", "kind", "pieces")

    def __init__(self, kind: str, index: int, head: bytes) -> None:
        self.kind = kind
        self.index = index
        self.head = head
        self.pieces: list[str] = []
        self.annotations: list[dict[str, Any]] = []


class _Item:
    """An output item that is open."""

    __slots__ = ("base", "content", "finished", "head", "id", "index", "written")

    def __init__(self, index: int, item_id: str, base: dict[str, Any]) -> None:
        self.index = index
        self.id = item_id
        self.base = base
        self.content: _Content | None = None
        self.finished: list[tuple[str, dict[str, Any]]] = []
        self.head = b""
        self.written = 0


class OutputWriter:
    """Events to frames and to the final response object."""

    def __init__(self, context: EncodeContext, *, silent: bool = False) -> None:
        self._context = context
        self._silent = silent
        self._frames: list[bytes] = []
        self._sequence = 0
        self._response: dict[str, Any] = {}
        self._begun = False
        if context.passed is not None:
            self._continue(*context.passed)
        self._items = 0
        self._output: dict[int, dict[str, Any]] = {}
        self._message: _Item | None = None
        self._reasoning: _Item | None = None
        self._calls: dict[int, _Item] = {}
        self._typed = TypedTools(context.request.tools)
        self._progress: dict[str, list[dict[str, Any]]] = {}
        """The upstream's own events about items that are not finished, by item id."""
        self._held: set[int] = set()
        """Calls of typed tools: they leave as one item when they are whole."""
        self._spoke = False
        self._refused = False
        self._message_fields: dict[str, Any] = {}
        self._note = ""
        self._finish = Finish()
        self._kept = context.request.kept
        self.final: dict[str, Any] | None = None
        self._written: ResponseJson | None = None
        self.error: Error | None = None

    def feed(self, events: list[Event]) -> bytes:
        """The frames of these events; nothing after the terminal one."""
        for event in events:
            if self.final is not None:
                break
            match event:
                case TextDelta():
                    self._text(event)
                case ToolCallDelta():
                    self._call_delta(event)
                case ThinkingDelta():
                    self._thinking(event)
                case ToolCallStart():
                    self._call_start(event)
                case ToolCallComplete():
                    self._call_complete(event)
                case WholePart():
                    self._whole(event)
                case Extra():
                    self._extra(event)
                case Done():
                    self._done(event)
                case Error():
                    self._error(event)
                case Start():
                    self._start(event)
                case KeepAlive():
                    self._keep_alive()
                case _:
                    assert_never(event)
        frames = b"".join(self._frames)
        self._frames.clear()
        return frames

    def plain_writer(self, event: PlainPiece) -> Callable[[str], bytes] | None:
        """What writes more of the open text or call, which stays open until the next `feed`."""
        if type(event) is ToolCallDelta:
            item = self._calls.get(event.call)
            is_open = item is not None and item.written and not event.choice and not self._silent and self.final is None
            return partial(self._more_arguments, item) if item is not None and is_open else None
        content = self._message.content if self._message is not None else None
        if type(event) is not TextDelta or event.choice or self._silent or self.final is not None:
            return None
        return partial(self._more_text, content) if content is not None and content.kind == "output_text" else None

    def plain_frame(self, event: PlainPiece) -> PlainFrame | None:
        return None  # frames are numbered

    def _more_text(self, content: _Content, text: str) -> bytes:
        content.pieces.append(text)
        return self._more(content.head, text)

    def _more_arguments(self, item: _Item, text: str) -> bytes:
        item.written += len(text)
        return self._more(item.head, text)

    def _more(self, head: bytes, text: str) -> bytes:
        number = self._sequence
        self._sequence += 1
        return b'%b%d,"delta":%b}\n\n' % (head, number, msgspec.json.encode(text))

    # -- frames ------------------------------------------------------------------------------------------------------------

    def _frame(self, kind: str, fields: dict[str, Any]) -> None:
        if self._silent:
            return
        payload = encode_json({"type": kind, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        self._frames.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), payload))

    def _delta_head(self, kind: str, item: _Item, fields: dict[str, Any]) -> bytes:
        """All of a delta's frame up to its number; the number and the text follow."""
        constant = encode_json({"type": kind, "item_id": item.id, "output_index": item.index, **fields})
        return b'event: %b\ndata: %b,"sequence_number":' % (kind.encode(), constant[:-1])

    def _delta(self, head: bytes, text: str) -> None:
        if self._silent:
            return
        self._frames.append(b'%b%d,"delta":%b}\n\n' % (head, self._sequence, encode_json(text)))
        self._sequence += 1

    def _continue(self, first: bytes, last: bytes) -> None:
        """Frames of the upstream itself went out before: theirs are the response and the numbers so far."""
        response = msgspec.json.decode(first).get("response")
        number = msgspec.json.decode(last).get("sequence_number")
        if isinstance(response, dict) and isinstance(number, int):
            self._response, self._begun, self._sequence = response, True, number + 1

    # -- the response ------------------------------------------------------------------------------------------------------

    def _start(self, event: Start) -> None:
        if self._begun:
            return
        self._begun = True
        self._response = echo(self._context, event)
        self._frame("response.created", {"response": self._response})
        self._frame("response.in_progress", {"response": self._response})
        for item in self._kept.leading if self._kept is not None else ():
            self._item_in_one_piece(item)

    def _begin(self) -> None:
        if not self._begun:
            self._start(Start())

    def _keep_alive(self) -> None:
        if self._begun and not self._silent:
            self._frames.append(_KEEP_ALIVE)

    def _extra(self, event: Extra) -> None:
        """Fields of an upstream of this dialect: of the response, or of the message that comes next."""
        other = event.fields.get(OTHER_EVENT)
        if isinstance(other, dict):
            self._begin()
            item_id = other.get("item_id")
            if isinstance(item_id, str) and sum(map(len, self._progress.values())) < _PROGRESS_HELD:
                # Its item is written in one piece, and nothing may speak of an item before it is announced.
                self._progress.setdefault(item_id, []).append(other)
            else:
                self._pass_on(other)
        elif event.choice is None:
            self._begin()
            self._response.update(event.fields)
        elif event.choice == 0 and event.delta:
            self._close_message()
            self._message_fields = event.fields

    def _pass_on(self, event: dict[str, Any], index: int | None = None) -> None:
        """An upstream's own event, with our numbers."""
        fields = {key: value for key, value in event.items() if key not in ("type", "sequence_number")}
        if index is not None:
            fields["output_index"] = index
        self._frame(str(event.get("type", "")), fields)

    def _done(self, event: Done) -> None:
        if event.choice == 0:
            self._finish = event.finish
        if not event.last:
            return
        self._begin()
        finish = self._finish
        if finish.kind == "refusal" and not self._refused:
            self._refuse(finish)
        reason = _INCOMPLETE.get(finish.kind)
        status = "completed" if reason is None else "incomplete"
        self._close_message(status)
        self._close_reasoning(status=status)
        usage = estimated(event.usage)
        if event.usage is None and self._context.input_tokens:
            usage = msgspec.structs.replace(usage, input_total=self._context.input_tokens)
        self._response["usage"] = encode_usage(usage, same_dialect=self._context.same_dialect)
        if reason is not None:
            self._response["incomplete_details"] = {"reason": reason}
            self._terminal("incomplete")
        elif self._calls or self._held:
            # A call was announced and never became whole: to call that a completed answer would be a lie.
            self._fail(Error(self._note or "a tool call was not finished", code="truncated_call"))
        else:
            self._terminal("completed")

    def _error(self, event: Error) -> None:
        if event.fatal:
            self._begin()
            self._fail(event)
        elif event.call is not None:
            self._note = event.message

    def _fail(self, error: Error) -> None:
        self.error = error
        self._response["error"] = failed_error(error)
        self._terminal("failed")

    def _terminal(self, status: str) -> None:
        final = {**self._response, "status": status, "output": [item for _, item in sorted(self._output.items())]}
        if status == "completed":
            final["completed_at"] = final["created_at"]
        self.final = final
        if status == "failed" or self._kept is None or not self._kept.waits:
            self._frame(f"response.{status}", {"response": final})

    def written(self) -> ResponseJson:
        """The response as JSON; it is whole."""
        if self._written is None:
            assert self.final is not None
            self._written = response_json(self.final)
        return self._written

    def release(self, changed: dict[str, Any] | None = None) -> bytes:
        """The terminal event of an answer that waited for being kept; `changed` are fields of the response that came out
        otherwise. A status among them is that of the event."""
        assert self.final is not None
        if changed:
            self.final, self._written = {**self.final, **changed}, None
        self._frame(f"response.{self.final['status']}", {"response": msgspec.Raw(self.written().whole())})
        frames = b"".join(self._frames)
        self._frames.clear()
        return frames

    # -- items -------------------------------------------------------------------------------------------------------------

    def _open(self, prefix: str, item_id: str | None, base: dict[str, Any], empty: dict[str, Any]) -> _Item:
        index = self._items
        self._items += 1
        fresh = item_id if item_id and self._keeps_id(prefix, item_id) else self._new_id(prefix, index)
        item = _Item(index, fresh, {"id": fresh, **base})
        self._frame("response.output_item.added", {"output_index": index, "item": {**item.base, **empty}})
        return item

    def _new_id(self, prefix: str, index: int) -> str:
        if self._kept is not None:
            return self._kept.item_id(prefix, index)
        return prefix + hashed(f"{self._context.seed}\0{index}", 32)

    def _keeps_id(self, prefix: str, item_id: str) -> bool:
        """At home an id stays, unless the vendor would refuse it after a change of servers. State is bound to reasoning's.
        An item that is kept here has an id of ours, by which it is found."""
        if prefix == "rs_":
            return self._context.same_dialect
        return self._context.same_dialect and self._kept is None and item_id.startswith(prefix)

    def _close(self, item: _Item, filled: dict[str, Any]) -> None:
        whole = {**item.base, **filled}
        self._output[item.index] = whole
        self._frame("response.output_item.done", {"output_index": item.index, "item": whole})

    def _open_content(self, item: _Item, kind: str) -> _Content:
        index = sum(1 for done, _ in item.finished if (done == "summary_text") == (kind == "summary_text"))
        event = {
            "output_text": "response.output_text.delta",
            "refusal": "response.refusal.delta",
            "summary_text": "response.reasoning_summary_text.delta",
            "reasoning_text": "response.reasoning_text.delta",
        }[kind]
        place = {"summary_index": index} if kind == "summary_text" else {"content_index": index}
        constant = {**place, "logprobs": []} if kind == "output_text" else place
        content = item.content = _Content(kind, index, self._delta_head(event, item, constant))
        self._part_frame("added", item, content, "")
        return content

    def _part_frame(self, step: str, item: _Item, content: _Content, text: str) -> dict[str, Any]:
        """Announce or end a part; the part as it then is."""
        summary = content.kind == "summary_text"
        part: dict[str, Any] = {"type": content.kind, "refusal" if content.kind == "refusal" else "text": text}
        if content.kind == "output_text":
            part.update(annotations=content.annotations, logprobs=[])
        self._frame(
            f"response.{'reasoning_summary_part' if summary else 'content_part'}.{step}",
            {
                "item_id": item.id,
                "output_index": item.index,
                "summary_index" if summary else "content_index": content.index,
                "part": part,
            },
        )
        return part

    def _close_content(self, item: _Item) -> None:
        content = item.content
        if content is None:
            return
        text = "".join(content.pieces)
        place: dict[str, Any] = {"item_id": item.id, "output_index": item.index}
        if content.kind == "output_text":
            self._frame("response.output_text.done", {**place, "content_index": content.index, "text": text, "logprobs": []})
        elif content.kind == "refusal":
            self._frame("response.refusal.done", {**place, "content_index": content.index, "refusal": text})
        elif content.kind == "summary_text":
            self._frame("response.reasoning_summary_text.done", {**place, "summary_index": content.index, "text": text})
        else:
            self._frame("response.reasoning_text.done", {**place, "content_index": content.index, "text": text})
        item.finished.append((content.kind, self._part_frame("done", item, content, text)))
        item.content = None

    # -- messages ----------------------------------------------------------------------------------------------------------

    def _text(self, event: TextDelta) -> None:
        if event.choice or not event.text:
            return
        kind = "refusal" if event.refusal else "output_text"
        item = self._message
        content = item.content if item is not None else None
        if item is None or content is None or content.kind != kind:
            item, content = self._open_text(kind)
        content.pieces.append(event.text)
        self._delta(content.head, event.text)

    def _open_text(self, kind: str) -> tuple[_Item, _Content]:
        self._begin()
        self._close_reasoning()
        item = self._message
        if item is None:
            base = {"type": "message", "role": "assistant", "status": "in_progress", **self._message_fields}
            item = self._message = self._open("msg_", None, base, {"content": []})
            self._message_fields = {}
        self._close_content(item)
        self._spoke = True
        self._refused = self._refused or kind == "refusal"
        return item, self._open_content(item, kind)

    def _refuse(self, finish: Finish) -> None:
        """A refusal that came without a refusal part: clients look for that part."""
        details = finish.details
        told = details.get("explanation") if isinstance(details, dict) else None
        if not self._spoke:
            self._text(TextDelta(told if isinstance(told, str) and told else _REFUSED, refusal=True))
        elif told and not self._context.same_dialect:
            self._context.losses.drop("explanation", "the reason of a refusal has no place beside its text", minor=True)

    def _close_message(self, status: str = "completed") -> None:
        item = self._message
        if item is not None:
            self._message = None
            self._close_content(item)
            self._close(item, {"status": status, "content": [part for _, part in item.finished]})

    def _cite(self, citation: Citation) -> None:
        item, annotation = self._message, encode_citation(citation)
        content = item.content if item is not None else None
        if item is None or content is None or content.kind != "output_text" or annotation is None:
            self._context.losses.drop(
                "citation", "only citations of web addresses travel, with the text they are in", minor=True
            )
            return
        content.annotations.append(annotation)
        self._frame(
            "response.output_text.annotation.added",
            {
                "item_id": item.id,
                "output_index": item.index,
                "content_index": content.index,
                "annotation_index": len(content.annotations) - 1,
                "annotation": annotation,
            },
        )

    # -- reasoning ---------------------------------------------------------------------------------------------------------

    def _thinking(self, event: ThinkingDelta) -> None:
        if event.choice or not (event.text or event.signature):
            return
        # Readable reasoning is shown as a summary, which is what clients render; raw text only where the upstream said raw.
        raw = self._context.same_dialect and not event.summary
        kind = "reasoning_text" if raw else "summary_text"
        item = self._reasoning
        if item is None:
            item = self._open_reasoning(event.item_id or (event.signature.item_id if event.signature else None))
        if event.text:
            content = item.content
            if content is None or content.kind != kind:
                self._close_content(item)
                content = self._open_content(item, kind)
            content.pieces.append(event.text)
            self._delta(content.head, event.text)
        if event.signature is not None:
            self._close_reasoning(event.signature)

    def _open_reasoning(self, item_id: str | None) -> _Item:
        self._begin()
        self._close_message()
        item = self._reasoning = self._open("rs_", item_id, {"type": "reasoning", "status": "in_progress"}, {"summary": []})
        return item

    def _close_reasoning(self, state: Opaque | None = None, status: str = "completed") -> None:
        item = self._reasoning
        if item is None:
            return
        self._reasoning = None
        self._close_content(item)
        filled: dict[str, Any] = {
            "status": status,
            "summary": [part for kind, part in item.finished if kind == "summary_text"],
        }
        raw = [part for kind, part in item.finished if kind == "reasoning_text"]
        if raw:
            filled["content"] = raw
        if state is not None:
            filled["encrypted_content"] = state.payload
        self._close(item, filled)

    # -- calls -------------------------------------------------------------------------------------------------------------

    def _call_start(self, event: ToolCallStart) -> None:
        if event.choice:
            return
        self._begin()
        self._close_message()
        self._close_reasoning()
        if event.namespace is None and event.kind == "function" and self._typed.holds(event.name):
            self._held.add(event.call)
            return
        custom = event.kind == "custom"
        base: dict[str, Any] = {
            "type": "custom_tool_call" if custom else "function_call",
            "status": "in_progress",
            "call_id": event.id,
            "name": event.name,
        }
        if event.namespace is not None:
            base["namespace"] = event.namespace
        empty = {"input" if custom else "arguments": ""}
        item = self._open("ctc_" if custom else "fc_", event.item_id, base, empty)
        kind = "response.custom_tool_call_input.delta" if custom else "response.function_call_arguments.delta"
        item.head = self._delta_head(kind, item, {})
        self._calls[event.call] = item
        if event.arguments:
            self._write_arguments(item, event.arguments)

    def _call_delta(self, event: ToolCallDelta) -> None:
        item = self._calls.get(event.call)
        if item is not None and event.arguments:
            self._write_arguments(item, event.arguments)

    def _write_arguments(self, item: _Item, text: str) -> None:
        item.written += len(text)
        self._delta(item.head, text)

    def _typed_call(self, event: ToolCallComplete) -> None:
        """The item its client waits for; arguments that do not fill it leave as they are, in a plain call."""
        self._held.discard(event.call)
        seed = hashed(f"{self._context.seed}\0{self._items}", 32)
        item = self._typed.item(event.name, event.id, event.arguments, seed)
        if item is None:
            plain = {"type": "function_call", "call_id": event.id, "name": event.name, "arguments": event.arguments}
            item = {"id": f"fc_{seed}", "status": "completed", **plain}
        self._item_in_one_piece(item)

    def _call_complete(self, event: ToolCallComplete) -> None:
        if event.call in self._held:
            self._typed_call(event)
            return
        item = self._calls.pop(event.call, None)
        if item is None:
            return
        if not item.written and event.arguments:
            self._write_arguments(item, event.arguments)
        place = {"item_id": item.id, "output_index": item.index}
        if item.base["type"] == "custom_tool_call":
            self._frame("response.custom_tool_call_input.done", {**place, "input": event.arguments})
            self._close(item, {"status": "completed", "input": event.arguments})
        else:
            done = {**place, "name": event.name, "arguments": event.arguments}
            self._frame("response.function_call_arguments.done", done)
            self._close(item, {"status": "completed", "arguments": event.arguments})

    # -- parts that come in one piece -----------------------------------------------------------------------------------------

    def _whole(self, event: WholePart) -> None:
        part, losses = event.part, self._context.losses
        if event.choice:
            return
        match part:
            case Citation():
                self._cite(part)
            case Text() | Refusal():
                self._text(TextDelta(part.text, refusal=isinstance(part, Refusal)))
            case Foreign(dialect="openai_responses", raw=dict() as item):
                self._item_in_one_piece(item)
            case Foreign():
                losses.drop(part.kind, "means something only to the upstream's own clients")
            case Image(source=Base64(data=data)):
                image = {"type": "image_generation_call", "status": "completed", "result": data}
                self._item_in_one_piece({"id": "ig_" + hashed(f"{self._context.seed}\0{self._items}", 32), **image})
            case Image(source=Url(url=url)):
                losses.emulate("image", "shown as a link")
                self._text(TextDelta(f"![image]({url})"))
            case Audio(transcript=str() as transcript) if transcript:
                losses.emulate("audio", "shown as its transcript")
                self._text(TextDelta(transcript))
            case Image() | Document() | Audio() | Video() | Thinking() | ToolCall() | ToolResult():
                losses.drop(type(part).__name__.lower(), "answers hold no such content here")
            case _:
                assert_never(part)

    def _item_in_one_piece(self, whole: dict[str, Any]) -> None:
        self._begin()
        self._close_message()
        self._close_reasoning()
        index = self._items
        self._items += 1
        self._output[index] = whole
        self._frame("response.output_item.added", {"output_index": index, "item": whole})
        for event in self._progress.pop(str(whole.get("id")), ()):
            self._pass_on(event, index)
        self._frame("response.output_item.done", {"output_index": index, "item": whole})


class WholeEncoder:
    """A whole answer: the final response object, or an error body."""

    def __init__(self, context: EncodeContext) -> None:
        self._writer = OutputWriter(context, silent=True)
        self._kept = context.request.kept
        self._ended = False
        self.final: dict[str, Any] | None = None
        """The response, once it is whole."""

    def feed(self, events: list[Event]) -> bytes:
        """Nothing until the terminal event, then the whole answer."""
        if self._ended:
            return b""
        self._writer.feed(events)
        if self._writer.final is None:
            return b""
        self._ended = True
        error = self._writer.error
        if error is not None:
            return encode_error(error).body
        self.final = self._writer.final
        return self.release() if self._kept is None or not self._kept.waits else b""

    def written(self) -> ResponseJson:
        """The response as JSON; it is whole."""
        return self._writer.written()

    def release(self, changed: dict[str, Any] | None = None) -> bytes:
        """The answer; where it waited for being kept, `changed` are fields of it that came out otherwise."""
        final, kept = self._writer.final, self._kept
        assert final is not None
        if kept is not None and kept.compacts == "compaction":
            return encode_json(compaction_object(final, kept))
        if changed or kept is None or not kept.waits:
            return encode_json({**final, **(changed or {})})
        return self._writer.written().whole()
