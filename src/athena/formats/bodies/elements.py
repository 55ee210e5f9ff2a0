"""Arguments as one element per key, nested where values are: `<city>Paris</city><tags><item>a</item></tags>`.

The older form of Claude's prompt, elements under a prompt, and MiniMax M3, which puts a token before every tag. Keys need not
be XML names and text has no entities, so nothing here is an XML parser. A string passes as it arrives; any other value waits
for its closing tag, because only then it is known whether it has children, and for the next key, because repetition makes a
list.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from athena.formats.bodies.arguments import skip_to
from athena.formats.bodies.invoke import attributes
from athena.formats.bodies.json_text import quoted
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps, ValueSink
from athena.formats.machine.value_types import SchemaTypes, structured_json, typed_json
from athena.formats.machine.writer import CallWriter

_TAG_END = Lexer((">",))
_DEPTH = 32
_NUMBERED = re.compile(r"(?:item|element|entry)?[_-]?\d+")


def read_elements(
    scan: Scanner, calls: CallWriter, end: str, *, prefix: str = "", given: dict[str, str] | None = None
) -> Steps[None]:
    """Elements up to the tag `end`, which is taken; the open call is closed.

    `prefix`: a token before every tag. `given`: arguments that stood elsewhere, as text.
    """
    members = _Members(calls, prefix)
    for key, text in (given or {}).items():
        members.add(key, text)
    gap = Lexer(("<", prefix) if prefix else ("<",))
    while True:
        yield from scan.space()
        marked = bool(prefix) and bool((yield from scan.found(prefix)))
        yield from scan.space()
        if (yield from scan.found(end)):
            break
        if scan.ended():
            if not scan.ended_well:
                raise Cut
            break
        if (yield from scan.found("<")):
            if not (yield from _element(scan, calls, members, end, prefix)):
                calls.fail(f"a call of {calls.name} has a tag that cannot be read")
                yield from skip_to(scan, calls, Lexer((end,)))
                yield from scan.found(end)
                calls.settle()
                return
        elif marked:
            yield from _unopened(scan, members, prefix)
        else:
            yield from _noise(scan, calls, gap)
    members.finish()
    calls.settle()


def _noise(scan: Scanner, calls: CallWriter, gap: Lexer) -> Steps[None]:
    try:
        text, _ = yield from scan.upto(gap, LOOK_AHEAD * 4)
    except Declined:
        text = scan.take(LOOK_AHEAD)
    calls.noise(text)


def _element(scan: Scanner, calls: CallWriter, members: _Members, end: str, prefix: str) -> Steps[bool]:
    """One element behind its `<`. False when its tag cannot be read."""
    try:
        tag, marker = yield from scan.upto(_TAG_END, LOOK_AHEAD * 4)
    except Declined:
        return False
    if not marker:
        raise Cut
    scan.take(1)
    if tag.startswith("/"):
        # A closing tag too many.
        return True
    name, _, rest = tag.removesuffix("/").strip().partition(" ")
    key = attributes(rest).get("name", "") if name == "parameter" and rest else name
    if not key:
        return False
    if tag.endswith("/"):
        members.add(key, "")
    elif calls.value_type(key).is_text:
        members.begin(key)
        yield from _text(scan, calls.write_text, name, end, prefix, nested=False)
        members.write_end()
    else:
        pieces: list[str] = []
        yield from _text(scan, pieces.append, name, end, prefix, nested=True)
        members.add(key, "".join(pieces))
    return True


def _unopened(scan: Scanner, members: _Members, prefix: str) -> Steps[None]:
    """A value whose opening tag is missing: its name stands in the closing one (MiniMax M3, quantised)."""
    pieces: list[str] = []
    lexer = Lexer((prefix,))
    if not (yield from scan.flow(lexer, pieces.append)):
        raise Cut
    scan.take(len(prefix))
    yield from scan.space()
    if not (yield from scan.found("</")):
        return
    try:
        key, marker = yield from scan.upto(_TAG_END, LOOK_AHEAD * 2)
    except Declined:
        return
    if not marker:
        raise Cut
    scan.take(1)
    members.add(key.strip(), "".join(pieces))


@lru_cache(maxsize=512)
def _lexer(name: str, end: str, prefix: str) -> Lexer:
    return Lexer((prefix,)) if prefix else Lexer((f"</{name}>", f"<{name}>", end))


def _text(scan: Scanner, sink: ValueSink, name: str, end: str, prefix: str, *, nested: bool) -> Steps[None]:
    """An element's content to its closing tag, which is taken, or to the end of the call, which stays."""
    close, again = f"</{name}>", f"<{name}>"
    lexer = _lexer(name, end, prefix)
    depth = 0
    while True:
        marker = yield from scan.flow(lexer, sink)
        if not marker:
            raise Cut
        tag = (yield from scan.follows(len(prefix), (close, again, end), end=False)) if prefix else marker
        size = len(prefix) if prefix else len(marker)
        if tag == close and not depth:
            if prefix or (yield from scan.follows(size, (end, "<"))) is not None:
                scan.take(size)
                if prefix:
                    yield from scan.space()
                    yield from scan.found(close)
                return
        elif tag == close:
            depth -= 1
        elif tag == again and nested:
            depth += 1
        elif tag == end and (prefix or (yield from scan.follows(size, ("<",))) is not None):
            return
        sink(scan.take(size))


