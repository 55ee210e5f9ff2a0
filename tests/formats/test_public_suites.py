"""Judged cases of public suites (SGLang, vLLM, Ollama, mlx-lm, llama.cpp, Dynamo): the same calls, text and reasoning.

The cases are not part of this project: ATHENA_FIDELITY names a folder with `outside.jsonl` and `vectors.jsonl`. Those that a
policy of ours decides otherwise are listed with that policy (`docs/text-formats-rules.md`). Without the folder there is nothing
to compare.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from athena.parsing import parse_pieces

FOLDER = os.environ.get("ATHENA_FIDELITY", "")

pytestmark = pytest.mark.skipif(not FOLDER, reason="ATHENA_FIDELITY names no folder of judged cases")

DECIDED_OTHERWISE = {
    "outside.0257": "a token with words behind it is text: nothing vanishes unless it became a call",
    "outside.0696": "text once shown is never taken back, white space before reasoning included",
    "vec.312": "reserved tokens count inside reasoning",
    "vec.363": "reserved tokens count inside reasoning",
}


@pytest.mark.parametrize("name", ["outside", "vectors"])
def test_public_cases(name: str) -> None:
    lines = (Path(FOLDER) / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    differing = {case["id"] for case in cases if not _agrees(case, (case["text"],))}
    assert differing == DECIDED_OTHERWISE.keys() & {case["id"] for case in cases}


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("name", ["outside", "vectors"])
def test_public_cases_in_pieces(name: str, size: int) -> None:
    for line in (Path(FOLDER) / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        text = case["text"]
        pieces = tuple(text[at : at + size] for at in range(0, len(text), size))
        whole, cut = _parsed(case, (text,)), _parsed(case, pieces)
        assert (cut.text, cut.thinking, cut.calls) == (whole.text, whole.thinking, whole.calls), case["id"]


def _parsed(case: dict[str, Any], pieces: tuple[str, ...]) -> Any:
    return parse_pieces(
        pieces,
        format=case["format"],
        model=case.get("model"),
        tools=case["tools"] or None,
        starts_in_thinking=case.get("starts_in_thinking", False),
        seed="",
    )


def _agrees(case: dict[str, Any], pieces: tuple[str, ...]) -> bool:
    found, expected, match = _parsed(case, pieces), case["expect"], case.get("match") or {}
    calls = [(call.name, json.loads(call.arguments)) for call in found.calls]
    # Numbers are equal however they are written; a truth value is not a number.
    wanted = [(call["name"], call["arguments"]) for call in expected["tool_calls"]]
    if not _same(calls, wanted):
        return False
    for key in ("text", "thinking"):
        how = match.get(key, "exact")
        if key not in expected or how == "skip":
            continue
        has, wants = getattr(found, key), expected[key] or ""
        if (" ".join(has.split()), " ".join(wants.split())) != (has, wants) and how == "ws":
            has, wants = " ".join(has.split()), " ".join(wants.split())
        if has != wants:
            return False
    return True


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)
