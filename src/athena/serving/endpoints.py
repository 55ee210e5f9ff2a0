"""Which endpoint a request came to, and what its path says beyond the body.

Gemini's paths carry the model and the mode; Azure-style paths carry the model. `GET /v1/models` is one path for two or three
dialects: the headers decide. `find_endpoint` knows the paths as the APIs document them; `gateway_endpoint` also serves paths
that come of a base URL with one version or endpoint too many or too few, and the endpoints that are passed through to an
upstream.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Literal
from urllib.parse import unquote

import msgspec

from athena.errors import ClientError

EndpointAction = Literal[
    "answer", "count", "models", "model", "pass", "prepare", "health", "ready", "metrics", "root", "forget", "compact",
    "stored", "batches",
]  # fmt: skip


class Endpoint(msgspec.Struct, frozen=True):
    """What a path asks for."""

    action: EndpointAction
    dialect: str = "openai_chat"
    model: str | None = None
    stream: bool | None = None
    array: bool = False
    methods: tuple[str, ...] = ("POST",)
    upstream_path: str = ""
    """Of an endpoint that is passed through: the path on the upstream, `{model}` being the model's name there."""
    stored: str = ""
    """Of an endpoint of what is stored: what is there, such as `response` or `items`."""
    names: tuple[str, ...] = ()
    """Of an endpoint of what is stored: the ids in its path."""


PREPARE = Endpoint("prepare", "openai_responses")
"""Of a request over a WebSocket that only gets ready. No path leads there."""
_FIXED: dict[str, Endpoint] = {
    "/": Endpoint("root", methods=("GET", "HEAD")),
    "/health": Endpoint("health", methods=("GET", "HEAD")),
    "/healthz": Endpoint("health", methods=("GET", "HEAD")),
    "/livez": Endpoint("health", methods=("GET", "HEAD")),
    "/ready": Endpoint("ready", methods=("GET", "HEAD")),
    "/readyz": Endpoint("ready", methods=("GET", "HEAD")),
    "/metrics": Endpoint("metrics", methods=("GET",)),
    "/v1/messages": Endpoint("answer", "anthropic_messages"),
    "/v1/messages/count_tokens": Endpoint("count", "anthropic_messages"),
    "/v1/chat/completions": Endpoint("answer", "openai_chat"),
    "/v1/responses": Endpoint("answer", "openai_responses"),
    "/v1/responses/input_tokens": Endpoint("count", "openai_responses"),
    "/v1/responses/compact": Endpoint("compact", "openai_responses"),
    "/v1/conversations": Endpoint("stored", "openai_responses", stored="conversations"),
}
_STORED: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (("responses", "*"), "response", ("GET", "DELETE")),
    (("responses", "*", "input_items"), "input_items", ("GET",)),
    (("responses", "*", "cancel"), "cancel", ("POST",)),
    (("conversations", "*"), "conversation", ("GET", "POST", "DELETE")),
    (("conversations", "*", "items"), "items", ("GET", "POST")),
    (("conversations", "*", "items", "*"), "item", ("GET", "DELETE")),
)
"""Paths of stored objects below /v1, in which * stands for an id; what is there, and what may be done to it."""
_BATCHES: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (("messages", "batches"), "message_batches", ("GET", "POST")),
    (("messages", "batches", "*"), "message_batch", ("GET", "DELETE")),
    (("messages", "batches", "*", "results"), "message_results", ("GET",)),
    (("messages", "batches", "*", "cancel"), "message_cancel", ("POST",)),
    (("batches",), "batches", ("GET", "POST")),
    (("batches", "*"), "batch", ("GET",)),
    (("batches", "*", "cancel"), "batch_cancel", ("POST",)),
    (("files",), "files", ("GET", "POST")),
    (("files", "*"), "file", ("GET", "DELETE")),
    (("files", "*", "content"), "file_content", ("GET",)),
)
"""The same for batches and their files."""
_GEMINI_VERSIONS = ("/v1beta/models", "/v1/models", "/v1alpha/models")
_GEMINI_VERBS: dict[str, tuple[EndpointAction, bool]] = {
    "generateContent": ("answer", False),
    "streamGenerateContent": ("answer", True),
    "countTokens": ("count", False),
}

