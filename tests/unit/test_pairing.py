"""Pairing: every call answered right behind its turn, results first and in order, whatever the history was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.calls.ids import unique_history_ids
from athena.calls.pairing import MISSING_RESULT, pair_results
from athena.errors import InvalidRequest
from athena.model.parts import Part, Text, ToolCall, ToolResult, joined_text
from athena.model.request import Role, Turn


def call(call_id: str) -> ToolCall:
    return ToolCall(id=call_id, name=f"tool_{call_id}", arguments="{}")


def result(call_id: str, text: str = "") -> ToolResult:
    return ToolResult(call_id=call_id, parts=(Text(text=text or f"result {call_id}"),))


def turn(role: Role, *parts: Part | str) -> Turn:
    return Turn(role=role, parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts), raw={})


def asks(*parts: Part | str) -> Turn:
    return turn("assistant", *parts)


def says(*parts: Part | str) -> Turn:
    return turn("user", *parts)


def shape(turns: tuple[Turn, ...]) -> list[str]:
    """One word per part: role initial, kind, id or text."""
    words = []
    for each in turns:
        parts = []
        for part in each.parts:
            if isinstance(part, ToolCall):
                parts.append(f"call {part.id}")
            elif isinstance(part, ToolResult):
                parts.append(f"result {part.call_id}" + (" missing" if part.is_error else ""))
            else:
                parts.append(joined_text((part,)))
        words.append(f"{each.role[0]}: " + ", ".join(parts))
    return words


@pytest.mark.parametrize(
    "turns",
    [
        (),
        (says("hi"),),
        (says("hi"), asks("hello"), says("more")),
        (asks(call("a"), call("b")), says(result("a"), result("b"))),
        (asks(call("a"), call("b")), says(result("a")), says(result("b")), says("go on")),
        (asks(call("a")), says(result("a"), "and more"), asks(call("b")), says(result("b"))),
        (asks("thinking aloud"), asks(call("a")), says(result("a"))),
        (asks("one"), asks("two"), says("three")),
    ],
)
def test_history_in_order_is_the_same_objects(turns: tuple[Turn, ...]) -> None:
    paired, losses = pair_results(turns)
    assert losses == ()
    assert len(paired) == len(turns)
    assert all(new is old for new, old in zip(paired, turns, strict=True))


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ((asks(call("a"), call("b")), says(result("b"), result("a"))), ["a: call a, call b", "u: result a, result b"]),
        ((asks(call("a")), says("first", result("a"))), ["a: call a", "u: result a", "u: first"]),
        ((asks(call("a")), says("first"), says(result("a"))), ["a: call a", "u: result a", "u: first"]),
        ((asks(call("a")), turn("system", "note"), says(result("a"))), ["a: call a", "u: result a", "s: note"]),
        (
            (asks(call("a"), call("b")), says(result("b")), says("x"), says(result("a"))),
            ["a: call a, call b", "u: result a, result b", "u: x"],
        ),
        ((asks(call("a")),), ["a: call a", "u: result a missing"]),
        ((asks(call("a")), says("never mind")), ["a: call a", "u: result a missing", "u: never mind"]),
        ((asks(call("a"), call("b")), says(result("b"))), ["a: call a, call b", "u: result a missing, result b"]),
        ((asks(call("a")), asks("done")), ["a: call a", "u: result a missing", "a: done"]),
        (
            (asks(call("a")), asks("done"), says("next")),
            ["a: call a", "u: result a missing", "a: done", "u: next"],
        ),
        ((asks(call("a")), says(result("a", "1"), result("a", "2"))), ["a: call a", "u: result a"]),
        ((asks(call("a")), asks(call("b")), says(result("a"), result("b"))), ["a: call a, call b", "u: result a, result b"]),
        ((asks(call("a")), asks("text"), says(result("a"))), ["a: call a, text", "u: result a"]),
        (
            (asks(call("a")), asks(call("b")), says(result("b"))),
            ["a: call a", "u: result a missing", "a: call b", "u: result b"],
        ),
        (
            (asks("x"), asks(call("a")), asks(call("b")), asks("y"), says(result("b"), result("a"), "z")),
            ["a: x", "a: call a, call b, y", "u: result a, result b", "u: z"],
        ),
    ],
)
def test_repairs(turns: tuple[Turn, ...], expected: list[str]) -> None:
    paired, _ = pair_results(turns)
    assert shape(paired) == expected
    again, losses = pair_results(paired)
    assert again == paired
    assert losses == ()


def test_a_missing_result_says_so() -> None:
    paired, losses = pair_results((asks(call("a")),))
    (missing,) = paired[1].parts
    assert isinstance(missing, ToolResult)
    assert missing.is_error
    assert missing.name == "tool_a"
    assert joined_text(missing.parts) == MISSING_RESULT
    assert [(loss.action, "call a" in loss.reason) for loss in losses] == [("repaired", True)]


def test_the_first_of_two_results_counts_and_the_other_is_told() -> None:
    paired, losses = pair_results((asks(call("a")), says(result("a", "first"), result("a", "second"))))
    (kept,) = paired[1].parts
    assert isinstance(kept, ToolResult)
    assert joined_text(kept.parts) == "first"
    assert [loss.action for loss in losses] == ["dropped"]


@pytest.mark.parametrize(
    ("orphan", "turns"),
    [
        ("x", (says(result("x")),)),
        ("x", (asks("text"), says(result("x")))),
        ("x", (asks(call("a")), says(result("a"), result("x")))),
        ("a", (asks(call("a")), says(result("a")), asks("ok"), says(result("a")))),
    ],
)
def test_a_result_without_its_call(orphan: str, turns: tuple[Turn, ...]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        pair_results(turns)
    assert caught.value.code == "orphan_tool_result"
    assert caught.value.path.startswith("turns[")
    paired, losses = pair_results(turns, "repair")
    text = " ".join(joined_text(each.parts) for each in paired)
    assert f"result of tool call {orphan}" in text
    assert f"result {orphan}" in text
    assert [loss.action for loss in losses] == ["repaired"]
    assert pair_results(paired)[0] == paired


def test_a_late_result_is_told_where_it_arrives() -> None:
    """Functions that run in the background: the call's place says the same before and after the result came."""
    early = (asks(call("a")), says("go on"), asks("ok"), says("and?"))
    before, _ = pair_results(early)
    after, losses = pair_results((*early[:3], says(result("a", "42"))))
    assert shape(after)[:3] == shape(before)[:3] == ["a: call a", "u: result a missing", "u: go on"]
    assert shape(after)[3:] == ["a: ok", "u: [result of tool call a]\n42"]
    assert ["came after later turns" in loss.reason for loss in losses] == [False, True]
    with pytest.raises(InvalidRequest, match="no matching tool call"):
        pair_results((*early[:3], says(result("a"), result("a"))))


