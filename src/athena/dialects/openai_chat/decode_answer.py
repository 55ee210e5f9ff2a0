"""Answers of Chat servers to events, streamed and whole alike.

One `ChatAnswerReader` serves both: a whole answer is one record whose message is its only delta. Facts worth knowing here: a
finish reason may come inside the delta, twice, or with text and usage in one record; a record may hold no choice; a call may
come without index, id or arguments, whole or in pieces, as `tool_calls` or as the older `function_call`; an error may come with
status 200. The answer ends at `[DONE]` or at the end of the bytes, because usage comes last.

Wire facts: docs/reference/wire-facts.md#chat-streams.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable
from functools import cache, partial
from typing import Any

import msgspec

from athena.calls.ids import synthesized_id
from athena.calls.tracker import PlainArguments
from athena.dialects.base import AnswerLosses, DecodeContext
from athena.dialects.decoders import StreamDecoder, WholeDecoder, closed_error, protocol_error
from athena.dialects.openai_chat.call_reader import CallReader, ChoiceCalls
from athena.dialects.openai_chat.errors import error_in_answer
from athena.dialects.openai_chat.media import citation_of, image_of
from athena.dialects.openai_chat.reasoning import ReasoningReader
from athena.dialects.openai_chat.usage import decode_timings, decode_usage, encode_usage
from athena.dialects.openai_chat.vocabulary import (
    CALL_KEYS,
    CHOICE_KEYS,
    CHUNK_KEYS,
    CUT_KINDS,
    DELTA_KEYS,
    FINISH_ERRORS,
    FINISH_KINDS,
    LABELS,
    NAME,
    REASONING_MARK,
)
from athena.dialects.openai_chat.wire import (
    CallEntry,
    ChatMessage,
    ChoiceEntry,
    Chunk,
    FunctionEntry,
    TextOnlyChunk,
    decode_chunk,
    decode_text_only,
    decode_value,
    plain_arguments,
    plain_content,
    plain_reasoning,
)
from athena.dialects.plain_reads import PlainShape
from athena.errors import ErrorKind
from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    Finish,
    FinishKind,
    PlainPiece,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    WholePart,
)  # fmt: skip
from athena.model.parts import Audio, Base64, Foreign, Opaque

_LOOKS = 8
"""How many records that seem to begin a call are looked at for unknown fields; some servers repeat the id in every piece."""


class _ChoiceRead(msgspec.Struct, eq=False):
    """What is known of one choice."""

    index: int
    calls: ChoiceCalls
    reasoning: ReasoningReader
    finish: str = ""
    stop_sequence: str | None = None
    refused: bool = False
    audio: dict[str, Any] | None = None


_SAYS_NOTHING = ChatMessage()


class ChatAnswerReader:
    """Records to events; knows nothing of bytes."""

    def __init__(self, context: DecodeContext, *, whole: bool) -> None:
        self._context = context
        self._whole = whole
        self._merge = context.profile.merge_choices
        self._keep_extras = context.keep_extras
        self._losses = None if context.keep_extras else context.losses
        self._choices: dict[int, _ChoiceRead] = {}

    started = False
    """Was there a record?"""
    failed = False
    """A fatal error was written: nothing may follow."""
    _id = ""
    _odd_first = -1
    """A number too high that the first choice has instead of 0."""
    _looks = _LOOKS
    _constant: dict[str, Any] | None = None
    """Unknown fields of the first record."""
    _usage: Usage | None = None
    _timings: object = None
    _plain = (b"", b"")
    _call_reader: CallReader | None = None

    @property
    def _calls(self) -> CallReader:
        """What reads calls, made for the first one: most answers have none."""
        reader = self._call_reader
        if reader is None:
            # The answer's own id is known by now, and it makes the ids of calls without one.
            new_id = partial(synthesized_id, f"{self._context.seed}\0{self._id}")
            reader = self._call_reader = CallReader(self._context, whole=self._whole, new_id=new_id)
        return reader

    @property
    def only_text(self) -> bool:
        """Has the one choice said nothing but text, so that more text changes nothing else?"""
        if self._keep_extras or self._merge or len(self._choices) != 1:
            return False
        choice = self._choices.get(0)
        return choice is not None and not choice.calls.active and not choice.finish

    @property
    def only_words(self) -> bool:
        """Has the one choice its say still, with no call open, so that more of the same words changes nothing else?"""
        choice = self._choices.get(0)
        return choice is not None and len(self._choices) == 1 and not choice.calls.active and not choice.finish

    def going_on(self) -> tuple[int, Hashable] | None:
        """The index and the key of the one call that goes on; None: there is none, or its next piece may change more than its
        arguments."""
        reader, choice = self._call_reader, self._choices.get(0)
        if reader is None or choice is None or len(self._choices) != 1 or choice.finish:
            return None
        return reader.going_on(choice.calls)

    def more_arguments(self, key: Hashable, arguments: str, out: list[Event]) -> None:
        """A piece of the call that goes on."""
        self._calls.more(key, arguments, out)

    def plain_arguments(self) -> PlainArguments | None:
        """What watches further pieces of the call that goes on."""
        going_on = self.going_on()
        return self._calls.plain_arguments(going_on[1]) if going_on is not None else None

    def note_reasoning(self, text: str) -> None:
        """A piece of reasoning of the first choice took the short way."""
        self._choices[0].reasoning.note(text)

    # -- records -----------------------------------------------------------------------------------------------------------

    def read(self, chunk: Chunk, payload: bytes, out: list[Event]) -> None:
        if chunk.error or chunk.object == "error":
            return self._fail(out, error_in_answer(payload))
        if not self.started:
            self._start(chunk, payload, out)
        elif self._keep_extras or not chunk.choices:
            self._record_extras(payload, out)
        if chunk.usage is not None:
            self._usage = decode_usage(chunk.usage) or self._usage
        if chunk.timings is not None:
            self._timings = chunk.timings
        if chunk.x_groq is not None and not self._read_groq(chunk.x_groq, out):
            return None
        for entry in chunk.choices or ():
            index = entry.index
            if type(index) is not int or index < 0 or index == self._odd_first or self._merge:
                index = 0
            choice = self._choices.get(index) or self._new_choice(index)
            if choice is None:
                continue
            delta = entry.delta if entry.delta is not None else entry.message
            if delta is not None and delta != _SAYS_NOTHING:
                if delta.tool_calls:
                    self._note_calls(delta.tool_calls, payload)
                self._delta(choice, delta, out)
            if entry.logprobs is not None and self._losses is not None:
                self._losses.drop("logprobs", "log probabilities have no counterpart here")
            if entry.finish_reason is not None or entry.usage is not None or entry.error is not None:
                self._closing(choice, entry, out)
            if self.failed:
                return None
        return None

    def _new_choice(self, index: int) -> _ChoiceRead | None:
        """A choice that begins; None for one more than was asked for."""
        if 0 < self._context.choices <= index:
            if 0 in self._choices:
                return None
            self._odd_first, index = index, 0
        choice = self._choices[index] = _ChoiceRead(index, ChoiceCalls(index), ReasoningReader(index))
        return choice

    def start_with_text(self, chunk: TextOnlyChunk, out: list[Event]) -> bool:
        """Read the first record where it can say nothing but text, which is not written. False: it says something else."""
        if chunk.object == "error":
            return False
        out.append(self._begun(chunk))
        self._new_choice(0)
        return True

    def _begun(self, chunk: Chunk | TextOnlyChunk) -> Start:
        self.started = True
        self._id = chunk.id if isinstance(chunk.id, str) else ""
        created = chunk.created
        return Start(
            self._id,
            chunk.model if isinstance(chunk.model, str) else "",
            int(created) if isinstance(created, int | float) and 0 < created < 1 << 53 else None,
        )

    def _start(self, chunk: Chunk, payload: bytes, out: list[Event]) -> None:
        start = self._begun(chunk)
        if self._keep_extras:
            value = decode_value(payload)
            self._constant = _unknown(value, CHUNK_KEYS)
            out.append(msgspec.structs.replace(start, extras=self._constant))
            self._choice_extras(value, out)
        else:
            out.append(start)
            if self._losses is not None:
                self._note(decode_value(payload), self._losses)

    def _note(self, value: dict[str, Any], losses: AnswerLosses) -> None:
        """Unread fields of the first record; a whole answer has no other."""
        losses.unknown(value, CHUNK_KEYS | LABELS)
        choices = value.get("choices")
        for entry in choices if isinstance(choices, list) else ():
            if isinstance(entry, dict):
                losses.unknown(entry, CHOICE_KEYS | LABELS | {"logprobs", "error"}, "choice")
                losses.unknown(entry.get("delta") or entry.get("message"), DELTA_KEYS | LABELS, "message")

    def _note_calls(self, calls: list[CallEntry], payload: bytes) -> None:
        """Unread fields in entries that begin calls."""
        losses = self._context.losses
        # Unknown fields of a call have no place in any event: clients of this dialect do not get them either.
        if losses is None or not calls[0].id or not self._looks:
            return
        self._looks -= 1
        for entry in decode_value(payload).get("choices") or ():
            for call in (entry.get("delta") or entry.get("message") or {}).get("tool_calls") or ():
                losses.unknown(call, CALL_KEYS, "tool_call")

    def _read_groq(self, value: object, out: list[Event]) -> bool:
        """Groq puts usage and errors of a stream in a field of its own."""
        if isinstance(value, dict):
            self._usage = decode_usage(value.get("usage")) or self._usage
            if value.get("error"):
                self._fail(out, error_in_answer(msgspec.json.encode({"error": value["error"]})))
                return False
        return True

    # -- what only an encoder of this dialect can use ------------------------------------------------------------------------

    def _record_extras(self, payload: bytes, out: list[Event]) -> None:
        """What no event carries. A record that differs from one without extras in its text only has none either."""
        if not self._keep_extras:
            if self._losses is not None:
                self._losses.unknown(decode_value(payload), CHUNK_KEYS | LABELS)
            return
        head, tail = self._plain
        if head and payload.startswith(head) and payload.endswith(tail):
            text = payload[len(head) : -len(tail)]
            if b'"' not in text and text[-1:] != b"\\":
                return
        before = len(out)
        self._read_extras(payload, out)
        if len(out) == before:
            head, mark, rest = payload.partition(b'"content":"')
            end = rest.find(b'"')
            if mark and end > 0 and rest[end - 1 : end] != b"\\":
                self._plain = (head + mark, rest[end:])

    def _read_extras(self, payload: bytes, out: list[Event]) -> None:
        value = decode_value(payload)
        unknown = _unknown(value, CHUNK_KEYS)
        if unknown:
            constant = self._constant or {}
            fresh = {key: item for key, item in unknown.items() if constant.get(key) != item}
            if fresh:
                out.append(Extra(fresh))
        self._choice_extras(value, out)

    def _choice_extras(self, value: dict[str, Any], out: list[Event]) -> None:
        choices = value.get("choices")
        for entry in choices if isinstance(choices, list) else ():
            index = entry.get("index")
            index = index if type(index) is int and index >= 0 and not self._merge else 0
            unknown = _unknown(entry, CHOICE_KEYS)
            if unknown:
                out.append(Extra(unknown, index))
            delta = entry.get("delta") or entry.get("message")
            if isinstance(delta, dict):
                unknown = _unknown(delta, DELTA_KEYS)
                if unknown:
                    out.append(Extra(unknown, index, True))

    # -- deltas ------------------------------------------------------------------------------------------------------------

    def _delta(self, choice: _ChoiceRead, delta: ChatMessage, out: list[Event]) -> None:
        if delta.reasoning is not None or delta.reasoning_content is not None or delta.reasoning_details is not None:
            self._reasoning(choice, delta, out)
            if self.failed:
                return
        content = delta.content
        if content:
            if choice.calls.active:
                self._calls.leave(choice.calls, out)
                if self._calls.failed:
                    self.failed = True
                    return
            if type(content) is str:
                out.append(TextDelta(content, choice.index))
            elif isinstance(content, list):
                self._content_list(choice, content, out)
        if delta.tool_calls or delta.function_call is not None:
            if delta.tool_calls:
                self._calls.read(choice.calls, delta.tool_calls, choice.reasoning, out)
            elif delta.function_call is not None:
                self._calls.read_function(choice.calls, delta.function_call, out)
            if self._calls.failed:
                self.failed = True
                return
        if delta.refusal and isinstance(delta.refusal, str):
            choice.refused = True
            out.append(TextDelta(delta.refusal, choice.index, True))
        if delta.annotations or delta.audio or delta.images:
            self._attachments(choice, delta, out)
        if isinstance(delta.finish_reason, str) and delta.finish_reason:
            self._finish(choice, delta.finish_reason, out)

    def _reasoning(self, choice: _ChoiceRead, delta: ChatMessage, out: list[Event]) -> None:
        before = len(out)
        grew = choice.reasoning.read(delta, out)
        if len(out) > before and choice.calls.active:
            said = out[before:]
            del out[before:]
            self._calls.leave(choice.calls, out)
            if self._calls.failed:
                self.failed = True
                return
            out.extend(said)
        if grew and self._keep_extras:
            mark = {"fields": choice.reasoning.fields, "format": choice.reasoning.format}
            out.insert(before, Extra({REASONING_MARK: mark}, choice.index))

    def _content_list(self, choice: _ChoiceRead, content: list[Any], out: list[Event]) -> None:
        """Mistral's content: chunks of thinking, text and references."""
        for item in content:
            if isinstance(item, str):
                out.append(TextDelta(item, choice.index))
                continue
            if not isinstance(item, dict):
                continue
            kind = item.get("type")
            if kind == "text" or (kind is None and isinstance(item.get("text"), str)):
                if item.get("text"):
                    out.append(TextDelta(str(item["text"]), choice.index))
            elif kind == "thinking":
                self._thinking_chunk(choice, item, out)
            elif kind == "image_url":
                self._images(choice, [item], out)
            else:
                out.append(WholePart(Foreign(kind=str(kind), dialect=NAME, raw=item), choice.index))

    def _thinking_chunk(self, choice: _ChoiceRead, item: dict[str, Any], out: list[Event]) -> None:
        pieces = item.get("thinking")
        for piece in pieces if isinstance(pieces, list) else (pieces,):
            text = piece.get("text") if isinstance(piece, dict) else piece
            if isinstance(text, str) and text:
                out.append(ThinkingDelta(text, choice.index))
        signature = item.get("signature")
        if isinstance(signature, str) and signature:
            state = Opaque(family="mistral", kind="signature", payload=signature)
            out.append(ThinkingDelta(choice=choice.index, signature=state))

    def _attachments(self, choice: _ChoiceRead, delta: ChatMessage, out: list[Event]) -> None:
        if isinstance(delta.annotations, list):
            for entry in delta.annotations:
                if isinstance(entry, dict):
                    out.append(WholePart(citation_of(entry), choice.index))
        if isinstance(delta.images, list):
            self._images(choice, delta.images, out)
        if isinstance(delta.audio, dict) and not self._keep_extras:
            # In its own dialect sound passes in pieces as an extra; for others it is collected.
            kept = choice.audio = choice.audio or {}
            for key, value in delta.audio.items():
                kept[key] = kept[key] + value if isinstance(value, str) and isinstance(kept.get(key), str) else value

    def _images(self, choice: _ChoiceRead, entries: list[Any], out: list[Event]) -> None:
        for entry in entries:
            image = image_of(entry) if isinstance(entry, dict) else None
            if image is not None:
                out.append(WholePart(image, choice.index))

    # -- endings -----------------------------------------------------------------------------------------------------------

    def _closing(self, choice: _ChoiceRead, entry: ChoiceEntry, out: list[Event]) -> None:
        if entry.error:
            return self._fail(out, error_in_answer(msgspec.json.encode({"error": entry.error})))
        if entry.usage is not None:
            self._usage = decode_usage(entry.usage) or self._usage
        if entry.stop_reason is not None or entry.matched_stop is not None:
            for matched in (entry.stop_reason, entry.matched_stop):
                if isinstance(matched, str) and matched and matched not in FINISH_KINDS:
                    choice.stop_sequence = matched
        if isinstance(entry.finish_reason, str) and entry.finish_reason:
            self._finish(choice, entry.finish_reason, out)
        return None

    def _finish(self, choice: _ChoiceRead, reason: str, out: list[Event]) -> None:
        if reason in FINISH_ERRORS:
            kind: ErrorKind = "overloaded" if reason == "insufficient_system_resource" else "upstream"
            return self._fail(out, Error(f"the upstream ended the answer with {reason!r}", kind=kind, code="upstream_error"))
        if not choice.finish or FINISH_KINDS.get(reason) in CUT_KINDS:
            choice.finish = reason
        return None

    def _fail(self, out: list[Event], error: Error) -> None:
        out.append(error)
        self.failed = True

    @property
    def finished(self) -> bool:
        """Has every choice said why it ended?"""
        return bool(self._choices) and all(choice.finish for choice in self._choices.values())

    @property
    def empty(self) -> bool:
        """Was there no choice at all?"""
        return not self._choices

    def end(self, out: list[Event]) -> None:
        """Close what is open and end the answer: the upstream sent everything."""
        choices = self._choices
        called: Collection[int] = ()
        if self._call_reader is not None:
            is_cut = any(_kind(choice) in CUT_KINDS for choice in choices.values())
            self._calls.close([choice.calls for choice in choices.values()], out, cut=is_cut)
            if self._calls.failed:
                self.failed = True
                return
            called = self._calls.called
        for choice in choices.values():
            if choice.reasoning.pending:
                choice.reasoning.close(out)
            if choice.audio is not None:
                out.append(WholePart(_audio(choice.audio), choice.index))
        usage = self._usage or (decode_timings(self._timings) if self._timings is not None else None)
        indexes = sorted(choices)
        for index in indexes:
            choice = choices[index]
            kind = _kind(choice)
            if index in called and kind in ("stop", "stop_sequence"):
                kind = "tool"
            elif kind == "tool" and index not in called:
                kind = "stop"
            last = index == indexes[-1]
            stop_sequence = choice.stop_sequence if kind == "stop_sequence" else None
            out.append(Done(Finish(kind, choice.finish, stop_sequence), index, usage if last else None, last))


