"""HTTP/1.1 as clients speak it to us: uvicorn's httptools protocol with bounds, time limits and strictness added.

Labelled "hostile client". llhttp already refuses every ambiguous length, bare line ends, folded lines and odd chunk sizes (the
table in `tests/shells/test_server_front.py`). Added here (`reliability.md` rows 49 to 52): head size, field count and
time; one Host; no transfer coding but plain chunked; trailers dropped; a refusal that the client can read even while it still
sends; all pipelined requests end when their connection does.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import struct
from typing import Any

import httptools
import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from athena.shells.config import Config
from athena.shells.gateway.app import CUT

LOG = logging.getLogger("athena.server")
_LINGER = 2.0
"""Seconds for which a refused client's further bytes are read and dropped, so that it gets to read the refusal."""
_PIPELINED = 16
_RESET = struct.pack("ii", 1, 0)
_FRAMING = (b"content-length", b"transfer-encoding")


class FrontLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a request's head."""

    header_bytes: int
    header_fields: int
    headers_s: float
    idle_s: int = 75
    """How long an unused connection stays: longer than clients keep theirs, so that they never meet a closed one."""


class Front:
    """What all connections of one process share."""

    def __init__(self, limits: FrontLimits) -> None:
        self.limits = limits
        self.empty = asyncio.Event()
        """Set while no connection is open."""
        self.empty.set()
        self.draining = False


def front_limits(config: Config) -> FrontLimits:
    """The bounds a configuration sets."""
    return FrontLimits(
        header_bytes=config.limits.header_bytes,
        header_fields=config.limits.header_fields,
        headers_s=config.timeouts.client_headers_s,
    )


def protocol_for(front: Front) -> type[FrontProtocol]:
    """The protocol class of one server."""
    return type("FrontProtocol", (FrontProtocol,), {"front": front})


def bounded_protocol(config: Config) -> type[FrontProtocol]:
    """The protocol to hand to a `uvicorn.Config` as `http`, for a gateway that somebody else serves."""
    return protocol_for(Front(front_limits(config)))


class _Refused(Exception):
    """Ends the parsing of a request that `refuse` will answer."""


