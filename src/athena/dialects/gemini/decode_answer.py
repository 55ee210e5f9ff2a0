"""Gemini's answers as events, streamed and whole.

A chunk holds new parts only. Calls arrive whole, so each becomes start, arguments and end at once, with the model's own JSON
text as arguments. The body's end is the only terminator: finish reasons and usage are kept until then, the last one wins.

Wire facts: docs/reference/wire-facts.md#gemini-answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec

from athena.calls.ids import synthesized_id
from athena.calls.tracker import ToolCallTracker
from athena.dialects.base import DecodeContext
from athena.dialects.decoders import UNREADABLE, StreamDecoder, WholeDecoder, closed_error, protocol_error, token_count
from athena.dialects.gemini.citations import citations_of
from athena.dialects.gemini.decode_contents import decode_media, foreign
from athena.dialects.gemini.errors import decode_error
from athena.dialects.gemini.framing import ArrayDecoder, Framing
from athena.dialects.gemini.partial_arguments import PartialArg, PartialArguments
from athena.dialects.gemini.signatures import native
from athena.dialects.gemini.spelling import EitherCase
from athena.dialects.plain_reads import PlainShape
from athena.errors import AthenaError, InvalidRequest
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
    Usage,
    WholePart,
    error_event,
    is_failure,
)
from athena.model.parts import Opaque

FINISH_KINDS: dict[str, FinishKind] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "filter",
    "RECITATION": "filter",
    "LANGUAGE": "filter",
    "OTHER": "filter",
    "BLOCKLIST": "filter",
    "PROHIBITED_CONTENT": "filter",
    "SPII": "filter",
    "IMAGE_SAFETY": "filter",
    "IMAGE_PROHIBITED_CONTENT": "filter",
    "IMAGE_RECITATION": "filter",
    "IMAGE_OTHER": "filter",
    "NO_IMAGE": "filter",
    "MALFORMED_FUNCTION_CALL": "malformed",
    "UNEXPECTED_TOOL_CALL": "malformed",
    "TOO_MANY_TOOL_CALLS": "malformed",
    "MALFORMED_RESPONSE": "malformed",
    "MISSING_THOUGHT_SIGNATURE": "malformed",
    "CONTINUATION": "continuation",
}
_NOTHING = msgspec.Raw()
_EXTRA_FIELDS = (
    "citation_metadata", "grounding_metadata", "safety_ratings", "logprobs_result", "avg_logprobs", "url_context_metadata",
    "token_count", "finish_message",
)  # fmt: skip


class _FunctionCall(msgspec.Struct, rename="camel"):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = _NOTHING
    partial_args: list[PartialArg] | None = None
    will_continue: bool | None = None


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    index: int | None = None
    content: _Content | None = None
    finish_reason: str | None = None
    citation_metadata: msgspec.Raw = _NOTHING
    grounding_metadata: msgspec.Raw = _NOTHING
    safety_ratings: msgspec.Raw = _NOTHING
    logprobs_result: msgspec.Raw = _NOTHING
    avg_logprobs: msgspec.Raw = _NOTHING
    url_context_metadata: msgspec.Raw = _NOTHING
    token_count: msgspec.Raw = _NOTHING
    finish_message: msgspec.Raw = _NOTHING
    continuation_token: str | None = None


class _Response(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: msgspec.Raw = _NOTHING
    prompt_feedback: msgspec.Raw = _NOTHING
    model_version: str | None = None
    response_id: str | None = None
    create_time: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


class _Modality(msgspec.Struct, rename="camel"):
    modality: str | None = None
    token_count: int | None = None


class _Counts(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    prompt_tokens_details: list[_Modality] | None = None
    candidates_tokens_details: list[_Modality] | None = None


class _OnlyCall(_FunctionCall, forbid_unknown_fields=True):
    pass


class _OnlyPart(_Part, forbid_unknown_fields=True, rename="camel"):
    function_call: _OnlyCall | None = None
    inline_data: msgspec.Raw = _NOTHING
    file_data: msgspec.Raw = _NOTHING
    executable_code: msgspec.Raw = _NOTHING
    code_execution_result: msgspec.Raw = _NOTHING
    tool_call: msgspec.Raw = _NOTHING
    tool_response: msgspec.Raw = _NOTHING


class _OnlyContent(_Content, forbid_unknown_fields=True):
    parts: list[_OnlyPart] | None = None  # type: ignore[assignment]  # read, never written
    role: msgspec.Raw = _NOTHING


class _OnlyCandidate(_Candidate, forbid_unknown_fields=True, rename="camel"):
    content: _OnlyContent | None = None


class _OnlyResponse(_Response, forbid_unknown_fields=True, rename="camel"):
    candidates: list[_OnlyCandidate] | None = None  # type: ignore[assignment]  # read, never written


class _PlainPart(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    text: str
    thought: bool | None = None


class _PlainContent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    parts: tuple[_PlainPart]
    role: Any = None


class _PlainCandidate(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    content: _PlainContent
    index: Literal[0] = 0


class _PlainResponse(msgspec.Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    """A chunk that holds one piece of text or thinking, and counts that the next one replaces."""

    candidates: tuple[_PlainCandidate]
    usage_metadata: msgspec.Raw = _NOTHING
    model_version: str | None = None
    response_id: str | None = None
    create_time: msgspec.Raw = _NOTHING


_PLAIN = msgspec.json.Decoder(_PlainResponse)
_TEXT = re.compile(rb'"text": ?(?=")')
_RESPONSES = msgspec.json.Decoder(_Response)
_KNOWN_RESPONSES = msgspec.json.Decoder(_OnlyResponse)
"""The same, refusing whatever is not known: reading into it is the check for unknown fields."""
_MISSES = 8
"""How many chunks with unknown fields are looked at closely; a stream in which all have some is not read twice for good."""
_COUNTS = msgspec.json.Decoder(_Counts, strict=False)


class _CandidateRead:
    """What is known of one candidate."""

    __slots__ = ("cited", "completed", "finish", "held", "last", "message", "partial", "signed", "token")

    def __init__(self) -> None:
        self.finish: str | None = None
        self.token: str | None = None
        self.message: str | None = None
        """What the upstream says about the finish."""
        self.last = ""
        """Kind of the last part: text, thinking, call or another."""
        self.signed = False
        """A call of this step carries its signature."""
        self.held: list[int] = []
        """Keys of the step's calls while the signature of the first may still come."""
        self.partial: tuple[int, PartialArguments] | None = None
        self.completed = False
        self.cited: set[tuple[str, str | None]] = set()


