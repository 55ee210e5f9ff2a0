"""The memory budget: who gets room, who is refused, and that every byte comes back."""

from __future__ import annotations

import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from athena.errors import AthenaError, LimitExceeded
from athena.serving.budget import Budget
from athena.serving.holding import AnswerMemory, RequestMemory
from athena.serving.weight import (
    has_wide_strings,
    has_wide_text,
    is_narrow,
    text_bytes,
    weigh,
    with_measured_text,
    with_narrow_text,
)
from athena.shells import machine
from athena.shells.server.memory import FreedMemory

MB = 1024 * 1024


class Clock:
    """A time that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def short(budget: Budget) -> bool:
    return budget.is_short


def test_room_is_given_until_the_limit_and_comes_back() -> None:
    refusals: list[int] = []
    budget = Budget(800, Clock(), lambda: refusals.append(1))
    one, other = budget.lease(), budget.lease()
    assert one.resize(400)
    assert not other.resize(301), "an eighth is kept for answers"
    assert (budget.used, other.size, len(refusals)) == (400, 0, 1)
    assert other.resize(300)
    answer = budget.lease(answer=True)
    assert answer.resize(100)
    assert not answer.resize(101)
    assert one.resize(100), "less always fits"
    assert (budget.used, budget.peak) == (500, 800)
    for lease in (one, other, answer):
        lease.close()
        lease.close()
    assert budget.used == 0


def test_bytes_that_are_there_are_counted_whatever_the_limit_says() -> None:
    budget = Budget(800, Clock())
    unsent = budget.lease()
    unsent.hold(5000)
    assert budget.used == 5000
    assert not budget.lease().resize(1)
    unsent.hold(10)
    assert budget.lease().resize(1)


def test_memory_is_short_for_a_moment_after_a_refusal() -> None:
    clock = Clock()
    budget = Budget(100, clock)
    assert not short(budget)
    assert not budget.lease().resize(200)
    assert short(budget)
    clock.now = 5.0
    assert not short(budget)


def test_random_leases_never_lose_a_byte() -> None:
    source = random.Random(1)
    budget = Budget(10_000, Clock())
    leases = [budget.lease(answer=bool(number % 2)) for number in range(50)]
    for _ in range(20_000):
        lease = source.choice(leases)
        if source.random() < 0.2:
            lease.close()
        else:
            lease.resize(source.randrange(1000))
        assert budget.used == sum(one.size for one in leases)
        assert budget.used <= budget.limit
    for lease in leases:
        lease.close()
    assert budget.used == 0


# -- a request ---------------------------------------------------------------------------------------------------------------


def test_a_request_gives_back_what_it_no_longer_needs() -> None:
    budget = Budget(100 * MB, Clock())
    memory = RequestMemory(budget)
    memory.announce(8 * MB)
    announced = budget.used
    assert announced >= 24 * MB
    weight = weigh(8 * MB, narrow=True, values=0)
    memory.weighed(weight)
    assert budget.used == announced, "plain text needs no more than was announced"
    memory.building()
    memory.built()
    sent = budget.used
    assert 20 * MB <= sent < announced
    memory.answering()
    assert 8 * MB <= budget.used < sent
    memory.building()
    assert budget.used == announced, "another target is asked"
    memory.close()
    assert budget.used == 0


def test_wide_text_and_tiny_values_ask_for_more() -> None:
    budget = Budget(100 * MB, Clock())
    memory = RequestMemory(budget)
    memory.announce(MB)
    before = budget.used
    memory.weighed(weigh(MB, narrow=False, values=1000))
    assert budget.used > 2 * before
    measured = with_measured_text(weigh(MB, narrow=False, values=3), {"a": ["\N{GRINNING FACE}" * 10, "b" * 1000]}, MB, 3)
    memory.decoded(measured)
    assert budget.used > 2 * before, "the upstream's request is still to be made"
    memory.built()
    assert budget.used < 3 * MB


def test_a_request_that_does_not_fit_now_is_asked_to_come_again() -> None:
    budget = Budget(64 * MB, Clock())
    first, second = RequestMemory(budget), RequestMemory(budget)
    first.announce(12 * MB)
    with pytest.raises(AthenaError) as refused:
        second.announce(12 * MB)
    assert (refused.value.code, refused.value.kind) == ("memory_limit", "overloaded")
    assert refused.value.retry_after
    assert second.is_short
    first.close()
    second.announce(12 * MB)


def test_a_request_that_can_never_fit_is_too_large() -> None:
    memory = RequestMemory(Budget(64 * MB, Clock()))
    with pytest.raises(LimitExceeded) as refused:
        memory.announce(32 * MB)
    assert (refused.value.code, refused.value.status) == ("request_too_large", 413)
    assert "limits.memory_bytes" in refused.value.message


def test_a_body_that_grows_asks_as_it_grows() -> None:
    budget = Budget(64 * MB, Clock())
    memory = RequestMemory(budget)
    memory.announce(0)
    sizes = []
    for size in range(0, 4 * MB, MB):
        memory.growing(size, packed=1000)
        sizes.append(budget.used)
    assert sizes == sorted(sizes)
    assert budget.used >= 9 * MB
    memory.growing(0)
    assert budget.used == sizes[-1], "what it has it keeps"


def test_text_is_measured_as_the_interpreter_holds_it() -> None:
    deep: object = "x" * 1000
    for _ in range(10_000):
        deep = [deep]
    assert 1000 <= text_bytes(deep) < 1200
    assert text_bytes({"key" * 100: "\N{GRINNING FACE}" * 1000, "n": [1, None, True, 2.5]}) > 4300


@pytest.mark.parametrize("text", ["a", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{EM DASH}", "\N{CJK UNIFIED IDEOGRAPH-4E2D}a"])
def test_text_that_is_not_wide_is_weighed_without_a_look_at_it(text: str) -> None:
    value = {"a": [text * 10_000, text * 1000], "b": text}
    body = msgspec.json.encode(value)
    assert not has_wide_text(body)
    assert not has_wide_strings(msgspec.json.decode(body)["a"])
    weight = with_narrow_text(weigh(len(body), narrow=False, values=5), len(body), 5)
    assert text_bytes(value) + len(body) <= weight.text
    assert has_wide_text(msgspec.json.encode([text, "\N{GRINNING FACE}"]))


_LETTERS = some.sampled_from("a\xe9\u2014\uffff\U00010000")
_VALUES = some.recursive(
    some.none() | some.booleans() | some.text(_LETTERS, max_size=3),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(_LETTERS, max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(_VALUES)
def test_wide_strings_are_found_wherever_bytes_are_wide(value: object) -> None:
    body = msgspec.json.encode(value)
    assert has_wide_strings(msgspec.json.decode(body)) or not has_wide_text(body)


# -- an answer ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_is_counted_while_the_client_has_not_seen_it(streamed: bool) -> None:
    budget = Budget(8 * MB, Clock())
    memory = AnswerMemory(budget, streamed=streamed)
    assert memory.hold(60_000)
    assert budget.used == 0, "small answers pay for nothing"
    assert memory.hold(60_000)
    assert budget.used > 0
    assert memory.held == 120_000
    memory.shown()
    assert (budget.used, memory.held) == (0, 0)
    held = 0
    while memory.hold(100_000):
        held += 100_000
    assert held > (2 * MB if streamed else MB)
    assert budget.used <= budget.limit
    memory.close()
    assert budget.used == 0


# -- the machine -------------------------------------------------------------------------------------------------------------

MEMINFO = "MemTotal:       24682068 kB\nMemFree: 1 kB\n"


def read_from(files: dict[str, str]) -> machine.ReadText:
    def read(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    return read


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"/proc/meminfo": MEMINFO}, 24682068 * 1024),
        ({"/proc/meminfo": MEMINFO, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "max\n"}, 24682068 * 1024),
        ({"/proc/meminfo": MEMINFO, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "536870912\n"}, 536870912),
        (
            {
                "/proc/meminfo": MEMINFO,
                "/proc/self/cgroup": "0::/app.slice/gate.service\n",
                "/sys/fs/cgroup/app.slice/memory.max": "1000000000\n",
                "/sys/fs/cgroup/app.slice/gate.service/memory.max": "2000000000\n",
            },
            1000000000,
        ),
        (
            {
                "/proc/meminfo": MEMINFO,
                "/proc/self/cgroup": "5:cpu:/\n4:memory:/docker/abc\n0::/\n",
                "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "9223372036854771712\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "300000000\n",
            },
            300000000,
        ),
        ({"/proc/meminfo": MEMINFO, "/proc/self/cgroup": "nonsense\n\n:::\n"}, 24682068 * 1024),
    ],
)
def test_the_memory_of_the_machine_or_its_container(files: dict[str, str], wanted: int) -> None:
    assert machine.memory_bytes(read_from(files)) == wanted


def test_freed_memory_is_given_back_once_nobody_holds_much() -> None:
    given: list[int] = []
    budget = Budget(1000 * MB, Clock())
    freed = FreedMemory(budget, lambda: given.append(budget.used))
    freed.look()
    assert given == []
    lease = budget.lease()
    lease.hold(100 * MB)
    lease.hold(MB)
    freed.look()
    assert given == [], "much was held a moment ago"
    freed.look()
    assert given == [MB]
    freed.look()
    lease.hold(2 * MB)
    freed.look()
    assert given == [MB], "there is nothing more to give"
    lease.hold(50 * MB)
    for _ in range(3):
        freed.look()
    assert given == [MB], "it is still held"
    lease.close()
    freed.look()
    freed.look()
    assert given == [MB, 0]


@pytest.mark.parametrize(
    ("escape", "narrow"),
    [
        (b"\\u001b", True),
        (b"\\u00e9", True),
        (b"\\u001b" * 100, False),
        (b"\\u4e2d", False),
        (b"\\ud83d\\ude00", False),
        (b"\\uD83D\\uDE00", False),
    ],
)
def test_characters_that_are_spelled_as_escapes_weigh_what_they_take(escape: bytes, narrow: bool) -> None:
    """One of them makes every character of its string wide, though all of the body is ASCII."""
    body = b'{"a": "' + b"x" * (MB // 2) + escape + b'"}'
    assert is_narrow(body) is narrow
    weight = weigh(len(body), narrow=is_narrow(body), values=2)
    assert text_bytes(json.loads(body)) <= weight.text
    assert has_wide_text(body) is (b"ud83d" in escape.lower())


def test_small_bodies_are_not_searched_for_escapes() -> None:
    assert is_narrow(b'"\\u4e2d"')
    assert not is_narrow("中".encode())
