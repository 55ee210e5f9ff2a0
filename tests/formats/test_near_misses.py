"""What is excluded behind an opener (`Opener.never`) is what its reader would decline: without the patterns nothing changes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from athena.formats import all_formats, format_names, get_format
from athena.formats.base import Format
from athena.formats.engine import TextParser
from athena.model.request import Tool
from formats.case_files import TOOLS, folded
from formats.strategies import BITS, own_markers

_TAIL = "\n" + "words that end whatever was open, " * 20
"""A reader that waits can not tell what would have followed; so nothing ends in the middle."""


def _without_patterns(known: Format) -> Format:
    return msgspec.structs.replace(known, openers=tuple(msgspec.structs.replace(opener, never="") for opener in known.openers))


def _read(known: Format, text: str, tools: tuple[Tool, ...] | None) -> list[dict[str, object]]:
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
    known = get_format(format_id)
    for end in range(len(text)):
        for tools in (TOOLS, None):
            parser = TextParser(known, tools=tools)
            events = [*parser.feed(text[:end]), *parser.feed(text[end:] + _TAIL), *parser.close()]
            assert folded(events) == _read(_without_patterns(known), text + _TAIL, tools)


@pytest.mark.parametrize("known", all_formats(), ids=format_names())
def test_a_pattern_excludes_nothing_that_its_reader_would_take(known: Format) -> None:
    asked = _without_patterns(known)
    pieces = st.sampled_from((*own_markers(known) * 2, *BITS))

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(text=st.lists(pieces, max_size=12).map("".join), named=st.booleans())
    def check(text: str, named: bool) -> None:
        tools = TOOLS if named else None
        assert _read(known, text + _TAIL, tools) == _read(asked, text + _TAIL, tools)

    check()
