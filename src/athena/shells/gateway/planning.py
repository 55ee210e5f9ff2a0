"""Requests of Responses: which of them continue what is kept here, and loading that."""

from __future__ import annotations

from typing import Any, NamedTuple

from athena.errors import LimitExceeded
from athena.model.request import Request
from athena.serving.holding import RequestMemory
from athena.serving.record import RequestRecord
from athena.serving.weight import weigh
from athena.shells.config import StoreSettings
from athena.shells.gateway.client import Recent
from athena.shells.gateway.configured import Configured
from athena.shells.gateway.incoming import LARGE_BODY
from athena.shells.gateway.responses_state import RequestDecode, ResponsePlan, remembered_request
from athena.shells.gateway.stored_api import nothing_kept
from athena.shells.store import store_settings
from athena.state.asked import referred_ids
from athena.state.ids import is_ours
from athena.state.remembered import PartMemory
from athena.wire.recall import Recall

_BYTES_OF_VALUE = 8
"""Bytes of JSON that a value takes on the average of a history, at the least."""


class Native(NamedTuple):
    """A request that goes as it is to the upstream that keeps state itself."""

    model: str
    body: dict[str, Any]


class PlainRequest(NamedTuple):
    """A request of which nothing is kept here, and what is remembered of its parts."""

    request: Request
    recall: Recall | None
    sent: dict[str, Any] | None = None
    """The body with what the connection remembers in it, where the request continues that."""


def planned(
    body: dict[str, Any],
    recall: Recall | None = None,
    *,
    configured: Configured,
    owner: str,
    decode: RequestDecode,
    compaction: bool,
    recent: Recent | None,
    remembered: PartMemory | None,
) -> ResponsePlan | PlainRequest | Native:
    """What is to be done about a request of Responses; the request itself where its upstream, or nobody, keeps it."""
    model = body.get("model")
    # What an upstream was told not to keep, only the connection knows.
    is_own = recent is not None and body.get("store") is False
    if not is_own and isinstance(model, str) and model and _is_native(configured, model, body):
        return Native(model, body) if compaction else PlainRequest(decode(body, recall), recall)
    state = configured.responses
    if state is None:
        if compaction:
            raise nothing_kept()
        if recent is None:
            return PlainRequest(decode(body, recall), recall)
        request, sent = remembered_request(body, decode, recent, recall)
        return PlainRequest(request, recall, sent)
    plan = state.plan(body, owner, decode, compaction=compaction, recall=recall, remembered=remembered)
    plan.recent = recent
    return plan


def _is_native(configured: Configured, model: str, body: dict[str, Any]) -> bool:
    """Does the upstream of this model keep Responses itself, and is what the request continues not kept here?"""
    settings: StoreSettings | None = store_settings(configured.config)
    if settings is None or not settings.native:
        return False
    targets = configured.targets(model)
    if not all(target.dialect == "openai_responses" for target in targets):
        return False
    names = referred_ids(body)
    if names:
        return not any(map(is_ours, names))
    return all(target.profile.store for target in targets)


async def load_history(
    plan: ResponsePlan, configured: Configured, memory: RequestMemory, record: RequestRecord, *, locks: bool = True
) -> None:
    """Load what the request continues. What it takes in memory is asked for before it is decoded."""
    assert configured.responses is not None
    limits = configured.config.limits

    def admit(size: int) -> None:
        if size > limits.body_bytes:
            most = f"{limits.body_bytes} bytes"
            message = f"the history since its last compaction is larger than {most}; begin anew, and compact earlier"
            raise LimitExceeded(message, code="request_too_large", status=413)
        weight = weigh(size, narrow=False, values=size // _BYTES_OF_VALUE)
        memory.weighed(weight)
        record.large = record.large or size > LARGE_BODY

    plan.most = limits.body_bytes
    try:
        await configured.responses.load(plan, admit, locks=locks)
    except BaseException:
        await plan.close()
        raise
