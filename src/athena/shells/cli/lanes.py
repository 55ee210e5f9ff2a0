"""The three lanes of an exchange as plain text: what the upstream sent, what was understood, what the client received."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from athena.recording.view import ReadItem, View

_MOST_LINES = 12
"""Lines of one cell; what is longer is cut in its middle."""


def printed(view: View, columns: int) -> str:
    """The exchange as text that is so many columns wide."""
    row = view.row
    upstream = f" -> {row.upstream}/{row.upstream_model}" if row.upstream else ""
    lines = [
        f"{view.requests.method} {view.requests.path}  {row.model}{upstream}  {row.id}",
        f"{row.status} {row.outcome}{' ' + row.error if row.error else ''}; first byte {view.timing.first_write or 0:.0f} ms, "
        f"total {view.timing.total:.0f} ms, {row.attempts} attempts, {row.calls} calls, "
        f"{row.input_tokens} tokens in, {row.output_tokens} out",
    ]
    if view.help:
        lines.append(f"help: {view.help}")
    lines += [f"note: {note}" for note in view.notes]
    if row.kind == "served":
        same = "the same" if view.replay.equal else "NOT the same"
        lines.append(f"replayed with this version it gives {same} answer")
    lines += [f"  {difference}" for difference in view.replay.differences[:10]]
    lines += ["", *_lanes(view, columns), *_calls(view, columns), *_changes(view)]
    return "\n".join(line.rstrip() for line in lines)


def _lanes(view: View, columns: int) -> Iterator[str]:
    width = max((columns - 10 - 6) // 3, 14)
    yield _line("", ("UPSTREAM SENT", "ATHENA UNDERSTOOD", "CLIENT RECEIVED"), width)
    yield "-" * (10 + 3 * width + 6)
    events: dict[int, list[str]] = {}
    for understood in view.events:
        events.setdefault(understood.step, []).append(_event(understood.event))
    marks: dict[int, list[str]] = {}
    for mark in view.marks:
        marks.setdefault(mark.step, []).append(f"! {mark.text} [{mark.rule}]")
    writes = {item.step: item for item in view.writes}
    for item in view.reads:
        write = writes.get(item.step)
        left = _came(item)
        middle = "\n".join([*events.get(item.step, []), *marks.get(item.step, [])])
        right = (f"(status {write.status})\n" if write is not None and write.status else "") + (write.text if write else "")
        cells = [_cell(text.strip(), width) for text in (left, middle, right)]
        for number in range(max(1, *map(len, cells))):
            time = f"{item.t:8.3f}s" if number == 0 else ""
            parts = tuple(cell[number] if number < len(cell) else "" for cell in cells)
            yield _line(time, (parts[0], parts[1], parts[2]), width)


def _came(item: ReadItem) -> str:
    """What came from the upstream in a step; empty where nothing did."""
    match item.kind:
        case "read":
            return item.text
        case "told":
            return ""
        case kind:
            return f"({kind}{f' {item.status}' if item.status else ''}) {item.note}"


def _line(time: str, parts: tuple[str, str, str], width: int) -> str:
    return f"{time:>9} " + " | ".join(f"{part:<{width}}" for part in parts)


def _cell(text: str, width: int) -> list[str]:
    found: list[str] = []
    for line in text.split("\n"):
        # A cell of a hostile megabyte is cut before it is wrapped.
        if len(line) > width * _MOST_LINES * 2:
            line = f"{line[: width * _MOST_LINES]} ... {line[-width:]}"
        found += textwrap.wrap(line, width, break_on_hyphens=False, drop_whitespace=False) or ([""] if line else [])
    if len(found) > _MOST_LINES:
        left_out = len(found) - _MOST_LINES + 1
        found = [*found[: _MOST_LINES - 2], f"... {left_out} lines ...", found[-1]]
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
        arguments = call.arguments if len(call.arguments) <= columns else call.arguments[: columns - 3] + "..."
        yield f"  {call.call} {call.name} {arguments}"
        yield f"    {', '.join(checks)}"


def _changes(view: View) -> Iterator[str]:
    if not view.requests.changes:
        return
    yield ""
    yield "CHANGED IN THE REQUEST"
    for change in view.requests.changes:
        yield f"  {change.path}: {change.action}, {change.reason}"