class _Members:
    """Writes arguments as the members of one JSON object."""

    def __init__(self, calls: CallWriter, prefix: str) -> None:
        self._calls = calls
        self._prefix = prefix
        self._filled = False
        self._key = ""
        self._values: list[str] = []

    def begin(self, key: str) -> None:
        """A string follows, piece by piece."""
        self._flush()
        self._write_key(key)
        self._calls.write('"')

    def write_end(self) -> None:
        self._calls.write('"')

    def add(self, key: str, text: str) -> None:
        """A whole value. It is written when the next key is another one."""
        self._calls.hold(len(text))
        if key != self._key:
            self._flush()
            self._key = key
        self._values.append(text)

    def finish(self) -> None:
        self._flush()
        self._calls.write("}" if self._filled else "{}")
        self._calls.close()

    def _flush(self) -> None:
        if not self._values:
            return
        types = self._calls.book.types(self._calls.name)
        schema = types.member(types.root, self._key)
        value = repeated_json(self._values, schema, types, self._prefix)
        if value is not None:
            self._write_key(self._key)
            self._calls.write(value)
        self._values = []
        self._key = ""

    def _write_key(self, key: str) -> None:
        self._calls.write(("," if self._filled else "{") + quoted(key) + ":")
        self._filled = True


# -- content to JSON -----------------------------------------------------------------------------------------------------------


def repeated_json(values: list[str], schema: Any, known: SchemaTypes, prefix: str, depth: int = 0) -> str | None:
    """What a key holds whose element stands there once or several times; None: leave it out."""
    if len(values) == 1:
        return element_json(values[0], schema, known, prefix, depth)
    types = known.of(schema).types
    if types is not None and "array" not in types:
        return element_json(values[-1], schema, known, prefix, depth)
    items = known.items(schema)
    return "[" + ",".join(element_json(value, items, known, prefix, depth) or '""' for value in values) + "]"


def element_json(text: str, schema: Any, known: SchemaTypes, prefix: str, depth: int = 0) -> str | None:
    """An element's content as JSON: children by the schema, else by their names; text typed as in every tagged format."""
    kind = known.of(schema)
    types = kind.types
    stripped = text.strip()
    if types is not None and not types & {"object", "array"}:
        return typed_json(text, kind)
    if not stripped and types is not None and len(types) == 1:
        return "[]" if "array" in types else "{}"
    if stripped[:1] in ("{", "["):
        return structured_json(stripped, stripped[0]) or typed_json(text, kind)
    children, words = _children(text, prefix) if depth < _DEPTH else ([], text)
    if not children or (words.strip() and (types is None or "object" not in types)):
        return typed_json(text, kind)
    return _from_children(children, words, schema, known, prefix, depth + 1)


def _from_children(
    children: list[tuple[str, str]], words: str, schema: Any, known: SchemaTypes, prefix: str, depth: int
) -> str:
    types = known.of(schema).types
    names = {name for name, _ in children}
    is_list = types is not None and "object" not in types
    if types is None or {"object", "array"} <= types:
        # Where a template makes lists, it makes them of items; under a prompt models number or repeat as well.
        loose = not prefix and (all(map(_NUMBERED.fullmatch, names)) or (len(names) == 1 and len(children) > 1))
        is_list = names == {"item"} or loose
    if is_list:
        items = known.items(schema)
        return "[" + ",".join(element_json(inner, items, known, prefix, depth) or '""' for _, inner in children) + "]"
    grouped: dict[str, list[str]] = {}
    for name, inner in children:
        grouped.setdefault(name, []).append(inner)
    members = {name: repeated_json(inner, known.member(schema, name), known, prefix, depth) for name, inner in grouped.items()}
    if words.strip():
        members["$text"] = quoted(words.strip())
    return "{" + ",".join(f"{quoted(name)}:{value}" for name, value in members.items() if value is not None) + "}"


def _children(text: str, prefix: str) -> tuple[list[tuple[str, str]], str]:
    """The child elements with their content, and the words between them. No children when a tag is not closed."""
    begin = re.escape(prefix) + r"\s*<"
    opening = re.compile(begin + r"([^\s<>/]+)(?:\s[^<>]*)?(/?)>")
    children: list[tuple[str, str]] = []
    words: list[str] = []
    at = 0
    while (found := opening.search(text, at)) is not None:
        words.append(text[at : found.start()])
        name, closed = found.groups()
        at = found.end()
        if closed:
            children.append((name, ""))
            continue
        depth = 1
        for tag in re.compile(begin + "(/?)" + re.escape(name) + r"\s*>").finditer(text, at):
            depth += -1 if tag.group(1) else 1
            if not depth:
                children.append((name, text[at : tag.start()]))
                at = tag.end()
                break
        else:
            return [], text
    words.append(text[at:])
    return children, "".join(words)
