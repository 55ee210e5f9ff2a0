"""Text behind its escapes."""

from __future__ import annotations

import html
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.wire.escapes import hides_words, plain, unescaped, with_plain_words, without_entities, without_invisible

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\\&\x00"), max_size=60).filter(lambda text: "span" not in text)


@given(TEXTS)
def test_a_json_string_is_undone_by_one_layer(text: str) -> None:
    assert unescaped(json.dumps(text)[1:-1]) == text
    assert unescaped(json.dumps(text, ensure_ascii=False)[1:-1]) == text


@given(TEXTS.filter(lambda text: html.unescape(text) == text))
def test_entities_are_undone_by_one_layer(text: str) -> None:
    assert without_entities(html.escape(text)) == text


@given(TEXTS, st.lists(st.sampled_from(["json", "html"]), max_size=4))
def test_all_layers_are_undone(text: str, layers: list[str]) -> None:
    wrapped = text
    for layer in layers:
        wrapped = json.dumps(wrapped)[1:-1] if layer == "json" else html.escape(wrapped)
    assert plain(wrapped) == plain(text)


@pytest.mark.parametrize(
    "hidden",
    [r"\u0042ash", r"\\u0042ash", r"\x42ash", "&#66;ash", "&#066ash", "&#x42;ash", "&amp;#66;ash", "&amp;amp;#x42;ash"],
)
def test_letters_written_as_escapes_are_seen_and_undone(hidden: str) -> None:
    assert hides_words(hidden)
    assert with_plain_words(f"call {hidden}!") == "call Bash!"


@pytest.mark.parametrize(
    "text",
    [r"\u003ctool\u003e \u00e9 \n \" C:\new", "&lt;b&gt; &#39; &#8217; &#160; &amp;amp;", "#66 &x42; \\u42", "a & b # c"],
)
def test_what_encoders_escape_hides_no_words(text: str) -> None:
    assert not hides_words(text)
    assert with_plain_words(text) == text


def test_characters_that_nobody_sees_are_left_out() -> None:
    assert without_invisible("B\u200ba\u00ads\u2063h\ufeff \U000e0041é") == "Bash é"
    assert plain("a\u200d&lt;\\u200b") == "a<"


def test_a_highlighters_elements_are_left_out() -> None:
    assert without_entities('<span class="k">&quot;name&quot;</span>: <b>x</b>') == '"name": <b>x</b>'


def test_a_pair_of_surrogates_is_one_character_and_half_of_one_is_none() -> None:
    assert unescaped("\\ud83d\\ude00 \\ud83d!") == "😀 \ufffd!"
