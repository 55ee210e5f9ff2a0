"""What holds for every client connection, whichever protocol class serves it (docs/reference/faults.md#clients-that-misbehave).

Head size, field count and time; one Host; no transfer coding but plain chunked; trailers dropped; a refusal that the client
can read even while it still sends; all pipelined requests end when their connection does.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import secrets
import socket
import struct
import termios
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from athena.errors import AthenaError
from athena.serving.budget import Budget
from athena.serving.holding import RETRY_AFTER_S
from athena.shells.config import Config, is_loopback
from athena.shells.server.admission import Admission, Places, Standing

LOG = logging.getLogger("athena.server")

LINGER_S = 2.0
"""Seconds for which a refused client's further bytes are read and dropped, so that it gets to read the refusal."""
PIPELINED = 16
_RESET = struct.pack("ii", 1, 0)
FRAMING = (b"content-length", b"transfer-encoding")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""May come before any answer: a client of HTTP/1.1 passes over it, whether it asked for it or not."""
REFUSED_S = 2.0
"""Seconds in which a client that finds no room may send the head of its request, so that it can be answered."""
_ALL = Places(connections=1 << 20, per_address=0, refused=8)
_SILENCE_S = 60.0
_WHITESPACE = " \t\n\r\v\f"
"""That of ASCII: in a value, other characters that Unicode calls blank are characters like any other."""


class FrontLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The largest head of a request that is accepted."""

    header_bytes: int
    header_fields: int
    headers_s: float
    write_s: float
    """How long a client may leave what was written to it."""
    idle_s: int = 75
    """How long an unused connection stays: longer than clients keep theirs, so that they never meet a closed one."""


def front_limits(config: Config) -> FrontLimits:
    return FrontLimits(
        header_bytes=config.limits.header_bytes,
        header_fields=config.limits.header_fields,
        headers_s=config.timeouts.client_headers_s,
        write_s=config.timeouts.client_write_s,
    )


class FrontConnection(Protocol):
    """A client connection, as the end of the gateway sees it."""

    def shutdown(self) -> None:
        """The gateway drains: an idle connection ends, a busy one after its answers."""

    def cut(self) -> None:
        """The gateway ends now, whatever this client is doing."""

    def is_delivered(self) -> bool:
        """Is the connection closing, and has the client's machine taken every byte?"""

    def give_way(self) -> None:
        """Another client needs the place of this idle connection: it ends now."""


class Front:
    """What all connections of one process share."""

    def __init__(self, limits: FrontLimits, memory: Budget | None = None) -> None:
        self.limits = limits
        self.memory = memory or Budget(1 << 60, time.monotonic)
        """What connections hold counts there too."""
        self.connections: set[FrontConnection] = set()
        self.admission: Admission[FrontConnection] = Admission(_ALL, time.monotonic)
        self.shares_loopback = True
        """Clients on this machine are counted per address as well."""
        self.arriving = 0
        """Connections that are accepted and have not yet entered."""
        self.on_room: list[Callable[[], None]] = []
        """Called when a connection has left, or has become idle."""
        self.on_refusal: Callable[[], None] = lambda: None
        self._told_at = -_SILENCE_S
        self.tasks: set[asyncio.Task[None]] = set()
        self.empty = asyncio.Event()
        """Set while no connection is open."""
        self.empty.set()
        self.draining = False
        self._delivered: set[FrontConnection] = set()
        self.date_line = b""
        """The Date header, with its line end."""

    @property
    def is_full(self) -> bool:
        """Is there no place for one more connection, not even to refuse it?"""
        places = self.admission.places
        return self.admission.is_full or len(self.admission) + self.arriving >= places.connections + places.refused

    def entered(self, connection: FrontConnection, transport: asyncio.BaseTransport) -> Standing:
        """A connection is open; what becomes of it. One that is SHUT does not count as open."""
        standing, victim = self.admission.enter(connection, self._address(transport))
        if victim is not None:
            victim.give_way()
        if standing in (Standing.REFUSED, Standing.SHUT):
            self._refused()
        if standing is not Standing.SHUT:
            self.connections.add(connection)
            self.empty.clear()
        return standing

    def left(self, connection: FrontConnection) -> None:
        self.connections.discard(connection)
        self.admission.leave(connection)
        if not self.connections:
            self.empty.set()
        self._tell_of_room()

    def replaced(self, connection: FrontConnection, other: FrontConnection) -> None:
        """An open connection speaks another protocol from now on."""
        self.connections.discard(connection)
        self.connections.add(other)
        self.admission.replace(connection, other)

    def rests(self, connection: FrontConnection) -> None:
        """It was answered and is kept for its next request."""
        self.admission.rests(connection)
        for tell in self.on_room:
            tell()

    def arrived(self) -> None:
        """A connection that was accepted has entered, or has come to nothing."""
        self.arriving -= 1
        self._tell_of_room()

    def close_one(self) -> None:
        """The system is out of descriptors: close an idle connection, if there is one."""
        victim = self.admission.victim()
        if victim is not None:
            victim.give_way()

    def end_delivered(self) -> None:
        """Call it again and again under TLS: closing waits for the client's goodbye there, and idle clients never say it.

        A connection ends when it was found delivered twice in a row: once may be the moment between two writes.
        """
        delivered = {connection for connection in self.connections if connection.is_delivered()}
        for connection in delivered & self._delivered:
            connection.cut()
        self._delivered = delivered - self._delivered

    def _tell_of_room(self) -> None:
        for tell in self.on_room:
            tell()

    def _refused(self) -> None:
        self.on_refusal()
        now = time.monotonic()
        if now - self._told_at >= _SILENCE_S:
            self._told_at = now
            places = self.admission.places
            LOG.warning(
                "all places for client connections are taken (%d, for one address %d): more get a 503. See limits.connections",
                places.connections,
                places.per_address,
            )

    def _address(self, transport: asyncio.BaseTransport) -> str:
        """Where a connection comes from; empty where it is not counted."""
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        return "" if not self.shares_loopback and is_loopback(host) else host


