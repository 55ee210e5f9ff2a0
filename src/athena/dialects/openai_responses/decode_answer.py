"""Answers of a Responses upstream as events.

One `ItemReader` serves streamed and whole answers: a whole answer is its items, finished one after another. In a stream an item
is known by its output index (some servers change item ids between events). What `output_item.done` says wins over deltas: text
and arguments that no delta brought are added from it, and an item that only the final response holds is read from there.

Where the deltas and the finished item contradict each other in a call's arguments the answer fails: no one can say which is
right. A call whose item never finished is ended by the end of the response, or cut by it.

Wire facts: docs/reference/wire-facts.md#responses-answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec

from athena.calls.arguments import arguments_text
from athena.calls.ids import synthesized_id
from athena.calls.tracker import ToolCallTracker
from athena.dialects.base import DecodeContext
from athena.dialects.decoders import UNREADABLE, StreamDecoder, WholeDecoder, protocol_error, token_count
from athena.dialects.openai_responses.decode_items import decode_annotation
from athena.dialects.openai_responses.errors import error_of
from athena.dialects.openai_responses.vocabulary import NAME, OTHER_EVENT
from athena.dialects.plain_reads import PlainShape
from athena.model.events import (
    Done,
    Event,
    Extra,
    Finish,
    FinishKind,
    KeepAlive,
    PlainPiece,
    Start,
    TextDelta,
    ThinkingDelta,
    Usage,
    WholePart,
    is_failure,
)
from athena.model.parts import Foreign, Opaque
from athena.wire.json_span import is_json_object
from athena.wire.sse import is_event_name

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_INCOMPLETE: dict[str, FinishKind] = {
    "max_output_tokens": "length",
    "content_filter": "filter",
    "max_messages": "pause",
    "steered": "pause",
}
_ECHOED = frozenset({
    "background", "completed_at", "created_at", "error", "id", "incomplete_details", "instructions", "max_output_tokens",
    "max_tool_calls", "metadata", "model", "object", "output", "output_text", "parallel_tool_calls", "previous_response_id",
    "prompt_cache_key", "reasoning", "safety_identifier", "status", "store", "temperature", "text", "tool_choice", "tools",
    "top_logprobs", "top_p", "truncation", "usage", "user",
})  # fmt: skip
"""Fields of a response that our own encoder fills in; all others are the upstream's to say."""
_LABELS = frozenset({"service_tier", "billing", "frequency_penalty", "presence_penalty", "prompt_cache_retention"})
"""Fields that say how an answer came about and nothing of what it says."""
_ITEM_FIELDS: dict[str, frozenset[str]] = {
    "message": frozenset({"type", "id", "status", "role", "content", "phase"}),
    "reasoning": frozenset({"type", "id", "status", "summary", "content", "encrypted_content", "format"}),
    "function_call": frozenset({"type", "id", "status", "call_id", "name", "arguments", "namespace", "created_by"}),
    "custom_tool_call": frozenset({"type", "id", "status", "call_id", "name", "input", "namespace", "created_by"}),
}
_PART_FIELDS = frozenset({"type", "text", "refusal", "annotations"})


class _Item:
    """An output item as far as it was shown."""

    __slots__ = ("annotations", "done", "final", "id", "kind", "pieces", "shown", "spoken")

    def __init__(self, kind: str, item_id: str | None) -> None:
        self.kind = kind
        self.id = item_id
        self.pieces: list[str] = []
        """Arguments or input of a call, as the deltas brought them."""
        self.final: str | None = None
        """The same in one piece, where an event said so before the item was done."""
        self.shown: dict[tuple[str, int], int] = {}
        """Characters shown of each content part."""
        self.annotations: dict[int, int] = {}
        self.spoken = False
        self.done = False


