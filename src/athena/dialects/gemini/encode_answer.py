"""Events as Gemini answers: streamed chunks, a JSON array, or one body.

The vendor's SDKs are strict: a stream is `data: {json}` and blank lines, nothing else. The python SDK also cuts lines at
U+0085, U+2028 and U+2029, so these are escaped. Calls leave whole, when they are complete.

Wire facts: docs/reference/wire-facts.md#writing-gemini-streams.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

import msgspec

from athena.calls.builder import AnswerBuilder
from athena.calls.ids import hashed
from athena.calls.sequence import OneCallAtATime
from athena.dialects.base import EncodeContext
from athena.dialects.gemini.citations import grounding_of
from athena.dialects.gemini.decode_answer import FINISH_KINDS
from athena.dialects.gemini.encode_contents import audio_mime
from athena.dialects.gemini.errors import encode_error, error_object
from athena.dialects.gemini.signatures import digest_of, write_slot, write_thinking_slot
from athena.dialects.plain_reads import PlainFrame
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
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    WholePart,
    is_terminal,
)
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
from athena.opaque import is_envelope
from athena.wire.surrogates import encode_json

_REASONS: dict[FinishKind, str] = {
    "stop": "STOP",
    "stop_sequence": "STOP",
    "tool": "STOP",
    "length": "MAX_TOKENS",
    "context": "MAX_TOKENS",
    "refusal": "SAFETY",
    "filter": "SAFETY",
    "pause": "STOP",
    "continuation": "CONTINUATION",
    "malformed": "MALFORMED_FUNCTION_CALL",
}
DECLINED = "The model declined to answer."
"""Shown where a refusal came without text: clients ask again and again for an answer without text."""

_SEPARATORS = ((b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"), (b"\xc2\x85", rb"\u0085"))


def _one_line(payload: bytes) -> bytes:
    """JSON that no reader of lines cuts in two."""
    for raw, escaped in _SEPARATORS:
        if raw in payload:
            payload = payload.replace(raw, escaped)
    return payload


def answer_id(context: EncodeContext, start: Start | None) -> str:
    """The upstream's own id at home, else one made from the seed."""
    if context.same_dialect and start is not None and start.id:
        return start.id
    return hashed(f"gemini/{context.seed}")


def answer_model(context: EncodeContext, start: Start | None) -> str:
    """What the client asked for; at home what the upstream says it is."""
    return (start.model if context.same_dialect and start is not None else "") or context.request.model


def call_json(call: ToolCall | ToolCallComplete, slot: str | None) -> bytes:
    """A call as a part. The arguments are the model's own JSON; raw line ends in it can only be whitespace."""
    arguments = call.arguments.replace("\r", " ").replace("\n", " ").encode("utf-8", "replace")
    if call.kind == "custom":
        arguments = b'{"input":%b}' % encode_json(call.arguments)
    signed = b"" if slot is None else b',"thoughtSignature":%b' % encode_json(slot)
    return b'{"functionCall":{"id":%b,"name":%b,"args":%b}%b}' % (
        encode_json(call.id),
        encode_json(call.name),
        arguments or b"{}",
        signed,
    )


def usage_object(usage: Usage, context: EncodeContext) -> dict[str, Any]:
    """`usageMetadata`: thoughts are counted beside the candidates, the prompts of tools beside the prompt."""
    if context.same_dialect and usage.raw is not None:
        return usage.raw
    prompt = usage.input_total - usage.tool_prompt
    candidates = max(0, usage.output_total - usage.reasoning)
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": candidates}
    for key, value in (
        ("cachedContentTokenCount", usage.cache_read),
        ("thoughtsTokenCount", usage.reasoning),
        ("toolUsePromptTokenCount", usage.tool_prompt),
    ):
        if value:
            counts[key] = value
    counts["totalTokenCount"] = prompt + candidates + usage.reasoning + usage.tool_prompt
    return counts