def too_many_connections() -> AthenaError:
    """The answer to a client for whose connection there is no room."""
    return AthenaError(
        "the gateway has as many connections as it may (limits.connections); ask again in a moment",
        kind="overloaded",
        code="too_many_connections",
        retry_after=RETRY_AFTER_S,
    )


class Refused(Exception):
    """Ends the parsing of a request that is then refused."""


class HalfClosed:
    """The watch over a client that sends nothing more while its answer is under way.

    It may wait for the answer, or it may be gone altogether: a FIN says both. Only something that is sent to it tells them
    apart: the machine of a client that is gone refuses it with a reset. The event loop does not read from such a connection any
    more and so does not see the reset; the state of the socket shows it.
    """

    _LOOK_S = 0.2
    _CLOSED = 7
    """TCP_CLOSE of the kernel's `tcp_states.h`."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, on_gone: Callable[[], None]) -> None:
        self._transport = transport
        self._loop = loop
        self._on_gone = on_gone
        self._timer = loop.call_later(self._LOOK_S, self._look)

    @staticmethod
    def can_be_told(transport: asyncio.Transport) -> bool:
        """TLS closes both directions at once, and not every system shows the state of a socket: then a FIN means gone."""
        return hasattr(socket, "TCP_INFO") and transport.get_extra_info("sslcontext") is None

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        sock = self._transport.get_extra_info("socket")
        try:
            state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] if sock is not None else self._CLOSED
        except (OSError, ValueError):
            return  # the connection is closed already
        if state == self._CLOSED:
            self._on_gone()
        else:
            self._timer = self._loop.call_later(self._LOOK_S, self._look)


HeadProblem = tuple[int, str, str]
"""Status, code and message of a refusal."""


def check_head(version: str, url: bytes, names: list[str], values: list[str]) -> HeadProblem | None:
    """What llhttp lets through and we do not; names are lower-case, and each has its value at the same place."""
    if version != "1.1" and version != "1.0":
        return 505, "http_version", f"HTTP/{version} is not spoken here; use HTTP/1.1"
    if b"#" in url:
        return 400, "bad_target", "the request target holds a fragment"
    if "transfer-encoding" in names:
        codings = [value for name, value in zip(names, values, strict=True) if name == "transfer-encoding"]
        if version == "1.0" or any(coding.strip(_WHITESPACE).lower() != "chunked" for coding in codings):
            return 400, "transfer_encoding", "the only transfer coding is chunked, and only in HTTP/1.1"
    hosts = names.count("host")
    if hosts > 1 or (not hosts and version == "1.1"):
        return 400, "bad_host", "the request must name exactly one Host"
    return None


def refusal_bytes(status: int, code: str, message: str) -> bytes:
    """The answer to what is no usable request, from behind the status line on.

    One body that the error readers of all dialects understand; which dialect this client speaks is not known yet.
    """
    kind = "invalid_request_error" if status < 500 else "api_error"
    body = msgspec.json.encode({"type": "error", "error": {"type": kind, "code": code, "message": message}})
    request_id = b"req_" + secrets.token_hex(12).encode()
    wait = b"retry-after: %d\r\n" % RETRY_AFTER_S if status == 503 else b""
    return (
        b"content-type: application/json\r\ncontent-length: %d\r\nrequest-id: %b\r\nx-request-id: %b\r\n%b"
        b"connection: close\r\n\r\n%b" % (len(body), request_id, request_id, wait, body)
    )


def is_delivered(transport: asyncio.Transport) -> bool:
    """Is the connection closing, and has the client's machine taken every byte? Not every system tells."""
    sock = transport.get_extra_info("socket")
    if sock is None or not transport.is_closing() or transport.get_write_buffer_size():
        return False
    with contextlib.suppress(OSError, ValueError):
        (unsent,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
        return not unsent
    return False


def reset(transport: asyncio.Transport) -> None:
    """End a connection whose client does not read, at once."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        # A connection that is closed already has no descriptor any more.
        with contextlib.suppress(OSError, ValueError):
            # Without this the kernel keeps trying to deliver what is left.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()
