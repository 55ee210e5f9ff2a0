"""Whichever way an answer takes, its client holds the same text, the same reasoning and the same calls."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.dialects import dialect_names
from athena.formats.machine.policies import Policies
from athena.formats.machine.stage import FormatOptions
from exchange.ways import Answer, Seen, by_exchange, by_parser, long_ways_only
from formats.case_files import case_files, chunked, declared, load

PAIRS = tuple(product(dialect_names(), dialect_names()))
POLICIES = (
    Policies(),
    Policies(text="hold"),
    Policies(arguments="hold"),
    Policies(repair="off"),
    Policies(repair="schema"),
    Policies(thinking="keep"),
    Policies(after_calls="drop"),
    Policies(malformed="text", unknown_tool="text"),
    Policies(malformed="drop", unknown_tool="error"),
)


def answers(path: Path) -> list[Answer]:
    """The texts of one case file as answers of a model."""
    file = load(path)
    return [
        Answer(
            text=case.text,
            tools=declared(file),
            options=FormatOptions(
                case.format or path.stem,
                others=case.others,
                policies=case.policies,
                starts_in_thinking=case.starts_in_thinking,
            ),
            channel=case.channel,
            limits=case.limits,
        )
        for case in file.case
        if case.text
    ]


ANSWERS = [answer for path in case_files() for answer in answers(path)]


def check(answer: Answer, upstream: str, client: str, cuts: list[list[str]]) -> None:
    """Compare all ways of one answer between one pair of dialects."""
    expected = by_parser(answer)
    if answer.channel == "reasoning":
        expected.text += "Done."
    whole = by_exchange(answer, [answer.text], upstream=upstream, client=client, stream=False)
    compare(whole, expected, "whole")
    with long_ways_only():
        compare(
            by_exchange(answer, [answer.text], upstream=upstream, client=client, stream=False),
            expected,
            "whole, long ways only",
        )
    for pieces in cuts:
        for joined in (False, True):
            streamed = by_exchange(answer, pieces, upstream=upstream, client=client, stream=True, joined=joined)
            compare(streamed, expected, f"in {len(pieces)} pieces, joined: {joined}")
        with long_ways_only():
            by_long_way = by_exchange(answer, pieces, upstream=upstream, client=client, stream=True)
        compare(by_long_way, expected, f"in {len(pieces)} pieces, long ways only")


def compare(seen: Seen, expected: Seen, way: str) -> None:
    assert seen.failed == expected.failed, way
    if expected.failed:
        # The answer ends with its first failure: what came before it was shown, and no call is invented.
        assert seen.calls == expected.calls[: len(seen.calls)], way
    else:
        assert seen == expected, way


@pytest.mark.parametrize("path", case_files(), ids=lambda path: path.stem)
def test_every_case_comes_out_the_same(path: Path) -> None:
    for number, answer in enumerate(answers(path)):
        upstream, client = PAIRS[number % len(PAIRS)]
        cuts = [[answer.text], chunked(answer.text, 5)]
        try:
            check(answer, upstream, client, cuts)
        except AssertionError as error:
            error.add_note(f"{upstream} to {client}, {answer.options}: {answer.text!r}")
            raise


@pytest.mark.parametrize(("upstream", "client"), PAIRS)
def test_calls_in_reasoning_come_out_the_same_from_every_upstream(upstream: str, client: str) -> None:
    in_reasoning = [answer for answer in ANSWERS if answer.channel == "reasoning"]
    assert in_reasoning
    for answer in in_reasoning:
        check(answer, upstream, client, [[answer.text], chunked(answer.text, 5)])


OPENINGS = ("<think>\nLet me see.\n</think>\n\n", "<think>a", "Well, ", "[THINK]Hm.[/THINK]", "\n\n", "`", "```\n")
WORDS = (" about it", "\n", "Hello.", "</think>", "<think>", "<tool_call>", "<|", "`", "```", " ", "{", '"', "\n</think>\n\nHi")


@pytest.mark.parametrize("policies", POLICIES, ids=repr)
@given(data=st.data())
def test_cases_among_other_words_come_out_the_same(policies: Policies, data: st.DataObject) -> None:
    upstream, client = data.draw(st.sampled_from(PAIRS))
    case = data.draw(st.sampled_from(ANSWERS))
    before = data.draw(st.lists(st.sampled_from(OPENINGS), max_size=2))
    behind = data.draw(st.lists(st.sampled_from(WORDS), max_size=4))
    text = "".join((*before, case.text, *behind))
    answer = msgspec.structs.replace(case, text=text, options=msgspec.structs.replace(case.options, policies=policies))
    places = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=12)))
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True) if start < end]
    check(answer, upstream, client, [pieces])
