"""Tagged text typed by schema: the rules of docs/reference/format-notes.md#tagged-values, one row each."""

from __future__ import annotations

from typing import Any

import pytest

from athena.formats.bodies.json_text import strict_json
from athena.formats.bodies.python_literals import python_to_json
from athena.formats.machine.value_types import SchemaTypes, ToolBook, typed_json
from athena.model.request import Tool

INTEGER_OR_NULL = {"anyOf": [{"type": "integer"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "3", '"3"'),
        ({"type": "string"}, "true", '"true"'),
        ({"type": "string"}, "null", '"null"'),
        ({"type": "string"}, '"abc"', '"\\"abc\\""'),
        ({"type": "string"}, ' {"a":1}\n', '" {\\"a\\":1}\\n"'),
        ({"type": "string"}, "", '""'),
        ({"type": "integer"}, "3", "3"),
        ({"type": "integer"}, " +007 ", "7"),
        ({"type": "integer"}, "-0", "0"),
        ({"type": "integer"}, "9" * 5000, "9" * 5000),
        ({"type": "integer"}, "3.0", "3.0"),
        ({"type": "integer"}, "3.5", '"3.5"'),
        ({"type": "integer"}, "2026-01-15", '"2026-01-15"'),
        ({"type": "integer"}, "", None),
        ({"type": "number"}, "1.50", "1.50"),
        ({"type": "number"}, ".5", "0.5"),
        ({"type": "number"}, "1e5", "1e5"),
        ({"type": "number"}, "NaN", '"NaN"'),
        ({"type": "boolean"}, "True", "true"),
        ({"type": "boolean"}, "0", "false"),
        ({"type": ["boolean", "integer"]}, "0", "0"),
        ({"type": "boolean"}, "yes", '"yes"'),
        (INTEGER_OR_NULL, "None", "null"),
        (INTEGER_OR_NULL, "", "null"),
        (INTEGER_OR_NULL, "5", "5"),
        ({"type": "string", "nullable": True}, "null", "null"),
        ({"type": ["string", "null"], "enum": ["None", "a", None]}, "None", '"None"'),
        ({"type": "array"}, "['x', 1]", '["x",1]'),
        ({"type": "array"}, '["x", ]', '["x"]'),
        ({"type": "array"}, "x, y", '"x, y"'),
        ({"type": "object"}, "{'u': 'c', 'n': None}", '{"u":"c","n":null}'),
        ({"type": "object"}, '{"a": 1.0}', '{"a": 1.0}'),
        ({"anyOf": [{"type": "array"}, {"type": "string"}]}, "[1]", "[1]"),
        ({"anyOf": [{"type": "array"}, {"type": "string"}]}, "one", '"one"'),
        ({"enum": [1, 2]}, "2", "2"),
        ({"const": "2"}, "2", '"2"'),
        ({"$ref": "#/$defs/n"}, "2", "2"),
        ({"allOf": [{"type": "integer"}, {"minimum": 1}]}, "2", "2"),
        ({"type": "str"}, "2", '"2"'),
        ({"type": "HashMap"}, "{}", "{}"),
        ({"type": "list[int]"}, "[1]", "[1]"),
        ({}, "[1]", "[1]"),
        ({}, "12", "12"),
        ({}, "some words", '"some words"'),
        ({}, '"q"', '"\\"q\\""'),
        (None, "null", "null"),
    ],
)
def test_typed_values(schema: Any, text: str, value: str | None) -> None:
    root = {"$defs": {"n": {"type": "integer"}}}
    assert typed_json(text, SchemaTypes(root).of(schema)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': (1, 2), 'b': {3}}", '{"a":[1,2],"b":[3]}'),
        ("'a' \"b\"", '"ab"'),
        ("r'\\d'", '"\\\\d"'),
        ("0x10", "16"),
        ("-1_000.5", "-1000.5"),
        ("(1)", "1"),
        ("()", "[]"),
        ("{}", "{}"),
        ("f(1)", None),
        ("[1, 2", None),
        ("'a", None),
        ("[" * 1000, None),
        ("", None),
    ],
)
def test_python_literals(text: str, value: str | None) -> None:
    assert python_to_json(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("{'a': 'it's', 'b': \"x\"}", '{"a": "it\'s", "b": "x"}'),
        ("{a: True, b_2: [None,],}", '{"a": true, "b_2": [null]}'),
        ('{{"a": 1}}', '{"a": 1}'),
        ('{"a": 1 /* one */, // two\n "b": 2}', '{"a": 1 ,  "b": 2}'),
        ('{"a": "\\,"}', '{"a": "\\\\,"}'),
        ('{"a": 01}', None),
        ('{"a": 1', None),
        ('{"a" 1}', None),
        ('{"a": NaN}', None),
    ],
)
def test_nearly_json(text: str, value: str | None) -> None:
    assert strict_json(text) == value


def test_inference_is_unique_or_nothing() -> None:
    book = ToolBook(
        (
            Tool(name="a", schema={"properties": {"x": {}, "y": {}}, "required": ["x"]}),
            Tool(name="b", schema={"properties": {"x": {}}}),
            Tool(name="c", schema={"properties": {"z": {}}, "required": ["z"]}),
        )
    )
    assert book.infer(["z"]) == "c"
    assert book.infer(["x", "y"]) == "a"
    assert book.infer(["x"]) is None
    assert book.infer(["q"]) is None
