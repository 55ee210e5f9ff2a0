"""Cases of the Berkeley Function Calling Leaderboard: its files of questions and of possible answers, judged by its rules.

Read are the files with one turn: simple, multiple, parallel, live, relevance and irrelevance. In those of Java and JavaScript
every argument is text of that language, whose values only BFCL's own readers can compare: there the name of the call decides.
Files with several turns, memory and web search need the simulators that BFCL runs beside the model, and are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from athena.errors import InvalidRequest
from athena.verify.cases import Expectation, ExpectedCall, VerifyCase

_TYPES = {
    "float": "number", "double": "number", "bool": "boolean", "list": "array", "tuple": "array", "dict": "object",
    "any": "string", "byte": "integer", "short": "integer", "long": "integer", "char": "string", "ArrayList": "array",
    "Array": "array", "HashMap": "object", "Hashtable": "object", "Queue": "array", "Stack": "array", "Set": "array",
    "Any": "string", "String": "string", "Bigint": "integer", "Boolean": "boolean",
}  # fmt: skip
"""What BFCL writes for a type, and JSON Schema's name of it."""
_LANGUAGES = {"java": "Java", "javascript": "JavaScript"}
_SIMULATED = ("involved_classes", "initial_config")


def is_bfcl(row: Mapping[str, Any]) -> bool:
    """Does BFCL write such lines?"""
    return "question" in row and ("function" in row or any(key in row for key in _SIMULATED))


def read_answers(text: str) -> dict[str, Any]:
    """The file of possible answers, by id."""
    truths: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
            truths[str(row["id"])] = row["ground_truth"]
        except (msgspec.DecodeError, RecursionError, KeyError) as error:
            raise InvalidRequest(f"line {number} of the answers is no line of BFCL's possible answers: {error}") from None
    return truths


def bfcl_case(row: Mapping[str, Any], truths: Mapping[str, Any]) -> VerifyCase:
    """One line of a file of questions."""
    if "function" not in row:
        raise ValueError("it is answered in several turns with BFCL's own simulators, which this does not run")
    name = str(row["id"])
    turns = row["question"]
    if not isinstance(turns, list) or not turns:
        raise KeyError("question")
    if len(turns) > 1 and isinstance(turns[0], list):
        raise ValueError("it has several turns, which BFCL plays with its own simulators")
    messages = turns[0] if isinstance(turns[0], list) else turns
    language = next((told for part, told in _LANGUAGES.items() if part in name.split("_")), "")
    functions = row["function"] if isinstance(row["function"], list) else [row["function"]]
    body: dict[str, Any] = {"messages": messages}
    if functions:
        body["tools"] = [_tool(function, language) for function in functions]
    truth = row.get("ground_truth", truths.get(name))
    calls = tuple(_call(entry, by_name_only=bool(language)) for entry in truth or ())
    expects = _expectation(name, calls)
    metric = "parallel" if len(calls) > 1 else {"call": "trigger", "no_call": "restraint"}.get(expects, "reference")
    return VerifyCase(
        id=f"bfcl-{name}", battery="behaviour", metric=metric, body=body, expects=expects, calls=calls, source="bfcl"
    )


def _expectation(name: str, calls: tuple[ExpectedCall, ...]) -> Expectation:
    if "irrelevance" in name:
        return "no_call"
    return "call" if calls or "relevance" in name else "any"


def _tool(function: Mapping[str, Any], language: str) -> dict[str, Any]:
    schema = _schema(function.get("parameters") or {"type": "dict", "properties": {}})
    if language and isinstance(schema.get("properties"), dict):
        schema["properties"] = {
            key: {
                "type": "string",
                "description": f"{item.get('description', '')} A value of {language}'s type {was.get('type', 'any')}, as text.",
            }
            for (key, item), was in zip(
                schema["properties"].items(), function["parameters"]["properties"].values(), strict=True
            )
        }
    return {
        "type": "function",
        "function": {
            "name": _name(function["name"]),
            "description": function.get("description", ""),
            "parameters": schema,
        },
    }


def _name(name: str) -> str:
    """APIs allow no dots in names; BFCL replaces them in the same way."""
    return name.replace(".", "_")


def _call(entry: Mapping[str, Any], *, by_name_only: bool) -> ExpectedCall:
    (name, arguments), *_ = entry.items()
    if by_name_only:
        return ExpectedCall(_name(name))
    allowed = {key: value if isinstance(value, list) else [value] for key, value in arguments.items()}
    return ExpectedCall(_name(name), allowed=allowed, loosely=True)


def _schema(value: Any) -> Any:
    """The same schema with JSON Schema's names of types. A property that is called `type` is left alone."""
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _TYPES.get(item, item) if key == "type" and isinstance(item, str) else _schema(item) for key, item in value.items()
    }


# -- judging -----------------------------------------------------------------------------------------------------------------


def fits_loosely(allowed: Mapping[str, list[Any]], given: Mapping[str, Any]) -> bool:
    """Is each argument one of its possible answers, none besides, and none missing that may not be left out?

    Texts are compared without case, spaces and light punctuation; an empty text among the answers of an argument says that
    it may be left out. An object among the answers has possible answers for each of its keys.
    """
    if any(key not in allowed or not any(_is_answer(answer, value) for answer in allowed[key]) for key, value in given.items()):
        return False
    return all(key in given or "" in answers for key, answers in allowed.items())


def _is_answer(answer: Any, value: Any) -> bool:
    if isinstance(answer, dict):
        return isinstance(value, dict) and fits_loosely(
            {key: item if isinstance(item, list) else [item] for key, item in answer.items()}, value
        )
    if isinstance(answer, list):
        return (
            isinstance(value, list)
            and len(answer) == len(value)
            and all(_is_answer(one, other) for one, other in zip(answer, value, strict=True))
        )
    if isinstance(answer, str):
        return isinstance(value, str) and _plain(answer) == _plain(value)
    # True is no 1 in JSON, and 1 is 1.0.
    return isinstance(answer, bool) is isinstance(value, bool) and bool(answer == value)


def _plain(text: str) -> str:
    return "".join(letter for letter in text if letter not in " ,./-_*^").lower().replace("'", '"')