def shown_usage(usage: Usage | None, context: EncodeContext) -> Usage | None:
    """The upstream's counts, else our estimate of the prompt."""
    if usage is None and context.input_tokens:
        return Usage(input_total=context.input_tokens, estimated=True)
    return usage


def finish_reason(finish: Finish, context: EncodeContext) -> str:
    """Gemini's own word where it was the upstream's, else its word for our kind."""
    if context.same_dialect and finish.raw and (finish.raw in FINISH_KINDS or finish.kind in ("stop", "malformed")):
        return finish.raw
    return _REASONS[finish.kind]


def media_object(part: Part, context: EncodeContext) -> dict[str, Any] | None:
    """A part that came in one piece (an image, sound, a document); None for what has no form of one here, which is noted."""
    if context.same_dialect and isinstance(part, Image | Document | Audio | Video) and isinstance(part.raw, dict):
        return part.raw
    match part:
        case Foreign(dialect="gemini", raw=dict() as own):
            return own
        case Foreign():
            context.losses.drop(part.kind, "means something only to the upstream's own clients")
        case Image(source=Base64() as source) | Document(source=Base64() as source) | Video(source=Base64() as source):
            return {"inlineData": {"mimeType": source.mime or "application/octet-stream", "data": source.data}}
        case Audio(source=Base64() as source):
            if part.transcript:
                context.losses.drop("audio.transcript", "sound has no transcript here", minor=True)
            return {"inlineData": {"mimeType": source.mime or audio_mime(part), "data": source.data}}
        case Image(source=Url() as link) | Document(source=Url() as link) | Video(source=Url() as link):
            return {"fileData": {"mimeType": link.mime or "image/*", "fileUri": link.url}}
        case Audio(transcript=str() as transcript) if transcript:
            context.losses.emulate("audio", "shown as its transcript")
            return {"text": transcript}
        case Text() | Refusal():
            return {"text": msgspec.Raw(encode_json(part.text))} if part.text else None
        case Image() | Document() | Audio() | Video() | Thinking() | ToolCall() | ToolResult() | Citation():
            context.losses.drop(type(part).__name__.lower(), "answers hold no such content here")
        case _:
            assert_never(part)
    return None


def _declined(finish: Finish) -> str:
    """What to show for a refusal without text: its explanation, where the upstream gave one."""
    told = finish.details.get("explanation") if isinstance(finish.details, dict) else None
    return told if isinstance(told, str) and told else DECLINED


def _note_explanation(finish: Finish, context: EncodeContext) -> None:
    """A refusal after text: there is no place for its reason beside the text."""
    if not context.same_dialect and _declined(finish) != DECLINED:
        context.losses.drop("explanation", "the reason of a refusal has no place beside its text", minor=True)


class _CandidateWritten:
    """What has been shown of one candidate."""

    __slots__ = ("after", "before", "citations", "declined", "digest", "owed", "visible")

    def __init__(self, index: int, tail: bytes) -> None:
        self.before = b'{"candidates":[{"content":{"role":"model","parts":['
        self.after = b']},"index":%d}]%b' % (index, tail)
        self.visible = False
        """Has the client anything to show or to run?"""
        self.digest = hashlib.sha256()
        self.owed: Opaque | None = None
        """A foreign signature of the thinking so far, to go out with the next part."""
        self.citations: list[Citation] = []

    def take_slot(self, own: Opaque | None) -> str | None:
        """The slot of the next part: its own signature, else that of the thinking before it."""
        if own is not None:
            return write_slot(own)
        if self.owed is None:
            return None
        slot = write_thinking_slot(self.owed, self.digest.hexdigest()[:16])
        self.owed = None
        self.digest = hashlib.sha256()
        return slot