def _kind(choice: _ChoiceRead) -> FinishKind:
    kind = FINISH_KINDS.get(choice.finish, "stop")
    if kind == "stop" and choice.stop_sequence is not None:
        return "stop_sequence"
    if kind == "stop" and choice.refused:
        return "refusal"
    return kind


def _unknown(value: object, known: frozenset[str]) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    unknown = {key: item for key, item in value.items() if key not in known and item is not None}
    return unknown or None


def _audio(value: dict[str, Any]) -> Audio:
    data, identity, expires = value.get("data"), value.get("id"), value.get("expires_at")
    return Audio(
        source=Base64("audio/wav", data) if isinstance(data, str) and data else None,
        transcript=value.get("transcript") if isinstance(value.get("transcript"), str) else None,
        id=identity if isinstance(identity, str) else None,
        expires_at=expires if isinstance(expires, int) else None,
        raw=value,
    )


def _chat_usage(value: object) -> object:
    usage = decode_usage(value)
    return None if usage is None else encode_usage(usage, same_dialect=False)


_CONTENT = PlainShape(re.compile(rb'"content": ?(?=")'), plain_content)
_REASONING = PlainShape(re.compile(rb'"reasoning(?:_content)?": ?(?=")'), plain_reasoning)
_LEARNT_INDEXES = 16
"""Calls of one answer whose arguments may take the short way."""


