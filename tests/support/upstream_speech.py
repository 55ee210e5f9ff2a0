"""What a healthy upstream says in each dialect: the control answer of the fault tests, frame by frame, and its error forms.

Written by hand from docs/reference/wire-facts.md, not by our own encoders: the judge must not share the accused's mistakes. The
answer is always the same: a text, then one call; `TEXT` and `ARGUMENTS` say what.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

TEXT = ("Grüße ", "🌍, hello")
ARGUMENTS = ('{"city":', ' "Paris"}')
NAME = "get_weather"


class Speech(msgspec.Struct, frozen=True):
    """One answer, whole and in frames."""

    frames: tuple[bytes, ...]
    whole: bytes
    in_text: int
    """How many frames reach into the text."""
    in_call: int
    """How many frames reach into the call's arguments; in Gemini, whose calls come whole, up to the call."""
    done: tuple[bytes, ...] = ()
    """Frames that only say that all is said."""


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def frame(value: Any, event: str = "") -> bytes:
    data = value if isinstance(value, bytes) else encode(value)
    return (b"event: %b\n" % event.encode() if event else b"") + b"data: %b\n\n" % data


# -- Chat ------------------------------------------------------------------------------------------------------------------


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **fields: Any) -> bytes:
    """One record of a Chat stream."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}
    return frame({**head, "choices": choices, **fields})


USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
DONE = b"data: [DONE]\n\n"


def chat_stream(deltas: list[dict[str, Any]], finish: str = "tool_calls", **fields: Any) -> tuple[bytes, ...]:
    """A Chat stream of these deltas; `fields` are those of every record."""
    said = [chunk(delta, **fields) for delta in ({"role": "assistant", "content": ""}, *deltas)]
    return (*said, chunk({}, finish, **fields), chunk(None, **{"usage": USAGE, **fields}), DONE)


def chat_whole(message: dict[str, Any], finish: str = "tool_calls", **fields: Any) -> bytes:
    """A whole Chat answer."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m"}
    return encode({**head, "choices": [choice], "usage": USAGE, **fields})


