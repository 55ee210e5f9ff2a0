"""The work of a check is known before it is done: never underestimated, linear to find out, and modest for ordinary schemas."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import pytest
from benchmarks.hostile_schemas import FAMILIES, hostile_schema
from benchmarks.steps import count_steps

from athena.schema_cost import MANY, SchemaCost, pattern_states
from athena.wire.json_pointer import local_target

IN_PLACE = ("allOf", "anyOf", "oneOf")
ORDINARY: list[tuple[dict[str, Any], Any]] = [
    ({}, {"a": 1}),
    ({"type": "object", "properties": {}}, {}),
    (
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "pattern": "^/[a-z0-9_/.-]{1,200}$"},
                "content": {"type": "string"},
                "mode": {"enum": ["create", "append"]},
            },
            "required": ["path", "content"],
            "additionalProperties": False,
        },
        {"path": "/tmp/file.txt", "content": "x" * 100_000, "mode": "create"},
    ),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}}}},
            "type": "object",
            "properties": {"list": {"$ref": "#/definitions/node"}, "at": {"type": "string", "format": "date-time"}},
        },
        {"list": {"next": {"next": {"next": {}}}}, "at": "2026-01-01T00:00:00Z"},
    ),
    (
        {
            "type": "object",
            "properties": {
                "edits": {
                    "type": "array",
                    "uniqueItems": True,
                    "items": {
                        "anyOf": [
                            {"type": "object", "properties": {"old": {"type": "string"}, "new": {"type": "string"}}},
                            {"type": "null"},
                        ]
                    },
                }
            },
        },
        {"edits": [{"old": f"line {number}", "new": "another"} for number in range(200)]},
    ),
    (
        {
            "type": "object",
            "allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "integer"}}}],
            "unevaluatedProperties": False,
        },
        {"a": 1, "b": 2},
    ),
]


@pytest.mark.parametrize(("schema", "value"), ORDINARY, ids=range(len(ORDINARY)))
def test_ordinary_schemas_are_cheap(schema: dict[str, Any], value: Any) -> None:
    cost = SchemaCost(schema)
    assert cost.refusal == ""
    assert cost.steps(value) < 50_000


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "#"}, "reference"),
        ({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}, "reference"),
        ({"properties": {"a": {"$ref": "https://example.com/schema.json"}}}, "reference"),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, "reference"),
        ({"properties": {"a": {"$ref": 5}}}, "reference"),
        ({"properties": {"a": {"$dynamicRef": "#a"}}}, "reference"),
        ({"properties": {"a": {"$id": "https://example.com/a", "$ref": "#/$defs/x"}}}, "reference"),
        ({"properties": {"a": {"pattern": "(?=a)b"}}}, "pattern"),
        ({"properties": {"a": {"pattern": r"(a)\1"}}}, "pattern"),
        ({"properties": {"a": {"pattern": "(a{1,100}){1,100}"}}}, "pattern"),
        ({"patternProperties": {f"^{number}": {} for number in range(101)}}, "pattern"),
        ({"properties": {f"p{number}": {} for number in range(5000)}}, "schema_size"),
        ({"enum": list(range(30_000))}, "schema_size"),
    ],
)
def test_what_cannot_be_bounded_is_refused(schema: dict[str, Any], reason: str) -> None:
    cost = SchemaCost(schema)
    assert cost.refusal == reason
    assert cost.steps({"a": 1}) == MANY


@pytest.mark.parametrize(
    "family",
    ["any_of_references", "one_of_references", "if_then_else", "dependent_schemas", "all_of_squares", "unevaluated_properties"],
)
def test_what_multiplies_is_seen(family: str) -> None:
    steps = []
    for number in (4, 8, 12, 16, 20):
        hostile = hostile_schema(family, number)
        steps.append(SchemaCost(hostile.schema).steps(hostile.arguments))
    assert all(after >= 15 * before or after == MANY for before, after in itertools.pairwise(steps)), steps


@pytest.mark.parametrize("family", FAMILIES)
def test_the_analysis_is_linear(family: str) -> None:
    """Counted in Python's own instructions: for each byte of the schema and of the value a bounded number of them."""
    for number in (3, 6):
        hostile = hostile_schema(family, number)
        size = len(msgspec.json.encode(hostile.schema)) + len(msgspec.json.encode(hostile.arguments))

        def analysed(schema: dict[str, Any] = hostile.schema, value: Any = hostile.arguments) -> None:
            SchemaCost(schema).steps(value)

        assert count_steps(analysed) < 400 * size + 20_000, hostile.name


