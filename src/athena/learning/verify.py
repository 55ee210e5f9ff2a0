"""Does a learnt format read what its template writes? Calls of many kinds, rendered, cut in every way, read, compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from athena.errors import CannotLearn
from athena.formats.declared.build import declared_format
from athena.formats.declared.description import FormatDescription
from athena.formats.machine.engine import TextParser
from athena.formats.machine.recognizer import Recognizer
from athena.formats.machine.value_types import ToolBook
from athena.learning.infer import LearntFormat
from athena.learning.literals import common_start
from athena.learning.probes import CONTENT, REASONING, USER, ProbeCall, Render, RenderFailed, schema_of
from athena.model.events import Error, Event, TextDelta, ThinkingDelta, ToolCallComplete
from athena.model.parts import ToolCall
from athena.model.request import Tool

PLAIN: tuple[dict[str, Any], ...] = (
    {"city": "Paris"},
    {"city": "Paris", "days": 3},
    {"text": "two words", "flag": True, "ratio": 0.25},
    {"query": "a, b; c: d (e) = f", "limit": 10, "exact": False},
    {},
)
"""Arguments that every format must carry."""
HARD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("double quotes in text", {"text": 'say "hi" now'}),
    ("apostrophes in text", {"text": "it's O'Hare's"}),
    ("several lines of text", {"code": "def f():\n    return 1\n\n# end"}),
    ("text in other scripts", {"text": "北京 Zürich 🙂"}),
    ("angle brackets in text", {"html": "<b>bold</b> & 2 < 3"}),
    ("braces and brackets in text", {"text": "{a} [b] {{c}}"}),
    ("backslashes in text", {"path": "C:\\new\\table"}),
    ("text that looks like a number", {"code": "0042", "flag": "true"}),
    ("empty text", {"text": ""}),
    ("large and negative numbers", {"big": 9007199254740993, "low": -12, "tiny": 1.5e-07}),
    ("lists", {"tags": ["a", "b c", "d"], "numbers": [1, 2, 3]}),
    ("objects", {"filter": {"name": "x y", "inner": {"deep": [1, {"k": "v"}]}}}),
    ("null", {"nothing": None, "city": "Rome"}),
)
"""Arguments that some templates lose; a format that does not carry them is learnt, and says so."""
_SIZES = (1, 2, 3, 5, 8, 13, 34)
_EVERY_CUT = 700
"""Texts up to this long are also cut in two at every place."""


class Verified(NamedTuple):
    """What came of the round trips."""

    texts: int
    cuts: int
    lost: tuple[str, ...]
    """The kinds of arguments that did not come back as they were."""


class Reading(NamedTuple):
    """What was read of one text, in a form that can be compared."""

    text: str
    thinking: str
    calls: tuple[tuple[str, Any], ...]
    ids: tuple[str, ...]
    errors: tuple[str, ...]


def verify(render: Render, learnt: LearntFormat) -> Verified:
    """Raises CannotLearn where the format does not read its template's own calls."""
    recognizer = Recognizer(declared_format(learnt.description))
    texts = cuts = 0
    for calls, content, reasoning in samples(learnt.parallel):
        texts += 1
        cuts += _check(render, learnt, recognizer, calls, content, reasoning, every_cut=True)
    lost: list[str] = []
    for name, arguments in HARD:
        try:
            cuts += _check(render, learnt, recognizer, (ProbeCall("look_up", arguments),), every_cut=False)
            texts += 1
        except (CannotLearn, RenderFailed):
            lost.append(name)
    if learnt_ids(learnt) and not _keeps_ids(render, learnt, recognizer):
        lost.append("ids, which follow the arguments: a call is shown before its id is known")
    return Verified(texts, cuts, tuple(lost))


def samples(parallel: bool) -> Iterator[tuple[tuple[ProbeCall, ...], str | None, str | None]]:
    """Calls that every format must carry, alone and together, with and without words around them."""
    names = ("get_weather", "look_up", "add-item", "x")
    single = [ProbeCall(name, arguments) for name, arguments in zip((*names, "get_time"), PLAIN, strict=True)]
    for call in single:
        yield (call,), None, None
    yield (single[1],), CONTENT, None
    yield (single[0],), None, REASONING
    yield (single[2],), CONTENT, REASONING
    if parallel:
        yield (single[0], msgspec.structs.replace(single[1], id="abcdefgh2")), None, None
        yield tuple(msgspec.structs.replace(call, id=f"abcdefgh{number}") for number, call in enumerate(single)), CONTENT, None


