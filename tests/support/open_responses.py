"""The Open Responses standard as a judge: of response objects (by the name ""), compactions, and events by their type.

`tests/cases/open_responses.json` says in our own words what that standard asks. `ATHENA_OPEN_RESPONSES` names a copy of the
standard's own OpenAPI document, which is then tried as well.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema_rs

from support.cases import CASES

_OWN: dict[str, Any] = json.loads((CASES / "open_responses.json").read_text("utf-8"))
_DOCUMENT = os.environ.get("ATHENA_OPEN_RESPONSES")
_SINGLE = {"response": "response", "item": "item", "part": "content", "annotation": "annotation", "error": "error"}
COMPACTION = "response.compaction"


def _own_judges() -> dict[str, jsonschema_rs.Draft202012Validator]:
    judges: dict[str, jsonschema_rs.Draft202012Validator] = {}
    for name, fields in {"": [], **_OWN["events"]}.items():
        schema: dict[str, Any] = {"$defs": _OWN["$defs"], "$ref": "#/$defs/response"}
        if name:
            types = {field: {"$ref": f"#/$defs/{_SINGLE[field]}"} for field in fields if field in _SINGLE}
            types |= {field: {"$ref": "#/$defs/count"} for field in fields if field.endswith("_index")}
            types |= {field: {"$ref": "#/$defs/text"} for field in fields if field in ("delta", "text", "refusal", "arguments")}
            types["sequence_number"] = {"$ref": "#/$defs/count"}
            schema = {"$defs": _OWN["$defs"], "properties": types, "required": ["type", "sequence_number", *fields]}
        judges[name] = jsonschema_rs.Draft202012Validator(schema)
    judges[COMPACTION] = jsonschema_rs.Draft202012Validator({"$defs": _OWN["$defs"], "$ref": "#/$defs/compaction"})
    return judges


def _standards_judges(document: Path) -> dict[str, jsonschema_rs.Draft202012Validator]:
    value = json.loads(document.read_text("utf-8"))
    schemas = value["components"]["schemas"]
    # A known mistake of the document: it allows only null where the request's schema is said again.
    schemas["JsonSchemaResponseFormat"]["properties"]["schema"] = {}
    forms = value["paths"]["/responses"]["post"]["responses"]["200"]["content"]
    names = {"": forms["application/json"]["schema"]["$ref"]}
    for form in forms["text/event-stream"]["schema"]["oneOf"]:
        (kind,) = schemas[form["$ref"].rsplit("/", 1)[1]]["properties"]["type"]["enum"]
        names[kind] = form["$ref"]
    names[COMPACTION] = "#/components/schemas/CompactResource"
    parts = {"components": {"schemas": schemas}}
    return {kind: jsonschema_rs.Draft202012Validator({"$ref": name, **parts}) for kind, name in names.items()}


JUDGES = {"own": _own_judges(), **({"standard": _standards_judges(Path(_DOCUMENT))} if _DOCUMENT else {})}


def problems(value: dict[str, Any], judge: str) -> list[str]:
    """What is wrong with a response, a compaction or an event."""
    shape = value.get("object")
    kind = "" if shape == "response" else COMPACTION if shape == COMPACTION else value["type"]
    errors = JUDGES[judge][kind].iter_errors(value)
    return [f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in errors]
