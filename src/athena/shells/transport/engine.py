"""What all requests of one transport share: the configuration, its routes, and what was learnt about models so far."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from athena.calls.names import check_names
from athena.dialects import get_dialect
from athena.dialects.base import Dialect, ModelEntry
from athena.errors import AthenaError, ClientError, ConfigError
from athena.exchange import Head, Step
from athena.model.events import Error, error_event
from athena.model.request import Request
from athena.opaque import Envelope, Memory, OpaqueStore
from athena.serving.budget import Budget
from athena.serving.choosing import Chooser
from athena.serving.endpoints import Endpoint, EndpointAction, credential, dialect_of_error, find_endpoint
from athena.serving.health import RetryBudget, UpstreamHealth
from athena.serving.holding import RequestMemory
from athena.serving.learning import Learnt
from athena.serving.record import RequestRecord
from athena.serving.route_health import RouteHealth
from athena.serving.serving import Serving
from athena.serving.settings import Health, ToolHealth
from athena.serving.shared import AnswerSettings, Shared
from athena.serving.targets import Target
from athena.serving.tokens import Measured, TokenCounter
from athena.shells.config import Config, Router, Sources, load
from athena.shells.config.places import UNKNOWN_KEY
from athena.shells.config.ready import KnownTargets
from athena.shells.envelope_key import kept_envelope_key
from athena.shells.logs import log_refusal, log_warnings
from athena.wire.fields import decode_json_object

_BELOW_ANY_PREFIX = (
    "/chat/completions",
    "/responses",
    "/responses/input_tokens",
    "/messages",
    "/messages/count_tokens",
    "/models",
)
_NEED_A_GATEWAY: frozenset[EndpointAction] = frozenset({"stored", "batches", "compact", "prepare"})
"""Endpoints of what is kept, and what needs somebody to go on with it: there is no store here."""


class Engine:
    """One configuration, ready to answer requests from any thread or task."""

    def __init__(self, config: Config | str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> None:
        self.config = _configuration(config, settings)
        config = self.config
        self._router = Router(config)
        self._targets = KnownTargets(self._router)
        self._tokens = _SharedTokens()
        keep_s = config.learning.keep_s
        self._shared = Shared(
            retries=msgspec.structs.replace(config.retries, attempts=0),
            learnt=Learnt(
                time.monotonic,
                lambda upstream, model, feature: log_refusal(upstream, model, feature, keep_s),
                keep_s=keep_s,
                correct=config.learning.correct,
            ),
            tokens=self._tokens,
            envelope=Envelope(kept_envelope_key(config)),
            store=_SharedStore(config.reasoning_store) if config.reasoning_store else None,
            answers=AnswerSettings(
                stream_error_stop=config.stream_error_stop,
                reasoning_fields=config.reasoning_fields,
                pass_junk=config.passthrough_invalid,
                stop_retries=False,
            ),
            memory=Budget(sys.maxsize, time.monotonic),
            health=UpstreamHealth(Health(failures=0, error_rate=0), time.monotonic),
            retry_budget=RetryBudget(config.retries),
            # Weights, order and sessions count here, too. What answers are worth is not watched: an application sees few.
            chooser=Chooser(RouteHealth(ToolHealth(bad_share=0), time.monotonic), lambda upstream: True),
            wall_clock=time.time,
        )

    def open(self, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> Serving | Step:
        """An SDK's request to be served, or the answer where no upstream is needed."""
        endpoint = _endpoint(path, query, headers)
        dialect = get_dialect(endpoint.dialect if endpoint is not None else dialect_of_error(path, headers))
        try:
            if endpoint is None or method not in endpoint.methods or endpoint.action in _NEED_A_GATEWAY:
                raise ClientError(
                    f"{method} {path} has no counterpart behind athena.transport",
                    kind="not_found",
                    code="unknown_path",
                    status=404,
                )
            return self._enter(endpoint, dialect, headers, path, query, body)
        except AthenaError as error:
            return _refusal(dialect, error_event(error))

    def targets(self, model: str) -> tuple[Target, ...]:
        """Where requests for a model go, the first meant and the others its fallbacks. Raises UnknownModel."""
        return self._targets.of(model)

    def _enter(
        self, endpoint: Endpoint, dialect: Dialect, headers: dict[str, str], path: str, query: str, body: bytes
    ) -> Serving | Step:
        if endpoint.action in ("models", "model"):
            return _whole(self._models(endpoint, dialect))
        value = decode_json_object(body)
        if endpoint.action == "count":
            counted = dialect.decode_count_request(value, model=endpoint.model)
            return _whole(dialect.encode_count(self._tokens.count(counted, self.targets(counted.model)[0].model)))
        if endpoint.action != "answer":
            return _whole({"status": "ok"})
        asked = dialect.decode_request(
            value, model=endpoint.model, stream=endpoint.stream, version=headers.get("anthropic-version")
        )
        check_names(asked)
        record = RequestRecord(
            request_id="req_" + secrets.token_hex(12), dialect=dialect.name, model=asked.model, stream=asked.stream
        )
        return Serving(
            self._shared,
            asked,
            self.targets(asked.model),
            record,
            RequestMemory(self._shared.memory),
            headers=headers,
            key=credential(headers, query),
            array=endpoint.array,
            now=time.monotonic(),
            body=body if self._shared.wants_bodies else b"",
            path=path,
            query=query,
        )

    def _models(self, endpoint: Endpoint, dialect: Dialect) -> dict[str, Any]:
        entries = [
            ModelEntry(id=entry.id, owner=entry.upstream, display_name=entry.id) for entry in self._router.listed_models()
        ]
        if endpoint.action == "models":
            return dialect.encode_models(entries)
        wanted = endpoint.model or ""
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


