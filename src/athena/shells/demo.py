"""The built-in demo upstream: a scripted model behind a Chat-dialect face, so that a newcomer sees Athena work without a key.

It behaves like an open model served badly, on purpose: asked with tools, it thinks and then writes its call in raw Kimi tokens
inside its reasoning, ends with `finish_reason: stop`, and leaves `tool_calls` empty. Given a tool's result, it answers
from it. It is no language model: it picks a tool that the question seems to speak of.

An agent may run what it is told without asking, so the demo calls only tools that read something harmless: those of `_READS`,
known by their names, with arguments that all come from that table. It never calls a tool that runs, writes, changes or fetches
anything, never copies a word of the conversation into an argument, and quotes a tool's result so that it cannot be read as
another call.

Its sibling `athena-demo-prompted` has no tools at all and refuses them. It follows instructions in its prompt literally: it
finds tools described there, one JSON object per line, and answers with the JSON array it was told to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

MODEL = "athena-demo"
PROMPTED_MODEL = "athena-demo-prompted"
CREATED = 1_700_000_000


def demo_refusal(body: dict[str, Any]) -> dict[str, Any] | None:
    """The error body of the model that takes no tools, when it is sent some."""
    if body.get("model") != PROMPTED_MODEL or not body.get("tools"):
        return None
    message = f"{PROMPTED_MODEL} does not support tools"
    return {"error": {"message": message, "type": "invalid_request_error", "param": "tools", "code": None}}


def demo_answer(body: dict[str, Any]) -> list[bytes]:
    """What the demo model sends for a Chat request: the pieces of a stream, or one whole body."""
    reasoning, content = _follow_prompt(body) if body.get("model") == PROMPTED_MODEL else _think(body)
    if body.get("stream"):
        return list(_stream(reasoning, content))
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if reasoning:
        message["reasoning_content"] = reasoning
    whole = {
        "id": "chatcmpl-demo",
        "object": "chat.completion",
        "created": CREATED,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": _usage(reasoning + content),
    }
    return [msgspec.json.encode(whole)]


def _stream(reasoning: str, content: str) -> Iterator[bytes]:
    yield _chunk({"role": "assistant", "content": ""})
    for piece in _pieces(reasoning):
        yield _chunk({"reasoning_content": piece})
    for piece in _pieces(content):
        yield _chunk({"content": piece})
    yield _chunk({}, finish="stop")
    yield _record({"choices": [], "usage": _usage(reasoning + content)})
    yield b"data: [DONE]\n\n"


def _pieces(text: str) -> list[str]:
    """Small pieces, as a tokenizer would cut them: control tokens arrive alone, words with their space."""
    return [piece for piece in re.findall(r"<\|[a-z_]+\|>|\s?[^\s<]+|\s+|<", text) if piece]


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _record({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _record(fields: dict[str, Any]) -> bytes:
    head = {"id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": CREATED, "model": MODEL}
    return b"data: " + msgspec.json.encode({**head, **fields}) + b"\n\n"


def _usage(text: str) -> dict[str, int]:
    output = len(text) // 4 + 1
    return {"prompt_tokens": 42, "completion_tokens": output, "total_tokens": 42 + output}


# -- the script ------------------------------------------------------------------------------------------------------------


def _think(body: dict[str, Any]) -> tuple[str, str]:
    """(reasoning, content) for the conversation so far."""
    messages = body.get("messages") or []
    last = messages[-1] if messages else {}
    if last.get("role") == "tool":
        return "The tool has answered. ", f"The tool says: {_quoted(_text(last.get('content')))}"
    question = _text(next((message.get("content") for message in reversed(messages) if message.get("role") == "user"), ""))
    tools = [tool["function"] for tool in body.get("tools") or () if tool.get("type") == "function"]
    if not tools or body.get("tool_choice") == "none":
        return "", "I am Athena's demo model. Declare a tool and I will call it the way open models leak their calls."
    call = _chosen_call(tools, question, body.get("tool_choice"))
    if call is None:
        return "", _NO_SAFE_TOOL
    arguments = msgspec.json.encode(call.arguments).decode()
    leaked = (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{call.name}:0<|tool_call_argument_begin|>"
        f"{arguments}<|tool_call_end|><|tool_calls_section_end|>"
    )
    return f"I need the tool {call.name}. {leaked}", ""


def _follow_prompt(body: dict[str, Any]) -> tuple[str, str]:
    """The answer of the model without tools: it only reads text."""
    messages = [_text(message.get("content")) for message in body.get("messages") or ()]
    lines = [_json_line(line) for text in messages for line in text.split("\n")]
    tools = [line for line in lines if isinstance(line.get("name"), str) and isinstance(line.get("parameters"), dict)]
    last = messages[-1] if messages else ""
    results = [line["result"] for line in map(_json_line, last.split("\n")) if "tool_call_id" in line and "result" in line]
    if results:
        return "", "The tool says: " + _quoted("\n".join(map(str, results)))
    if not tools:
        return "", "I am Athena's demo model without tools. Describe some in my prompt and I will write calls as JSON."
    # Where instructions and question share a message, the question is its last paragraph.
    question = last.rsplit("\n\n", 1)[-1]
    call = _chosen_call(tools, question, None)
    if call is None:
        return "", _NO_SAFE_TOOL
    return "", msgspec.json.encode([{"name": call.name, "parameters": call.arguments}]).decode()


def _json_line(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _quoted(text: str) -> str:
    """What a tool said, without the characters that begin a call in any text format the demo is read for."""
    return text.translate(_NO_MARKUP)


_NO_MARKUP = str.maketrans({"<": "\u2039", ">": "\u203a", "{": "(", "}": ")", "[": "(", "]": ")", "`": "'"})


# -- what it calls ---------------------------------------------------------------------------------------------------------

_CITIES = ("Tokyo", "Paris", "London", "Berlin", "Oslo", "Rome", "Madrid", "Cairo", "Sydney", "Delhi", "Lima", "New York")
_NAMED_CITY = re.compile(rf"\b(?:{'|'.join(_CITIES)})\b", re.IGNORECASE)
_NO_SAFE_TOOL = (
    "I am Athena's demo model and call only tools that read something harmless, such as get_weather or read_file. None of the "
    "tools you declared is one that I know, so I call nothing. For a real model: athena serve --base-url URL."
)


class _City:
    """In the table of arguments: one of the demo's own cities, the one that the question names if it names one."""


