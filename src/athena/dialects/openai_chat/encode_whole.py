"""A whole Chat answer from events.

Chat has one content and one call list per choice: text that came after a call keeps its words and loses its place.

Wire facts: docs/reference/wire-facts.md#chat-answers.
"""

from __future__ import annotations

from typing import Any, assert_never

from athena.calls.builder import AnswerBuilder, folded_plain
from athena.calls.ids import hashed
from athena.dialects.base import EncodeContext
from athena.dialects.openai_chat.details import call_extra_content, state_entries, text_entry
from athena.dialects.openai_chat.encode_stream import (
    audio_value,
    explanation,
    finish_word,
    image_entry,
    is_legacy,
    lose_part,
    note_explanation,
)
from athena.dialects.openai_chat.errors import encode_error
from athena.dialects.openai_chat.media import annotation_of
from athena.dialects.openai_chat.usage import encode_usage
from athena.dialects.openai_chat.vocabulary import NAME, REASONING_MARK
from athena.model.answer import Answer, Choice
from athena.model.events import Done, Event, Finish, is_failure, is_terminal
from athena.model.parts import (
    Audio,
    Base64,
    Citation,
    Document,
    Foreign,
    Image,
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


class ChatWholeEncoder:
    """Writes one whole answer, at its terminal event."""

    def __init__(self, context: EncodeContext) -> None:
        self._context = context
        self._builder = AnswerBuilder()
        self._begun = False
        self._ended = False

    def feed(self, events: list[Event]) -> bytes:
        """Nothing, until the answer is complete."""
        if self._ended:
            return b""
        if not self._begun and (plain := folded_plain(events)) is not None:
            self._ended = True
            return encode_json(encode_answer(plain, self._context))
        self._begun = self._begun or bool(events)
        for position, event in enumerate(events):
            if is_failure(event):
                self._ended = True
                return encode_error(event).body
            if is_terminal(event):
                self._ended = True
                self._builder.feed(events[: position + 1])
                return encode_json(encode_answer(self._builder.answer(), self._context))
        self._builder.feed(events)
        return b""


def encode_answer(answer: Answer, context: EncodeContext) -> dict[str, Any]:
    same = context.same_dialect
    body: dict[str, Any] = {
        "id": answer.id or "chatcmpl-" + hashed(context.seed),
        "object": "chat.completion",
        "created": answer.created if answer.created is not None else context.created,
        "model": (answer.model if same else "") or context.request.model,
        "choices": [_choice(choice, context) for choice in answer.choices],
    }
    if answer.usage is not None:
        body["usage"] = encode_usage(answer.usage, same_dialect=same)
    if same and answer.extras:
        body.update(answer.extras)
    return body


def _choice(choice: Choice, context: EncodeContext) -> dict[str, Any]:
    extras = dict(choice.extras or {}) if context.same_dialect else {}
    mark = extras.pop(REASONING_MARK, None)
    message, legacy = _message(choice, context, mark)
    if context.same_dialect and choice.delta_extras:
        message.update(choice.delta_extras)
    finish = Done(choice.finish or Finish())
    told = explanation(finish.finish)
    if told and message["content"]:
        note_explanation(context)
    elif told and message["refusal"] is None:
        message["refusal"] = told
    refused = message["refusal"] is not None
    return {
        **extras,
        "index": choice.index,
        "message": message,
        "logprobs": extras.get("logprobs"),
        "finish_reason": finish_word(finish, refused=refused, legacy=legacy),
    }


class _Said:
    """The parts of one choice, sorted into the slots of a message."""

    def __init__(self, context: EncodeContext) -> None:
        self._context = context
        self._older_form = is_legacy(context.request.raw)
        self.function_call: ToolCall | None = None
        self.texts: list[str] = []
        self.refusals: list[str] = []
        self.thinking: list[Thinking] = []
        self.chunks: list[Any] = []
        """Content of kinds that only this upstream has."""
        self.slots: dict[str, list[dict[str, Any]]] = {"tool_calls": [], "annotations": [], "images": []}
        self.audio: dict[str, Any] | None = None

    def add(self, part: Part) -> None:
        context = self._context
        match part:
            case Text():
                self.texts.append(part.text)
                self.slots["annotations"].extend(_annotations(part.citations, self.texts, context))
            case Citation():
                self.slots["annotations"].extend(_annotations((part,), self.texts, context))
            case Refusal():
                self.refusals.append(part.text)
            case Thinking():
                self.thinking.append(part)
            case ToolCall():
                if self._older_form and self.function_call is None and part.kind == "function":
                    self.function_call = part
                else:
                    self.slots["tool_calls"].append(_call(part))
            case Image(source=Base64() | Url()):
                self.slots["images"].append(image_entry(part))
            case Audio(source=None | Base64()) | Audio(transcript=str()):
                self.audio = audio_value(part, context.seed)
            case Foreign() if context.same_dialect and part.dialect == NAME:
                self.chunks.append(part.raw)
            case Image() | Document() | Audio() | Video() | ToolResult() | Foreign():
                lose_part(part, context)
            case _:
                assert_never(part)

    def content(self) -> Any:
        """Text, with whatever else the upstream's content held; None where the message is a call or a refusal."""
        text = "".join(self.texts)
        if self.chunks:
            return [*([{"type": "text", "text": text}] if text else []), *self.chunks]
        return text if text or not (self.slots["tool_calls"] or self.function_call or self.refusals) else None


def _message(choice: Choice, context: EncodeContext, mark: dict[str, Any] | None) -> tuple[dict[str, Any], bool]:
    said = _Said(context)
    for part in choice.parts:
        said.add(part)
    message: dict[str, Any] = {"role": "assistant", "content": said.content(), "refusal": "".join(said.refusals) or None}
    if said.function_call is not None:
        message["function_call"] = {"name": said.function_call.name, "arguments": said.function_call.arguments}
    if said.audio is not None:
        message["audio"] = said.audio
    _write_thinking(message, said.thinking, context, mark)
    message.update({key: value for key, value in said.slots.items() if value})
    return message, said.function_call is not None


def _annotations(citations: tuple[Citation, ...], texts: list[str], context: EncodeContext) -> list[dict[str, Any]]:
    position = sum(map(len, texts))
    found: list[dict[str, Any]] = []
    for citation in citations:
        annotation = annotation_of(citation, position, same_dialect=context.same_dialect)
        if annotation is not None:
            found.append(annotation)
        else:
            lose_part(citation, context)
    return found


def _call(part: ToolCall) -> dict[str, Any]:
    if part.kind == "custom":
        entry: dict[str, Any] = {"id": part.id, "type": "custom", "custom": {"name": part.name, "input": part.arguments}}
    else:
        entry = {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": part.arguments}}
    if part.signature is not None:
        entry["extra_content"] = call_extra_content(part.signature)
    return entry


def _write_thinking(
    message: dict[str, Any], thinking: list[Thinking], context: EncodeContext, mark: dict[str, Any] | None
) -> None:
    fields = mark["fields"] if mark is not None else context.reasoning_fields
    form = mark["format"] if mark is not None else None
    text = "".join(part.text for part in thinking)
    if text:
        for field in fields:
            if field != "reasoning_details":
                message[field] = text
    details: list[dict[str, Any]] = []
    # Readers prefer the list to the plain text: once it is there, it holds all of it.
    listed = "reasoning_details" in fields or any(part.signature is not None for part in thinking)
    for part in thinking:
        if part.signature is not None:
            details.extend(state_entries(part.signature, part.text, summary=part.summary, first=len(details)))
        elif listed and part.text:
            details.append(text_entry(part.text, summary=part.summary, index=len(details), format=form))
    if details:
        message["reasoning_details"] = details
