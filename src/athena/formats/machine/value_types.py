"""What a tool's schema says about its parameters, and tagged text turned into JSON by it.

The rules: docs/reference/format-notes.md#tagged-values.

Tagged formats write every value as text, so only the schema knows that `3` is a number here and a string there. A value that
does not fit its declared type stays the string the model wrote: the call is never dropped and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from athena.formats.bodies.json_text import quoted, strict_json
from athena.formats.bodies.python_literals import python_to_json
from athena.model.request import Tool, has_kind
from athena.wire.json_pointer import local_target

ALL_TYPES = frozenset({"null", "integer", "number", "boolean", "object", "array", "string"})

_ALIASES = {
    "str": "string", "text": "string", "char": "string", "varchar": "string", "int": "integer", "long": "integer",
    "short": "integer", "uint": "integer", "int32": "integer", "int64": "integer", "float": "number", "double": "number",
    "decimal": "number", "bool": "boolean", "dict": "object", "map": "object", "hashmap": "object", "list": "array",
    "tuple": "array", "set": "array", "arraylist": "array", "none": "null", "nonetype": "null",
}  # fmt: skip

_INTEGER = re.compile(r"([+-]?)(\d+)")
_WHOLE_FLOAT = re.compile(r"-?(?:0|[1-9]\d*)\.0+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_LOOSE_NUMBER = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([eE][+-]?\d+)?")
_DEPTH = 32
_MOST_PARTS = 10_000
"""Of one schema, read for all questions of one answer."""
_VALUES_AS_PART = 16
"""Listed values that count as one more part."""
_MOST_OPTIONS = 32
"""Of one part of a schema, asked for what they say about a key."""
_LONGEST_TYPE = 64
_PREFIXES = ("functions.", "tools.")
_OPEN_NAME_LIMIT = 128


class ValueType(msgspec.Struct, frozen=True):
    """The types a value may have; None: anything."""

    types: frozenset[str] | None = None
    words: frozenset[str] = frozenset()
    """The strings among the listed values."""

    @property
    def is_text(self) -> bool:
        """Is it a string and nothing else? Then it can be shown as it arrives."""
        return self.types == _TEXT


_TEXT = frozenset({"string"})
ANYTHING = ValueType()


class SchemaTypes:
    """What types a schema allows, through references, unions and enumerations.

    One for all questions about one schema. Each part of it is read once, however many references lead there, and only so many
    parts are read at all: behind that, and behind references that lead in circles, a value may be anything.
    """

    __slots__ = ("_known", "_left", "_objects", "_unions", "root")

    def __init__(self, root: Any) -> None:
        self.root: Any = root
        self._left = _MOST_PARTS
        self._objects: dict[int, tuple[Any, tuple[dict[str, Any], ...]]] = {}
        """What a part and the parts that it is made of say, by the part's identity."""
        self._unions: dict[tuple[int, ...], dict[str, Any]] = {}
        self._known: dict[int, tuple[Any, ValueType]] = {}
        """By identity. The part is kept beside its type, so that no other object can take its place."""

    def of(self, schema: Any) -> ValueType:
        """The types that one part of the schema allows."""
        return self._type(schema, 0)

    def part(self, schema: Any) -> dict[str, Any]:
        """A part of the schema as a dictionary, through one reference; empty for what is none."""
        if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            schema = local_target(self.root, schema["$ref"])
        return schema if isinstance(schema, dict) else {}

    def member(self, schema: Any, key: str) -> Any:
        """The part of the schema that is about this key of an object, in whichever option of it; None when none is.

        A declared property wins over a pattern that fits the key, and that over what is said about all other keys.
        """
        objects = self._made_of(schema)
        named = [one["properties"][key] for one in objects if _is_map(one, "properties") and key in one["properties"]]
        if not named:
            patterns = [one["patternProperties"] for one in objects if _is_map(one, "patternProperties")]
            named = [part for one in patterns for pattern, part in one.items() if _may_fit(pattern, key)]
        return self._union(named or [one["additionalProperties"] for one in objects if _is_map(one, "additionalProperties")])

    def items(self, schema: Any) -> Any:
        """The part of the schema that is about the items of a list, in whichever option of it."""
        return self._union([one["items"] for one in self._made_of(schema) if _is_map(one, "items")])

    def _union(self, parts: list[Any]) -> Any:
        if len(parts) < 2:
            return parts[0] if parts else None
        key = tuple(map(id, parts))
        return self._unions.setdefault(key, {"anyOf": parts})

    def _made_of(self, schema: Any) -> tuple[dict[str, Any], ...]:
        """A part of the schema, its options and what it is composed of, through references."""
        known = self._objects.get(id(schema))
        if known is not None:
            return known[1]
        found: list[dict[str, Any]] = []
        waiting = [schema]
        while waiting and len(found) < _MOST_OPTIONS:
            part = self.part(waiting.pop())
            if not part or any(part is one for one in found):
                continue
            found.append(part)
            waiting += [option for word in ("oneOf", "anyOf", "allOf") for option in _sequence(part.get(word))[:_MOST_OPTIONS]]
        self._objects[id(schema)] = (schema, tuple(found))
        return tuple(found)

    def _type(self, schema: Any, depth: int) -> ValueType:
        if not isinstance(schema, dict):
            return ANYTHING
        known = self._known.get(id(schema))
        if known is not None:
            return known[1]
        if self._left <= 0 or depth > _DEPTH:
            return ANYTHING
        self._left -= 1
        self._known[id(schema)] = (schema, ANYTHING)
        enum = _enum(schema)
        self._left -= len(enum or ()) // _VALUES_AS_PART
        words = frozenset(member for member in enum or () if isinstance(member, str))
        found = ValueType(self._types(schema, enum, depth), words)
        self._known[id(schema)] = (schema, found)
        return found

    def _types(self, schema: dict[str, Any], enum: list[Any] | None, depth: int) -> frozenset[str] | None:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._type(local_target(self.root, reference), depth + 1).types
        found = _own_types(schema, enum)
        for part in _sequence(schema.get("allOf")):
            types = self._type(part, depth + 1).types
            if types is not None:
                found = types if found is None else (found & types) or found
        for word in ("anyOf", "oneOf"):
            options = _sequence(schema.get(word))
            union: frozenset[str] | None = frozenset() if options else None
            for option in options:
                types = self._type(option, depth + 1).types
                union = None if types is None or union is None else union | types
            if union is not None:
                found = union if found is None else (found & union) or found
        if found is not None and schema.get("nullable") is True:
            found |= {"null"}
        return found


