"""Whatever a model writes: a declared format says the same however the text is cut, and never raises."""

from __future__ import annotations

import random

import pytest

from athena.formats.declared.build import declared_format
from athena.formats.declared.description import holes, markers
from athena.formats.machine.engine import TextParser
from athena.formats.machine.recognizer import Recognizer
from athena.learning.probes import ProbeCall
from athena.learning.verify import book_of, read
from athena.model.events import TextDelta
from athena.model.parts import ToolCall
from learning.invented import INVENTED

WORDS = (
    *(" ", "\n", "word", "look_up", "look_up", "city", "Paris", "7"),
    *('{"city": "x"}', "{", "}", "[", "]", "(", ")", '"', ",", "=", "`"),
)
TEXTS = 150
FOUND = {
    # The last of several beginnings of a call is the beginning of the section's marker.
    "answer_in_tags": ('{=<|part|>answer<|is|>{"<|part|><|part|>tools<|is|><|part|>look_up<|is|>{"city": "x"}<|end|><|{',),
    "control_tokens": (
        # A piece that is the line break behind the opening of reasoning, with tokens between them.
        '<think><|ran|><|nf|>\n\n<|run|><|fn|>look_up<|with|>{"city": "x"}<|nf|>',
        # White space in a piece of its own between a call and words: no token was left over.
        '<|run|><|fn|>look_up<|with|>{"city": "x"}<|nf|><|ran|>   city<|ran|>',
    ),
}
"""Texts that were once read by their cuts."""


@pytest.mark.parametrize("name", INVENTED)
def test_the_cuts_make_no_difference(name: str) -> None:
    description = INVENTED[name].expected
    built = declared_format(description)
    recognizer, book = Recognizer(built), book_of((ProbeCall("look_up", {"city": "x"}),))
    whole = built.render_calls([ToolCall(id="abcdefgh1", name="look_up", arguments='{"city": "x"}')])
    heads = [text for text, _ in holes(description.call.head) if text]
    parts = (*markers(description), *heads, *WORDS, whole, whole[:-5], whole[7:])
    choose = random.Random(name)
    for _ in range(TEXTS):
        text = "".join(choose.choices(parts, k=choose.randint(1, 14)))
        expected = read((text,), recognizer, book)
        size = choose.randint(2, 9)
        for pieces in (text, [text[at : at + size] for at in range(0, len(text), size)]):
            assert read(pieces, recognizer, book) == expected, text


@pytest.mark.parametrize("name", INVENTED)
def test_the_cuts_of_repeated_markers_make_no_difference(name: str) -> None:
    description = INVENTED[name].expected
    built = declared_format(description)
    recognizer, book = Recognizer(built), book_of((ProbeCall("look_up", {"city": "x"}),))
    whole = built.render_calls([ToolCall(id="abcdefgh1", name="look_up", arguments='{"city": "x"}')])
    repeated = [marker * times + whole for marker in markers(description) for times in (1, 2, 4)]
    for text in (*repeated, *FOUND.get(name, ())):
        expected = read((text,), recognizer, book)
        for size in (1, 2, 3, 5, 8, 13):
            assert read([text[at : at + size] for at in range(0, len(text), size)], recognizer, book) == expected, text


def test_a_beginning_before_a_section_is_no_call() -> None:
    description = INVENTED["answer_in_tags"].expected
    book = book_of((ProbeCall("look_up", {"city": "x"}),))
    found = read(FOUND["answer_in_tags"], Recognizer(declared_format(description)), book)
    assert found.calls == (("look_up", {"city": "x"}),)


@pytest.mark.parametrize("name", INVENTED)
def test_prose_about_a_format_stays_prose(name: str) -> None:
    description = INVENTED[name].expected
    parser = TextParser(declared_format(description), tools=book_of((ProbeCall("look_up", {"city": "x"}),)))
    # A delimiter of reasoning has its meaning even in the middle of text: the prompt may have opened it.
    delimiters = (*description.thinking, *description.answer)
    told = [one for one in markers(description) if not any(one in pair for pair in delimiters)]
    # Farther apart than a reader looks.
    joint = " and then, behind a good many words about something that is not a call at all, "
    text = f"The model writes {joint.join(told)} around its calls, I think. So look_up is called."
    events = [*parser.feed(text), *parser.close(ended_well=True)]
    assert all(isinstance(event, TextDelta) for event in events)
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert said == text
