"""How many tokens a request is, without asking anybody: an estimate that learns from what upstreams report.

No tokenizer of the fifty models behind a gateway is at hand, and a count endpoint must never fail. So the
text is measured, and what a model makes of that measure is learned from its upstream's own counts.

Wire facts: docs/reference/wire-facts.md#token-counts-and-model-lists.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from itertools import accumulate, repeat
from operator import add, attrgetter, floordiv, is_, itemgetter, mul, sub
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
_PER_CALL = 8
"""And for each result."""
_PER_IMAGE = 1500
_LEAST = 20
"""Fewer tokens than this teach nothing: what is around every request weighs more."""
_FEW = 4
"""Turns, tools or texts that are measured one by one sooner than together."""
_LEARNED_MODELS = 1024
_CONVERSATIONS = 4096
_encode = msgspec.json.encode
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Measured(msgspec.Struct, frozen=True, gc=False):
    """A request measured: everything but its turns, and each of these."""

    around: int
    turns: list[int]


def _turn(turn: Turn) -> int:
    """What `_part` says of all its parts, with what is around a turn."""
    parts = turn.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        return _PER_TURN + _text(parts[0].text)
    texts: list[str] = []
    return _gathered(turn, texts) + sum(_sizes(texts))


def _turns(turns: Sequence[Turn]) -> list[int]:
    """The same of each of these turns: the texts of many are measured together."""
    if len(turns) < _FEW:
        return list(map(_turn, turns))
    texts: list[str] = []
    others, ends = zip(*[(_gathered(turn, texts), len(texts)) for turn in turns], strict=True)
    sums = list(accumulate(_sizes(texts), initial=0))
    measured = list(map(sums.__getitem__, ends))
    return list(map(add, others, map(sub, measured, (0, *measured))))


def _gathered(turn: Turn, texts: list[str]) -> int:
    """Adds the texts of a turn's usual parts to these, and says what everything else of it measures."""
    total = _PER_TURN
    for part in turn.parts:
        if type(part) is Text:
            texts.append(part.text)
        elif type(part) is ToolCall:
            texts += (part.name, part.arguments)
            total += _PER_CALL
        elif type(part) is ToolResult:
            total += _PER_CALL
            for inner in part.parts:
                if type(inner) is Text:
                    texts.append(inner.text)
                else:
                    total += _part(inner)
        else:
            total += _part(part)
    return total


def _sizes(texts: Sequence[str]) -> Iterable[int]:
    """What `_text` says of each, with hardly a step of Python's for one of ASCII where there are many."""
    if len(texts) < _FEW:
        return map(_text, texts)
    lengths = list(map(len, texts))
    if all(map(str.isascii, texts)):
        return _shares(lengths, 4)
    plain = [
        length if text.isascii() else len(text.encode("ascii", "ignore")) for text, length in zip(texts, lengths, strict=True)
    ]
    return map(add, _shares(plain, 4), _shares(map(mul, map(sub, lengths, plain), repeat(2)), 3))


def _shares(numbers: Iterable[int], divisor: int) -> Iterable[int]:
    """Each divided by that, and rounded up."""
    return map(floordiv, map(add, numbers, repeat(divisor - 1)), repeat(divisor))


def _around(request: Request) -> int:
    """Everything but turns and tools."""
    total = 3
    for part in request.system:
        total += _text(part.text) if type(part) is Text else _part(part)
    if request.output.schema:
        total += _bytes(len(msgspec.json.encode(request.output.schema)))
    return total


_TOOLS_KEPT = 512
_TOOL_TOKENS = 4096
"""The largest tool that is kept."""
_name_of, _description_of, _schema_of = attrgetter("name"), attrgetter("description"), attrgetter("schema")
_tool_of, _tokens_of = itemgetter(0), itemgetter(1)


def _tools(tools: Sequence[Tool]) -> Iterable[int]:
    """What each tool measures."""
    if len(tools) < _FEW:
        return map(_tool, tools)
    descriptions, schemas = list(map(_description_of, tools)), list(map(_schema_of, tools))
    if not all(descriptions) or not all(schemas):
        return map(_tool, tools)
    words = map(add, _sizes(list(map(_name_of, tools))), _sizes(descriptions))
    return map(add, map(add, words, _shares(map(len, map(_encode, schemas)), 4)), repeat(_PER_TOOL))


def _tool(tool: Tool) -> int:
    size = _PER_TOOL + _text(tool.name) + _text(tool.description or "")
    return size + _bytes(len(_encode(tool.schema))) if tool.schema else size


def _known_tools(tools: Sequence[Tool], known: dict[int, tuple[Tool, int]]) -> int:
    """What all of them measure; `known` are tools that were measured before."""
    found = [one for one in map(known.get, map(id, tools)) if one is not None]
    if len(found) < len(tools) or not all(map(is_, map(_tool_of, found), tools)):
        found = list(zip(tools, _tools(tools), strict=True))
        kept = {id(one[0]): one for one in found if one[1] <= _TOOL_TOKENS}
        if len(known) + len(kept) > _TOOLS_KEPT:
            known.clear()
        if len(kept) <= _TOOLS_KEPT:
            known.update(kept)
    return sum(map(_tokens_of, found))


def _part(part: Part) -> int:
    match part:
        case Text() | Refusal():
            return _text(part.text)
        case Thinking():
            return _text(part.text) if part.text else _bytes(len(part.signature.payload) if part.signature else 0)
        case ToolCall():
            return _text(part.name) + _text(part.arguments) + _PER_CALL
        case ToolResult():
            return sum(map(_part, part.parts)) + _PER_CALL
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
        if recall is None:
            # Nothing of the request is known: its tools are objects that no other request will have.
            return Measured(_around(request) + sum(_tools(request.tools)), _turns(request.turns))
        around = recall.tokens_around((request.system, request.tools, request.output), partial(self._measure_around, request))
        return Measured(around, recall.tokens(request.turns, _turn))

    def _measure_around(self, request: Request) -> int:
        return _around(request) + _known_tools(request.tools, self._tools)

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
    return float(sum(map(mul, one, other)))
