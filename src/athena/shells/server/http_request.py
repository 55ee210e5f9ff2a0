"""One request on a connection of `http`, and its answer: what the gateway knows as its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

import httptools
import msgspec

from athena.shells.gateway.client import ClientGone, Headers, Recent
from athena.shells.server.front import CONTINUE

if TYPE_CHECKING:
    from athena.shells.server.http import HttpConnection

_BODY_WAITING = 256 * 1024
"""Bytes of a request's body that may wait for the gateway before the socket is no longer read."""
_JOIN_BYTES = 64 * 1024
"""An answer up to this size is copied after its head: one segment and one system call less."""
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def status_line(status: int) -> bytes:
    """The first line of an answer; upstreams use unregistered statuses (529)."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status


class HttpRequest(msgspec.Struct, eq=False):
    """One request on a connection, and the way its answer is written."""

    _connection: HttpConnection
    method: str
    path: str
    query: str
    headers: dict[str, str]
    keep_alive: bool
    _takes_chunks: bool
    waiting_bytes: int
    """What came of it: its head, and all of its body."""
    _expects_continue: bool
    blocked: bool = False
    recent: Recent | None = None
    on_gone: Callable[[], None] | None = None
    on_drained: Callable[[], None] | None = None
    on_doubt: Callable[[], None] | None = None
    answered: bool = False
    """The head of the answer is out, or about to."""
    complete: bool = False
    """The last byte of the answer is written."""
    gone: bool = False
    _body: list[bytes] = []
    _body_bytes: int = 0
    _enough: int = 0
    _body_complete: bool = False
    _waiter: asyncio.Future[None] | None = None
    _head: bytes = b""
    _chunked: bool = False

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
        if self._waiter is not None and self._body_bytes > self._enough:
            self._wake()

    def body_ended(self) -> None:
        self._body_complete = True
        if self._waiter is not None:
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
        fields = list(map(b": ".join, headers))
        if length is not None:
            fields.append(b"content-length: %d" % length)
        elif self._takes_chunks:
            self._chunked = True
            fields.append(b"transfer-encoding: chunked")
        else:
            self.keep_alive = False
        front = self._connection.front
        if front.draining or not self._body_complete:
            self.keep_alive = False
        if not self.keep_alive:
            fields.append(b"connection: close")
        line = _STATUS_LINES.get(status) or status_line(status)
        self._head = b"%b%b%b\r\n\r\n" % (line, front.date_line, b"\r\n".join(fields))

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


def split_target(url: bytes) -> tuple[str, str]:
    """Path, percent-decoded, and query of a request's target."""
    if not url.startswith(b"/"):
        parsed = httptools.parse_url(url)
        path, query = (parsed.path or b"/").decode("ascii"), (parsed.query or b"").decode("latin-1")
    else:
        head, _, tail = url.partition(b"?")
        path, query = head.decode("ascii"), tail.decode("latin-1")
    return unquote(path) if "%" in path else path, query
