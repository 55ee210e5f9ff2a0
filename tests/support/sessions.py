"""Conversations that grow step by step, as clients of every dialect send them, and the beginning that a prompt cache sees.

The steps are drawn from a seeded generator: several calls at once, ids that servers repeat, names that no API takes, results
with errors and images, instructions in mid-conversation, turns that think and turns that do not.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_NAMES = ("read_file", "mcp__web.search", "9_lives", "a" * 70)
_WORDS = ("yes", "the file is long", "über alles", '{"a": [1, 2]}', "one\ntwo", "  spaces  ", "<tag>", "日本語")


@dataclass(frozen=True)
class Call:
    """A call and what came of it."""

    id: str
    name: str
    arguments: dict[str, Any]
    result: str
    failed: bool
    image: bool


@dataclass(frozen=True)
class Step:
    """What one party said: a user, the instructions, or the model with the results of its calls behind it."""

    role: str
    text: str
    thought: str = ""
    calls: tuple[Call, ...] = ()


def session(seed: int, length: int = 12) -> list[Step]:
    """The steps of one conversation. It begins with the user, and the user or a result always has the last word."""
    rng = random.Random(seed)
    steps = [Step("user", rng.choice(_WORDS))]
    while len(steps) < length:
        kind = rng.choice(("calls", "calls", "calls", "answer", "system"))
        if kind == "system":
            steps.append(Step("system", rng.choice(_WORDS)))
        elif kind == "answer":
            steps += [Step("assistant", rng.choice(_WORDS), _thought(rng)), Step("user", rng.choice(_WORDS))]
        else:
            calls = tuple(_call(rng, len(steps), number) for number in range(rng.randint(1, 3)))
            steps.append(Step("assistant", rng.choice(("", *_WORDS)), _thought(rng), calls))
    return steps


def _thought(rng: random.Random) -> str:
    return rng.choice(("", "", "let me think"))


def _call(rng: random.Random, step: int, number: int) -> Call:
    # Some servers count from zero in every answer.
    call_id = f"call_{number}" if rng.random() < 0.3 else f"call_{step}_{number}_{rng.randrange(10**6)}"
    arguments = {"path": rng.choice(_WORDS), "depth": rng.randrange(5)}
    return Call(call_id, rng.choice(_NAMES), arguments, rng.choice(_WORDS), rng.random() < 0.2, rng.random() < 0.1)


def ends_well(steps: list[Step]) -> bool:
    """May a client send the conversation now?"""
    return steps[-1].role != "assistant" or bool(steps[-1].calls)


def body(dialect: str, steps: list[Step]) -> dict[str, Any]:
    """The conversation as a client of that dialect sends it."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}}}
    if dialect == "anthropic_messages":
        return {
            "model": "m",
            "max_tokens": 4096,
            "system": [{"type": "text", "text": "You are a tester."}],
            "messages": [message for step in steps for message in _anthropic(step)],
            "tools": [{"name": name.replace(".", "-"), "input_schema": schema} for name in _NAMES],
        }
    if dialect == "openai_chat":
        tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in _NAMES]
        messages = [{"role": "system", "content": "You are a tester."}, *(one for step in steps for one in _chat(step))]
        return {"model": "m", "messages": messages, "tools": tools}
    if dialect == "openai_responses":
        tools = [{"type": "function", "name": name, "parameters": schema} for name in _NAMES]
        items = [item for step in steps for item in _items(step)]
        return {"model": "m", "instructions": "You are a tester.", "input": items, "tools": tools}
    return {
        "systemInstruction": {"parts": [{"text": "You are a tester."}]},
        "contents": [content for step in steps for content in _contents(step)],
        "tools": [{"functionDeclarations": [{"name": name, "parametersJsonSchema": schema} for name in _NAMES]}],
    }


def _anthropic(step: Step) -> list[dict[str, Any]]:
    if step.role != "assistant":
        return [{"role": step.role, "content": step.text}]
    blocks: list[dict[str, Any]] = []
    if step.thought:
        blocks.append({"type": "thinking", "thinking": step.thought, "signature": "sig"})
    if step.text:
        blocks.append({"type": "text", "text": step.text})
    results: list[dict[str, Any]] = []
    for call in step.calls:
        name = call.name.replace(".", "-")
        blocks.append({"type": "tool_use", "id": call.id, "name": name, "input": call.arguments})
        shown: list[dict[str, Any]] = [{"type": "text", "text": call.result}]
        if call.image:
            shown.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}})
        results.append({"type": "tool_result", "tool_use_id": call.id, "content": shown, "is_error": call.failed})
    return [{"role": "assistant", "content": blocks}, *([{"role": "user", "content": results}] if results else [])]


def _chat(step: Step) -> list[dict[str, Any]]:
    if step.role != "assistant":
        return [{"role": step.role, "content": step.text}]
    message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
    if step.thought:
        message["reasoning_content"] = step.thought
    if step.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for call in step.calls
        ]
    return [message, *({"role": "tool", "tool_call_id": call.id, "content": call.result} for call in step.calls)]


def _items(step: Step) -> list[dict[str, Any]]:
    if step.role != "assistant":
        return [{"type": "message", "role": step.role, "content": [{"type": "input_text", "text": step.text}]}]
    items: list[dict[str, Any]] = []
    if step.thought:
        items.append({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": step.thought}]})
    if step.text:
        items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": step.text}]})
    items += [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}
        for call in step.calls
    ]
    items += [{"type": "function_call_output", "call_id": call.id, "output": call.result} for call in step.calls]
    return items


def _contents(step: Step) -> list[dict[str, Any]]:
    if step.role != "assistant":
        return [{"role": "user", "parts": [{"text": step.text}]}]
    parts: list[dict[str, Any]] = []
    if step.thought:
        parts.append({"text": step.thought, "thought": True})
    if step.text:
        parts.append({"text": step.text})
    parts += [{"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}} for call in step.calls]
    results = [
        {
            "functionResponse": {
                "id": call.id,
                "name": call.name,
                "response": {"error" if call.failed else "output": call.result},
            }
        }
        for call in step.calls
    ]
    return [{"role": "model", "parts": parts}, *([{"role": "user", "parts": results}] if results else [])]


# -- what a prompt cache sees ------------------------------------------------------------------------------------------------

_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})


def prompt_of(body: dict[str, Any]) -> str:
    """A request body of any dialect in the order in which models read it: tools, instructions, conversation.

    Text is written without quotes, so that text which grows is still a beginning. Cache marks are no part of a prompt.
    """
    said: list[Any] = [body.get("tools") or [], body.get("system") or body.get("instructions") or body.get("systemInstruction")]
    for message in body.get("messages") or body.get("contents") or _listed(body.get("input")):
        said.append({key: value for key, value in message.items() if key not in ("content", "parts")})
        said += _listed(message.get("content", message.get("parts")))
    return "\n".join(one if isinstance(one, str) else _written(one) for one in said)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _written(value: Any) -> str:
    if (isinstance(value, dict) and value.get("type") in ("text", "input_text", "output_text")) or _is_part(value):
        rest = {key: inner for key, inner in value.items() if key not in ("type", "text") and key not in _MARKS}
        return (json.dumps(rest) if rest else "") + str(value["text"])
    return json.dumps(_unmarked(value), ensure_ascii=False)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("text"), str) and "type" not in value


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {key: _unmarked(inner) for key, inner in value.items() if key not in _MARKS}


def shared(before: str, after: str) -> float:
    """How much of `before` is the beginning of `after`."""
    if after.startswith(before):
        return 1.0
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return low / len(before)
