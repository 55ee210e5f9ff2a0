"""What answers are worth, counted over windows, and when a model is left out and comes back. No sockets, a clock by hand."""

from __future__ import annotations

import random

import pytest

from athena.quality import Finding, Found
from athena.serving.record import Judged
from athena.serving.route_health import RouteHealth, RouteReport, RouteState
from athena.serving.settings import ToolHealth

BAD = (Found(Finding.INVALID_JSON),)
LEAK = (Found(Finding.LEAK, "kimi_k2"),)


class Hand:
    """A route's answers, one per second."""

    def __init__(self, settings: ToolHealth | None = None) -> None:
        self.now = 1000.0
        self.said: list[tuple[RouteReport, str]] = []
        self.routes = RouteHealth(settings or ToolHealth(), lambda: self.now, lambda *change: self.said.append(change))

    def answer(self, found: tuple[Found, ...] = (), *, client: str = "", model: str = "m", tools: bool = True) -> None:
        self.now += 1
        turn = self.routes.turn("a", model)
        judged = Judged(
            upstream="a", model=model, found=found, has_tools=tools, streamed=True, first_byte_s=0.5, turn=turn
        )  # fmt: skip
        self.routes.note(judged, client)

    def is_out(self) -> bool:
        return self.routes.is_out("a", "m")


def test_a_model_that_turns_bad_is_out_within_50_answers_and_back_within_20_canaries() -> None:
    """20 % bad answers after 500 good ones, over 200 seeded runs; each decision carries its numbers."""
    late = 0
    for seed in range(200):
        dice, hand = random.Random(seed), Hand()
        for _ in range(500):
            hand.answer()
        assert not hand.is_out()
        needed = needed_bad = 0
        while not hand.is_out():
            is_bad = dice.random() < 0.2
            hand.answer(BAD if is_bad else ())
            needed += 1
            needed_bad += is_bad
        late += needed > 50
        report, why = hand.said[0]
        assert report.state is RouteState.OUT
        assert report.bad == 4
        assert report.found["invalid_json"] == needed_bad
        assert f"4 of the last {report.judged} answers were bad (4 invalid_json); 10% of 40 is the limit" == why
        canaries = 0
        while hand.is_out():
            hand.now += 10
            assert hand.routes.take_canary("a", "m")
            assert not hand.routes.take_canary("a", "m"), "one at a time"
            hand.answer()
            canaries += 1
        assert canaries == 10 <= 20
        assert hand.said[1][1].startswith("10 good answers in a row; 0 of the last 10 answers were bad")
    assert late <= 200 * 0.05


def test_a_clean_model_with_one_bad_answer_in_a_hundred_stays() -> None:
    outs = 0
    for seed in range(50):
        dice, hand = random.Random(seed), Hand()
        for _ in range(1000):
            hand.answer(BAD if dice.random() < 0.01 else ())
        outs += bool(hand.said)
    assert outs <= 3, "of 50 runs with 1000 answers each"


def test_a_model_that_is_broken_altogether_is_out_after_four_answers() -> None:
    hand = Hand()
    for count in range(4):
        assert not hand.is_out(), count
        hand.answer(BAD)
    assert hand.is_out()


def test_a_bad_canary_begins_the_count_anew() -> None:
    hand = Hand(ToolHealth(probes=3))
    for _ in range(4):
        hand.answer(BAD)
    for found in ((), (), BAD, (), ()):
        hand.answer(found)
        assert hand.is_out()
    hand.answer()
    assert not hand.is_out()


@pytest.mark.parametrize(
    "found",
    [
        LEAK,
        (Found(Finding.REPAIRED),),
        (Found(Finding.ECHO),),
        (Found(Finding.ERROR, "server"),),
    ],
)
def test_what_reaches_the_client_whole_takes_nothing_out_unless_configured(found: tuple[Found, ...]) -> None:
    hand = Hand()
    strict = Hand(ToolHealth(bad=("leak", "repaired", "echo", "error")))
    for _ in range(100):
        hand.answer(found)
        strict.answer(found)
    assert (hand.is_out(), strict.is_out()) == (False, True)
    assert hand.routes.report()[0].found == {found[0].label: 100}, "it is counted all the same"


def test_errors_that_a_request_causes_are_no_evidence() -> None:
    hand = Hand(ToolHealth(bad=("error",)))
    for kind in ("invalid", "context_length", "content_policy", "auth") * 20:
        hand.answer((Found(Finding.ERROR, kind),))
    assert not hand.is_out()


