"""One answer of the gateway as messages of a socket: server-sent events without their frame, or an error.

The gateway writes what it would write over HTTP. Comments, which only keep a connection open, become nothing: the socket has
pings for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from athena.websocket.frames import with_lane, wrapped_error
from athena.wire.sse import SseDecoder

_TERMINAL = frozenset(("response.completed", "response.incomplete", "response.failed"))
_ERROR_BODY = 64 * 1024
_CLIENTS_TURN: dict[str, tuple[str, ...]] = {
    "function_call": ("function_call_output", "call_id", "name"),
    "custom_tool_call": ("custom_tool_call_output", "call_id"),
    "computer_call": ("computer_call_output", "call_id"),
    "shell_call": ("shell_call_output", "call_id"),
    "local_shell_call": ("local_shell_call_output", "call_id"),
    "apply_patch_call": ("apply_patch_call_output", "call_id"),
    "mcp_approval_request": ("mcp_approval_response", "approval_request_id"),
}
"""Items of an answer that the client has to answer: the type of the answer, and what names the item in it."""


class Ending(Enum):
    """How an answer ended."""

    OPEN = "open"
    COMPLETE = "complete"
    """With `response.completed` or `response.incomplete`."""
    FAILED = "failed"


class _Response(msgspec.Struct):
    id: str = ""
    output: list[msgspec.Raw] = []


class _Named(msgspec.Struct):
    response: _Response = msgspec.field(default_factory=_Response)


class _Typed(msgspec.Struct):
    type: str = ""


_NAMED = msgspec.json.Decoder(_Named)
_TYPED = msgspec.json.Decoder(_Typed)


class SocketAnswer:
    """The bytes of one answer over HTTP in, messages out."""

    def __init__(self, lane: str | None, event_bytes: int) -> None:
        self._lane = lane
        self._sse = SseDecoder(event_bytes)
        self._status = 200
        self._headers: Mapping[str, str] = {}
        self._whole = bytearray()
        self.ending = Ending.OPEN
        self.response_id = ""
        """Known from the first event on."""
        self.output: tuple[bytes, ...] = ()
        """The items of a complete answer, each as JSON."""

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        """The status and headers that the answer would have over HTTP."""
        self._status, self._headers = status, headers

    def feed(self, data: bytes) -> list[bytes]:
        """The next bytes of the body: the messages that they complete."""
        if self._status >= 300:
            self._whole += data[: _ERROR_BODY - len(self._whole)]
            return []
        return [message for name, payload in self._sse.feed(data) if (message := self._message(name, payload)) is not None]

    def end(self) -> list[bytes]:
        """The body is over: what is left to say."""
        if self._status >= 300:
            self.ending = Ending.FAILED
            return [wrapped_error(_error_of(bytes(self._whole)), self._status, self._lane, self._headers)]
        messages = [message for record in self._sse.close() if (message := self._message(*record)) is not None]
        if self.ending is Ending.OPEN:
            self.ending = Ending.FAILED
            error = {"type": "server_error", "code": "internal_error", "message": "the answer has no end", "param": None}
            messages.append(wrapped_error(error, 500, self._lane))
        return messages

    def _message(self, name: str, payload: bytes) -> bytes | None:
        if self.ending is not Ending.OPEN or not payload.startswith(b"{"):
            return None  # nothing follows a terminal event but the end mark of some servers
        kind = name or _TYPED.decode(payload).type
        if kind == "error":
            self.ending = Ending.FAILED
            return self._error(payload)
        if kind == "response.created":
            self.response_id = _NAMED.decode(payload).response.id
        elif kind in _TERMINAL:
            response = _NAMED.decode(payload).response
            self.response_id = response.id or self.response_id
            if kind == "response.failed":
                self.ending = Ending.FAILED
            else:
                self.ending = Ending.COMPLETE
                self.output = tuple(bytes(item) for item in response.output)
        if not payload.isascii():
            # An upstream's own bytes may be anything; a client must end the connection for a text that is not UTF-8.
            payload = payload.decode("utf-8", "replace").encode()
        return with_lane(payload, self._lane)

    def _error(self, payload: bytes) -> bytes:
        """The event `error` is flat over HTTP and has an object of its own here."""
        value: Any = msgspec.json.decode(payload)
        number = value.get("sequence_number")
        inner = value.get("error")
        error = inner if isinstance(inner, dict) else {key: value.get(key) for key in ("code", "message", "param")}
        error = {"type": "server_error", **error}
        return wrapped_error(error, None, self._lane, sequence_number=number if isinstance(number, int) else None)


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body).get("error")
    except (msgspec.DecodeError, AttributeError, RecursionError):
        found = None
    if isinstance(found, dict):
        return {"type": "invalid_request_error", "code": None, "param": None, **found}
    return {"type": "server_error", "code": None, "message": "the request failed", "param": None}


def continued(history: tuple[bytes, ...], output: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """What the next request continues: all that was said, or what stands for it where the answer compacts it."""
    compactions = [place for place, item in enumerate(output) if _TYPED.decode(item).type == "compaction"]
    return history + output if not compactions else output[compactions[-1] :]


def required_inputs(output: tuple[bytes, ...]) -> list[dict[str, Any]]:
    """What a client has to send back for the items of an answer: a stub for each."""
    stubs: list[dict[str, Any]] = []
    for raw in output:
        item: Any = msgspec.json.decode(raw)
        shape = _CLIENTS_TURN.get(str(item.get("type")))
        if shape is not None:
            kind, *names = shape
            stubs.append({"type": kind, **{name: item.get(name, item.get("id")) for name in names}})
        elif item.get("type") == "tool_search_call" and item.get("execution") == "client":
            stubs.append({"type": "tool_search_output", "execution": "client", "call_id": item.get("call_id")})
    return stubs
