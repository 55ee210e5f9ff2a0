"""Which client connections are let in, which are closed for another one: the rules alone, without a socket."""

from __future__ import annotations

import random

from athena.shells.server.admission import Admission, Places, Standing


class Clock:
    """A time that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def admission(connections: int = 3, per_address: int = 0, refused: int = 2) -> tuple[Admission[str], Clock]:
    clock = Clock()
    places = Places(connections=connections, per_address=per_address, refused=refused)
    return Admission(places, clock), clock


def full(table: Admission[str]) -> bool:
    return table.is_full


def used(table: Admission[str], name: str) -> None:
    """A connection sends a request and is answered."""
    table.busy(name)
    table.rests(name)


def test_the_connection_that_is_idle_for_longest_makes_room() -> None:
    table, _ = admission()
    for name in ("a", "b", "c"):
        assert table.enter(name, "1") == (Standing.FRESH, None)
    for name in ("b", "a", "c"):
        used(table, name)
    table.busy("b")
    assert table.enter("d", "1") == (Standing.FRESH, "a")
    assert table.standing("a") is None
    assert table.enter("e", "1") == (Standing.FRESH, "c")
    assert (len(table), table.idle, table.closed) == (3, 0, 2)
    table.rests("b")
    assert table.enter("f", "1") == (Standing.FRESH, "b")


def test_a_silent_newcomer_makes_room_after_a_moment_and_after_the_idle_ones() -> None:
    table, clock = admission(connections=2)
    table.enter("silent", "1")
    table.enter("kept", "1")
    used(table, "kept")
    assert table.enter("c", "1") == (Standing.FRESH, "kept")
    assert table.enter("d", "1") == (Standing.REFUSED, None), "both have only just come"
    clock.now += 1.0
    assert table.enter("e", "1") == (Standing.FRESH, "silent")


def test_nobody_who_is_busy_is_closed() -> None:
    table, clock = admission(connections=2, refused=2)
    for name in ("a", "b"):
        table.enter(name, "1")
        table.busy(name)
    clock.now += 1000
    assert table.enter("c", "1") == (Standing.REFUSED, None)
    assert not full(table)
    assert table.enter("d", "1") == (Standing.REFUSED, None)
    assert full(table)
    table.rests("a")
    assert not full(table), "an idle one can make room"
    table.busy("a")
    table.leave("c")
    assert not full(table)
    assert table.refusals == 2


def test_a_refused_connection_stays_refused() -> None:
    table, _ = admission(connections=1)
    table.enter("a", "1")
    table.busy("a")
    table.enter("b", "1")
    table.leave("a")
    table.busy("b")
    table.rests("b")
    assert table.standing("b") is Standing.REFUSED
    assert table.idle == 0


def test_an_address_makes_room_for_itself_only() -> None:
    table, _ = admission(connections=10, per_address=2, refused=1)
    table.enter("other", "2")
    used(table, "other")
    table.enter("a", "1")
    table.enter("b", "1")
    used(table, "b")
    table.busy("a")
    assert table.enter("c", "1") == (Standing.FRESH, "b")
    table.busy("c")
    assert table.enter("d", "1") == (Standing.REFUSED, None)
    assert table.enter("e", "1") == (Standing.SHUT, None), "there are few places to refuse somebody"
    assert table.standing("e") is None
    assert table.enter("f", "3") == (Standing.FRESH, None)
    assert table.standing("other") is Standing.IDLE
    table.leave("a")
    assert table.enter("g", "1") == (Standing.FRESH, None)


def test_out_of_descriptors_an_idle_one_goes_whatever_the_limits_say() -> None:
    table, _ = admission(connections=10)
    assert table.victim() is None
    table.enter("a", "1")
    assert table.victim() is None
    used(table, "a")
    assert table.victim() == "a"
    assert len(table) == 0


def test_the_counts_hold_whatever_happens() -> None:
    """Random lives of connections: the table never has more than its places, and forgets all that have left."""
    source = random.Random(5)
    table, clock = admission(connections=20, per_address=7, refused=3)
    here: set[str] = set()
    for number in range(20_000):
        clock.now += source.random()
        name = f"c{number}"
        match source.randrange(4):
            case 0 | 1:
                standing, victim = table.enter(name, f"{source.randrange(6)}")
                here.discard(victim or "")
                if standing is not Standing.SHUT:
                    here.add(name)
            case 2 if here:
                source.choice((table.busy, table.rests))(source.choice(sorted(here)))
            case 3 if here:
                gone = source.choice(sorted(here))
                table.leave(gone)
                table.leave(gone)
                here.discard(gone)
        admitted = [one for one in here if table.standing(one) is not Standing.REFUSED]
        assert len(table) == len(here)
        assert len(admitted) <= 20
        assert len(here) - len(admitted) <= 3
    for one in here:
        table.leave(one)
    assert len(table) == 0
    assert table._of_address == {}
    assert table._all.count == 0