class ItemReader:
    """Output items to events."""

    def __init__(self, context: DecodeContext) -> None:
        self._context = context
        self._tracker = ToolCallTracker(
            new_id=lambda number: synthesized_id(context.seed, number), limits=context.limits, mend=context.mend
        )
        self._family = context.profile.state_family
        self._items: dict[int, _Item] = {}
        self._index_of_id: dict[str, int] = {}
        self._finished: set[str] = set()
        self._refused = False
        self._started = False

    # -- the response as a whole -------------------------------------------------------------------------------------------

    def start(self, response: dict[str, Any], out: list[Event]) -> None:
        """The response object of the first event that has one."""
        if self._started:
            return
        self._started = True
        created = response.get("created_at")
        out.append(
            Start(
                id=_text(response.get("id")),
                model=_text(response.get("model")),
                created=int(created) if isinstance(created, int | float) else None,
                extras=self._extras(response),
            )
        )

    def finish(self, response: dict[str, Any], status: str, out: list[Event]) -> None:
        """The response object of the last event: what is missing, then how it ended."""
        self.start(response, out)
        status = _text(response.get("status")) or status
        if status in ("failed", "cancelled") or response.get("error"):
            error = response.get("error")
            if status == "cancelled" and not error:
                error = {"code": "cancelled", "message": "the upstream cancelled the answer"}
            out.append(error_of(error, msgspec.json.encode(error)))
            return
        if status not in ("completed", "incomplete"):
            out.append(protocol_error(f"a response ended with status {status!r}"))
            return
        output = response.get("output")
        for index, item in enumerate(output if isinstance(output, list) else ()):
            if isinstance(item, dict) and not self._known(index, item):
                self.item_done(index, item, out)
                if is_failed(out):
                    return
        self._end(response, status, out)

    def _was_cut(self, response: dict[str, Any]) -> bool:
        """Does the number of tokens tell that the answer was cut at its limit, whatever its status says?"""
        usage = read_usage(response.get("usage"))
        limit = self._context.max_output
        return self._context.profile.cut_by_usage and usage is not None and limit is not None and usage.output_total >= limit

    def _may_be_cut(self, place: _Item) -> bool:
        """May a call that is called done be one that was cut? Only the number of tokens tells, and it comes last."""
        tells_late = self._context.profile.cut_by_usage and self._context.max_output is not None
        return tells_late and place.kind == "function_call" and not is_json_object("".join(place.pieces) or "{}")

    def _end(self, response: dict[str, Any], status: str, out: list[Event]) -> None:
        if status == "completed" and self._was_cut(response):
            status = "incomplete"
        details = response.get("incomplete_details")
        reason = _text(details.get("reason")) if isinstance(details, dict) else ""
        for index, place in self._items.items():
            if place.final is not None and not place.done:
                self.arguments_final(index, place, place.final, out)
                if is_failed(out):
                    return
        self._tracker.close_all(out, cut=status == "incomplete")
        if is_failed(out):
            return
        kind: FinishKind
        if status == "incomplete":
            kind = _INCOMPLETE.get(reason, "length")
        elif self._tracker.into_calls():
            kind = "tool"
        else:
            kind = "refusal" if self._refused else "stop"
        if self._context.keep_extras and (extras := self._extras(response)):
            out.append(Extra(fields=extras))
        elif self._context.losses is not None:
            self._context.losses.unknown(response, _ECHOED | _LABELS)
        out.append(Done(Finish(kind, raw=reason or status), usage=read_usage(response.get("usage"))))

    def _extras(self, response: dict[str, Any]) -> dict[str, Any] | None:
        if not self._context.keep_extras:
            return None
        return {key: value for key, value in response.items() if key not in _ECHOED and value is not None} or None

    def _known(self, index: int, item: dict[str, Any]) -> bool:
        """Was this item of the final list already finished in the stream?"""
        seen = self._items.get(index)
        if seen is not None and seen.done and seen.kind == item.get("type"):
            return True
        return any(isinstance(word := item.get(key), str) and word in self._finished for key in ("call_id", "id"))

    # -- items -------------------------------------------------------------------------------------------------------------

    def place(self, index: int | None, item_id: str | None, kind: str) -> tuple[int, _Item]:
        """The item an event speaks of, opened if it was never announced."""
        if index is None:
            index = self._unnumbered(item_id, kind)
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = _Item(kind, item_id)
            if item_id:
                self._index_of_id[item_id] = index
        return index, item

    def _unnumbered(self, item_id: str | None, kind: str) -> int:
        """The place of an event without an output index: by item id, else the item of that kind that is being written."""
        known = self._index_of_id.get(item_id or "")
        if known is not None:
            return known
        last = max(self._items, default=-1)
        if not item_id and last >= 0 and not self._items[last].done and self._items[last].kind == kind:
            return last
        return last + 1

    def item_added(self, index: int | None, item: dict[str, Any], out: list[Event]) -> None:
        kind = _text(item.get("type"))
        index, place = self.place(index, _text(item.get("id")) or None, kind)
        place.kind = kind or place.kind
        if place.kind in _CALLS:
            self._open_call(index, item, out)
        elif place.kind == "message":
            self._phase(item, out)

    def item_done(self, index: int | None, item: dict[str, Any], out: list[Event]) -> None:
        kind = _text(item.get("type"))
        index, place = self.place(index, _text(item.get("id")) or None, kind)
        if place.done:
            return
        self._note(kind, item)
        unannounced = place.kind != kind or not place.shown
        place.kind = kind
        if kind in _CALLS:
            self._call_done(index, place, item, out)
            if not place.done:
                return
        elif kind == "message":
            if unannounced and not place.spoken:
                self._phase(item, out)
            self._message_done(place, item, out)
        elif kind == "reasoning":
            self._reasoning_done(place, item, out)
        elif kind:
            out.append(WholePart(Foreign(kind=kind, dialect=NAME, raw=item)))
        place.done = True
        self._finished.update(word for key in ("call_id", "id") if isinstance(word := item.get(key), str) and word)

    def _note(self, kind: str, item: dict[str, Any]) -> None:
        """Fields of a finished item that no event carries."""
        losses = self._context.losses
        if losses is None or kind not in _ITEM_FIELDS:
            return
        caller = item.get("caller")
        if isinstance(caller, dict) and caller.get("type") == "direct":
            item = {key: value for key, value in item.items() if key != "caller"}  # the model itself called, as it always does
        losses.unknown(item, _ITEM_FIELDS[kind], kind)
        if kind == "message":
            if not self._context.keep_extras and item.get("phase") is not None:
                losses.drop("phase", "only its own dialect has phases of a message", minor=True)
            for part in _dicts(item.get("content")):
                losses.unknown(part, _PART_FIELDS, "message.content")

    def _phase(self, item: dict[str, Any], out: list[Event]) -> None:
        if self._context.keep_extras and isinstance(item.get("phase"), str):
            out.append(Extra(fields={"phase": item["phase"]}, choice=0, delta=True))

    # -- calls -------------------------------------------------------------------------------------------------------------

    def _open_call(self, index: int, item: dict[str, Any], out: list[Event]) -> None:
        custom = item.get("type") == "custom_tool_call"
        event = self._tracker.start_call(
            _text(item.get("call_id")) or None,
            _text(item.get("name")) or None,
            index,
            kind="custom" if custom else "function",
            namespace=_text(item.get("namespace")) or None,
            item_id=_text(item.get("id")) or None,
        )
        self._tracker.open(out, event)

    def arguments_delta(self, index: int, place: _Item, delta: str, out: list[Event]) -> None:
        place.pieces.append(delta)
        self._tracker.append(out, index, delta)

    def arguments_final(self, index: int, place: _Item, final: str, out: list[Event]) -> None:
        """The whole arguments: show what the deltas left out."""
        shown = "".join(place.pieces)
        if final == shown:
            return
        if final.startswith(shown):
            self.arguments_delta(index, place, final[len(shown) :], out)
        elif place.kind != "function_call" or not _says_the_same(shown, final):
            out.append(protocol_error(f"item {index}: the finished arguments contradict their deltas", final.encode()[:2000]))

    def _call_done(self, index: int, place: _Item, item: dict[str, Any], out: list[Event]) -> None:
        self._open_call(index, item, out)
        final = item.get(_CALLS[place.kind]) or place.final
        if final is not None and (final != "" or not place.pieces):
            self.arguments_final(index, place, final if isinstance(final, str) else arguments_text(final), out)
            if is_failed(out):
                return
        if item.get("status") == "incomplete" or self._may_be_cut(place):
            # The upstream ran out of room inside this call: the end of the response decides what it is worth.
            return
        self._tracker.write_complete(out, index)
        place.done = True

    # -- text and reasoning ------------------------------------------------------------------------------------------------

    def text_delta(self, place: _Item, part: int, delta: str, out: list[Event], *, refusal: bool = False) -> None:
        place.spoken = True
        key = ("refusal" if refusal else "text", part)
        place.shown[key] = place.shown.get(key, 0) + len(delta)
        if refusal:
            self._refused = True
        if delta:
            out.append(TextDelta(delta, refusal=refusal))

    def thinking_delta(self, place: _Item, part: int, delta: str, out: list[Event], *, summary: bool) -> None:
        kind = "summary" if summary else "reasoning"
        shown = place.shown.get((kind, part))
        if shown is None:
            shown = 0
            if any(size for (other, _), size in place.shown.items() if other == kind) and delta:
                out.append(ThinkingDelta("\n\n", summary=summary, item_id=place.id))
        place.shown[(kind, part)] = shown + len(delta)
        if delta:
            out.append(ThinkingDelta(delta, summary=summary, item_id=place.id))

    def annotation(self, place: _Item, part: int, entry: dict[str, Any], out: list[Event]) -> None:
        place.annotations[part] = place.annotations.get(part, 0) + 1
        out.append(WholePart(decode_annotation(entry)))

    def _message_done(self, place: _Item, item: dict[str, Any], out: list[Event]) -> None:
        for part, content in enumerate(_dicts(item.get("content"))):
            refusal = content.get("type") == "refusal"
            self.text_final(place, part, _text(content.get("refusal" if refusal else "text")), out, refusal=refusal)
            for entry in _dicts(content.get("annotations"))[place.annotations.get(part, 0) :]:
                self.annotation(place, part, entry, out)

    def text_final(self, place: _Item, part: int, final: str, out: list[Event], *, refusal: bool = False) -> None:
        missing = final[place.shown.get(("refusal" if refusal else "text", part), 0) :]
        if missing:
            self.text_delta(place, part, missing, out, refusal=refusal)

    def thinking_final(self, place: _Item, part: int, final: str, out: list[Event], *, summary: bool) -> None:
        missing = final[place.shown.get(("summary" if summary else "reasoning", part), 0) :]
        if missing:
            self.thinking_delta(place, part, missing, out, summary=summary)

    def _reasoning_done(self, place: _Item, item: dict[str, Any], out: list[Event]) -> None:
        place.id = _text(item.get("id")) or place.id
        for key, summary in (("content", False), ("summary", True)):
            for part, entry in enumerate(_dicts(item.get(key))):
                self.thinking_final(place, part, _text(entry.get("text")), out, summary=summary)
        payload = item.get("encrypted_content")
        if isinstance(payload, str) and payload:
            state = Opaque(
                family=self._family,
                kind="encrypted" if any(place.shown.values()) else "redacted",
                payload=payload,
                item_id=place.id,
            )
            out.append(ThinkingDelta(signature=state, item_id=place.id))


