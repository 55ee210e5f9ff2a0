"""The list of models that clients see: the rules of the configuration, and what the upstreams themselves list.

Upstreams are asked when a client asks, all at once and within a few seconds; what they say is kept for a while. One that does
not answer is missing with its models, and is named in a header: `athena code` stops there before an agent runs into it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import quote, urlsplit

import msgspec

from athena.dialects.base import ModelEntry
from athena.errors import AthenaError
from athena.profiles import profile_for
from athena.serving.network import upstream_url
from athena.serving.targets import credential_header
from athena.shells.config import Config, OfferedModel, Router, Upstream, Window, read_models
from athena.shells.config.ready import upstream_headers, upstream_origin
from athena.shells.upstream import PoolLimits, Timeouts, UpstreamClient

ListState = Literal["ok", "no_list", "refused", "unreachable", "not_asked"]
"""What came of asking: a list; an answer that is none; 401 or 403; nothing; or it was not asked (`list_models`)."""

_KEEP_S = 300.0
_KEEP_FAILURE_S = 5.0
_LIMIT_S = 5.0
_MOST_BYTES = 16 * 1024 * 1024
_MOST_KEYS = 64
"""Lists that are kept for clients whose own keys go to an upstream."""
_PATHS = {"gemini": "/v1beta/models?pageSize=1000", "anthropic_messages": "/v1/models?limit=1000"}
_DIALECT_HEADERS = {"anthropic_messages": [(b"anthropic-version", b"2023-06-01")]}
_CREATED = 1_700_000_000


class Offer(msgspec.Struct, frozen=True):
    """The models that one upstream listed, or the problem it answered with."""

    state: ListState
    models: tuple[OfferedModel, ...] = ()
    problem: str = ""
    """Why there is no list, where that may matter."""


class Listing(msgspec.Struct, frozen=True):
    """What clients see, and how the upstreams fared."""

    models: tuple[ModelEntry, ...]
    offers: Mapping[str, Offer]

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The state of every upstream, and a warning for each that has a problem."""
        states = ", ".join(f"{quote(name)}={offer.state}" for name, offer in self.offers.items())
        warnings = "; ".join(f"upstream {name}: {offer.problem}" for name, offer in self.offers.items() if offer.problem)
        headers = [(b"x-athena-upstreams", states.encode())] if states else []
        if warnings:
            headers.append((b"x-athena-warnings", " ".join(warnings.split()).encode("latin-1", "replace")[:2000]))
        return headers


class ModelLists:
    """The lists of all upstreams of one gateway."""

    def __init__(self, client: Callable[[], UpstreamClient], clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._config = Config()
        self._router = Router(self._config)
        self._kept: OrderedDict[tuple[str, str], tuple[float, Offer]] = OrderedDict()
        """By upstream and, where a client's own key goes there, by that key's digest."""
        self._asking: dict[tuple[str, str], asyncio.Task[Offer]] = {}

    def use(self, config: Config, router: Router) -> None:
        """List by this configuration from now on; upstreams that changed are asked anew."""
        before, self._config, self._router = self._config, config, router
        for place in [place for place in self._kept if before.upstreams.get(place[0]) != config.upstreams.get(place[0])]:
            del self._kept[place]

    async def listing(self, key: str | None) -> Listing:
        """All models, for a client with that key."""
        offers = await self._offers(self._config.upstreams, key)
        listed = self._router.offered_models({name: offer.models for name, offer in offers.items()})
        return Listing(tuple(_entry(model.id, model.upstream, model.window, model.model) for model in listed), offers)

    async def one(self, name: str, key: str | None) -> Listing:
        """One model, listed or not. Raises UnknownModel."""
        route = self._router.resolve(name)[0]
        offers = await self._offers({route.upstream_name: route.upstream}, key)
        window = self._router.window(name, {name: offer.models for name, offer in offers.items()})
        return Listing((_entry(name, route.upstream_name, window, route.model),), offers)

    async def offer(self, name: str) -> Offer:
        """What one upstream itself lists."""
        return (await self._offers({name: self._config.upstreams[name]}, None))[name]

    async def close(self) -> None:
        """Stop asking upstreams for their lists."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _offers(self, upstreams: Mapping[str, Upstream], key: str | None) -> dict[str, Offer]:
        offers = await asyncio.gather(*(self._offer(name, upstream, key) for name, upstream in upstreams.items()))
        return dict(zip(upstreams, offers, strict=True))

    async def _offer(self, name: str, upstream: Upstream, key: str | None) -> Offer:
        if not upstream.list_models:
            return Offer("not_asked")
        own_key = key if upstream.forward_client_key else None
        place = (name, hashlib.sha256(own_key.encode()).hexdigest() if own_key else "")
        until, kept = self._kept.get(place, (0.0, None))
        if kept is not None and self._clock() < until:
            return kept
        task = self._asking.get(place)
        if task is None:
            task = self._asking[place] = asyncio.ensure_future(self._ask(name, upstream, own_key))
            task.add_done_callback(lambda done: self._answered(place, done))
        # A client that leaves does not take the answer from the others that wait for it.
        return await asyncio.shield(task)

    def _answered(self, place: tuple[str, str], task: asyncio.Task[Offer]) -> None:
        self._asking.pop(place, None)
        if task.cancelled() or task.exception() is not None:
            return
        offer = task.result()
        keep_s = _KEEP_FAILURE_S if offer.problem else _KEEP_S
        _, before = self._kept.pop(place, (0.0, None))
        if offer.state == "unreachable" and before is not None and before.models:
            offer = msgspec.structs.replace(offer, models=before.models)  # its models will be back with it
        self._kept[place] = (self._clock() + keep_s, offer)
        while len(self._kept) > len(self._config.upstreams) + _MOST_KEYS:
            self._kept.popitem(last=False)

    async def _ask(self, name: str, upstream: Upstream, own_key: str | None) -> Offer:
        profile = profile_for(upstream.profile, upstream.dialect)
        parts = urlsplit(upstream_url(upstream.base_url, _PATHS.get(upstream.dialect, "/v1/models")))
        headers = [(b"accept", b"application/json"), *_DIALECT_HEADERS.get(upstream.dialect, [])]
        headers += upstream_headers(upstream, profile)
        if own_key:
            headers.append(credential_header(profile, own_key))
        try:
            response = await self._client().send(
                "GET",
                upstream_origin(upstream),
                f"{parts.path}?{parts.query}" if parts.query else parts.path,
                headers,
                timeouts=Timeouts(connect=_LIMIT_S, first_byte=_LIMIT_S, idle=_LIMIT_S, total=_LIMIT_S),
                # A pool of its own: a list must not wait behind requests, nor take a place from them.
                limits=PoolLimits(name=f"{name} (model list)", max_connections=1, max_idle=0),
            )
            with contextlib.closing(response):
                if response.status in (401, 403):
                    return Offer("refused", problem=f"it refuses its credentials (status {response.status})")
                body = b""
                while response.status == 200 and len(body) <= _MOST_BYTES and (piece := await response.read()):
                    body += piece
        except AthenaError as failure:
            return Offer("unreachable", problem=failure.message)
        try:
            models = read_models(msgspec.json.decode(body)) if body else ()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            models = ()
        return Offer("ok", models) if models else Offer("no_list")


def _entry(name: str, upstream: str, window: Window, model: str) -> ModelEntry:
    return ModelEntry(
        id=name,
        created=_CREATED,
        owner=upstream,
        display_name=name,
        max_input=window.context,
        max_output=window.output,
        root=model,
    )
