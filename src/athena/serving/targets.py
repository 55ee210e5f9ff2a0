"""One upstream and model to ask, and what can be said of a request to it before it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from athena.errors import ClientError, UnsupportedFeature
from athena.exchange import Exchange, Route
from athena.model.limits import Limits
from athena.model.profile import Profile
from athena.model.request import Loss, Request
from athena.serving.network import Origin, PoolLimits, Timeouts, upstream_url

# What of a client's headers means something to an upstream of the same dialect. Everything else stays here.
_FORWARDED = ("anthropic-beta", "openai-beta", "openai-organization", "openai-project")
_NEAR_LIMIT = 0.8


Preference = Literal["order", "health", "latency", "cost"]


class TargetPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A target's place among those of its rule."""

    shares: bool = False
    """It is one of those that share the traffic; otherwise it is a fallback, asked in its turn."""
    weight: float | None = None
    """Its part of that traffic, in proportion to the others'; None: nothing is said."""
    cost: float | None = None
    prefer: Preference = "order"
    """By what the rule chooses between them."""
    sticky: bool = True
    """A session stays with the target that answered it."""


class Target(msgspec.Struct, frozen=True):
    """One upstream and model to try."""

    upstream: str
    model: str
    dialect: str
    route: Route
    tools: str
    origin: Origin
    timeouts: Timeouts
    pool: PoolLimits
    base_url: str
    own_path: str | None
    fixed_headers: tuple[tuple[bytes, bytes], ...]
    profile: Profile
    limits: Limits
    context_limit_kb: int
    forward_key: bool
    secrets: tuple[str, ...]
    """What no error or log line may repeat."""
    prompted_route: Route | None = None
    """`tools: auto`: how to ask when the upstream turns out to take no tools."""
    place: TargetPlace = TargetPlace()
    has_key: bool = True
    """Are credentials set for it?"""

    def __repr__(self) -> str:
        return f"Target({self.upstream}/{self.model})"

    @property
    def shown_name(self) -> str:
        """Upstream and model as a header may carry them."""
        return _shown_name(self.upstream, self.model)

    def path(self, path: str) -> str:
        """The request target on the upstream's host, for a dialect's own path."""
        return _request_target(self.base_url, path, self.own_path)

    def other_path(self, path: str) -> str:
        """The request target of another endpoint than the one that answers; a configured path is not this one's."""
        return _request_target(self.base_url, path, None)

    def url(self, path: str) -> str:
        """The address of a request target of this upstream, without its query: what a person needs to find a wrong base URL."""
        return _address(self.origin, path)

    def headers(
        self, dialect_headers: Mapping[str, str], request: Request, client: Mapping[str, str], key: str | None
    ) -> list[tuple[bytes, bytes]]:
        """Everything to send besides framing: content type, credentials, the dialect's and the operator's headers."""
        headers = list(self.fixed_headers)
        if dialect_headers:
            headers += [(name.encode(), value.encode()) for name, value in dialect_headers.items()]
        headers.append((b"accept", b"text/event-stream" if request.stream else b"application/json"))
        if agent := client.get("user-agent"):
            headers.append((b"user-agent", agent.encode("latin-1", "replace")))
        if request.dialect == self.dialect:
            headers += [(name.encode(), client[name].encode("latin-1", "replace")) for name in _FORWARDED if client.get(name)]
        if self.forward_key and key:
            headers.append(credential_header(self.profile, key))
        return headers


@lru_cache(maxsize=1024)
def _shown_name(upstream: str, model: str) -> str:
    name = f"{upstream}/{model}"
    return name if name.isascii() and name.isprintable() else "".join(c if " " <= c <= "~" else "?" for c in name)


@lru_cache(maxsize=1024)
def _address(origin: Origin, path: str) -> str:
    return f"{origin}{path.partition('?')[0]}"


@lru_cache(maxsize=1024)
def _request_target(base_url: str, path: str, own_path: str | None) -> str:
    parts = urlsplit(upstream_url(base_url, path, own_path))
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def credential_header(profile: Profile, key: str) -> tuple[bytes, bytes]:
    """The header in which an upstream wants its key."""
    if profile.auth == "bearer":
        return b"authorization", b"Bearer " + key.encode()
    return profile.auth.encode(), key.encode()


def fitted_request(request: Request, target: Target) -> Request:
    """The request without its tools, for a model that is configured to get none."""
    if target.tools != "none" or not request.tools:
        return request
    if target.route.strict:
        raise UnsupportedFeature("tools: this model is configured without tools", path="tools")
    loss = Loss("tools", "this model is configured without tools")
    return msgspec.structs.replace(request, tools=(), tool_choice=None, parallel=None, losses=(*request.losses, loss))


def near_size_limit(exchange: Exchange, target: Target) -> str:
    """Some models lose their tools in long prompts: near the configured bound a warning, above it a refusal."""
    limit = target.context_limit_kb
    if not limit or not exchange.request.tools:
        return ""
    size = len(exchange.call.body) / 1024
    if size > limit:
        raise ClientError(
            f"the request with tools is {size:.0f} KiB long; this model takes {limit} KiB (context_limit_kb)",
            kind="context_length",
            code="context_length_exceeded",
        )
    return f"request near the limit: {size:.0f} of {limit} KiB" if size > limit * _NEAR_LIMIT else ""