class _Declared:
    """One tool and what was read of its schema so far."""

    __slots__ = ("properties", "required", "tool", "types")

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.types = SchemaTypes(tool.schema)
        self.properties = _properties(tool.schema)
        required = (tool.schema or {}).get("required")
        self.required = frozenset(name for name in _sequence(required) if isinstance(name, str))


_name_of = attrgetter("name")


class ToolBook:
    """The declared tools by name. Without tools (None) every name is as good as declared."""

    __slots__ = ("_declared", "_tools", "open")

    def __init__(self, tools: Sequence[Tool] | None) -> None:
        self.open: bool = tools is None
        named: Sequence[Tool] = tools or ()
        if has_kind(named, "hosted"):
            named = [tool for tool in named if tool.kind != "hosted"]
        self._tools: dict[str, Tool] = dict(zip(map(_name_of, named), named, strict=True))
        self._declared: dict[str, _Declared] = {}

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def name_limit(self) -> int:
        """How long a word may become before it can no longer be a name that `admits` takes."""
        return _OPEN_NAME_LIMIT if self.open else max(map(len, self._tools), default=0) + len(_PREFIXES[0])

    def declared(self, name: str) -> bool:
        """Did the request declare this tool?"""
        return name in self._tools

    def admits(self, name: str) -> bool:
        """May a text in ordinary words call this tool?"""
        return self.open or name in self._tools

    def resolve(self, name: str) -> str:
        """The tool's own name: as written when declared, else without a `functions.` or `tools.` in front."""
        if name in self._tools:
            return name
        for prefix in _PREFIXES:
            if name.startswith(prefix) and len(name) > len(prefix):
                return name[len(prefix) :]
        return name

    def schema(self, name: str) -> dict[str, Any] | None:
        """The parameters' schema, if the tool has one."""
        tool = self._tools.get(name)
        return tool.schema if tool is not None else None

    def parameters(self, name: str) -> tuple[str, ...]:
        """The declared parameter names, in order."""
        return tuple(self._read(name).properties) if name in self._tools else ()

    def declares(self, name: str, parameter: str) -> bool:
        """Does the tool's schema name this parameter?"""
        return name in self._tools and parameter in self._read(name).properties

    def value_type(self, name: str, parameter: str) -> ValueType:
        """What the schema says about one parameter."""
        if name not in self._tools:
            return ANYTHING
        read = self._read(name)
        declared = read.properties.get(parameter)
        return read.types.of(read.types.member(read.types.root, parameter) if declared is None else declared)

    def types(self, name: str) -> SchemaTypes:
        """What types the parts of a tool's schema allow."""
        return self._read(name).types if name in self._tools else SchemaTypes(None)

    def infer(self, keys: Iterable[str]) -> str | None:
        """The only tool whose parameters fit these argument keys; None when none or several do.

        No arguments fit every tool that needs none, so they tell nothing: a call is never guessed.
        """
        given = set(keys)
        if not given:
            return None
        fitting = []
        for name in self._tools:
            read = self._read(name)
            if given <= read.properties.keys() and read.required <= given:
                fitting.append(name)
        return fitting[0] if len(fitting) == 1 else None

    def _read(self, name: str) -> _Declared:
        found = self._declared.get(name)
        if found is None:
            found = self._declared[name] = _Declared(self._tools[name])
        return found


def _sequence(value: object) -> list[Any]:
    """A client's schema may hold anything anywhere: what is not a list counts as an empty one."""
    return value if isinstance(value, list) else []


