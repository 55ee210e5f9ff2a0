"""Tool schemas made to cost as much as they can, by family, and arguments that make each of them work.

Every family is a function of one number: the larger it is, the worse the schema. Nothing is drawn at random, so a schema is
named by its family and its number, here, in the tests and in the measurements alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Schema = dict[str, Any]
Family = Callable[[int], tuple[Schema, dict[str, Any]]]

SIZES = range(1, 35)
"""The numbers of each family."""
FAMILIES: dict[str, Family] = {}


class Hostile(NamedTuple):
    """One schema, and arguments for a tool that declares it."""

    name: str
    schema: Schema
    arguments: dict[str, Any]


def hostile_schemas() -> Iterator[Hostile]:
    """All of them."""
    for name in FAMILIES:
        for number in SIZES:
            yield hostile_schema(name, number)


def hostile_schema(family: str, number: int) -> Hostile:
    """One of a family."""
    return Hostile(f"{family}-{number}", *FAMILIES[family](number))


def _family(function: Family) -> Family:
    FAMILIES[function.__name__] = function
    return function


def _chain(levels: int, link: Callable[[Schema], Schema], last: Schema, word: str = "$defs") -> Schema:
    """Definitions of which each names the next, and an object whose `city` is the first."""
    definitions = {f"d{level}": link({"$ref": f"#/{word}/d{level + 1}"}) for level in range(levels)}
    definitions[f"d{levels}"] = last
    return {word: definitions, "type": "object", "properties": {"city": {"$ref": f"#/{word}/d0"}}}


def _nested(depth: int, inner: Any, key: str = "a") -> dict[str, Any]:
    value: Any = inner
    for _ in range(depth):
        value = {key: value}
    return {"a": value}


# -- references that multiply -----------------------------------------------------------------------------------------------


@_family
def any_of_references(number: int) -> tuple[Schema, dict[str, Any]]:
    return _chain(number, lambda next_one: {"anyOf": [next_one, next_one]}, {"type": "integer"}), {"city": "Paris"}


@_family
def all_of_references(number: int) -> tuple[Schema, dict[str, Any]]:
    return _chain(number, lambda next_one: {"allOf": [next_one, next_one]}, {"type": "string"}), {"city": "Paris"}


@_family
def one_of_references(number: int) -> tuple[Schema, dict[str, Any]]:
    link = _chain(number, lambda next_one: {"oneOf": [next_one, {"not": next_one}]}, {"type": "integer"})
    return link, {"city": "Paris"}


@_family
def if_then_else(number: int) -> tuple[Schema, dict[str, Any]]:
    link = _chain(number, lambda one: {"if": one, "then": one, "else": one}, {"type": "integer"})
    return link, {"city": "Paris"}


@_family
def dependent_schemas(number: int) -> tuple[Schema, dict[str, Any]]:
    schema = _chain(number, lambda one: {"dependentSchemas": {"x": one, "y": one}}, {"required": ["z"]})
    return schema, {"city": {"x": 1, "y": 1, "z": 1}}


@_family
def old_dependencies(number: int) -> tuple[Schema, dict[str, Any]]:
    schema = _chain(number, lambda one: {"dependencies": {"x": one, "y": one}}, {"required": ["z"]}, "definitions")
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}, {"city": {"x": 1, "y": 1, "z": 1}}


@_family
def wide_any_of(number: int) -> tuple[Schema, dict[str, Any]]:
    """Fewer levels, more branches."""
    schema = _chain(1 + number // 8, lambda one: {"anyOf": [one] * (2 * number)}, {"type": "integer"})
    return schema, {"city": "Paris"}


@_family
def all_of_squares(number: int) -> tuple[Schema, dict[str, Any]]:
    """Each level of the value is looked at twice as often as the one above it."""
    below = {"properties": {"a": {"$ref": "#/$defs/a"}}}
    return {"$defs": {"a": {"allOf": [below, below]}}, "type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}, _nested(
        number, 1
    )


@_family
def recursive_items(number: int) -> tuple[Schema, dict[str, Any]]:
    value: Any = 1
    for _ in range(number):
        value = [value, value if isinstance(value, int) else 1]
    tree = {"anyOf": [{"type": "string"}, {"items": {"$ref": "#/$defs/t"}}, {"items": {"$ref": "#/$defs/t"}}]}
    return {"$defs": {"t": tree}, "type": "object", "properties": {"a": {"$ref": "#/$defs/t"}}}, {"a": value}


@_family
def reference_cycles(number: int) -> tuple[Schema, dict[str, Any]]:
    definitions = {f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{(level + 1) % number}"}]} for level in range(number)}
    return {"$defs": definitions, "type": "object", "properties": {"city": {"$ref": "#/$defs/d0"}}}, {"city": "Paris"}


@_family
def root_references(number: int) -> tuple[Schema, dict[str, Any]]:
    """The root is a chain of references, and refers to itself further down."""
    schema = _chain(number * 20, lambda one: one, {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/$defs/d1"}}})
    return {**schema, "$ref": "#/$defs/d0"}, _nested(number, "x")


@_family
def dynamic_references(number: int) -> tuple[Schema, dict[str, Any]]:
    definitions: Schema = {
        f"d{level}": {"$dynamicAnchor": f"a{level}", "anyOf": [{"$dynamicRef": f"#a{level + 1}"}] * 2}
        for level in range(number)
    }
    definitions[f"d{number}"] = {"$dynamicAnchor": f"a{number}", "type": "integer"}
    schema = {"$defs": definitions, "type": "object", "properties": {"city": {"$dynamicRef": "#a0"}}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, {"city": "Paris"}


@_family
def unevaluated_properties(number: int) -> tuple[Schema, dict[str, Any]]:
    schema: Schema = {"properties": {"x": {"type": "string"}}}
    for _ in range(number):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return {"type": "object", **schema}, {"x": "1", "y": 2}


@_family
def unevaluated_references(number: int) -> tuple[Schema, dict[str, Any]]:
    schema = _chain(number, lambda one: {"anyOf": [one, one]}, {"properties": {"x": {}}})
    return {**schema, "$ref": "#/$defs/d0", "unevaluatedProperties": {"unevaluatedItems": False}}, {"x": [1], "y": [2]}


# -- size and depth ---------------------------------------------------------------------------------------------------------


@_family
def deep_properties(number: int) -> tuple[Schema, dict[str, Any]]:
    schema: Schema = {"type": "string"}
    for _ in range(number):
        schema = {"type": "object", "properties": {"a": schema}}
    return {"type": "object", "properties": {"a": schema}}, _nested(number, 1)


@_family
def deep_not(number: int) -> tuple[Schema, dict[str, Any]]:
    schema: Schema = {"type": "string"}
    for _ in range(2 * number):
        schema = {"not": schema}
    return {"type": "object", "properties": {"a": schema}}, {"a": 1}


@_family
def deep_all_of(number: int) -> tuple[Schema, dict[str, Any]]:
    schema: Schema = {"properties": {"b": {"type": "string"}}}
    for level in range(number):
        schema = {"allOf": [schema, {"properties": {f"p{level}": {"type": "string"}}, "required": [f"p{level}"]}]}
    return {"type": "object", **schema}, {"b": 1}


@_family
def many_properties(number: int) -> tuple[Schema, dict[str, Any]]:
    names = [f"p{index}" for index in range(number * 50)]
    properties = {name: {"type": ["string", "null"], "description": "one of many"} for name in names}
    schema = {"type": "object", "properties": properties, "required": names, "additionalProperties": False}
    return schema, dict.fromkeys(names, "x")


@_family
def wide_enums(number: int) -> tuple[Schema, dict[str, Any]]:
    values = [f"value-{index}" for index in range(number * 400)]
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": values}}}}
    return schema, {"a": ["value-0", "none"] * number}


@_family
def deep_constants(number: int) -> tuple[Schema, dict[str, Any]]:
    value: Any = ["x" * 100] * number
    for _ in range(20):
        value = {"k": value, "l": [1, 2, 3]}
    schema = {"type": "object", "properties": {"a": {"const": value, "default": value, "examples": [value]}}}
    return schema, {"a": value}


@_family
def unique_items(number: int) -> tuple[Schema, dict[str, Any]]:
    schema = {"$defs": {"u": {"uniqueItems": True, "items": {"$ref": "#/$defs/u"}}}}
    value: Any = [str(index) * 10 for index in range(number * 20)]
    for level in range(10):
        value = [value, [level]]
    return {**schema, "type": "object", "properties": {"a": {"$ref": "#/$defs/u"}}}, {"a": value}


@_family
def long_names(number: int) -> tuple[Schema, dict[str, Any]]:
    """Paths made of names grow with every level."""
    name = "n" * (200 * number)
    schema: Schema = {"type": "string", "minimum": 1, "pattern": "a"}
    for _ in range(20):
        schema = {"type": "object", "properties": {name: schema, "b": {"type": "string", "const": 1}}}
    return schema, {name: {"b": 1}}


# -- text -------------------------------------------------------------------------------------------------------------------

_CATASTROPHES = (
    "(a+)+$", "(a|aa)*$", "(a*)*b", "([a-z]+)*!", "(.*a){12}", "(x+x+)+y", "(a{1,30}){1,30}b", "(?=(a+))a*b", r"(a+)\1+$",
    "(?:a?){40}a{40}", "^(([a-z])+.)+[A-Z]([a-z])+$", r"(\w+\s?)*$", r"\p{L}{1,200}$", "(((a{1,50}){1,50}){1,50})$",
    "[a-z]{1,9999}!",
)  # fmt: skip


@_family
def catastrophic_patterns(number: int) -> tuple[Schema, dict[str, Any]]:
    pattern = _CATASTROPHES[number % len(_CATASTROPHES)]
    properties = {"a": {"type": "string", "pattern": pattern}}
    return {"type": "object", "properties": properties}, {"a": "a" * (number * 600) + "!"}


@_family
def huge_patterns(number: int) -> tuple[Schema, dict[str, Any]]:
    pattern = "|".join(f"word{index}[a-z]{{1,{number}}}" for index in range(number * 20))
    return {"type": "object", "properties": {"a": {"pattern": pattern}}}, {"a": "word" * 1000}


@_family
def pattern_properties(number: int) -> tuple[Schema, dict[str, Any]]:
    patterns = {f"^k{index}[a-z]{{1,20}}.*$": {"type": "string"} for index in range(number * 4)}
    arguments = {f"k{index}{'z' * 50}": "x" for index in range(number * 10)}
    return {"type": "object", "patternProperties": patterns, "propertyNames": {"pattern": "^k.*z$"}}, arguments


@_family
def described_references(number: int) -> tuple[Schema, dict[str, Any]]:
    """A long description that is written out wherever somebody refers to it."""
    described = {"type": "string", "description": "d" * (2000 * number)}
    properties = {f"p{index}": {"$ref": "#/$defs/d"} for index in range(number * 20)}
    return {"$defs": {"d": described}, "type": "object", "properties": properties}, {"p0": "x"}


# -- what conversions write out ---------------------------------------------------------------------------------------------


@_family
def type_lists(number: int) -> tuple[Schema, dict[str, Any]]:
    schema: Schema = {"type": ["string", "number"]}
    for _ in range(min(number, 18)):
        schema = {"type": ["object", "null", "object", "object"], "properties": {"a": schema}, "items": {"type": "string"}}
    return {"type": "object", "properties": {"a": schema}}, _nested(min(number, 18), 1)


@_family
def inlined_properties(number: int) -> tuple[Schema, dict[str, Any]]:
    """Each definition is merged into two properties of the one before it."""

    def link(one: Schema) -> Schema:
        merged = {"allOf": [one, {"title": "t"}], "minProperties": 1}
        return {"type": "object", "properties": {"x": merged, "y": merged}}

    return _chain(number, link, {"type": "object", "properties": {"z": {"type": "string"}}}), {"city": {"x": {"y": 1}}}


@_family
def inlined_items(number: int) -> tuple[Schema, dict[str, Any]]:
    def link(one: Schema) -> Schema:
        return {"type": "array", "items": {"anyOf": [one, {"type": "null"}, one]}}

    return _chain(number, link, {"type": "string"}, "definitions"), {"city": [["x"]]}


_ODD: tuple[Any, ...] = (5, 1.5, "text", True, None, [], [1], ["x"], [["x"]], [{}], {}, {"x": 1}, {"x": ["y"]}, [None, True])
_KEYWORDS = (
    "type", "properties", "required", "enum", "const", "items", "prefixItems", "allOf", "anyOf", "oneOf", "not", "if", "$ref",
    "$defs", "definitions", "additionalProperties", "patternProperties", "propertyNames", "pattern", "format", "description",
    "nullable", "default", "minItems", "title", "uniqueItems", "dependentSchemas", "dependencies", "$id", "$schema", "$anchor",
)  # fmt: skip


@_family
def odd_values(number: int) -> tuple[Schema, dict[str, Any]]:
    """Keywords that hold what no schema allows, at the root and below it."""
    inner = {key: _ODD[(index * number + number) % len(_ODD)] for index, key in enumerate(_KEYWORDS)}
    if number % 3 == 0:
        return {**inner, "type": "object"}, {"a": 1}
    if number % 3 == 1:
        return {"type": "object", "properties": {"a": inner, "b": {"anyOf": [inner, {"$ref": "#/properties/a"}]}}}, {"a": "1"}
    return {"type": "object", "allOf": [inner, {"properties": {"a": inner}}], "required": _ODD[number % len(_ODD)]}, {"a": [1]}
