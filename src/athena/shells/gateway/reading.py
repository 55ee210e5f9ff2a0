"""A client's request for an answer: read, decoded by its dialect, and with what it continues where that is kept."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from typing import Any, NamedTuple

from athena.calls.names import check_names
from athena.dialects.base import Dialect
from athena.errors import InvalidRequest
from athena.model.request import Request
from athena.serving.endpoints import Endpoint
from athena.serving.holding import RequestMemory
from athena.shells.config import LimitSettings
from athena.shells.gateway.incoming import read_request
from athena.shells.gateway.metrics import Metrics
from athena.shells.gateway.native_state import refuse_references
from athena.shells.gateway.planning import Native, PlainRequest, load_history, planned
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.responses_state import ResponsePlan
from athena.state.remembered import PartMemory
from athena.wire.fragments import Fragments
from athena.wire.recall import Recall
from athena.wire.surrogates import encode_json


class ReadRequest(NamedTuple):
    """A request that can be served."""

    request: Request
    body: bytes
    """Where a tap wants to see it; else empty."""
    plan: ResponsePlan | None = None
    """What is to be kept of its answer."""
    recall: Recall | None = None
    """What is remembered of its parts."""


class RequestReader:
    """Reads requests. Parts of them that came before are not decoded again, for the client that sent them."""

    def __init__(self, fragments: Fragments, metrics: Metrics) -> None:
        self._fragments = fragments
        self._metrics = metrics
        self._salt = os.urandom(32)

    async def read(self, received: ReceivedRequest, memory: RequestMemory) -> ReadRequest | Native:
        """The whole request. Raises what `read_request` raises, and what the dialect and the store say."""
        client, endpoint, dialect, record = received.client, received.endpoint, received.dialect, received.record
        configured, unserved = received.configured, received.unserved
        limits, timeouts = configured.config.limits, configured.config.timeouts
        decode = partial(
            _decode, endpoint=endpoint, dialect=dialect, limits=limits, version=client.headers.get("anthropic-version")
        )
        wants_body = configured.shared.wants_bodies
        keep = unserved.keep if wants_body else forget
        is_stateless = configured.responses is None and configured.natives is None and client.recent is None
        if endpoint.dialect != "openai_responses" or (is_stateless and endpoint.action != "compact"):
            decoded, weight, record.large = await read_request(
                client,
                limits,
                timeouts.client_body_s,
                memory,
                decode,
                on_body=keep,
                fragments=self._fragments,
                space=lambda: (dialect.name, self._caller(received.key)),
            )
            memory.decoded(weight)
            request, recall = decoded
            if recall is not None:
                self._metrics.known_parts.inc(recall.known)
                self._metrics.new_parts.inc(recall.new)
                recall = None if recall.is_empty else recall
            if configured.config.keys and endpoint.dialect == "openai_responses" and request.raw is not None:
                refuse_references(request.raw)  # nothing is noted here of whose it is
            return ReadRequest(request, unserved.body, None, recall)
        space = (dialect.name, self._caller(received.key))
        plans = partial(
            planned,
            configured=configured,
            owner=record.key,
            decode=lambda body, recall=None: decode(body, recall)[0],
            compaction=endpoint.action == "compact",
            recent=client.recent,
            remembered=PartMemory(self._fragments, space),
        )
        plan, weight, record.large = await read_request(
            client,
            limits,
            timeouts.client_body_s,
            memory,
            plans,
            on_body=keep,
            fragments=self._fragments,
            space=lambda: space,
        )
        memory.decoded(weight)
        if isinstance(plan, Native):
            assert configured.natives is not None, "its upstream keeps Responses"
            await configured.natives.check_owner(record.key, plan.body)
            return plan
        if isinstance(plan, PlainRequest):
            if configured.natives is not None and plan.request.raw is not None:
                await configured.natives.check_owner(record.key, plan.request.raw)
            elif configured.config.keys and plan.request.raw is not None:
                refuse_references(plan.request.raw)
            known = encode_json(plan.sent) if plan.sent is not None and wants_body else unserved.body
            return ReadRequest(plan.request, known, None, plan.recall)
        if plan.request is None:
            await load_history(plan, configured, memory, record)
        if plan.recall is not None:
            self._metrics.known_parts.inc(plan.recall.known)
            self._metrics.new_parts.inc(plan.recall.new)
        assert plan.request is not None
        return ReadRequest(plan.request, encode_json(plan.sent) if wants_body else b"", plan, plan.recall)

    def _caller(self, key: str | None) -> bytes:
        """Whose parts of requests a request may find again: those of the same credential. The credential itself is not kept."""
        return hashlib.blake2b((key or "").encode("utf-8", "surrogatepass"), key=self._salt, digest_size=16).digest()


def forget(body: bytes) -> None:
    """Stands for the taps' body hook when no tap wants bodies."""


def _decode(
    value: dict[str, Any],
    recall: Recall | None = None,
    *,
    endpoint: Endpoint,
    dialect: Dialect,
    limits: LimitSettings,
    version: str | None,
) -> tuple[Request, Recall | None]:
    used = None if recall is None or recall.is_empty else recall
    request = dialect.decode_request(value, model=endpoint.model, stream=endpoint.stream, version=version, recall=used)
    # Turns of which something was found out passed this check before.
    check_names(request, 0 if used is None else used.facts_known(request.turns))
    if len(request.tools) > limits.tools:
        raise InvalidRequest(f"tools: more than {limits.tools} tools", path="tools", code="too_many_tools")
    return request, recall