# -- a stream of events -----------------------------------------------------------------------------------------------------


class _Record(msgspec.Struct, gc=False):
    """The fields of any stream event; what is not a scalar stays bytes until it is needed."""

    type: str | msgspec.UnsetType = msgspec.UNSET
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    item: msgspec.Raw = msgspec.Raw(b"null")
    response: msgspec.Raw = msgspec.Raw(b"null")
    annotation: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class _PlainRecord(_Record, gc=False, kw_only=True):
    """A piece of a message's text. What cannot be read as a record is not read as this, whichever field is wrong."""

    type: Literal["response.output_text.delta"]
    delta: str


_DECODER = msgspec.json.Decoder(_Record)
_PLAIN = msgspec.json.Decoder(_PlainRecord)
_DELTA = re.compile(rb'"delta": ?(?=")')
_FRAMES_OF_PARTS = ("response.content_part.", "response.reasoning_summary_part.")
"""Beginnings of events that announce and end what other events say."""
_TOLD_BY_ITEMS = (
    "response.web_search_call.", "response.file_search_call.", "response.code_interpreter_call", "response.mcp_",
    "response.image_generation_call.", "response.shell_call", "response.apply_patch_call", "response.computer_call",
    "response.tool_search_call", "response.compaction.",
)  # fmt: skip
"""Beginnings of events that say in pieces what the finished item says."""