def _check(
    render: Render,
    learnt: LearntFormat,
    recognizer: Recognizer,
    calls: Sequence[ProbeCall],
    content: str | None = None,
    reasoning: str | None = None,
    *,
    every_cut: bool,
) -> int:
    """One text, cut in every way. Answers in how many ways."""
    text = answer_text(render, learnt, calls, content, reasoning)
    if text is None:
        return 0
    book = book_of(calls)
    opened = opened_before(learnt, text)
    whole = read((text,), recognizer, book, opened=opened)
    wanted = tuple((call.name, dict(call.arguments)) for call in calls)
    if whole.calls != wanted or whole.errors:
        raise CannotLearn(_mismatch(wanted, whole, text))
    said = whole.text.strip()
    if said and said != content:
        raise CannotLearn(f"markup of the template stays in the visible text: {said[:80]!r}")
    count = 0
    for pieces in chunkings(text, every_cut=every_cut):
        count += 1
        if read(pieces, recognizer, book, opened=opened) != whole:
            raise CannotLearn("how the text is cut into pieces makes a difference")
    return count


def _keeps_ids(render: Render, learnt: LearntFormat, recognizer: Recognizer) -> bool:
    call = ProbeCall("look_up", {"city": "Paris"}, "zyxwvuts9")
    text = answer_text(render, learnt, (call,)) or ""
    return read((text,), recognizer, book_of((call,))).ids == (call.id,)


def _mismatch(wanted: Sequence[tuple[str, Any]], whole: Reading, text: str) -> str:
    if len(whole.calls) != len(wanted):
        return f"of {len(wanted)} calls {len(whole.calls)} were read back from {text[:120]!r}"
    for (name, arguments), found in zip(wanted, whole.calls, strict=True):
        if (name, arguments) != found:
            return f"a call of {name} with {arguments} was read back as {found[0]} with {found[1]}"
    return f"calls were read back with errors: {whole.errors[0]}"


def answer_text(
    render: Render, learnt: LearntFormat, calls: Sequence[ProbeCall], content: str | None = None, reasoning: str | None = None
) -> str | None:
    """What a model that follows the template writes for these calls, up to the end of its turn.

    None when the template does not write calls and words in one turn.
    """
    try:
        text = render(learnt.way.conversation(calls, content=content, reasoning=reasoning, tools=()))
    except RenderFailed:
        if content is None and reasoning is None:
            raise
        return None
    text = text[text.rfind(USER) + len(USER) :]
    text = text[len(common_start(text, learnt.frame.header)) :]
    last = text.rfind(calls[-1].name)
    if content is not None and (
        last < 0 or any(end in text[text.find(content) : text.find(calls[0].name)] for end in _ends(learnt))
    ):
        return None
    ends = [text.find(end, last) + len(end) for end in _ends(learnt) if end in text[last:]]
    return text[: min(ends)] if ends else text


def _ends(learnt: LearntFormat) -> tuple[str, ...]:
    # What ends a message may begin a section of calls too.
    return tuple(end for end in learnt.description.turn_ends if not learnt.description.call.begin.startswith(end))


def opened_before(learnt: LearntFormat, text: str) -> bool:
    """Does the text begin inside reasoning, because only the prompt opens it?"""
    return any(end in text and begin not in text[: text.find(end)] for begin, end in learnt.description.thinking)


def learnt_ids(learnt: LearntFormat) -> bool:
    """Are ids written in the text?"""
    description = learnt.description
    return "{id}" in description.call.head or (description.call.body == "json" and bool(description.json.id))


def book_of(calls: Sequence[ProbeCall]) -> ToolBook:
    """The tools of these calls, as a parser takes them."""
    known: dict[str, dict[str, Any]] = {}
    for call in calls:
        known.setdefault(call.name, {}).update(call.arguments)
    return ToolBook([Tool(name=name, schema=schema_of(arguments)) for name, arguments in known.items()])


def chunkings(text: str, *, every_cut: bool = True) -> Iterator[list[str]]:
    """The text in pieces of several sizes, and, where it is short and so wanted, in two pieces cut at every place."""
    for size in _SIZES:
        yield [text[at : at + size] for at in range(0, len(text), size)]
    if every_cut and len(text) <= _EVERY_CUT:
        for at in range(1, len(text)):
            yield [text[:at], text[at:]]


def read(pieces: Iterable[str], recognizer: Recognizer, book: ToolBook, *, opened: bool = False) -> Reading:
    """What one parser makes of these pieces."""
    parser = TextParser(recognizer, tools=book, starts_in_thinking=opened)
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.close(ended_well=True)
    complete = [event for event in events if isinstance(event, ToolCallComplete)]
    return Reading(
        "".join(event.text for event in events if isinstance(event, TextDelta)),
        "".join(event.text for event in events if isinstance(event, ThinkingDelta)),
        tuple((event.name, msgspec.json.decode(event.arguments)) for event in complete),
        tuple(event.id for event in complete),
        tuple(event.message for event in events if isinstance(event, Error)),
    )


def own_round_trip(description: FormatDescription, arguments: Mapping[str, Any]) -> bool:
    """Does the format read what its own writer writes?"""
    call = ToolCall(id="abcdefgh1", name="look_up", arguments=msgspec.json.encode(arguments).decode())
    built = declared_format(description)
    if built.inexpressible(call) is not None:
        return True
    text = built.render_calls([call])
    return read((text,), Recognizer(built), book_of((ProbeCall("look_up", arguments),))).calls == (
        ("look_up", dict(arguments)),
    )
