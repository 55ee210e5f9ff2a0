"""How many tokens a request is, without asking anybody: an estimate that learns from what upstreams report.

No tokenizer of the fifty models behind a gateway is at hand, and a count endpoint must never fail (`dialects.md` 3.14). So the
text is measured, and the ratio between that measure and the upstream's own count is learned per model.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from athena.model.parts import (
    Audio,
    Base64,
    Document,
    Foreign,
    Image,
    InlineText,
    Nested,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Video,
)
from athena.model.request import Request

_PER_TURN = 4
_PER_TOOL = 12
_PER_IMAGE = 1500
_LEARNED_MODELS = 1024


def measured_tokens(request: Request) -> int:
    """A request's size in tokens of an average tokenizer: instructions, turns, tools, images and thinking."""
    total = sum(map(_part, request.system))
    for turn in request.turns:
        total += _PER_TURN + sum(map(_part, turn.parts))
    for tool in request.tools:
        total += _PER_TOOL + _text(tool.name) + _text(tool.description or "")
        if tool.schema:
            total += _bytes(len(msgspec.json.encode(tool.schema)))
    if request.output.schema:
        total += _bytes(len(msgspec.json.encode(request.output.schema)))
    return total + 3


def _part(part: Part) -> int:
    match part:
        case Text() | Refusal():
            return _text(part.text)
        case Thinking():
            return _text(part.text) if part.text else _bytes(len(part.signature.payload) if part.signature else 0)
        case ToolCall():
            return _text(part.name) + _text(part.arguments) + 8
        case ToolResult():
            return sum(map(_part, part.parts)) + 8
        case Image() | Video():
            return _PER_IMAGE
        case Document():
            return _document(part)
        case Audio():
            return _bytes(len(part.source.data) // 16) if isinstance(part.source, Base64) else _PER_IMAGE
        case Foreign():
            return _bytes(len(msgspec.json.encode(part.raw))) if part.raw is not None else 0
    return 0


def _document(part: Document) -> int:
    source = part.source
    if isinstance(source, InlineText):
        return _text(source.text)
    if isinstance(source, Nested):
        return sum(map(_part, source.parts))
    # A page of a PDF is about 50 kB of base64 and costs about as much as an image.
    return _PER_IMAGE * (1 + len(source.data) // 50_000) if isinstance(source, Base64) else _PER_IMAGE


def _text(text: str) -> int:
    """Four ASCII characters to a token; other scripts take about one token for every 1.5 characters."""
    if text.isascii():
        return -(-len(text) // 4)
    plain = len(text.encode("ascii", "ignore"))
    return -(-plain // 4) + -(-2 * (len(text) - plain) // 3)


def _bytes(size: int) -> int:
    return -(-size // 4)


class TokenCounter:
    """Measures requests and learns each model's ratio. Bounded: the model not seen for longest is forgotten."""

    def __init__(self) -> None:
        self._ratio: OrderedDict[str, float] = OrderedDict()

    def count(self, request: Request, model: str) -> int:
        """The estimate for an upstream model, rounded up."""
        return max(1, int(measured_tokens(request) * self._ratio.get(model, 1.0) + 0.999))

    def learn(self, request: Request, model: str, actual: int) -> None:
        """An upstream said how many tokens a request was."""
        measured = measured_tokens(request)
        if measured < 20 or actual < 20:
            return
        ratio = min(4.0, max(0.25, actual / measured))
        known = self._ratio.get(model)
        self._ratio[model] = ratio if known is None else known * 0.8 + ratio * 0.2
        self._ratio.move_to_end(model)
        while len(self._ratio) > _LEARNED_MODELS:
            self._ratio.popitem(last=False)
