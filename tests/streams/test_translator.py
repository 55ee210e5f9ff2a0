"""`StreamTranslator`: however an answer is cut, and whatever kind of bytes it comes in, the client gets the same bytes."""

from __future__ import annotations

import itertools

import pytest

from athena import StreamTranslator
from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import EncodeContext
from athena.model.events import (
    Done,
    Event,
    Finish,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)  # fmt: skip
from athena.model.request import Request

_WORDS = ("I", " will", " look", " <b", "old>", " fu", "nction", ' "quoted"', " \u00e9\n", " `code`", ".")
_ARGUMENTS = '{"city":"Rome"}'
_ANSWER: tuple[Event, ...] = (
    Start(id="answer", model="model", created=1),
    *(ThinkingDelta(word) for word in _WORDS),
    *(TextDelta(word) for word in _WORDS),
    ToolCallStart(0, "call_1", "get_weather"),
    ToolCallDelta(0, _ARGUMENTS),
    ToolCallComplete(0, "call_1", "get_weather", _ARGUMENTS),
    *(TextDelta(word) for word in _WORDS),
    Done(Finish("tool"), 0, Usage(input_total=30, output_total=9), last=True),
)


def reads_of(dialect: str) -> list[bytes]:
    """The answer as an upstream streams it, one read for each event."""
    told = Request(dialect=dialect, model="model", stream=True, include_usage=True)
    encoder = get_dialect(dialect).encoder(EncodeContext(request=told, seed="upstream", created=1), stream=True)
    return [read for event in _ANSWER if (read := encoder.feed([event]))]


def translated(source: str, target: str, found: str | None, reads: list[bytes | bytearray | memoryview]) -> bytes:
    translator = StreamTranslator(source=source, target=target, format=found, seed="seed", created=1)
    output = b"".join([*map(translator.feed, reads), translator.close()])
    assert translator.error is None
    assert translator.done is not None
    return output


@pytest.mark.parametrize("found", [None, "auto"])
@pytest.mark.parametrize(("source", "target"), list(itertools.product(dialect_names(), repeat=2)))
def test_every_kind_and_cut_of_the_bytes_gives_the_same(source: str, target: str, found: str | None) -> None:
    reads = reads_of(source)
    expected = translated(source, target, found, [*reads])
    whole = b"".join(reads)
    assert expected.count(b"Rome") > 0
    assert translated(source, target, found, [memoryview(read) for read in reads]) == expected
    assert translated(source, target, found, [bytearray(read) for read in reads]) == expected
    if found is None:  # what is looked through is told in other pieces where it is cut elsewhere
        assert translated(source, target, found, [whole]) == expected
        assert translated(source, target, found, [whole[at : at + 1] for at in range(len(whole))]) == expected
