"""What a client sends over the socket, read into values, and the messages that are ours alone: errors and steering.

A message is read one level deep. What stands below is kept as the client wrote it: the gateway reads it as it reads the body of
a plain request, with the same checks and the same errors.

Labelled "hostile client": a message may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from athena.errors import ClientError, InvalidRequest
from athena.model.events import Error
from athena.wire.surrogates import encode_json

_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_WITHOUT = frozenset(("type", "stream_id", "generate", "stream", "input", "previous_response_id"))
"""What of a message is no part of the request's body, or is put into it anew."""
_STEER_FIELDS = frozenset(("type", "previous_response_id", "input"))
_STEER_MESSAGE = frozenset(("type", "role", "content", "id", "status"))
_STEER_PARTS = frozenset(("input_text", "input_image", "input_file"))
_OWN_HEADERS = frozenset(("content-type", "content-length", "cache-control", "x-accel-buffering", "vary"))
"""Headers of an answer that say nothing to whoever gets an error as a message."""
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])

MessageFields = dict[str, msgspec.Raw]


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """`response.create`: a request."""

    lane: str | None
    """The `stream_id`; None is the lane that has no name."""
    fields: MessageFields
    """The body's fields but for its input and what it continues."""
    input: tuple[bytes, ...] | None
    """Its items, each as JSON; None where there is no input."""
    previous: str | None
    """The response that it continues."""
    generates: bool
    """False: only get ready; nothing is asked of a model."""
    size: int


class Steer(msgspec.Struct, frozen=True, kw_only=True):
    """`response.steer`: more input for an answer that is under way."""

    target: str
    """The id of the response."""
    input: msgspec.Raw
    """As the client wrote it."""
    items: tuple[bytes, ...]
    """The same as items, each as JSON."""
    problem: str
    """Why it cannot be used; empty where it can."""


class LaneProblem(ClientError):
    """A message that is answered by an error and leaves everything else as it was.

    Correct the field that the error names, or send fewer messages at a time.
    """

    def __init__(self, message: str, *, code: str, path: str, status: int = 400, lane: str | None = None) -> None:
        super().__init__(message, code=code, path=path, status=status)
        self.lane = lane


def read_message(text: bytes) -> Create | Steer:
    """One message of a client. Raises LaneProblem, or InvalidRequest for what is not a JSON object."""
    try:
        fields = _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the message is not a JSON object: {error}", code="invalid_json") from None
    kind = _string(fields, "type")
    if kind == "response.create":
        return _create(fields, len(text))
    if kind == "response.steer":
        return _steer(fields)
    raise LaneProblem(
        f"type must be response.create or response.steer, not {(kind or 'missing')[:100]!r}",
        code="unknown_event_type",
        path="type",
    )


def _create(fields: MessageFields, size: int) -> Create:
    lane = _lane(fields)
    try:
        if _value(fields, "background") is True:
            raise LaneProblem(
                "background answers are not made over a WebSocket; send a plain request",
                code="unsupported_value",
                path="background",
            )
        if (asked := _value(fields, "generate")) is not None and not isinstance(asked, bool):
            raise LaneProblem("generate must be true or false", code="invalid_type", path="generate")
        generates = asked is not False and not _prewarms(fields)
        return Create(
            lane=lane,
            fields={name: value for name, value in fields.items() if name not in _WITHOUT},
            input=_items(fields.get("input")),
            previous=_string(fields, "previous_response_id"),
            generates=generates,
            size=size,
        )
    except LaneProblem as problem:
        problem.lane = lane
        raise


def _prewarms(fields: MessageFields) -> bool:
    """`prompt_cache_options.prewarm` overrules `generate`."""
    options = _value(fields, "prompt_cache_options")
    return isinstance(options, dict) and options.get("prewarm") is True


def _lane(fields: MessageFields) -> str | None:
    if "stream_id" not in fields:
        return None
    lane = _value(fields, "stream_id")
    if lane is None:
        return None
    if isinstance(lane, str) and _STREAM_ID.fullmatch(lane):
        return lane
    raise LaneProblem(
        "The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain letters, numbers, "
        "underscores, hyphens, and periods.",
        code="invalid_stream_id",
        path="stream_id",
    )


