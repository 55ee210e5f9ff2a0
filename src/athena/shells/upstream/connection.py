"""One connection to an upstream: at most one response at a time, and never again after an unsolicited byte."""

from __future__ import annotations

import asyncio
import re
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from athena.shells.upstream.response import UpstreamResponse

# Bodies up to this size are copied after their head: one segment and one system call less.
_JOIN_BYTES = 64 * 1024
_SERVER_LIFETIME = re.compile(r"\btimeout=([0-9]{1,6})\b")


class ConnectionOwner(Protocol):
    """The pool, as a connection sees it."""

    def release(self, connection: Connection) -> None:
        """The connection is clean and free for the next request."""

    def discard(self, connection: Connection, *, stray: bool) -> None:
        """The connection is gone; `stray`: because of unsolicited bytes."""


class Connection(asyncio.Protocol):
    """A place in the pool from the first attempt to connect until the end."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._response: UpstreamResponse | None = None
        self._relay: Callable[[bytes], bool] | None = None
        """Asked first about bytes of the response; False: they are for the response, and so are all that follow."""
        self._poll: select.poll | None = None
        self._paused = False
        self.dead = False
        self.uses = 0
        self.idle_since = 0.0
        self.expires_at = 0.0
        self.server_lifetime: float | None = None

    # -- life --------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open, TLS included."""
        opened = cast(asyncio.Transport, transport)
        if self.dead:
            opened.abort()
            return
        self._transport = opened
        sock = transport.get_extra_info("socket")
        if hasattr(select, "poll") and sock is not None:
            self._poll = select.poll()
            self._poll.register(sock.fileno(), select.POLLIN)

    @property
    def is_open(self) -> bool:
        """Connected, and not yet given up."""
        return self._transport is not None and not self.dead

    def is_clean(self) -> bool:
        """Can a request be written now: open, and nothing unread in the kernel (stray bytes, or the server's FIN)?"""
        if self.dead or self._transport is None or self._transport.is_closing():
            return False
        return not self.has_unread()

    def has_unread(self) -> bool:
        """Is anything in the kernel that the loop has not read yet, be it the server's FIN?"""
        return self._poll is not None and bool(self._poll.poll(0))

    def abort(self, *, stray: bool = False) -> None:
        """Give the connection up, at once and for good."""
        if self.dead:
            return
        self.dead = True
        self._poll = self._relay = None
        # Parted: the transport knows its protocol for as long as it likes.
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._owner.discard(self, stray=stray)

    # -- one response ------------------------------------------------------------------------------------------------------

    def begin(self, response: UpstreamResponse, head: bytes, body: bytes) -> bool:
        """Write a request whose answer goes to `response`; False, and nothing written, if the connection is gone."""
        transport = self._transport
        if self.dead or transport is None or transport.is_closing():
            return False
        self._response = response
        self.uses += 1
        if len(body) <= _JOIN_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        return True

    def end(self, *, reusable: bool, stray: bool, keep_alive: str | None) -> None:
        """The response is complete on the wire; `keep_alive` is what the server said in its Keep-Alive header."""
        self._response = self._relay = None
        transport = self._transport
        if self.dead or transport is None:
            return
        # A server that answered without reading the whole request will read the rest as its next one.
        if not reusable or stray or transport.is_closing() or transport.get_write_buffer_size():
            self.abort(stray=stray)
            return
        if keep_alive is not None and (found := _SERVER_LIFETIME.search(keep_alive)):
            # A second early: at the promised moment the server's FIN is under way already.
            self.server_lifetime = float(found[1]) - 1.0
        self.resume_reading()
        self._owner.release(self)

    def drop(self, response: UpstreamResponse) -> None:
        """The response failed or is not wanted any more: what is left of it must never meet another request.

        A response that has given its connection back before has no say over it any more.
        """
        if self._response is response:
            self._response = self._relay = None
            self.abort()

    def pass_by(self, response: UpstreamResponse, relay: Callable[[bytes], bool] | None) -> None:
        """Ask this first about what comes for the response; see `UpstreamResponse.pass_by`."""
        if self._response is response:
            self._relay = relay

    def shut_down(self) -> None:
        """The client closes: a response under way ends with an error."""
        response, self._response = self._response, None
        self.abort()
        if response is not None:
            response.client_closed()

    def pause_reading(self) -> None:
        """Let the kernel's buffers fill, and with them the sender's."""
        self._relay = None
        if not self._paused and self.is_open and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and self.is_open and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # -- called by the loop ------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Bytes for the response under way; without one they are unexpected and the connection dies."""
        relay = self._relay
        if relay is not None:
            if relay(data):
                return
            self._relay = None
        response = self._response
        if response is not None:
            response.data_received(data)
        else:
            self.abort(stray=True)

    def eof_received(self) -> None:
        """The server will send no more; the transport closes itself afterwards."""
        response, self._response = self._response, None
        if response is not None:
            response.connection_ended()
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by whomever."""
        response, self._response = self._response, None
        if response is not None and exc is None:
            response.connection_ended()
        elif response is not None:
            response.connection_lost(exc)
        self.abort()
