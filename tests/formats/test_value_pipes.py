"""The readers of values by themselves: however a text is cut, and however much of it there is at once, they read the same."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from athena.formats.bodies import python_literals
from athena.formats.bodies.arguments import Pipe
from athena.formats.bodies.json_text import JsonPipe
from athena.formats.bodies.python_literals import python_to_json
from athena.formats.bodies.python_span import PythonSpan

WORDS = (
    "{", "}", "[", "]", "(", ")", ",", ":", '"', "'", "\\", " ", "\n", "\t", "true", "false", "null", "True", "None", "tru",
    "x", "key", '"k"', "'k'", '"k": ', "0", "12", "-", "-1.5e+3", "1e", "007", ".5", "1_0", "9" * 70, "a" * 70, "é", "\x01",
    "\\u12", "\\u00e9", '\\"', "\\'", "//", "/*", "*/", '"""', "'''", '"a", ' * 12, "[1, 2.0, null], " * 6,
    '"a": {"b": [true, 1]}, ' * 4,
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(WORDS), max_size=30).map("".join)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=30,
)
PIPES: dict[str, Callable[[], Pipe]] = {
    "lenient": JsonPipe,
    "strict": lambda: JsonPipe(lenient=False),
    "shallow": lambda: JsonPipe(depth_limit=3),
    "python": PythonSpan,
    "bracketed": lambda: PythonSpan(bracketed=True),
}


def read(pipe: Pipe, pieces: list[str]) -> tuple[Any, ...]:
    """All that can be seen of a pipe at the end: what it wrote, how it ended, what it left, what it put right."""
    out: list[str] = []
    left = ""
    for piece in pieces:
        left += piece
        left = left[pipe.feed(left, 0, False, out) :]
    left = left[pipe.feed(left, 0, True, out) :]
    return "".join(out), pipe.done, pipe.stuck, left, getattr(pipe, "repairs", 0)


def cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("name", PIPES)
@given(text=TEXTS, data=st.data())
def test_any_cut_is_read_the_same(name: str, text: str, data: st.DataObject) -> None:
    for text_read in (text, "{" + text, "[" + text):
        whole = read(PIPES[name](), [text_read])
        for size in (1, 3, 4, data.draw(st.integers(2, 100))):
            assert read(PIPES[name](), cut(text_read, size)) == whole


@given(JSON_VALUES, st.sampled_from([None, 2]), st.booleans())
def test_strict_json_passes_as_it_is(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    if not text.startswith(("{", "[", '"')):
        text = f"[{text}]"
    for size in (1, 4, 50, len(text)):
        assert read(JsonPipe(lenient=False), cut(text + "}", size)) == (text, True, False, "}", 0)


@given(TEXTS)
@example("[1, 'it', \"True\", True, {'a': None}]")
@example('\'a"b\', "c"')
@example('"a\\/b"')
@example("'\\x41'")
@example('""" a """')
@example("[" * 90 + "]" * 90)
def test_the_short_way_to_json_gives_what_the_long_way_gives(text: str) -> None:
    short = python_literals._common_literal(text)
    if short is not None:
        reader = python_literals._Reader(text)
        assert short == reader.value(0)
        assert reader.at_end()


@given(JSON_VALUES)
def test_python_literals_keep_their_value(value: Any) -> None:
    written = python_to_json(repr(value))
    assert written is not None
    assert json.loads(written) == value


@pytest.mark.parametrize(
    "text",
    [
        "'''it's ''quoted'' \"so\" '''",
        '"""a \\""" b"" c"""',
        "'' 'a' \"b\" '''c'''",
        "'" + "\\n\\t" * 100 + "'",
        "[  # a list\n 1,\n # two\n\n 2 ]",
        "'\\\\'",
    ],
)
def test_strings_and_comments_of_python_are_read_as_python_reads_them(text: str) -> None:
    written = python_to_json(text)
    assert written is not None
    assert json.loads(written) == ast.literal_eval(text)


@pytest.mark.parametrize("text", ["'a", "'a\\", "'a\\'", '"""a""', "'''a'", "[1 # no end", "#", "'a' #"])
def test_literals_without_an_end_are_none(text: str) -> None:
    assert python_to_json(text) is None
