"""Every regular expression of the package means the same on every supported interpreter, and takes bounded memory.

CPython before 3.11.5 (Debian 12 has 3.11.2) matches too much where a group is repeated possessively, so no expression may do
that. Expressions are built in many places and many of them only when they are first needed; `compiled_patterns` has them all
compiled, and the source is searched for places that it did not reach.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]  # the tree of an expression is told by nothing public
from typing import Any

import pytest

from architecture.compiled_patterns import SOURCE, refused_in

_FUNCTIONS = {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}


@pytest.fixture(scope="module")
def report() -> Any:
    program = Path(__file__).with_name("compiled_patterns.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_no_compiled_expression_repeats_a_group_possessively_or_without_a_bound(report: Any) -> None:
    assert report["count"] > 300, "the program no longer sees the expressions of the package"
    assert report["refused"] == {}


def test_every_place_that_compiles_an_expression_was_seen_or_has_a_constant_one(report: Any) -> None:
    seen = {(file, line) for file, line in report["places"]}
    unknown = []
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        for call in _calls_of_re(path):
            if any((file, line) in seen for line in range(call.lineno, (call.end_lineno or call.lineno) + 1)):
                continue
            pattern = call.args[0]
            if isinstance(pattern, ast.Constant):
                assert list(refused_in(_parser.parse(pattern.value))) == [], f"{file}:{call.lineno}"
            else:
                unknown.append(f"{file}:{call.lineno}")
    assert not unknown, f"let compiled_patterns.py run what builds these expressions: {unknown}"


def _calls_of_re(path: Path) -> Iterator[ast.Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module != "re", f"{path}: write `import re`, so that its uses can be found"
        elif isinstance(node, ast.Import):
            assert all(name.name != "re" or name.asname is None for name in node.names), f"{path}: call it re"
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _FUNCTIONS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
        ):
            yield node


@pytest.mark.parametrize(
    "pattern",
    ["a*+", "[ab]++", ".?+", r"\d{2,4}+", "(?:a)*+", "(?:a|b)*+", "(?:ab){0,9}", "(?:a++b)?", "(?=a*+)", r"(a)\1"],
)
def test_repeats_of_one_character_and_bounded_plain_groups_are_let_through(pattern: str) -> None:
    assert list(refused_in(_parser.parse(pattern))) == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:ab)*+",
        "(?:a|bc)++",
        "(?:a?)?+",
        "(?:ab){2,3}+",
        "(a)*+",
        "(?>a)",
        "(?>ab?)",
        "x(?=y(?:ab)*+)",
        "x|(?:y(?:ab)?+)?",
        "(?:ab)*",
        "(a|b)+?",
    ],
)
def test_groups_that_are_not_given_back_or_have_no_bound_are_refused(pattern: str) -> None:
    assert list(refused_in(_parser.parse(pattern)))


def test_a_possessive_repeat_of_a_single_character_is_a_plain_one_that_gives_nothing_back() -> None:
    """What the rule above rests on, asked of the interpreter that runs this, over all short texts of three letters."""
    texts = [""]
    for _ in range(6):
        texts += [text + letter for text in texts for letter in "ab,"]
        texts = list(dict.fromkeys(texts))
    for item, count in ((item, count) for item in ("a", "[ab]", "[^,]") for count in ("*", "+", "?", "{1,2}", "{2,3}")):
        possessive = re.compile(f"({item}{count}+)([ab,]?)(?=(,?))").match
        greedy, rest = re.compile(item + count).match, re.compile("[ab,]?").match
        for text in texts:
            found, first = possessive(text), greedy(text)
            assert (found is None) == (first is None), (item, count, text)
            if found is not None and first is not None:
                behind = rest(text, first.end())
                assert behind is not None
                assert found.group(1, 2) == (first.group(), behind.group()), (item, count, text)