class ResponsesStreamDecoder(StreamDecoder):
    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._reader = ItemReader(context)
        self._last: tuple[int | None, str | None] | None = None
        self._place: tuple[int, _Item] = (0, _Item("", None))
        self._plain_of: tuple[_Item, int, PlainShape] | None = None
        """The item and the part of it that the pieces of the short way belong to, and how they look."""

    def record(self, name: str, payload: bytes, out: list[Event]) -> None:
        if payload == b"[DONE]":
            return
        record = _DECODER.decode(payload)
        kind = name if record.type is msgspec.UNSET else record.type
        record.type = kind
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, record, out)
            if out and is_failed(out):
                self.ended = True
        elif kind == "error" or bytes(record.error) not in (b"null", b""):
            self._error(record, payload, out)
        elif not kind.startswith(_FRAMES_OF_PARTS):
            self._other(kind, payload, out)

    reads_each_plain = True
    """Every record has a number of its own, and many servers add padding."""

    def plain_shape(self, event: PlainPiece) -> PlainShape | None:
        place = self._place[1]
        parts = [part for kind, part in place.shown if kind == "text"]
        if type(event) is not TextDelta or self._last is None or len(parts) != 1:
            return None
        if self._plain_of is None or self._plain_of[:2] != (place, parts[0]):
            self._plain_of = (place, parts[0], PlainShape(_DELTA, partial(_plain_text, self._last, parts[0])))
        return self._plain_of[2]

    def plain_note(self, event: PlainPiece) -> Callable[[str], None] | None:
        return self._note_text

    def _note_text(self, text: str) -> None:
        assert self._plain_of is not None
        place, part, _ = self._plain_of
        place.shown["text", part] += len(text)

    def _other(self, kind: str, payload: bytes, out: list[Event]) -> None:
        """Progress of a tool that the provider runs, or an unknown event: handed on at home, noted elsewhere."""
        if self.context.keep_extras and is_event_name(kind):
            out.append(Extra({OTHER_EVENT: {"type": kind, **msgspec.json.decode(payload)}}, choice=0, delta=True))
        elif self.context.losses is not None and not kind.startswith(_TOLD_BY_ITEMS):
            self.context.losses.drop(kind or "event", "an event that only the upstream's own clients know")

    def _error(self, record: _Record, payload: bytes, out: list[Event]) -> None:
        """Flat by the documents, nested by many servers."""
        nested = msgspec.json.decode(record.error)
        self.fail(out, error_of(nested if nested else msgspec.json.decode(payload), payload))

    def _of(self, record: _Record, kind: str) -> tuple[int, _Item]:
        """The item of an event; runs of events speak of the same one."""
        key = (record.output_index, record.item_id)
        if key != self._last:
            self._place = self._reader.place(record.output_index, record.item_id, kind)
            self._last = key
        return self._place

    def _text_delta(self, record: _Record, out: list[Event]) -> None:
        self._reader.text_delta(self._of(record, "message")[1], record.content_index or 0, _text(record.delta), out)

    def _text_done(self, record: _Record, out: list[Event]) -> None:
        self._reader.text_final(self._of(record, "message")[1], record.content_index or 0, _text(record.text), out)

    def _refusal_delta(self, record: _Record, out: list[Event]) -> None:
        place = self._of(record, "message")[1]
        self._reader.text_delta(place, record.content_index or 0, _text(record.delta), out, refusal=True)

    def _refusal_done(self, record: _Record, out: list[Event]) -> None:
        place = self._of(record, "message")[1]
        self._reader.text_final(place, record.content_index or 0, _text(record.refusal), out, refusal=True)

    def _summary_delta(self, record: _Record, out: list[Event]) -> None:
        place = self._of(record, "reasoning")[1]
        self._reader.thinking_delta(place, record.summary_index or 0, _text(record.delta), out, summary=True)

    def _summary_done(self, record: _Record, out: list[Event]) -> None:
        place = self._of(record, "reasoning")[1]
        self._reader.thinking_final(place, record.summary_index or 0, _text(record.text), out, summary=True)

    def _reasoning_delta(self, record: _Record, out: list[Event]) -> None:
        place = self._of(record, "reasoning")[1]
        self._reader.thinking_delta(place, record.content_index or 0, _text(record.delta), out, summary=False)

    def _reasoning_done(self, record: _Record, out: list[Event]) -> None:
        place = self._of(record, "reasoning")[1]
        self._reader.thinking_final(place, record.content_index or 0, _text(record.text), out, summary=False)

    def _arguments_delta(self, record: _Record, out: list[Event]) -> None:
        index, place = self._of(record, "function_call")
        self._reader.arguments_delta(index, place, _text(record.delta), out)

    def _input_delta(self, record: _Record, out: list[Event]) -> None:
        index, place = self._of(record, "custom_tool_call")
        self._reader.arguments_delta(index, place, _text(record.delta), out)

    def _arguments_done(self, record: _Record, out: list[Event]) -> None:
        final = record.arguments if record.arguments is not None else record.input
        if isinstance(final, str) and final:
            _, place = self._of(record, "function_call" if record.input is None else "custom_tool_call")
            # Kept until the item is done: its id and name may come only there.
            place.final = final

    def _annotation(self, record: _Record, out: list[Event]) -> None:
        entry = msgspec.json.decode(record.annotation)
        if isinstance(entry, dict):
            self._reader.annotation(self._of(record, "message")[1], record.content_index or 0, entry, out)

    def _item_added(self, record: _Record, out: list[Event]) -> None:
        item = msgspec.json.decode(record.item)
        if isinstance(item, dict):
            self._reader.item_added(record.output_index, item, out)
            self._last = None

    def _item_done(self, record: _Record, out: list[Event]) -> None:
        item = msgspec.json.decode(record.item)
        if isinstance(item, dict):
            self._reader.item_done(record.output_index, item, out)
            self._last = None

    def _begin(self, record: _Record, out: list[Event]) -> None:
        response = msgspec.json.decode(record.response)
        if isinstance(response, dict):
            self._reader.start(response, out)

    def _wait(self, record: _Record, out: list[Event]) -> None:
        self._begin(record, out)
        out.append(KeepAlive())

    def _completed(self, record: _Record, out: list[Event]) -> None:
        response = msgspec.json.decode(record.response)
        status = str(record.type).removeprefix("response.").replace("done", "completed")
        self._reader.finish(response if isinstance(response, dict) else {}, status, out)
        self.ended = True


