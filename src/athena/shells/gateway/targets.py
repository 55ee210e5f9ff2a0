"""A resolved route made ready for use: the exchange's `Route`, the upstream's address, its credentials and headers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec

from athena.bounded_cache import BoundedCache
from athena.calls.names import check_model_name
from athena.errors import ClientError, UnsupportedFeature
from athena.exchange import Exchange, Route
from athena.model.limits import Limits
from athena.model.profile import Profile
from athena.model.request import Loss, Request
from athena.shells.config import ResolvedRoute, Router, Upstream, upstream_url
from athena.shells.upstream import Origin, PoolLimits, Timeouts, TlsSettings, parse_base_url

_REMEMBERED_BYTES = 8 * 1024 * 1024
_TARGET_BYTES = 4096
"""About what one target takes in memory."""
# What of a client's headers means something to an upstream of the same dialect. Everything else stays here.
_FORWARDED = ("anthropic-beta", "openai-organization", "openai-project")
_NEAR_LIMIT = 0.8


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

    def __repr__(self) -> str:
        return f"Target({self.upstream}/{self.model})"

    def path(self, path: str) -> str:
        """The request target on the upstream's host, for a dialect's own path."""
        return _request_target(self.base_url, path, self.own_path)

    def other_path(self, path: str) -> str:
        """The request target of another endpoint than the one that answers; a configured path is not this one's."""
        return _request_target(self.base_url, path, None)

    def headers(
        self, dialect_headers: Mapping[str, str], request: Request, client: Mapping[str, str], key: str | None
    ) -> list[tuple[bytes, bytes]]:
        """Everything to send besides framing: content type, credentials, the dialect's and the operator's headers."""
        headers = list(self.fixed_headers)
        headers += [(name.encode(), value.encode()) for name, value in dialect_headers.items()]
        headers.append((b"accept", b"text/event-stream" if request.stream else b"application/json"))
        if agent := client.get("user-agent"):
            headers.append((b"user-agent", agent.encode("latin-1", "replace")))
        if request.dialect == self.dialect:
            headers += [(name.encode(), client[name].encode("latin-1", "replace")) for name in _FORWARDED if client.get(name)]
        if self.forward_key and key:
            headers.append(upstream_credential(self.profile, key))
        return headers


@lru_cache(maxsize=1024)
def _request_target(base_url: str, path: str, own_path: str | None) -> str:
    parts = urlsplit(upstream_url(base_url, path, own_path))
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def ready_targets(router: Router, model: str) -> tuple[Target, ...]:
    """The targets for a client's model name, ready for use. Raises UnknownModel."""
    return tuple(_ready(route) for route in router.resolve(model))


class KnownTargets:
    """The targets of the model names that were asked for under one configuration; bounded, since clients choose the names."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._known: BoundedCache[str, tuple[Target, ...]] = BoundedCache(_REMEMBERED_BYTES)

    def of(self, model: str) -> tuple[Target, ...]:
        """The targets of a model name. Raises UnknownModel, and InvalidRequest for a name that can be no model's."""
        known = self._known.get(model)
        if known is None:
            check_model_name(model)
            known = ready_targets(self._router, model)
            self._known.put(model, known, len(known) * _TARGET_BYTES + 4 * len(model))
        return known


def upstream_origin(upstream: Upstream) -> Origin:
    """Where an upstream's connections lead."""
    tls = TlsSettings(ca_file=upstream.ca_file, verify=upstream.verify)
    proxy = upstream.proxy.reveal() if upstream.proxy is not None else None
    origin, _ = parse_base_url(upstream.base_url.partition("?")[0], tls=tls, proxy=proxy)
    return origin


def upstream_headers(upstream: Upstream, profile: Profile) -> list[tuple[bytes, bytes]]:
    """What every request to an upstream carries: its profile's headers, its key, the operator's headers."""
    headers = [(name.encode(), value.encode()) for name, value in profile.headers.items()]
    if upstream.api_key is not None and not upstream.forward_client_key:
        headers.append(upstream_credential(profile, upstream.api_key.reveal()))
    headers += [(name.lower().encode(), value.reveal().encode()) for name, value in upstream.headers.items()]
    return headers


def _ready(resolved: ResolvedRoute) -> Target:
    upstream, profile = resolved.upstream, resolved.profile
    origin = upstream_origin(upstream)
    headers = [(b"content-type", b"application/json"), *upstream_headers(upstream, profile)]
    timeouts = resolved.timeouts
    route = Route(
        dialect=upstream.dialect,
        model=resolved.model,
        profile=profile,
        strict=resolved.strict,
        format=resolved.format_options,
        pairing=resolved.pairing,
    )
    prompted = msgspec.structs.replace(route, prompted=resolved.prompted_options)
    return Target(
        upstream=resolved.upstream_name,
        model=resolved.model,
        dialect=upstream.dialect,
        # A model without tools reads an earlier session's calls as text, whether it is taught tools or not.
        route=route if resolved.tools == "native" else prompted,
        tools=resolved.tools,
        origin=origin,
        timeouts=Timeouts(
            connect=timeouts.connect_s, first_byte=timeouts.first_byte_s, idle=timeouts.idle_s, total=timeouts.total_s
        ),
        pool=PoolLimits(
            name=resolved.upstream_name,
            # The upstream's lane counts its requests, and each of them has one connection.
            max_connections=sys.maxsize,
            max_idle=upstream.max_idle_connections,
            idle_lifetime=upstream.keep_idle_s,
        ),
        base_url=upstream.base_url,
        own_path=upstream.path,
        fixed_headers=tuple(headers),
        profile=profile,
        limits=resolved.limits,
        context_limit_kb=resolved.context_limit_kb,
        forward_key=upstream.forward_client_key,
        secrets=_secrets(upstream),
        prompted_route=prompted if resolved.may_switch else None,
    )


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


def _secrets(upstream: Upstream) -> tuple[str, ...]:
    """The upstream's key and secret headers; very short values would only mangle messages."""
    values = [upstream.api_key, upstream.proxy, *upstream.headers.values()]
    return tuple(secret.reveal() for secret in values if secret is not None and len(secret.reveal()) >= 8)


def upstream_credential(profile: Profile, key: str) -> tuple[bytes, bytes]:
    """The header in which an upstream takes a key."""
    if profile.auth == "bearer":
        return b"authorization", b"Bearer " + key.encode()
    return profile.auth.encode(), key.encode()
