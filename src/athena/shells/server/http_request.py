"""One request on a connection of `http`, and its answer: what the gateway knows as its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

import httptools

from athena.shells.gateway.client import ClientGone, Headers, Recent
from athena.shells.server.front import CONTINUE

if TYPE_CHECKING:
    from athena.shells.server.http import HttpConnection

_BODY_WAITING = 256 * 1024
"""Bytes of a request's body that may wait for the gateway before the socket is no longer read."""
_JOIN_BYTES = 64 * 1024
"""An answer up to this size is copied after its head: one segment and one system call less."""
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_CHUNKED = (b"transfer-encoding", b"chunked")
_CLOSE = (b"connection", b"close")


def status_line(status: int) -> bytes:
    """The first line of an answer; upstreams use unregistered statuses (529)."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status


class HttpRequest:
    """One request on a connection, and the way its answer is written."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_complete",
        "_chunked",
        "_connection",
        "_enough",
        "_expects_continue",
        "_head",
        "_takes_chunks",
        "_waiter",
        "answered",
        "blocked",
        "complete",
        "gone",
        "headers",
        "keep_alive",
        "method",
        "on_doubt",
        "on_drained",
        "on_gone",
        "path",
        "query",
        "recent",
        "waiting_bytes",
    )

    def __init__(
        self, connection: HttpConnection, method: str, url: bytes, fields: Headers, *, keep_alive: bool, version: str
    ) -> None:
        self.method = method
        self.path, self.query = _split(url)
        headers: dict[str, str] = {}
        for raw_name, raw_value in fields:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self.headers = headers
        self.keep_alive = keep_alive
        self._takes_chunks = version == "1.1"
        self.blocked = False
        self.recent: Recent | None = None
        self.on_gone: Callable[[], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self.on_doubt: Callable[[], None] | None = None
        self.answered = False
        """The head of the answer is out, or about to."""
        self.complete = False
        """The last byte of the answer is written."""
        self.gone = False
        self.waiting_bytes = 0
        """What came of it: its head, and all of its body."""
        self._connection = connection
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._enough = 0
        self._body_complete = False
        self._expects_continue = headers.get("expect", "").lower() == "100-continue"
        self._waiter: asyncio.Future[None] | None = None
        self._head = b""
        self._chunked = False

    # -- the request -------------------------------------------------------------------------------------------------------

    def take_body(self) -> tuple[bytes, bool]:
        """What came of the body since the last call, and whether that was all of it."""
        if self.gone:
            raise ClientGone
        pieces = self._body
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if pieces:
            self._body = []
            if self._body_bytes > _BODY_WAITING:
                self._connection.read_on()
            self._body_bytes = 0
        return data, self._body_complete

    async def more_body(self, enough: int) -> None:
        """Wait until the body is complete or more than `enough` bytes of it (at most 256 KiB) are buffered."""
        self._enough = min(enough, _BODY_WAITING)
        if self._body_bytes > self._enough or self._body_complete or self.gone:
            return
        if self._expects_continue:
            self._expects_continue = False
            self._connection.write(CONTINUE)
        self._waiter = self._connection.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    @property
    def peer(self) -> str:
        """The address of the other end of the connection."""
        return self._connection.peer

    @property
    def wholly_read(self) -> bool:
        """Has all of the request come?"""
        return self._body_complete

    def body_came(self, data: bytes) -> None:
        """The next piece of the body."""
        if self.complete:
            return
        self._body.append(data)
        self._body_bytes += len(data)
        self.waiting_bytes += len(data)
        if self._body_bytes > _BODY_WAITING:
            self._connection.read_no_more()
        if self._body_bytes > self._enough:
            self._wake()

    def body_ended(self) -> None:
        self._body_complete = True
        self._wake()

    def left(self) -> None:
        """The client is gone, or given up."""
        self.gone = True
        self._wake()
        if not self.complete and self.on_gone is not None:
            on_gone, self.on_gone = self.on_gone, None
            on_gone()

    def probe(self) -> None:
        """Send the client something that it passes over while it waits: it may have left."""
        if self.answered:
            if self.on_doubt is not None:
                self.on_doubt()
        elif self._takes_chunks:
            self._connection.write(CONTINUE)

    def drained(self) -> None:
        """The client took what waited for it."""
        self.blocked = False
        if self.on_drained is not None:
            self.on_drained()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- the answer --------------------------------------------------------------------------------------------------------

    def accept_socket(self, headers: Headers) -> bool:
        """Change to WebSocket. False: the request cannot be answered so."""
        connection = self._connection
        if self.gone or self.answered or not self._takes_chunks or not connection.asks_for_socket(self):
            return False
        self.answered = self.complete = True
        lines = [b"HTTP/1.1 101 Switching Protocols\r\n", connection.front.date_line]
        connection.write(b"".join([*lines, *(b"%b: %b\r\n" % field for field in headers), b"\r\n"]))
        connection.become_socket(self)
        return True

    def start(self, status: int, headers: Headers, length: int | None) -> None:
        self.answered = True
        connection = self._connection
        lines = [status_line(status), connection.front.date_line]
        lines += [b"%b: %b\r\n" % field for field in headers]
        if length is not None:
            lines.append(b"content-length: %d\r\n" % length)
        elif self._takes_chunks:
            self._chunked = True
            lines.append(b"%b: %b\r\n" % _CHUNKED)
        else:
            self.keep_alive = False
        if connection.front.draining or not self._body_complete:
            self.keep_alive = False
        if not self.keep_alive:
            lines.append(b"%b: %b\r\n" % _CLOSE)
        lines.append(b"\r\n")
        self._head = b"".join(lines)

    def write(self, data: bytes) -> None:
        """The next bytes of the body, each write one chunk."""
        if self.gone or self.complete or not data:
            return
        if self.method == "HEAD":
            data = b""
        elif self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head:
            data, self._head = self._head + data, b""
        self._connection.write(data)

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        """The transport's own way of writing, once the head is out."""
        if self.gone or self.complete or self._head or not self._chunked or self.method == "HEAD":
            return None
        return self._connection.raw_write

    def finish(self, data: bytes = b"") -> None:
        """The last bytes of the body."""
        if self.complete:
            return
        if not self.gone:
            if self.method == "HEAD":
                data = b""
            elif self._chunked:
                data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"
            if self._head and len(data) > _JOIN_BYTES:
                self._connection.write(self._head)
            elif self._head:
                data = self._head + data
            self._head = b""
            self._connection.write(data)
        self.complete = True
        self._connection.answered(self)

    def cut_off(self) -> None:
        """The client is given up: what waits for it is thrown away."""
        self._connection.abort()


def _split(url: bytes) -> tuple[str, str]:
    """Path, percent-decoded, and query of a request's target."""
    if not url.startswith(b"/"):
        parsed = httptools.parse_url(url)
        path, query = (parsed.path or b"/").decode("ascii"), (parsed.query or b"").decode("latin-1")
    else:
        head, _, tail = url.partition(b"?")
        path, query = head.decode("ascii"), tail.decode("latin-1")
    return unquote(path) if "%" in path else path, query
