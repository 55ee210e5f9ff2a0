"""One call at a time: nothing mixed, nothing lost, nothing late without need, nothing behind the end."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from athena.calls.builder import fold
from athena.calls.sequence import OneCallAtATime
from athena.model.events import (
    Done,
    Error,
    Event,
    Finish,
    KeepAlive,
    TextDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
)
from athena.model.parts import ToolCall


def start(number: int) -> Event:
    return ToolCallStart(number, f"id{number}", f"tool{number}")


def delta(number: int, text: str) -> Event:
    return ToolCallDelta(number, text)


def end(number: int, text: str = "{}") -> Event:
    return ToolCallComplete(number, f"id{number}", f"tool{number}", text)


def test_a_lone_call_is_never_delayed() -> None:
    sequence = OneCallAtATime()
    for event in (TextDelta("a"), start(0), delta(0, "{"), delta(0, "}"), end(0), TextDelta("b"), Done(Finish())):
        assert sequence.feed([event]) == [event]


def test_interleaved_calls_come_one_after_another() -> None:
    sequence = OneCallAtATime()
    assert sequence.feed([start(0), start(1), delta(1, "{"), delta(0, "{")]) == [start(0), delta(0, "{")]
    assert sequence.feed([end(1), TextDelta("x"), start(2)]) == []
    assert sequence.feed([end(0)]) == [end(0), start(1), delta(1, "{"), end(1), TextDelta("x"), start(2)]
    assert sequence.feed([delta(2, "{}")]) == [delta(2, "{}")], "the next open call runs live"


def test_what_waits_behind_an_unfinished_call_waits_on() -> None:
    sequence = OneCallAtATime()
    sequence.feed([start(0), start(1), start(2), end(2), TextDelta("t")])
    assert sequence.feed([end(0)]) == [end(0), start(1)]
    assert sequence.feed([end(1)]) == [end(1), start(2), end(2), TextDelta("t")]


def test_a_call_that_failed_makes_room() -> None:
    failed = Error("cut", fatal=False, call=0)
    sequence = OneCallAtATime()
    sequence.feed([start(0), start(1), end(1)])
    assert sequence.feed([failed]) == [failed, start(1), end(1)]


def test_a_failure_of_a_waiting_call_waits_with_it() -> None:
    failed = Error("cut", fatal=False, call=1)
    sequence = OneCallAtATime()
    assert sequence.feed([start(0), start(1), failed]) == [start(0)]
    assert sequence.feed([end(0), TextDelta("x")]) == [end(0), start(1), failed, TextDelta("x")]


def test_notes_and_keep_alives_do_not_close_the_open_call() -> None:
    note = Error("a note", fatal=False)
    sequence = OneCallAtATime()
    assert sequence.feed([start(0), start(1), note, KeepAlive()]) == [start(0), note, KeepAlive()]
    assert sequence.feed([delta(1, "{}"), delta(0, "{}"), end(0)]) == [delta(0, "{}"), end(0), start(1), delta(1, "{}")]


def test_a_fatal_error_is_shown_at_once_and_last() -> None:
    for call in (None, 0, 1):
        failure = Error("gone", call=call)
        sequence = OneCallAtATime()
        sequence.feed([start(0), start(1), delta(1, "{}"), end(1), TextDelta("x")])
        assert sequence.feed([failure]) == [failure], "the open call is never closed by what waited"


def test_done_lets_everything_out() -> None:
    sequence = OneCallAtATime()
    sequence.feed([start(0), TextDelta("x"), start(1), end(1)])
    done = Done(Finish("length"))
    assert sequence.feed([done]) == [TextDelta("x"), start(1), end(1), done]


@st.composite
def _interleaved(draw: st.DrawFn) -> list[Event]:
    """Calls, text and keep-alives mixed in any legal order, all calls ended, then Done."""
    calls: list[list[Event]] = []
    for number in range(draw(st.integers(0, 4))):
        pieces = draw(st.lists(st.sampled_from(["{", "}", " "]), max_size=3))
        last: Event = draw(st.sampled_from([end(number, "".join(pieces)), Error("cut", fatal=False, call=number)]))
        calls.append([start(number), *(delta(number, piece) for piece in pieces), last])
    texts: list[Event] = [TextDelta(str(number)) for number in range(draw(st.integers(0, 4)))]
    lanes = [*calls, texts]
    events: list[Event] = []
    while any(lanes):
        events.append(draw(st.sampled_from([lane for lane in lanes if lane])).pop(0))
    return [*events, Done(Finish("tool"))]


def _renumbered(events: list[Event]) -> list[Event]:
    """Starts come in order of appearance in the real grammar; the lanes above may begin in any order, so rename."""
    numbers: dict[int, int] = {}
    for event in events:
        if isinstance(event, ToolCallStart):
            numbers[event.call] = len(numbers)
    renamed: list[Event] = []
    for event in events:
        call: Any = getattr(event, "call", None)
        if isinstance(event, ToolCallStart):
            renamed.append(start(numbers[call]))
        elif isinstance(event, ToolCallDelta):
            renamed.append(delta(numbers[call], event.arguments))
        elif isinstance(event, ToolCallComplete):
            renamed.append(end(numbers[call], event.arguments))
        elif isinstance(event, Error):
            renamed.append(Error("cut", fatal=False, call=numbers[call]))
        else:
            renamed.append(event)
    return renamed


@given(_interleaved(), st.lists(st.integers(0, 40), max_size=6))
def test_any_order_comes_out_sequential_and_whole(mixed: list[Event], cuts: list[int]) -> None:
    events = _renumbered(mixed)
    places = sorted({min(cut, len(events)) for cut in cuts})
    sequence = OneCallAtATime()
    out: list[Event] = []
    for begin, stop in zip([0, *places], [*places, len(events)], strict=True):
        out += sequence.feed(events[begin:stop])
    assert len(out) == len(events), "nothing lost, nothing twice"
    running: int | None = None
    for event in out:
        call = getattr(event, "call", None)
        if isinstance(event, ToolCallStart):
            assert running is None
            running = event.call
        elif isinstance(event, ToolCallDelta | ToolCallComplete | Error):
            assert call == running
            running = running if isinstance(event, ToolCallDelta) else None
        else:
            assert running is None, "no text inside a call"
    for number in range(4):
        mine = [event for event in events if getattr(event, "call", None) == number]
        assert [event for event in out if getattr(event, "call", None) == number] == mine
    texts = [event for event in out if isinstance(event, TextDelta)]
    assert texts == [event for event in events if isinstance(event, TextDelta)]
    assert isinstance(out[-1], Done)
    before = [part for part in fold(events).choices[0].parts if isinstance(part, ToolCall)]
    assert [part for part in fold(out).choices[0].parts if isinstance(part, ToolCall)] == before


def test_each_event_waits_once() -> None:
    """Many calls open at once: what is shown in all is what came in all, so no event is handled over and over."""
    sequence = OneCallAtATime()
    count = 2000
    shown = len(sequence.feed([start(number) for number in range(count)]))
    for number in reversed(range(count)):
        shown += len(sequence.feed([delta(number, "{}"), end(number)]))
    assert shown == 3 * count
    assert not sequence._waiting
