"""The three lanes of an exchange as plain text: what the upstream sent, what was understood, what the client received.

Records of a stream differ in a few words. Where one begins or ends as the one above it did, an ellipsis stands for that.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len, chop_cells

from athena.recording.view import ReadItem, View
from athena.shells.cli.terminal import safe_text

_MOST_LINES = 12
"""Lines of one cell; what is longer is cut in its middle."""
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_LEAST = 20
"""Characters from which on an ellipsis is worth it."""
_COMPARED = 5000
"""Characters of a record that are compared, from its beginning and from its end."""


def printed(view: View, columns: int) -> str:
    """The exchange as text that is so many columns wide."""
    row = view.row
    upstream = f" -> {row.upstream}/{row.upstream_model}" if row.upstream else ""
    told = [
        f"{view.requests.method} {view.requests.path}  {row.model}{upstream}  {row.id}",
        f"{row.status} {row.outcome}{' ' + row.error if row.error else ''}; first byte {view.timing.first_write or 0:.0f} ms, "
        f"total {view.timing.total:.0f} ms, {_count(row.attempts, 'attempt')}, {_count(row.calls, 'call')}, "
        f"{row.input_tokens} tokens in, {row.output_tokens} out",
    ]
    if view.help:
        told.append(f"help: {view.help}")
    told += [f"note: {note}" for note in view.notes]
    if row.kind == "served":
        same = "the same" if view.replay.equal else "NOT the same"
        told.append(f"replayed with this version it gives {same} answer")
    told += [f"  {difference}" for difference in view.replay.differences[:10]]
    lines = [line for text in told for line in _folded(text, columns)]
    lines += ["", *_lanes(view, columns)]
    for text in (*_calls(view, columns), *_changes(view)):
        lines += _folded(text, columns)
    return "\n".join(line.rstrip() for line in lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _folded(text: str, columns: int) -> list[str]:
    """A line of ours on as many as it needs, each indented as it is and a little more."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    safe = safe_text(text)
    return textwrap.wrap(safe, columns, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False) or [""]


def _lanes(view: View, columns: int) -> Iterator[str]:
    width = max((columns - 10 - 6) // 3, 14)
    heads = ("UPSTREAM SENT", "ATHENA UNDERSTOOD", "CLIENT RECEIVED")
    yield _line("", heads if max(map(len, heads)) <= width else ("UPSTREAM", "ATHENA", "CLIENT"), width)
    yield "-" * (10 + 3 * width + 6)
    events: dict[int, list[str]] = {}
    for understood in view.events:
        events.setdefault(understood.step, []).append(_event(understood.event))
    marks: dict[int, list[str]] = {}
    for mark in view.marks:
        marks.setdefault(mark.step, []).append(f"! {mark.text} [{mark.rule}]")
    writes = {item.step: item for item in view.writes}
    came_before = told_before = ""
    for item in view.reads:
        write = writes.get(item.step)
        came, told = _came(item), write.text.strip() if write else ""
        left = _shorter(came, came_before) if item.kind == "read" else came
        middle = "\n".join([*events.get(item.step, []), *marks.get(item.step, [])])
        right = (f"(status {write.status})\n" if write is not None and write.status else "") + _shorter(told, told_before)
        came_before, told_before = came if item.kind == "read" else came_before, told or told_before
        cells = [_cell(left, width), _cell(middle, width, by_words=True), _cell(right, width)]
        for number in range(max(1, *map(len, cells))):
            time = f"{item.t:8.3f}s" if number == 0 else ""
            parts = tuple(cell[number] if number < len(cell) else "" for cell in cells)
            yield _line(time, (parts[0], parts[1], parts[2]), width)


def _shorter(text: str, before: str) -> str:
    """The text without what the one before it began and ended with, up to where a JSON value begins or ends."""
    same = _same(text, before)
    start = 1 + max(text.rfind(mark, 0, same) for mark in "{[,")
    start = start if start >= _LEAST else 0
    ends_from = len(text) - _same(text[: start - 1 : -1] if start else text[::-1], before[::-1])
    ends = [at for at in (text.find(mark, ends_from) for mark in "}],") if at >= 0]
    stop = min(ends, default=len(text))
    stop = stop if len(text) - stop >= _LEAST else len(text)
    return (_ELLIPSIS if start else "") + text[start:stop] + (_ELLIPSIS if stop < len(text) else "")


def _same(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one[:_COMPARED], other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other), _COMPARED))


def _came(item: ReadItem) -> str:
    """What came from the upstream in a step; empty where nothing did."""
    match item.kind:
        case "read":
            return item.text.strip()
        case "told":
            return ""
        case kind:
            return f"({kind}{f' {item.status}' if item.status else ''}) {item.note}"


def _line(time: str, parts: tuple[str, str, str], width: int) -> str:
    return f"{time:>9} " + " | ".join(part + " " * (width - cell_len(part)) for part in parts)


def _cell(text: str, width: int, *, by_words: bool = False) -> list[str]:
    """The text on lines of that width, as a terminal shows it: some letters take two columns."""
    found: list[str] = []
    for line in safe_text(text.strip().replace("\r\n", "\n").replace("\t", " ")).split("\n"):
        # A cell of a hostile megabyte is cut before it is wrapped.
        if len(line) > width * _MOST_LINES * 2:
            line = f"{line[: width * _MOST_LINES]} ... {line[-width:]}"
        pieces = textwrap.wrap(line, width, break_on_hyphens=False) if by_words else [line]
        found += [part for piece in pieces for part in chop_cells(piece, width)]
    if len(found) > _MOST_LINES:
        left_out = len(found) - _MOST_LINES + 1
        found = [*found[: _MOST_LINES - 2], f"... {left_out} lines", found[-1]]
    return found


def _event(event: dict[str, Any]) -> str:
    kind = event["event"]
    match kind:
        case "TextDelta":
            return f"text {event['text']!r}"
        case "ThinkingDelta":
            return f"thinking {event.get('text', '')!r}" + (" (signed)" if event.get("signature") else "")
        case "ToolCallStart":
            return f"call {event['call']} {event['name']} starts, id {event['id']}"
        case "ToolCallDelta":
            return f"call {event['call']} arguments {event['arguments']!r}"
        case "ToolCallComplete":
            return f"call {event['call']} {event['name']} is complete" + (", repaired" if event.get("repaired") else "")
        case "Done":
            return f"done: {event['finish'].get('kind', 'stop')}"
        case "Error":
            return f"error {event.get('code', '')}: {event['message']}"
    return str(kind)


def _calls(view: View, columns: int) -> Iterator[str]:
    if not view.calls:
        return
    yield ""
    yield "CALLS"
    for call in view.calls:
        checks = [
            "complete" if call.complete else "NOT complete",
            f"JSON {call.json}",
            "declared" if call.declared else "NOT declared",
            f"schema {call.schema}" + (f" ({call.schema_problem})" if call.schema_problem else ""),
            f"came as {call.came_as}",
            f"finish {call.finish or 'none'}",
            *(("repaired",) if call.repaired else ()),
            f"id from {'the upstream' if call.id_from == 'upstream' else 'us'}",
        ]
        told = f"  {call.call} {call.name} {call.arguments}"
        yield told if len(told) <= columns else told[: columns - 3] + "..."
        yield f"    {', '.join(checks)}"


def _changes(view: View) -> Iterator[str]:
    if not view.requests.changes:
        return
    yield ""
    yield "CHANGED IN THE REQUEST"
    for change in view.requests.changes:
        yield f"  {change.path}: {change.action}, {change.reason}"
