"""The two figures of K2-Vendor-Verifier, from its own files of results or from a run of ours, by its own definition.

`tool_call_f1`: does the upstream decide to call where the reference did? A request counts as called when its answer ended with
`tool_calls`, and in no other case: an answer that never came and one that holds calls under another word did not.
`schema_accuracy`: of the answers that ended so, the share whose every call names a tool with a schema that its arguments fit. A
tool without parameters has no schema to fit, and an answer that ended with `tool_calls` without any has nothing that is valid.

Lines of MiniMax-Provider-Verifier's results have the same form, and its figures the same definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from athena.errors import InvalidRequest
from athena.formats.machine.value_types import ToolBook
from athena.parsing import read_tools
from athena.prompted.validation import ArgumentCheck, compiled
from athena.verify.cases import VerifyCase
from athena.verify.foreign_chat import body_id, request_of
from athena.verify.judging import TOOL_FINISHES
from athena.verify.runs import VerifyRun, VerifyTrial
from athena.verify.statistics import f1

_SOURCES = ("k2vv-", "minimax-")
_INVALID = frozenset(("invalid_json", "unknown_name", "off_schema"))


class VendorResult(msgspec.Struct, frozen=True):
    """What one request came to, as K2VV counts it."""

    id: str
    finish: str
    """The answer's `finish_reason`; empty where the request failed."""
    valid: bool = False
    """Does every call of it fit its schema?"""


class VendorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What K2VV publishes about a vendor."""

    requests: int
    finished_with_calls: int
    valid_calls: int
    schema_accuracy: float
    compared: int
    """Requests that are in both runs."""
    true_positive: int
    false_positive: int
    false_negative: int
    tool_call_f1: float


def read_results(text: str) -> tuple[VendorResult, ...]:
    """Lines of a results file: `request`, `response`, and what the verifier noted about them. Of several lines with one
    `data_index` the latest counts, as `last_run_at` says."""
    latest: dict[int, tuple[str, VendorResult]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
            index, at = int(row.get("data_index", -number)), str(row.get("last_run_at", ""))
            if index not in latest or at >= latest[index][0]:
                latest[index] = (at, _result(row))
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidRequest(f"line {number} is no result of K2-Vendor-Verifier: {error}") from None
    return _numbered([latest[index][1] for index in sorted(latest)])


def _numbered(results: Iterable[VendorResult]) -> tuple[VendorResult, ...]:
    """Requests that were made several times, told apart as `athena.verify.importers` does it."""
    seen: dict[str, int] = {}
    out = []
    for result in results:
        number = seen[result.id] = seen.get(result.id, 0) + 1
        out.append(result if number == 1 else msgspec.structs.replace(result, id=f"{result.id}.{number}"))
    return tuple(out)


def _result(row: Mapping[str, Any]) -> VendorResult:
    body = request_of(row)
    response = row.get("response")
    choices = response.get("choices") if isinstance(response, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else {}
    finish = row.get("finish_reason") or choice.get("finish_reason") or ""
    noted = row.get("tool_calls_valid")
    valid = noted if isinstance(noted, bool) else _is_valid(body.get("tools") or [], choice)
    return VendorResult(body_id(body), str(finish) if row.get("status", "success") == "success" else "", valid)


def _is_valid(tools: list[Any], choice: Mapping[str, Any]) -> bool:
    calls = (choice.get("message") or {}).get("tool_calls") or []
    return bool(calls) and calls_are_valid(tools, ((call["function"]["name"], _text(call["function"])) for call in calls))


def _text(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments")
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def results_of(run: VerifyRun, cases: Iterable[VerifyCase]) -> tuple[VendorResult, ...]:
    """What a run of ours says about the requests of these verifiers in it, as K2VV would count them; the last answer to each
    counts."""
    own = {case.id: case for case in cases}
    results = {}
    for trial in run.trials:
        source = next((source for source in _SOURCES if trial.case.startswith(source)), None)
        case = own.get(trial.case)
        if source is not None and case is not None:
            name = trial.case.removeprefix(source)
            results[name] = VendorResult(name, _finish(trial, run.head.dialect), _fits(trial, case))
    return tuple(results.values())


def _finish(trial: VerifyTrial, dialect: str) -> str:
    if not trial.raw.marks.get("answered"):
        return ""
    words = TOOL_FINISHES.get(dialect)
    if "invalid_json" in _faults(trial) and not trial.raw.word:
        # Our reading of an answer ends at a call whose arguments are not JSON, before the word for the end.
        ended_with_calls = True
    else:
        # A dialect without a word for it says by its calls that it ended with them.
        ended_with_calls = bool(trial.raw.calls) if words is None else trial.raw.word in words
    return "tool_calls" if ended_with_calls else trial.raw.word or "stop"


def _faults(trial: VerifyTrial) -> set[str]:
    return {label.partition(":")[0] for label in trial.raw.classes} & _INVALID


def _fits(trial: VerifyTrial, case: VerifyCase) -> bool:
    if _faults(trial) or not trial.raw.calls:
        return False
    schemas = _schemas(case.body.get("tools") or ())
    return all(schemas.get(name) for name, _ in msgspec.json.decode(trial.raw.calls))


def calls_are_valid(tools: Iterable[Any], calls: Iterable[tuple[str, str]]) -> bool:
    """Does every call name a tool that has a schema, with arguments that fit it?"""
    tools = tuple(tools)
    schemas = _schemas(tools)
    check = ArgumentCheck(ToolBook(read_tools(tools)))
    return all(
        bool(schemas.get(name)) and _is_json(arguments) and not check.verdict(name, arguments).problem
        for name, arguments in calls
    )


def _schemas(tools: Iterable[Any]) -> dict[str, Any]:
    """The tools whose parameters are a schema, by name; the first of a name counts."""
    found: dict[str, Any] = {}
    for tool in tools:
        function = tool.get("function") or {}
        schema = function.get("parameters")
        found.setdefault(str(function.get("name")), schema if isinstance(schema, dict) and compiled(schema).is_schema else None)
    return found


def _is_json(arguments: str) -> bool:
    try:
        msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def vendor_figures(results: Iterable[VendorResult], reference: Iterable[VendorResult] = ()) -> VendorFigures:
    """The figures of a run, against a reference run of the same requests where there is one."""
    ours = {result.id: result for result in results}
    called = [result for result in ours.values() if result.finish == "tool_calls"]
    valid = sum(result.valid for result in called)
    true_positive = false_positive = false_negative = compared = 0
    for theirs in reference:
        mine = ours.get(theirs.id)
        if mine is None:
            continue
        compared += 1
        pair = (mine.finish == "tool_calls", theirs.finish == "tool_calls")
        true_positive += pair == (True, True)
        false_positive += pair == (True, False)
        false_negative += pair == (False, True)
    return VendorFigures(
        requests=len(ours),
        finished_with_calls=len(called),
        valid_calls=valid,
        schema_accuracy=valid / len(called) if called else 0.0,
        compared=compared,
        true_positive=true_positive,
        false_positive=false_positive,
        false_negative=false_negative,
        tool_call_f1=f1(true_positive, false_positive, false_negative),
    )
