"""Requests as a coding agent sends them, made up: the shape of a captured one, filled with prose and code of the same lengths.

The captured agent sends a billing line and two blocks of instructions of 27 KB, a dozen tools with long descriptions and typed
schemas, and a history of tool rounds: a sentence and a call, then its result. The last blocks carry the cache marks, so a mark
moves on with every turn and the message that had it changes. The growing conversation does the same, turn by turn.
"""

from __future__ import annotations

import argparse as _source_of_code
import copy
import inspect
import random
from collections.abc import Iterator
from typing import Any

import msgspec

from athena.dialects import get_dialect
from athena.dialects.base import EncodeTarget
from athena.prepare import prepare
from athena.profiles import default_profiles

Body = dict[str, Any]

_WORDS = (
    "the", "file", "tool", "use", "when", "must", "path", "of", "a", "to", "and", "in", "for", "command", "run", "returns",
    "only", "if", "it", "this", "is", "not", "an", "edit", "read", "output", "line", "lines", "user", "before", "after", "with",
    "without", "absolute", "string", "match", "exact", "error", "code", "test", "build",
)  # fmt: skip
_JOINTS = (" ", " ", " ", " ", " ", " ", ". ", ",\n", ' "x" ', "\n- ", " \u2014 ", "`rg` ")
_SYSTEM_CHARS = 27_031
_FIRST_CHARS = (724, 168, 443, 1880, 6302, 85, 64, 582, 68)
_TOOLS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    (
        "Agent",
        8227,
        {"description": 46, "prompt": 36, "subagent_type": 51, "model": 358, "effort": 341, "background": "boolean"},
    ),
    ("Bash", 10777, {"command": 22, "timeout": "number", "description": 300, "run_in_background": "boolean"}),
    ("Edit", 1094, {"file_path": 38, "old_string": 19, "new_string": 60, "replace_all": "boolean"}),
    ("ListAgents", 777, {"filter": 60}),
    ("Read", 1782, {"file_path": 31, "offset": "integer", "limit": "integer", "pages": 120}),
    ("ReportFindings", 574, {"level": 60, "title": 80, "findings": "array", "file": 30, "line": "integer", "summary": 200}),
    ("ScheduleWakeup", 3396, {"delaySeconds": "number", "reason": 90, "prompt": 100}),
    ("Skill", 1417, {"skill": 60, "args": 40}),
    ("ToolSearch", 953, {"query": 100, "max_results": "integer"}),
    ("Workflow", 3480, {"steps": "array", "name": 40, "goal": 80}),
    ("Placeholder", 83, {}),
    ("Write", 618, {"file_path": 60, "content": 30}),
)
MODEL = "fake-p0"


