"""Chat requests as K2-Vendor-Verifier and MiniMax-Provider-Verifier keep them, prepared as these programs prepare them.

A line of their samples is a whole request body, with notes of the verifier beside the API's own fields. A line of their results
holds the body that was sent as `request`. Both programs put a model, a temperature or a limit of their own into what they send,
so a request is known again by its conversation and its tools alone.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

_NOTES = frozenset((
    "model", "stream", "stream_options", "check_type", "expected_tool_call", "scenario_check", "data_index", "hash", "id",
))  # fmt: skip
_SAME_REQUEST = ("messages", "tools", "tool_choice")
_REASONING = ("reasoning_detail", "reasoning", "reason")


def body_id(body: Mapping[str, Any]) -> str:
    """Equal where the conversation and its tools are, in every file and every run."""
    told = {key: body[key] for key in _SAME_REQUEST if body.get(key) is not None}
    return digest_of(told)


def digest_of(value: Any) -> str:
    """A short name for a value: equal for equal ones."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:12]


def request_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a line that is one, or that holds one as `request`."""
    source = _source(row)
    body = {key: value for key, value in source.items() if key not in _NOTES and value is not None}
    if not isinstance(body.get("messages"), list):
        raise KeyError("messages")
    body["messages"] = _with_own_ids([_message(message) for message in body["messages"]])
    return body


def mode_of(row: Mapping[str, Any]) -> tuple[Literal["whole", "stream"], ...]:
    """How the line wants its answer."""
    return ("stream",) if _source(row).get("stream") else ("whole",)


def _source(row: Mapping[str, Any]) -> Mapping[str, Any]:
    held = row.get("request")
    return held if isinstance(held, dict) else row


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """One message: the role `_input` is a system message, and reasoning under other names is `reasoning_content`."""
    out = {key: value for key, value in message.items() if key not in _REASONING}
    if out.get("role") == "_input":
        out["role"] = "system"
    reasoning = _reasoning(message)
    if reasoning:
        out["reasoning_content"] = reasoning
    return out


def _reasoning(message: Mapping[str, Any]) -> str:
    details = message.get("reasoning_detail")
    if isinstance(details, list) and details:
        return "\n".join(item["text"] for item in details if isinstance(item, dict) and item.get("text"))
    return next((text for key in _REASONING if isinstance(text := message.get(key), str) and text), "")


def _with_own_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The samples use `Bash:0` for every call of `Bash`. Servers that pair results by id need one of its own for each call."""
    following: dict[str, int] = {}
    waiting: defaultdict[str, deque[str]] = defaultdict(deque)
    out = []
    for message in messages:
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            message = {**message, "tool_calls": [_numbered(call, following, waiting) for call in calls]}
        elif waiting[str(message.get("tool_call_id"))]:
            message = {**message, "tool_call_id": waiting[str(message["tool_call_id"])].popleft()}
        out.append(message)
    return out


def _numbered(call: Any, following: dict[str, int], waiting: defaultdict[str, deque[str]]) -> Any:
    known = call.get("id") if isinstance(call, dict) else None
    if not isinstance(known, str):
        return call
    name, colon, number = known.rpartition(":")
    if not colon or not number.isdecimal():
        name, number = known, "0"
    least = following.get(name, 0)
    own = known if int(number) >= least else f"{name}:{least}"
    following[name] = max(least, int(number)) + 1 if own == known else least + 1
    waiting[known].append(own)
    return {**call, "id": own}
