"""Every case of every dialect, decoded: whole, byte by byte, cut at random, truncated everywhere, and encoded back."""

from __future__ import annotations

import random

import msgspec
import pytest

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import DecodeContext, EncodeContext
from athena.errors import InvalidRequest
from athena.model.events import Done, Error, Event, ToolCallComplete
from athena.model.profile import Profile
from athena.model.request import Request
from support.canonical import FINISH_WORDS, exact_parts
from support.cases import MANDATORY, AnswerCase, BadRequestCase, Mode, answer_modes, case_bytes, dialect_cases
from support.grammar import check_grammar, merged

CASES = [
    pytest.param(dialect, case, mode, id=f"{dialect}-{case.name}-{mode}")
    for dialect in dialect_names()
    for case, mode in answer_modes(dialect)
]


def decode(dialect: str, case: AnswerCase, mode: Mode, data: bytes, cuts: list[int]) -> list[Event]:
    """The events of a body read in pieces."""
    profile = msgspec.convert(case.profile, Profile)
    decoder = get_dialect(dialect).decoder(DecodeContext(profile=profile, seed="case"), stream=mode == "stream")
    events: list[Event] = []
    position = 0
    for cut in [*cuts, len(data)]:
        events += decoder.feed(data[position:cut])
        position = cut
    events += decoder.close()
    assert decoder.close() == []
    return events


@pytest.mark.parametrize("dialect", dialect_names())
def test_mandatory_scenarios_are_there(dialect: str) -> None:
    cases = dialect_cases(dialect)
    named = {case.name for case in cases.answer} | set(cases.not_applicable)
    assert [name for name in MANDATORY if name not in named] == []


@pytest.mark.parametrize(("dialect", "case", "mode"), CASES)
def test_meaning(dialect: str, case: AnswerCase, mode: Mode) -> None:
    events = decode(dialect, case, mode, case_bytes(case, mode), [])
    check_grammar(events)
    terminal = events[-1]
    if case.error is not None:
        assert isinstance(terminal, Error), f"expected an error, got {terminal}"
        assert terminal.kind == case.error.kind
        if case.error.code is not None:
            assert terminal.code == case.error.code
        if case.error.message is not None:
            assert terminal.message == case.error.message
    else:
        assert isinstance(terminal, Done), f"expected an end, got {terminal}"
        assert terminal.finish.kind == case.finish
        assert terminal.finish.stop_sequence == case.stop_sequence
        if case.usage is not None:
            assert terminal.usage is not None
            assert {key: getattr(terminal.usage, key) for key in case.usage} == case.usage
    found = exact_parts(events)
    assert len(found) == len(case.parts), f"{found}"
    for have, want in zip(found, case.parts, strict=True):
        if want.id is None:
            have = msgspec.structs.replace(have, id=None)
        assert have == want


@pytest.mark.parametrize(("dialect", "case", "mode"), CASES)
def test_any_split_gives_the_same_events(dialect: str, case: AnswerCase, mode: Mode) -> None:
    data = case_bytes(case, mode)
    expected = merged(decode(dialect, case, mode, data, []))
    assert merged(decode(dialect, case, mode, data, list(range(1, len(data))))) == expected
    dice = random.Random(case.name)
    for _ in range(5):
        cuts = sorted(dice.sample(range(len(data) + 1), min(len(data), dice.randint(1, 12))))
        assert merged(decode(dialect, case, mode, data, cuts)) == expected