# By function, not by bound method: an object that holds its own methods is left to the collector.
_HANDLERS: dict[str, Callable[[ResponsesStreamDecoder, _Record, list[Event]], None]] = {
    "response.output_text.delta": ResponsesStreamDecoder._text_delta,
    "response.output_text.done": ResponsesStreamDecoder._text_done,
    "response.refusal.delta": ResponsesStreamDecoder._refusal_delta,
    "response.refusal.done": ResponsesStreamDecoder._refusal_done,
    "response.reasoning_summary_text.delta": ResponsesStreamDecoder._summary_delta,
    "response.reasoning_summary_text.done": ResponsesStreamDecoder._summary_done,
    "response.reasoning_text.delta": ResponsesStreamDecoder._reasoning_delta,
    "response.reasoning_text.done": ResponsesStreamDecoder._reasoning_done,
    "response.reasoning.delta": ResponsesStreamDecoder._reasoning_delta,
    "response.function_call_arguments.delta": ResponsesStreamDecoder._arguments_delta,
    "response.function_call_arguments.done": ResponsesStreamDecoder._arguments_done,
    "response.custom_tool_call_input.delta": ResponsesStreamDecoder._input_delta,
    "response.custom_tool_call_input.done": ResponsesStreamDecoder._arguments_done,
    "response.output_text.annotation.added": ResponsesStreamDecoder._annotation,
    "response.output_item.added": ResponsesStreamDecoder._item_added,
    "response.output_item.done": ResponsesStreamDecoder._item_done,
    "response.created": ResponsesStreamDecoder._begin,
    "response.in_progress": ResponsesStreamDecoder._begin,
    "response.queued": ResponsesStreamDecoder._wait,
    "keepalive": ResponsesStreamDecoder._wait,
    "ping": ResponsesStreamDecoder._wait,
    "response.completed": ResponsesStreamDecoder._completed,
    "response.done": ResponsesStreamDecoder._completed,
    "response.incomplete": ResponsesStreamDecoder._completed,
    "response.failed": ResponsesStreamDecoder._completed,
    "response.cancelled": ResponsesStreamDecoder._completed,
}


