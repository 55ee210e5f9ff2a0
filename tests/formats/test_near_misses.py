"""What is excluded behind an opener (`Opener.never`) is what its reader would decline: without the patterns nothing changes."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.formats import format_names, get_format
from athena.formats.machine.engine import TextParser
from athena.formats.machine.recognizer import Recognizer
from athena.model.request import Tool
from formats.case_files import TOOLS, folded
from formats.strategies import BITS, own_markers
from support.examples import examples

_TAIL = "\n" + "words that end whatever was open, " * 20
"""A reader that waits can not tell what would have followed; so nothing ends in the middle."""


@cache
def _with_patterns(format_id: str) -> Recognizer:
    return Recognizer(get_format(format_id))


@cache
def _without_patterns(format_id: str) -> Recognizer:
    known = get_format(format_id)
    openers = tuple(msgspec.structs.replace(opener, never="") for opener in known.openers)
    return Recognizer(msgspec.structs.replace(known, openers=openers))


def _read(known: Recognizer, text: str, tools: tuple[Tool, ...] | None) -> list[dict[str, object]]:
    parser = TextParser(known, tools=tools)
    return folded([*parser.feed(text), *parser.close()])


@pytest.mark.parametrize(
    ("format_id", "text"),
    [
        ("deepseek_dsml", "<｜DSML｜invoke<parameter name=x>"),
        ("functionary_v3", '>>>>>>>>{{\r\n{"tz": "UTC"}'),
        ("glm_xml", "<tool_call>\nf\x85<tool_call>"),
        ("minimax_m2", '<invoke<x name="f"><parameter name="s">x</parameter></invoke>'),
        ("mistral_args", "[TOOL_CALLSf\n\u2028[TOOL_CALLS]"),
        ("pythonic", "<|python_tag|>\u2028f(a=1)"),
        ("qwen_agent", "✿FUNCTION✿: g<|im_end|> x"),
        ("qwen_agent", "✿FUNCTION✿✿FUNC<|im_end|>x"),
        ("tool_calls_array", "<tool_calls>x\n- name: f\n</tool_calls>"),
    ],
)
def test_texts_that_patterns_and_readers_read_differently_once(format_id: str, text: str) -> None:
    for end in range(len(text)):
        for tools in (TOOLS, None):
            parser = TextParser(_with_patterns(format_id), tools=tools)
            events = [*parser.feed(text[:end]), *parser.feed(text[end:] + _TAIL), *parser.close()]
            assert folded(events) == _read(_without_patterns(format_id), text + _TAIL, tools)


@cache
def _texts(format_id: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from((*own_markers(get_format(format_id)) * 2, *BITS)), max_size=12).map("".join)


@pytest.mark.parametrize("format_id", format_names())
@examples(25)
@given(data=st.data(), named=st.booleans())
def test_a_pattern_excludes_nothing_that_its_reader_would_take(format_id: str, data: st.DataObject, named: bool) -> None:
    text = data.draw(_texts(format_id)) + _TAIL
    tools = TOOLS if named else None
    assert _read(_with_patterns(format_id), text, tools) == _read(_without_patterns(format_id), text, tools)