class Writer:
    """Prose, code and messages from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._code = inspect.getsource(_source_of_code)

    def prose(self, length: int) -> str:
        """Words about files and tools, that many characters of them."""
        pieces: list[str] = []
        left = length
        while left > 0:
            piece = self._random.choice(_WORDS) + self._random.choice(_JOINTS)
            pieces.append(piece)
            left -= len(piece)
        return "".join(pieces)[:length]

    def code(self, length: int) -> str:
        """Numbered lines of a program, as an agent's tool shows a file."""
        start = self._random.randrange(0, max(1, len(self._code) - length))
        lines = self._code[start : start + length].split("\n")
        return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1))[:length]

    def tools(self, count: int) -> list[Body]:
        """The agent's own tools, and those of a server that has more of the same kind."""
        found = [self._tool(name, chars, fields) for name, chars, fields in _TOOLS]
        for number in range(len(found), count):
            name, chars, fields = _TOOLS[number % len(_TOOLS)]
            found.append(self._tool(f"mcp__server__{name}_{number}", min(chars, 600), fields))
        return found[:count]

    def _tool(self, name: str, chars: int, fields: dict[str, Any]) -> Body:
        properties = {key: self._property(kind) for key, kind in fields.items()}
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": properties,
            "required": list(fields)[:2],
            "additionalProperties": False,
        }
        return {"name": name, "description": self.prose(chars), "input_schema": schema}

    def _property(self, kind: Any) -> Body:
        if isinstance(kind, int):
            return {"description": self.prose(kind), "type": "string"}
        if kind == "array":
            item = {"type": "object", "properties": {"text": {"type": "string"}, "rank": {"type": "integer"}}}
            return {"description": self.prose(60), "type": "array", "items": item}
        return {"description": self.prose(40), "type": kind}

    def round(self, number: int, chars: int) -> list[Body]:
        """A sentence with a call, and its result of about that many characters."""
        call_id = f"toolu_{number:022d}"
        name = self._random.choice(("Read", "Bash", "Edit"))
        given = {"file_path": f"/workdir/src/mod{number}.py", "command": self.prose(60), "limit": number}
        said: list[Body] = [
            {"type": "text", "text": self.prose(self._random.randrange(40, 200))},
            {"type": "tool_use", "id": call_id, "name": name, "input": given},
        ]
        shown = self.code(self._random.randrange(chars // 2, chars * 2))
        result: Body = {"type": "tool_result", "tool_use_id": call_id, "content": shown, "is_error": False}
        return [{"role": "assistant", "content": said}, {"role": "user", "content": [result]}]

    def opening(self, tools: int) -> Body:
        """Everything but the history: instructions, tools, the first message."""
        system: list[Body] = [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.0; cc_entrypoint=cli;"},
            {"type": "text", "text": "You are an agent that writes programs.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": self.prose(_SYSTEM_CHARS), "cache_control": {"type": "ephemeral"}},
        ]
        first = {"role": "user", "content": [{"type": "text", "text": self.prose(chars)} for chars in _FIRST_CHARS]}
        return {
            "model": MODEL,
            "messages": [first],
            "system": system,
            "tools": self.tools(tools),
            "metadata": {"user_id": "somebody"},
            "max_tokens": 32_000,
            "stream": False,
        }


def agent_body(size: int, *, tools: int = 24, result_chars: int = 2400, streamed: bool = False, seed: int = 11) -> Body:
    """A Messages request of about that many bytes. Small results make many messages, large ones few."""
    writer = Writer(seed)
    body = writer.opening(tools)
    messages, length, number = body["messages"], len(msgspec.json.encode(body)), 0
    while length < size or number == 0:
        number += 1
        added = writer.round(number, result_chars)
        messages += added
        length += len(msgspec.json.encode(added))
    _mark(messages[-1])
    return {**body, "stream": streamed}


def growing(
    turns: int = 70, *, tools: int = 24, result_chars: int = 2400, streamed: bool = False, seed: int = 7
) -> Iterator[Body]:
    """One conversation, request after request: each has one more round than the one before, and the cache mark moves on."""
    writer = Writer(7)
    body = {**writer.opening(tools), "stream": streamed}
    history: list[Body] = body["messages"]
    for number in range(1, turns + 1):
        history = history + writer.round(number, result_chars)
        marked = copy.deepcopy(history[-1])
        _mark(marked)
        yield {**body, "messages": [*history[:-1], marked]}


def _mark(message: Body) -> None:
    message["content"][-1]["cache_control"] = {"type": "ephemeral"}


def in_dialect(body: Body, dialect: str) -> Body:
    """The same request as a client of another dialect sends it."""
    if dialect == "anthropic_messages":
        return body
    home, abroad = get_dialect("anthropic_messages"), get_dialect(dialect)
    target = EncodeTarget(body["model"], default_profiles().for_dialect(dialect, body["model"]))
    request = home.decode_request(body)
    written = abroad.encode_request(prepare(request, target, home, abroad).request, target).body
    plain: Body = msgspec.json.decode(msgspec.json.encode(written))
    return plain
