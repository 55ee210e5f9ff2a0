"""Typed reading: right values pass, wrong ones are named by path, unknown ones survive."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.errors import InvalidRequest
from athena.wire.fields import Fields, as_bytes, as_object, decode_json_object

_GETTERS = ("text", "integer", "number", "flag", "mapping", "sequence", "child")


@pytest.mark.parametrize("getter", _GETTERS)
@pytest.mark.parametrize("value", [{}, {"key": None}])
def test_null_and_absent_are_the_same(getter: str, value: dict[str, Any]) -> None:
    fields = Fields(value)
    assert getattr(fields, getter)("key") is None
    assert not fields.has("key")
    assert fields.rest() is None


@pytest.mark.parametrize(
    ("getter", "value", "expected"),
    [
        ("text", "", ""),
        ("text", "a", "a"),
        ("integer", 3, 3),
        ("integer", 3.0, 3),
        ("number", 3, 3),
        ("number", 0.5, 0.5),
        ("flag", False, False),
        ("mapping", {}, {}),
        ("sequence", [1], [1]),
        ("texts", "a", ("a",)),
        ("texts", ["a", "b"], ("a", "b")),
        ("texts", [], ()),
        ("texts", None, ()),
    ],
)
def test_right_values(getter: str, value: Any, expected: Any) -> None:
    found = getattr(Fields({"key": value}), getter)("key")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("getter", "value", "message"),
    [
        ("text", 1, "expected a string, got 1"),
        ("text", ["a"], "expected a string, got an array"),
        ("integer", "1", 'expected an integer, got "1"'),
        ("integer", True, "expected an integer, got true"),
        ("integer", 1.5, "expected an integer, got 1.5"),
        ("integer", float("inf"), "expected an integer, got Infinity"),
        ("number", False, "expected a number, got false"),
        ("number", {}, "expected a number, got an object"),
        ("flag", 1, "expected true or false, got 1"),
        ("flag", "true", 'expected true or false, got "true"'),
        ("mapping", [], "expected an object, got an array"),
        ("sequence", {}, "expected an array, got an object"),
        ("child", "x", 'expected an object, got "x"'),
        ("texts", ["a", 1], "expected a string or an array of strings, got an array"),
        ("texts", 5, "expected a string or an array of strings, got 5"),
        ("needed_text", None, "field required"),
        ("integer", "\ud800", 'expected an integer, got "?"'),
        ("integer", "é" * 500, 'got "' + "é" * 56 + "..."),
    ],
)
def test_wrong_values_are_named(getter: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        getattr(Fields({"key": value}, "messages[2]"), getter)("key")
    assert caught.value.path == "messages[2].key"
    assert caught.value.message.startswith("messages[2].key: ")
    assert message in caught.value.message


def test_needed_text_may_refuse_the_empty_string() -> None:
    fields = Fields({"name": ""})
    assert fields.needed_text("name") == ""
    with pytest.raises(InvalidRequest, match="name: field required"):
        fields.needed_text("name", allow_empty=False)


def test_paths_grow_with_depth() -> None:
    body = Fields({"messages": [{"content": [{"type": 1}]}]})
    message = next(body.children("messages"))
    part = next(message.children("content"))
    assert part.path == "messages[0].content[0]"
    with pytest.raises(InvalidRequest) as caught:
        part.text("type")
    assert caught.value.path == "messages[0].content[0].type"
    tool = Fields({"function": {"name": 3}}).child("function")
    assert tool is not None
    with pytest.raises(InvalidRequest, match=r"function\.name"):
        tool.text("name")


def test_array_of_anything_but_objects_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Fields({"tools": [{}, "x"]}).each("tools", lambda tool: tool.path)
    assert caught.value.path == "tools[1]"
    assert Fields({"tools": [{}, {}]}).each("tools", lambda tool: tool.path) == ("tools[0]", "tools[1]")
    assert Fields({}).each("tools", lambda tool: tool.path) == ()


def test_body_must_be_an_object() -> None:
    with pytest.raises(InvalidRequest, match="body: expected an object, got an array"):
        Fields([])


def test_wrong_names_a_legal_type_with_an_illegal_value() -> None:
    error = Fields({"role": "boss"}, "messages[0]").wrong("role", "user or assistant")
    assert (error.path, error.message) == ("messages[0].role", 'messages[0].role: expected user or assistant, got "boss"')


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.none() | st.integers() | st.text(max_size=3)),
    st.sets(st.sampled_from("abcdef")),
)
def test_rest_is_what_nobody_asked_for(value: dict[str, Any], asked: set[str]) -> None:
    before = dict(value)
    fields = Fields(value)
    for key in asked:
        fields.any(key)
    left = {key: item for key, item in before.items() if key not in asked and item is not None}
    assert fields.rest() == (left or None)
    assert value == before, "reading changes nothing"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"1", b"null", b"\xff", b'{"a":"\xff"}', b"{" * 100_000, b'{"a":' + b"[" * 100_000]
)
def test_bodies_that_are_no_objects(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_json_object(body)
    assert caught.value.code == "invalid_json"


def test_body() -> None:
    assert decode_json_object(b' {"a": [1, {"b": null}]} ') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize("body", [{"a": "é"}, '{"a":"é"}', '{"a":"é"}'.encode()])
def test_a_body_in_any_of_its_forms(body: Any) -> None:
    assert as_bytes(body) == '{"a":"é"}'.encode()
    assert as_object(body) == {"a": "é"}
