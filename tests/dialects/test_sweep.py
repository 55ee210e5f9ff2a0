"""Every field, value and member of the SDKs' types on every way: nothing crashes, nothing is refused that has no reason to be,
and nothing is lost without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from athena.dialects import dialect_names
from support import sweep_answers
from support.sdk_sweep import Variant
from support.sweep_answers import stream_outcomes, stream_variants, whole_outcomes, whole_variants
from support.sweep_requests import FREE, Outcome, is_free, outcomes, request_variants

WAYS = [(source, target) for source in dialect_names() for target in dialect_names()]
REFUSED = {
    "background": "the client would wait for a response that nobody keeps",
    "conversation<": "the answer would be to another question",
    "conversation": "the answer would be to another question",
    "previous_response_id": "the answer would be to another question",
    "prompt<": "the answer would be to another question",
    "thread<": "the SDK sends the whole history itself after this very refusal",
    "container": "files and state that live at the provider",
    "cachedContent": "content that lives at the provider",
    "compaction_trigger": "the target compacts nothing",
    "compaction": "history that only its maker can read",
    "file_id": "a file that lives at the provider",
    "<file>": "a file that lives at the provider",
    "file_url": "an address that the target does not read",
    "file_data": "an address that the target does not read",
    "source<url>": "an address that the target does not read",
    "inline_data": "content of a kind that the target does not take",
    "input_audio": "content of a kind that the target does not take",
    "audio<": "an answer that the target does not give",
    "modalities[]": "an answer that the target does not give",
    "response_modalities[]": "an answer that the target does not give",
    "n": "more answers than the target gives",
    "candidate_count": "more answers than the target gives",
    "tool_choice<": "a call that the target cannot make",
}
"""What may be refused, by the end of its path or a piece of it, and why it cannot just be left out."""


def is_meant(path: str) -> bool:
    return any(path.endswith(word) or (word[-1] in "<>]" and word in path) or f"<{word}>" in path for word in REFUSED)


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_requests(source: str, target: str) -> None:
    silent: list[str] = []
    refused: list[str] = []
    for variant, result in outcomes(source, target):
        if result.fate == "silent" and not is_free(variant.path):
            silent.append(variant.path)
        elif result.fate == "refused" and not is_meant(variant.path):
            refused.append(f"{variant.path}: {result.message}")
    assert silent == [], "lost without a word"
    assert refused == [], "refused without a reason"


@pytest.mark.parametrize("dialect", dialect_names())
def test_at_home_everything_goes_along(dialect: str) -> None:
    changed = [variant.path for variant, result in outcomes(dialect, dialect) if result.fate == "refused"]
    assert changed == []


@pytest.mark.parametrize("sweep", [whole_outcomes, stream_outcomes], ids=["whole", "stream"])
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_answers(source: str, target: str, sweep: Callable[[str, str], Iterator[tuple[Variant, Outcome]]]) -> None:
    silent: list[str] = []
    refused: list[str] = []
    for variant, result in sweep(source, target):
        if result.fate == "silent" and not sweep_answers.is_free(variant.path):
            silent.append(variant.path)
        elif result.fate == "refused":
            refused.append(f"{variant.path}: {result.message}")
    assert silent == [], "lost without a word"
    assert refused == [], "refused"


def test_the_sweep_is_a_sweep() -> None:
    counts = {dialect: len(request_variants(dialect)) for dialect in dialect_names()}
    assert all(count > 150 for count in counts.values()), counts
    assert sum(counts.values()) > 2500
    assert sum(len(whole_variants(dialect)) for dialect in dialect_names()) > 1500
    assert sum(len(stream_variants(dialect)) for dialect in dialect_names()) > 1500


def test_every_exception_is_needed() -> None:
    """A pattern that matches nothing any more must go."""
    paths = [variant.path for dialect in dialect_names() for variant in request_variants(dialect)]
    assert [pattern for pattern, _ in FREE if not any(re.search(pattern, path) for path in paths)] == []
    paths = [variant.path for dialect in dialect_names() for variant in (*whole_variants(dialect), *stream_variants(dialect))]
    unused = [pattern for pattern, _ in sweep_answers.FREE if not any(re.search(pattern, path) for path in paths)]
    assert unused == []
