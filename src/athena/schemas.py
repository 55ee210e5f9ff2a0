"""JSON Schemas of tools, made to fit what each target takes.

Only schema positions are touched: values inside `enum`, `const`, `default` and `examples`, and properties that happen to be
named like a keyword, stay what they are. Nothing is mutated, a second pass changes nothing, and every rewrite that
loses a constraint is written to `losses`; where the target allows text, the constraint moves into the `description`, which
is what the vendors' own SDKs do. A part of a schema that needs no change comes out as the same object.

Schemas come from strangers: every walk counts the keywords it touches and the bytes that written-out references add, and ends
with an error that names the schema when there are too many. Paths in messages are cut, because each level would repeat them.

Wire facts: docs/reference/wire-facts.md#tool-schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from operator import contains, eq, methodcaller
from typing import Any

import msgspec

from athena.errors import InvalidRequest
from athena.model.request import Loss
from athena.wire.json_pointer import local_target

Schema = dict[str, Any]

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "additionalItems", "contentSchema",
)  # fmt: skip
_DEPTH = 100
_GROWTH = 20_000
"""Keywords and values that written-out references may add to all schemas of one request."""
_BYTES_PER_STEP = 128
"""A reference that is written out counts as its target's text."""
_WRITTEN_OUT = 2
"""How often the same reference of an `allOf` is written out inside of itself. Once more than a recursive schema needs: another
branch may refer to the same schema without leading back to it."""
_LOSSES = 50
"""Told about one schema."""
_PATH = 120
_EMPTY: Schema = {"type": "object", "properties": {}}

_STRICT_REFUSED = (
    "not", "if", "then", "else", "patternProperties", "default", "dependentSchemas", "dependentRequired", "dependencies",
    "unevaluatedItems", "unevaluatedProperties", "propertyNames", "contains", "minContains", "maxContains", "minProperties",
    "maxProperties", "uniqueItems", "additionalItems", "prefixItems", "examples", "$schema", "$id", "$anchor", "$comment",
)  # fmt: skip
_ANTHROPIC_STRICT = frozenset({
    "$ref", "$defs", "type", "anyOf", "allOf", "enum", "const", "description", "title", "properties", "additionalProperties",
    "required", "items",
})  # fmt: skip
_ANTHROPIC_FORMATS = frozenset({
    "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"
})  # fmt: skip
_GEMINI_JSON = frozenset({
    "$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems",
    "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering",
})  # fmt: skip
_GEMINI_OPENAPI = frozenset({
    "type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems", "minLength", "maxLength",
    "pattern", "minimum", "maximum", "minProperties", "maxProperties", "anyOf", "properties", "required", "propertyOrdering",
    "default", "example",
})  # fmt: skip
_OPENAPI_FORMATS = {
    "string": ("enum", "date-time"), "integer": ("int32", "int64"), "number": ("float", "double")
}  # fmt: skip
_SILENT = frozenset({"$schema", "$comment"})
"""Say nothing about valid values: not worth a word to the model or to the operator."""


class Growth:
    """How much the schemas of one request may still grow, all together, by references that are written out."""

    __slots__ = ("left",)

    def __init__(self, steps: int = _GROWTH) -> None:
        self.left = steps


