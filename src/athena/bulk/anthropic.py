"""Message Batches of Anthropic's API: `POST /v1/messages/batches` and what is asked about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from athena.bulk.values import BatchResult, BatchState, RequestBatch, RequestState, StateCounts, Submitted
from athena.errors import ClientError, InvalidRequest

_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
PREFIX = "msgbatch_"


def read_batch(body: Mapping[str, Any], most: int) -> list[Submitted]:
    """The requests of a batch. Raises InvalidRequest, in the words of the API."""
    requests = body.get("requests")
    if not isinstance(requests, list) or not requests:
        raise InvalidRequest("requests: must be a list of at least one request", path="requests")
    if len(requests) > most:
        raise ClientError(f"requests: more than {most} requests", code="request_too_large", kind="too_large", status=413)
    found: dict[str, Submitted] = {}
    for position, request in enumerate(requests):
        path = f"requests.{position}"
        if not isinstance(request, dict):
            raise InvalidRequest(f"{path}: must be an object", path=path)
        name, params = request.get("custom_id"), request.get("params")
        if not isinstance(name, str) or _CUSTOM_ID.fullmatch(name) is None:
            text = "must be 1 to 64 letters, digits, hyphens or underscores"
            raise InvalidRequest(f"{path}.custom_id: {text}", path=f"{path}.custom_id")
        if name in found:
            raise InvalidRequest(f"{path}.custom_id: {name!r} is used twice", path=f"{path}.custom_id")
        if not isinstance(params, dict):
            raise InvalidRequest(f"{path}.params: must be an object", path=f"{path}.params")
        if params.get("stream"):
            raise InvalidRequest(f"{path}.params.stream: a batch is not streamed", path=f"{path}.params.stream")
        found[name] = Submitted(name, msgspec.json.encode(params))
    return list(found.values())


def batch_object(batch: RequestBatch, counts: StateCounts, base_url: str) -> dict[str, Any]:
    """A batch as its client sees it. Its requests are counted when all of it has ended; until then they are in work."""
    has_ended = batch.state is BatchState.ENDED
    total = sum(counts.values())
    shown = {
        "processing": 0 if has_ended else total,
        "succeeded": counts.get(RequestState.SUCCEEDED, 0) if has_ended else 0,
        "errored": counts.get(RequestState.ERRORED, 0) if has_ended else 0,
        "canceled": counts.get(RequestState.CANCELED, 0) if has_ended else 0,
        "expired": counts.get(RequestState.EXPIRED, 0) if has_ended else 0,
    }
    status = {BatchState.RUNNING: "in_progress", BatchState.CANCELING: "canceling", BatchState.ENDED: "ended"}[batch.state]
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": shown,
        "ended_at": _time(batch.ended),
        "created_at": _time(batch.created),
        "expires_at": _time(batch.expires),
        "archived_at": None,
        "cancel_initiated_at": _time(batch.cancelled),
        "results_url": f"{base_url}/v1/messages/batches/{batch.id}/results" if has_ended else None,
    }


def _time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def result_line(result: BatchResult) -> bytes:
    """One line of the results."""
    if result.state is RequestState.SUCCEEDED:
        shown: dict[str, Any] = {"type": "succeeded", "message": msgspec.Raw(result.body)}
    elif result.state is RequestState.ERRORED:
        shown = {"type": "errored", "error": msgspec.Raw(result.body)}
    else:
        shown = {"type": result.state.value}
    return msgspec.json.encode({"custom_id": result.custom_id, "result": shown}) + b"\n"


def list_object(batches: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page of a list."""
    return {
        "data": batches,
        "has_more": has_more,
        "first_id": batches[0]["id"] if batches else None,
        "last_id": batches[-1]["id"] if batches else None,
    }


def deleted_object(name: str) -> dict[str, Any]:
    return {"id": name, "type": "message_batch_deleted"}


def not_found(name: str) -> ClientError:
    return ClientError(f"Batch with id {name[:200]} not found", kind="not_found", code="batch_not_found", status=404)


def not_ended(name: str) -> ClientError:
    """Results are asked for, or a batch is to be deleted, while it is in work."""
    return ClientError(f"Batch {name[:200]} has not finished processing", kind="invalid", code="batch_not_ended", status=400)