_PASSED: dict[str, Endpoint] = {
    path: Endpoint("pass", "openai_chat", upstream_path=path) for path in ("/v1/completions", "/v1/embeddings")
}
_OPERATED: dict[str, Endpoint] = {"/learnt/forget": Endpoint("forget")}
"""What the operator does to a running gateway."""
_PASSED_VERBS = ("embedContent", "batchEmbedContents")
_VERSIONS = ("v1", "v1beta", "v1alpha")
_PREFIXES = (*_VERSIONS, "api", "openai", "anthropic")
"""What base URLs begin or end with. Before an endpoint they mean nothing here, however many of them there are."""
_ENDPOINTS = ("chat/completions", "messages", "responses")
"""Written at the end of a base URL by mistake; the client puts its own after it."""
_ROOTS = (*_ENDPOINTS, "batches", "completions", "conversations", "embeddings", "files", "models")
_MOST_SEGMENTS = 12
_NOT_SERVED: dict[str, str] = {
    "chat/completions": "stored Chat Completions",
    "uploads": "Uploads",
    "upload": "Files",
    "interactions": "Interactions",
    "cachedContents": "cached contents",
    "fileSearchStores": "file search stores",
    "assistants": "Assistants",
    "threads": "Threads",
    "vector_stores": "vector stores",
    "fine_tuning": "fine-tuning",
    "moderations": "Moderations",
    "images": "Images",
    "audio": "Audio",
    "videos": "Videos",
    "realtime": "Realtime",
    "skills": "Skills",
    "containers": "Containers",
}
"""APIs of the dialects' makers that SDKs ask for beside the ones served here: what their paths begin with, longest first, and
their names. Most keep something at the server, and a gateway keeps nothing."""


def gateway_endpoint(method: str, path: str, query: str, headers: Mapping[str, str]) -> Endpoint | None:
    """The endpoint of a path at the gateway, percent-decoded, in any of its usual spellings; None when there is none."""
    endpoint = _FIXED.get(path)
    if endpoint is not None:
        return endpoint
    endpoint = _documented(method, path, query, headers)
    if endpoint is None:
        plain = _plain_spelling(path)
        if plain is not None:
            endpoint = _documented(method, plain, query, headers)
    return endpoint


def _documented(method: str, path: str, query: str, headers: Mapping[str, str]) -> Endpoint | None:
    endpoint = find_endpoint(path, query, headers) or _PASSED.get(path.rstrip("/")) or _OPERATED.get(path)
    if endpoint is None or endpoint.action != "model" or method != "POST":
        return endpoint
    # A POST to a model's path names a verb, since nothing else is done to models here.
    prefix, _, rest = path.partition("/models/")
    model, _, verb = rest.rpartition(":")
    if verb not in _PASSED_VERBS or not model:
        return None
    version = "/v1beta" if prefix == "/v1" else prefix
    return Endpoint("pass", "gemini", model, upstream_path=f"{version}/models/{{model}}:{verb}")


def _plain_spelling(path: str) -> str | None:
    """The documented spelling of a path with doubled, missing or foreign prefixes; None when it is none of ours."""
    segments = [segment for segment in path.split("/") if segment]
    if not segments or len(segments) > _MOST_SEGMENTS:
        return None
    version = "v1"
    while segments and segments[0] in _PREFIXES:
        first = segments.pop(0)
        version = first if first in _VERSIONS else version
    rest = "/".join(segments)
    if segments[:2] == ["messages", "batches"]:
        return f"/v1/{rest}"  # no base URL with one endpoint too many, but batches of messages
    for endpoint in _ENDPOINTS:
        below = _plain_spelling(rest[len(endpoint) :]) if rest.startswith(endpoint + "/") else None
        if below is not None and below.partition("/")[2].partition("/")[2].startswith(_ROOTS):
            return below
    if not rest:
        return None
    # Only lists of models and Gemini's verbs are told apart by their version.
    return f"/{version if segments[0] == 'models' else 'v1'}/{rest}"