class GeminiStreamEncoder:
    """Streamed answers: events, or one JSON array for clients that did not ask for `alt=sse`."""

    def __init__(self, context: EncodeContext) -> None:
        self._context = context
        self._start: Start | None = None
        self._choices: dict[int, _CandidateWritten] = {}
        self._extras: dict[str, Any] = {}
        self._wrote = False
        self._ended = False
        self._tail: bytes | None = None
        self._sequence = OneCallAtATime()

    def feed(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        # Calls leave when they are complete, in the order in which they began.
        for event in self._sequence.feed(events):
            if self._ended:
                break
            match event:
                case TextDelta():
                    self._text(event, out)
                case ToolCallStart() | ToolCallDelta():
                    pass  # a call leaves when it is complete
                case ThinkingDelta():
                    self._thinking(event, out)
                case ToolCallComplete():
                    choice = self._choice(event.choice)
                    choice.visible = True
                    self._part(call_json(event, choice.take_slot(event.signature)), choice, out)
                case Done():
                    self._done(event, out)
                case WholePart():
                    self._whole(event, out)
                case Extra():
                    self._extra(event, out)
                case Start():
                    self._start = event
                case Error():
                    if event.fatal:
                        self._frame(_one_line(encode_json(error_object(event))), out)
                        self._close(out)
                case KeepAlive():
                    pass  # the vendor's SDKs take nothing in a stream but answers
                case _:
                    assert_never(event)
        return b"".join(out)

    def plain_writer(self, event: PlainPiece) -> Callable[[str], bytes] | None:
        """What writes more text of a choice that owes no signature."""
        choice = self._choices.get(event.choice)
        if choice is None or self._ended or choice.owed is not None or type(event) is not TextDelta:
            return None
        return partial(self._more_text, choice)

    def plain_frame(self, event: PlainPiece) -> PlainFrame | None:
        return None  # written by `_part`, which knows what else the chunk holds

    def _more_text(self, choice: _CandidateWritten, text: str) -> bytes:
        choice.visible = choice.visible or bool(text.strip())
        out: list[bytes] = []
        self._part(b'{"text":%b}' % encode_json(text), choice, out)
        return b"".join(out)

    # -- parts ---------------------------------------------------------------------------------------------------------------

    def _text(self, event: TextDelta, out: list[bytes]) -> None:
        choice = self._choice(event.choice)
        if not event.text and event.signature is None:
            return
        slot = choice.take_slot(event.signature) if event.signature is not None or choice.owed is not None else None
        choice.visible = choice.visible or bool(event.text.strip())
        text = encode_json(event.text)
        if slot is None:
            self._part(b'{"text":%b}' % text, choice, out)
        else:
            self._part(b'{"text":%b,"thoughtSignature":%b}' % (text, encode_json(slot)), choice, out)

    def _thinking(self, event: ThinkingDelta, out: list[bytes]) -> None:
        choice = self._choice(event.choice)
        if choice.owed is not None:
            # A second block of thinking: the first one's signature can wait no longer.
            self._empty(choice, out)
        signature = event.signature
        foreign = signature is not None and is_envelope(signature.payload)
        if event.text:
            choice.digest.update(event.text.encode("utf-8", "surrogatepass"))
            signed = b""
            if signature is not None and not foreign:
                signed = b',"thoughtSignature":%b' % encode_json(write_slot(signature))
            self._part(b'{"thought":true,"text":%b%b}' % (encode_json(event.text), signed), choice, out)
        elif signature is not None and not foreign:
            self._part(b'{"text":"","thoughtSignature":%b}' % encode_json(write_slot(signature)), choice, out)
        if foreign:
            choice.owed = signature
        elif signature is not None:
            choice.digest = hashlib.sha256()

    def _empty(self, choice: _CandidateWritten, out: list[bytes]) -> None:
        """The signature that is owed, on a part of its own."""
        slot = choice.take_slot(None)
        self._part(b'{"thought":true,"text":"","thoughtSignature":%b}' % encode_json(slot), choice, out)

    def _whole(self, event: WholePart, out: list[bytes]) -> None:
        choice = self._choice(event.choice)
        if isinstance(event.part, Citation):
            choice.citations.append(event.part)
            return
        value = media_object(event.part, self._context)
        if value is not None:
            choice.visible = True
            self._part(encode_json(value), choice, out)

    def _extra(self, event: Extra, out: list[bytes]) -> None:
        if not self._context.same_dialect:
            return
        if event.choice is None:
            self._extras.update(event.fields)
            return
        candidate = {**event.fields, "index": event.choice}
        self._frame(_one_line(b'{"candidates":[%b]%b' % (encode_json(candidate), self._ending())), out)

    # -- frames --------------------------------------------------------------------------------------------------------------

    def _choice(self, index: int) -> _CandidateWritten:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _CandidateWritten(index, self._ending())
        return choice

    def _ending(self) -> bytes:
        if self._tail is None:
            model = encode_json(answer_model(self._context, self._start))
            self._tail = b',"modelVersion":%b,"responseId":%b}' % (model, encode_json(answer_id(self._context, self._start)))
        return self._tail

    def _part(self, part: bytes, choice: _CandidateWritten, out: list[bytes]) -> None:
        self._frame(_one_line(choice.before + part + choice.after), out)

    def _frame(self, payload: bytes, out: list[bytes]) -> None:
        if self._context.array:
            out.append(b",\r\n" if self._wrote else b"[")
            out.append(payload)
        else:
            out.append(b"data: %b\r\n\r\n" % payload)
        self._wrote = True

    def _close(self, out: list[bytes]) -> None:
        self._ended = True
        if self._context.array:
            out.append(b"]" if self._wrote else b"[]")

    def _done(self, event: Done, out: list[bytes]) -> None:
        choice = self._choice(event.choice)
        if choice.owed is not None:
            self._empty(choice, out)
        if event.finish.kind == "refusal" and choice.visible:
            _note_explanation(event.finish, self._context)
        elif event.finish.kind == "refusal":
            self._part(b'{"text":%b}' % encode_json(_declined(event.finish)), choice, out)
        chunk: dict[str, Any] = {}
        feedback = _prompt_feedback(event.finish, self._context)
        if feedback is not None:
            chunk["promptFeedback"] = feedback
        else:
            chunk["candidates"] = [finished_candidate(event, self._context, choice.citations, parts=None)]
        if event.last:
            chunk.update(self._extras)
            usage = shown_usage(event.usage, self._context)
            if usage is not None:
                chunk["usageMetadata"] = usage_object(usage, self._context)
        self._frame(_one_line(encode_json(chunk)[:-1] + self._ending()), out)
        if event.last:
            self._close(out)


def _prompt_feedback(finish: Finish, context: EncodeContext) -> Any:
    """The upstream's word on a prompt it blocked, for a client of the same dialect."""
    if context.same_dialect and finish.kind == "filter" and isinstance(finish.details, dict):
        return finish.details.get("promptFeedback")
    return None


def finished_candidate(
    event: Done, context: EncodeContext, citations: list[Citation], *, parts: list[Any] | None
) -> dict[str, Any]:
    """A candidate with its finish reason; `parts` for a whole answer."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts or []}}
    if parts is None:
        # SDK and CLI read content.parts of every chunk; an empty text is the part that says nothing.
        candidate["content"]["parts"] = [{"text": ""}]
    candidate["finishReason"] = finish_reason(event.finish, context)
    candidate["index"] = event.choice
    if event.finish.kind == "continuation" and isinstance(event.finish.details, str):
        candidate["continuationToken"] = event.finish.details
    if any(not citation.url for citation in citations):
        context.losses.drop("citation", "only citations of web addresses travel", minor=True)
    grounding = grounding_of(citations)
    if grounding is not None:
        candidate["groundingMetadata"] = grounding
    return candidate


class GeminiWholeEncoder:
    """Whole answers: one body with the terminal event."""

    def __init__(self, context: EncodeContext) -> None:
        self._context = context
        self._builder = AnswerBuilder()
        self._ended = False

    def feed(self, events: list[Event]) -> bytes:
        """Nothing until the terminal event, then the body."""
        if self._ended:
            return b""
        self._builder.feed(events)
        terminal = next((event for event in events if is_terminal(event)), None)
        if terminal is None:
            return b""
        self._ended = True
        if isinstance(terminal, Error):
            return encode_error(terminal).body
        return self._body()

    def _body(self) -> bytes:
        context, answer = self._context, self._builder.answer()
        start = Start(id=answer.id, model=answer.model)
        body: dict[str, Any] = {}
        candidates = []
        for choice in answer.choices:
            finish = choice.finish or Finish()
            feedback = _prompt_feedback(finish, context)
            if feedback is not None:
                body["promptFeedback"] = feedback
                continue
            parts, citations = _whole_parts(choice.parts, context)
            if finish.kind == "refusal" and any(_is_visible(part) for part in choice.parts):
                _note_explanation(finish, context)
            elif finish.kind == "refusal":
                parts.append({"text": _declined(finish)})
            candidate = finished_candidate(Done(finish, choice.index), context, citations, parts=parts)
            if context.same_dialect and choice.extras:
                candidate.update(choice.extras)
            candidates.append(candidate)
        if candidates:
            body = {"candidates": candidates, **body}
        if context.same_dialect and answer.extras:
            body.update(answer.extras)
        usage = shown_usage(answer.usage, context)
        if usage is not None:
            body["usageMetadata"] = usage_object(usage, context)
        body["modelVersion"] = answer_model(context, start)
        body["responseId"] = answer_id(context, start)
        return encode_json(body)


def _is_visible(part: Part) -> bool:
    return isinstance(part, ToolCall) or (isinstance(part, Text | Refusal) and bool(part.text.strip()))


def _whole_parts(parts: tuple[Part, ...], context: EncodeContext) -> tuple[list[Any], list[Citation]]:
    """The parts of one candidate; a foreign signature of thinking moves to the part after it, as in a stream."""
    written: list[Any] = []
    citations: list[Citation] = []
    owed: str | None = None
    for part in parts:
        match part:
            case Thinking():
                if owed is not None:
                    written.append({"thought": True, "text": "", "thoughtSignature": owed})
                    owed = None
                owed = _thinking_part(part, written)
            case ToolCall():
                slot = write_slot(part.signature) if part.signature is not None else owed
                written.append(msgspec.Raw(call_json(part, slot)))
                owed = None if part.signature is None else owed
            case Text() | Refusal():
                signature = part.signature if isinstance(part, Text) else None
                slot = write_slot(signature) if signature is not None else owed
                text = msgspec.Raw(encode_json(part.text))
                written.append({"text": text} if slot is None else {"text": text, "thoughtSignature": slot})
                owed = None if signature is None else owed
                if isinstance(part, Text):
                    citations.extend(part.citations)
            case Citation():
                citations.append(part)
            case Image() | Document() | Audio() | Video() | ToolResult() | Foreign():
                if (value := media_object(part, context)) is not None:
                    written.append(value)
            case _:
                assert_never(part)
    if owed is not None:
        written.append({"thought": True, "text": "", "thoughtSignature": owed})
    return written, citations


def _thinking_part(part: Thinking, written: list[Any]) -> str | None:
    """Write the thoughts; the slot that the next part has to carry, if any."""
    signature = part.signature
    foreign = signature is not None and is_envelope(signature.payload)
    if part.text:
        thought: dict[str, Any] = {"thought": True, "text": msgspec.Raw(encode_json(part.text))}
        if signature is not None and not foreign:
            thought["thoughtSignature"] = write_slot(signature)
        written.append(thought)
    elif signature is not None and not foreign:
        written.append({"text": "", "thoughtSignature": write_slot(signature)})
    return write_thinking_slot(signature, digest_of(part.text)) if signature is not None and foreign else None