def _items(raw: msgspec.Raw | None) -> tuple[bytes, ...] | None:
    """The items of an input; a text is the message of a user."""
    if raw is None:
        return None
    start = bytes(raw)[:1]
    if start == b'"':
        return (b'{"type":"message","role":"user","content":%b}' % bytes(raw),)
    if start == b"[":
        return tuple(bytes(item) for item in _ITEMS.decode(raw))
    if bytes(raw) == b"null":
        return None
    raise LaneProblem("input must be a text or a list of items", code="invalid_type", path="input")


def _steer(fields: MessageFields) -> Steer:
    target = _string(fields, "previous_response_id") or ""
    raw = fields.get("input", msgspec.Raw(b"null"))
    extra = [name for name in fields if name not in _STEER_FIELDS]
    problem = ""
    items: tuple[bytes, ...] = ()
    if extra:
        problem = f"this event has no field {extra[0][:100]!r}"
    elif not target:
        problem = "previous_response_id must name the response to steer"
    else:
        try:
            items = _items(raw) or ()
        except LaneProblem as error:
            problem = error.message
        problem = problem or ("input must not be empty" if not items else next(filter(None, map(_unsteerable, items)), ""))
    return Steer(target=target, input=raw, items=items, problem=problem)


def _unsteerable(item: bytes) -> str:
    """Why an item cannot steer; empty where it can."""
    try:
        value: Any = msgspec.json.decode(item)
    except (msgspec.DecodeError, RecursionError):
        return "input is not valid JSON"
    if not isinstance(value, dict) or value.get("type", "message") != "message" or value.get("role") != "user":
        return "steering takes messages with the role user only"
    if not value.keys() <= _STEER_MESSAGE:
        return "a message of steering has only type, role and content"
    content = value.get("content")
    if isinstance(content, str):
        return ""
    if not isinstance(content, list) or not content:
        return "content must be a text or a list of parts"
    if all(isinstance(part, dict) and part.get("type") in _STEER_PARTS for part in content):
        return ""
    return "content may hold input_text, input_image and input_file only"


def _value(fields: MessageFields, name: str) -> Any:
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise LaneProblem(f"{name}: {error}", code="invalid_json", path=name) from None


def _string(fields: MessageFields, name: str) -> str | None:
    value = _value(fields, name)
    if value is None or isinstance(value, str):
        return value
    raise LaneProblem(f"{name} must be a text", code="invalid_type", path=name)


# -- what we send --------------------------------------------------------------------------------------------------------------


def with_lane(payload: bytes, lane: str | None) -> bytes:
    """A message with the name of its lane; `payload` is a JSON object with at least one field."""
    # A lane's name needs no escapes.
    return payload if lane is None else b'%b,"stream_id":"%b"}' % (payload.rstrip()[:-1], lane.encode())


def error_message(error: Error, status: int, lane: str | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """An `error` message."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"type": kind, "code": error.code, "message": error.message, "param": error.param or None}
    return wrapped_error(body, status, lane, headers)


def wrapped_error(
    error: dict[str, Any],
    status: int | None,
    lane: str | None,
    headers: Mapping[str, str] | None = None,
    sequence_number: int | None = None,
) -> bytes:
    """An `error` message around what an answer over HTTP would hold. Some clients look for the headers inside of the error,
    others beside it."""
    shown = {name: value for name, value in (headers or {}).items() if name not in _OWN_HEADERS}
    if shown:
        error = {**error, "headers": shown}
    message: dict[str, Any] = {"type": "error", "error": error}
    if status is not None:
        message["status"] = status
    if shown:
        message["headers"] = shown
    if sequence_number is not None:
        message["sequence_number"] = sequence_number
    return with_lane(encode_json(message), lane)


def steer_message(
    kind: str, number: int, lane: str | None, steer: Mapping[str, Any], fields: Mapping[str, Any] | None = None
) -> bytes:
    """One of the messages `response.steer.*`."""
    message = {"type": f"response.steer.{kind}", "sequence_number": number, "steer": steer, **(fields or {})}
    return with_lane(encode_json(message), lane)