class GeminiAnswerReader:
    """Chunks to events; the stream's and the whole body's decoder both use it."""

    def __init__(self, context: DecodeContext) -> None:
        self._context = context
        self._tracker = ToolCallTracker(
            new_id=lambda number: synthesized_id(context.seed, number), limits=context.limits, mend=context.mend
        )
        self._choices: dict[int, _CandidateRead] = {}
        self._odd_first = -1
        """A number too high that the first candidate has instead of 0."""
        self._started = False
        self._usage = self._plain_usage = _NOTHING
        self._blocked: dict[str, Any] | None = None
        self._keys = 0
        self._looks = _MISSES if context.losses is not None else 0
        """How many chunks with unknown fields are still to be looked at."""
        self.failed = False

    def chunk(self, payload: bytes, out: list[Event]) -> None:
        """One chunk of a stream, or the whole body."""
        response, payload = self._read(payload, out)
        if _given(response.error):
            self.fail(out, decode_error(200, {}, payload))
            return
        if not self._started:
            self._started = True
            out.append(Start(id=response.response_id or "", model=response.model_version or ""))
            if self._context.keep_extras and _given(response.create_time):
                out.append(Extra({"createTime": msgspec.json.decode(response.create_time)}))
        if len(response.usage_metadata) > 4:
            self._usage = response.usage_metadata
        if _given(response.prompt_feedback):
            self._feedback(response.prompt_feedback, out)
        for position, candidate in enumerate(response.candidates or ()):
            self._candidate(candidate, position, payload, out)
            if self.failed:
                return

    def plain(self, thought: bool, name: str, payload: bytes) -> str | None:
        """The text of a chunk that brings nothing else but counts. Those are kept until `note_plain`."""
        try:
            response = _PLAIN.decode(payload)
        except UNREADABLE:
            return None
        part = response.candidates[0].content.parts[0]
        if bool(part.thought) is not thought:
            return None
        self._plain_usage = response.usage_metadata
        return part.text

    def note_plain(self, text: str) -> None:
        """The chunk that was last read by `plain` counts."""
        if len(self._plain_usage) > 4:
            self._usage = self._plain_usage

    def is_plain_after(self, kind: str) -> bool:
        """Would another piece like the last, which was of this kind, change nothing else?"""
        choice = self._choices.get(0)
        return choice is not None and choice.last == kind and not choice.held and not self.failed

    def _read(self, payload: bytes, out: list[Event]) -> tuple[_Response, bytes]:
        if self._looks:
            try:
                return _KNOWN_RESPONSES.decode(payload), payload
            except msgspec.DecodeError:
                self._looks -= 1
                value = self._decoded(payload)
                if isinstance(value, dict):
                    self._note_unknown(value, out)
        return _RESPONSES.decode(payload), payload

    def _decoded(self, payload: bytes) -> Any:
        try:
            return msgspec.json.decode(payload)
        except msgspec.DecodeError:
            return None  # the reading proper says what is wrong with it

    def _note_unknown(self, value: dict[str, Any], out: list[Event]) -> None:
        """Unread fields: at home those of the response and of candidates go along, all others are noted."""
        losses, home = self._context.losses, self._context.keep_extras
        if losses is None:
            return
        extras = _unknown(value, _OnlyResponse)
        if extras and home:
            out.append(Extra(extras))
        elif extras:
            losses.unknown(extras, ())
        candidates = value.get("candidates")
        for entry in candidates if isinstance(candidates, list) else ():
            extras = _unknown(entry, _OnlyCandidate)
            if extras and home:
                out.append(Extra(extras, entry.get("index") or 0))
            elif extras:
                losses.unknown(extras, (), "candidate")
            content = entry.get("content") if isinstance(entry, dict) else None
            parts = content.get("parts") if isinstance(content, dict) else None
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, dict) and ("text" in part or "functionCall" in part):
                    # Any other part is handed on whole.
                    losses.unknown(_unknown(part, _OnlyPart), (), "part")
                    losses.unknown(_unknown(part.get("functionCall"), _OnlyCall), (), "functionCall")

    def fail(self, out: list[Event], error: Error) -> None:
        """End the answer with an error."""
        out.append(error)
        self.failed = True

    @property
    def finished(self) -> bool:
        """Has every candidate said why it ended?"""
        return bool(self._choices) and all(choice.finish is not None for choice in self._choices.values())

    def end(self, out: list[Event]) -> None:
        """The bytes ended: the terminal events."""
        if self.failed:
            return
        if not self._choices and self._blocked is not None:
            reason = str(self._blocked.get("blockReason"))
            details = {"promptFeedback": self._blocked}
            out.append(Done(Finish("filter", reason, details=details), usage=self._read_usage()))
            return
        lenient = self._context.profile.lenient_end
        if not self._choices or any(choice.finish is None and not lenient for choice in self._choices.values()):
            self.fail(out, closed_error())
            return
        if self._end_open_calls(out):
            self._done(out)

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _done(self, out: list[Event]) -> None:
        last = max(self._choices)
        for index in sorted(self._choices):
            choice = self._choices[index]
            kind = _kind(choice)
            if kind == "stop" and choice.completed:
                kind = "tool"
            details = {"continuation": choice.token, "malformed": choice.message}.get(kind)
            finish = Finish(kind, choice.finish or "", details=details)
            out.append(Done(finish, index, usage=self._read_usage() if index == last else None, last=index == last))

    def _candidate(self, candidate: _Candidate, position: int, payload: bytes, out: list[Event]) -> None:
        index = max(candidate.index or 0, 0)
        if index == self._odd_first or (0 < self._context.choices <= index and 0 not in self._choices):
            self._odd_first, index = index, 0
        choice = self._choices.get(index)
        if choice is None:
            if 0 < self._context.choices <= index:
                return
            choice = self._choices[index] = _CandidateRead()
        content = candidate.content
        if content is not None and content.parts:
            for number, part in enumerate(content.parts):
                if part.text and not part.thought_signature and not choice.held and part.function_call is None:
                    # Nearly every part of every stream.
                    if part.thought:
                        choice.last = "thinking"
                        out.append(ThinkingDelta(part.text, index))
                    else:
                        choice.last = "text"
                        out.append(TextDelta(part.text, index))
                elif part.function_call is not None:
                    self._call(part, index, choice, out)
                elif part.text is not None or part.thought_signature:
                    self._text(part, index, choice, out)
                else:
                    self._rare(payload, position, number, index, choice, out)
                if self.failed:
                    return
        if candidate.finish_reason and not candidate.finish_reason.upper().endswith("UNSPECIFIED"):
            choice.finish = candidate.finish_reason.upper()
        choice.token = candidate.continuation_token or choice.token
        if len(candidate.finish_message):
            self._finish_message(candidate.finish_message, choice)
        if self._context.keep_extras:
            self._extras(candidate, index, out)
        elif len(candidate.grounding_metadata) or len(candidate.citation_metadata):
            self._citations(candidate, index, choice, out)
        if len(candidate.logprobs_result) or len(candidate.url_context_metadata):
            self._note_rare(candidate)

    def _text(self, part: _Part, index: int, choice: _CandidateRead, out: list[Event]) -> None:
        text = part.text or ""
        signature = native(part.thought_signature) if part.thought_signature else None
        if not text:
            if signature is not None:
                self._late_signature(part, signature, index, choice, out)
            return
        self._release(choice, out)
        if self.failed:
            return
        if part.thought:
            choice.last = "thinking"
            out.append(ThinkingDelta(text, index, signature))
        else:
            choice.last = "text"
            out.append(TextDelta(text, index, signature=signature))

    def _late_signature(self, part: _Part, signature: Opaque, index: int, choice: _CandidateRead, out: list[Event]) -> None:
        """A signature on an empty part belongs to what came before it."""
        if choice.held:
            self._tracker.start_call(None, None, choice.held[0], signature=signature)
            choice.signed = True
            self._release(choice, out)
        elif choice.last == "thinking" or part.thought:
            out.append(ThinkingDelta("", index, signature))
            choice.last = "signed"
        else:
            out.append(TextDelta("", index, signature=signature))

    def _call(self, part: _Part, index: int, choice: _CandidateRead, out: list[Event]) -> None:
        call = part.function_call
        assert call is not None
        signature = native(part.thought_signature) if part.thought_signature else None
        if choice.last != "call":
            choice.signed = False
        choice.last = "call"
        if choice.partial is not None and not call.name:
            self._continue(call, choice, out)
            return
        if not call.name:
            self.fail(out, protocol_error("a function call has no name"))
            return
        self._end_partial_call(choice, out)
        key = self._keys
        self._keys += 1
        start = self._tracker.start_call(call.id or "", call.name, key, choice=index, signature=signature)
        self._tracker.open(out, start)
        if call.partial_args is not None or call.will_continue:
            choice.partial = (key, PartialArguments())
            self._continue(call, choice, out)
            return
        arguments = bytes(call.args).decode() if len(call.args) else ""
        self._tracker.append(out, key, "" if arguments == "null" else arguments)
        if signature is not None or choice.signed:
            choice.signed = True
            self._release(choice, out)
            if not self.failed:
                self._complete(key, choice, out)
        else:
            choice.held.append(key)

    def _continue(self, call: _FunctionCall, choice: _CandidateRead, out: list[Event]) -> None:
        assert choice.partial is not None
        key, arguments = choice.partial
        for piece in call.partial_args or ():
            arguments.add(piece)
        if not call.will_continue:
            choice.partial = None
            self._tracker.append(out, key, arguments.text())
            self._complete(key, choice, out)

    def _complete(self, key: int, choice: _CandidateRead, out: list[Event]) -> None:
        self._tracker.write_complete(out, key)
        last = out[-1] if out else None
        if is_failure(last):
            self.failed = True
        else:
            choice.completed = True

    def _release(self, choice: _CandidateRead, out: list[Event]) -> None:
        """End the calls that waited for a signature."""
        for key in choice.held:
            self._complete(key, choice, out)
            if self.failed:
                break
        choice.held.clear()

    def _end_partial_call(self, choice: _CandidateRead, out: list[Event]) -> None:
        """A call given value by value that never ended: its last bracket is missing, as it is in the model's mind."""
        if choice.partial is not None:
            key, arguments = choice.partial
            choice.partial = None
            self._tracker.append(out, key, arguments.text()[:-1])

    def _end_open_calls(self, out: list[Event]) -> bool:
        """End every call that is still open; False when one of them cannot be ended well."""
        written = len(out)
        for choice in self._choices.values():
            self._release(choice, out)
            self._end_partial_call(choice, out)
        cut = all(_kind(choice) == "length" for choice in self._choices.values())
        self._tracker.close_all(out, cut=cut)
        for position in range(written, len(out)):
            event = out[position]
            if is_failure(event):
                del out[position + 1 :]
                self.failed = True
                return False
        return True

    def _rare(self, payload: bytes, position: int, number: int, index: int, choice: _CandidateRead, out: list[Event]) -> None:
        """Code, server tools, generated images: read as plain JSON, because they are rare in streams."""
        value = msgspec.json.decode(payload)["candidates"][position]["content"]["parts"][number]
        if not isinstance(value, dict) or not value or set(value) <= {"text", "thought"}:
            return
        self._release(choice, out)
        if self.failed:
            return
        choice.last = "other"
        fields = EitherCase(value)
        kind = next((kind for kind in ("inlineData", "fileData") if fields.has(kind)), None)
        try:
            out.append(WholePart(decode_media(fields, kind) if kind else foreign(value), index))
        except InvalidRequest:
            out.append(WholePart(foreign(value), index))

    def _extras(self, candidate: _Candidate, index: int, out: list[Event]) -> None:
        fields = {
            _WIRE_NAMES[name]: msgspec.json.decode(value) for name in _EXTRA_FIELDS if _given(value := getattr(candidate, name))
        }
        if fields:
            out.append(Extra(fields, index))

    def _finish_message(self, raw: msgspec.Raw, choice: _CandidateRead) -> None:
        """What the upstream says about the finish: it is shown where the finish is an error."""
        losses = None if self._context.keep_extras else self._context.losses
        if _kind(choice) == "malformed":
            message = msgspec.json.decode(raw)
            choice.message = message if isinstance(message, str) else None
        elif losses is not None and _given(raw):
            losses.drop("finishMessage", "a field that only the upstream's dialect has", minor=True)

    def _note_rare(self, candidate: _Candidate) -> None:
        losses = None if self._context.keep_extras else self._context.losses
        if losses is not None and _given(candidate.logprobs_result):
            losses.drop("logprobs", "log probabilities have no counterpart here")
        if losses is not None and _given(candidate.url_context_metadata):
            losses.drop("urlContextMetadata", "a field that only the upstream's dialect has", minor=True)

    def _citations(self, candidate: _Candidate, index: int, choice: _CandidateRead, out: list[Event]) -> None:
        for value in (candidate.grounding_metadata, candidate.citation_metadata):
            if not _given(value):
                continue
            if self._context.losses is not None:
                self._context.losses.drop("sources", "only their addresses and titles travel", minor=True)
            for citation in citations_of(msgspec.json.decode(value)):
                known = (citation.url or "", citation.quote)
                if known not in choice.cited:
                    choice.cited.add(known)
                    out.append(WholePart(citation, index))

    def _feedback(self, raw: msgspec.Raw, out: list[Event]) -> None:
        feedback = msgspec.json.decode(raw)
        if self._context.losses is not None and not self._context.keep_extras:
            self._context.losses.unknown(feedback, ("blockReason", "safetyRatings"), "promptFeedback")
        if isinstance(feedback, dict) and isinstance(feedback.get("blockReason"), str) and feedback["blockReason"]:
            self._blocked = feedback
        elif feedback and self._context.keep_extras:
            out.append(Extra({"promptFeedback": feedback}))

    def _read_usage(self) -> Usage | None:
        if not len(self._usage):
            return None
        try:
            counts, raw = _COUNTS.decode(self._usage), msgspec.json.decode(self._usage)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Unreadable counts are no reason to drop an answer.
            return None
        prompt, tools = token_count(counts.prompt_token_count), token_count(counts.tool_use_prompt_token_count)
        thoughts = token_count(counts.thoughts_token_count)
        return Usage(
            input_total=prompt + tools,
            output_total=token_count(counts.candidates_token_count) + thoughts,
            cache_read=token_count(counts.cached_content_token_count),
            reasoning=thoughts,
            audio_in=_audio(counts.prompt_tokens_details),
            audio_out=_audio(counts.candidates_tokens_details),
            tool_prompt=tools,
            raw=raw,
        )


