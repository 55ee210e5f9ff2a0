"""What a client's body may hold, before anything is made of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from athena.errors import InvalidRequest
from athena.shells.gateway import incoming

TEXTS = some.text(some.sampled_from('ab,[{"\\\n:'), max_size=30)
VALUES = some.recursive(
    some.none() | some.integers() | TEXTS,
    lambda inner: some.lists(inner, max_size=5) | some.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=40,
)


def separators(value: Any) -> int:
    """Commas and opening brackets of a value as compact JSON."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max(1, len(value)) + sum(map(separators, inner))


@given(value=some.lists(VALUES, min_size=1, max_size=8), step=some.integers(1, 40))
def test_values_are_counted_outside_of_strings_however_the_body_is_cut(value: list[Any], step: int) -> None:
    body, count = msgspec.json.encode(value), separators(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incoming, "_STEP", step)
        assert incoming._count_values(body, count) == count
        with pytest.raises(InvalidRequest) as refused:
            incoming._count_values(body, count - 1)
    assert refused.value.code == "too_many_values"


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1,", b'"a",', b'{"a":1},'])
def test_millions_of_values_are_refused_before_they_are_decoded(unit: bytes) -> None:
    body = b'{"messages":[' + unit * (4 * 1024 * 1024 // len(unit)) + b"1]}"
    with pytest.raises(InvalidRequest) as refused:
        incoming.measure(body, 100_000)
    assert refused.value.code == "too_many_values"


def test_a_large_text_is_no_matter_of_values() -> None:
    text = '[{"a": [1, 2, 3], "b\\": {}}, ' * 100_000
    body = msgspec.json.encode({"text": text})
    assert incoming.measure(body, 100)[1] == 1
    assert incoming.shaped(body, 128, 100) == {"text": text}
