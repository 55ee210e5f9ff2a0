"""One comparable form of an answer, whoever accumulated it: our builder or an official SDK."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from athena.calls.builder import fold
from athena.model.events import Event
from athena.model.parts import Audio, Citation, Document, Foreign, Image, Refusal, Text, Thinking, ToolCall, ToolResult, Video
from support.cases import AnswerCase, ExpectedPart


class Piece(msgspec.Struct, frozen=True):
    """("thinking", text) | ("text", text) | ("call", name, arguments as a value)"""

    kind: str
    text: str = ""
    arguments: Any = None


class Seen(msgspec.Struct):
    """What a client holds after an answer."""

    pieces: list[Piece]
    finish: str
    """The client dialect's own word, or our kind."""
    usage: dict[str, int] | None = None
    ids: list[str] = []

    def calls(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.kind == "call"]

    def joined(self, kind: str) -> str:
        return "".join(piece.text for piece in self.pieces if piece.kind == kind)


def merge(pieces: list[Piece]) -> list[Piece]:
    """Adjacent text of one kind is one piece; empty pieces are none."""
    merged: list[Piece] = []
    for piece in pieces:
        if piece.kind != "call" and not piece.text:
            continue
        if merged and piece.kind != "call" and merged[-1].kind == piece.kind:
            merged[-1] = Piece(piece.kind, merged[-1].text + piece.text)
        else:
            merged.append(piece)
    return merged


def expected_pieces(case: AnswerCase, choice: int = 0) -> list[Piece]:
    """A case's parts as pieces; refusals count as text, redacted thinking as nothing readable."""
    return merge([piece for part in case.parts if part.choice == choice for piece in _pieces(part)])


def _pieces(part: ExpectedPart) -> list[Piece]:
    if part.call is not None:
        if part.input is not None:
            return [Piece("call", part.call, part.input)]
        return [Piece("call", part.call, json.loads(part.arguments or "{}"))]
    if part.thinking is not None:
        return [Piece("thinking", part.thinking)]
    if part.redacted is not None or part.foreign is not None:
        return []
    return [Piece("text", part.text if part.text is not None else part.refusal or "")]


def exact_parts(events: list[Event], choice: int = 0) -> list[ExpectedPart]:
    """What events add up to, in the vocabulary of the case files."""
    answer = fold(events)
    found: list[ExpectedPart] = []
    for candidate in answer.choices:
        for part in candidate.parts:
            found.append(_expected(part, candidate.index))
    return found


def _expected(part: object, choice: int) -> ExpectedPart:
    match part:
        case Text():
            return ExpectedPart(text=part.text, choice=choice)
        case Refusal():
            return ExpectedPart(refusal=part.text, choice=choice)
        case Thinking() if part.signature is not None and part.signature.kind == "redacted":
            return ExpectedPart(redacted=part.signature.payload, choice=choice)
        case Thinking():
            payload = part.signature.payload if part.signature is not None else None
            return ExpectedPart(thinking=part.text, signature=payload, choice=choice)
        case ToolCall() if part.kind == "custom":
            return ExpectedPart(call=part.name, id=part.id, input=part.arguments, choice=choice)
        case ToolCall():
            return ExpectedPart(call=part.name, id=part.id, arguments=part.arguments, choice=choice)
        case Foreign():
            return ExpectedPart(foreign=part.kind, choice=choice)
        case Citation() | Image() | Audio() | Video() | Document() | ToolResult():
            return ExpectedPart(foreign=type(part).__name__, choice=choice)
    raise AssertionError(f"unknown part {part!r}")


FINISH_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "openai_chat": {
        "stop": ("stop",),
        "stop_sequence": ("stop",),
        "tool": ("tool_calls",),
        "length": ("length",),
        "context": ("length",),
        "refusal": ("stop", "content_filter"),
        "filter": ("content_filter",),
        "pause": ("stop",),
        "malformed": ("stop",),
    },
    "anthropic_messages": {
        "stop": ("end_turn",),
        "stop_sequence": ("stop_sequence",),
        "tool": ("tool_use",),
        "length": ("max_tokens",),
        "context": ("model_context_window_exceeded",),
        "refusal": ("refusal",),
        "filter": ("refusal",),
        "pause": ("pause_turn", "compaction"),
        "malformed": ("end_turn",),
    },
    "openai_responses": {
        "stop": ("completed",),
        "stop_sequence": ("completed",),
        "tool": ("completed",),
        "length": ("incomplete/max_output_tokens",),
        "context": ("incomplete/max_output_tokens",),
        "refusal": ("completed", "incomplete/content_filter"),
        "filter": ("incomplete/content_filter",),
        "pause": ("completed",),
        "malformed": ("completed",),
    },
    "gemini": {
        "stop": ("STOP",),
        "stop_sequence": ("STOP",),
        "tool": ("STOP",),
        "length": ("MAX_TOKENS",),
        "context": ("MAX_TOKENS",),
        "refusal": ("SAFETY", "STOP"),
        "filter": ("SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST"),
        "pause": ("STOP",),
        "malformed": ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"),
    },
}
"""How a client dialect may say why an answer ended, by the word of the case files."""
