"""Half characters: replaced where they come in and go out, escaped where nothing may change."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.wire.surrogates import encode_json, lossless_json, without_lone_surrogates


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        (rb'"a\ud83d"', "a\ufffd"),
        (rb'"\ude00a"', "\ufffda"),
        (rb'"\uD83D\uDE00"', "\U0001f600"),
        (rb'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\\ud83d"', "\\ud83d"),
        (rb'"\\\ud83d"', "\\\ufffd"),
    ],
)
def test_lone_halves_are_replaced_and_nothing_else(payload: bytes, wanted: str) -> None:
    assert msgspec.json.decode(without_lone_surrogates(payload)) == wanted


def test_a_payload_without_surrogates_is_the_same_object() -> None:
    payload = '"Gr\u00fc\u00dfe"'.encode()
    assert without_lone_surrogates(payload) is payload


@given(st.text(st.characters()))
def test_any_text_is_encoded(text: str) -> None:
    assert json.loads(lossless_json(text)) == text
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert json.loads(encode_json({text: [text, (text,)]})) == {whole: [whole, [whole]]}
    msgspec.json.decode(encode_json(text))


@given(st.text(st.characters()))
def test_any_escaped_text_can_be_read(text: str) -> None:
    msgspec.json.decode(without_lone_surrogates(json.dumps(text).encode()))
