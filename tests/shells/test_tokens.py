"""Estimates of token counts come near to what a model counts once it has counted for a while."""

from __future__ import annotations

import functools
import json
import math
import random
import re
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from athena.model.parts import Part, Refusal, Text, Thinking, ToolCall, ToolResult
from athena.model.request import Request, Tool, Turn
from athena.serving.tokens import Measured, TokenCounter
from athena.wire.fragments import Fragments
from athena.wire.recall import Recall

TURNS = 40
LEARNT = 20
"""Turns after which an estimate may be off by 3 % at most."""

# Tokenizers of several kinds. None is a real one; they differ from each other as real ones do: in what a word, a number, a
# sign, white space and a letter of another script cost, and in what they put around a message.
TOKENIZERS: dict[str, tuple[str, int]] = {
    "long words": (r"[A-Za-z]{1,9}|\d{1,3}|[^\sA-Za-z\d]{1,3}|\n+", 3),
    "short words": (r"[A-Za-z]{1,4}|\d|[^\sA-Za-z\d]|\n", 7),
    "bytes of other scripts": (r"[A-Za-z]{1,6}|\d{1,2}|[^\x00-\x7f]|[^\sA-Za-z\d]| {2,}|\n", 12),
}


@functools.cache
def _tokens(text: str, pattern: str) -> int:
    pieces = re.findall(pattern, text)
    return sum(len(piece.encode()) if not piece.isascii() else 1 for piece in pieces)


def counted(request: Request, name: str) -> int:
    """What a model with that tokenizer counts."""
    pattern, around = TOKENIZERS[name]
    total = sum(_tokens(part.text, pattern) for part in request.system if isinstance(part, Text))
    for tool in request.tools:
        total += _tokens(str(tool.schema), pattern) + _tokens(tool.name + (tool.description or ""), pattern) + around
    for turn in request.turns:
        total += around + sum(_tokens(_said(part), pattern) for part in turn.parts)
    return total