@cache
def _shape_of_arguments(index: int) -> PlainShape:
    return PlainShape(re.compile(rb'"arguments": ?(?=")'), partial(plain_arguments, index=index))


def _arguments(index: int) -> PlainShape | None:
    return _shape_of_arguments(index) if 0 <= index < _LEARNT_INDEXES else None


_MISSES = 8
"""How often a stream may surprise the reader of text-only records before it is read in full for good."""


class ChatStreamDecoder(StreamDecoder):
    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._reader = ChatAnswerReader(context, whole=False)
        self._text_only = not context.keep_extras and not context.profile.merge_choices
        """The last record said nothing but text; the next one most likely does too. So does the first."""
        self._misses = 0
        self._looks_for_arguments = not context.keep_extras
        """Is a record that says nothing but the next arguments of the call that goes on read as such?"""
        self._call: tuple[int, Hashable] | None = None
        """That call: its index and its key."""
        self.reads_each_plain = not context.keep_extras
        """With extras to keep, a record's unknown fields matter: only one with the same bytes around its text has none."""

    def plain_shape(self, event: PlainPiece) -> PlainShape | None:
        if type(event) is ToolCallDelta:
            going_on = self._reader.going_on()
            return _arguments(going_on[0]) if going_on is not None else None
        if not self._reader.only_words:
            return None
        return _CONTENT if type(event) is TextDelta else _REASONING

    def plain_note(self, event: PlainPiece) -> Callable[[str], None] | None:
        return self._reader.note_reasoning if type(event) is ThinkingDelta else None

    def plain_arguments(self) -> PlainArguments | None:
        return self._reader.plain_arguments()

    def record(self, name: str, payload: bytes, out: list[Event]) -> None:
        reader = self._reader
        if self._text_only and not name:
            try:
                chunk = decode_text_only(payload)
            except msgspec.DecodeError:
                self._text_only = False
                if reader.started:
                    self._misses += 1
            else:
                if reader.started or reader.start_with_text(chunk, out):
                    if text := chunk.choices[0].delta.content:
                        out.append(TextDelta(text))
                    return
        if self._call is not None:
            index, key = self._call
            arguments = plain_arguments(name, payload, index=index)
            if arguments is not None:
                reader.more_arguments(key, arguments, out)
                return
            self._call = None
        if payload.startswith(b"[DONE]"):
            if reader.empty:
                self.fail(out, closed_error())
            else:
                reader.end(out)
                self.ended = True
            return
        if name == "error":
            self.fail(out, error_in_answer(payload))
            return
        before = len(out)
        reader.read(decode_chunk(payload), payload, out)
        if reader.failed:
            self.ended = True
        elif len(out) == before + 1 and type(out[before]) is TextDelta and self._misses < _MISSES:
            self._text_only = reader.only_text
        elif self._looks_for_arguments and len(out) > before and type(out[-1]) is ToolCallDelta:
            self._call = reader.going_on()

    @property
    def finished(self) -> bool:
        """Every choice had its finish reason."""
        return self._reader.finished

    def end(self, out: list[Event]) -> None:
        """The bytes ended without `[DONE]`: well only if every choice had its finish reason."""
        lenient = self.context.profile.lenient_end and not self._reader.empty
        if self._reader.finished or lenient:
            self._reader.end(out)
        else:
            self.fail(out, closed_error())


