"""What an upstream refused, as far as its error says so, and the route that asks without it. Rows live in `refusals.toml`.

Pure: an error and a request go in, names of corrections and a route come out. `learning` keeps what was confirmed.

A refusal is recognised by its words, and only where the request holds what they are about. Words that stand in the request as
well are the client's, echoed by the upstream, and say nothing about it.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from athena.exchange import Route
from athena.model.events import Error
from athena.model.parts import Image, Part, ToolCall, ToolResult
from athena.model.request import Request
from athena.serving.targets import Target

TOOLS = "tools"
_PARAMETER = "parameter"
_STATUSES = frozenset((400, 404, 405, 422, 500, 501, 502))
_OTHER_KINDS = frozenset(("context_length", "content_policy", "auth", "permission", "rate_limit", "billing", "too_large"))
_MESSAGE_CHARS = 4000
_FIELDS_AT_ONCE = 8
_PLACES = ("tools[", "tools.", "functions[", "messages", "input", "contents")
"""How `param` begins where an error is about one place of the request."""
_NEVER_LEFT_OUT = frozenset({
    "model", "messages", "input", "contents", "content", "system", "systeminstruction", "system_instruction", "instructions",
    "prompt", "stream", "tools", "functions", "tool_choice", "toolconfig", "function_call", "max_tokens", "max_output_tokens",
    "max_completion_tokens", "generationconfig", "response_format", "text", "store", "safetysettings", "safety_identifier",
    "previous_response_id", "conversation", "name", "description", "parameters", "input_schema", "function", "type", "role",
    "id",
})  # fmt: skip
"""What a request means, how long it may be and who may keep it: without these it would be another one."""


class RefusalRule(msgspec.Struct, frozen=True):
    """One row of `refusals.toml`: words of an upstream's refusal, and what to leave out."""

    feature: str
    says: tuple[re.Pattern[str], ...]
    unless: tuple[re.Pattern[str], ...]
    profile: dict[str, Any]
    unchanged_meaning: bool


@cache
def known_refusals() -> dict[str, RefusalRule]:
    """The rows of `refusals.toml`, by feature."""
    table = tomllib.loads(files(__package__).joinpath("refusals.toml").read_text(encoding="utf-8"))
    return {
        row["feature"]: RefusalRule(
            feature=row["feature"],
            says=tuple(re.compile(pattern, re.IGNORECASE) for pattern in row["says"]),
            unless=tuple(re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in row.get("unless", ())),
            profile=row.get("profile", {}),
            unchanged_meaning=row.get("unchanged_meaning", False),
        )
        for row in table["refusal"]
    }


def refused_features(error: Error, request: Request, sent: bytes) -> tuple[str, ...]:
    """What this error refuses of the request whose body was `sent`: names for `corrected_route`; most often none."""
    if error.status not in _STATUSES or error.kind in _OTHER_KINDS:
        return ()
    message = error.message[:_MESSAGE_CHARS]
    own_words = sent.decode("utf-8", "replace").lower()
    for refusal in known_refusals().values():
        if not _holds(refusal.feature, request) or any(pattern.search(message) for pattern in refusal.unless):
            continue
        if refusal.feature == _PARAMETER:
            return _refused_fields(refusal, error, message, own_words, sent)
        if refusal.feature == TOOLS and error.param is not None and error.param.startswith(_PLACES):
            continue
        found = next((match for pattern in refusal.says if (match := pattern.search(message))), None)
        if found is not None and found.group().lower() not in own_words:
            return (refusal.feature,)
    return ()


def _refused_fields(refusal: RefusalRule, error: Error, message: str, own_words: str, sent: bytes) -> tuple[str, ...]:
    fields = [
        match["field"]
        for pattern in refusal.says
        for match in pattern.finditer(message)
        if match.group().lower() not in own_words
    ]
    if error.code in ("unsupported_parameter", "unknown_parameter") and error.param is not None:
        fields.append(error.param)
    known = _keys(sent)
    wanted = [field for field in dict.fromkeys(fields) if field in known and field.lower() not in _NEVER_LEFT_OUT]
    return tuple(f"{_PARAMETER}:{field}" for field in wanted[:_FIELDS_AT_ONCE])


def _keys(sent: bytes) -> set[str]:
    """The fields of the body and of its tools: only what was sent can have been refused."""
    body = msgspec.json.decode(sent)
    keys = set(body) if isinstance(body, dict) else set()
    tools = body.get("tools") if isinstance(body, dict) else None
    for tool in tools if isinstance(tools, list) else ():
        keys.update(tool if isinstance(tool, dict) else ())
    return keys


def _holds(feature: str, request: Request) -> bool:
    """Is there any of it in the request?"""
    match feature:
        case "tools":
            return bool(request.tools)
        case "late_system":
            return len(request.system) > 1 or any(turn.role == "system" for turn in request.turns)
        case "call_ids":
            return any(isinstance(part, ToolCall | ToolResult) for turn in request.turns for part in turn.parts)
        case "images":
            return any(_has_image(turn.parts) for turn in request.turns)
        case "parallel":
            return request.parallel is not None
        case "max_tokens":
            return request.max_output is not None
    return True


def _has_image(parts: tuple[Part, ...]) -> bool:
    return any(isinstance(part, Image) or (isinstance(part, ToolResult) and _has_image(part.parts)) for part in parts)


def is_allowed(feature: str, target: Target) -> bool:
    """May this target be asked in that way?"""
    if feature == TOOLS:
        return target.prompted_route is not None
    return not target.route.strict or known_refusals()[feature.partition(":")[0]].unchanged_meaning


def corrected_route(target: Target, features: tuple[str, ...]) -> Route:
    """The target's route without what was refused."""
    if not features:
        return target.route
    route = target.prompted_route if TOOLS in features and target.prompted_route is not None else target.route
    fields = tuple(name for feature, _, name in (feature.partition(":") for feature in features) if feature == _PARAMETER)
    changes: dict[str, Any] = {"drop_fields": route.profile.drop_fields + fields} if fields else {}
    for feature in features:
        changes |= known_refusals()[feature.partition(":")[0]].profile
    return msgspec.structs.replace(route, profile=msgspec.structs.replace(route.profile, **changes)) if changes else route