def test_requests_without_tools_and_answers_from_before_say_nothing() -> None:
    hand = Hand()
    for _ in range(20):
        hand.answer(BAD, tools=False)
    assert not hand.is_out()
    stale = Judged(upstream="a", model="m", found=(), has_tools=True, streamed=True, first_byte_s=None, turn=0)
    for _ in range(4):
        hand.answer(BAD)
    for _ in range(50):
        hand.routes.note(stale, "")
    assert hand.is_out(), "streams that began before it was left out are no canaries"
    assert hand.routes.report()[0].answers == 74


def test_one_key_takes_no_model_from_the_others() -> None:
    hand = Hand()
    for _ in range(100):
        hand.answer(client="one")
        hand.answer(BAD, client="two")
    assert not hand.is_out()
    hand.answer(BAD, client="three")
    hand.answer(BAD, client="three")
    assert hand.is_out(), "two keys agree"


def test_a_switch_that_is_off_counts_and_never_acts() -> None:
    hand = Hand(ToolHealth(bad_share=0))
    for _ in range(100):
        hand.answer(BAD)
    assert not hand.is_out()
    assert hand.routes.report()[0].found == {"invalid_json": 100}


def test_windows_slide() -> None:
    hand = Hand(ToolHealth(window_s=100))
    for _ in range(3):
        hand.answer(BAD)
    assert hand.routes.bad_share("a", "m") == pytest.approx(3 / 20)
    hand.now += 111
    assert hand.routes.report() == []
    assert hand.routes.bad_share("a", "m") == 0
    assert hand.routes.first_byte_s("a", "m", streamed=True) is None
    hand.answer(BAD)
    assert not hand.is_out(), "the three before it are forgotten"
    assert hand.routes.first_byte_s("a", "m", streamed=True) == pytest.approx(0.5)


def test_clients_that_invent_models_cost_a_bounded_memory_and_push_out_no_decision() -> None:
    hand = Hand()
    for _ in range(4):
        hand.answer(BAD)
    for number in range(3000):
        hand.answer(model=f"invented-{number}")
    assert hand.is_out()
    hand.now -= 3000
    assert len(hand.routes.report()) <= 1024
    hand.routes.keep(["other"])
    assert hand.routes.report() == []


def exchanged(*hands: Hand) -> None:
    """Each tells the others once, as through a store, in order."""
    for hand in hands:
        hand.routes.hear(one for other in hands if other is not hand for one in other.routes.evidence())


def test_what_replicas_saw_counts_together() -> None:
    """Two bad answers at each of two replicas are four."""
    one, two = Hand(), Hand()
    for hand in (one, two):
        for found in ((), BAD, (), BAD):
            hand.answer(found)
    assert not one.is_out()
    assert not two.is_out()
    exchanged(one, two)
    assert one.is_out()
    assert two.is_out()
    assert one.said[0][1] == "4 of the last 8 answers were bad (4 invalid_json); 10% of 40 is the limit"
    assert two.said[0][1] == f"another replica saw it: {one.said[0][1]}"
    for _ in range(5):
        one.answer()
        two.answer()
    exchanged(one, two)
    assert not one.is_out()
    assert not two.is_out()
    assert [report.state for report, _ in two.said] == [RouteState.OUT, RouteState.IN]


def test_a_bad_canary_of_one_replica_breaks_the_row_of_the_others() -> None:
    one, two = Hand(), Hand()
    for _ in range(4):
        one.answer(BAD)
    exchanged(one, two)
    for _ in range(6):
        one.answer()
    two.answer(BAD)
    exchanged(one, two)
    for _ in range(9):
        one.answer()
        exchanged(one, two)
    assert one.is_out()
    one.answer()
    exchanged(one, two)
    assert not one.is_out()
    assert not two.is_out()


def test_replicas_that_lose_each_other_go_on_alone_and_agree_again() -> None:
    """Whatever three replicas see, in whatever order they talk, or while they do not: once they talk, they agree."""
    for seed in range(60):
        dice = random.Random(seed)
        hands = [Hand() for _ in range(3)]
        for _ in range(120):
            now = max(hand.now for hand in hands)
            hand = dice.choice(hands)
            hand.now = now
            hand.answer(BAD if dice.random() < 0.15 else ())
            if dice.random() < 0.1:
                exchanged(*dice.sample(hands, 2))
        now = max(hand.now for hand in hands)
        for hand in hands:
            hand.now = now
        for _ in range(3):
            exchanged(*hands)
        assert len({hand.routes.turn("a", "m") for hand in hands}) == 1, seed
        assert len({hand.is_out() for hand in hands}) == 1


def test_a_replica_that_comes_later_knows_what_is_out() -> None:
    one, later = Hand(), Hand()
    for _ in range(4):
        one.answer(BAD)
    later.routes.hear(one.routes.evidence())
    assert later.is_out()
    later.routes.hear(())
    assert later.is_out(), "what was heard stays when the others fall silent"