def _plain_text(last: tuple[int | None, str | None], part: int, name: str, payload: bytes) -> str | None:
    """The text of a record that is a piece of this part of the item that the last record spoke of."""
    try:
        record = _PLAIN.decode(payload)
    except UNREADABLE:
        return None
    is_same = (record.output_index, record.item_id) == last and (record.content_index or 0) == part
    return record.delta if is_same else None


class ResponsesWholeDecoder(WholeDecoder):
    """A whole answer: the response object."""

    def whole(self, body: bytes, out: list[Event]) -> None:
        response = msgspec.json.decode(body)
        if not isinstance(response, dict):
            out.append(protocol_error("the answer is not an object", body))
        elif response.get("object") != "response" and "output" not in response:
            error = response.get("error", response.get("detail"))
            out.append(error_of(error, body) if error else protocol_error("the answer is not a response", body))
        else:
            ItemReader(self.context).finish(response, "completed", out)


# -- small readers ----------------------------------------------------------------------------------------------------------


def read_usage(value: object) -> Usage | None:
    """Token counts; the details are optional on many servers."""
    if not isinstance(value, dict):
        return None
    given, made = value.get("input_tokens_details"), value.get("output_tokens_details")
    details = given if isinstance(given, dict) else {}
    written = details.get("cache_write_tokens_details")
    reasoning = token_count(made.get("reasoning_tokens")) if isinstance(made, dict) else 0
    return Usage(
        input_total=token_count(value.get("input_tokens")),
        output_total=token_count(value.get("output_tokens")),
        cache_read=token_count(details.get("cached_tokens")),
        cache_write=token_count(details.get("cache_write_tokens")),
        cache_write_1h=token_count(written.get("ttl_12h_tokens")) if isinstance(written, dict) else 0,
        reasoning=reasoning,
        raw=value,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _dicts(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _says_the_same(shown: str, final: str) -> bool:
    """Some servers write the finished arguments with other spaces than they streamed them."""
    try:
        return bool(msgspec.json.decode(shown) == msgspec.json.decode(final))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def is_failed(out: list[Event]) -> bool:
    """Did the last step end the answer with an error?"""
    return bool(out) and is_failure(out[-1])
