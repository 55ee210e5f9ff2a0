"""Markers made of tool names have a search of their own: together with that of all other markers it finds what one search for
all of them finds.
"""

from __future__ import annotations

import random

import pytest

from athena.formats import all_formats
from athena.formats.machine.recognizer import Recognizer, recognizer
from athena.formats.machine.scanner import Lexer

NAMES = ("get", "get_weather", "weather", "a", "tool_call", "think", "f.g", "get_weather_now")
WITH_OPENERS = [known.id for known in all_formats() if known.tool_openers is not None]


def one_search(plain: Recognizer, names: tuple[str, ...]) -> Lexer:
    """The search for all markers at once."""
    assert plain.named is not None
    assert plain.named.tool_openers is not None
    own = [opener.marker for opener in plain.named.tool_openers(names)]
    never = {marker: meaning.never for marker, meaning in plain.text.meanings.items() if marker not in own}
    return Lexer(sorted({*plain.text.meanings, *own}), ticks=True, tildes=True, never=never)


@pytest.mark.parametrize("format_id", WITH_OPENERS)
def test_two_searches_find_what_one_finds(format_id: str) -> None:
    plain = recognizer(format_id)
    table = plain.for_tools(NAMES).text
    expected = one_search(plain, NAMES)
    drawn = random.Random(format_id)
    pieces = [*plain.text.meanings, *table.meanings, "text ", "\n", "<", "[", "`", "~", *NAMES]
    for _ in range(400):
        text = "".join(piece[: drawn.randint(1, len(piece))] for piece in drawn.choices(pieces, k=drawn.randint(1, 6)))
        for at in {0, drawn.randint(0, len(text))}:
            for final, search in ((False, table.any), (True, table.final)):
                found = search(text, at)
                got = (-1, None) if found is None else (found.start(), found.group() if found.lastindex else None)
                assert got == expected.find(text, at, final), (text, at, final)


def test_a_name_that_is_another_marker_too_has_both_meanings() -> None:
    plain = recognizer("element_xml")
    known = next(marker for marker in recognizer("auto").text.meanings if marker.startswith("<") and marker.endswith(">"))
    table = recognizer("element_xml", others=True).for_tools((known[1:-1],)).text
    readers = [candidate.format.id for candidate in table.meanings[known].candidates]
    assert readers[0] == "element_xml"
    assert set(readers[1:]) == {one.format.id for one in recognizer("auto").text.meanings[known].candidates}
    assert plain.for_tools(()) is plain


def test_the_search_of_other_markers_is_shared() -> None:
    plain = recognizer("glm_xml")
    first, second = plain.for_tools(("one",)), plain.for_tools(("two",))
    assert first is plain.for_tools(("one",))
    assert first.text.lexer is second.text.lexer is plain.text.lexer


def test_long_names_open_nothing() -> None:
    plain = recognizer("pythonic")
    assert plain.for_tools(("x" * 129,)) is plain
    assert plain.for_tools(("x" * 5000, "y")).text.meanings.keys() - plain.text.meanings.keys() == {"y("}
