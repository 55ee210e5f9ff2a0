"""What a client's body may hold, before anything is made of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from athena.errors import AthenaError, InvalidRequest
from athena.serving.budget import Budget
from athena.serving.holding import RequestMemory
from athena.shells.config import LimitSettings
from athena.shells.gateway import incoming
from athena.wire.fragments import Fragments

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


@pytest.mark.parametrize(("objects", "heavy"), [(0, False), (4000, False), (4001, True), (9000, True)])
def test_many_objects_make_a_body_heavy(objects: int, heavy: bool) -> None:
    assert incoming.is_heavy(b'{"text":"' + b"x" * 20_000 + b"{" * (objects - 1) + b'"}' if objects else b"x" * 20_000) is heavy


@pytest.mark.parametrize(("references", "heavy"), [(0, False), (4, False), (5, True), (600, True)])
@pytest.mark.parametrize("others", [0, 3, 600])
def test_many_references_make_a_body_heavy(references: int, heavy: bool, others: int) -> None:
    assert incoming.is_heavy(b'"$schema":"ref$" ' * others + b'"$ref":"#/a",' * references) is heavy


# -- large bodies -------------------------------------------------------------------------------------------------------------


class _Sent:
    """A client whose body is there."""

    def __init__(self, body: bytes) -> None:
        self.headers = {"content-length": str(len(body))}
        self._body = body

    def take_body(self) -> tuple[bytes, bool]:
        body, self._body = self._body, b""
        return body, True


def _deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


_LARGE: dict[str, Any] = {
    "few": {"messages": [{"role": "user", "content": "a, {" * 1000} for _ in range(100)]},
    "wide": {"messages": [{"role": "user", "content": "\N{GRINNING FACE}" * 1000} for _ in range(100)]},
    "dashes": {"messages": [{"role": "user", "content": "\N{EM DASH}a" * 1000} for _ in range(100)]},
    "many objects": {"messages": [{"role": "user", "content": "aaaaaaaaaaaaaaaaaa" * 3} for _ in range(5000)]},
    "many lists": {"messages": [["aaaaaaaaaaaaaaaaaa" * 4] for _ in range(5000)]},
    "deep": {"a": "x" * 300_000, "messages": [_deep(130)]},
    "many keys": {"messages": [{str(number): 0 for number in range(100_001)}]},
}


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("case", [*_LARGE, "cut", "no object", "known"])
def test_large_bodies_are_read_the_same_with_room_and_without(case: str, kept: bool) -> None:
    value = _LARGE["few" if case in ("cut", "known") else case] if case != "no object" else ["x" * 300_000]
    body = msgspec.json.encode(value)[: -1 if case == "cut" else None]
    assert incoming.LARGE_BODY < len(body) < 1024 * 1024

    def read(room: int) -> object:
        fragments = Fragments(1 << 26) if kept else None
        memory = RequestMemory(Budget(room, lambda: 0.0))
        for _ in range(3 if case == "known" else 1):
            work = incoming.read_request(_Sent(body), LimitSettings(), 1.0, memory, incoming.as_it_is, fragments=fragments)  # type: ignore[arg-type]
            try:
                decoded, weight, large = asyncio.run(work)
            except AthenaError as error:
                return error.code, str(error)
        return decoded, weight.text, weight.call, large

    assert read(4 << 30) == read((90 if case == "many keys" else 60) << 20)