def _properties(schema: dict[str, Any] | None) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    own = schema.get("properties")
    parts = [part["properties"] for part in _sequence(schema.get("allOf")) if _has_properties(part)]
    if not parts:
        return own if isinstance(own, dict) else {}
    found: dict[str, Any] = {}
    for properties in (*parts, own):
        if isinstance(properties, dict):
            found.update(properties)
    return found


def _is_map(part: dict[str, Any], word: str) -> bool:
    return isinstance(part.get(word), dict)


_SIMPLE_PATTERN = re.compile(r"[^(|*+?{\\]{0,200}(?:\\[dwsDWS.\-][^(|*+?{\\]{0,200})?[*+]?\$?")
"""One repetition at the most, and no group: searched in time that grows with the key."""


def _may_fit(pattern: Any, key: str) -> bool:
    """Does a key of `patternProperties` fit? A pattern that a client could have made slow is not searched: it may."""
    if not isinstance(pattern, str) or _SIMPLE_PATTERN.fullmatch(pattern) is None:
        return True
    try:
        return re.search(pattern, key) is not None
    except re.error:
        return True


def _has_properties(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("properties"), dict)


def _enum(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    enum = schema.get("enum")
    return enum if isinstance(enum, list) and enum else None


def _own_types(schema: dict[str, Any], enum: list[Any] | None) -> frozenset[str] | None:
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []
    types = {_type_name(name) for name in names if isinstance(name, str)}
    if types:
        return None if "" in types else frozenset(types)
    if enum is not None:
        return frozenset(_type_of(member) for member in enum)
    if isinstance(schema.get("properties"), dict):
        return frozenset({"object"})
    if "items" in schema:
        return frozenset({"array"})
    return None


def _type_name(name: str) -> str:
    lowered = name[:_LONGEST_TYPE].lower()
    lowered = lowered.split("[")[0].split("<")[0].strip()
    return lowered if lowered in ALL_TYPES else _ALIASES.get(lowered, "")


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


# -- text to JSON -----------------------------------------------------------------------------------------------------------


def typed_json(text: str, value_type: ValueType) -> str | None:
    """`text` as JSON of the declared type; None: leave the parameter out (empty text for a type that has no empty value)."""
    types = value_type.types
    if types is None:
        return _guessed(text)
    if types == _TEXT:
        return quoted(text)
    stripped = text.strip()
    if not stripped:
        if "string" in types:
            return quoted(text)
        return "null" if "null" in types else None
    if "string" in types and stripped in value_type.words:
        return quoted(stripped)
    for name in _ORDER:
        if name in types:
            found = _as_type(stripped, name, only=len(types) == 1)
            if found is not None:
                return found
    return quoted(text)


_ORDER = ("null", "integer", "number", "boolean", "object", "array")


def _as_type(text: str, name: str, *, only: bool) -> str | None:
    if name == "null":
        return "null" if text in ("null", "None") else None
    if name == "integer":
        return _integer(text)
    if name == "number":
        return _number(text)
    if name == "boolean":
        lowered = text.lower()
        if lowered in ("true", "false"):
            return lowered
        return {"1": "true", "0": "false"}.get(text) if only else None
    return structured_json(text, "{" if name == "object" else "[")


def _integer(text: str) -> str | None:
    found = _INTEGER.fullmatch(text)
    if found is None:
        return text if _WHOLE_FLOAT.fullmatch(text) else None
    sign, digits = found.groups()
    if not digits.isascii():
        return None
    digits = digits.lstrip("0") or "0"
    return "-" + digits if sign == "-" and digits != "0" else digits


def _number(text: str) -> str | None:
    if _NUMBER.fullmatch(text):
        return text
    found = _LOOSE_NUMBER.fullmatch(text)
    if found is None or not text.isascii():
        return None
    sign, whole, fraction, exponent = found.groups()
    if not whole and not fraction:
        return None
    digits = whole.lstrip("0") or "0"
    return ("-" if sign == "-" else "") + digits + (f".{fraction}" if fraction else "") + (exponent or "")


def structured_json(text: str, bracket: str) -> str | None:
    """An object or array written as JSON, as a Python literal, or nearly as JSON."""
    stripped = text.strip()
    if is_json(stripped):
        return stripped if stripped.startswith(bracket) else None
    for read in (python_to_json, strict_json):
        found = read(stripped)
        if found is not None and found.startswith(bracket):
            return found
    if '\\"' in stripped and stripped.startswith(bracket):
        return _copied(stripped)
    return None


def _copied(text: str) -> str | None:
    """An array copied out of a JSON string keeps its escapes: [\\"a\\"]. All of them, as a rule; else those of quotes."""
    try:
        inner = msgspec.json.decode(f'"{text}"', type=str)
    except (msgspec.DecodeError, UnicodeEncodeError):
        inner = ""
    for found in (inner, text.replace('\\"', '"')):
        if found and is_json(found):
            return found
    return None


def _guessed(text: str) -> str:
    """Without a schema: what is JSON other than a string is that, everything else is a string."""
    stripped = text.strip()
    if stripped and stripped[0] != '"' and is_json(stripped):
        return stripped
    return quoted(text)


def is_json(text: str) -> bool:
    """Is this exactly one JSON value?"""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True