_WIRE_NAMES = dict(zip(_Candidate.__struct_fields__, _Candidate.__struct_encode_fields__, strict=True))


def _unknown(value: Any, known: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of an object that are none of the struct's."""
    if not isinstance(value, dict):
        return {}
    return {key: item for key, item in value.items() if key not in known.__struct_encode_fields__ and item is not None}


def _given(value: msgspec.Raw) -> bool:
    size = len(value)
    return size > 4 or (size > 0 and bytes(value) != b"null")


def _kind(choice: _CandidateRead) -> FinishKind:
    """What the finish reason means. A word that is not known is a plain end, unless nothing came before it."""
    return FINISH_KINDS.get(choice.finish or "STOP", "stop" if choice.last else "malformed")


def _audio(details: list[_Modality] | None) -> int:
    return sum(token_count(entry.token_count) for entry in details or () if entry.modality == "AUDIO")


class GeminiStreamDecoder(StreamDecoder):
    """Streamed answers, as events or as one JSON array."""

    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._sse = Framing(context.limits.event_bytes)
        self._reader = GeminiAnswerReader(context)
        self._text_shape = PlainShape(_TEXT, partial(self._reader.plain, False))
        self._thinking_shape = PlainShape(_TEXT, partial(self._reader.plain, True))

    reads_each_plain = True
    """The counts of tokens grow with every record."""

    def plain_shape(self, event: PlainPiece) -> PlainShape | None:
        is_text = type(event) is TextDelta
        if not self._reader.is_plain_after("text" if is_text else "thinking"):
            return None
        return self._text_shape if is_text else self._thinking_shape

    def plain_note(self, event: PlainPiece) -> Callable[[str], None] | None:
        return self._reader.note_plain

    def record(self, name: str, payload: bytes, out: list[Event]) -> None:
        self._reader.chunk(payload, out)
        self.ended = self._reader.failed

    @property
    def finished(self) -> bool:
        """Every candidate had its finish reason."""
        return self._reader.finished

    def end(self, out: list[Event]) -> None:
        """The body's end is the answer's end."""
        self._reader.end(out)
        self.ended = True


class GeminiWholeDecoder(WholeDecoder):
    """Whole answers; an array of chunks counts as one."""

    def whole(self, body: bytes, out: list[Event]) -> None:
        reader = GeminiAnswerReader(self.context)
        payloads = [body]
        if body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
            payloads = [payload for _, payload in ArrayDecoder(self.context.limits.answer_bytes).feed(body)]
        try:
            for payload in payloads:
                reader.chunk(payload, out)
                if reader.failed:
                    return
            reader.end(out)
        except AthenaError as error:
            reader.fail(out, error_event(error))