class _Walk:
    """One pass over one schema: where it is, what it had to give up, and how much it may still do."""

    __slots__ = ("_growth", "_left", "_lost", "_sizes", "losses", "root")

    def __init__(self, root: Schema, losses: list[Loss] | None, growth: Growth | None) -> None:
        self.root = root
        self.losses = losses
        self._growth = growth or Growth()
        self._left: int | None = None
        """Steps for the schema as it stands: as many as it has bytes are enough for every walk without references. Most schemas
        are not walked at all."""
        self._lost = 0
        self._sizes: dict[str, int] = {}

    def enter(self, path: str, depth: int, keys: int) -> int:
        """Count a schema with this many keys; returns the depth of those inside it."""
        if depth >= _DEPTH:
            raise InvalidRequest(f"{path}: schema is nested deeper than {_DEPTH} levels", path=path)
        self.count(path, 1 + keys)
        return depth + 1

    def count(self, path: str, steps: int) -> None:
        """References written out may multiply: a bound on what the schemas of one request may become."""
        left = (_length(self.root) if self._left is None else self._left) - steps
        self._left = max(0, left)
        if left < 0:
            self._growth.left += left
            if self._growth.left < 0:
                raise InvalidRequest(
                    f"{path}: schema becomes too large once its references are written out, which this upstream needs",
                    path=path,
                )

    def target(self, reference: object, path: str) -> Schema | None:
        """What a local `$ref` points at, counted as a copy of it."""
        found = local_target(self.root, reference) if isinstance(reference, str) else None
        if not isinstance(found, dict):
            return None
        assert isinstance(reference, str)
        size = self._sizes.get(reference)
        if size is None:
            size = self._sizes[reference] = _length(found)
        self.count(path, 1 + size // _BYTES_PER_STEP)
        return found

    def lose(self, path: str, reason: str) -> None:
        self._lost += 1
        if self.losses is not None and self._lost <= _LOSSES:
            last = self._lost == _LOSSES
            self.losses.append(Loss(path, f"{reason}; more of this schema is not listed" if last else reason, "repaired"))


def _length(schema: Schema) -> int:
    """Bytes of its JSON text, or many for what has none."""
    try:
        return len(msgspec.json.encode(schema))
    except (RecursionError, TypeError, UnicodeEncodeError):
        return 1 << 16


def _at(path: str, *steps: object) -> str:
    """The path of something inside a schema. Names are the client's and may be of any length: long paths lose their middle."""
    for step in steps:
        shown = str(step)
        path += f".{shown}" if len(shown) <= _PATH else f".{shown[:20]}..."
    return path if len(path) <= _PATH else f"{path[:30]}...{path[3 + 30 - _PATH :]}"


def for_openai(
    schema: Schema | None,
    *,
    strict: bool,
    drops: tuple[str, ...] = (),
    losses: list[Loss] | None = None,
    path: str = "parameters",
    growth: Growth | None = None,
) -> Schema:
    """Tool parameters for OpenAI-compatible servers.

    `drops` are keywords to remove, `keyword` or `keyword:value` (`format:uri`). Without `strict` only the root is touched.
    """
    if schema is None:
        return dict(_EMPTY)
    mentions = _mentions(schema, drops)
    if not mentions and not strict and schema.get("type") == "object":
        return schema
    walk = _Walk(schema, losses, growth)
    result = _dropped(walk, schema, drops, path, 0) if mentions else schema
    if strict:
        result = _openai_strict(_Walk(result, losses, growth), _object_root(walk, result, path, flatten=True), path, (), 0)
    return _object_root(walk, result, path, flatten=strict)


def kept_by_openai(schemas: Sequence[Schema | None], drops: tuple[str, ...] = ()) -> list[bool]:
    """Which of these come out of `for_openai` as they are, without `strict`. All are looked at together."""
    given = [schema or {} for schema in schemas] if None in schemas else schemas
    kept = list(map(eq, map(_type_of, given), repeat("object")))
    if _any_mentions(schemas, drops):
        return [keeps and not _mentions(schema or {}, drops) for keeps, schema in zip(kept, schemas, strict=True)]
    return kept


_type_of = methodcaller("get", "type")


def for_anthropic(
    schema: Schema | None,
    *,
    strict: bool,
    losses: list[Loss] | None = None,
    path: str = "input_schema",
    growth: Growth | None = None,
) -> Schema:
    """A tool's `input_schema`, or with `strict` the subset that strict tools and structured outputs take."""
    if schema is None:
        return dict(_EMPTY)
    walk = _Walk(schema, losses, growth)
    root = _object_root(walk, schema, path, flatten=False)
    return _anthropic_strict(walk, root, path, 0) if strict else root


def for_anthropic_output(
    schema: Schema, *, losses: list[Loss] | None = None, path: str = "schema", growth: Growth | None = None
) -> Schema:
    """The schema of a structured answer, which need not be an object."""
    return _anthropic_strict(_Walk(schema, losses, growth), schema, path, 0)


def for_gemini(
    schema: Schema | None,
    *,
    json_schema: bool,
    losses: list[Loss] | None = None,
    path: str = "parameters",
    growth: Growth | None = None,
) -> Schema:
    """A function's parameters: `parametersJsonSchema`, or the OpenAPI subset of `parameters`.

    The OpenAPI form of a schema without properties is empty: Gemini refuses an object without any, so leave the field out.
    """
    if schema is None:
        return {}
    walk = _Walk(schema, losses, growth)
    if json_schema:
        return _gemini_json(walk, _with_defs(walk, schema, path), path, (), 0)
    result = _gemini_openapi(walk, schema, path, (), (), 0)
    return {} if result.get("type", "object") == "object" and not result.get("properties") and "anyOf" not in result else result


# -- walking ---------------------------------------------------------------------------------------------------------------


def _children(schema: Schema, path: str, change: Callable[[Any, str], Any]) -> Schema:
    """The schema with every direct subschema changed; the same object when none did."""
    fresh: Schema | None = None
    for key in schema:
        value = schema[key]
        if key in _MAPS and isinstance(value, dict):
            changed: Any = {name: change(child, _at(path, key, name)) for name, child in value.items()}
            same = all(changed[name] is value[name] for name in value)
        elif (key in _LISTS or key == "items") and isinstance(value, list):
            changed = [change(child, _at(path, f"{key}[{index}]")) for index, child in enumerate(value)]
            same = all(new is old for new, old in zip(changed, value, strict=True))
        elif key in _SINGLES and isinstance(value, dict):
            changed = change(value, _at(path, key))
            same = changed is value
        else:
            continue
        if not same:
            fresh = dict(schema) if fresh is None else fresh
            fresh[key] = changed
    return schema if fresh is None else fresh


def _mentions(schema: Schema, drops: tuple[str, ...]) -> bool:
    """May any of these keywords stand in the schema, or is it large? Most often neither, and the walk through it is dear."""
    if not drops:
        return False
    try:
        written = msgspec.json.encode(schema)
    except RecursionError:
        return True
    if written.count(b"{") > _DEPTH:
        return True
    return any(map(written.__contains__, _words(drops)))


def _any_mentions(schemas: Sequence[Schema | None], drops: tuple[str, ...]) -> bool:
    """May it be said of any of these that it mentions one?"""
    if not drops:
        return False
    try:
        written = list(map(msgspec.json.encode, schemas))
    except RecursionError:
        return True
    if max(map(_brackets_of, written), default=0) > _DEPTH:
        return True
    return any(any(map(contains, written, repeat(word))) for word in _words(drops))


_brackets_of = methodcaller("count", b"{")


@lru_cache(maxsize=256)
def _words(drops: tuple[str, ...]) -> tuple[bytes, ...]:
    """How these keywords, or the values that are told apart, stand in JSON."""
    return tuple(f'"{drop.rpartition(":")[2]}"'.encode() for drop in drops)


def _dropped(walk: _Walk, schema: Schema, drops: tuple[str, ...], path: str, depth: int) -> Schema:
    depth = walk.enter(path, depth, len(schema))
    gone = {key for key, value in schema.items() if key in drops or (isinstance(value, str) and f"{key}:{value}" in drops)}
    if gone:
        for key in schema:
            if key in gone:
                walk.lose(_at(path, key), "keyword the upstream refuses")
        schema = {key: value for key, value in schema.items() if key not in gone}
    return _children(
        schema, path, lambda child, at: _dropped(walk, child, drops, at, depth) if isinstance(child, dict) else child
    )


def _object_root(walk: _Walk, schema: Schema, path: str, *, flatten: bool) -> Schema:
    """The schema with `type: object` at its root, which every tool API demands."""
    if flatten:
        schema = _merged_root(walk, schema, path)
    kind = schema.get("type")
    if kind == "object":
        return schema
    if kind is not None and not (isinstance(kind, list) and "object" in kind):
        walk.lose(path, f"root type {kind[:40]!r} is not an object" if isinstance(kind, str) else "the root is not an object")
        return dict(_EMPTY)
    if not schema:
        return dict(_EMPTY)
    return {"type": "object", **{key: value for key, value in schema.items() if key != "type"}}


def _merged_root(walk: _Walk, schema: Schema, path: str) -> Schema:
    """A root made of alternatives or of a reference, as one object with the properties of all."""
    seen: set[str] = set()
    while isinstance(schema.get("$ref"), str) and schema["$ref"] not in seen:
        seen.add(schema["$ref"])
        target = walk.target(schema["$ref"], path)
        if target is None:
            break
        walk.count(path, len(schema))
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    for key in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(key)
        if not isinstance(branches, list):
            continue
        objects = [branch for branch in branches if isinstance(branch, dict)]
        if key != "allOf":
            walk.lose(_at(path, key), "alternatives at the root are merged into one object")
        required = [set(_names(branch.get("required"))) for branch in objects]
        shared = set.union(*required) if key == "allOf" and required else set.intersection(*required) if required else set()
        merged = {name: value for name, value in schema.items() if name != key}
        properties = dict(_mapping(merged.get("properties")))
        for branch in objects:
            for name, value in _mapping(branch.get("properties")).items():
                properties.setdefault(name, value)
        merged["properties"] = properties
        wanted = set(_names(merged.get("required"))) | shared
        if wanted:
            merged["required"] = [name for name in properties if name in wanted]
        schema = merged
    return schema


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _mapping(value: object) -> dict[str, Any]:
    """A client's schema may hold anything anywhere: what is not a mapping counts as an empty one."""
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _one_of_as_any_of(schema: Schema) -> Schema:
    if not isinstance(schema.get("oneOf"), list):
        return schema
    fresh = {key: value for key, value in schema.items() if key != "oneOf"}
    fresh["anyOf"] = [*_sequence(fresh.get("anyOf")), *schema["oneOf"]]
    return fresh


def _all_of_merged(walk: _Walk, schema: Schema, path: str, written: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
    """The node and the branches of its `allOf` as one node; a lone reference stays a reference, and so does one that leads back
    to itself. `written`: the references that are written out around the node; returns also those around the schemas in it."""
    branches = schema.get("allOf")
    if not isinstance(branches, list):
        return schema, written
    rest = {key: value for key, value in schema.items() if key != "allOf"}
    merged: Schema = dict(rest)
    properties: dict[str, Any] = {}
    more: list[str] = []
    walk.count(path, len(branches))
    for branch in branches:
        if not isinstance(branch, dict):
            continue
        if "$ref" in branch and (len(branches) > 1 or rest.keys() - {"description", "title", "default"}):
            reference = branch["$ref"]
            if isinstance(reference, str) and _leads_back(reference, written):
                walk.lose(path, "a reference in allOf leads back to itself; what stands beside it is left out")
            else:
                target = walk.target(reference, path)
                if target is not None:
                    branch = target
                    more.append(reference)
            if "allOf" in branch:
                branch = {key: value for key, value in branch.items() if key != "allOf"}
                walk.lose(path, "nested allOf behind a reference")
        branch, around = _all_of_merged(walk, branch, path, written)
        more += around[len(written) :]
        walk.count(path, len(branch))
        for key, value in branch.items():
            if key == "properties" and isinstance(value, dict):
                walk.count(path, len(value))
                properties.update((name, child) for name, child in value.items() if name not in properties)
            elif key == "required":
                merged["required"] = [*_names(merged.get("required")), *_names(value)]
                walk.count(path, len(merged["required"]))
            elif key not in merged:
                merged[key] = value
            elif merged[key] != value and key not in ("description", "title"):
                walk.lose(_at(path, key), "allOf branches disagree; the first is kept")
    if isinstance(merged.get("required"), list):
        merged["required"] = list(dict.fromkeys(_names(merged["required"])))
    if properties:
        merged["properties"] = {**properties, **_mapping(merged.get("properties"))}
    return merged, (*written, *more)


def _leads_back(reference: str, written: tuple[str, ...]) -> bool:
    return len(written) > _DEPTH or written.count(reference) >= _WRITTEN_OUT


def _into_description(walk: _Walk, schema: Schema, gone: Iterable[str], path: str) -> Schema:
    """The schema without those keywords; their values move into the description."""
    names = dict.fromkeys(gone)
    if not names:
        return schema
    kept = {key: value for key, value in schema.items() if key not in names}
    told = [key for key in names if key not in _SILENT]
    if told:
        text = ", ".join(f"{key}: {_shown(schema[key])}" for key in told)
        before = kept.get("description")
        kept["description"] = f"{before}\n\n{{{text}}}" if isinstance(before, str) and before else f"{{{text}}}"
        for key in told:
            walk.lose(_at(path, key), "keyword moved into the description")
    return kept


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8", "replace")


# -- OpenAI strict ---------------------------------------------------------------------------------------------------------


def _openai_strict(walk: _Walk, schema: Schema, path: str, written: tuple[str, ...], depth: int) -> Schema:
    depth = walk.enter(path, depth, len(schema))
    schema, written = _all_of_merged(walk, schema, path, written)
    schema = _one_of_as_any_of(schema)
    gone = [key for key in schema if key in _STRICT_REFUSED]
    if gone:
        for key in gone:
            if key not in _SILENT and schema[key] is not None:
                walk.lose(_at(path, key), "keyword outside the strict subset")
        schema = {key: value for key, value in schema.items() if key not in _STRICT_REFUSED}
    if "$ref" in schema and len(schema) > 1:
        # A reference with neighbours is refused; only root-level definitions may stand beside it.
        schema = {key: value for key, value in schema.items() if key in ("$ref", "$defs", "definitions")}
    if schema.get("type") == "object" or isinstance(schema.get("properties"), dict):
        schema = _strict_object(walk, schema, path)
    return _children(
        schema, path, lambda child, at: _openai_strict(walk, child, at, written, depth) if isinstance(child, dict) else child
    )


def _strict_object(walk: _Walk, schema: Schema, path: str) -> Schema:
    properties = _mapping(schema.get("properties"))
    required = dict.fromkeys(_names(schema.get("required")))
    walk.count(path, len(properties) + len(required))
    optional = [name for name in properties if name not in required]
    if schema.get("additionalProperties") not in (None, False):
        walk.lose(_at(path, "additionalProperties"), "strict objects take no other properties")
    if not optional and schema.get("additionalProperties") is False and len(required) == len(properties):
        return schema
    fresh = {**schema, "properties": dict(properties), "additionalProperties": False, "required": list(properties)}
    for name in optional:
        walk.lose(_at(path, "properties", name), "optional property made nullable and required")
        if isinstance(properties[name], dict):
            fresh["properties"][name] = _nullable(properties[name])
    return fresh


def _nullable(schema: Schema) -> Schema:
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return schema
    if isinstance(kind, str | list) and "const" not in schema and "anyOf" not in schema and "oneOf" not in schema:
        fresh = {**schema, "type": [*kind, "null"] if isinstance(kind, list) else [kind, "null"]}
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            fresh["enum"] = [*schema["enum"], None]
        return fresh
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        if isinstance(branches, list) and kind is None:
            if any(isinstance(branch, dict) and branch.get("type") == "null" for branch in branches):
                return schema
            return {**schema, key: [*branches, {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


# -- Anthropic strict ------------------------------------------------------------------------------------------------------


def _anthropic_strict(walk: _Walk, schema: Schema, path: str, depth: int) -> Schema:
    depth = walk.enter(path, depth, len(schema))
    if isinstance(schema.get("definitions"), dict):
        schema = _with_defs(walk, schema, path)
    if "$ref" in schema:
        schema = {key: value for key, value in schema.items() if key in ("$ref", "$defs")}
    else:
        schema = _one_of_as_any_of(schema)
        gone = [key for key in schema if key not in _ANTHROPIC_STRICT and not _anthropic_takes(schema, key)]
        is_object = schema.get("type") == "object"
        if is_object and schema.get("additionalProperties") is not False:
            if schema.get("additionalProperties") is not None:
                walk.lose(_at(path, "additionalProperties"), "strict objects take no other properties")
            schema = {**schema, "additionalProperties": False}
        schema = _into_description(walk, schema, gone, path)
        if is_object and "properties" not in schema:
            schema = {**schema, "properties": {}}
    return _children(
        schema, path, lambda child, at: _anthropic_strict(walk, child, at, depth) if isinstance(child, dict) else child
    )


def _anthropic_takes(schema: Schema, key: str) -> bool:
    if key == "format":
        return schema["format"] in _ANTHROPIC_FORMATS if isinstance(schema["format"], str) else False
    return key == "minItems" and schema["minItems"] in (0, 1)


# -- Gemini ----------------------------------------------------------------------------------------------------------------


def _with_defs(walk: _Walk, schema: Schema, path: str) -> Schema:
    """`definitions`, the old name of `$defs`, renamed together with the references into it."""
    if not isinstance(schema.get("definitions"), dict):
        return schema
    fresh = {key: value for key, value in schema.items() if key != "definitions"}
    fresh["$defs"] = {**schema["definitions"], **_mapping(schema.get("$defs"))}
    return _references_moved(walk, fresh, path, 0)


def _references_moved(walk: _Walk, schema: Schema, path: str, depth: int) -> Schema:
    depth = walk.enter(path, depth, len(schema))
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/definitions/"):
        schema = {**schema, "$ref": "#/$defs/" + reference.removeprefix("#/definitions/")}
    return _children(
        schema, path, lambda child, at: _references_moved(walk, child, at, depth) if isinstance(child, dict) else child
    )


def _gemini_json(walk: _Walk, schema: Schema, path: str, written: tuple[str, ...], depth: int) -> Schema:
    depth = walk.enter(path, depth, len(schema))
    schema, written = _all_of_merged(walk, schema, path, written)
    if "$ref" in schema:
        if any(not key.startswith("$") for key in schema):
            schema = {key: value for key, value in schema.items() if key.startswith("$")}
    elif "const" in schema and "enum" not in schema:
        schema = {("enum" if key == "const" else key): ([value] if key == "const" else value) for key, value in schema.items()}
    schema = _into_description(walk, schema, [key for key in schema if key not in _GEMINI_JSON], path)
    return _children(schema, path, lambda child, at: _gemini_json(walk, _as_dict(child), at, written, depth))


def _as_dict(schema: object) -> Schema:
    """A boolean schema as an object: `true` is the schema that takes everything, and Gemini knows no other."""
    return schema if isinstance(schema, dict) else {}


def _gemini_openapi(
    walk: _Walk, schema: Schema, path: str, inside: tuple[str, ...], written: tuple[str, ...], depth: int
) -> Schema:
    depth = walk.enter(path, depth, len(schema))
    schema, written = _all_of_merged(walk, schema, path, written)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        leads_back = reference in inside or _leads_back(reference, written)
        target = None if leads_back else walk.target(reference, path)
        if target is None:
            walk.lose(path, f"reference {reference[:_PATH]} cannot be written out")
            return {"type": "object", "description": f"see {reference[:_PATH]}"}
        siblings = {key: value for key, value in schema.items() if not key.startswith("$") and key != "definitions"}
        return _gemini_openapi(walk, {**target, **siblings}, path, (*inside, reference), written, depth)
    schema = _one_of_as_any_of(schema)
    if isinstance(schema.get("anyOf"), list):
        # Branches first: one that is null only behind a reference makes the node nullable too.
        done = [
            _gemini_openapi(walk, _as_dict(branch), _at(path, f"anyOf[{index}]"), inside, written, depth)
            for index, branch in enumerate(schema["anyOf"])
        ]
        schema = {**schema, "anyOf": done}
    schema = _openapi_type(schema)
    schema = _openapi_enum(walk, schema, path)
    quiet = ("$defs", "definitions", "additionalProperties", "$id", "$anchor")
    schema = {key: value for key, value in schema.items() if key not in quiet}
    gone = [key for key in schema if key not in _GEMINI_OPENAPI]
    kind = schema.get("type")
    if "format" in schema and schema["format"] not in _OPENAPI_FORMATS.get(str(kind), ()):
        gone.append("format")
    schema = _into_description(walk, schema, gone, path)
    if isinstance(schema.get("properties"), dict):
        names = [name for name in _names(schema.get("required")) if name in schema["properties"]]
        schema = {key: value for key, value in schema.items() if key != "required"}
        if names:
            schema["required"] = names
        if not schema["properties"]:
            del schema["properties"]
    if kind == "array" and not isinstance(schema.get("items"), dict):
        schema = {
            **schema,
            "items": {"type": "object"} if not isinstance(schema.get("items"), list) else _first(schema["items"]),
        }
    if "anyOf" in schema:
        lonely = ("anyOf", "description", "title", "nullable")
        lost = [key for key in schema if key not in lonely]
        for key in lost:
            walk.lose(_at(path, key), "nothing may stand beside anyOf")
        schema = {key: value for key, value in schema.items() if key in lonely}
    lower: Schema = {key: schema[key] for key in ("properties", "items") if key in schema}
    lower = _children(lower, path, lambda child, at: _gemini_openapi(walk, _as_dict(child), at, inside, written, depth))
    return {**schema, **lower}


def _first(items: list[Any]) -> Schema:
    return _as_dict(items[0]) if items else {"type": "object"}


def _openapi_type(schema: Schema) -> Schema:
    """`nullable` instead of a null type, one type instead of several."""
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [name for name in kind if name != "null"]
        fresh = {key: value for key, value in schema.items() if key != "type"}
        if "null" in kind:
            fresh["nullable"] = True
        if len(others) == 1:
            fresh["type"] = others[0]
        elif others and "anyOf" not in fresh:
            fresh["anyOf"] = [{"type": name} for name in others]
        schema = fresh
    branches = schema.get("anyOf")
    if isinstance(branches, list) and any(isinstance(branch, dict) and branch.get("type") == "null" for branch in branches):
        rest = [branch for branch in branches if not (isinstance(branch, dict) and branch.get("type") == "null")]
        fresh = {key: value for key, value in schema.items() if key != "anyOf"}
        fresh["nullable"] = True
        if len(rest) == 1 and isinstance(rest[0], dict):
            return _openapi_type({**rest[0], **fresh})
        if rest:
            fresh["anyOf"] = rest
        schema = fresh
    return schema


def _openapi_enum(walk: _Walk, schema: Schema, path: str) -> Schema:
    """`enum` holds strings only; other values are listed in words."""
    if "const" in schema:
        value = schema["const"]
        schema = {key: item for key, item in schema.items() if key != "const"}
        schema.setdefault("enum", [value])
    values = schema.get("enum")
    if not isinstance(values, list):
        return schema
    if None in values:
        schema = {**schema, "enum": [value for value in values if value is not None], "nullable": True}
        values = schema["enum"]
    if values and all(isinstance(value, str) for value in values) and schema.get("type", "string") == "string":
        return schema if "type" in schema else {**schema, "type": "string"}
    return _into_description(walk, schema, ["enum"], path)
