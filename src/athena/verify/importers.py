"""The files of other verifiers, read as they are: every format here is one JSON object per line.

| format | a line | what is expected |
|---|---|---|
| `k2vv` | a whole Chat request body (K2-Vendor-Verifier), or a line of its results | what the reference did |
| `minimax` | a body with `check_type`, `expected_tool_call` (MiniMax-Provider-Verifier) | a call, none, a text of its kind |
| `bfcl` | `id`, `question`, `function`; `ground_truth` is in the answers' file (BFCL) | these calls with these values |
| `walle` | a JSON Schema, alone (walle's `valid.jsonl`) or with its `suite` and `line` (Kimi-Vendor-Verifier) | a forced call |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from athena.errors import InvalidRequest
from athena.verify.bfcl import bfcl_case, is_bfcl, read_answers
from athena.verify.cases import Expectation, ExpectedCall, TextCheck, VerifyCase
from athena.verify.foreign_chat import body_id, digest_of, mode_of, request_of

CaseFormat = Literal["k2vv", "minimax", "bfcl", "walle"]
FORMATS: tuple[CaseFormat, ...] = get_args(CaseFormat)
_MINIMAX_NOTES = ("check_type", "expected_tool_call", "scenario_check")
_MINIMAX_CHECKS: dict[str, TextCheck] = {
    "contains_russian_characters_unicode": "no_cyrillic",
    "repeat_n_gram": "no_repetition",
    "scenario_check": "parameters_in_order",
    "silence_output": "ends_with_bracket",
}
_SCHEMA_KEYS = ("schema", "json_schema", "parameters")
_ROOT_ONLY = ("$defs", "definitions", "$schema", "$id")


def read_cases(text: str, form: CaseFormat | None = None, answers: str = "") -> tuple[VerifyCase, ...]:
    """The cases of a file. `form` is found by its lines where it is not said; `answers` is BFCL's other file."""
    rows = [(number, _object(line, number)) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not rows:
        raise InvalidRequest("the file has no cases")
    form = form or detect(*(row for _, row in rows))
    truths = read_answers(answers)
    cases = []
    for number, row in rows:
        try:
            cases.append(_case(form, row, truths))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidRequest(f"line {number} is no case of the format {form}: {_told(error)}") from None
    if form == "bfcl" and truths and not any(str(row.get("id")) in truths for _, row in rows):
        raise InvalidRequest("the file of answers has none of these questions: it belongs to another category of BFCL")
    return tuple(_each_by_its_own_id(cases))


def _told(error: Exception) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)


def detect(*rows: Mapping[str, Any]) -> CaseFormat:
    """Which verifier writes such lines."""
    if any(is_bfcl(row) for row in rows):
        return "bfcl"
    if any("messages" in row or isinstance(row.get("request"), dict) for row in rows):
        return "minimax" if any(note in row for row in rows for note in _MINIMAX_NOTES) else "k2vv"
    return "walle"


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"line {number} is not a JSON object: {error}") from None


def _case(form: CaseFormat, row: dict[str, Any], truths: Mapping[str, Any]) -> VerifyCase:
    match form:
        case "k2vv":
            return _k2vv(row)
        case "minimax":
            return _minimax(row)
        case "bfcl":
            return bfcl_case(row, truths)
        case "walle":
            return _walle(row)


def _each_by_its_own_id(cases: list[VerifyCase]) -> list[VerifyCase]:
    """A request that a file asks several times is asked several times."""
    seen: dict[str, int] = {}
    out = []
    for case in cases:
        number = seen[case.id] = seen.get(case.id, 0) + 1
        out.append(case if number == 1 else msgspec.structs.replace(case, id=f"{case.id}.{number}"))
    return out


def _k2vv(row: dict[str, Any]) -> VerifyCase:
    body = request_of(row)
    return VerifyCase(
        id=f"k2vv-{body_id(body)}", battery="behaviour", metric="reference", body=body, source="k2vv", modes=mode_of(row)
    )


def _minimax(row: dict[str, Any]) -> VerifyCase:
    body = request_of(row)
    checks = row.get("check_type") or ()
    text_check = next((told for check in checks if (told := _MINIMAX_CHECKS.get(check))), None)
    expected = row.get("expected_tool_call")
    expects: Expectation = "any" if expected is None else "call" if expected else "no_call"
    metric = "text_checks" if text_check else {"call": "trigger", "no_call": "restraint"}.get(expects, "reference")
    return VerifyCase(
        id=f"minimax-{body_id(body)}", battery="behaviour", metric=metric, body=body, expects=expects, source="minimax",
        modes=mode_of(row), text_check=text_check or "",
    )  # fmt: skip


def _walle(row: dict[str, Any]) -> VerifyCase:
    if isinstance(row.get("schema"), str):
        raise ValueError(
            "it is a schema that walle's own validator must refuse (invalid.jsonl), and no server is asked for that"
        )
    held = next((row[key] for key in _SCHEMA_KEYS if isinstance(row.get(key), dict)), None)
    schema = row if held is None else held["schema"] if isinstance(held.get("schema"), dict) else held
    if held is None and not _looks_like_schema(row):
        raise KeyError("schema")
    if schema.get("type") != "object":
        schema = _wrapped(schema)
    ask = "Call the tool once, with any arguments that fit its schema."
    tool = {"type": "function", "function": {"name": "fill_in", "description": ask, "parameters": schema}}
    body = {
        "messages": [{"role": "user", "content": ask}],
        "tools": [tool],
        "tool_choice": {"type": "function", "function": {"name": "fill_in"}},
    }
    return VerifyCase(
        id=f"walle-{_walle_name(row, schema, is_bare=held is None)}", battery="engineering", metric="tool_choice", body=body,
        expects="call", calls=(ExpectedCall("fill_in"),), source="walle",
    )  # fmt: skip


def _looks_like_schema(row: Mapping[str, Any]) -> bool:
    """A schema without any keyword accepts everything, and is one of walle's cases."""
    return not row or any(
        key in row for key in ("type", "properties", "anyOf", "allOf", "oneOf", "enum", "items", "$ref", "$defs")
    )


def _walle_name(row: Mapping[str, Any], schema: Mapping[str, Any], *, is_bare: bool) -> str:
    if not is_bare and "suite" in row and "line" in row:
        return f"{row['suite']}-{row['line']}"[:60]
    given = None if is_bare else row.get("id", row.get("name"))
    return str(given if given is not None else digest_of(schema))[:60]


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a tool are an object, so that other schemas become its only property. What references point at stays
    where they look for it."""
    inner = {key: value for key, value in schema.items() if key not in _ROOT_ONLY}
    root = {key: schema[key] for key in _ROOT_ONLY if key in schema}
    return {"type": "object", "properties": {"value": inner}, "required": ["value"], "additionalProperties": False, **root}
