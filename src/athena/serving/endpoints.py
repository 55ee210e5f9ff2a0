"""Which door a request came to: the paths of `design.md` 4, and what each says beyond the body.

Gemini's paths carry the model and the mode; Azure-style paths carry the model. `GET /v1/models` is one path for two or three
dialects: the headers decide (`dialects.md` 3.14).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from urllib.parse import unquote

import msgspec

Action = Literal["answer", "count", "models", "model", "health", "ready", "metrics", "root"]


class Door(msgspec.Struct, frozen=True):
    """What a path asks for."""

    action: Action
    dialect: str = "openai_chat"
    model: str | None = None
    stream: bool | None = None
    array: bool = False
    methods: tuple[str, ...] = ("POST",)
    unknown_verb: str = ""
    """A model's name that may also be a name and a verb that nobody serves: it depends on the HTTP method."""


_FIXED: dict[str, Door] = {
    "/": Door("root", methods=("GET", "HEAD")),
    "/health": Door("health", methods=("GET", "HEAD")),
    "/ready": Door("ready", methods=("GET", "HEAD")),
    "/metrics": Door("metrics", methods=("GET",)),
    "/v1/messages": Door("answer", "anthropic_messages"),
    "/v1/messages/count_tokens": Door("count", "anthropic_messages"),
    "/v1/chat/completions": Door("answer", "openai_chat"),
    "/v1/responses": Door("answer", "openai_responses"),
    "/v1/responses/input_tokens": Door("count", "openai_responses"),
}
_GEMINI_VERSIONS = ("/v1beta/models", "/v1/models", "/v1alpha/models")
_GEMINI_VERBS: dict[str, tuple[Action, bool]] = {
    "generateContent": ("answer", False),
    "streamGenerateContent": ("answer", True),
    "countTokens": ("count", False),
}


def find_door(path: str, query: str, headers: Mapping[str, str]) -> Door | None:
    """The door of a path; None when there is none. `headers` are lower-case."""
    path = path.rstrip("/") or "/"
    door = _FIXED.get(path)
    if door is not None:
        return door
    for prefix in _GEMINI_VERSIONS:
        if path == prefix:
            return Door("models", _listing_dialect(prefix, query, headers), methods=("GET",))
        if path.startswith(prefix + "/"):
            return _model_door(path[len(prefix) + 1 :], prefix, query, headers)
    if path.startswith("/openai/deployments/"):
        deployment, _, rest = path[len("/openai/deployments/") :].partition("/")
        if rest == "chat/completions" and deployment:
            return Door("answer", "openai_chat", model=unquote(deployment))
    if path.startswith("/openai/v1/"):
        return _FIXED.get(path[len("/openai") :])
    return None


def _model_door(rest: str, prefix: str, query: str, headers: Mapping[str, str]) -> Door | None:
    model, colon, verb = rest.rpartition(":")
    if colon and verb in _GEMINI_VERBS and model:
        action, streamed = _GEMINI_VERBS[verb]
        return Door(action, "gemini", unquote(model), streamed, array=streamed and "alt=sse" not in query)
    dialect = _listing_dialect(prefix, query, headers)
    return Door("model", dialect, model=unquote(rest), methods=("GET",), unknown_verb=verb if colon and model else "")


def _listing_dialect(prefix: str, query: str, headers: Mapping[str, str]) -> str:
    if prefix != "/v1/models" or "x-goog-api-key" in headers or query.startswith("key=") or "&key=" in query:
        return "gemini"
    if "anthropic-version" in headers or "x-api-key" in headers:
        return "anthropic_messages"
    return "openai_chat"


def dialect_of_error(path: str, headers: Mapping[str, str]) -> str:
    """Whose error shape a caller of an unknown path most likely reads: by the path, else by its headers."""
    if "/messages" in path:
        return "anthropic_messages"
    if path.startswith(("/v1beta", "/v1alpha")) or path.endswith(tuple(f":{verb}" for verb in _GEMINI_VERBS)):
        return "gemini"
    if path.endswith(("/chat/completions", "/responses")):
        return "openai_chat"
    if "anthropic-version" in headers or "x-api-key" in headers:
        return "anthropic_messages"
    return "gemini" if "x-goog-api-key" in headers else "openai_chat"


_BASE_OF = {"/messages": "", "/chat/completions": "/v1", "/responses": "/v1", "/models": "/v1"}
"""Where the base URL of a client ends that adds this to it."""


def hint(path: str) -> str:
    """What to set where a path looks like a known one behind a wrong base URL; empty for any other."""
    for ending, base in _BASE_OF.items():
        if path.rstrip("/").endswith(ending):
            return f"; {ending} is served as /v1{ending}: let the client's base URL end in {base or 'the port'}"
    for verb in _GEMINI_VERBS:
        if path.endswith(f":{verb}"):
            return f"; :{verb} is served as /v1beta/models/MODEL:{verb}: let the client's base URL end in the port"
    return ""


def credential(headers: Mapping[str, str], query: str) -> str | None:
    """The caller's key, wherever any dialect puts it."""
    bearer = headers.get("authorization", "")
    if bearer[:7].lower() == "bearer " and bearer[7:].strip():
        return bearer[7:].strip()
    for name in ("x-api-key", "x-goog-api-key", "api-key"):
        if headers.get(name):
            return headers[name]
    for pair in query.split("&"):
        if pair.startswith("key=") and len(pair) > 4:
            return unquote(pair[4:])
    return None