class _SharedTokens(TokenCounter):
    """The same for token counts."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def learn(self, request: Request, model: str, actual: int, measured: Measured | None = None) -> None:
        with self._lock:
            super().learn(request, model, actual, measured)


def _refusal(dialect: Dialect, error: Error) -> Step:
    """A failure as a whole answer."""
    answer = dialect.encode_error(error)
    return Step(Head(answer.status, {"content-type": "application/json", **answer.headers}), answer.body, True)


def _configuration(config: Config | str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> Config:
    if isinstance(config, Config):
        if settings:
            raise ConfigError("give a Config or keyword arguments, not both")
        return config
    loaded = load(Sources.here(settings, None if config is None else os.fspath(config), are_arguments=True))
    for problem in loaded.warnings:
        if problem.message == UNKNOWN_KEY and problem.source in settings:
            near = f"; {problem.remedy}" if problem.remedy else ""
            raise TypeError(f"there is no setting {problem.key or problem.source}{near}")
    if loaded.is_empty:
        reason = "no upstream: give base_url=..., a configuration file, or set OPENROUTER_API_KEY"
        raise ConfigError("\n".join((reason, *map(str, loaded.ignored))))
    log_warnings(loaded)
    return loaded.config


def _endpoint(path: str, query: str, headers: Mapping[str, str]) -> Endpoint | None:
    """The endpoint of a path below whatever base URL the SDK was given: its host and prefix mean nothing here."""
    endpoint = find_endpoint(path, query, headers)
    if endpoint is not None:
        return endpoint
    start = path.rfind("/models/")
    if start >= 0 and path[start:] != "/models/":
        return find_endpoint("/v1beta" + path[start:] if ":" in path[start:] else "/v1" + path[start:], query, headers)
    for suffix in _BELOW_ANY_PREFIX:
        if path.endswith(suffix):
            return find_endpoint("/v1" + suffix, query, headers)
    return None


def _whole(body: dict[str, Any]) -> Step:
    return Step(Head(200, {"content-type": "application/json"}), msgspec.json.encode(body), True)
