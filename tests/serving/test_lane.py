"""The places of one upstream: who works, who waits, who comes next."""

from __future__ import annotations

import random

from athena.serving.lane import Entry, Lane


def test_places_then_the_queue_then_nothing() -> None:
    lane: Lane[int] = Lane(2, 1)
    assert [lane.enter("", number) for number in range(4)] == [Entry.IN_WORK, Entry.IN_WORK, Entry.WAITING, Entry.REFUSED]
    assert (lane.in_work, lane.waiting) == (2, 1)
    assert lane.admit() is None
    lane.leave()
    assert lane.admit() == 2
    assert lane.admit() is None
    assert (lane.in_work, lane.waiting) == (2, 0)


def test_callers_take_turns() -> None:
    lane: Lane[str] = Lane(1, 100)
    lane.enter("a", "first")
    for request in ("a1", "a2", "a3", "b1", "c1", "c2"):
        assert lane.enter(request[0], request) is Entry.WAITING
    order = []
    for _ in range(6):
        lane.leave()
        order.append(lane.admit())
    assert order == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_nobody_passes_those_who_wait() -> None:
    lane: Lane[int] = Lane(1, 10)
    lane.enter("", 0)
    lane.enter("", 1)
    lane.leave()
    assert lane.enter("", 2) is Entry.WAITING, "a place is free, but it belongs to the one that waits"
    assert lane.admit() == 1


def test_who_does_not_want_to_wait_leaves() -> None:
    lane: Lane[int] = Lane(1, 10)
    for number in range(3):
        lane.enter("a", number)
    assert lane.withdraw("a", 1)
    assert not lane.withdraw("a", 1)
    assert not lane.withdraw("b", 2)
    assert lane.waiting == 1
    lane.leave()
    assert lane.admit() == 2


def test_more_places_let_more_in_and_fewer_let_those_in_work_finish() -> None:
    lane: Lane[int] = Lane(1, 10)
    for number in range(4):
        lane.enter("", number)
    lane.places = 3
    assert [lane.admit(), lane.admit(), lane.admit()] == [1, 2, None]
    lane.places = 1
    lane.leave()
    lane.leave()
    assert lane.admit() is None
    lane.leave()
    assert lane.admit() == 3


def test_no_request_is_lost_or_served_twice() -> None:
    source = random.Random(2)
    lane: Lane[int] = Lane(5, 20)
    caller_of: dict[int, str] = {}
    working, waiting, done = set[int](), set[int](), set[int]()
    for number in range(20_000):
        match source.randrange(3):
            case 0:
                caller_of[number] = f"{source.randrange(4)}"
                turn = lane.enter(caller_of[number], number)
                {Entry.IN_WORK: working, Entry.WAITING: waiting, Entry.REFUSED: done}[turn].add(number)
            case 1 if working:
                done.add(gone := source.choice(sorted(working)))
                working.discard(gone)
                lane.leave()
            case 2 if waiting and source.random() < 0.3:
                done.add(gone := source.choice(sorted(waiting)))
                waiting.discard(gone)
                assert lane.withdraw(caller_of[gone], gone)
        while (next_one := lane.admit()) is not None:
            assert next_one in waiting
            waiting.discard(next_one)
            working.add(next_one)
        assert (lane.in_work, lane.waiting) == (len(working), len(waiting))
        assert len(working) <= 5
        assert len(waiting) <= 20
        assert not waiting or len(working) == 5
