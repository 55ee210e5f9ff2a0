"""HTTP/1.1 as clients speak it to us, on httptools, with nothing between the socket and the gateway.

Labelled "hostile client". llhttp refuses every ambiguous length, bare line ends, folded lines and odd chunk sizes (the table in
`tests/shells/test_server_front.py`); the bounds and rules added to it are `front`'s. Requests of one connection are answered
one after the other, in their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import cast

import httptools

from athena.serving.endpoints import asks_for_socket
from athena.shells.gateway.app import Gateway
from athena.shells.server.admission import Standing
from athena.shells.server.front import (
    FRAMING,
    LINGER_S,
    PIPELINED,
    REFUSED_S,
    Front,
    HalfClosed,
    HeadProblem,
    Refused,
    check_head,
    is_delivered,
    refusal_bytes,
    reset,
    too_many_connections,
)
from athena.shells.server.http_request import HttpRequest, split_target, status_line
from athena.shells.server.socket import SocketConnection

LOG = logging.getLogger("athena.server")
_AROUND_FIELD = len(b": \r\n")
_READ_FIRST_S = 0.05
"""What has arrived is read within this time after a limit is over, before the client is given up."""
_SHUTTING_DOWN = (503, "shutting_down", "the gateway is shutting down")
_SHORT_DIGITS = 5
_BODY_SOON_S = 0.02
"""A request whose body has a length of so few digits begins when its body is there, but no later than this after its head: many
clients send the two one right after the other, and it is served without having to wait for a body in between."""


class HttpConnection(asyncio.Protocol):
    """One client connection, with its parser and the requests that wait on it."""

    # What holds for every connection until something else happens on it.
    _transport: asyncio.Transport | None = None
    _url = b""
    _target = (b"", "", "")
    """What was asked for last, and its path and query."""
    _in_head = False
    _head_bytes = 0
    """Of further reads of the head; once it is whole, of all of it, and then of its trailers."""
    _head_read = 0
    """Bytes that came while a head was incomplete: no more than these are held of it."""
    _repeating = False
    """A head is being repeated for a new parser; it was handled before."""
    _receiving: HttpRequest | None = None
    """The request whose body is coming in."""
    _running: HttpRequest | None = None
    _task: asyncio.Task[None] | None = None
    _body_is_near = False
    """The running request has no task yet: it gets one once its body is there, or a moment later."""
    _body_timer: asyncio.TimerHandle | None = None
    _discarding = False
    """Further bytes are read and dropped."""
    _reading = True
    _writing_paused = False
    """More waits for the client than should; no further request is begun."""
    _unsent = 0
    """How much that was when it was last looked at."""
    _has_no_place = False
    """There was no room for this connection: its request is refused."""
    _refusal: tuple[int, str, str] | None = None
    _since = 0.0
    _timer: asyncio.TimerHandle | None = None
    _timer_at = 0.0
    _fresh = True
    """No request has come yet."""
    _half_closed: HalfClosed | None = None
    """The client sends nothing more."""
    _asking: HttpRequest | None = None
    """The request that asks to change to WebSocket, until it is answered."""
    _undecided = b""
    """What came after it: frames if it is accepted, else the next requests."""

    def __init__(self, gateway: Gateway, front: Front, loop: asyncio.AbstractEventLoop) -> None:
        self.front = front
        self.loop = loop
        self._gateway = gateway
        self._limits = front.limits
        self._most_fields = front.limits.header_fields
        """How many fields a head may have."""
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._fields: deque[bytes] = deque(maxlen=2 * self._most_fields + 2)
        """Names and values of the head by turns. Where they are too many, it is enough that this shows."""
        self._pipeline: deque[HttpRequest] = deque()
        self._waiting_room = front.memory.lease()
        """For what came of requests that are not being served yet: a slow head, those sent before their turn."""
        self._unsent_room = front.memory.lease(answer=True)

    # -- connection --------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        standing = self.front.entered(self, transport)
        self._has_no_place = standing is Standing.REFUSED
        self._since = self.loop.time()
        self._watch()
        if standing is Standing.SHUT:
            self._transport.close()

    @property
    def peer(self) -> str:
        """The client's address; empty when it is not known."""
        address = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(address[0]) if isinstance(address, tuple) else ""

    def connection_lost(self, exc: Exception | None) -> None:
        self._discarding = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._half_closed is not None:
            self._half_closed.stop()
            self._half_closed = None  # it knows how to end this connection
        self._disconnect_all()
        self._waiting_room.close()
        self._unsent_room.close()
        self.front.left(self)
        self._parser = None  # the two refer to each other; this breaks the cycle
        if self._task is None or self._task.done():
            self._running = None

    def eof_received(self) -> bool:
        """The client sends nothing more. Whether the connection stays open: it does while a whole request is being answered."""
        transport, running = self._transport, self._running
        assert transport is not None
        if self._discarding or running is None or self._receiving is not None or self._in_head:
            return False
        if not HalfClosed.can_be_told(transport):
            return False
        self._half_closed = HalfClosed(transport, self.loop, self.abort)
        running.probe()
        return True

    def pause_writing(self) -> None:
        """The client does not take its bytes."""
        self._writing_paused = True
        if self._transport is not None:
            self._unsent_room.hold(self._transport.get_write_buffer_size())
        if self._running is not None:
            self._running.blocked = True
        else:
            self._next()  # after the last bytes of an answer: the time to read them runs

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._unsent_room.close()
        if self._running is None:
            self._next()
        elif self._running.blocked:
            self._running.drained()

    def data_received(self, data: bytes) -> None:
        """The next bytes of the client."""
        if self._discarding:
            return
        was_in_head = self._in_head
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.refuse(*(self._refusal or (400, "bad_request", "this is not a valid request in HTTP/1.1")))
            return
        if self._in_head:
            if was_in_head:
                self._head_bytes += len(data)
                self._head_read += len(data)
            else:
                self._head_read = len(data)
                self._since = self.loop.time()
            size = self._head_bytes + len(self._url) + len(b"\r\n".join(self._fields)) + 2
            if size > self._limits.header_bytes or len(self._fields) > 2 * self._most_fields:
                self.refuse(*self._size_problem())
                return
            self._watch()
        if self._in_head or self._pipeline or self._waiting_room.size:
            self._count_waiting()
        if self._body_is_near and self._body_timer is None:
            self._body_timer = self.loop.call_later(_BODY_SOON_S, self._run_without_body)

    def _count_waiting(self) -> None:
        waiting = sum(request.waiting_bytes for request in self._pipeline)
        if not self._waiting_room.resize(waiting + self._head_read if self._in_head else waiting):
            self.refuse(503, "memory_limit", "the gateway holds as much in memory as it may; ask again in a moment")

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                assert self._parser is not None
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                request = self._running if not self._pipeline else self._pipeline[-1]
                if request is not None and _may_become_socket(request):
                    self._asking, self._undecided = request, data
                    self.read_no_more()
                    return
                self._stay_plain()

    def _stay_plain(self) -> None:
        """An unsupported upgrade: read on as if it had not been asked for. A new parser gets the head without the upgrade."""
        self._parser = httptools.HttpRequestParser(self)
        pairs = zip(*[iter(self._fields)] * 2, strict=True)
        framing = [b"%b: %b\r\n" % (name, value) for name, value in pairs if name.lower() in FRAMING]
        if framing:
            self._repeating = True
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n")
            self._repeating = False

    def asks_for_socket(self, request: HttpRequest) -> bool:
        """Is this the request that decides what the connection speaks from now on?"""
        return request is self._asking and request is self._running

    def become_socket(self, request: HttpRequest) -> None:
        """The request is accepted: another protocol takes this connection over, with what came already."""
        transport = self._transport
        assert transport is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting_room.close()
        self._unsent_room.close()
        socket = SocketConnection(
            self._gateway, self.front, self.loop, transport, peer=self.peer, headers=request.headers, query=request.query
        )
        self._discarding = True
        self._running = self._asking = self._parser = None
        transport.set_protocol(socket)
        self.front.replaced(self, socket)
        self.front.rests(socket)
        self.read_on()
        early, self._undecided = self._undecided, b""
        if early:
            socket.data_received(early)

    # -- parser callbacks --------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if not self._repeating:
            self.front.admission.busy(self)
            self._in_head = True
            self._head_bytes = 0
            self._url = b""
            self._fields.clear()

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        if not self._repeating:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the head, or a trailer."""
        if self._in_head:
            self._fields += (name, value)
        elif not self._repeating:
            # A trailer: what came too late for the checks must not join the headers.
            self._head_bytes += len(name) + len(value) + _AROUND_FIELD
            if self._head_bytes > self._limits.header_bytes:
                self._refuse_soon(*self._size_problem())

    def on_headers_complete(self) -> None:
        """The head is whole: the gateway may begin."""
        if self._repeating:
            return
        self._in_head = self._fresh = False
        parser, url, fields = self._parser, self._url, self._fields
        assert parser is not None
        # All fields at once: what stands between them is as long as it was.
        written = b"\r\n".join(fields)
        self._head_bytes += len(url) + len(written) + 2
        if self._head_bytes > self._limits.header_bytes or len(fields) > 2 * self._most_fields:
            self._refuse_soon(*self._size_problem())
        texts = written.decode("latin-1").split("\r\n")
        if len(texts) != (len(fields) or 1):
            # The parser lets no value pass that holds the end of a line; were there one, it must not become a field.
            texts = [text.decode("latin-1") for text in fields]
        names, values = list(map(str.lower, texts[::2])), texts[1::2]
        version = parser.get_http_version()
        problem = check_head(version, url, names, values)
        if problem is not None:
            self._refuse_soon(*problem)
        if len(self._pipeline) >= PIPELINED:
            self._refuse_soon(400, "too_many_pipelined", "too many requests were sent before their answers")
        headers = dict(zip(names, values, strict=False))
        if len(headers) < len(names):
            headers = _joined(names, values)
        if url != self._target[0]:
            self._target = (url, *split_target(url))
        _, path, query = self._target
        request = HttpRequest(
            self,
            parser.get_method().decode("ascii"),
            path,
            query,
            headers,
            parser.should_keep_alive() and not self._has_no_place,
            version == "1.1",
            self._head_bytes,
            "expect" in headers and headers["expect"].lower() == "100-continue",
        )
        self._receiving = request
        if self._running is not None or self._writing_paused:
            self._pipeline.append(request)
        elif (
            "content-length" in headers
            and len(headers["content-length"]) <= _SHORT_DIGITS
            and "expect" not in headers
            and "upgrade" not in headers
            and not self._has_no_place
        ):
            self._running, self._body_is_near = request, True
            self._task = None  # the one before may not be quite over
        else:
            self._run(request)

    def on_body(self, body: bytes) -> None:
        """A piece of the request's body."""
        if self._receiving is not None:
            self._receiving.body_came(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._parser.should_upgrade() and not self._repeating and self._has_body():
            return  # the parser takes the body for another protocol; see _stay_plain
        request, self._receiving = self._receiving, None
        if request is not None:
            request.body_ended()
            if self._body_is_near:
                self._run(request)

    def _has_body(self) -> bool:
        return any(name.lower() in FRAMING for name in islice(self._fields, 0, None, 2))

    def _size_problem(self) -> HeadProblem:
        if len(self._fields) > 2 * self._most_fields:
            return 431, "too_many_headers", f"the request has more than {self._most_fields} header fields"
        return 431, "headers_too_large", f"the headers are larger than {self._limits.header_bytes} bytes"

    def _refuse_soon(self, status: int, code: str, message: str) -> None:
        """From inside the parser: stop it, `data_received` answers."""
        self._refusal = (status, code, message)
        raise Refused

    # -- requests, one after the other -------------------------------------------------------------------------------------

    def _run(self, request: HttpRequest) -> None:
        self._running, self._body_is_near = request, False
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        refusal = too_many_connections() if self._has_no_place else None
        task = self._task = self.loop.create_task(self._gateway.serve(request, refusal))
        self.front.tasks.add(task)
        task.add_done_callback(self._served)

    def _run_without_body(self) -> None:
        if self._running is not None:
            self._run(self._running)

    def _served(self, task: asyncio.Task[None]) -> None:
        self.front.tasks.discard(task)
        running = self._running
        if not task.cancelled() and (failure := task.exception()) is not None:
            LOG.error("a request failed outside the gateway's own care", exc_info=failure)
        if running is not None and task is self._task and not running.complete:
            if self._discarding:
                self._running = None
            else:
                # Nothing more will be sent to this client: it must not take what it has for the whole.
                self.abort()

    def answered(self, request: HttpRequest) -> None:
        """The answer to a request is written in full."""
        transport = self._transport
        assert transport is not None
        self._running = None
        if self._discarding or transport.is_closing():
            return
        if request is self._asking:
            self._asking = None
            self._stay_plain()
            self.read_on()
        if not request.wholly_read:
            # Answered before the whole body came: the rest is no request.
            self._linger()
        elif not request.keep_alive or self.front.draining or (self._half_closed is not None and not self._pipeline):
            self._discarding = True
            transport.close()
        else:
            self._next()
        if self._undecided and self._asking is None and not self._discarding:
            early, self._undecided = self._undecided, b""
            self.data_received(early)

    def _next(self) -> None:
        """No request is being answered: the next request, if the client took what it asked for before; else time runs for
        it."""
        transport = self._transport
        if self._discarding or transport is None or transport.is_closing():
            return
        if self._writing_paused:
            self._unsent = transport.get_write_buffer_size()
            self.read_no_more()
        elif self._pipeline:
            self._run(self._pipeline.popleft())
            if self._waiting_room.size:
                self._count_waiting()
            return
        else:
            self.read_on()
            if not self._in_head:
                self.front.rests(self)
        self._since = self.loop.time()
        self._watch()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    @property
    def raw_write(self) -> Callable[[bytes], None]:
        assert self._transport is not None
        return self._transport.write

    def read_no_more(self) -> None:
        """The gateway has enough to do with what came."""
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def read_on(self) -> None:
        if not self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    # -- ends --------------------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """The gateway drains: a busy connection ends after its answers, an idle one as soon as it is sure that nothing has
        arrived on it. A client that has only just connected is about to ask, and is told."""
        if self._running is not None or self._pipeline or self._transport is None:
            return
        if self._writing_paused:
            self._transport.close()
            return
        self._since = self.loop.time()
        self._watch()

    def give_way(self) -> None:
        """Another client needs the place of this idle connection: it ends now."""
        self._discarding = True
        if self._transport is not None:
            self._transport.close()

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer what is no usable request, and end the connection."""
        transport = self._transport
        assert transport is not None
        running = self._running
        in_answer = running is not None and running.answered
        self._disconnect_all()
        LOG.info("request refused: %s", message, extra={"fields": {"status": status, "code": code}})
        if in_answer or transport.is_closing():
            # Words of ours inside another answer would become part of it.
            transport.abort()
            return
        transport.write(status_line(status) + self.front.date_line + refusal_bytes(status, code, message))
        self._linger()

    def cut(self) -> None:
        """The gateway ends now, whatever this client is doing."""
        running = self._running
        is_asking = self._in_head if running is None else not running.answered
        if is_asking and not self._discarding:
            self.refuse(*_SHUTTING_DOWN)
        elif self._transport is not None:
            self._transport.abort()

    def is_delivered(self) -> bool:
        """Is the connection closing, and has the client's machine taken every byte?"""
        return self._transport is not None and is_delivered(self._transport)

    def abort(self) -> None:
        """End the connection at once, with everything that waits in it."""
        self._discarding = True
        self._disconnect_all()
        if self._transport is not None:
            reset(self._transport)

    def _linger(self) -> None:
        """Half-close and read on for a moment: closing with unread bytes would reset the answer away."""
        transport = self._transport
        assert transport is not None
        self._discarding = True
        self.read_on()
        if transport.can_write_eof():
            transport.write_eof()
        self.loop.call_later(LINGER_S, transport.abort)

    def _disconnect_all(self) -> None:
        """Tell every request of this connection, running or waiting, that the client has gone."""
        if self._body_is_near:
            self._run_without_body()  # it is told like any other that had begun
        waiting, running = tuple(self._pipeline), self._running
        self._pipeline.clear()
        self._receiving = None
        for request in (running, *waiting):
            if request is not None and not request.gone:
                request.left()

    # -- time --------------------------------------------------------------------------------------------------------------

    def _limit(self) -> float:
        """Seconds that the client may take for what it is doing; 0: it waits for us."""
        if self._in_head or self._fresh:
            return REFUSED_S if self._has_no_place or self.front.draining else self._limits.headers_s
        if self._running is not None:
            return 0.0
        if self._writing_paused:
            return self._limits.write_s
        return _READ_FIRST_S if self.front.draining else self._limits.idle_s

    def _watch(self) -> None:
        """One timer for all limits, set anew only if the present one rings too late."""
        limit = self._limit()
        if not limit or self._discarding:
            return
        deadline = self._since + limit
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.loop.call_at(deadline, self._on_time)

    def _on_time(self, *, again: bool = False) -> None:
        self._timer = None
        limit = self._limit()
        if self._discarding or not limit:
            return
        if self.loop.time() < self._since + limit:
            self._watch()
        elif not again:
            # It may be the loop that is late, and the client's bytes wait to be read: they are, before this rings.
            self._timer_at = self.loop.time() + _READ_FIRST_S
            self._timer = self.loop.call_at(self._timer_at, partial(self._on_time, again=True))
        elif self._in_head and self.front.draining:
            self.refuse(*_SHUTTING_DOWN)
        elif self._in_head:
            self.refuse(408, "headers_timeout", f"the headers took longer than {self._limits.headers_s:g} seconds")
        elif self._transport is not None:
            self._end_idle(self._transport)

    def _end_idle(self, transport: asyncio.Transport) -> None:
        """Nothing came for as long as may be: the end, but for a client that is still taking its answer, however slowly."""
        unsent = transport.get_write_buffer_size()
        if not unsent:
            transport.close()
        elif unsent < self._unsent:
            self._unsent = unsent
            self._since = self.loop.time()
            self._watch()
        else:
            LOG.info("a client did not take its answer; its connection is cut")
            self.abort()


def _may_become_socket(request: HttpRequest) -> bool:
    headers = request.headers
    has_body = "content-length" in headers or "transfer-encoding" in headers
    return asks_for_socket(request.method, headers) and not has_body and request.keep_alive


def _joined(names: list[str], values: list[str]) -> dict[str, str]:
    """Fields by name where some came more than once, as HTTP allows."""
    headers: dict[str, str] = {}
    for name, value in zip(names, values, strict=False):
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