@pytest.mark.parametrize(("dialect", "case", "mode"), CASES)
def test_truncation_is_never_a_success(dialect: str, case: AnswerCase, mode: Mode) -> None:
    """Cut anywhere: no exception, a terminal event, and no call that the whole answer does not have."""
    data = case_bytes(case, mode)
    whole = decode(dialect, case, mode, data, [])
    calls = {(event.call, event.arguments) for event in whole if isinstance(event, ToolCallComplete)}
    done_from = first_success(dialect, case, mode, data) if isinstance(whole[-1], Done) else None
    for end in range(0, len(data), max(1, len(data) // 400)):
        events = decode(dialect, case, mode, data[:end], [])
        check_grammar(events)
        for event in events:
            if isinstance(event, ToolCallComplete):
                assert (event.call, event.arguments) in calls
        if done_from is None or end < done_from:
            assert isinstance(events[-1], Error), f"cut at {end} looks complete"


def first_success(dialect: str, case: AnswerCase, mode: Mode, data: bytes) -> int:
    """The least prefix that says all: trailing line ends and end markers may go, nothing else may."""
    tail = data.rstrip()
    for marker in (b"data: [DONE]",):
        tail = tail.removesuffix(marker).rstrip()
    if mode == "whole":
        return len(tail)
    # From the record that holds the finish on, the rest (usage, terminator) may be missing in dialects that allow it. An answer
    # can only become whole where a line or an object ends.
    ends = [position + (byte == 0x7D) for position, byte in enumerate(data) if byte in b"\r\n}"]
    found = next((end for end in ends if isinstance(decode(dialect, case, mode, data[:end], [])[-1], Done)), len(data))
    finish_record = data.rfind(b"\n\n", 0, len(tail))
    assert found > finish_record // 2, "an answer was called complete long before its end"
    return found


@pytest.mark.parametrize(("dialect", "case", "mode"), CASES)
def test_encode_then_decode_is_the_same(dialect: str, case: AnswerCase, mode: Mode) -> None:
    """What a decoder understood, written by the same dialect's encoder and read again, means the same."""
    codec = get_dialect(dialect)
    profile = msgspec.convert(case.profile, Profile)
    events = codec_events(dialect, case, mode)
    if isinstance(events[-1], Error):
        return
    request = Request(dialect=dialect, model="m", stream=True, include_usage=True)
    for streamed in (True, False):
        client = msgspec.structs.replace(request, stream=streamed)
        encoder = codec.encoder(EncodeContext(request=client, seed="s", same_dialect=True), stream=streamed)
        written = b"".join(encoder.feed([event]) for event in events)
        decoder = codec.decoder(DecodeContext(profile=profile, seed="case", keep_extras=True), stream=streamed)
        again = decoder.feed(written) + decoder.close()
        check_grammar(again)
        assert exact_parts(again) == exact_parts(events)
        first, second = events[-1], again[-1]
        assert isinstance(first, Done)
        assert isinstance(second, Done)
        # What the dialect has one word for may come back as that word's first meaning.
        words = FINISH_WORDS[dialect]
        assert set(words[second.finish.kind]) & set(words[first.finish.kind])
        if first.usage is not None:
            assert second.usage is not None
            assert (second.usage.input_total, second.usage.output_total) == (
                first.usage.input_total,
                first.usage.output_total,
            )


def codec_events(dialect: str, case: AnswerCase, mode: Mode) -> list[Event]:
    profile = msgspec.convert(case.profile, Profile)
    decoder = get_dialect(dialect).decoder(
        DecodeContext(profile=profile, seed="case", keep_extras=True), stream=mode == "stream"
    )
    return decoder.feed(case_bytes(case, mode)) + decoder.close()


BAD_REQUESTS = [
    pytest.param(dialect, case, id=f"{dialect}-{case.name}")
    for dialect in dialect_names()
    for case in dialect_cases(dialect).bad_request
]


@pytest.mark.parametrize(("dialect", "case"), BAD_REQUESTS)
def test_bad_requests_name_the_field(dialect: str, case: BadRequestCase) -> None:
    with pytest.raises(InvalidRequest) as caught:
        get_dialect(dialect).decode_request(msgspec.json.decode(case.body), model="m" if dialect == "gemini" else None)
    assert caught.value.path == case.path
    assert case.path.rpartition(".")[2] in caught.value.message
