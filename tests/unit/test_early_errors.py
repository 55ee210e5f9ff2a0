"""A wrong argument of the library is refused at once, with a message that says what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

import athena
from athena.dialects import dialect_names
from athena.errors import UsageError
from athena.formats import ALIASES, format_names
from athena.model.names import DialectName, FormatName

ANY: Any = None  # what type checkers would refuse, and programs pass all the same


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda: athena.parse(ANY), TypeError, "text must be a str, not NoneType"),
        (lambda: athena.parse(b"x"), TypeError, "decode it first"),  # type: ignore[arg-type]
        (lambda: athena.parse("x", format=ANY), TypeError, "format must be a str"),
        (lambda: athena.parse("x", format="hermse"), UsageError, "did you mean hermes?"),
        (lambda: athena.parse("x", repair="all"), UsageError, "repair must be one of off, syntax, schema"),  # type: ignore[arg-type]
        (lambda: athena.parse("x", channel="think"), UsageError, "channel must be one of"),  # type: ignore[arg-type]
        (lambda: athena.parse("x", echo="no"), UsageError, "echo must be one of"),  # type: ignore[arg-type]
        (lambda: athena.Parser(format=3), TypeError, "format must be a str"),  # type: ignore[arg-type]
        (lambda: athena.detect_format(ANY), TypeError, "model must be a str"),
        (lambda: athena.render_calls(ANY, format="hermes"), TypeError, "calls must be a list"),
        (lambda: athena.render_calls([], format=ANY), TypeError, "format must be a str"),
        (lambda: athena.translate_request(ANY, source="gemini", target="openai_chat"), TypeError, "a body must be a mapping"),
        (lambda: athena.translate_request({}, source="openai", target="gemini"), UsageError, "known: anthropic_messages"),
        (lambda: _translator().feed("data: {}"), TypeError, "data must be bytes, not str"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_is_named_at_once(wrong: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says.replace("?", r"\?")):
        wrong()


def _translator() -> athena.StreamTranslator:
    request = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    return athena.StreamTranslator(source="anthropic_messages", target="openai_chat", request=request)


def test_the_names_that_editors_offer_are_those_that_are_there() -> None:
    assert sorted(get_args(DialectName)) == sorted(dialect_names())
    assert sorted(get_args(FormatName)) == sorted(("auto", "standard", *ALIASES, *format_names()))
