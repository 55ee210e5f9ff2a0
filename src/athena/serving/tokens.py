"""How many tokens a request is, without asking anybody: an estimate that learns from what upstreams report.

No tokenizer of the fifty models behind a gateway is at hand, and a count endpoint must never fail. So the
text is measured, and what a model makes of that measure is learned from its upstream's own counts.

Wire facts: docs/reference/wire-facts.md#token-counts-and-model-lists.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TypeVar

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
from athena.model.request import Request, Tool, Turn
from athena.wire.recall import Recall

_PER_TURN = 4
_PER_TOOL = 12
_PER_IMAGE = 1500
_LEAST = 20
"""Fewer tokens than this teach nothing: what is around every request weighs more."""
_LEARNED_MODELS = 1024
_CONVERSATIONS = 4096
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Measured(msgspec.Struct, frozen=True, gc=False):
    """A request measured: everything but its turns, and each of these."""

    around: int
    turns: list[int]


def _turn(turn: Turn) -> int:
    total = _PER_TURN
    for part in turn.parts:
        if type(part) is Text and part.text.isascii():
            total += (len(part.text) + 3) // 4  # what `_part` says of it
        else:
            total += _part(part)
    return total


def _around(request: Request, known: dict[int, tuple[Tool, int]]) -> int:
    """Everything but the turns; `known` are tools that were measured before."""
    total = 0
    for part in request.system:
        if type(part) is Text and part.text.isascii():
            total += (len(part.text) + 3) // 4  # what `_part` says of it
        else:
            total += _part(part)
    for tool in request.tools:
        found = known.get(id(tool))
        total += found[1] if found is not None and found[0] is tool else _tool(tool, known)
    if request.output.schema:
        total += _bytes(len(msgspec.json.encode(request.output.schema)))
    return total + 3


_TOOLS_KEPT = 512
_TOOL_TOKENS = 4096
"""The largest tool that is kept."""


def _tool(tool: Tool, known: dict[int, tuple[Tool, int]]) -> int:
    size = _PER_TOOL + _text(tool.name) + _text(tool.description or "")
    if tool.schema:
        size += _bytes(len(msgspec.json.encode(tool.schema)))
    if size <= _TOOL_TOKENS:
        if len(known) >= _TOOLS_KEPT:
            known.clear()
        known[id(tool)] = (tool, size)
    return size


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


class _Known(msgspec.Struct, frozen=True, gc=False):
    """The newest request of a conversation that an upstream counted."""

    turns: int
    measured: int
    actual: int

    def is_beginning(self, request: Request, sizes: Measured) -> bool:
        """Is `request` this one with turns added to it? Clients also shorten their history and compact it."""
        if len(request.turns) < self.turns:
            return False
        measured = sizes.around + sum(sizes.turns[: self.turns])
        return abs(measured - self.measured) <= self.measured // 100


class TokenCounter:
    """Measures requests and learns from what upstreams count. Bounded: what was not seen for longest is forgotten.

    The next request of a conversation is the last one and a few turns more. What the upstream counted for the last one is
    known, so only the new turns have to be estimated. What letters, digits, signs and other scripts cost there is learnt for
    each model. The first request of a conversation is estimated as a whole, with the model's usual ratio.
    """

    def __init__(self) -> None:
        self._ratio: OrderedDict[str, float] = OrderedDict()
        """Tokens that a model counts for one that is measured."""
        self._costs: OrderedDict[str, tuple[float, ...]] = OrderedDict()
        """What a model counts for one of each feature of new turns."""
        self._conversations: OrderedDict[int, _Known] = OrderedDict()
        self._tools: dict[int, tuple[Tool, int]] = {}
        """What tools measure that came lately, by identity: those of an agent are the same objects in all its requests."""

    def measure(self, request: Request, recall: Recall | None = None) -> Measured:
        """What `count` and `learn` go by. `recall` knows what turns measured that came before: a conversation of thousands of
        turns is not looked at again with each request."""
        turns = list(map(_turn, request.turns)) if recall is None else recall.tokens(request.turns, _turn)
        return Measured(_around(request, self._tools), turns)

    def count(self, request: Request, model: str, measured: Measured | None = None) -> int:
        """The estimate for an upstream model, rounded up."""
        known = self._conversations.get(_conversation(request, model))
        sizes = measured or self.measure(request)
        whole = sizes.around + sum(sizes.turns)
        if known is None:
            tokens = whole * self._ratio.get(model, 1.0)
        elif known.is_beginning(request, sizes):
            tokens = known.actual + _product(self._costs.get(model, _USUAL_COSTS), _features(request.turns[known.turns :]))
        else:
            tokens = known.actual * whole / known.measured
        return max(1, int(tokens + 0.999))

    def learn(self, request: Request, model: str, actual: int, measured: Measured | None = None) -> None:
        """An upstream said how many tokens a request was."""
        if actual < _LEAST:
            return
        sizes = measured or self.measure(request)
        whole = sizes.around + sum(sizes.turns)
        if whole < _LEAST:
            return
        ratio = min(4.0, max(0.25, actual / whole))
        _keep(self._ratio, model, self._ratio.get(model, ratio) * 0.8 + ratio * 0.2, _LEARNED_MODELS)
        conversation = _conversation(request, model)
        known = self._conversations.get(conversation)
        if known is not None and actual > known.actual and known.is_beginning(request, sizes):
            self._learn_costs(model, _features(request.turns[known.turns :]), actual - known.actual)
        _keep(self._conversations, conversation, _Known(len(request.turns), whole, actual), _CONVERSATIONS)

    def _learn_costs(self, model: str, features: tuple[float, ...], actual: int) -> None:
        """Each feature takes its share of the error: normalised least mean squares, half a step at a time."""
        costs = self._costs.get(model, _USUAL_COSTS)
        power = _product(features, features)
        if power:
            step = 0.5 * (actual - _product(costs, features)) / power
            learnt = tuple(min(4.0, max(0.02, cost + step * x)) for cost, x in zip(costs, features, strict=True))
            _keep(self._costs, model, learnt, _LEARNED_MODELS)


def _keep(items: OrderedDict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    items[key] = value
    items.move_to_end(key)
    while len(items) > most:
        items.popitem(last=False)


def _conversation(request: Request, model: str) -> int:
    """What tells one conversation from another, as far as a number of tokens is concerned: how it begins.

    The first block of instructions is left out: agents put lines into it that change with every request.
    """
    system = [part.text for part in request.system[-1:] if type(part) is Text]
    first = [part.text for part in request.turns[0].parts if type(part) is Text] if request.turns else []
    return hash((model, len(request.tools), tuple(system), tuple(first)))


_USUAL_COSTS = (0.23, 0.5, 0.6, 0.1, 0.35, 8.0, 1.0)
"""Of a letter, a digit, a sign, a blank, a byte of another script, a part with what is around it, and a measured token of any
other kind (an image, a document)."""
_KINDS = (
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    b"0123456789",
    bytes(code for code in range(33, 127) if not chr(code).isalnum()),
    bytes(range(33)),
)


def _features(turns: Sequence[Turn]) -> tuple[float, ...]:
    """How much of each kind is in these turns."""
    texts: list[str] = []
    parts, others = 0, 0
    waiting: list[Part] = [part for turn in turns for part in turn.parts]
    while waiting:
        part = waiting.pop()
        parts += 1
        match part:
            case Text() | Refusal():
                texts.append(part.text)
            case Thinking(text=str() as text) if text:
                texts.append(text)
            case ToolCall():
                texts += (part.name, part.arguments)
            case ToolResult():
                waiting += part.parts
            case _:
                others += _part(part)
    data = "".join(texts).encode("utf-8", "replace")
    amounts = [len(data) - len(data.translate(None, kind)) for kind in _KINDS]
    return (*amounts, len(data) - sum(amounts), parts, others)


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return float(sum(map(operator.mul, one, other)))
