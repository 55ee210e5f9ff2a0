"""Batches of OpenAI's API: `/v1/batches`, and `/v1/files` as far as batches need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from athena.bulk.values import BatchResult, BatchState, File, LineProblem, RequestBatch, RequestState, StateCounts, Submitted
from athena.errors import ClientError, InvalidRequest

PREFIX = "batch_"
FILE_PREFIX = "file-"
ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/completions")
"""Where the requests of a batch may go."""
_PROBLEMS_SHOWN = 50
_METADATA = 16


class BatchAsked(msgspec.Struct, frozen=True):
    """What `POST /v1/batches` says."""

    input_file: str
    endpoint: str
    metadata: dict[str, str]


def read_batch(body: Mapping[str, Any]) -> BatchAsked:
    """Raises InvalidRequest, in the words of the API."""
    name, endpoint = body.get("input_file_id"), body.get("endpoint")
    if not isinstance(name, str) or not name:
        raise InvalidRequest("Missing required parameter: 'input_file_id'.", path="input_file_id")
    if endpoint not in ENDPOINTS:
        allowed = ", ".join(f"'{each}'" for each in ENDPOINTS)
        raise InvalidRequest(f"Invalid value for 'endpoint'. Supported values are: {allowed}.", path="endpoint")
    if body.get("completion_window") != "24h":
        raise InvalidRequest("Invalid value for 'completion_window'. Supported values are: '24h'.", path="completion_window")
    metadata = body.get("metadata") or {}
    if (
        not isinstance(metadata, dict)
        or len(metadata) > _METADATA
        or not all(isinstance(value, str) and len(value) <= 512 and len(key) <= 64 for key, value in metadata.items())
    ):
        raise InvalidRequest("metadata: at most 16 texts of at most 512 characters", path="metadata")
    return BatchAsked(name, endpoint, metadata)


def read_lines(content: bytes, endpoint: str, most: int) -> tuple[list[Submitted], list[LineProblem]]:
    """The requests of a file, or what is wrong with it, line by line."""
    found: dict[str, Submitted] = {}
    problems: list[LineProblem] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        if len(found) >= most:
            problems.append(LineProblem("too_many_requests", f"The file has more than {most} requests.", number))
            break
        read = _line(line, number, endpoint, found)
        if isinstance(read, LineProblem):
            problems.append(read)
            if len(problems) >= _PROBLEMS_SHOWN:
                break
        else:
            found[read.custom_id] = read
    if not found and not problems:
        problems.append(LineProblem("empty_file", "The input file is empty. Please ensure that the batch contains a request."))
    return list(found.values()), problems


def _line(line: bytes, number: int, endpoint: str, found: Mapping[str, Submitted]) -> Submitted | LineProblem:
    try:
        value: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return LineProblem("invalid_json_line", "This line is not parseable as valid JSON.", number)
    name, body = value.get("custom_id"), value.get("body")
    if not isinstance(name, str) or not 0 < len(name) <= 512:
        return LineProblem("missing_required_parameter", "Missing required parameter: 'custom_id'.", number, "custom_id")
    if "\0" in name:  # PostgreSQL has no such text
        return LineProblem("invalid_value", "Invalid value for 'custom_id': it must not hold a NUL.", number, "custom_id")
    if name in found:
        return LineProblem(
            "duplicate_custom_id", "The custom_id for this request is a duplicate of another one.", number, "custom_id"
        )
    if value.get("method", "POST") != "POST":
        return LineProblem("invalid_method", "Invalid value for 'method'. Supported values are: 'POST'.", number, "method")
    if value.get("url") != endpoint:
        return LineProblem("invalid_url", "The URL provided for this request does not match the batch endpoint.", number, "url")
    if not isinstance(body, dict):
        return LineProblem("missing_required_parameter", "Missing required parameter: 'body'.", number, "body")
    if body.get("stream") or body.get("background"):
        return LineProblem("unsupported_value", "A batch is neither streamed nor made in the background.", number, "body")
    return Submitted(name, msgspec.json.encode(body))


# -- what is shown -----------------------------------------------------------------------------------------------------------


def batch_object(batch: RequestBatch, counts: StateCounts) -> dict[str, Any]:
    """A batch as its client sees it."""
    has_ended = batch.state is BatchState.ENDED
    done, failed = counts.get(RequestState.SUCCEEDED, 0), counts.get(RequestState.ERRORED, 0)
    unasked = counts.get(RequestState.EXPIRED, 0)
    status = _status(batch, unasked)
    ended = int(batch.ended) if batch.ended is not None else None
    errors: dict[str, Any] | None = None
    if batch.problems:
        data = [{"code": each.code, "line": each.line, "message": each.message, "param": each.param} for each in batch.problems]
        errors = {"object": "list", "data": data}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": errors,
        "input_file_id": batch.input_file,
        "completion_window": "24h",
        "status": status,
        "output_file_id": output_file(batch, failed=False) if has_ended and done else None,
        "error_file_id": output_file(batch, failed=True) if has_ended and failed + unasked else None,
        "created_at": int(batch.created),
        "in_progress_at": int(batch.created) if status != "failed" else None,
        "expires_at": int(batch.expires),
        "finalizing_at": ended if status == "completed" else None,
        "completed_at": ended if status == "completed" else None,
        "failed_at": ended if status == "failed" else None,
        "expired_at": ended if status == "expired" else None,
        "cancelling_at": int(batch.cancelled) if batch.cancelled is not None else None,
        "cancelled_at": ended if status == "cancelled" else None,
        "request_counts": {"total": sum(counts.values()), "completed": done, "failed": failed},
        "metadata": batch.metadata or None,
    }


def _status(batch: RequestBatch, expired: int) -> str:
    if batch.problems:
        return "failed"
    if batch.state is BatchState.ENDED:
        return "cancelled" if batch.cancelled is not None else "expired" if expired else "completed"
    return "cancelling" if batch.state is BatchState.CANCELING else "in_progress"


def output_file(batch: RequestBatch, *, failed: bool) -> str:
    """The id of the file with the results of a batch, or with those that are errors."""
    return f"{FILE_PREFIX}{batch.id.removeprefix(PREFIX)}{'e' if failed else 'o'}"


def batch_of_file(name: str) -> tuple[str, bool] | None:
    """The batch whose results are in a file of that name, and whether they are errors."""
    bare = name.removeprefix(FILE_PREFIX)
    if bare == name or bare[-1:] not in ("e", "o"):
        return None
    return PREFIX + bare[:-1], bare[-1] == "e"


def result_line(result: BatchResult) -> bytes:
    """One line of a file with results."""
    response: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    if result.body:
        response = {"status_code": result.status, "request_id": result.request_id, "body": msgspec.Raw(result.body)}
    else:
        error = {"code": "batch_expired", "message": "This request could not be executed before the completion window expired."}
    line = {"id": f"batch_req_{result.position}", "custom_id": result.custom_id, "response": response, "error": error}
    return msgspec.json.encode(line) + b"\n"


def is_in(result: BatchResult, *, failed: bool) -> bool:
    """Does a result stand in that file?"""
    return (
        result.state is RequestState.SUCCEEDED if not failed else result.state in (RequestState.ERRORED, RequestState.EXPIRED)
    )


def file_object(file: File) -> dict[str, Any]:
    """A file as its client sees it."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size,
        "created_at": int(file.created),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "expires_at": None,
        "status_details": None,
    }


def list_object(items: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page of a list."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def deleted_file(name: str) -> dict[str, Any]:
    return {"id": name, "object": "file", "deleted": True}


def batch_not_found(name: str) -> ClientError:
    return ClientError(f"No batch found with id '{name[:200]}'.", kind="not_found", code="batch_not_found", status=404)


def file_not_found(name: str) -> ClientError:
    return ClientError(f"No such File object: {name[:200]}", kind="not_found", code="file_not_found", status=404, path="id")
