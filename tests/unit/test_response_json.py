"""A response in the two parts in which it is kept, and the whole that its client gets of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.wire.response_json import response_json

_VALUES = st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text() | st.lists(st.text(), max_size=2)


@given(st.dictionaries(st.text(), _VALUES, max_size=5), st.lists(st.dictionaries(st.text(), _VALUES, max_size=3), max_size=3))
def test_both_parts_make_the_whole(fields: dict[str, Any], output: list[dict[str, Any]]) -> None:
    response = {"id": "resp_1", **fields, "output": output}
    parts = response_json(response)
    assert msgspec.json.decode(parts.whole()) == response
    assert msgspec.json.decode(parts.output) == output
    assert "output" not in msgspec.json.decode(parts.rest)


@pytest.mark.parametrize("response", [{"id": "a"}, {"id": "a", "output": None}, {"id": "a", "output": []}])
def test_a_response_without_items(response: dict[str, Any]) -> None:
    assert response_json(response).whole() == b'{"id":"a","output":[]}'