def unknown_path(path: str) -> ClientError:
    """The error for a path without an endpoint: an API that is not served is named, a mistyped path gets the nearest ones."""
    name = _not_served(path)
    if name is not None:
        return ClientError(
            f"this gateway does not serve the {name} API ({path[:200]}); it serves Messages, Chat Completions, Responses and "
            "generateContent, their token counts, lists of models, and passes completions and embeddings through",
            kind="not_found",
            code="unsupported_endpoint",
            status=404,
        )
    known = [*_FIXED, *_PASSED, "/v1/models", "/v1beta/models"]
    near = difflib.get_close_matches(path[:200].rstrip("/"), known, n=2, cutoff=0.6)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    return ClientError(
        f"no such path: {path[:200]}{hint}. The base URL ends in /v1 for OpenAI's SDKs and has no path for other ones",
        kind="not_found",
        code="unknown_path",
        status=404,
    )


def _not_served(path: str) -> str | None:
    """The API that a path belongs to, where it is a known one without an endpoint here."""
    plain = (_plain_spelling(path) or "").partition("/v1/")[2]
    return next((name for root, name in _NOT_SERVED.items() if plain == root or plain.startswith(root + "/")), None)


def socket_refused() -> ClientError:
    """The error for a request to change to WebSocket. Codex goes on over plain requests at once when it sees the status."""
    return ClientError(
        'this gateway does not speak WebSocket; send plain requests, with "stream": true for events',
        code="websocket_not_supported",
        status=426,
    )


def asks_for_socket(method: str, headers: Mapping[str, str]) -> bool:
    """Does the client ask to change to WebSocket?"""
    return method == "GET" and headers.get("upgrade", "").strip().lower() == "websocket"


def find_endpoint(path: str, query: str, headers: Mapping[str, str]) -> Endpoint | None:
    """The endpoint of a path, percent-decoded; None when there is none. `headers` are lower-case."""
    path = path.rstrip("/") or "/"
    endpoint = _FIXED.get(path)
    if endpoint is not None:
        return endpoint
    for prefix in _GEMINI_VERSIONS:
        if path == prefix:
            return Endpoint("models", _listing_dialect(prefix, query, headers), methods=("GET",))
        if path.startswith(prefix + "/"):
            return _model_endpoint(path[len(prefix) + 1 :], prefix, query, headers)
    if path.startswith("/openai/deployments/"):
        deployment, _, rest = path[len("/openai/deployments/") :].partition("/")
        if rest == "chat/completions" and deployment:
            return Endpoint("answer", "openai_chat", model=deployment)
    if path.startswith("/openai/v1/"):
        return find_endpoint(path[len("/openai") :], query, headers)
    if path.startswith(("/v1/responses/", "/v1/conversations/")):
        return _stored_endpoint(path, "stored", "openai_responses", _STORED)
    if path.startswith("/v1/messages/"):
        return _stored_endpoint(path, "batches", "anthropic_messages", _BATCHES)
    return _stored_endpoint(path, "batches", "openai_chat", _BATCHES) if path.startswith(("/v1/batches", "/v1/files")) else None


def _stored_endpoint(
    path: str, action: EndpointAction, dialect: str, paths: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...]
) -> Endpoint | None:
    segments = tuple(path.split("/")[2:])
    for pattern, stored, methods in paths:
        pairs = list(zip(pattern, segments, strict=False))
        if len(pattern) == len(segments) and all(got and want in ("*", got) for want, got in pairs):
            names = tuple(got for want, got in pairs if want == "*")
            return Endpoint(action, dialect, methods=methods, stored=stored, names=names)
    return None


def _model_endpoint(rest: str, prefix: str, query: str, headers: Mapping[str, str]) -> Endpoint | None:
    model, colon, verb = rest.rpartition(":")
    if colon and verb in _GEMINI_VERBS and model:
        action, streamed = _GEMINI_VERBS[verb]
        return Endpoint(action, "gemini", model, streamed, array=streamed and "alt=sse" not in query)
    dialect = _listing_dialect(prefix, query, headers)
    return Endpoint("model", dialect, model=rest, methods=("GET",))


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
    return "gemini" if "x-goog-api-key" in headers or "x-goog-api-client" in headers else "openai_chat"


_CREDENTIALS = frozenset(("authorization", "x-api-key", "x-goog-api-key", "api-key"))


def credential(headers: Mapping[str, str], query: str) -> str | None:
    """The caller's key, wherever any dialect puts it."""
    if not query and _CREDENTIALS.isdisjoint(headers):
        return None
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
