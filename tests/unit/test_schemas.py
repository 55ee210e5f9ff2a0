"""Schemas for each target: what is rewritten, what is left alone, and that a second pass changes nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from athena.errors import InvalidRequest
from athena.model.request import Loss
from athena.schemas import for_anthropic, for_anthropic_output, for_gemini, for_openai
from support.examples import examples

Schema = dict[str, Any]

URI = {"type": "string", "format": "uri"}
URIS: Schema = {
    "type": "object",
    "properties": {
        "address": URI,
        "format": {"type": "string", "enum": ["uri"], "default": {"format": "uri"}},
        "nested": {"type": "array", "items": {"anyOf": [URI, {"type": "object", "properties": {"deep": URI}}]}},
        "when": {"type": "string", "format": "date-time", "examples": [{"format": "uri"}]},
        "fixed": {"const": {"format": "uri"}},
    },
}


def test_uri_format_goes_in_schema_positions_only() -> None:
    losses: list[Loss] = []
    result = for_openai(URIS, strict=False, drops=("format:uri",), losses=losses)["properties"]
    assert result["address"] == {"type": "string"}
    assert result["format"] == {"type": "string", "enum": ["uri"], "default": {"format": "uri"}}
    assert result["nested"]["items"]["anyOf"] == [
        {"type": "string"},
        {"type": "object", "properties": {"deep": {"type": "string"}}},
    ]
    assert result["when"] == {"type": "string", "format": "date-time", "examples": [{"format": "uri"}]}
    assert result["fixed"] == {"const": {"format": "uri"}}
    assert [loss.path for loss in losses] == [
        "parameters.properties.address.format",
        "parameters.properties.nested.items.anyOf[0].format",
        "parameters.properties.nested.items.anyOf[1].properties.deep.format",
    ]


def test_a_schema_that_fits_comes_back_as_the_same_object() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}
    assert for_openai(schema, strict=False, drops=("format:uri",)) is schema
    assert for_anthropic(schema, strict=False) is schema
    strict = {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert for_openai(strict, strict=True) is strict


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, {"type": "object", "properties": {}}),
        ({}, {"type": "object", "properties": {}}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        ({"type": ["object", "null"]}, {"type": "object"}),
        ({"type": "string"}, {"type": "object", "properties": {}}),
    ],
)
def test_the_root_is_an_object(schema: Schema | None, expected: Schema) -> None:
    assert for_openai(schema, strict=False) == expected
    assert for_anthropic(schema, strict=False) == expected


def test_openai_strict_subset() -> None:
    schema = {
        "type": "object",
        "properties": {
            "kind": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "ref": {"allOf": [{"$ref": "#/$defs/point"}]},
            "fixed": {"const": 1},
        },
        "required": ["kind"],
        "patternProperties": {"^x": {}},
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    }
    assert for_openai(schema, strict=True) == {
        "type": "object",
        "properties": {
            "kind": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "mode": {"type": ["string", "null"], "enum": ["a", "b", None]},
            "ref": {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]},
            "fixed": {"anyOf": [{"const": 1}, {"type": "null"}]},
        },
        "required": ["kind", "mode", "ref", "fixed"],
        "additionalProperties": False,
        "$defs": {
            "point": {
                "type": "object",
                "properties": {"x": {"type": "number"}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    }


def test_openai_strict_merges_a_root_of_alternatives() -> None:
    schema = {
        "anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]},
        ]
    }
    assert for_openai(schema, strict=True) == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }


def test_anthropic_strict_moves_constraints_into_the_description() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "maximum": 10, "description": "A number"},
            "when": {"type": "string", "format": "date-time"},
            "odd": {"type": "string", "format": "odd"},
            "list": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        },
    }
    properties = for_anthropic(schema, strict=True)["properties"]
    assert properties["n"] == {"type": "integer", "description": "A number\n\n{minimum: 1, maximum: 10}"}
    assert properties["when"] == {"type": "string", "format": "date-time"}
    assert properties["odd"] == {"type": "string", "description": "{format: odd}"}
    assert properties["list"] == {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "{maxItems: 3}"}
    assert for_anthropic_output({"type": "array", "items": {"type": "string"}}) == {
        "type": "array",
        "items": {"type": "string"},
    }


def test_gemini_json_schema_keeps_its_keywords() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "a": {"$ref": "#/definitions/thing", "description": "gone beside a reference"},
            "b": {"const": "x"},
            "c": {"type": "string", "pattern": "^a", "default": "a"},
            "d": {"allOf": [{"type": "string"}, {"description": "words"}]},
        },
        "definitions": {"thing": {"type": "string"}},
    }
    assert for_gemini(schema, json_schema=True) == {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/thing"},
            "b": {"enum": ["x"]},
            "c": {"type": "string", "description": "{pattern: ^a, default: a}"},
            "d": {"type": "string", "description": "words"},
        },
        "$defs": {"thing": {"type": "string"}},
    }


def test_gemini_openapi_subset() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/thing"},
            "b": {"type": ["string", "null"], "format": "uri"},
            "c": {"type": "integer", "enum": [1, 2]},
            "d": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "e": {"type": "array"},
            "f": {"const": "only"},
            "g": {"type": "object", "properties": {}, "additionalProperties": True},
            "h": {"type": "number", "exclusiveMinimum": 0},
        },
        "required": ["a", "unknown"],
        "additionalProperties": False,
        "$defs": {"thing": {"type": "object", "properties": {"next": {"$ref": "#/$defs/thing"}}}},
    }
    result = for_gemini(schema, json_schema=False)
    assert result["required"] == ["a"]
    assert "$defs" not in result
    assert "additionalProperties" not in result
    properties = result["properties"]
    assert properties["a"]["properties"]["next"]["type"] == "object"
    assert properties["b"] == {"type": "string", "nullable": True, "description": "{format: uri}"}
    assert properties["c"] == {"type": "integer", "description": "{enum: [1,2]}"}
    assert properties["d"] == {"type": "string", "nullable": True}
    assert properties["e"] == {"type": "array", "items": {"type": "object"}}
    assert properties["f"] == {"enum": ["only"], "type": "string"}
    assert properties["g"] == {"type": "object"}
    assert properties["h"] == {"type": "number", "description": "{exclusiveMinimum: 0}"}


@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, {"type": "object", "properties": {}}])
def test_gemini_openapi_has_no_empty_object(schema: Schema | None) -> None:
    assert for_gemini(schema, json_schema=False) == {}


def test_depth_is_bounded() -> None:
    schema: Schema = {"type": "string"}
    for _ in range(150):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidRequest):
        for_openai(schema, strict=False, drops=("format:uri",))


def test_references_that_multiply_are_bounded() -> None:
    definitions: Schema = {
        f"d{level}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{level + 1}"} for side in "ab"}}
        for level in range(40)
    }
    with pytest.raises(InvalidRequest):
        for_gemini({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}, json_schema=False)


@pytest.mark.parametrize(
    "key", ["properties", "required", "anyOf", "oneOf", "allOf", "$defs", "items", "enum", "$ref", "format"]
)
@pytest.mark.parametrize("value", [True, 5, "x", None, [], [1], {}])
def test_nonsense_in_a_schema_is_no_accident(key: str, value: object) -> None:
    inner = {"type": "object", "properties": {"a": {"type": "array", key: value}}, key: value}
    for fit in TARGETS.values():
        fit(inner)
        fit({key: value})


leaves = st.sampled_from([
    {"type": "string"}, {"type": "string", "format": "uri"}, {"type": "string", "format": "date-time"},
    {"type": "integer", "minimum": 1},
    {"type": ["string", "null"]}, {"enum": ["a", None]}, {"enum": [1, 2], "type": "integer"}, {"const": 3}, {"const": "x"},
    {"$ref": "#/$defs/d"}, {"$ref": "#/definitions/e", "description": "x"}, {}, {"type": "boolean", "default": True},
])  # fmt: skip
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(
            lambda properties, required, other: {
                "type": "object",
                "properties": properties,
                "required": [name for name in required if name in properties],
                "additionalProperties": other,
            },
            st.dictionaries(st.sampled_from(["a", "format", "default", "c"]), inner, max_size=3),
            st.lists(st.sampled_from(["a", "c"]), unique=True),
            st.one_of(st.booleans(), inner),
        ),
        inner.map(lambda items: {"type": "array", "items": items, "uniqueItems": True}),
        st.sampled_from(["anyOf", "oneOf", "allOf"]).flatmap(
            lambda key: st.lists(inner, min_size=1, max_size=3).map(lambda branches: {key: branches, "title": "t"})
        ),
        inner.map(lambda child: {"not": child, "description": "d"}),
    ),
    max_leaves=8,
)
roots = st.builds(
    lambda properties, defs: {
        "type": "object",
        "properties": properties,
        "$defs": {"d": defs},
        "definitions": {"e": {"type": "null"}},
    },
    st.dictionaries(st.sampled_from(["a", "b"]), schemas, max_size=2),
    schemas,
)

RECURSIVE: Schema = {
    "type": "object",
    "properties": {},
    "$defs": {
        "d": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {},
                "required": [],
                "additionalProperties": {"allOf": [{"type": "string"}, {"$ref": "#/$defs/d"}], "title": "t"},
            },
            "uniqueItems": True,
        }
    },
    "definitions": {"e": {"type": "null"}},
}

TARGETS: dict[str, Callable[[Schema], Schema]] = {
    "openai": lambda schema: for_openai(schema, strict=False, drops=("format:uri", "uniqueItems")),
    "openai_strict": lambda schema: for_openai(schema, strict=True),
    "anthropic": lambda schema: for_anthropic(schema, strict=False),
    "anthropic_strict": lambda schema: for_anthropic(schema, strict=True),
    "gemini_json": lambda schema: for_gemini(schema, json_schema=True),
    "gemini_openapi": lambda schema: for_gemini(schema, json_schema=False),
}


@pytest.mark.parametrize("target", ["openai_strict", "gemini_json", "gemini_openapi"])
def test_an_all_of_that_leads_back_to_itself(target: str) -> None:
    """It is written out twice, then it stays a reference, or the mention of one where the target has none."""
    more: Schema = {"allOf": [{"$ref": "#/$defs/node"}, {"properties": {"size": {"type": "integer"}}, "required": ["size"]}]}
    node: Schema = {"type": "object", "properties": {"name": {"type": "string"}, "next": more}, "required": ["name", "next"]}
    losses: list[Loss] = []
    tool: Schema = {"type": "object", "properties": {"first": more}, "required": ["first"], "$defs": {"node": node}}
    if target == "openai_strict":
        fitted = for_openai(tool, strict=True, losses=losses)
    else:
        fitted = for_gemini(tool, json_schema=target == "gemini_json", losses=losses)
    first = fitted["properties"]["first"]
    following = first["properties"]["next"]
    assert {"name", "next", "size"} == first["properties"].keys() == following["properties"].keys()
    last = following["properties"]["next"]
    assert "properties" not in last
    assert "#/$defs/node" in json.dumps(last)
    assert any("leads back" in loss.reason for loss in losses)


def test_what_all_of_has_merged_may_be_referred_to_again() -> None:
    pet: Schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    friend: Schema = {"allOf": [{"$ref": "#/$defs/pet"}, {"description": "of the dog"}]}
    own: Schema = {"properties": {"friend": friend, "enemy": {"$ref": "#/$defs/pet"}}}
    tool: Schema = {
        "type": "object",
        "properties": {"dog": {"allOf": [{"$ref": "#/$defs/pet"}, own]}},
        "$defs": {"pet": pet},
    }
    dog = for_gemini(tool, json_schema=False)["properties"]["dog"]["properties"]
    assert dog["friend"] == {**pet, "description": "of the dog"}
    assert dog["enemy"] == pet


@pytest.mark.parametrize("target", TARGETS)
@examples(60)
@given(schema=st.one_of(schemas, roots))
@example(schema=RECURSIVE)
@example(schema={**RECURSIVE, "properties": {"a": {"$ref": "#/$defs/d"}}})
def test_idempotent_and_never_mutating(target: str, schema: Schema) -> None:
    before = copy.deepcopy(schema)
    once = TARGETS[target](schema)
    assert schema == before
    kept = copy.deepcopy(once)
    assert TARGETS[target](once) == once == kept
