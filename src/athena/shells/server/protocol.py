"""HTTP/1.1 as clients speak it to us, on uvicorn's httptools protocol; the rules added to it are `front`'s.

The server to choose where another part of a process needs uvicorn's ways; `http` does the same with less.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from athena.shells.gateway.app import Gateway
from athena.shells.gateway.asgi_client import CUT
from athena.shells.server.admission import Standing
from athena.shells.server.front import (
    CONTINUE,
    FRAMING,
    LINGER_S,
    PIPELINED,
    REFUSED_S,
    Front,
    HalfClosed,
    Refused,
    check_head,
    is_delivered,
    refusal_bytes,
    reset,
    too_many_connections,
)

LOG = logging.getLogger("athena.server")


def uvicorn_protocol(gateway: Gateway, front: Front, loop: asyncio.AbstractEventLoop) -> Callable[[], FrontProtocol]:
    """What makes the protocol of a new connection."""
    settings = uvicorn.Config(
        gateway,
        http=FrontProtocol,
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        date_header=False,
        server_header=False,
        proxy_headers=False,
    )
    settings.load()
    return partial(FrontProtocol, gateway, front, settings, ServerState(), loop)


class FrontProtocol(HttpToolsProtocol):
    """One client connection of uvicorn's, held to the rules of `Front`."""

    def __init__(
        self,
        gateway: Gateway,
        front: Front,
        config: uvicorn.Config,
        server_state: ServerState,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(config, server_state, {}, loop)
        self._gateway = gateway
        self.front = front
        self._waiting_room = front.memory.lease()
        """For a head that comes slowly. Of requests that wait for their turn uvicorn reads no more than one piece."""
        self._unsent_room = front.memory.lease(answer=True)
        self._has_no_place = False
        """There was no room for this connection: its request is refused."""
        self._limits = self.front.limits
        self.timeout_keep_alive = self._limits.idle_s
        self._in_head = False
        self._head_bytes = 0
        self._head_read = 0
        """Bytes that came while a head was incomplete: no more than these are held of it."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._discarding = False
        """Further bytes are read and dropped."""
        self._repeating = False
        """A head is being repeated for a new parser; it was handled before."""
        self._refusal: tuple[int, str, str] | None = None
        self._running: RequestResponseCycle | None = None
        self._extension: dict[str, Callable[[], None]] = {}
        """What the running request's application and this connection tell each other, beside ASGI."""
        self._half_closed: HalfClosed | None = None
        """The client sends nothing more."""

    # -- connection --------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        standing = self.front.entered(self, transport)
        self._has_no_place = standing is Standing.REFUSED
        self._await_head()
        if self.front.draining or standing is Standing.SHUT:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._half_closed is not None:
            self._half_closed.stop()
            self._half_closed = None  # it knows how to end this connection
        self._disconnect_all()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._waiting_room.close()
        self._unsent_room.close()
        self.front.left(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent_room.hold(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._unsent_room.close()
        super().resume_writing()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's own always lets the connection close
        """The client sends nothing more. Whether the connection stays open: it does while a whole request is being answered."""
        running = self._running
        if self._discarding or running is None or running.response_complete or self._in_head or self.cycle.more_body:
            return False
        if not HalfClosed.can_be_told(self.transport):
            return False
        self._half_closed = HalfClosed(self.transport, self.loop, self._cut_off)
        if running.response_started:
            self._extension.get("doubt", self._extension["now"])()
        elif running.scope["http_version"] == "1.1":
            self.transport.write(CONTINUE)
        return True

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        was_in_head = self._in_head
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.refuse(*(self._refusal or (400, "bad_request", "this is not a valid request in HTTP/1.1")))
        else:
            self._head_read = self._head_read + len(data) if was_in_head else len(data)
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
            if not self._waiting_room.resize(self._head_read):
                self.refuse(503, "memory_limit", "the gateway holds as much in memory as it may; ask again in a moment")
                return
        elif self.cycle is not None and not self.cycle.response_complete:
            return
        self._await_head()

    def _stay_plain(self) -> None:
        """An unsupported upgrade: read on as if it had not been asked for. A new parser gets the head without the upgrade."""
        self.parser = httptools.HttpRequestParser(self)
        framing = [name + b": " + value + b"\r\n" for name, value in self.headers if name in FRAMING]
        if framing:
            self._repeating = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n")
            self._repeating = False

    # -- parser callbacks --------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._repeating:
            return
        self.front.admission.busy(self)
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
        self._waiting_room.close()
        self._stop_head_timer()
        problem = check_head(self.parser.get_http_version(), self.url, self.headers)
        if problem is not None:
            self._refuse_soon(*problem)
        if len(self.pipeline) >= PIPELINED:
            self._refuse_soon(400, "too_many_pipelined", "too many requests were sent before their answers")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and any(name in FRAMING for name, _ in self.headers):
            return  # the parser takes the body for another protocol; see _stay_plain
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.header_bytes:
            self._refuse_soon(431, "headers_too_large", f"the headers are larger than {self._limits.header_bytes} bytes")

    def _refuse_soon(self, status: int, code: str, message: str) -> None:
        """From inside the parser: stop it, `data_received` answers."""
        self._refusal = (status, code, message)
        raise Refused

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._extension = {"now": self._cut_off}
        cycle.scope["extensions"] = {CUT: self._extension}  # type: ignore[dict-item]  # of our own, known to our application
        self.server_state.default_headers = [(b"date", self.front.date_line[6:-2])]
        if self._has_no_place:
            cycle.keep_alive = False
            app = partial(self._gateway.turn_away, too_many_connections())
        super()._start_asgi_task(cycle, app)

    def _cut_off(self) -> None:
        """The application gives this client up: what it never read is freed now."""
        self._disconnect_all()
        reset(self.transport)

    def on_response_complete(self) -> None:
        running = self._running
        if running is not None and running.more_body and not self.transport.is_closing():
            # Answered before the whole body came: the rest is no request.
            self.server_state.total_requests += 1
            self._linger()
            return
        if (self.front.draining or self._half_closed is not None) and not self.pipeline and not self.transport.is_closing():
            self.transport.close()
        super().on_response_complete()
        if self._running is running and not self._in_head and not self.transport.is_closing():
            self.front.rests(self)

    def give_way(self) -> None:
        """Another client needs the place of this idle connection: it ends now."""
        self._discarding = True
        self.transport.close()

    # -- refusals ----------------------------------------------------------------------------------------------------------

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer what is no usable request, and end the connection."""
        running = self._running
        in_answer = running is not None and running.response_started and not running.response_complete
        self._disconnect_all()
        LOG.info("request refused: %s", message, extra={"fields": {"status": status, "code": code}})
        if in_answer or self.transport.is_closing():
            # Words of ours inside another answer would become part of it.
            self.transport.abort()
            return
        self.transport.write(STATUS_LINE[status] + self.front.date_line + refusal_bytes(status, code, message))
        self._linger()

    def cut(self) -> None:
        """The gateway ends now, whatever this client is doing."""
        running = self._running
        if running is not None and not running.response_started and not self._discarding:
            self.refuse(503, "shutting_down", "the gateway is shutting down")
        else:
            self.transport.abort()

    def is_delivered(self) -> bool:
        """Is the connection closing, and has the client's machine taken every byte?"""
        return is_delivered(self.transport)

    def _linger(self) -> None:
        """Half-close and read on for a moment: closing with unread bytes would reset the answer away."""
        self._discarding = True
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def _disconnect_all(self) -> None:
        """Tell every request of this connection, running or waiting, that the client has gone."""
        waiting = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        for cycle in (self._running, *waiting):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    # -- time --------------------------------------------------------------------------------------------------------------

    def _await_head(self) -> None:
        if self._head_timer is None and not self._discarding:
            limit = REFUSED_S if self._has_no_place else self._limits.headers_s
            self._head_timer = self.loop.call_later(limit, self._head_is_late)

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