def _said(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case ToolCall():
            return part.name + part.arguments
        case ToolResult():
            return "".join(map(_said, part.parts))
    raise AssertionError(part)


_WORDS = (
    "the",
    "of",
    "session",
    "value",
    "answer",
    "when",
    "request",
    "tool",
    "which",
    "and",
    "because",
    "returns",
    "never",
    "stream",
)


def _prose(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(words)) + "."


def _code(rng: random.Random, lines: int) -> str:
    return "\n".join(f"    if {rng.choice(_WORDS)}_{rng.randrange(99)}[{rng.randrange(9)}] != None:" for _ in range(lines))


def _log(rng: random.Random, lines: int) -> str:
    return "\n".join(
        f"2026-11-{rng.randrange(10, 30)}T07:{rng.randrange(10, 60)}:00Z 0x{rng.getrandbits(64):x}" for _ in range(lines)
    )


def _foreign(rng: random.Random, letters: int) -> str:
    return "".join(chr(rng.randrange(0x4E00, 0x9FA5)) for _ in range(letters))


RESULTS: dict[str, Callable[[random.Random, int], str]] = {"prose": _prose, "code": _code, "log": _log, "chinese": _foreign}


def conversation(seed: int, kinds: tuple[str, ...]) -> Iterator[Request]:
    """An agent's requests: a long prompt with tools, then one call and one result more in each."""
    rng = random.Random(seed)
    system = (Text(text=f"x-billing: {seed}"), Text(text=_prose(rng, 1500)))
    schema = {"type": "object", "properties": {word: {"type": "string", "description": _prose(rng, 8)} for word in _WORDS}}
    tools = tuple(Tool(name=f"tool_{number}", description=_prose(rng, 40), schema=schema) for number in range(6))
    turns = [Turn(role="user", parts=(Text(text=_prose(rng, 50)),))]
    for step in range(TURNS):
        yield Request(dialect="openai_chat", model="m", system=system, turns=tuple(turns), tools=tools)
        arguments = json.dumps({"path": _prose(rng, 3), "line": rng.randrange(10**6)})
        turns.append(Turn(role="assistant", parts=(ToolCall(id=f"c{step}", name="tool_1", arguments=arguments),)))
        text = RESULTS[rng.choice(kinds)](rng, rng.randrange(5, 50))
        turns.append(Turn(role="user", parts=(ToolResult(call_id=f"c{step}", parts=(Text(text=text),)),)))


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize(
    "kinds", [("code",), ("log",), ("prose", "code", "log"), ("chinese", "code"), tuple(RESULTS)], ids="-".join
)
def test_within_three_percent_after_twenty_turns(name: str, kinds: tuple[str, ...]) -> None:
    counter = TokenCounter()
    for step, request in enumerate(conversation(1, kinds)):
        estimate, actual = counter.count(request, "m"), counted(request, name)
        if step >= LEARNT:
            assert estimate == pytest.approx(actual, rel=0.03), step
        counter.learn(request, "m", actual)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_several_conversations_at_once(name: str) -> None:
    """What one conversation is about must not spoil the estimates of another with the same model."""
    counter = TokenCounter()
    for step, requests in enumerate(
        zip(conversation(1, ("code",)), conversation(2, ("chinese",)), conversation(3, ("log",)), strict=True)
    ):
        for request in requests:
            estimate, actual = counter.count(request, "m"), counted(request, name)
            if step >= LEARNT:
                assert estimate == pytest.approx(actual, rel=0.03), step
            counter.learn(request, "m", actual)


def test_a_shortened_conversation_keeps_its_ratio() -> None:
    counter = TokenCounter()
    requests = list(conversation(1, ("prose",)))
    for request in requests:
        counter.learn(request, "m", counted(request, "short words"))
    assert counter.count(requests[10], "m") == pytest.approx(counted(requests[10], "short words"), rel=0.15)


def unlearnt(request: Request) -> int:
    """What a request counts before anything was learnt."""
    return TokenCounter().count(request, "m")


def test_other_models_and_new_conversations() -> None:
    counter = TokenCounter()
    (first, *_), (other, *_) = conversation(1, ("code",)), conversation(2, ("code",))
    assert counter.count(first, "m") == unlearnt(first)
    counter.learn(first, "m", 2 * unlearnt(first))
    assert counter.count(first, "n") == unlearnt(first), "another model"
    assert counter.count(other, "m") == pytest.approx(2 * unlearnt(other), rel=0.01), "the model's ratio"


def test_tiny_requests_teach_nothing() -> None:
    counter = TokenCounter()
    tiny = Request(dialect="openai_chat", model="m", turns=(Turn(role="user", parts=(Text(text="Hi"),)),))
    counter.learn(tiny, "m", 4000)
    assert counter.count(tiny, "m") == unlearnt(tiny)


def test_what_is_kept_is_bounded() -> None:
    counter = TokenCounter()
    for number in range(5000):
        text = Text(text=f"{number:5} " * 20)
        request = Request(dialect="openai_chat", model="m", turns=(Turn(role="user", parts=(text,)),))
        counter.learn(request, f"model {number}", 100)
    assert (len(counter._conversations), len(counter._ratio)) == (4096, 1024)


_SOME_TEXTS = some.text(some.sampled_from("ab \xe9\u2014\N{GRINNING FACE}"), max_size=9)
_TEXT_PARTS = some.builds(Text, text=_SOME_TEXTS)
_OTHER_PARTS = some.builds(Thinking, text=_SOME_TEXTS) | some.builds(Refusal, text=_SOME_TEXTS)
_RESULTS = some.builds(ToolResult, call_id=some.just("c"), parts=some.lists(_TEXT_PARTS | _OTHER_PARTS, max_size=3).map(tuple))
_CALLS = some.builds(ToolCall, id=some.just("c"), name=_SOME_TEXTS, arguments=_SOME_TEXTS)
_PARTS = some.lists(_TEXT_PARTS | _OTHER_PARTS | _RESULTS | _CALLS, max_size=4)


def _alone(part: Part) -> int:
    """What a part measures by itself."""
    match part:
        case Text() | Refusal() | Thinking():
            return _letters(part.text)
        case ToolCall():
            return _letters(part.name) + _letters(part.arguments) + 8
        case ToolResult():
            return sum(map(_alone, part.parts)) + 8
    raise AssertionError(part)


def _letters(text: str) -> int:
    plain = sum(letter.isascii() for letter in text)
    return math.ceil(plain / 4) + math.ceil(2 * (len(text) - plain) / 3)


@given(
    some.lists(_PARTS, max_size=8),
    some.lists(
        some.tuples(_SOME_TEXTS, some.none() | _SOME_TEXTS, some.sampled_from([None, {}, {"type": "object"}])), max_size=8
    ),
    some.lists(_TEXT_PARTS, max_size=2),
)
def test_texts_that_are_measured_together_measure_what_each_does(
    told: list[list[Part]], declared: list[tuple[str, str | None, dict[str, str] | None]], system: list[Text]
) -> None:
    turns = tuple(Turn(role="user", parts=tuple(parts)) for parts in told)
    tools = tuple(Tool(name=name, description=described, schema=schema) for name, described, schema in declared)
    request = Request(dialect="openai_chat", model="m", turns=turns, tools=tools, system=tuple(system))
    around = 3 + sum(_letters(part.text) for part in system)
    for tool in tools:
        schema = math.ceil(len(msgspec.json.encode(tool.schema)) / 4) if tool.schema else 0
        around += 12 + _letters(tool.name) + _letters(tool.description or "") + schema
    expected = Measured(around, [4 + sum(map(_alone, turn.parts)) for turn in turns])
    assert TokenCounter().measure(request) == expected
    counter, recall = TokenCounter(), Recall(Fragments(1 << 20))
    assert counter.measure(request, recall) == counter.measure(request, recall) == expected