_CITY = _City()
_Values = dict[str, Any]
_WEATHER: _Values = {"city": _CITY, "location": _CITY, "place": _CITY, "unit": "celsius", "units": "celsius", "days": 1}
_TIME: _Values = {"timezone": "UTC", "time_zone": "UTC", "tz": "UTC", "city": _CITY, "location": _CITY}
_FILE: _Values = {
    **dict.fromkeys(("path", "file_path", "filepath", "filename", "file", "absolute_path", "target_file"), "README.md"),
    "offset": 0,
    "limit": 20,
}
_DIRECTORY: _Values = dict.fromkeys(("path", "dir_path", "directory", "dir", "target_directory"), ".")
_PATTERN: _Values = {"pattern": "*.md", "glob": "*.md", "glob_pattern": "*.md", **_DIRECTORY}
_WORD: _Values = {"pattern": "TODO", "query": "TODO", **_DIRECTORY}

_READS: dict[str, _Values] = {
    **dict.fromkeys(("getweather", "getcurrentweather", "getforecast", "weather", "weatherquestion"), _WEATHER),
    **dict.fromkeys(("gettime", "getcurrenttime", "currenttime"), _TIME),
    **dict.fromkeys(("readfile", "read"), _FILE),
    **dict.fromkeys(("listdirectory", "listdir", "listfiles", "ls"), _DIRECTORY),
    **dict.fromkeys(("glob", "findfiles"), _PATTERN),
    **dict.fromkeys(("grep", "search", "searchfiles", "searchfilecontent"), _WORD),
}
"""Tools that only read, by their names in small letters without punctuation, and the value of each argument they may get."""


class _Call(msgspec.Struct, frozen=True):
    """A call that the demo may write."""

    name: str
    arguments: dict[str, Any]


def _chosen_call(tools: list[dict[str, Any]], question: str, choice: Any) -> _Call | None:
    """A call of the tool that the question speaks of, among those that may be called; None when there is none."""
    if isinstance(choice, dict):
        named = (choice.get("function") or {}).get("name")
        tools = [tool for tool in tools if tool["name"] == named]
    words = set(re.findall(r"[a-z]+", question.lower()))
    calls = [call for tool in tools if (call := _harmless_call(tool, question)) is not None]
    return max(calls, key=lambda call: len(words & set(re.findall(r"[a-z]+", call.name.lower()))), default=None)


def _harmless_call(tool: dict[str, Any], question: str) -> _Call | None:
    """The call of a tool; None for one whose name or required arguments are not in the table."""
    known = _READS.get(re.sub(r"[\W_]", "", tool["name"].lower()))
    schema = tool.get("parameters") or {}
    properties = schema.get("properties") or {}
    if known is None or not isinstance(properties, dict):
        return None
    wanted = schema.get("required") or [name for name in list(properties)[:1] if name in known]
    if not isinstance(wanted, list):
        return None
    arguments: dict[str, Any] = {}
    for name in wanted:
        value = known.get(name) if isinstance(name, str) else None
        value = _city(question) if value is _CITY else value
        if value is None or not _fits(value, properties.get(name)):
            return None
        arguments[name] = value
    return _Call(tool["name"], arguments)


def _city(question: str) -> str:
    named = _NAMED_CITY.search(question)
    return next(city for city in _CITIES if named is None or city.lower() == named.group().lower())


def _fits(value: str | int, schema: Any) -> bool:
    """Does the value have the type that the schema names, if it names one? One that asks for certain values is not met."""
    if not isinstance(schema, dict):
        return schema is None
    if "enum" in schema and value not in schema["enum"]:
        return False
    kinds = schema.get("type", "string")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return "string" in kinds if isinstance(value, str) else "integer" in kinds or "number" in kinds
