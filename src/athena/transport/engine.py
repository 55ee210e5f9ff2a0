"""What all requests of one transport share: the configuration, its routes, and what was learnt about models so far."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from athena.calls.names import check_names
from athena.dialects import get_dialect
from athena.dialects.base import Dialect, ModelEntry
from athena.errors import AthenaError, ClientError, ConfigError
from athena.exchange import Exchange, Head, Options, Step
from athena.model.events import Error, error_event
from athena.model.request import Request
from athena.opaque import Envelope, Memory, OpaqueStore
from athena.shells.config import Config, Router, Sources, load
from athena.shells.envelope_key import kept_envelope_key
from athena.shells.gateway.learning import Learnt
from athena.shells.gateway.routes import Door, credential, dialect_of_error, find_door
from athena.shells.gateway.targets import KnownTargets, Target
from athena.shells.gateway.tokens import TokenCounter
from athena.shells.logs import log_ignored
from athena.transport.call import Call
from athena.wire.fields import decode_json_object

_BELOW_ANY_PREFIX = (
    "/chat/completions",
    "/responses",
    "/responses/input_tokens",
    "/messages",
    "/messages/count_tokens",
    "/models",
)


class Engine:
    """One configuration, ready to answer requests from any thread or task."""

    def __init__(self, config: Config | str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> None:
        self.config = _configuration(config, settings)
        self._router = Router(self.config)
        self._envelope = Envelope(kept_envelope_key(self.config))
        self._store = _SharedStore(self.config.reasoning_store) if self.config.reasoning_store else None
        self._tokens = TokenCounter()
        self._targets = KnownTargets(self._router)
        self._lock = threading.Lock()
        self.learnt = Learnt(time.monotonic, keep_s=self.config.learning.keep_s, correct=self.config.learning.correct)

    def open(self, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> Call | Step:
        """The call to make for an SDK's request, or the answer where none is needed."""
        door = _door(path, query, headers)
        dialect = get_dialect(door.dialect if door is not None else dialect_of_error(path, headers))
        try:
            if door is None or method not in door.methods:
                raise ClientError(
                    f"{method} {path} has no counterpart behind athena.transport",
                    kind="not_found",
                    code="unknown_path",
                    status=404,
                )
            return self._enter(door, dialect, headers, query, body)
        except AthenaError as error:
            return _refusal(dialect, error_event(error))

    def targets(self, model: str) -> tuple[Target, ...]:
        """Where requests for a model go, the first meant and the others its fallbacks. Raises UnknownModel."""
        return self._targets.of(model)

    def options(self, request: Request, target: Target, seed: str, *, array: bool) -> Options:
        """What the exchange is told about this transport."""
        config = self.config
        return Options(
            seed=seed,
            created=int(time.time()),
            envelope=self._envelope,
            store=self._store,
            limits=target.limits,
            input_tokens=self._tokens.count(request, target.model) if request.stream else 0,
            stream_error_stop=config.stream_error_stop,
            reasoning_fields=config.reasoning_fields,
            pass_junk=config.passthrough_invalid,
            upstream=target.upstream,
            secrets=target.secrets,
            retry_after_max=config.retries.retry_after_max_s,
            array=array,
        )

    def learn(self, exchange: Exchange, target: Target) -> None:
        """An answer came whole: its token counts make the next estimate better."""
        if exchange.usage is not None and not exchange.usage.estimated:
            with self._lock:
                self._tokens.learn(exchange.request, target.model, exchange.usage.input_total)

    def _enter(self, door: Door, dialect: Dialect, headers: dict[str, str], query: str, body: bytes) -> Call | Step:
        if door.action in ("models", "model"):
            return _whole(self._models(door, dialect))
        value = decode_json_object(body)
        if door.action == "count":
            counted = dialect.decode_count_request(value, model=door.model)
            return _whole(dialect.encode_count(self._tokens.count(counted, self.targets(counted.model)[0].model)))
        if door.action != "answer":
            return _whole({"status": "ok"})
        asked = dialect.decode_request(value, model=door.model, stream=door.stream, version=headers.get("anthropic-version"))
        check_names(asked)
        return Call(self, asked, headers=headers, key=credential(headers, query), array=door.array)

    def _models(self, door: Door, dialect: Dialect) -> dict[str, Any]:
        entries = [
            ModelEntry(id=entry.id, owner=entry.upstream, display_name=entry.id) for entry in self._router.listed_models()
        ]
        if door.action == "models":
            return dialect.encode_models(entries)
        wanted = door.model or ""
        self.targets(wanted)
        listing = dialect.encode_models([entry for entry in entries if entry.id == wanted] or [ModelEntry(id=wanted)])
        one: dict[str, Any] = next(iter(listing.get("data") or listing.get("models") or [{}]))
        return one


class _SharedStore(OpaqueStore):
    """The same store for clients in several threads."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._lock = threading.Lock()

    def put(self, tenant: str, call_id: str, memory: Memory) -> None:
        with self._lock:
            super().put(tenant, call_id, memory)


def _refusal(dialect: Dialect, error: Error) -> Step:
    """A failure as a whole answer."""
    answer = dialect.encode_error(error)
    return Step(Head(answer.status, {"content-type": "application/json", **answer.headers}), answer.body, True)


def _configuration(config: Config | str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> Config:
    if isinstance(config, Config):
        if settings:
            raise ConfigError("give a Config or keyword arguments, not both")
        return config
    loaded = load(Sources.here(settings, None if config is None else os.fspath(config)))
    if loaded.is_empty:
        reason = "no upstream: give base_url=..., a configuration file, or set OPENROUTER_API_KEY"
        raise ConfigError("\n".join((reason, *map(str, loaded.ignored))))
    log_ignored(loaded)
    return loaded.config


def _door(path: str, query: str, headers: Mapping[str, str]) -> Door | None:
    """The door of a path below whatever base URL the SDK was given: its host and prefix mean nothing here."""
    door = find_door(path, query, headers)
    if door is not None:
        return door
    start = path.rfind("/models/")
    if start >= 0 and path[start:] != "/models/":
        return find_door("/v1beta" + path[start:] if ":" in path[start:] else "/v1" + path[start:], query, headers)
    for suffix in _BELOW_ANY_PREFIX:
        if path.endswith(suffix):
            return find_door("/v1" + suffix, query, headers)
    return None


def _whole(body: dict[str, Any]) -> Step:
    return Step(Head(200, {"content-type": "application/json"}), msgspec.json.encode(body), True)
