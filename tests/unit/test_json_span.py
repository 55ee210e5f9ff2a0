"""Where a JSON value ends, however the text is cut; and what counts as a JSON object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.wire.json_span import JsonSpan, is_json_object

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(alphabet='ab"\\{}[]\n\u2028é', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='k"{}', max_size=4), inner, max_size=4),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(st.text(alphabet='k"\\{}]', max_size=4), _JSON, max_size=4)


def cut(text: str, cuts: list[int]) -> list[str]:
    places = sorted({min(place, len(text)) for place in cuts})
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def end_of(pieces: list[str], span: JsonSpan) -> int:
    """The end as an offset in the whole text, or -1."""
    before = 0
    for piece in pieces:
        used = span.feed(piece)
        if used >= 0:
            return before + used
        before += len(piece)
    return -1


@given(
    _OBJECTS | st.lists(_JSON, max_size=3), st.text(alphabet=' \n}]"{x', max_size=6), st.lists(st.integers(0, 150), max_size=10)
)
def test_end_is_found_in_any_split(value: Any, behind: str, cuts: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert end_of(cut(text + behind, cuts), JsonSpan()) == len(text)
    assert end_of(list(text + behind), JsonSpan()) == len(text)


@given(_OBJECTS, st.data())
def test_a_prefix_never_ends(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    prefix = text[: data.draw(st.integers(0, len(text) - 1))]
    span = JsonSpan()
    assert span.feed(prefix) == -1
    assert not span.closed


def test_text_before_the_value_is_skipped() -> None:
    span = JsonSpan()
    assert span.feed('say "hi": {"a": "}"} rest') == 20
    assert span.closed
    assert span.feed("}}") == 0, "nothing more belongs to it"


def test_state_in_the_middle() -> None:
    span = JsonSpan()
    assert span.feed('{"a\\') == -1
    assert (span.started, span.depth, span.in_string) == (True, 1, True)
    assert span.feed("") == -1
    assert span.feed('"b') == -1, "the quote was escaped in the piece before"
    assert span.in_string
    assert span.feed('": [') == -1
    assert (span.depth, span.in_string) == (2, False)
    assert span.feed("]}") == 2


def test_depth_is_watched_not_recursed() -> None:
    span = JsonSpan(depth_limit=10)
    span.feed("[" * 10)
    assert not span.too_deep
    span.feed("[" * 100_000)
    assert span.too_deep


def test_long_strings_cost_one_search_each() -> None:
    """The state between pieces is a few flags: feeding never looks at earlier pieces again."""
    span = JsonSpan()
    span.feed('{"a": "')
    for _ in range(20_000):
        assert span.feed("x") == -1
    assert span.feed('"}') == 2
    assert set(JsonSpan.__slots__) == {"_depth_limit", "_escaped", "closed", "depth", "in_string", "started", "too_deep"}


_OBJECT_TEXTS = [
    "{}", " \t\r\n{}\n", '{"a":1,"a":2}', '{"a":1e999}', '{"a":"\\ud800"}', '{"a":"\\uD83D\\uDE00"}', '{"":null}',
    '{"n":' + "9" * 5000 + "}",
]  # fmt: skip

_OTHER_TEXTS = [
    "", " ", "null", "[]", "1", '"{}"', "{", "}", "{}{}", "{} x", "{a:1}", "{'a':1}", '{"a":1,}', '{"a":01}', '{"a":+1}',
    '{"a":.5}', '{"a":1.}', '{"a":NaN}', '{"a":Infinity}', '{"a":"\\q"}', '{"a":"\n"}', '{"a":"\\u12"}', '{"a" 1}',
    '{"a":tru}', "\ufeff{}", "\x0c{}", "\u00a0{}", '{"a":"\\ud800\\q"}', '{"a":NaN,"b":"\\ud800"}',
    '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
]  # fmt: skip


@pytest.mark.parametrize("text", _OBJECT_TEXTS, ids=lambda text: text[:20])
def test_objects(text: str) -> None:
    assert is_json_object(text)


@pytest.mark.parametrize("text", _OTHER_TEXTS, ids=lambda text: text[:20])
def test_not_objects(text: str) -> None:
    assert not is_json_object(text)


@given(st.text(alphabet='{}[]":,0123456789.eE+-truefalsn\\ud8 ', max_size=16) | _OBJECTS.map(json.dumps))
def test_agrees_with_the_standard_library(text: str) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        expected = isinstance(json.loads(text, parse_constant=refuse), dict)
    except ValueError:
        expected = False
    assert is_json_object(text) == expected
