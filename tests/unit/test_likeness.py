"""Arguments of two calls that are the same call, and of two that are not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from athena.calls.likeness import likeness

SCALARS = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=12)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)


def _shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shuffled(item) for key, item in reversed(value.items())}
    return [_shuffled(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(max_size=6), VALUES, max_size=4))
@example({"": False, " ": None})
def test_order_of_keys_white_space_and_escapes_do_not_matter(arguments: dict[str, Any]) -> None:
    spellings = [
        json.dumps(arguments),
        json.dumps(_shuffled(arguments), ensure_ascii=False, indent=3),
        json.dumps(arguments, separators=(",", ":")).replace("/", "\\/"),
    ]
    assert len({likeness(spelling) for spelling in spellings}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n": 1}', '{"n": 1.0}'),
        ('{"n": 1000}', '{"n": 1e3}'),
        ('{"n": 5}', '{"n": "5"}'),
        ('{"b": true, "z": null}', '{"z": "null", "b": "True"}'),
        ('{"c": "a && b"}', '{"c": "a &amp;&amp; b"}'),
        ('{"c": "a  b\\n"}', '{"c": "a b"}'),
        ('{"o": {"k": [1, 2]}}', '{"o": "{\\"k\\": [1, 2]}"}'),
        ('{"c": "B\\u200bash"}', '{"c": "Bash"}'),
        ("{}", " { } "),
        ("{}", '{"c": "", "d": {}, "e": null}'),
        ('{"o": {"k": null, "b": true}}', """{"o": "{'k': None, 'b': True}"}"""),
    ],
)
def test_spellings_of_the_same(one: str, other: str) -> None:
    assert likeness(one).whole == likeness(other).whole


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n": 1}', '{"n": 2}'),
        ('{"n": 1}', '{"m": 1}'),
        ('{"l": [1, 2]}', '{"l": [2, 1]}'),
        ('{"c": "ls"}', '{"c": "ls -l"}'),
        ('{"c": "LS"}', '{"c": "ls"}'),
        ("{}", '{"c": "x"}'),
        ('{"n": 9007199254740993}', '{"n": 9007199254740992}'),
    ],
)
def test_what_is_not_the_same(one: str, other: str) -> None:
    assert likeness(one).whole != likeness(other).whole


def test_the_beginning_is_the_first_line_of_every_text() -> None:
    assert likeness('{"c": "ls -l\\nrm x"}').beginning == likeness('{"c": "\\n ls -l \\n\\nAs I said."}').beginning
    assert likeness('{"c": "ls -l\\nrm x"}').beginning != likeness('{"c": "rm x"}').beginning


def test_what_is_no_json_and_what_is_nested_without_end_has_a_likeness_too() -> None:
    assert likeness("not json").whole == "notjson"
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    assert likeness(deep) == likeness(deep)
    nested = '{"a":' * 200 + "1" + "}" * 200
    assert likeness(nested) == likeness(nested.replace(":", ": "))
