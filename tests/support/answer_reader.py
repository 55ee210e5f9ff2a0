"""What an answer says, read from its bytes by hand: as little code as it takes, and none of ours or of the SDKs'."""

from __future__ import annotations

import json
from typing import Any

from support.canonical import Piece, Seen, merge


def read_whole(dialect: str, value: dict[str, Any]) -> Seen:
    """A whole answer of that dialect."""
    return _WHOLE[dialect](value)


def read_stream(dialect: str, records: list[tuple[str, Any]]) -> Seen:
    """An answer of that dialect in events: names and values, in their order."""
    return _STREAM[dialect]([value for _, value in records if value != "[DONE]"])


def _value(arguments: str) -> Any:
    """Arguments as a value; those of a call that was cut stay text."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _chat(value: dict[str, Any]) -> Seen:
    choice = next(choice for choice in value["choices"] if choice["index"] == 0)
    message = choice["message"]
    calls = message.get("tool_calls") or []
    pieces = [
        Piece("thinking", message.get("reasoning_content") or ""),
        Piece("text", message.get("content") or ""),
        Piece("text", message.get("refusal") or ""),
        *(Piece("call", call["function"]["name"], _value(call["function"]["arguments"])) for call in calls),
    ]
    return Seen(merge(pieces), choice["finish_reason"], ids=[call["id"] for call in calls])


def _chat_stream(values: list[Any]) -> Seen:
    words: dict[str, list[str]] = {"reasoning_content": [], "content": [], "refusal": []}
    calls: dict[int, dict[str, Any]] = {}
    arguments: dict[int, list[str]] = {}
    finish = ""
    for choice in (choice for value in values for choice in value["choices"] if choice["index"] == 0):
        delta = choice["delta"]
        for name, said in words.items():
            said.append(delta.get(name) or "")
        for call in delta.get("tool_calls") or ():
            function = call["function"]
            if call["index"] not in calls:
                calls[call["index"]] = {"id": call["id"], "function": {"name": function["name"]}}
            arguments.setdefault(call["index"], []).append(function.get("arguments") or "")
        finish = choice["finish_reason"] or finish
    for index, pieces in arguments.items():
        calls[index]["function"]["arguments"] = "".join(pieces)
    message = {name: "".join(said) for name, said in words.items()} | {"tool_calls": [calls[index] for index in sorted(calls)]}
    return _chat({"choices": [{"index": 0, "message": message, "finish_reason": finish}]})


def _messages(value: dict[str, Any]) -> Seen:
    pieces, ids = [], []
    for block in value["content"]:
        if block["type"] == "tool_use":
            ids.append(block["id"])
            pieces.append(Piece("call", block["name"], block["input"]))
        elif block["type"] in ("text", "thinking"):
            pieces.append(Piece(block["type"], block[block["type"]]))
    return Seen(merge(pieces), value["stop_reason"], ids=ids)


def _messages_stream(values: list[Any]) -> Seen:
    blocks: dict[int, dict[str, Any]] = {}
    said: dict[int, list[str]] = {}
    stop = ""
    for value in values:
        if value["type"] == "content_block_start":
            blocks[value["index"]] = value["content_block"]
            said[value["index"]] = []
        elif value["type"] == "content_block_delta":
            delta = value["delta"]
            said[value["index"]].append(delta.get("text") or delta.get("thinking") or delta.get("partial_json") or "")
        elif value["type"] == "message_delta":
            stop = value["delta"]["stop_reason"] or stop
    for index, block in blocks.items():
        text = "".join(said[index])
        if block["type"] == "tool_use":
            block["input"] = _value(text or "{}")
        elif block["type"] in ("text", "thinking"):
            block[block["type"]] += text
    return _messages({"content": [blocks[index] for index in sorted(blocks)], "stop_reason": stop})


def _responses(value: dict[str, Any]) -> Seen:
    pieces, ids = [], []
    for item in value["output"]:
        if item["type"] == "message":
            pieces += [Piece("text", part.get("text") or part.get("refusal") or "") for part in item["content"]]
        elif item["type"] == "reasoning":
            pieces += [Piece("thinking", part["text"]) for part in (*item["summary"], *(item.get("content") or ()))]
        elif item["type"] == "function_call":
            ids.append(item["call_id"])
            pieces.append(Piece("call", item["name"], _value(item["arguments"])))
    details = value.get("incomplete_details")
    return Seen(merge(pieces), value["status"] + (f"/{details['reason']}" if details else ""), ids=ids)


def _responses_stream(values: list[Any]) -> Seen:
    """What its last event holds; the text in the deltas must be the same."""
    seen = _responses(values[-1]["response"])
    spoken = ("response.output_text.delta", "response.refusal.delta")
    said = "".join(value["delta"] for value in values if value["type"] in spoken)
    assert said == seen.joined("text"), "the deltas say something else than the end"
    return seen


def _gemini(value: dict[str, Any]) -> Seen:
    return _gemini_stream([value])


def _gemini_stream(values: list[Any]) -> Seen:
    pieces, ids, finish = [], [], ""
    for candidate in (candidate for value in values for candidate in value.get("candidates") or ()):
        finish = candidate.get("finishReason") or finish
        for part in (candidate.get("content") or {}).get("parts") or ():
            if "functionCall" in part:
                call = part["functionCall"]
                ids.append(call.get("id") or "")
                pieces.append(Piece("call", call["name"], call.get("args") or {}))
            elif part.get("text"):
                pieces.append(Piece("thinking" if part.get("thought") else "text", part["text"]))
    return Seen(merge(pieces), finish, ids=ids)


_WHOLE = {
    "openai_chat": _chat,
    "anthropic_messages": _messages,
    "openai_responses": _responses,
    "gemini": _gemini,
}
_STREAM = {
    "openai_chat": _chat_stream,
    "anthropic_messages": _messages_stream,
    "openai_responses": _responses_stream,
    "gemini": _gemini_stream,
}
