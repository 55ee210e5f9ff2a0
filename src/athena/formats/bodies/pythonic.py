"""Calls written as Python: `name(key=literal, ...)`, one or a list of them.

Values are shown one by one, each when the comma or bracket after it has come.
"""

from __future__ import annotations

import re

from athena.formats.bodies.arguments import pump
from athena.formats.bodies.json_text import quoted
from athena.formats.bodies.python_literals import python_to_json
from athena.formats.bodies.python_span import PythonSpan
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter

_NAME = re.compile(r"[^\W\d][\w.\-]*")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_KEYWORD = re.compile(r"\s*(?:[^\W\d]\w*\s*=(?!=)|\))")
"""Behind the bracket of a call: an argument by name, or none."""
_HEAD_END = Lexer(("(",))
_KEY_END = Lexer(("=", ",", ")", "'", '"', "[", "{", "("))


def read_python_calls(scan: Scanner, calls: CallWriter, *, end: str = "", certain: bool = True) -> Steps[int]:
    """Calls with commas, semicolons or line breaks between; `end` (a closing bracket) is taken. Answers how many there were.

    `certain`: a marker says that these are calls. Otherwise the first is shown when it is whole: until then it may be words.
    """
    found = 0
    while True:
        yield from scan.space()
        if end and (yield from scan.found(end)):
            calls.settle()
            return found
        if found and (yield from scan.found(",", ";")):
            continue
        if scan.ended():
            return found
        if found:
            try:
                yield from _check_name(scan, calls)
            except Declined:
                return found
        yield from read_python_call(scan, calls, listed=bool(end), certain=certain or found > 0)
        found += 1


def _check_name(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """Does another call stand here? Nothing is taken."""
    ahead = yield from scan.peek(LOOK_AHEAD * 2)
    name, bracket, _ = ahead.partition("(")
    if not bracket or not _NAME.fullmatch(name.rstrip()) or not calls.admits(name.rstrip()):
        raise Declined


def read_python_call(scan: Scanner, calls: CallWriter, *, listed: bool = False, certain: bool = True) -> Steps[None]:
    """One call, to its closing bracket."""
    text, marker = yield from scan.upto(_HEAD_END, LOOK_AHEAD * 2)
    name = text.strip()
    if not _NAME.fullmatch(name):
        raise Declined
    if not marker:
        raise Cut
    scan.take(1)
    if not certain:
        ahead = yield from scan.peek(LOOK_AHEAD)
        certain = listed and _KEYWORD.match(ahead) is not None
    calls.open(name, whole=not certain)
    yield from read_python_arguments(scan, calls, listed=listed)


def read_python_arguments(scan: Scanner, calls: CallWriter, *, listed: bool = False) -> Steps[None]:
    """The arguments of the open call behind its bracket; the closing bracket is taken and the call closed."""
    keys: list[str] = []
    opener = "{"
    failed = ""
    while True:
        yield from scan.space()
        if (yield from scan.found(")")):
            break
        if (yield from scan.found(",")):
            continue
        if scan.ended():
            raise Cut
        key, prefix = yield from _key(scan)
        text = (prefix + (yield from _value(scan, calls, listed))).strip()
        if key is None:
            declared = [name for name in calls.book.parameters(calls.name) if name not in keys]
            key = declared[0] if declared else None
        value = python_to_json(text)
        if key is None or value is None:
            failed = failed or text
            continue
        keys.append(key)
        if not failed:
            calls.write(f"{opener}{quoted(key)}:{value}")
            opener = ","
    if failed:
        calls.fail(f"the arguments of {calls.name} are not Python literals: {failed[:100]}")
        return
    calls.write("}" if opener == "," else "{}")
    calls.close()
    calls.settle()


def _key(scan: Scanner) -> Steps[tuple[str | None, str]]:
    """(key, "") before a keyword's value; (None, text) when the text taken belongs to a positional value."""
    try:
        text, marker = yield from scan.upto(_KEY_END, LOOK_AHEAD * 2)
    except Declined:
        return None, ""
    if marker == "=" and _IDENTIFIER.fullmatch(text.strip()):
        scan.take(1)
        return text.strip(), ""
    return None, text


def _value(scan: Scanner, calls: CallWriter, listed: bool) -> Steps[str]:
    """The text of one value, up to the comma or bracket behind it, which stays."""
    pieces: list[str] = []
    yield from pump(scan, PythonSpan(listed=listed), calls.keeper(pieces))
    return "".join(pieces)
