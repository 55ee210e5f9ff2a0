"""JSON Schema (2020-12) of `athena.yml`, generated from the structs of `model.py` and the texts under their fields.

The result ships as `athena.schema.json`, so that editors and `athena config schema` need no source code; a test keeps it
current. `python -m athena.shells.config.schema` writes it anew.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path as FilePath
from textwrap import dedent
from typing import Any, get_args

import msgspec

from athena.shells.config.model import Config, FlatKeys
from athena.shells.config.secret import Secret
from athena.shells.config.shipped import SCHEMA_FILE


def build_schema() -> dict[str, Any]:
    """The schema, from the structs as they are."""
    full, short = _components(Config), _components(FlatKeys)
    document, flat = full.pop("Config"), short.pop("FlatKeys")
    definitions = full | short
    for name in definitions:
        _relax(definitions[name])
    keys = document["properties"]["keys"]
    keys["items"] = {"anyOf": [{"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}, keys["items"]]}
    _relax(document)
    _relax(flat)
    properties = document["properties"] | flat["properties"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "athena.yml",
        "description": "Configuration of the Athena gateway.",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": dict(sorted(definitions.items())),
    }


def _components(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The schemas of a struct and all it holds, with their texts."""
    _, found = msgspec.json.schema_components([struct], schema_hook=_hook, ref_template="#/$defs/{name}")
    structs = {item.__name__: item for item in _structs_in(struct)}
    for name, schema in found.items():
        schema.pop("title", None)
        schema["additionalProperties"] = False
        texts = field_texts(structs[name])
        for field, part in schema["properties"].items():
            schema["properties"][field] = {**part, "description": texts[field]}
    return dict(found)


def _hook(kind: type) -> dict[str, Any]:
    if kind is Secret:
        return {"type": "string", "writeOnly": True}
    raise NotImplementedError  # how msgspec wants to hear that a hook does not know a type


def _structs_in(kind: Any) -> list[type[msgspec.Struct]]:
    """Every struct that a type is made of, itself among them."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind, *(inner for field in msgspec.structs.fields(kind) for inner in _structs_in(field.type))]
    return [inner for part in get_args(kind) for inner in _structs_in(part)]


def field_texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The text under each field, from the source."""
    (body,) = ast.parse(dedent(inspect.getsource(struct))).body
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            assert isinstance(text.value, ast.Constant)
            texts[field.target.id] = " ".join(str(text.value.value).split())
    return texts


def _relax(schema: dict[str, Any]) -> None:
    """What the loader takes beyond the strict types: a number or boolean as text or `${NAME}`, a key without a value."""
    required = schema.get("required", [])
    for name, part in schema["properties"].items():
        part.pop("default", None) if part.get("default", 0) is None else None
        options = part.pop("anyOf", None)
        types = [option for option in options or [] if option.get("type") != "null"]
        if options is None:
            types = [{key: part.pop(key) for key in list(part) if key not in ("description", "default")}]
        if any(option.get("type") in ("integer", "number", "boolean") for option in types):
            types.append({"type": "string"})
        if name not in required:
            types.append({"type": "null"})
        part |= types[0] if len(types) == 1 else {"anyOf": types}


def render_schema() -> str:
    """The text of the shipped file."""
    return json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FilePath(__file__).with_name(SCHEMA_FILE).write_text(render_schema(), encoding="utf-8")
