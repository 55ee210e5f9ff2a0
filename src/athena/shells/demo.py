"""The built-in demo upstream: a scripted model behind a Chat-dialect face, so that a newcomer sees Athena work without a key.

It behaves like an open model served badly, on purpose: asked with tools, it thinks and then writes its call in raw Kimi tokens
inside its reasoning, ends with `finish_reason: stop`, and leaves `tool_calls` empty. Given a tool's result, it answers
from it. It is no language model: it picks the tool named in the question and fills arguments from words of the question.

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
        return "The tool has answered. ", f"The tool says: {_text(last.get('content'))}"
    question = _text(next((message.get("content") for message in reversed(messages) if message.get("role") == "user"), ""))
    tools = [tool["function"] for tool in body.get("tools") or () if tool.get("type") == "function"]
    if not tools or body.get("tool_choice") == "none":
        return "", "I am Athena's demo model. Declare a tool and I will call it the way open models leak their calls."
    tool = _chosen(tools, question, body.get("tool_choice"))
    arguments = msgspec.json.encode(_arguments(tool.get("parameters") or {}, question)).decode()
    call = (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{tool['name']}:0<|tool_call_argument_begin|>"
        f"{arguments}<|tool_call_end|><|tool_calls_section_end|>"
    )
    return f"I need the tool {tool['name']}. {call}", ""


def _follow_prompt(body: dict[str, Any]) -> tuple[str, str]:
    """The answer of the model without tools: it only reads text."""
    messages = [_text(message.get("content")) for message in body.get("messages") or ()]
    lines = [_json_line(line) for text in messages for line in text.split("\n")]
    tools = [line for line in lines if isinstance(line.get("name"), str) and isinstance(line.get("parameters"), dict)]
    last = messages[-1] if messages else ""
    results = [line["result"] for line in map(_json_line, last.split("\n")) if "tool_call_id" in line and "result" in line]
    if results:
        return "", "The tool says: " + "\n".join(map(str, results))
    if not tools:
        return "", "I am Athena's demo model without tools. Describe some in my prompt and I will write calls as JSON."
    # Where instructions and question share a message, the question is its last paragraph.
    question = last.rsplit("\n\n", 1)[-1]
    tool = _chosen(tools, question, None)
    call = {"name": tool["name"], "parameters": _arguments(tool["parameters"], question)}
    return "", msgspec.json.encode([call]).decode()


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


def _chosen(tools: list[dict[str, Any]], question: str, choice: Any) -> dict[str, Any]:
    if isinstance(choice, dict):
        named = (choice.get("function") or {}).get("name")
        tools = [tool for tool in tools if tool["name"] == named] or tools
    words = set(re.findall(r"[a-z]+", question.lower()))

    def fit(tool: dict[str, Any]) -> int:
        return len(words & set(re.findall(r"[a-z]+", tool["name"].lower())))

    return max(tools, key=fit)


def _arguments(schema: dict[str, Any], question: str) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    required = schema.get("required") or list(properties)[:1]
    return {name: _value(name, properties.get(name) or {}, question) for name in required}


def _value(name: str, schema: dict[str, Any], question: str) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    if kind in ("integer", "number"):
        number = re.search(r"\d+", question)
        return int(number.group()) if number else 1
    if kind == "boolean":
        return True
    if kind == "array":
        return []
    if kind == "object":
        return {}
    if "path" in name.lower() or "file" in name.lower():
        path = re.search(r"[\w~.-]*[/.][\w/.-]*\w", question)
        return path.group() if path else question
    proper = re.search(r"(?<=\s)[A-Z]\w+", question)
    return proper.group() if proper else question