_PARTS = st.sampled_from("abc").flatmap(lambda name: st.sampled_from([name, f"call {name}", f"result {name}"]))
_TURNS = st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), st.lists(_PARTS, max_size=4)), max_size=8)


def _history(steps: list[tuple[Role, list[str]]]) -> tuple[Turn, ...]:
    turns = []
    for role, words in steps:
        parts: list[Part | str] = []
        for word in words:
            kind, _, call_id = word.partition(" ")
            if role == "assistant":
                parts.append(call(call_id) if kind == "call" else word)
            else:
                parts.append(result(call_id) if kind == "result" else word)
        turns.append(turn(role, *parts))
    return unique_history_ids(turns)


@given(_TURNS)
def test_any_history_comes_out_paired_and_stays_so(steps: list[tuple[Role, list[str]]]) -> None:
    turns = _history(steps)
    paired, _ = pair_results(turns, "repair")
    again, losses = pair_results(paired, "strict")
    assert again == paired
    assert losses == ()
    _check_paired(paired)
    before = [part.id for each in turns for part in each.parts if isinstance(part, ToolCall)]
    after = [part.id for each in paired for part in each.parts if isinstance(part, ToolCall)]
    assert before == after, "no call is lost, doubled or moved"
    texts = [part.text for each in turns for part in each.parts if isinstance(part, Text)]
    left = [part.text for each in paired for part in each.parts if isinstance(part, Text)]
    assert [text for text in left if not text.startswith("[result of tool call")] == texts


def _check_paired(turns: tuple[Turn, ...]) -> None:
    """Right behind a turn with calls stand exactly its results, in its order."""
    position = 0
    while position < len(turns):
        wanted = [part.id for part in turns[position].parts if isinstance(part, ToolCall)]
        position += 1
        given_ids: list[str] = []
        while position < len(turns) and turns[position].role != "assistant":
            results = [part.call_id for part in turns[position].parts if isinstance(part, ToolResult)]
            kinds = [isinstance(part, ToolResult) for part in turns[position].parts]
            assert kinds == sorted(kinds, reverse=True), "results come first"
            assert not results or len(given_ids) < len(wanted), "no result behind other content"
            given_ids += results
            position += 1
        assert given_ids == wanted