class FrontProtocol(HttpToolsProtocol):
    """One client connection."""

    front: Front

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = self.front.limits
        self.timeout_keep_alive = self._limits.idle_s
        self._in_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._deaf = False
        """Further bytes are read and dropped."""
        self._repeating = False
        """A head is told to a new parser; it has been acted on before."""
        self._refusal: tuple[int, str, str] | None = None
        self._running: RequestResponseCycle | None = None

    # -- connection --------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self.front.empty.clear()
        self._await_head()
        if self.front.draining:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._disconnect_all()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if not self.connections:
            self.front.empty.set()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        was_in_head = self._in_head
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.refuse(*(self._refusal or (400, "bad_request", "this is not a valid request in HTTP/1.1")))
        else:
            self._judge_head(len(data) if was_in_head else 0)

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._stay_plain()

    def _judge_head(self, more: int) -> None:
        """Bound a head that is still coming in."""
        if self._in_head:
            self._head_bytes += more
            if self._head_bytes > self._limits.header_bytes:
                self.refuse(431, "headers_too_large", f"the headers are larger than {self._limits.header_bytes} bytes")
                return
        elif self.cycle is not None and not self.cycle.response_complete:
            return
        self._await_head()

    def _stay_plain(self) -> None:
        """An upgrade nobody here speaks: read on as if it had not been asked for. The parser must be told by a new head."""
        self.parser = httptools.HttpRequestParser(self)
        framing = [name + b": " + value + b"\r\n" for name, value in self.headers if name in _FRAMING]
        if framing:
            self._repeating = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n")
            self._repeating = False

    # -- parser callbacks --------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._repeating:
            return
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._repeating:
            return
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._repeating:
            return
        self._count(len(name) + len(value) + 4)
        if not self._in_head:
            return  # a trailer: what came too late for the checks must not join the headers
        if len(self.headers) >= self._limits.header_fields:
            self._refuse_soon(431, "too_many_headers", f"the request has more than {self._limits.header_fields} header fields")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._repeating:
            return
        self._in_head = False
        self._stop_head_timer()
        self._check_head()
        if len(self.pipeline) >= _PIPELINED:
            self._refuse_soon(400, "too_many_pipelined", "too many requests were sent before their answers")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and any(name in _FRAMING for name, _ in self.headers):
            return  # the parser takes the body for another protocol; see _stay_plain
        super().on_message_complete()

    def _check_head(self) -> None:
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._refuse_soon(505, "http_version", f"HTTP/{version} is not spoken here; use HTTP/1.1")
        if b"#" in self.url:
            self._refuse_soon(400, "bad_target", "the request target holds a fragment")
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and (value.strip().lower() != b"chunked" or version == "1.0"):
                self._refuse_soon(400, "transfer_encoding", "the only transfer coding is chunked, and only in HTTP/1.1")
        if hosts > 1 or (not hosts and version == "1.1"):
            self._refuse_soon(400, "bad_host", "the request must name exactly one Host")

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.header_bytes:
            self._refuse_soon(431, "headers_too_large", f"the headers are larger than {self._limits.header_bytes} bytes")

    def _refuse_soon(self, status: int, code: str, message: str) -> None:
        """From inside the parser: stop it, `data_received` answers."""
        self._refusal = (status, code, message)
        raise _Refused

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.scope["extensions"] = {CUT: {"now": self._cut_off}}
        super()._start_asgi_task(cycle, app)

    def _cut_off(self) -> None:
        """The application gives this client up: what it never read is freed now."""
        self._disconnect_all()
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            # Without this the kernel keeps trying to deliver what is left.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def on_response_complete(self) -> None:
        running = self._running
        if running is not None and running.more_body and not self.transport.is_closing():
            # Answered before the whole body came: the rest is no request.
            self.server_state.total_requests += 1
            self._linger()
            return
        if self.front.draining and not self.pipeline and not self.transport.is_closing():
            self.transport.close()
        super().on_response_complete()

    # -- refusals ----------------------------------------------------------------------------------------------------------

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer what is no usable request, and end the connection."""
        running = self._running
        in_answer = running is not None and running.response_started and not running.response_complete
        self._disconnect_all()
        LOG.info("request refused: %s", message, extra={"fields": {"status": status, "code": code}})
        if in_answer or self.transport.is_closing():
            # Words of ours inside somebody's answer would become part of it.
            self.transport.abort()
            return
        self._write_refusal(status, code, message)
        self._linger()

    def cut(self) -> None:
        """The gateway ends now, whatever this client is doing."""
        running = self._running
        if running is not None and not running.response_started and not self._deaf:
            self.refuse(503, "shutting_down", "the gateway is shutting down")
        else:
            self.transport.abort()

    def _write_refusal(self, status: int, code: str, message: str) -> None:
        # One body that the error readers of all dialects understand; which dialect this client speaks is not known yet.
        kind = "invalid_request_error" if status < 500 else "api_error"
        body = msgspec.json.encode({"type": "error", "error": {"type": kind, "code": code, "message": message}})
        request_id = b"req_" + secrets.token_hex(12).encode()
        head = [
            STATUS_LINE[status],
            *(name + b": " + value + b"\r\n" for name, value in self.server_state.default_headers),
            b"content-type: application/json\r\n",
            b"content-length: %d\r\n" % len(body),
            b"request-id: %b\r\nx-request-id: %b\r\n" % (request_id, request_id),
            b"connection: close\r\n\r\n",
        ]
        self.transport.write(b"".join(head) + body)

    def _linger(self) -> None:
        """Half-close and read on for a moment: closing with unread bytes would reset the answer away."""
        self._deaf = True
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER, self.transport.abort)

    def _disconnect_all(self) -> None:
        """Tell every request of this connection, running or waiting, that nobody listens any more."""
        waiting = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        for cycle in (self._running, *waiting):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    # -- time --------------------------------------------------------------------------------------------------------------

    def _await_head(self) -> None:
        if self._head_timer is None and not self._deaf:
            self._head_timer = self.loop.call_later(self._limits.headers_s, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._in_head:
            self.refuse(408, "headers_timeout", f"the headers took longer than {self._limits.headers_s:g} seconds")
        else:
            self.transport.close()
