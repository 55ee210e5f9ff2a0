"""The response object that lifecycle events and whole answers carry: the client's own settings echoed, then what came of them.

SDKs build their `Response` from it, so every field they call required is there, and every field that the
Open Responses standard wants: numbers where a client gave none, because the standard knows no null there.

Wire facts: docs/reference/wire-facts.md#responses-answers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from athena.calls.ids import hashed
from athena.dialects.base import EncodeContext
from athena.dialects.openai_responses.encode_tools import encode_tool_choice
from athena.dialects.openai_responses.vocabulary import NAME
from athena.model.events import Start, Usage
from athena.model.request import Kept
from athena.wire.surrogates import encode_json

_ECHOED: tuple[tuple[str, Any], ...] = (
    ("background", False),
    ("instructions", None),
    ("max_output_tokens", None),
    ("max_tool_calls", None),
    ("parallel_tool_calls", True),
    ("previous_response_id", None),
    ("prompt_cache_key", None),
    ("safety_identifier", None),
    ("temperature", 1.0),
    ("top_logprobs", 0),
    ("top_p", 1.0),
    ("presence_penalty", 0.0),
    ("frequency_penalty", 0.0),
    ("truncation", "disabled"),
    ("user", None),
)


def response_id(context: EncodeContext, start: Start) -> str:
    """The id under which it is kept, the upstream's own where that speaks this dialect, else one made from the seed."""
    if context.request.kept is not None:
        return context.request.kept.id
    if context.same_dialect and start.id:
        return start.id
    return "resp_" + hashed(f"{context.seed}\0response", 32)


def echo(context: EncodeContext, start: Start) -> dict[str, Any]:
    """The response before anything was said. Long fields are encoded once: they are sent with every lifecycle event."""
    request = context.request
    raw = request.raw if request.dialect == NAME and request.raw is not None else {}
    created = start.created if context.same_dialect and start.created is not None else context.created
    response: dict[str, Any] = {
        "id": response_id(context, start),
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "model": request.model,
        "output": [],
        "usage": None,
    }
    for key, default in _ECHOED:
        value = raw.get(key)
        response[key] = default if value is None else value
    response["text"] = _text(raw.get("text"))
    reasoning = raw.get("reasoning")
    response["reasoning"] = {"effort": None, "summary": None, **(reasoning if isinstance(reasoning, dict) else {})}
    response["tool_choice"] = _tool_choice(context, raw)
    tools = raw.get("tools")
    response["tools"] = [_tool(tool) for tool in tools] if isinstance(tools, list) else []
    response["metadata"] = raw.get("metadata") or {}
    response["service_tier"] = raw.get("service_tier") or "default"
    # Where nothing is kept, a client that believed otherwise would refer to items that do not exist.
    response["store"] = bool(raw.get("store")) if context.same_dialect else False
    for key in ("instructions", "tools"):
        if response[key]:
            response[key] = msgspec.Raw(encode_json(response[key]))
    if context.same_dialect and start.extras:
        response.update(start.extras)
    if request.kept is not None:
        response["id"] = request.kept.id
        response.update(request.kept.shown)
    return response


def compaction_object(final: dict[str, Any], kept: Kept) -> dict[str, Any]:
    """The answer to a request for a compaction: what is retained of the conversation, then the compaction."""
    return {
        "id": kept.id,
        "object": "response.compaction",
        "created_at": final["created_at"],
        "output": [*kept.retained, *final["output"]],
        "usage": final["usage"],
    }


def _text(given: Any) -> dict[str, Any]:
    text: dict[str, Any] = {"format": {"type": "text"}}
    if isinstance(given, dict):
        text.update({key: value for key, value in given.items() if value is not None})
    form = text["format"]
    if isinstance(form, dict) and form.get("type") == "json_schema":
        text["format"] = {"description": None, "schema": None, **form, "strict": bool(form.get("strict"))}
    return text


def _tool(tool: Any) -> Any:
    """A function with all its fields; what a client left out was used as if it had said so."""
    if not isinstance(tool, dict) or tool.get("type") != "function" or "function" in tool:
        return tool
    return {"description": None, "parameters": None, **tool, "strict": bool(tool.get("strict"))}


def _tool_choice(context: EncodeContext, raw: dict[str, Any]) -> Any:
    choice = context.request.tool_choice
    if raw.get("tool_choice") is not None:
        return raw["tool_choice"]
    return encode_tool_choice(choice, context.request.tools) if choice is not None else "auto"


def encode_usage(usage: Usage, *, same_dialect: bool) -> dict[str, Any]:
    """Token counts with every field that Codex and the SDKs demand."""
    read: dict[str, Any] = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    made: dict[str, Any] = {"reasoning_tokens": usage.reasoning}
    counts: dict[str, Any] = {
        "input_tokens": usage.input_total,
        "input_tokens_details": read,
        "output_tokens": usage.output_total,
        "output_tokens_details": made,
        "total_tokens": usage.input_total + usage.output_total,
    }
    raw = usage.raw
    if not same_dialect or raw is None:
        return counts
    for key, details in (("input_tokens_details", read), ("output_tokens_details", made)):
        if isinstance(raw.get(key), dict):
            counts[key] = {**raw[key], **details}
    return {**raw, **counts, **({"total_tokens": raw["total_tokens"]} if isinstance(raw.get("total_tokens"), int) else {})}
