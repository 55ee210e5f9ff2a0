"""Records of a log as it is in life: many formats, several calls, cut and broken ones, and some that cannot be read at all.

The same records as JSON lines, as Python values and as an Arrow table, and Arrow results as JSON lines again, to compare.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow

from athena.batch.lines import encode_outcome

_TOOLS = [{"name": "write_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]
_OTHER_TOOLS = [{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}]
_CALL = '<tool_call>{"name": "write_file", "arguments": {"path": "src/größe.py"}}</tool_call>'
_KIMI = "<|tool_call_begin|>functions.get_time:0<|tool_call_argument_begin|>{}<|tool_call_end|>"

_KINDS: tuple[dict[str, Any], ...] = (
    {"text": f"I will write the file.\n{_CALL}", "tools": _TOOLS},
    {"text": "Nothing to do here: 2 + 2 = 4, and that is that.", "tools": _TOOLS},
    {"text": f"{_CALL}{_CALL}", "model": "Qwen/Qwen2.5-72B-Instruct"},
    {"chunks": [_KIMI[start : start + 5] for start in range(0, len(_KIMI), 5)], "channel": "reasoning", "tools": _OTHER_TOOLS},
    {"text": f"<|tool_calls_section_begin|>{_KIMI[:60]}", "model": "moonshotai/kimi-k2"},
    {"text": 'So <tool_call>{"name": "write_file", "arguments": {"path": </tool_call>', "tools": _TOOLS},
    {"text": "Let me think.</think>Done.", "starts_in_thinking": True},
    {"text": f"An undeclared name: {_CALL}", "tools": _OTHER_TOOLS},
    {"text": f"{_CALL}", "format": "hermes", "channel": None},
)
_UNREADABLE: tuple[dict[str, Any], ...] = (
    {"text": "x", "format": "no_such_format"},
    {"model": "a record without any text"},
    {"text": "x", "channel": "voice"},
    {"text": "x", "tools": [1]},
)


def records(count: int, *, unreadable_every: int = 0) -> Iterator[dict[str, Any]]:
    """`count` records with their number as id; one in `unreadable_every` cannot be read."""
    for number in range(count):
        if unreadable_every and number % unreadable_every == unreadable_every - 1:
            kind = _UNREADABLE[number // unreadable_every % len(_UNREADABLE)]
        else:
            kind = _KINDS[number % len(_KINDS)]
        yield {"id": number, **kind}


def as_lines(given: Iterable[dict[str, Any]]) -> bytes:
    """One line of JSON for each."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in given)


_COLUMNS: list[tuple[str, pyarrow.DataType]] = [
    ("id", pyarrow.int64()),
    ("format", pyarrow.string()),
    ("model", pyarrow.string()),
    ("tools", pyarrow.string()),
    ("text", pyarrow.string()),
    ("chunks", pyarrow.list_(pyarrow.string())),
    ("channel", pyarrow.string()),
    ("starts_in_thinking", pyarrow.bool_()),
]


def as_table(given: Iterable[dict[str, Any]]) -> pyarrow.Table:
    """One row for each; the tools as JSON text."""
    rows = [{**record, "tools": json.dumps(record["tools"])} if record.get("tools") else record for record in given]
    return pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(_COLUMNS))


def outcome_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    """Rows of an Arrow result as `athena parse --jsonl` writes them."""
    return b"".join(encode_outcome(row) + b"\n" for row in rows)
