"""`Lexer`: the earliest of many markers, found by one regular expression."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from athena.formats import all_formats
from athena.formats.machine.recognizer import recognizer
from athena.formats.machine.scanner import Lexer

FORMATS = [known.id for known in all_formats()]


def looked_for(markers: set[str], text: str, at: int, final: bool) -> tuple[int, str | None]:
    """What a search is to find, place by place: what may become a marker before what is one, the longest of several."""
    for start in range(at, len(text)):
        if not final and any(marker != text[start:] and marker.startswith(text[start:]) for marker in markers):
            return start, None
        if found := [marker for marker in markers if text.startswith(marker, start)]:
            return start, max(found, key=len)
    return -1, None


@given(st.sets(st.text("ab<|", min_size=1, max_size=7), max_size=12), st.text("ab<|", max_size=20), st.integers(0, 20))
def test_a_search_finds_what_a_look_at_every_place_finds(markers: set[str], text: str, at: int) -> None:
    lexer = Lexer(sorted(markers))
    for final in (False, True):
        assert lexer.find(text, at, final) == looked_for(markers, text, at, final)


@given(st.data())
def test_the_markers_of_the_formats_are_found_too(data: st.DataObject) -> None:
    markers = set(recognizer(data.draw(st.sampled_from(["auto", *FORMATS]))).text.meanings)
    lexer = _LEXERS.setdefault(frozenset(markers), Lexer(sorted(markers)))
    choice = st.sampled_from(sorted(markers | {"text ", "<", "fu", "\n"}))
    pieces = data.draw(st.lists(st.tuples(choice, st.integers(1, 70)), max_size=4))
    text = "".join(piece[:size] for piece, size in pieces)
    for final in (False, True):
        assert lexer.find(text, 0, final) == looked_for(markers, text, 0, final)


_LEXERS: dict[frozenset[str], Lexer] = {}


def test_the_beginning_of_a_marker_that_is_none_is_none_either() -> None:
    lexer = Lexer(["<a", "<a>", "<a>b"], never={"<a>": "x", "<a>b": "y"})
    for final in (False, True):
        assert lexer.find("<a>x", 0, final) == (-1, None)
        assert lexer.find("<a>by", 0, final) == (-1, None)
        assert lexer.find("<a>bx", 0, final) == (0, "<a>b")
        assert lexer.find("<a>c", 0, final) == (0, "<a>")
        assert lexer.find("<ac", 0, final) == (0, "<a")
