"""`ToolCallTracker`: basic scenarios, and any order in which pieces may come."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.calls.ids import synthesized_id
from athena.calls.tracker import ToolCallTracker
from athena.errors import LimitExceeded
from athena.model.events import Done, Error, Event, Finish, ToolCallComplete, ToolCallDelta, ToolCallStart
from athena.model.limits import Limits
from athena.model.parts import Opaque
from athena.wire.json_span import JsonSpan
from support.grammar import check_grammar


def complete(event: object) -> ToolCallComplete:
    assert isinstance(event, ToolCallComplete)
    return event


def error(event: object) -> Error:
    assert isinstance(event, Error)
    return event


# -- basic scenarios --------------------------------------------------------------------


def test_basic_flow() -> None:
    tracker = ToolCallTracker()
    assert tracker.start_call("call_1", "get_weather") == ToolCallStart(0, "call_1", "get_weather")
    assert tracker.append_args("call_1", '{"city":') == ToolCallDelta(0, '{"city":')
    assert tracker.append_args("call_1", '"Paris"}') == ToolCallDelta(0, '"Paris"}')
    assert tracker.complete_call("call_1") == ToolCallComplete(0, "call_1", "get_weather", '{"city":"Paris"}')
    (call,) = tracker.into_calls()
    assert (call.id, call.name, call.arguments) == ("call_1", "get_weather", '{"city":"Paris"}')
    assert tracker.warnings == []


@pytest.mark.parametrize("key", ["item_9", 3, ("choice", 0, 1)])
def test_provider_key_and_call_id_name_the_same_call(key: Any) -> None:
    tracker = ToolCallTracker()
    tracker.start_call("call_1", "f", provider_id=key)
    tracker.append_args(key, '{"a"')
    tracker.append_args("call_1", ":1}")
    assert complete(tracker.complete_call(key)).arguments == '{"a":1}'
    assert tracker.contains(key)
    assert tracker.contains("call_1")
    assert not tracker.contains("call_2")


def test_empty_delta_still_gives_an_event() -> None:
    tracker = ToolCallTracker()
    tracker.start_call("call_1", "f")
    assert tracker.append_args("call_1", "") == ToolCallDelta(0, "")


def test_unknown_ids() -> None:
    tracker = ToolCallTracker()
    assert tracker.append_args("nobody", "{}") is None
    assert tracker.complete_call("nobody") is None
    assert tracker.warnings == ["end of unknown call 'nobody'"]
    assert tracker.into_calls() == []


def test_length_and_emptiness() -> None:
    tracker = ToolCallTracker()
    assert tracker.is_empty()
    assert (len(tracker), tracker.len()) == (0, 0)
    tracker.start_call("a", "f", provider_id=0)
    tracker.start_call("b", "g", provider_id=1)
    assert not tracker.is_empty()
    assert (len(tracker), tracker.len(), len(tracker.into_calls())) == (2, 2, 0)
    tracker.complete_call(0)
    assert (len(tracker), len(tracker.into_calls())) == (2, 1)


def test_parallel_calls_in_any_order_keep_the_order_of_appearance() -> None:
    tracker = ToolCallTracker()
    for index in range(3):
        tracker.start_call(f"call_{index}", f"tool_{index}", provider_id=index)
    for piece in ("{", '"n":', "1}"):
        for index in (2, 0, 1):
            tracker.append_args(index, piece)
    assert [complete(tracker.complete_call(index)).call for index in (1, 2, 0)] == [1, 2, 0]
    assert [(call.id, call.arguments) for call in tracker.into_calls()] == [(f"call_{n}", '{"n":1}') for n in range(3)]


def test_signature_and_other_facts_travel_with_the_call() -> None:
    tracker = ToolCallTracker()
    state = Opaque("gemini", "thought_signature", "sig")
    start = tracker.start_call("a", "f", choice=2, namespace="ns", signature=state, item_id="fc_1")
    assert start == ToolCallStart(0, "a", "f", choice=2, namespace="ns", signature=state, item_id="fc_1")
    end = complete(tracker.complete_call("a"))
    assert (end.choice, end.namespace, end.signature, end.item_id) == (2, "ns", state, "fc_1")
    (call,) = tracker.into_calls()
    assert (call.namespace, call.signature, call.item_id) == ("ns", state, "fc_1")


# -- D3: repeated starts and ends --------------------------------------------------------------------------------------------


def test_repeated_start_keeps_arguments_and_says_nothing() -> None:
    tracker = ToolCallTracker()
    tracker.start_call("a", "f", provider_id=0)
    tracker.append_args(0, '{"x":')
    assert tracker.start_call("a", "f", provider_id=0) is None
    assert tracker.start_call("a", "other", provider_id=0) is None
    tracker.append_args(0, "1}")
    end = complete(tracker.complete_call(0))
    assert (end.name, end.arguments) == ("f", '{"x":1}')


def test_late_name_fills_in() -> None:
    tracker = ToolCallTracker()
    assert tracker.start_call("a", None, provider_id=0) is None
    assert tracker.append_args(0, '{"x":1') is None
    assert tracker.start_call(None, "f", provider_id=0) == ToolCallStart(0, "a", "f", arguments='{"x":1')
    assert tracker.append_args(0, "}") == ToolCallDelta(0, "}")
    assert complete(tracker.complete_call(0)).arguments == '{"x":1}'


def test_second_end_is_nothing() -> None:
    tracker = ToolCallTracker()
    tracker.start_call("a", "f")
    assert complete(tracker.complete_call("a")).arguments == "{}"
    assert tracker.complete_call("a") is None
    out: list[Event] = []
    tracker.write_complete(out, "a")
    tracker.close_finished(out)
    tracker.close_all(out, cut=False)
    assert out == []


def test_arguments_after_the_end_are_dropped_and_told() -> None:
    tracker = ToolCallTracker()
    tracker.start_call("a", "f")
    tracker.complete_call("a")
    assert tracker.append_args("a", "\n") is None
    assert tracker.warnings == []
    assert tracker.append_args("a", '{"late":1}') is None
    assert tracker.warnings == ["arguments after the end of call a"]
    assert tracker.into_calls()[0].arguments == "{}"


# -- D4: out of order, missing ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [7, "item_7"])
def test_deltas_before_the_start_are_released_by_it(key: Any) -> None:
    tracker = ToolCallTracker()
    assert tracker.append_args(key, '{"x":') is None
    assert tracker.append_args(key, "1") is None
    assert tracker.start_call("a", "f", provider_id=key) == ToolCallStart(0, "a", "f", arguments='{"x":1')
    tracker.append_args(key, "}")
    assert complete(tracker.complete_call("a")).arguments == '{"x":1}'


def test_deltas_under_the_call_id_before_the_start_are_released_too() -> None:
    tracker = ToolCallTracker()
    tracker.append_args("a", '{"x":1}')
    start = tracker.start_call("a", "f", provider_id=0)
    assert start is not None
    assert start.arguments == '{"x":1}'


def test_early_deltas_are_bounded_and_released_ones_do_not_count() -> None:
    tracker = ToolCallTracker(limits=Limits(argument_chars=10))
    for number in range(5):
        tracker.append_args(number, "12345678")
        tracker.start_call(f"a{number}", "f", provider_id=number)
    tracker.append_args("nobody", "1234567890")
    with pytest.raises(LimitExceeded) as caught:
        tracker.append_args("somebody", "1")
    assert caught.value.code == "arguments_too_large"


def test_empty_id_is_made_up() -> None:
    tracker = ToolCallTracker(new_id=lambda number: synthesized_id("seed", number))
    first = tracker.start_call("", "f", provider_id=0)
    second = tracker.start_call("", "f", provider_id=1)
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (synthesized_id("seed", 0), synthesized_id("seed", 1))
    assert first.id != second.id
    assert tracker.contains(first.id)


def test_missing_id_waits_for_the_first_argument_and_not_longer() -> None:
    tracker = ToolCallTracker()
    out: list[Event] = []
    tracker.open(out, tracker.start_call(None, "f", provider_id=0))
    assert out == []
    tracker.append(out, 0, '{"x":1}')
    assert [type(event) for event in out] == [ToolCallStart, ToolCallDelta]
    tracker.open(out, tracker.start_call("late", None, provider_id=0))
    tracker.close_all(out, cut=False)
    starts = [event for event in out if isinstance(event, ToolCallStart)]
    assert [start.id for start in starts] == [synthesized_id("", 0)], "an id that was shown never changes"
    assert complete(out[-1]).id == synthesized_id("", 0)


def test_late_id_is_taken_when_it_comes_before_the_arguments() -> None:
    tracker = ToolCallTracker()
    assert tracker.start_call(None, "f", provider_id=0) is None
    assert tracker.start_call("call_9", None, provider_id=0) == ToolCallStart(0, "call_9", "f")


def test_call_that_never_got_an_id_completes_with_one() -> None:
    tracker = ToolCallTracker()
    tracker.start_call(None, "f", provider_id=0)
    tracker.append_args(0, '{"a":1}')
    end = complete(tracker.complete_call(0))
    assert (end.call, end.id, end.arguments) == (0, synthesized_id("", 0), '{"a":1}')


def test_call_that_never_got_a_name_is_an_error() -> None:
    tracker = ToolCallTracker()
    tracker.start_call("a", "f", provider_id=0)
    tracker.start_call("b", None, provider_id=1)
    tracker.append_args(1, "{}")
    failure = error(tracker.complete_call(1))
    assert (failure.code, failure.fatal, failure.call) == ("unnamed_call", True, None), "call 0 is not at fault"
    assert tracker.complete_call(1) is None
    assert [call.id for call in tracker.into_calls()] == []


# -- D5: separate tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("", ""), ("", "b"), ("a", "")])
def test_the_first_fatal_error_is_the_last_word(names: tuple[str, str]) -> None:
    tracker = ToolCallTracker()
    out: list[Event] = []
    for index, name in enumerate(names):
        tracker.open(out, tracker.start_call(f"call_{index}", name, index))
        tracker.append(out, index, '{"p":')
    tracker.close_all(out, cut=False)
    fatal = [isinstance(event, Error) and event.fatal for event in out]
    assert fatal.index(True) == len(out) - 1


def test_call_id_zero_and_index_zero_do_not_meet() -> None:
    tracker = ToolCallTracker()
    tracker.start_call("1", "first", provider_id=0)
    tracker.start_call("0", "second", provider_id=1)
    tracker.append_args(0, '{"by":"index 0"}')
    tracker.append_args("0", '{"by":"id 0"}')
    assert [(call.name, call.arguments) for call in _completed(tracker)] == [
        ("first", '{"by":"index 0"}'),
        ("second", '{"by":"id 0"}'),
    ]


def test_one_id_under_two_keys_is_two_calls_with_two_ids() -> None:
    tracker = ToolCallTracker()
    tracker.start_call("same", "f", provider_id=0)
    second = tracker.start_call("same", "g", provider_id=1)
    assert second is not None
    assert second.id == synthesized_id("", 1)
    tracker.append_args(0, '{"n":0}')
    tracker.append_args(1, '{"n":1}')
    assert [(call.id, call.name, call.arguments) for call in _completed(tracker)] == [
        ("same", "f", '{"n":0}'),
        (synthesized_id("", 1), "g", '{"n":1}'),
    ]
    assert tracker.warnings == ["second call with id same"]


def _completed(tracker: ToolCallTracker) -> list[Any]:
    tracker.close_all([], cut=False)
    return tracker.into_calls()


# -- ends that are not good ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["{", '{"a":', "[1]", '"x"', "5", "{}{}", "{'a':1}", "nul", "{} x"])
def test_arguments_that_are_no_object_never_complete(arguments: str) -> None:
    tracker = ToolCallTracker()
    tracker.start_call("a", "f")
    tracker.append_args("a", arguments)
    failure = error(tracker.complete_call("a"))
    assert (failure.code, failure.fatal, failure.call, failure.raw) == ("malformed_call", True, 0, arguments)
    assert tracker.complete_call("a") is None
    assert tracker.into_calls() == []
    closing: list[Event] = []
    tracker.close_all(closing, cut=False)
    assert closing == [], "the call has ended"


@pytest.mark.parametrize("arguments", [[], [""], [" "], ["null"], ["{}"], ["\n{", "} "]])
def test_no_arguments_are_an_empty_object(arguments: list[str]) -> None:
    tracker = ToolCallTracker()
    tracker.start_call("a", "f")
    for piece in arguments:
        tracker.append_args("a", piece)
    assert json.loads(complete(tracker.complete_call("a")).arguments) == {}


def test_custom_input_is_free_text() -> None:
    tracker = ToolCallTracker()
    tracker.start_call("a", "patch", kind="custom")
    tracker.append_args("a", "*** Begin {")
    end = complete(tracker.complete_call("a"))
    assert (end.kind, end.arguments) == ("custom", "*** Begin {")


@pytest.mark.parametrize(
    ("kind", "pieces", "whole"),
    [
        ("function", ['{"a":1}'], True),
        ("function", ['{"a":'], False),
        ("function", [], False),
        ("function", ["null"], False),
        ("custom", ["half a pat"], False),
    ],
)
def test_cut_calls_are_errors_that_do_not_end_the_answer(kind: Any, pieces: list[str], whole: bool) -> None:
    tracker = ToolCallTracker()
    out: list[Event] = []
    tracker.open(out, tracker.start_call("a", "f", provider_id=0, kind=kind))
    for piece in pieces:
        tracker.append(out, 0, piece)
    tracker.close_all(out, cut=True)
    check_grammar([*out, Done(Finish("length"))])
    assert bool(tracker.into_calls()) == whole
    if not whole:
        failure = error(out[-1])
        assert (failure.code, failure.fatal, failure.call) == ("truncated_call", False, 0)


def test_nameless_call_cut_off_does_not_touch_the_others() -> None:
    tracker = ToolCallTracker()
    out: list[Event] = []
    tracker.open(out, tracker.start_call("a", "f", provider_id=0))
    tracker.open(out, tracker.start_call("b", None, provider_id=1))
    tracker.append(out, 0, '{"x":1}')
    tracker.close_all(out, cut=True)
    check_grammar([*out, Done(Finish("length"))])
    assert [call.id for call in tracker.into_calls()] == ["a"]
    assert [event.call for event in out if isinstance(event, Error)] == [None]


def test_only_whole_calls_are_closed_when_another_part_begins() -> None:
    tracker = ToolCallTracker()
    out: list[Event] = []
    for key, arguments in enumerate(['{"a":1}', '{"b":"}', '{"c":3}', ""]):
        tracker.open(out, tracker.start_call(f"id{key}", "f", provider_id=key))
        tracker.append(out, key, arguments)
    del out[:]
    tracker.close_finished(out, but=2)
    assert [complete(event).call for event in out] == [0]
    tracker.close_finished(out)
    assert [complete(event).call for event in out] == [0, 2]
    tracker.append(out, 1, '"}')
    tracker.close_finished(out)
    assert complete(out[-1]).arguments == '{"b":"}"}'


def test_write_complete_says_what_was_never_said() -> None:
    tracker = ToolCallTracker()
    out: list[Event] = []
    tracker.open(out, tracker.start_call(None, "f", provider_id=0))
    tracker.write_complete(out, 0)
    assert [type(event) for event in out] == [ToolCallStart, ToolCallDelta, ToolCallComplete]
    check_grammar([*out, Done(Finish("tool"))])
    tracker.write_complete(out, "nobody")
    assert len(out) == 3


# -- limits ------------------------------------------------------------------------------------------------------------------


def test_number_of_calls_is_bounded() -> None:
    tracker = ToolCallTracker(limits=Limits(calls=2))
    tracker.start_call("a", "f")
    tracker.start_call("b", "f")
    tracker.start_call("a", "f")
    with pytest.raises(LimitExceeded) as caught:
        tracker.start_call("c", "f")
    assert caught.value.code == "too_many_calls"


def test_arguments_of_one_call_are_bounded() -> None:
    tracker = ToolCallTracker(limits=Limits(argument_chars=5))
    tracker.start_call("a", "f")
    tracker.append_args("a", "12345")
    with pytest.raises(LimitExceeded) as caught:
        tracker.append_args("a", "6")
    assert caught.value.code == "arguments_too_large"


def test_looking_for_the_end_reads_every_piece_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    feed = JsonSpan.feed

    def counting(self: JsonSpan, text: str) -> int:
        nonlocal read
        read += len(text)
        return feed(self, text)

    monkeypatch.setattr(JsonSpan, "feed", counting)
    tracker = ToolCallTracker()
    out: list[Event] = []
    tracker.open(out, tracker.start_call("a", "f", provider_id=0))
    text = '{"x":"' + "y" * 3000 + '"}'
    for character in text:
        tracker.append(out, 0, character)
        tracker.close_finished(out)
    assert complete(out[-1]).arguments == text
    assert read == len(text)


# -- any order ---------------------------------------------------------------------------------------------------------------

_ARGUMENTS = st.dictionaries(st.text(alphabet='k"{}', max_size=3), st.text(alphabet='v"\\{}é', max_size=6), max_size=3)


@st.composite
def _upstream(draw: st.DrawFn) -> tuple[list[tuple[int, Any]], dict[int, tuple[str | None, str, str]]]:
    """Steps (key, piece of arguments | (id, name)) of interleaved calls, and what each call is in truth."""
    steps: list[list[tuple[int, Any]]] = []
    truth: dict[int, tuple[str | None, str, str]] = {}
    for key in range(draw(st.integers(1, 4))):
        text = json.dumps(draw(_ARGUMENTS), ensure_ascii=False)
        cuts = sorted({min(place, len(text)) for place in draw(st.lists(st.integers(0, 40), max_size=4))})
        own: list[tuple[int, Any]] = [(key, text[start:end]) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        call_id = draw(st.none() | st.just(f"call_{key}"))
        name = f"tool_{key}"
        orders: list[list[tuple[str | None, str | None]]] = [
            [(call_id, name)],
            [(call_id, None), (None, name)],
            [(None, name), (call_id, name)],
        ]
        heads: list[tuple[int, Any]] = [(key, fact) for fact in draw(st.sampled_from(orders))]
        place = 0
        for head in heads:
            place = draw(st.integers(place, len(own)))
            own.insert(place, head)
            place += 1
        steps.append(own)
        truth[key] = (call_id, name, text)
    order: list[tuple[int, Any]] = []
    while any(steps):
        order.append(draw(st.sampled_from([own for own in steps if own])).pop(0))
    return order, truth


@given(_upstream(), st.booleans())
def test_any_order_gives_the_same_calls(
    upstream: tuple[list[tuple[int, Any]], dict[int, tuple[str | None, str, str]]], cut: bool
) -> None:
    order, truth = upstream
    tracker = ToolCallTracker()
    out: list[Event] = []
    for key, step in order:
        if isinstance(step, str):
            tracker.append(out, key, step)
        else:
            tracker.open(out, tracker.start_call(step[0], step[1], provider_id=key))
    tracker.close_all(out, cut=cut)
    check_grammar([*out, Done(Finish("tool"))])
    ends = {event.name: event for event in out if isinstance(event, ToolCallComplete)}
    assert len(ends) == len(truth)
    for call_id, name, text in truth.values():
        assert ends[name].arguments == text
        assert call_id is None or ends[name].id == call_id or ends[name].id.startswith("call_")
    assert len({event.id for event in ends.values()}) == len(truth)
    assert {event.call for event in ends.values()} == set(range(len(truth)))
    assert [call.name for call in tracker.into_calls()] == [
        event.name for event in sorted(ends.values(), key=lambda event: event.call)
    ]


@given(_upstream(), st.data())
def test_cut_anywhere_never_completes_half_a_call(
    upstream: tuple[list[tuple[int, Any]], dict[int, tuple[str | None, str, str]]], data: st.DataObject
) -> None:
    order, truth = upstream
    order = order[: data.draw(st.integers(0, len(order)))]
    tracker = ToolCallTracker()
    out: list[Event] = []
    for key, step in order:
        if isinstance(step, str):
            tracker.append(out, key, step)
        else:
            tracker.open(out, tracker.start_call(step[0], step[1], provider_id=key))
    tracker.close_all(out, cut=True)
    check_grammar([*out, Done(Finish("length"))])
    texts = {name: text for _, name, text in truth.values()}
    for call in tracker.into_calls():
        assert call.arguments == texts[call.name]
