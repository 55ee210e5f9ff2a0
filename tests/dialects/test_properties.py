"""What holds for every dialect and every input: written and read again it means the same, cut anywhere it is no success,
nonsense never raises, requests survive the way abroad, and work grows with the input and not with its square.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.calls.builder import fold
from athena.calls.ids import unique_history_ids
from athena.calls.names import NameMap
from athena.calls.pairing import pair_results
from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import DecodeContext, EncodeContext, EncodeTarget
from athena.errors import AthenaError, InvalidRequest
from athena.exchange import AnswerPath, Options, Route
from athena.model.events import (
    Done,
    Error,
    Event,
    Finish,
    Start,
    TextDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
)
from athena.model.parts import Image, Refusal, Text, Thinking, ToolCall, ToolResult, joined_text
from athena.model.request import Request
from athena.prepare import prepare
from athena.profiles import default_profiles
from support.canonical import FINISH_WORDS
from support.cases import answer_modes, case_bytes, dialect_cases
from support.examples import examples
from support.grammar import check_grammar, merged
from support.sdk_types import check_body
from support.strategies import damaged, json_values, requests, stories

DIALECTS = pytest.mark.parametrize("dialect", dialect_names())
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
PER_PAIR = examples(10)
"""For what runs once per pair of dialects: together they see enough."""
MODELS = {
    "anthropic_messages": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro",
    "openai_chat": "gpt-4.1",
    "openai_responses": "gpt-5.1",
}


def write(dialect: str, events: list[Event], *, stream: bool) -> bytes:
    request = Request(dialect=dialect, model="m", stream=stream, include_usage=True)
    encoder = get_dialect(dialect).encoder(EncodeContext(request=request, seed="s", same_dialect=True), stream=stream)
    return b"".join(encoder.feed([event]) for event in events)


def read(dialect: str, data: bytes, *, stream: bool, cuts: list[int] | None = None) -> list[Event]:
    profile = default_profiles().for_dialect(dialect, MODELS[dialect])
    decoder = get_dialect(dialect).decoder(DecodeContext(profile=profile, seed="d"), stream=stream)
    events: list[Event] = []
    position = 0
    for cut in [*sorted(cuts or ()), len(data)]:
        events += decoder.feed(data[position:cut])
        position = cut
    events += decoder.close()
    assert decoder.close() == []
    return events


Meaning = list[tuple[str, ...]]


def meaning(events: list[Event], *, ordered: bool) -> tuple[Meaning, list[str]]:
    """What an answer says, in order, neighbours of one kind joined; and the state it carries. Unordered: by kind."""
    said: Meaning = []
    states: list[str] = []
    for choice in fold(events).choices:
        for part in choice.parts:
            if isinstance(part, Text | Refusal):
                said.append(("text", part.text))
            elif isinstance(part, Thinking):
                said.append(("thinking", part.text))
                states += [part.signature.payload] if part.signature is not None else []
            elif isinstance(part, ToolCall):
                said.append(("call", part.name, part.id, json.dumps(json.loads(part.arguments))))
    if not ordered:
        said.sort(key=lambda item: ("thinking", "text", "call").index(item[0]))
    joined: Meaning = []
    for kind, group in groupby((item for item in said if item[0] == "call" or item[1]), key=lambda item: item[0]):
        if kind == "call":
            joined.extend(group)
        else:
            joined.append((kind, "".join(item[1] for item in group)))
    return joined, states


# -- answers ---------------------------------------------------------------------------------------------------------------


@STREAMED
@DIALECTS
@given(data=st.data())
def test_written_and_read_again_it_means_the_same(dialect: str, stream: bool, data: st.DataObject) -> None:
    # In a whole Messages body a last call that was cut looks whole: it is left out when the length ended the answer.
    story = data.draw(stories(dialect, cut=stream or dialect != "anthropic_messages"))
    written = write(dialect, story.events, stream=stream)
    cuts = data.draw(st.lists(st.integers(0, len(written)), max_size=6))
    again = read(dialect, written, stream=stream, cuts=cuts)
    check_grammar(again)
    # A whole Chat message has one text and one list of calls.
    ordered = stream or dialect != "openai_chat"
    assert meaning(again, ordered=ordered) == meaning(story.events, ordered=ordered)
    first, last = story.events[-1], again[-1]
    assert isinstance(first, Done)
    assert isinstance(last, Done)
    words = FINISH_WORDS[dialect]
    assert set(words[last.finish.kind]) & set(words[story.finish])
    if first.usage is not None:
        assert last.usage is not None
        assert (last.usage.input_total, last.usage.output_total) == (first.usage.input_total, first.usage.output_total)
    assert merged(read(dialect, written, stream=stream)) == merged(again)


@STREAMED
@DIALECTS
@given(data=st.data())
def test_cut_anywhere_nothing_half_made_looks_whole(dialect: str, stream: bool, data: st.DataObject) -> None:
    story = data.draw(stories(dialect))
    written = write(dialect, story.events, stream=stream)
    end = data.draw(st.integers(0, max(len(written) - 1, 0)))
    events = read(dialect, written[:end], stream=stream)
    check_grammar(events)
    whole = read(dialect, written, stream=stream)
    calls = {(event.call, event.arguments) for event in whole if isinstance(event, ToolCallComplete)}
    assert {(event.call, event.arguments) for event in events if isinstance(event, ToolCallComplete)} <= calls
    if isinstance(events[-1], Done):
        # Only the end marker or the usage behind the finish is missing.
        assert meaning(events, ordered=True) == meaning(whole, ordered=True)


@DIALECTS
@given(text=st.text(min_size=1, max_size=8), stream=st.booleans())
def test_any_text_can_be_written(dialect: str, text: str, stream: bool) -> None:
    """Half characters become the replacement character; all else stays."""
    written = write(dialect, [TextDelta(text), Done(Finish())], stream=stream)
    said = joined_text(fold(read(dialect, written, stream=stream)).choices[0].parts)
    assert said == "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)


@pytest.mark.parametrize("upstream", dialect_names())
@DIALECTS
@PER_PAIR
@given(data=st.data())
def test_from_any_dialect_to_any_other(dialect: str, upstream: str, data: st.DataObject) -> None:
    """Through the whole path: what the client reads says what the upstream said."""
    story = data.draw(stories(upstream))
    request = Request(dialect=dialect, model="m", stream=True, include_usage=True)
    profile = default_profiles().for_dialect(upstream, MODELS[upstream])
    path = AnswerPath(request, Route(dialect=upstream, model="m", profile=profile), Options(seed="p"), upstream_stream=True)
    written = write(upstream, story.events, stream=True)
    cut = data.draw(st.integers(0, len(written)))
    output = b"".join(path.feed(piece)[1] for piece in (written[:cut], written[cut:])) + path.close()[1]
    again = read(dialect, output, stream=True)
    check_grammar(again)
    said, told = meaning(story.events, ordered=True)[0], meaning(again, ordered=True)[0]
    if dialect in ("gemini", "openai_responses") and story.finish == "filter" and not any(item[0] == "text" for item in said):
        # Agents retry an answer without words, and a refusal is a part with text: it gets some.
        told = [item for item in told if item[0] != "text"]
    assert told == said


# -- nonsense --------------------------------------------------------------------------------------------------------------


@STREAMED
@DIALECTS
@given(data=st.binary(max_size=200))
def test_any_bytes_end_in_one_terminal(dialect: str, stream: bool, data: bytes) -> None:
    check_grammar(read(dialect, data, stream=stream))


@cache
def recorded(dialect: str, stream: bool) -> list[list[tuple[str, Any]]]:
    """The case answers of a dialect as (event name, record) lists."""
    found: list[list[tuple[str, Any]]] = []
    for case, mode in answer_modes(dialect):
        if (mode == "stream") != stream:
            continue
        body = case_bytes(case, mode).decode()
        try:
            found.append(list(_records(body)) if stream else [("", json.loads(body))])
        except json.JSONDecodeError:
            continue
    return [records for records in found if records]


def _records(body: str) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in body.splitlines():
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:") and "[DONE]" not in line:
            yield name, json.loads(line[5:])
            name = ""


@STREAMED
@DIALECTS
@given(data=st.data())
def test_damaged_answers_end_in_one_terminal(dialect: str, stream: bool, data: st.DataObject) -> None:
    records = list(data.draw(st.sampled_from(recorded(dialect, stream))))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(records) - 1))
        name, value = records[position]
        records[position] = (name, data.draw(damaged(value) | json_values))
    if stream:
        lines = [(f"event: {name}\n" if name else "") + f"data: {json.dumps(value)}\n\n" for name, value in records]
        body = "".join(lines).encode()
    else:
        body = json.dumps(records[0][1]).encode()
    events = read(dialect, body, stream=stream)
    check_grammar(events)
    for client in dialect_names():
        # Whatever was understood, every client's encoder can say it.
        write(client, events, stream=True)
        write(client, events, stream=False)


ODD_VALUES: tuple[Any, ...] = ([], {}, 5, None, True, "x", [{}], {"a": []})


@DIALECTS
@pytest.mark.parametrize("key", ["type", "code", "status", "message", "param", "metadata"])
def test_error_bodies_of_any_shape_are_errors(dialect: str, key: str) -> None:
    for odd in ODD_VALUES:
        known = {"type": "overloaded_error", "message": "m", key: odd}
        for body in ({"error": {"message": "m", key: odd}}, {"type": "error", "error": known}, {key: odd}, [{"error": odd}]):
            for status in (400, 401, 500, 529):
                assert get_dialect(dialect).decode_error(status, {}, json.dumps(body).encode()).fatal


@cache
def bodies(dialect: str) -> list[Any]:
    return [json.loads(case.body) for case in dialect_cases(dialect).request]


@DIALECTS
@given(data=st.data())
def test_damaged_requests_are_read_or_refused(dialect: str, data: st.DataObject) -> None:
    body: Any = data.draw(st.sampled_from(bodies(dialect)))
    for _ in range(data.draw(st.integers(1, 3))):
        body = data.draw(damaged(body).filter(lambda value: isinstance(value, dict)))
    kept = copy.deepcopy(body)
    codec = get_dialect(dialect)
    try:
        request = codec.decode_request(body, model="m" if dialect == "gemini" else None)
    except InvalidRequest:
        return
    finally:
        assert body == kept, "decoding changed its input"
    for target in dialect_names():
        abroad = get_dialect(target)
        where = EncodeTarget(MODELS[target], default_profiles().for_dialect(target, MODELS[target]))
        try:
            prepared = prepare(request, where, codec, abroad, pairing="repair")
            msgspec.json.encode(abroad.encode_request(prepared.request, where).body)
        except AthenaError:
            pass
        assert body == kept, f"writing for {target} changed the client's body"


# -- requests --------------------------------------------------------------------------------------------------------------


def conversation(request: Request, names: NameMap | None = None) -> list[tuple[Any, ...]]:
    """What a request says that no target may lose: user and assistant text, calls, results, in order."""
    said: list[tuple[Any, ...]] = []
    order: dict[str, int] = {}
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, Text) and part.text:
                said.append((turn.role, part.text))
            elif isinstance(part, ToolCall):
                order[part.id] = len(order)
                name = names.client(part.name)[1] if names else part.name
                said.append(("call", order[part.id], name, json.loads(part.arguments)))
            elif isinstance(part, ToolResult):
                text = joined_text(part.parts).removeprefix("[tool error] ")
                said.append(("result", order[part.call_id], text))
            elif isinstance(part, Image):
                said.append((turn.role, "image", part.source))
    joined: list[tuple[Any, ...]] = []
    for item in said:
        if joined and len(item) == 2 and len(joined[-1]) == 2 and joined[-1][0] == item[0]:
            joined[-1] = (item[0], joined[-1][1] + item[1])
        else:
            joined.append(item)
    return joined


@pytest.mark.parametrize("target", dialect_names())
@DIALECTS
@PER_PAIR
@given(data=st.data())
def test_requests_survive_the_way_abroad(dialect: str, target: str, data: st.DataObject) -> None:
    request = data.draw(requests(dialect))
    home, abroad = get_dialect(dialect), get_dialect(target)
    where = EncodeTarget(MODELS[target], default_profiles().for_dialect(target, MODELS[target]))
    before = msgspec.json.encode(request)
    prepared = prepare(request, where, home, abroad)
    again = prepare(prepared.request, where, home, abroad)
    assert again.request == prepared.request, "preparing twice is preparing once"
    encoded = abroad.encode_request(prepared.request, where)
    assert msgspec.json.encode(request) == before, "an input was changed"
    body = msgspec.json.decode(msgspec.json.encode(encoded.body))
    check_body(target, body)
    back = abroad.decode_request(body, model="m" if target == "gemini" else None)
    expected = request
    if dialect != target:
        # At home the history is the upstream's to judge.
        expected = msgspec.structs.replace(request, turns=pair_results(unique_history_ids(request.turns))[0])
    assert conversation(back, prepared.names) == conversation(expected)
    ids = [part.id for turn in back.turns for part in turn.parts if isinstance(part, ToolCall)]
    assert dialect == target or len(set(ids)) == len(ids)


# -- cost --------------------------------------------------------------------------------------------------------------------


def steps_of(dialect: str, upstream: str, deltas: int) -> int:
    """Function calls made to bring one call with that many pieces of arguments from upstream to client."""
    pieces = ['{"text":"', *("x" * 1024 for _ in range(deltas)), '"}']
    events: list[Event] = [Start("u", "m"), ToolCallStart(0, "call_1", "a")]
    events += [ToolCallDelta(0, piece) for piece in pieces]
    events += [ToolCallComplete(0, "call_1", "a", "".join(pieces)), Done(Finish("tool"))]
    written = write(upstream, events, stream=True)
    request = Request(dialect=dialect, model="m", stream=True)
    path = AnswerPath(request, Route(dialect=upstream, model="m"), Options(passthrough=False), upstream_stream=True)
    count = 0

    def probe(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    output = 0
    sys.setprofile(probe)
    try:
        for start in range(0, len(written), 1500):
            output += len(path.feed(written[start : start + 1500])[1])
        output += len(path.close()[1])
    finally:
        sys.setprofile(None)
    # A Responses stream says arguments four times: deltas, their end, the item, the whole answer.
    assert output < 5 * len(written) + 10_000
    return count


@pytest.mark.parametrize("upstream", dialect_names())
@DIALECTS
def test_work_is_linear_in_the_arguments(dialect: str, upstream: str) -> None:
    """A mebibyte of arguments in 1024 pieces costs four times what 256 pieces cost."""
    small, large = steps_of(dialect, upstream, 256), steps_of(dialect, upstream, 1024)
    assert large <= 4.4 * small + 500


def test_errors_stay_errors_in_every_dialect() -> None:
    for dialect in dialect_names():
        for stream in (True, False):
            written = write(dialect, [TextDelta("x"), Error("broken")], stream=stream)
            last = read(dialect, written, stream=stream)[-1]
            assert isinstance(last, Error)
