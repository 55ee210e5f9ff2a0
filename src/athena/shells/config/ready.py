"""A resolved route made ready for use: the exchange's `Route`, the upstream's address, its credentials and headers."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from athena.bounded_cache import BoundedCache
from athena.calls.names import check_model_name
from athena.exchange import Route
from athena.model.profile import Profile
from athena.serving.network import Origin, PoolLimits, Timeouts, TlsSettings, parse_base_url
from athena.serving.targets import Target, credential_header
from athena.shells.config import ResolvedRoute, Router, Upstream

_REMEMBERED_BYTES = 8 * 1024 * 1024
_TARGET_BYTES = 4096
"""About what one target takes in memory."""


class _Access(msgspec.Struct, frozen=True):
    """How an upstream is reached, whichever of its models is asked."""

    origin: Origin
    secrets: tuple[str, ...]


def ready_targets(router: Router, model: str) -> tuple[Target, ...]:
    """The targets for a client's model name, ready for use. Raises UnknownModel."""
    return tuple(_ready(route, _access(route.upstream)) for route in router.resolve(model))


class KnownTargets:
    """The targets of the model names that were asked for under one configuration; bounded, since clients choose the names."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._known: BoundedCache[str, tuple[Target, ...]] = BoundedCache(_REMEMBERED_BYTES)
        self._access: dict[str, _Access] = {}

    def of(self, model: str) -> tuple[Target, ...]:
        """The targets of a model name. Raises UnknownModel, and InvalidRequest for a name that can be no model's."""
        known = self._known.get(model)
        if known is None:
            check_model_name(model)
            known = tuple(_ready(route, self._access_to(route)) for route in self._router.resolve(model))
            self._known.put(model, known, len(known) * _TARGET_BYTES + 4 * len(model))
        return known

    def _access_to(self, route: ResolvedRoute) -> _Access:
        access = self._access.get(route.upstream_name)
        if access is None:
            access = self._access[route.upstream_name] = _access(route.upstream)
        return access


def upstream_origin(upstream: Upstream) -> Origin:
    """Where an upstream's connections lead."""
    ca_file = str(Path(upstream.ca_file).expanduser()) if upstream.ca_file is not None else None
    tls = TlsSettings(ca_file=ca_file, verify=upstream.verify)
    proxy = upstream.proxy.reveal() if upstream.proxy is not None else None
    origin, _ = parse_base_url(upstream.base_url.partition("?")[0], tls=tls, proxy=proxy)
    return origin


def upstream_headers(upstream: Upstream, profile: Profile) -> list[tuple[bytes, bytes]]:
    """What every request to an upstream carries: its profile's headers, its key, the operator's headers."""
    headers = [(name.encode(), value.encode()) for name, value in profile.headers.items()]
    if upstream.api_key is not None and not upstream.forward_client_key:
        headers.append(credential_header(profile, upstream.api_key.reveal()))
    headers += [(name.lower().encode(), value.reveal().encode()) for name, value in upstream.headers.items()]
    return headers


def _ready(resolved: ResolvedRoute, access: _Access) -> Target:
    upstream, profile = resolved.upstream, resolved.profile
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
        origin=access.origin,
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
        secrets=access.secrets,
        has_key=bool(access.secrets),
        prompted_route=prompted if resolved.may_switch else None,
        place=resolved.place,
    )


def _access(upstream: Upstream) -> _Access:
    return _Access(upstream_origin(upstream), _secrets(upstream))


def _secrets(upstream: Upstream) -> tuple[str, ...]:
    """The upstream's key and secret headers; very short values would only mangle messages."""
    values = [upstream.api_key, upstream.proxy, *upstream.headers.values()]
    return tuple(secret.reveal() for secret in values if secret is not None and len(secret.reveal()) >= 8)
