"""The short way of plain pieces is the long way in less work: byte for byte, read by read, in every state that can follow."""

from __future__ import annotations

import json
import re
from itertools import product

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import EncodeContext
from athena.dialects.plain_reads import PlainReads, PlainShape, SplicedRecord, lone_record
from athena.exchange import Exchange, Options, Route
from athena.formats.machine.stage import FormatOptions
from athena.model.events import (
    Done,
    Event,
    Finish,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallStart,
    Usage,
)
from athena.model.parts import Text
from athena.model.profile import Profile
from athena.model.request import Request, Turn
from athena.wire.sse import SseDecoder
from exchange.short_ways import TOOL, Pair, cut_at, frames
from exchange.ways import long_ways_only
from support.cases import dialect_cases
from support.examples import IS_DEEP, examples

DIALECTS = dialect_names()
CLEAN = Profile(clean=True)
EVERY = 1 if IS_DEEP else 997
"""The recorded streams are cut at every so many bytes."""


@pytest.mark.fuzz
@pytest.mark.parametrize("upstream", DIALECTS)
def test_recorded_streams_cut_anywhere_come_out_the_same(upstream: str) -> None:
    taken = 0
    for number, case in enumerate(dialect_cases(upstream).answer):
        if case.stream is None:
            continue
        body = case.stream.lstrip("\n").encode()
        reads = frames(body)
        profile = msgspec.convert(case.profile, Profile)
        kept = (profile, msgspec.structs.replace(profile, clean=True))
        for turn, (client, seen_as, watched) in enumerate(product(DIALECTS, kept, (True, False))):
            if not IS_DEEP and (number + turn) % 3:
                continue
            Pair(upstream, client, watched=watched, profile=seen_as).feed(reads)
            # Each record said three times is no answer of any server, but both ways have to agree about it.
            pair = Pair(upstream, client, watched=watched, profile=seen_as)
            pair.feed([read for read in reads for _ in range(3)])
            taken += pair.taken
            Pair(upstream, client, watched=watched, profile=seen_as).feed([body, b"".join(reads * 2)])
        client = DIALECTS[number % len(DIALECTS)]
        for place in range(1 + number % EVERY, len(body), EVERY):
            Pair(upstream, client, watched=bool(place & 1), profile=profile).feed(cut_at(reads, place))
    assert taken > 50


PIECES = st.one_of(
    st.sampled_from(("a", " word", "\n", "\n\n", '"', "\\", "{", "}", "<", "`", "```", "~~~", "<think>", "</think>", "é",
                     "\U0001f600", "<tool_call>", "[", "<|", "\x00", "\x7f", "\u2028", "x" * 300, " ", "\t", "data: ", "\r")),
    st.text(max_size=8),
)  # fmt: skip


WAYS = ("plain", "spaced", "stamped", "padded", "named", "usage", "late", "empty", "extra", "twice")
KINDS = st.sampled_from(("text", "text", "text", "thinking"))
LINES = st.sampled_from((b"data: ", b"event: x", b"\n", b"\r", b"{}", b"data:", b": c", b"e", b" "))


def chat_variants(text: str, kind: str, draw: st.DataObject, number: int) -> bytes:
    """A chunk as some Chat server writes it."""
    key = {"text": "content", "thinking": "reasoning_content"}[kind]
    delta = {key: text}
    way = draw.draw(
        st.sampled_from(("plain", "spaced", "stamped", "padded", "named", "usage", "late", "empty", "extra", "twice"))
    )
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    entry = {"index": 0, "delta": delta, "finish_reason": None}
    if way == "stamped":
        chunk["created"] = number
    elif way == "padded":
        chunk["obfuscation"] = "x" * (number % 7)
    elif way == "usage":
        chunk["usage"] = {"prompt_tokens": 3, "completion_tokens": number}
    elif way == "late":
        entry["delta"] = {"role": "assistant", "tool_calls": [], **delta}
    elif way == "empty":
        delta[key] = ""
    elif way == "extra":
        entry["token_ids"] = [number]
    chunk["choices"] = [entry]
    separators = None if way == "spaced" else (",", ":")
    payload = json.dumps(chunk, separators=separators, ensure_ascii=way in ("spaced", "late")).encode("utf-8", "surrogatepass")
    if way == "twice":
        payload = payload.replace(b'"model":"m"', b'"model":{"content":"m"}')
    return (b"event: x\ndata: " if way == "named" else b"data: ") + payload + b"\n\n"


@given(data=st.data())
@examples(60)
def test_any_text_comes_out_the_same(data: st.DataObject) -> None:
    upstream, client = data.draw(st.sampled_from(tuple(product(DIALECTS, DIALECTS))))
    watched = data.draw(st.booleans())
    profile = data.draw(st.sampled_from((Profile(), CLEAN)))
    pieces = data.draw(st.lists(st.tuples(KINDS, PIECES), min_size=2, max_size=14))
    reads = upstream_reads(upstream, pieces, data)
    if data.draw(st.booleans()):
        reads = cut_at(reads, data.draw(st.integers(1, sum(map(len, reads)))))
    size = data.draw(st.sampled_from((1, 1, 2, 3, 5, 20)))
    reads = [b"".join(reads[start : start + size]) for start in range(0, len(reads), size)]
    Pair(upstream, client, watched=watched, profile=profile).feed(reads)


