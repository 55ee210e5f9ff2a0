"""`Lexer`: one table of markers, used by parsers of several threads."""

from __future__ import annotations

import re

from athena.formats.machine.scanner import Lexer


def test_a_search_goes_on_while_another_thread_compiles_the_other_one() -> None:
    class Interrupting(dict[str, str]):
        """Searches in the middle of every compilation."""

        def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]  # as narrow as its use
            if found is not None:
                assert lexer.name(found) == "<b>"
            return default

    found: re.Match[str] | None = None
    lexer = Lexer(["<a>", "<b>"], never=Interrupting({"<a>": "x"}))
    found = lexer.any.search("<b>")
    assert found is not None
    assert lexer.find("<b>", 0, True) == (0, "<b>")


def test_the_beginning_of_a_marker_that_is_none_is_none_either() -> None:
    lexer = Lexer(["<a", "<a>", "<a>b"], never={"<a>": "x", "<a>b": "y"})
    for final in (False, True):
        assert lexer.find("<a>x", 0, final) == (-1, None)
        assert lexer.find("<a>by", 0, final) == (-1, None)
        assert lexer.find("<a>bx", 0, final) == (0, "<a>b")
        assert lexer.find("<a>c", 0, final) == (0, "<a>")
        assert lexer.find("<ac", 0, final) == (0, "<a")
