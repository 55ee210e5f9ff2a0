"""Demo models that behave, leak, truncate and worse, in all four dialects: something to point `athena verify` at.

They know the shipped battery by heart and answer every other request with a call that fits its first tool, or with a word. What
goes wrong, and how often, is planted: each answer draws one class of `athena.quality` that it can belong to. The answers are
written here by hand, and not by Athena's own encoders: what is planted is what stands on the wire.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from athena.dialects import get_dialect
from athena.errors import AthenaError
from athena.model.parts import Text, ToolResult
from athena.model.request import Request
from athena.quality import Finding
from athena.verify.cases import VerifyCase, shipped_cases
from athena.verify.metrics import can_show

CREATED = 1_700_000_000
MODELS: dict[str, dict[str, float]] = {
    "demo-behaves": {},
    "demo-leaks": {"leak": 0.25},
    "demo-truncates": {"cut": 0.15},
    "demo-sloppy": {"off_schema": 0.08, "unknown_name": 0.04, "repaired": 0.08, "reasoning_only": 0.04, "error": 0.02},
}
"""The models of `athena demo`, and what each does wrong how often."""
PLANTED = "demo-planted"
"""The model whose faults are given on the command line."""


class DemoReply(msgspec.Struct, frozen=True):
    """What goes on the wire."""

    status: int
    kind: str
    pieces: tuple[bytes, ...]
    is_cut: bool = False
    """The connection is closed in the middle."""


class _Answer(msgspec.Struct):
    reasoning: str = ""
    text: str = ""
    calls: list[tuple[str, str, str]] = []
    """Id, name and arguments."""
    is_malformed: bool = False


class DemoModel:
    """One model with planted faults. Equal seeds and equal requests in equal order give equal answers."""

    def __init__(self, name: str, faults: Mapping[str, float], seed: int = 0) -> None:
        self.name = name
        self.faults = {Finding(label): rate for label, rate in faults.items()}
        self._random = random.Random(f"{name}:{seed}")
        self._count = 0

    def answer(self, dialect: str, body: Mapping[str, Any], *, model: str = "", stream: bool = False) -> DemoReply:
        """The answer to a request in that dialect; Gemini's path names model and mode."""
        streamed = stream or bool(body.get("stream"))
        try:
            request = get_dialect(dialect).decode_request(body, model=model or None, stream=stream or None)
        except AthenaError as error:
            return _error(dialect, 400, error.message)
        if (request.top_p or 0) > 1:
            return _error(dialect, 400, "top_p must be at most 1")
        if not request.turns:
            return _error(dialect, 400, "messages: at least one is needed")
        self._count += 1
        case = _battery().get(_question(request))
        fault = self._drawn(case, request)
        answer = self._made(case, request, fault)
        if fault is Finding.ERROR:
            return _error(dialect, 500, "the model crashed")
        tokens = sum(len(text) for text in (answer.reasoning, answer.text, *(call[2] for call in answer.calls))) // 4 + 3
        asked = len(msgspec.json.encode(body)) // 4
        pieces = _WRITERS[dialect](answer, self.name, streamed, (asked, tokens), f"{self._count}")
        kind = "text/event-stream" if streamed else "application/json"
        if fault is Finding.CUT:
            whole = b"".join(pieces)
            pieces = [whole[: len(whole) // 2]]
        return DemoReply(200, kind, tuple(pieces), fault is Finding.CUT)

    def _drawn(self, case: VerifyCase | None, request: Request) -> Finding | None:
        drawn, before = self._random.random(), 0.0
        for finding, rate in self.faults.items():
            able = can_show(case, finding) if case is not None else finding is not Finding.ECHO
            if not able:
                continue
            before += rate
            if drawn < before:
                return finding
        return None

    def _made(self, case: VerifyCase | None, request: Request, fault: Finding | None) -> _Answer:
        calls = self._calls(case, request)
        if fault is Finding.EMPTY:
            return _Answer()
        if fault is Finding.REASONING_ONLY:
            return _Answer(reasoning="I should answer this. Let me think about it.")
        if fault is Finding.ECHO:
            return _Answer(text=f"The first line is: {_question(request)}")
        if not calls:
            return _Answer(text=(case.contains.upper() if case is not None else "") or "OK, gladly.")
        first_id, name, arguments = calls[0]
        match fault:
            case Finding.LEAK:
                if self._random.random() < 0.5:
                    blocks = [
                        f'<tool_call>\n{{"name": "{one}", "arguments": {given}}}\n</tool_call>' for _, one, given in calls
                    ]
                    return _Answer(text="\n".join(blocks))
                marked = "".join(
                    f"<|tool_call_begin|>functions.{one}:{index}<|tool_call_argument_begin|>{given}<|tool_call_end|>"
                    for index, (_, one, given) in enumerate(calls)
                )
                return _Answer(reasoning=f"<|tool_calls_section_begin|>{marked}<|tool_calls_section_end|>")
            case Finding.INVALID_JSON:
                return _Answer(calls=[(first_id, name, '{"a": unquoted words, ]')], is_malformed=True)
            case Finding.REPAIRED:
                return _Answer(calls=[(first_id, name, arguments.rstrip("}") + ",}" if arguments != "{}" else '{"a": 1,}')])
            case Finding.UNKNOWN_NAME:
                calls[0] = (first_id, f"{name}_now", arguments)
            case Finding.OFF_SCHEMA:
                calls[0] = (first_id, name, '{"unexpected": [1, 2]}')
            case _:
                pass
        return _Answer(calls=calls)

    def _calls(self, case: VerifyCase | None, request: Request) -> list[tuple[str, str, str]]:
        schemas = {tool.name: tool.schema or {} for tool in request.tools}
        choice = request.tool_choice
        if case is not None:
            wanted = [(call.name, call.arguments) for call in case.calls]
            if case.expects == "any" and schemas:
                wanted = [(next(iter(schemas)), {})]
        elif schemas and (choice is None or choice.mode != "none"):
            named = choice.names[0] if choice is not None and choice.mode == "named" else next(iter(schemas))
            wanted = [(named, {})]
        else:
            wanted = []
        return [
            (
                f"call_{self._count}_{position}",
                name,
                msgspec.json.encode({**fitting(schemas.get(name, {})), **arguments}).decode(),
            )
            for position, (name, arguments) in enumerate(wanted)
        ]


def _chat_request(case: VerifyCase) -> Request:
    return get_dialect("openai_chat").decode_request({"model": "m", **case.body})


@cache
def _battery() -> dict[str, VerifyCase]:
    """The shipped cases by their questions. Read with the first request: most gateways with a demo model never ask these."""
    return {_question(_chat_request(case)): case for case in shipped_cases()}


def _question(request: Request) -> str:
    """The last thing that was said to the model."""
    for turn in reversed(request.turns):
        for part in reversed(turn.parts):
            if isinstance(part, Text) and part.text:
                return part.text
            if isinstance(part, ToolResult):
                texts = [inner.text for inner in part.parts if isinstance(inner, Text)]
                if not texts and isinstance(part.structured, dict):
                    texts = [str(value) for value in part.structured.values()]
                return "".join(texts)
    return ""


_MOST_VALUES = 200
_MOST_LETTERS = 100


def fitting(schema: Any) -> Any:
    """A small value that fits a schema of the usual kind. Whatever the schema says, the value stays small."""
    return _fitting(schema, 0, iter(range(_MOST_VALUES)))


def _fitting(schema: Any, depth: int, room: Iterator[int]) -> Any:
    if not isinstance(schema, dict) or depth > 8 or next(room, None) is None:
        return "x"
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return _fitting(schema[key][0], depth + 1, room)
    properties, required = schema.get("properties"), schema.get("required")
    kind = schema.get("type", "object" if properties is not None or not depth else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match kind:
        case "object":
            known = properties if isinstance(properties, dict) else {}
            names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
            return {name: _fitting(known.get(name, {}), depth + 1, room) for name in names[:_MOST_VALUES]}
        case "array":
            count = _count(schema.get("minItems"), 0, 8)
            return [_fitting(schema.get("items"), depth + 1, room) for _ in range(count)]
        case "integer" | "number":
            return _count(schema.get("minimum"), 1, 1 << 31)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "2026-01-01" if "pattern" in schema else "x" * _count(schema.get("minLength"), 1, _MOST_LETTERS)


def _count(value: Any, otherwise: int, most: int) -> int:
    return min(int(value), most) if isinstance(value, int | float) and 0 <= value < 1e18 else otherwise


# -- four ways of writing -----------------------------------------------------------------------------------------------------


def _error(dialect: str, status: int, message: str) -> DemoReply:
    error: dict[str, Any] = {"message": message, "type": "invalid_request_error" if status < 500 else "server_error"}
    body: dict[str, Any] = {"error": error}
    if dialect == "anthropic_messages":
        body = {
            "type": "error",
            "error": {"type": "invalid_request_error" if status < 500 else "api_error", "message": message},
        }
    elif dialect == "gemini":
        word = "INVALID_ARGUMENT" if status < 500 else "INTERNAL"
        body = {"error": {"code": status, "message": message, "status": word}}
    return DemoReply(status, "application/json", (msgspec.json.encode(body),))


def _data(value: Any, event: str = "") -> bytes:
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


def _chat(answer: _Answer, model: str, streamed: bool, usage: tuple[int, int], number: str) -> list[bytes]:
    calls = [
        {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (call_id, name, arguments) in enumerate(answer.calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    message |= {"reasoning_content": answer.reasoning} if answer.reasoning else {}
    message |= {"tool_calls": calls} if calls else {}
    finish = "tool_calls" if calls else "stop"
    counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    head = {"id": f"chatcmpl-{number}", "created": CREATED, "model": model}
    if not streamed:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return [msgspec.json.encode({**head, "object": "chat.completion", "choices": [choice], "usage": counts})]
    head["object"] = "chat.completion.chunk"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _pieces(answer.reasoning)]
    deltas += [{"content": piece} for piece in _pieces(answer.text)]
    for call in calls:
        function: Any = call["function"]
        first = {**call, "function": {"name": function["name"], "arguments": ""}}
        deltas.append({"tool_calls": [first]})
        deltas += [
            {"tool_calls": [{"index": call["index"], "function": {"arguments": piece}}]}
            for piece in _pieces(function["arguments"])
        ]
    out = [_data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas]
    out.append(_data({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
    out.append(_data({**head, "choices": [], "usage": counts}))
    return [*out, b"data: [DONE]\n\n"]


def _messages(answer: _Answer, model: str, streamed: bool, usage: tuple[int, int], number: str) -> list[bytes]:
    blocks: list[dict[str, Any]] = []
    if answer.reasoning:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": "c2ln"})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    for call_id, name, arguments in answer.calls:
        blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": _value(arguments)})
    reason = "tool_use" if answer.calls else "end_turn"
    counts = {"input_tokens": usage[0], "output_tokens": usage[1]}
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model}
    if not streamed:
        return [msgspec.json.encode({**head, "content": blocks, "stop_reason": reason, "stop_sequence": None, "usage": counts})]
    start: dict[str, Any] = {
        **head,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**counts, "output_tokens": 1},
    }
    out = [_data({"type": "message_start", "message": start}, "message_start")]
    for index, block in enumerate(blocks):
        blank: dict[str, Any] = {
            key: ("" if key in ("text", "thinking", "signature") else {} if key == "input" else value)
            for key, value in block.items()
        }
        out.append(_data({"type": "content_block_start", "index": index, "content_block": blank}, "content_block_start"))
        if block["type"] == "tool_use":
            arguments = next(call[2] for call in answer.calls if call[0] == block["id"])
            deltas: list[dict[str, Any]] = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(arguments)]
        elif block["type"] == "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(answer.text)]
        else:
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(answer.reasoning)]
            deltas.append({"type": "signature_delta", "signature": "c2ln"})
        out += [
            _data({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta") for delta in deltas
        ]
        out.append(_data({"type": "content_block_stop", "index": index}, "content_block_stop"))
    delta = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": counts}
    return [*out, _data(delta, "message_delta"), _data({"type": "message_stop"}, "message_stop")]


def _responses(answer: _Answer, model: str, streamed: bool, usage: tuple[int, int], number: str) -> list[bytes]:
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        content = [{"type": "reasoning_text", "text": answer.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": content})
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        items.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]})
    for position, (call_id, name, arguments) in enumerate(answer.calls):
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{number}_{position}",
                "call_id": call_id,
                "name": name,
                "arguments": arguments,
                "status": "completed",
            }
        )
    counts = {
        "input_tokens": usage[0], "input_tokens_details": {"cached_tokens": 0}, "output_tokens": usage[1],
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": sum(usage),
    }  # fmt: skip
    head: dict[str, Any] = {"id": f"resp_{number}", "object": "response", "created_at": CREATED, "model": model, "error": None}
    head |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "incomplete_details": None}
    whole = {**head, "status": "completed", "output": items, "usage": counts}
    if not streamed:
        return [msgspec.json.encode(whole)]
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**head, "status": "in_progress", "output": []}}]
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item["id"]}
        empty: dict[str, Any] = {**item, "status": "in_progress"}
        if item["type"] == "function_call":
            empty["arguments"] = ""
        else:
            empty["content"] = []
        events.append({"type": "response.output_item.added", "output_index": index, "item": empty})
        if item["type"] == "function_call":
            pieces = _pieces(item["arguments"])
            events += [{"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in pieces]
            done = {
                "type": "response.function_call_arguments.done",
                **place,
                "arguments": item["arguments"],
                "name": item["name"],
            }
            events.append(done)
        elif item["type"] == "message":
            events.append(
                {"type": "response.content_part.added", **place, "content_index": 0, "part": {**item["content"][0], "text": ""}}
            )
            events += [
                {"type": "response.output_text.delta", **place, "content_index": 0, "delta": piece, "logprobs": []}
                for piece in _pieces(answer.text)
            ]
            events.append(
                {"type": "response.output_text.done", **place, "content_index": 0, "text": answer.text, "logprobs": []}
            )
            events.append({"type": "response.content_part.done", **place, "content_index": 0, "part": item["content"][0]})
        else:
            events += [
                {"type": "response.reasoning_text.delta", **place, "content_index": 0, "delta": piece}
                for piece in _pieces(answer.reasoning)
            ]
            events.append({"type": "response.reasoning_text.done", **place, "content_index": 0, "text": answer.reasoning})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return [_data({**event, "sequence_number": position}, event["type"]) for position, event in enumerate(events)]


def _gemini(answer: _Answer, model: str, streamed: bool, usage: tuple[int, int], number: str) -> list[bytes]:
    parts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in _pieces(answer.reasoning, 3)]
    parts += [{"text": piece} for piece in _pieces(answer.text, 3)]
    finish = "STOP"
    if answer.is_malformed:
        finish = "MALFORMED_FUNCTION_CALL"
    elif any(not isinstance(_value(call[2]), dict) for call in answer.calls):
        # Arguments are an object here: what is nearly JSON can only stand in the text.
        _, name, arguments = answer.calls[0]
        parts.append({"text": f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'})
    else:
        parts += [{"functionCall": {"id": call[0], "name": call[1], "args": _value(call[2])}} for call in answer.calls]
    counts = {"promptTokenCount": usage[0], "candidatesTokenCount": usage[1], "totalTokenCount": sum(usage)}
    head = {"modelVersion": model, "responseId": f"resp-{number}"}

    def chunk(some: list[dict[str, Any]], last: bool) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": some}, "index": 0}
        return {**head, "candidates": [candidate | ({"finishReason": finish} if last else {})], "usageMetadata": counts}

    if not streamed:
        return [msgspec.json.encode(chunk(parts, True))]
    out = [_data(chunk([part], False)) for part in parts]
    return [*out, _data(chunk([], True))]


def _value(arguments: str) -> Any:
    """The arguments as a value; text that is not JSON stays text, as servers send it."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _pieces(text: str, count: int = 8) -> list[str]:
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)]


_WRITERS = {"openai_chat": _chat, "anthropic_messages": _messages, "openai_responses": _responses, "gemini": _gemini}
