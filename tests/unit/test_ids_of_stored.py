"""Ids of stored objects: sorted by the time at which they were made, and read back from the ids of items."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from athena.state.ids import RANDOM_BYTES, RESPONSE, ItemPlace, is_ours, item_id, new_id, place_of

_TIMES = st.floats(0, 2**32 - 1)
_BITS = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES)


@given(_TIMES, _TIMES, _BITS, _BITS)
def test_later_ids_sort_behind_earlier_ones(one: float, other: float, bits: bytes, others: bytes) -> None:
    first, second = new_id(RESPONSE, one, bits), new_id(RESPONSE, other, others)
    assert is_ours(first)
    assert int(one) >= int(other) or first < second


@given(_TIMES, _BITS, st.integers(0, 2**32 - 1))
def test_an_item_tells_its_place(now: float, bits: bytes, position: int) -> None:
    response = new_id(RESPONSE, now, bits)
    assert place_of(item_id("msg_", response, "o", position)) == ItemPlace(response, "o", position)


def test_an_id_of_earlier_versions_is_ours() -> None:
    """They had random digits alone."""
    assert is_ours("resp_ath" + "f0" * 20)
