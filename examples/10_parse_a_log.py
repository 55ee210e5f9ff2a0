"""Read the calls out of a log or a dataset, one record per answer.

A record that cannot be read comes out with the reason, never as an exception, so a batch of millions ends. The command line
does the same with all cores: `athena parse --jsonl --workers 8 log.jsonl -o calls.jsonl`.

    python examples/10_parse_a_log.py [LOG.jsonl]
"""

import collections
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import athena

RECORDS: list[dict[str, Any]] = [
    {"id": 1, "model": "moonshotai/kimi-k2-0905", "text": athena.render_calls(
        [{"id": "functions.search:0", "name": "search", "arguments": '{"query": "athena"}'}], format="kimi_k2")},
    {"id": 2, "model": "Qwen/Qwen3-8B",
     "chunks": ["<tool_c", 'all>\n{"name": "search", "arguments": {"query": "ow', 'l"}}\n</tool_call>']},
    {"id": 3, "text": "No call at all."},
    {"id": 4, "text": '<tool_call>\n{"name": "search", "arguments": {"query": "ath'},
    {"id": 5, "text": '<tool_call>\n{"name": "search", "arguments": {\'query\': "olive",}}\n</tool_call>'},
    {"id": 6},
]  # fmt: skip


def records() -> Iterator[dict[str, Any]]:
    """The log named on the command line, line by line, else a small one."""
    if sys.argv[1:]:
        with Path(sys.argv[1]).open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
    else:
        yield from RECORDS


counted: collections.Counter[str] = collections.Counter()
for outcome in athena.parse_batch(records()):
    for call in outcome["tool_calls"]:
        print(f"{outcome['id']}: {outcome['format']} {call['name']} {call['arguments']}")
        counted[call["name"]] += 1
    for problem in outcome["errors"]:
        print(f"{outcome['id']}: {problem['code']}: {problem['message']}")
print("calls by tool:", dict(counted))