def upstream_reads(upstream: str, pieces: list[tuple[str, str]], data: st.DataObject) -> list[bytes]:
    turn = Turn(role="user", parts=(Text(text="Hi"),))
    request = Request(dialect=upstream, model="m", stream=True, turns=(turn,), include_usage=True)
    encoder = get_dialect(upstream).encoder(EncodeContext(request, seed="s", created=1), stream=True)
    reads = [encoder.feed([Start(id="a", model="m", created=1)])]
    for number, (kind, text) in enumerate(pieces):
        if upstream == "openai_chat" and number:
            reads.append(chat_variants(text, kind, data, number // 3))
        else:
            event: Event = TextDelta(text) if kind == "text" else ThinkingDelta(text)
            reads.append(encoder.feed([event]))
    reads.append(encoder.feed([Done(Finish("stop"), 0, Usage(input_total=3, output_total=5), last=True)]))
    return [read for read in reads if read]


@given(data=st.lists(LINES, max_size=8).map(b"".join))
@examples(100)
def test_a_lone_record_is_what_the_decoder_of_events_reads(data: bytes) -> None:
    found = lone_record(data)
    if found is not None:
        decoder = SseDecoder()
        assert decoder.feed(data) == [found]
        assert decoder.at_rest


RAW = st.sampled_from(
    (
        b"a",
        b"\\",
        b'"',
        b",",
        b'","',
        b'\\"',
        b"\\\\",
        b"\\n",
        b"\\u00e9",
        b"\xc3",
        b"\xa9",
        b"\n",
        b"\n\n",
        b"\x01",
        b"",
        b'"}\n\n',
        b"x" * 9000,
    )
)


@given(
    pieces=st.lists(st.lists(RAW, max_size=4).map(b"".join), max_size=8), rest=st.sampled_from((b"", b"data", b"data: {}\n\n"))
)
@example(pieces=[b"a\\", b',"x'], rest=b"")
@example(pieces=[b'a",', b',"b'], rest=b"")
@examples(300)
def test_a_run_of_records_is_read_as_its_records_are(pieces: list[bytes], rest: bytes) -> None:
    """Whatever stands where the texts should: as many records as can be read one by one, and the same texts."""
    reads = PlainReads()
    shape = PlainShape(re.compile(rb'"t":(?=")'), lambda name, payload: str(json.loads(payload)["t"]))
    assert reads.learn(shape, b'data: {"t":"x"}\n\n')
    data = b"".join(b'data: {"t":"%b"}\n\n' % piece for piece in pieces) + rest
    at, expected = 0, []
    while (end := data.find(b"\n\n", at)) >= 0 and (text := reads.text_of(data[at : end + 2])) is not None:
        expected.append(text)
        at = end + 2
    found, stop = [], 0
    while (more := reads.texts_of(data, stop))[0]:
        if reads.strings:
            assert SplicedRecord(*reads.around, b"", b"", True).came(reads.strings) == data[stop : more[1]]
        found += more[0]
        stop = more[1]
    assert (found, stop) == (expected, at)


def test_a_record_cut_between_two_reads_does_not_undo_what_was_learnt() -> None:
    reads = PlainReads()
    shape = PlainShape(re.compile(rb'"t":(?=")'), lambda name, payload: str(json.loads(payload)["t"]))
    assert not reads.learn(shape, b'"}\n\n')
    assert reads.learn(shape, b'data: {"t":"x"}\n\n')
    assert reads.learn(shape, b'ond"}\n\n')
    assert reads.text_of(b'data: {"t":"y"}\n\n') == "y"


def test_paced_text_takes_the_short_way_between_all_dialects() -> None:
    for upstream, client in product(DIALECTS, DIALECTS):
        for watched in (True, False):
            encoder = get_dialect(upstream).encoder(
                EncodeContext(Request(dialect=upstream, model="m", stream=True), seed="s", created=1), stream=True
            )
            words = [TextDelta(f"word {number} ") for number in range(60)]
            said: list[Event] = [*words, Done(Finish("stop"), last=True)]
            reads = [encoder.feed([event]) for event in said]
            pair = Pair(upstream, client, watched=watched)
            pair.feed(reads)
            assert pair.taken >= 45, (upstream, client, watched, pair.taken)
            # Whose records are the same but for their text, and whose frames are.
            passes = upstream != "openai_responses" and client in UNIFORM
            assert pair.relayed.taken >= 45 if passes else not pair.relayed.taken, (upstream, client, watched)
            assert pair.told >= 45 if passes else not pair.told, (upstream, client, watched)
            burst = Pair(upstream, client, watched=watched)
            burst.feed([b"".join(reads[start : start + 4]) for start in range(0, len(reads), 4)])
            # Records that are numbered, or that count tokens, are read one by one.
            assert burst.taken >= (10 if upstream in ("openai_chat", "anthropic_messages") else 0), (
                upstream,
                client,
                burst.taken,
            )


ODD = (b"1e999", b'"\xff"', b'"\\ud800"', b"1e0", b'"x"')
"""Values that no reader takes, that take another attempt, or that surprise by their type."""
CHUNK = b'data: {"id":"c","created":%d,"choices":[{"index":0,"delta":{%b}}]}\n\n'
CONTENT = b'"content":"word %d"'
ARGUMENTS = b'"tool_calls":[{"index":0,"function":{"arguments":" word %d"}}]'
BEGUN = b'"tool_calls":[{"index":0,"id":"call_1","function":{"name":"get_weather","arguments":"{\\"city\\":\\"P"}}]'


@pytest.mark.parametrize("said", [CONTENT, ARGUMENTS])
@pytest.mark.parametrize(
    ("field", "before"),
    [
        (b"id", b'"choices"'), (b"created", b'"choices"'), (b"model", b'"choices"'), (b"unheard_of", b'"choices"'),
        (b"stop_reason", b'"index":0,"delta"'), (b"matched_stop", b'"index":0,"delta"'), (b"type", b'"index":0,"function"'),
    ],
)  # fmt: skip
def test_a_field_that_a_chunk_of_words_may_have_is_read_on_both_ways(field: bytes, before: bytes, said: bytes) -> None:
    """Whatever the long way refuses, the short way does not take: a field that it has no use for is read all the same."""
    begun = [CHUNK % (0, BEGUN)] if said is ARGUMENTS else []
    reads = begun + [CHUNK % (number, said % number) for number in range(1, 16)]
    for value, client in product(ODD, ("openai_chat", "anthropic_messages")):
        odd = reads.copy()
        odd[13] = reads[13].replace(before, b'"%b":%b,%b' % (field, value, before))
        Pair("openai_chat", client, profile=CLEAN).feed(odd)


@pytest.mark.parametrize("field", [b"summary_index", b"text", b"refusal", b"arguments", b"input", b"unheard_of"])
def test_a_field_that_a_delta_of_text_may_have_is_read_on_both_ways(field: bytes) -> None:
    encoder = get_dialect("openai_responses").encoder(
        EncodeContext(Request(dialect="openai_responses", model="m", stream=True), seed="s", created=1), stream=True
    )
    events: list[Event] = [Start(id="a", model="m", created=1), *(TextDelta(f"word {number} ") for number in range(16))]
    reads = [encoder.feed([event]) for event in events]
    for value, client in product(ODD, ("openai_responses", "anthropic_messages")):
        odd = reads.copy()
        odd[13] = reads[13].replace(b'"delta":', b'"%b":%b,"delta":' % (field, value))
        Pair("openai_responses", client, profile=CLEAN).feed(odd)


UNIFORM = ("openai_chat", "anthropic_messages")
"""Clients whose frames of a text differ in nothing else."""


WHOLE_WORDS = st.one_of(PIECES, st.sampled_from(("Well, ", "```\ncode\n```\n", "<tool_", "call>", '{"a": 1}', "</", "&lt;")))


CALLS = st.lists(
    st.tuples(
        st.sampled_from(("call_1", "call_2", "functions.f:0")),
        st.sampled_from(("{}", '{"city": "Paris"}', '{"city": "Paris",}', '{"a": "x\\ny"}', "null", '{"a": 1e3, "b": [{}]}')),
    ),
    max_size=3,
)


@given(words=st.lists(WHOLE_WORDS, max_size=6), calls=CALLS, pair=st.sampled_from(tuple(product(DIALECTS, DIALECTS))))
@examples(100)
def test_whole_answers_without_a_marker_come_out_the_same(
    words: list[str], calls: list[tuple[str, str]], pair: tuple[str, str]
) -> None:
    text = "".join(words)
    upstream, client = pair
    request = Request(dialect=upstream, model="m", turns=(Turn(role="user", parts=(Text(text="Hi"),)),))
    encoder = get_dialect(upstream).encoder(EncodeContext(request, seed="s", created=1), stream=False)
    events: list[Event] = [Start(id="a", model="m", created=1), TextDelta(text)]
    for number, (call_id, arguments) in enumerate(calls):
        events.append(ToolCallStart(number, call_id, "get_weather"))
        events.append(ToolCallComplete(number, call_id, "get_weather", arguments))
    done = Done(Finish("tool" if calls else "stop"), 0, Usage(input_total=3, output_total=5), last=True)
    body = encoder.feed([*events, done])
    quick = whole_answer(upstream, client, body)
    with long_ways_only():
        assert whole_answer(upstream, client, body) == quick


def whole_answer(upstream: str, client: str, body: bytes) -> tuple[object, ...]:
    """What the client gets, and what is counted."""
    turn = Turn(role="user", parts=(Text(text="Hi"),))
    request = Request(dialect=client, model="m", max_output=100, turns=(turn,), tools=(TOOL,))
    exchange = Exchange(request, Route(dialect=upstream, model="m", format=FormatOptions()), Options(seed="s", created=1))
    exchange.upstream_head(200, {})
    exchange.upstream_data(body)
    step = exchange.upstream_end()
    return step.head, step.output, exchange.outcome, exchange.text_calls, exchange.format_found, exchange.losses