@pytest.mark.parametrize("seed", range(150))
def test_the_bound_is_never_below_the_work(seed: int) -> None:
    drawn = random.Random(seed)
    definitions = {f"d{level}": _drawn_schema(drawn, level, 2) for level in range(4)}
    schema = {**_drawn_schema(drawn, 0, 2), "$defs": definitions}
    value = _drawn_value(drawn, 3)
    cost = SchemaCost(schema)
    assert cost.refusal == ""
    assert _evaluations(schema, value, schema) <= cost.steps(value)
    from_text = cost.steps_of_text(len(msgspec.json.encode(value).decode()))
    assert not from_text or cost.steps(value) <= from_text


def _drawn_schema(drawn: random.Random, level: int, depth: int) -> Any:
    """References lead to later definitions only when they stay in place, and anywhere from below."""
    if depth == 0:
        return drawn.choice([True, {}, {"type": "string"}, {"pattern": "^a*$"}, {"enum": ["a", 1]}, {"uniqueItems": True}])
    schema: dict[str, Any] = {}
    for key in drawn.sample([*IN_PLACE, "not", "if", "properties", "items", "additionalProperties", "$ref", "contains"], 2):
        if key in IN_PLACE:
            schema[key] = [_drawn_schema(drawn, level, depth - 1) for _ in range(drawn.randint(1, 2))]
        elif key == "properties":
            schema[key] = {name: _below(drawn, level, depth) for name in drawn.sample("abcd", 2)}
        elif key == "$ref":
            if level < 3:
                schema[key] = f"#/$defs/d{drawn.randint(level + 1, 3)}"
        elif key in ("not", "if"):
            schema[key] = _drawn_schema(drawn, level, depth - 1)
            if key == "if":
                schema["then"] = _drawn_schema(drawn, level, depth - 1)
        else:
            schema[key] = _below(drawn, level, depth)
    return schema


def _below(drawn: random.Random, level: int, depth: int) -> Any:
    return {"$ref": f"#/$defs/d{drawn.randint(0, 3)}"} if drawn.random() < 0.4 else _drawn_schema(drawn, level, depth - 1)


def _drawn_value(drawn: random.Random, depth: int) -> Any:
    kind = drawn.choice(["object", "array", "text", "number"]) if depth else "text"
    if kind == "object":
        return {name: _drawn_value(drawn, depth - 1) for name in drawn.sample("abcd", 2)}
    if kind == "array":
        return [_drawn_value(drawn, depth - 1) for _ in range(drawn.randint(0, 3))]
    return "aaa" if kind == "text" else 3


def _evaluations(schema: Any, value: Any, root: Any) -> int:
    """How often a validator that never stops early looks at a schema with a value in hand."""
    if not isinstance(schema, dict):
        return 0
    work = 1
    if "$ref" in schema:
        work += _evaluations(local_target(root, schema["$ref"]), value, root)
    for key in IN_PLACE:
        work += sum(_evaluations(one, value, root) for one in schema.get(key, ()))
    for key in ("not", "if", "then"):
        work += _evaluations(schema[key], value, root) if key in schema else 0
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name, child in value.items():
            for below in ([properties[name]] if name in properties else []) + [schema.get("additionalProperties", True)]:
                work += _evaluations(below, child, root)
    if isinstance(value, list):
        for child in value:
            work += _evaluations(schema.get("items", True), child, root) + _evaluations(
                schema.get("contains", True), child, root
            )
    return work


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("", 0, 0),
        ("abc", 3, 20),
        ("a{100}", 100, 500),
        ("(ab){10}", 20, 150),
        ("(a{10}){10}", 100, 500),
        ("((a{10}){10}){10}", 1000, 6000),
        ("a{2,}", 3, 20),
        ("a{,3}", 5, 40),
        ("[a-z]{1,100}", 100, 3000),
        (r"\{100\}", 3, 60),
        ("a{999999999}{999999999}", 10**12, MANY),
        (")(", 0, 20),
        ("[", 0, 20),
        ("(((((", 0, 30),
        (r"\p{L}{5}", 1000, 3000),
        (r"[\p{L}]{5}", 1000, 3000),
        ("^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", 32, 1500),
    ],
)
def test_states_of_patterns(pattern: str, least: int, most: int) -> None:
    assert least <= pattern_states(pattern) <= most


def test_local_references() -> None:
    root = {"a": [{"b/c": 1}, {"d~e": 2}], "%": 3, "": 4}
    assert local_target(root, "#") is root
    assert local_target(root, "#/a/0/b~1c") == 1
    assert local_target(root, "#/a/1/d~0e") == 2
    assert local_target(root, "#/%25") == 3
    assert local_target(root, "#/") == 4
    for nowhere in ("", "a", "#a", "#/a/2", "#/a/-1", "#/a/x", "#/a/0/b~1c/z", "http://x/#/a", "#/" + "a/" * 2000):
        assert local_target(root, nowhere) is None
