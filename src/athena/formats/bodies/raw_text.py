"""Arguments that are no JSON: code for an interpreter, free text for a tool of one parameter.

Such text has no end of its own. It is whole at a marker that may follow it, or where the upstream says that the model stopped
by itself; anything else may have been cut.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec

from athena.formats.bodies.arguments import decoded_arguments
from athena.formats.bodies.json_text import quoted
from athena.formats.machine.scanner import Cut, Declined, Lexer, Scanner, Steps, ValueSink
from athena.formats.machine.value_types import is_json, typed_json
from athena.formats.machine.writer import CallWriter

MarkerTest = Callable[[Scanner, CallWriter, str], Steps[bool]]
"""Is the marker that stands here meant as one?"""

_FENCE_LINE = Lexer(("\n",))
_NOTHING = Lexer(())


def read_raw(scan: Scanner, calls: CallWriter, ends: Lexer, sink: ValueSink, counts: MarkerTest | None = None) -> Steps[str]:
    """Text up to a marker that counts, which stays; "" is the end of the text."""
    while True:
        marker = yield from scan.flow(ends, sink)
        if not marker or counts is None or (yield from counts(scan, calls, marker)):
            return marker
        sink(scan.take(len(marker)))


def read_code(scan: Scanner, calls: CallWriter, ends: tuple[str, ...], counts: MarkerTest | None = None) -> Steps[None]:
    """The arguments of the open call as raw code, perhaps in a fence; the call is closed. The marker behind it stays."""
    yield from scan.space()
    fenced = yield from _fence(scan)
    calls.write("{" + quoted(_only_parameter(calls) or "code") + ': "')
    marker = yield from read_raw(scan, calls, _code_ends(ends, fenced), calls.write_text, counts)
    if not marker and not scan.ended_well:
        raise Cut
    calls.write('"}')
    calls.close()
    if fenced:
        yield from fence_end(scan, calls)


def fence_end(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """The end of a fence around arguments, if it stands here."""
    if (yield from scan.follows(0, ("```",), end=False)) is not None:
        yield from scan.space()
        yield from scan.found("```")
        calls.settle()


def read_free_text(scan: Scanner, calls: CallWriter, ends: Lexer) -> Steps[None]:
    """The arguments of the open call as words: the value of its only parameter, else of one called `input`."""
    pieces: list[str] = []
    marker = yield from read_raw(scan, calls, ends, calls.keeper(pieces))
    if not marker and not scan.ended_well:
        raise Cut
    write_free_text(calls, "".join(pieces).strip())


def write_free_text(calls: CallWriter, text: str) -> None:
    """Words as the arguments of the open call, which is closed. A JSON string is what it holds, `None` nothing."""
    calls.repaired()
    if text.startswith('"') and is_json(text):
        arguments = decoded_arguments(text, lenient=True)
        if arguments is not None:
            calls.write(arguments)
            calls.close()
            return
        text = msgspec.json.decode(text, type=str)
    key = _only_parameter(calls)
    value = quoted(text) if key is None else typed_json(text, calls.value_type(key))
    if value is not None and text not in ("", "None", "null"):
        calls.write(f"{{{quoted(key or 'input')}: {value}}}")
    calls.close()


def drop_rest(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """Everything to the end of the text: what a model made up behind a stop word that its server did not know."""
    while (yield from scan.piece(_NOTHING))[1] is None:
        calls.settle()
    calls.settle()


def _fence(scan: Scanner) -> Steps[bool]:
    if not (yield from scan.found("```")):
        return False
    try:
        _, newline = yield from scan.upto(_FENCE_LINE, 16)
    except Declined:
        return True
    scan.take(len(newline))
    return True


@lru_cache(maxsize=64)
def _code_ends(ends: tuple[str, ...], fenced: bool) -> Lexer:
    return Lexer((*ends, "\n```") if fenced else ends)


def _only_parameter(calls: CallWriter) -> str | None:
    declared = calls.book.parameters(calls.name)
    return declared[0] if len(declared) == 1 else None
