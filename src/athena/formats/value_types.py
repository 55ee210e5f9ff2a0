"""What a tool's schema says about its parameters, and tagged text turned into JSON by it (`formats.md` 1.5).

Tagged formats write every value as text, so only the schema knows that `3` is a number here and a string there. A value that
does not fit its declared type stays the string the model wrote: the call is never dropped and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from athena.formats.bodies.json_text import quoted, strict_json
from athena.formats.bodies.python_literals import python_to_json
from athena.model.request import Tool

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
_PREFIXES = ("functions.", "tools.")
_OPEN_NAME_LIMIT = 128


class ValueType(msgspec.Struct, frozen=True):
    """The types a value may have; None: anything."""

    types: frozenset[str] | None = None
    enum: tuple[Any, ...] = ()

    @property
    def is_text(self) -> bool:
        """Is it a string and nothing else? Then it can be shown as it arrives."""
        return self.types == _TEXT


_TEXT = frozenset({"string"})
ANYTHING = ValueType()


class ToolBook:
    """The declared tools by name. Without tools (None) every name is as good as declared."""

    __slots__ = ("_tools", "_types", "open")

    def __init__(self, tools: Sequence[Tool] | None) -> None:
        self.open: bool = tools is None
        self._tools = {tool.name: tool for tool in tools or () if tool.kind != "hosted"}
        self._types: dict[tuple[str, str], ValueType] = {}

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> tuple[str, ...]:
        """All declared names."""
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
        """The tool's own name: as written when declared, else without a `functions.` or `tools.` in front (1.10)."""
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
        return tuple(_properties(self.schema(name)))

    def value_type(self, name: str, parameter: str) -> ValueType:
        """What the schema says about one parameter."""
        key = (name, parameter)
        found = self._types.get(key)
        if found is None:
            root = self.schema(name)
            found = self._types[key] = resolve_type(_properties(root).get(parameter), root)
        return found

    def infer(self, keys: Iterable[str]) -> str | None:
        """The only tool whose parameters fit these argument keys (requirement A25); None when none or several do."""
        given = set(keys)
        fitting = []
        for name, tool in self._tools.items():
            properties = _properties(tool.schema)
            required = (tool.schema or {}).get("required")
            needed = set(required) if isinstance(required, list) else set()
            if given <= set(properties) and needed <= given:
                fitting.append(name)
        return fitting[0] if len(fitting) == 1 else None


def _properties(schema: dict[str, Any] | None) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    found: dict[str, Any] = {}
    for part in schema.get("allOf") or ():
        if isinstance(part, dict) and isinstance(part.get("properties"), dict):
            found.update(part["properties"])
    own = schema.get("properties")
    if isinstance(own, dict):
        found.update(own)
    return found


def resolve_type(schema: Any, root: Any = None) -> ValueType:
    """The types a schema allows, through references, unions and enumerations."""
    if not isinstance(schema, dict):
        return ANYTHING
    enum = _enum(schema)
    return ValueType(_types(schema, root, 0), tuple(enum) if enum is not None else ())


def _enum(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    enum = schema.get("enum")
    return enum if isinstance(enum, list) and enum else None


def _types(schema: Any, root: Any, depth: int) -> frozenset[str] | None:
    if not isinstance(schema, dict) or depth > _DEPTH:
        return None
    if isinstance(schema.get("$ref"), str):
        return _types(_target(schema["$ref"], root), root, depth + 1)
    found = _own_types(schema)
    for part in schema.get("allOf") or ():
        types = _types(part, root, depth + 1)
        if types is not None:
            found = types if found is None else (found & types) or found
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list) and options:
            union: frozenset[str] | None = frozenset()
            for option in options:
                types = _types(option, root, depth + 1)
                union = None if types is None or union is None else union | types
            if union is not None:
                found = union if found is None else (found & union) or found
    if found is not None and schema.get("nullable") is True:
        found |= {"null"}
    return found


def _own_types(schema: dict[str, Any]) -> frozenset[str] | None:
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []
    types = {_type_name(name) for name in names if isinstance(name, str)}
    if types:
        return None if "" in types else frozenset(types)
    enum = _enum(schema)
    if enum is not None:
        return frozenset(_type_of(member) for member in enum)
    if isinstance(schema.get("properties"), dict):
        return frozenset({"object"})
    if "items" in schema:
        return frozenset({"array"})
    return None


def _type_name(name: str) -> str:
    lowered = name.lower()
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


def _target(reference: str, root: Any) -> Any:
    if not reference.startswith("#"):
        return None
    node = root
    for step in reference[1:].split("/"):
        if not step:
            continue
        if not isinstance(node, dict):
            return None
        node = node.get(step.replace("~1", "/").replace("~0", "~"))
    return node


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
    if "string" in types and stripped in value_type.enum:
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
        # An array copied out of a JSON string keeps its escapes: [\"a\"].
        found = stripped.replace('\\"', '"')
        return found if is_json(found) else None
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
