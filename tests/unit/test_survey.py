"""What is found out about a history in one look: the short way says nothing but what the long one says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from athena.calls.survey import ADRIFT, are_answered, are_answered_next, is_orderly, survey
from athena.model.parts import Part, Text, ToolCall, ToolResult
from athena.model.request import Turn

PARTS: some.SearchStrategy[Part] = some.one_of(
    some.just(Text(text="said")),
    some.sampled_from("ab").map(lambda name: ToolCall(id=name, name="tool", arguments="{}")),
    some.sampled_from("ab").map(lambda name: ToolResult(call_id=name, parts=(Text(text="done"),))),
)
TURNS = some.builds(
    lambda role, parts: Turn(role=role, parts=tuple(parts)),
    some.sampled_from(["user", "assistant", "system"]),
    some.lists(PARTS, max_size=3),
)


@given(turns=some.lists(TURNS, max_size=6))
def test_calls_that_the_next_turn_answers_are_answered(turns: list[Turn]) -> None:
    looked = survey(tuple(turns))
    if not looked.has(ADRIFT) and are_answered_next(looked.facts):
        assert are_answered(looked)


def _call(*ids: str) -> Turn:
    return Turn(role="assistant", parts=tuple(ToolCall(id=name, name="tool", arguments="{}") for name in ids))


def _results(*ids: str, before: tuple[Part, ...] = (), after: tuple[Part, ...] = ()) -> Turn:
    results = tuple(ToolResult(call_id=name, parts=(Text(text="done"),)) for name in ids)
    return Turn(role="user", parts=(*before, *results, *after))


SAID = Turn(role="user", parts=(Text(text="said"),))
WORD = (Text(text="said"),)


def test_most_histories_take_the_short_way() -> None:
    answer = Turn(role="assistant", parts=WORD)
    turns = (SAID, _call("a", "b"), _results("a", "b", after=WORD), _call("c"), _results("c"), answer)
    looked = survey(turns)
    assert are_answered_next(looked.facts)
    assert is_orderly(looked, str.islower)
    assert not is_orderly(looked, str.isupper)


def test_what_is_not_in_order() -> None:
    for turns in (
        (SAID, _call("a")),
        (SAID, _call("a", "b"), _results("b", "a")),
        (SAID, _call("a"), _results("a", before=WORD)),
        (SAID, _call("a"), SAID, _results("a")),
        (SAID, _call("a"), _results("a"), _results("a")),
        (_results("a"), _call("a")),
        (SAID, _call("a"), _results("a"), _call("a"), _results("a")),
    ):
        assert not is_orderly(survey(turns), str.islower)


def test_results_in_several_turns_are_in_order() -> None:
    looked = survey((SAID, _call("a", "b"), _results("a"), _results("b")))
    assert not are_answered_next(looked.facts)
    assert is_orderly(looked, str.islower)
