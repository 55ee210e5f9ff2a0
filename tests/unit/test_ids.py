"""Call ids: within each target's limits, different for different calls, the same in every turn."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.calls.ids import fit_history_ids, fitting_id, hashed, synthesized_id, unique_history_ids
from athena.model.parts import Part, Text, ToolCall, ToolResult
from athena.model.request import Turn

_RULES = {
    "anthropic": r"[a-zA-Z0-9_-]+",
    "chat": r"[!-~]{1,40}",
    "responses": r"[!-~]{1,64}",
    "mistral": r"[a-zA-Z0-9]{9}",
}
_IDS = st.text(max_size=80) | st.sampled_from(
    ["", "call_0", "functions.f:0", "toolu_" + "x" * 60, "a b", "é", "\ud800", "abcDEF123", "x\n"]
)


def call(call_id: str, name: str = "f") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments="{}", raw={"id": call_id})


def result(call_id: str) -> ToolResult:
    return ToolResult(call_id=call_id, parts=(Text(text=f"result of {call_id}"),), raw={"id": call_id})


def asks(*parts: Part) -> Turn:
    return Turn(role="assistant", parts=parts, raw={})


def answers(*parts: Part) -> Turn:
    return Turn(role="user", parts=parts, raw={})


def ids(turns: tuple[Turn, ...]) -> list[str]:
    return [
        part.id if isinstance(part, ToolCall) else part.call_id
        for turn in turns
        for part in turn.parts
        if isinstance(part, ToolCall | ToolResult)
    ]


@pytest.mark.parametrize("style", sorted(_RULES))
@given(call_id=_IDS)
def test_fitting_ids_fit(style: str, call_id: str) -> None:
    fitted = fitting_id(call_id, style)  # type: ignore[arg-type]  # a Literal, listed in _RULES
    assert re.fullmatch(_RULES[style], fitted)
    assert fitting_id(fitted, style) == fitted, "fitting twice changes nothing"  # type: ignore[arg-type]  # as above
    if re.fullmatch(_RULES[style], call_id):
        assert fitted == call_id, "an id that fits is kept"


@pytest.mark.parametrize("style", sorted(_RULES))
@given(wanted=st.lists(_IDS, unique=True, max_size=8))
def test_fitting_ids_stay_different(style: str, wanted: list[str]) -> None:
    assert len({fitting_id(call_id, style) for call_id in wanted}) == len(wanted)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("style", ["any", "none", "kimi"])
def test_targets_without_a_rule_keep_the_id(style: str) -> None:
    assert fitting_id("a b é", style) == "a b é"  # type: ignore[arg-type]  # a Literal


@pytest.mark.parametrize(
    ("style", "prefix", "length"),
    [("anthropic", "toolu_", 30), ("chat", "call_", 29), ("responses", "call_", 29), ("mistral", "", 9)],
)
def test_shape_of_made_ids(style: str, prefix: str, length: int) -> None:
    made = fitting_id("functions.get weather:0 " + "x" * 80, style)  # type: ignore[arg-type]  # a Literal
    assert made.startswith(prefix)
    assert len(made) == length


def test_synthesized_ids() -> None:
    assert synthesized_id("seed", 0) == synthesized_id("seed", 0)
    assert len({synthesized_id(seed, number) for seed in ("", "a", "b") for number in range(20)}) == 60
    assert synthesized_id("a", 11) != synthesized_id("a1", 1)
    assert re.fullmatch(r"call_[A-Za-z0-9]{24}", synthesized_id("", 0))
    assert synthesized_id("", 0, "toolu_").startswith("toolu_")
    assert len(hashed("x", 9)) == 9


# -- histories ---------------------------------------------------------------------------------------------------------------


def test_history_without_repeats_is_the_same_objects() -> None:
    turns = (answers(Text(text="hi")), asks(call("a"), call("b")), answers(result("a"), result("b")))
    for fitted in (unique_history_ids(turns), fit_history_ids(turns, "chat")):
        assert all(new is old for new, old in zip(fitted, turns, strict=True))


def test_ids_that_restart_every_turn_become_unique() -> None:
    turns = (asks(call("call_0")), answers(result("call_0")), asks(call("call_0")), answers(result("call_0")))
    unique = unique_history_ids(turns)
    assert ids(unique) == ["call_0", "call_0", "call_0_2", "call_0_2"]
    assert unique[2].raw is None
    assert unique[2].parts[0].raw is None
    assert unique[0] is turns[0]


def test_repeats_inside_one_turn_get_their_results_in_order() -> None:
    first, second = result("x"), ToolResult(call_id="x", parts=(Text(text="second"),))
    unique = unique_history_ids((asks(call("x"), call("x")), answers(first, second)))
    assert ids(unique) == ["x", "x_0", "x", "x_0"]
    assert unique[1].parts[1].parts == second.parts  # type: ignore[union-attr]  # it is the second result


def test_unanswered_call_does_not_take_a_later_result() -> None:
    unique = unique_history_ids((asks(call("x")), asks(call("x")), answers(result("x"))))
    assert ids(unique) == ["x", "x_1", "x_1"]


def test_a_suffixed_id_never_meets_a_real_one() -> None:
    turns = (asks(call("a_1")), asks(call("a"), call("a")), answers(result("a")))
    assert len(set(ids(unique_history_ids(turns))[:3])) == 3


_HISTORIES = st.lists(
    st.tuples(st.lists(st.sampled_from(["a", "b", "a_1", "a b", "call_0"]), max_size=3), st.booleans()), max_size=6
)


def _history(steps: list[tuple[list[str], bool]]) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    for names, answered in steps:
        turns.append(asks(*(call(name) for name in names)))
        if answered:
            turns.append(answers(*(result(name) for name in names)))
    return tuple(turns)


@given(_HISTORIES)
def test_unique_ids_are_unique_paired_and_stable(steps: list[tuple[list[str], bool]]) -> None:
    turns = _history(steps)
    unique = unique_history_ids(turns)
    calls = [part.id for turn in unique for part in turn.parts if isinstance(part, ToolCall)]
    assert len(set(calls)) == len(calls)
    for turn, before in zip(unique, (None, *unique), strict=False):
        if turn.role == "user":
            assert before is not None
            assert ids((turn,)) == ids((before,)), "results keep to the calls before them"
    assert unique_history_ids(unique) == unique
    longer = unique_history_ids((*turns, asks(call("a"))))
    assert longer[:-1] == unique, "the next turn of the conversation changes nothing before it"


@pytest.mark.parametrize("style", sorted(_RULES))
@given(steps=_HISTORIES)
def test_fitted_histories_stay_paired(style: str, steps: list[tuple[list[str], bool]]) -> None:
    unique = unique_history_ids(_history(steps))
    fitted = fit_history_ids(unique, style)  # type: ignore[arg-type]  # a Literal
    assert all(re.fullmatch(_RULES[style], call_id) for call_id in ids(fitted))
    assert len(set(ids(fitted))) == len(set(ids(unique)))
    for turn, before in zip(fitted, (None, *fitted), strict=False):
        if turn.role == "user" and before is not None:
            assert ids((turn,)) == ids((before,))


def test_kimi_counts_over_the_conversation() -> None:
    turns = (
        asks(call("toolu_1", "get_weather"), call("toolu_2", "bash")),
        answers(result("toolu_2"), result("toolu_1")),
        asks(call("functions.bash:0", "bash")),
        answers(result("functions.bash:0"), result("unknown")),
    )
    assert ids(fit_history_ids(turns, "kimi")) == [
        "functions.get_weather:0",
        "functions.bash:1",
        "functions.bash:1",
        "functions.get_weather:0",
        "functions.bash:2",
        "functions.bash:2",
        "unknown",
    ]
    right = fit_history_ids(turns, "kimi")
    assert fit_history_ids(right, "kimi") == right


def test_changed_parts_lose_their_raw_json_and_others_keep_it() -> None:
    (turn,) = fit_history_ids((asks(Text(text="x", raw={"t": 1}), call("bad id"), call("good")),), "anthropic")
    assert turn.raw is None
    assert [part.raw for part in turn.parts] == [{"t": 1}, None, {"id": "good"}]
