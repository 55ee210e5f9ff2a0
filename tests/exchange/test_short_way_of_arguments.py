"""Pieces of a native call's arguments that are inside of a string take the short way, and come out as on the long way."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from athena.calls.tracker import PlainArguments, ToolCallTracker, plain_arguments
from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import EncodeContext
from athena.errors import LimitExceeded
from athena.formats.bodies.native_arguments import ArgumentMender
from athena.model.events import Done, Event, Finish, Start, TextDelta, ToolCallComplete, ToolCallDelta, ToolCallStart, Usage
from athena.model.limits import Limits
from athena.model.profile import Profile
from athena.model.request import Request
from exchange.short_ways import Pair, cut_at
from support.examples import examples

DIALECTS = dialect_names()
UPSTREAMS = ("openai_chat", "anthropic_messages")
"""Whose pieces of arguments are known by their bytes."""
CLIENTS = ("openai_chat", "anthropic_messages", "openai_responses")
"""Who gets arguments in pieces."""
WORDS = [f" word {number}" if number % 7 else r"\n\t\"x\"" for number in range(60)]


def stream_of(upstream: str, events: list[Event]) -> list[bytes]:
    """Each event as a server of this dialect sends it, in a read of its own."""
    request = Request(dialect=upstream, model="m", stream=True, include_usage=True)
    encoder = get_dialect(upstream).encoder(EncodeContext(request, seed="s", created=1), stream=True)
    return [read for read in (encoder.feed([event]) for event in events) if read]


def call_in_pieces(pieces: list[str]) -> list[Event]:
    whole = "".join(pieces)
    return [
        Start(id="a", model="m", created=1),
        TextDelta("I write it."),
        ToolCallStart(0, "call_1", "get_weather"),
        *(ToolCallDelta(0, piece) for piece in pieces),
        ToolCallComplete(0, "call_1", "get_weather", whole),
        Done(Finish("tool"), 0, Usage(input_total=3, output_total=5), last=True),
    ]


@pytest.mark.parametrize("clean", [False, True])
def test_long_arguments_take_the_short_way(clean: bool) -> None:
    for upstream, client in product(UPSTREAMS, CLIENTS):
        reads = stream_of(upstream, call_in_pieces(['{"', "city", '": "', *WORDS, '"}']))
        pair = Pair(upstream, client, profile=Profile(clean=clean))
        pair.feed(reads)
        assert pair.taken >= 50, (upstream, client, pair.taken)
        # Frames of Responses are numbered.
        assert pair.relayed.taken >= 50 if client != "openai_responses" else not pair.relayed.taken, (upstream, client)
        burst = Pair(upstream, client, profile=Profile(clean=clean))
        burst.feed([b"".join(reads[start : start + 5]) for start in range(0, len(reads), 5)])
        assert burst.taken >= 6, (upstream, client, burst.taken)


def chat_record(entries: list[dict[str, object]], **delta: object) -> bytes:
    choice = {"index": 0, "delta": {**delta, "tool_calls": entries}, "finish_reason": None}
    record = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(record, separators=(",", ":")).encode() + b"\n\n"


INSIDE = ("a", " word", "\\n", '\\"', "\\u00e9", "\\u00", "\\", '"', "é", "\U0001f600", "\n", "\x00", "<tool_call>", "")
AROUND = ("{", "}", '{"a": "', '"}', '": "', ",", '", "b": "', "[", "1", "null", "{}", ",}", "'", "tr", "ue", " ")
PIECES = st.one_of(st.sampled_from(INSIDE), st.sampled_from(INSIDE), st.sampled_from(AROUND), st.text(max_size=4))
ODD = ("", "", "", "", "", "named", "identified", "other", "custom", "signed", "content", "empty", "two", "object", "finish")


def odd_record(way: str, piece: str) -> bytes:
    """A piece as some server may write it."""
    function: dict[str, object] = {"arguments": piece}
    entry: dict[str, object] = {"index": 0, "function": function}
    if way == "named":
        function["name"] = "get_weather"
    elif way == "identified":
        entry["id"] = "call_1"
    elif way == "other":
        entry = {"index": 1, "id": "call_2", "type": "function", "function": {"name": "get_weather", "arguments": piece}}
    elif way == "custom":
        entry = {"index": 0, "custom": {"input": piece}}
    elif way == "signed":
        entry["extra_content"] = {"google": {"thought_signature": "s"}}
    elif way == "empty":
        entry.update(id="", type="function")
        function["name"] = ""
    elif way == "two":
        return chat_record([entry, {"index": 1, "function": {"arguments": piece}}])
    elif way == "object":
        function["arguments"] = {"a": piece}
    elif way == "finish":
        return chat_record([entry]).replace(b'"finish_reason":null', b'"finish_reason":"tool_calls"')
    return chat_record([entry], **({"content": "and " + piece} if way == "content" else {}))


@given(data=st.data())
@examples(150)
def test_any_pieces_come_out_the_same(data: st.DataObject) -> None:
    client = data.draw(st.sampled_from(DIALECTS))
    profile = Profile(clean=data.draw(st.booleans()))
    pieces = data.draw(st.lists(st.tuples(st.sampled_from(ODD), PIECES), min_size=2, max_size=14))
    start = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    reads = [chat_record([], role="assistant", content="Hi"), chat_record([start])]
    if data.draw(st.booleans()):
        reads += [odd_record("", '{"a": "'), odd_record("", "x"), odd_record("", "y")]
    reads += [odd_record(way, piece) for way, piece in pieces]
    reads += [b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n', b"data: [DONE]\n\n"]
    if data.draw(st.booleans()):
        reads = cut_at(reads, data.draw(st.integers(1, sum(map(len, reads)))))
    size = data.draw(st.sampled_from((1, 1, 2, 3, 5)))
    reads = [b"".join(reads[start : start + size]) for start in range(0, len(reads), size)]
    Pair("openai_chat", client, watched=data.draw(st.booleans()), profile=profile).feed(reads)


@given(
    pieces=st.lists(PIECES.filter(bool), min_size=1, max_size=12),
    pair=st.sampled_from(tuple(product(UPSTREAMS, DIALECTS))),
    size=st.sampled_from((1, 1, 2, 4)),
)
@example(pieces=['{"a": "', "x", "y\\", "n", "z", '"}'], pair=("anthropic_messages", "anthropic_messages"), size=1)
@examples(100)
def test_any_arguments_of_any_upstream_come_out_the_same(pieces: list[str], pair: tuple[str, str], size: int) -> None:
    upstream, client = pair
    reads = stream_of(upstream, call_in_pieces([piece.encode("utf-8", "ignore").decode() for piece in pieces]))
    reads = [b"".join(reads[start : start + size]) for start in range(0, len(reads), size)]
    Pair(upstream, client).feed(reads)


def messages_piece(index: int, **delta: object) -> bytes:
    record = {"type": "content_block_delta", "index": index, "delta": delta}
    return b"event: content_block_delta\ndata: " + json.dumps(record, separators=(",", ":")).encode() + b"\n\n"


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("input_json_delta", ['{"a":"one', " two", '"}', '{"path":"/home/me', "/STRAY", '/x"}']),
        ("text_delta", ["one", " two", " three", "four", " STRAY", " five"]),
        ("thinking_delta", ["one", " two", " three", "four", " STRAY", " five"]),
    ],
    ids=["arguments", "text", "thinking"],
)
def test_a_late_piece_of_a_block_that_has_ended_is_no_piece_of_the_next(client: str, kind: str, texts: list[str]) -> None:
    # The first piece of the second block comes in two reads, so that the reads show nothing of how its pieces look.
    field = {"input_json_delta": "partial_json", "text_delta": "text", "thinking_delta": "thinking"}[kind]
    pieces = [messages_piece(index, type=kind, **{field: text}) for index, text in zip((0, 0, 0, 1, 0, 1), texts, strict=True)]
    begins = stream_of("anthropic_messages", call_in_pieces(["{}"]))[:1]
    block: dict[str, object] = {"type": kind.removesuffix("_delta"), field: ""}
    if field == "partial_json":
        block = {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}}
    starts = [
        b"event: content_block_start\ndata: "
        + json.dumps({"type": "content_block_start", "index": index, "content_block": block}).encode()
        + b"\n\n"
        for index in (0, 1)
    ]
    stops = [b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n' % index for index in (0, 1)]
    ends = [
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{}}\n\n',
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ]
    cut = pieces[3]
    reads = [*begins, starts[0], *pieces[:3], stops[0], starts[1], cut[:60], cut[60:], *pieces[4:], stops[1], *ends]
    Pair("anthropic_messages", client).feed(reads)


def test_arguments_keep_within_their_limit_in_a_read_of_any_size() -> None:
    """No two records have the same bytes around their text, so that each is read by itself."""
    piece = '{"index":0,"function":{"arguments":"%s"}}'

    def record(text: str, number: int) -> bytes:
        choice = '{"index":0,"delta":{"tool_calls":[%s]},"finish_reason":null}' % (piece % text)
        return b'data: {"id":"c","choices":[%b],"pad":"%b"}\n\n' % (choice.encode(), b"x" * (number % 7))

    start = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    small = [record("y", number) for number in range(30)]
    large = b"".join(record("z" * 7000, number) for number in range(200)) + record('\\"}', 1)
    ends = [b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n', b"data: [DONE]\n\n"]
    limits = Limits(argument_chars=300_000)
    Pair("openai_chat", "anthropic_messages", profile=Profile(clean=True), limits=limits).feed(
        [chat_record([start]), record('{\\"a\\":\\"', 0), *small, large, *ends]
    )


def started(limits: Limits = Limits()) -> ToolCallTracker:  # noqa: B008 - it cannot change
    tracker = ToolCallTracker(limits=limits, mend=ArgumentMender)
    tracker.start_call("call_1", "f", provider_id=0)
    return tracker


def watched(tracker: ToolCallTracker) -> PlainArguments:
    watch = plain_arguments(tracker, 0)
    assert watch is not None
    return watch


def test_only_the_inside_of_a_string_is_plain() -> None:
    tracker = started()
    assert plain_arguments(tracker, 0) is None
    tracker.append_args(0, '{"a": ')
    assert plain_arguments(tracker, 0) is None
    tracker.append_args(0, '"x')
    watch = watched(tracker)
    assert watch.are_plain(("y", '\\"', "\\u00e9 z"))
    for leaving in ('"', "\\", "\\u00", "\n", 'a"b', "\\x"):
        assert watch.search(leaving) is not None, leaving
    watch.passed("y")
    tracker.append_args(0, '"}')
    assert plain_arguments(tracker, 0) is None
    done = tracker.complete_call(0)
    assert isinstance(done, ToolCallComplete)
    assert done.arguments == '{"a": "xy"}'


def test_arguments_that_may_soon_be_too_many_are_counted_one_by_one() -> None:
    tracker = started(Limits(argument_chars=300_000))
    tracker.append_args(0, '{"a": "')
    watch = watched(tracker)
    piece = "x" * 10_000
    taken = 0
    while watch.search(piece) is None:
        watch.passed(piece)
        taken += 1
    assert 0 < taken <= 5
    tracker.append_args(0, "x" * (300_000 - 10_000 * taken - 7))
    with pytest.raises(LimitExceeded):
        tracker.append_args(0, "x")