class ChatWholeDecoder(WholeDecoder):
    def whole(self, body: bytes, out: list[Event]) -> None:
        chunk = decode_chunk(body)
        reader = ChatAnswerReader(self.context, whole=True)
        if not chunk.choices and not chunk.error and chunk.object != "error":
            if _read_blocks(body, chunk, reader, out):
                return
            out.append(protocol_error("the answer has no choices", body))
            return
        entries = chunk.choices or []
        if not chunk.error and any(not (entry.message or entry.delta or entry.error) for entry in entries):
            out.append(protocol_error("a choice of the answer has no message", body))
            return
        reader.read(chunk, body, out)
        if not reader.failed:
            reader.end(out)


def _read_blocks(body: bytes, chunk: Chunk, reader: ChatAnswerReader, out: list[Event]) -> bool:
    """Copilot answers for some models with Anthropic's content blocks and no choices."""
    value = decode_value(body)
    blocks = value.get("content")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        return False
    message = ChatMessage(tool_calls=[])
    text: list[str] = []
    for block in blocks:
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            text.append(block["text"])
        elif block.get("type") == "tool_use" and isinstance(block.get("name"), str):
            arguments = msgspec.Raw(msgspec.json.encode(block.get("input") or {}))
            assert message.tool_calls is not None
            message.tool_calls.append(CallEntry(id=block.get("id"), function=FunctionEntry(block["name"], arguments)))
        else:
            return False
    message.content = "".join(text)
    reason = value.get("stop_reason")
    entry = ChoiceEntry(message=message, finish_reason=reason if isinstance(reason, str) else "stop")
    reader.read(msgspec.structs.replace(chunk, choices=[entry], usage=_chat_usage(chunk.usage)), b"{}", out)
    if not reader.failed:
        reader.end(out)
    return True