def call_piece(index: int | None, arguments: Any = None, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    """One entry of a Chat delta's `tool_calls`; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    entry: dict[str, Any] = {} if index is None else {"index": index}
    if call_id is not None:
        entry |= {"id": call_id, "type": "function"}
    return entry | ({"function": function} if function else {})


def call_entry(call_id: str | None, name: str, arguments: Any) -> dict[str, Any]:
    """One entry of a whole Chat message's `tool_calls`."""
    entry = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return entry if call_id is not None else {"type": "function", "function": entry["function"]}


def calls(*entries: dict[str, Any]) -> dict[str, Any]:
    """A Chat delta with calls."""
    return {"tool_calls": list(entries)}


def _chat() -> Speech:
    deltas = [{"content": piece} for piece in TEXT]
    deltas += [calls(call_piece(0, "", "call_1", NAME)), *(calls(call_piece(0, piece)) for piece in ARGUMENTS)]
    entry = call_entry("call_1", NAME, "".join(ARGUMENTS))
    frames = chat_stream(deltas)
    return Speech(frames, chat_whole({"content": "".join(TEXT), "tool_calls": [entry]}), 2, 5, (DONE,))


# -- Anthropic -------------------------------------------------------------------------------------------------------------


def _event(kind: str, **fields: Any) -> bytes:
    return frame({"type": kind, **fields}, kind)


def _anthropic() -> Speech:
    usage = {"input_tokens": 10, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    text = {"type": "text", "text": "".join(TEXT)}
    call = {"type": "tool_use", "id": "toolu_1", "name": NAME, "input": {"city": "Paris"}}
    frames = (
        _event("message_start", message=message),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(_event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece}) for piece in TEXT),
        _event("content_block_stop", index=0),
        _event("content_block_start", index=1, content_block={**call, "input": {}}),
        *(
            _event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": piece})
            for piece in ARGUMENTS
        ),
        _event("content_block_stop", index=1),
        _event("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 5}),
        _event("message_stop"),
    )
    whole = {**message, "content": [text, call], "stop_reason": "tool_use", "usage": {**usage, "output_tokens": 5}}
    return Speech(frames, encode(whole), 3, 7)


# -- Responses -------------------------------------------------------------------------------------------------------------


def _responses() -> Speech:
    text, arguments = "".join(TEXT), "".join(ARGUMENTS)
    usage = {
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15,
    }  # fmt: skip
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    call = {
        "id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1", "name": NAME, "arguments": arguments,
    }  # fmt: skip
    response = {
        "id": "resp_1", "object": "response", "created_at": 1_700_000_000, "status": "in_progress", "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "model": "m", "output": [],
        "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": None,
    }  # fmt: skip
    complete = {**response, "status": "completed", "output": [message, call], "usage": usage}
    at_text: dict[str, Any] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    at_call: dict[str, Any] = {"item_id": "fc_1", "output_index": 1}
    begun = {**message, "status": "in_progress", "content": []}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": response}),
        ("response.in_progress", {"response": response}),
        ("response.output_item.added", {"output_index": 0, "item": begun}),
        ("response.content_part.added", {**at_text, "part": {**part, "text": ""}}),
        *(("response.output_text.delta", {**at_text, "delta": piece, "logprobs": []}) for piece in TEXT),
        ("response.output_text.done", {**at_text, "text": text, "logprobs": []}),
        ("response.content_part.done", {**at_text, "part": part}),
        ("response.output_item.done", {"output_index": 0, "item": message}),
        (
            "response.output_item.added",
            {"output_index": 1, "item": {**call, "status": "in_progress", "arguments": ""}},
        ),
        *(("response.function_call_arguments.delta", {**at_call, "delta": piece}) for piece in ARGUMENTS),
        ("response.function_call_arguments.done", {**at_call, "arguments": arguments, "name": NAME}),
        ("response.output_item.done", {"output_index": 1, "item": call}),
        ("response.completed", {"response": complete}),
    ]
    frames = tuple(_event(kind, sequence_number=number, **fields) for number, (kind, fields) in enumerate(steps))
    return Speech(frames, encode(complete), 5, 11)


# -- Gemini ----------------------------------------------------------------------------------------------------------------


def _gemini() -> Speech:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    call = {"functionCall": {"name": NAME, "args": {"city": "Paris"}}}

    def record(parts: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **fields}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r1"}

    records = [
        *(record([{"text": piece}]) for piece in TEXT),
        record([call]),
        record([{"text": ""}], finishReason="STOP"),
    ]
    whole = record([{"text": "".join(TEXT)}, call], finishReason="STOP")
    # This vendor ends its lines with CRLF.
    frames = tuple(frame(value).replace(b"\n\n", b"\r\n\r\n") for value in records)
    return Speech(frames, encode(whole), 1, 2)


CONTROL = {
    "openai_chat": _chat(),
    "anthropic_messages": _anthropic(),
    "openai_responses": _responses(),
    "gemini": _gemini(),
}

_ANTHROPIC_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 408: "timeout_error", 413: "request_too_large", 422: "invalid_request_error",
    429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error", 503: "overloaded_error",
}  # fmt: skip
_GOOGLE_WORDS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip


def error_value(dialect: str, status: int, message: str) -> dict[str, Any]:
    """An error body of that dialect."""
    if dialect == "anthropic_messages":
        return {"type": "error", "error": {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message}}
    if dialect == "gemini":
        return {"error": {"code": status, "message": message, "status": _GOOGLE_WORDS.get(status, "INTERNAL")}}
    kind = {429: "rate_limit_error", 401: "invalid_request_error"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error"
    )
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def error_frame(dialect: str, status: int, message: str) -> bytes:
    """The error inside a stream of that dialect."""
    value = error_value(dialect, status, message)
    if dialect == "anthropic_messages":
        return frame(value, "error")
    if dialect == "openai_responses":
        # Later than all of the control's numbers.
        return _event("error", sequence_number=99, code="server_error", message=message, param=None)
    if dialect == "openai_chat":
        value["error"]["code"] = status
    return frame(value)
