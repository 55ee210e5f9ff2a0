"""A client's WebSocket: bytes to messages, messages to `SocketSession`, and its actions back to bytes.

A connection becomes one when the gateway accepted its request for it (`http`). From then on each `response.create` is a request
to the gateway like any other (`socket_request`), several at a time, and their answers share the socket: while the client does
not read, no upstream of theirs is read either.

Labelled "hostile client". wsproto refuses what is no frame; the size of a message, the time for it and the memory of all
of them are bounded here, and nothing is compressed, so nothing can inflate.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

from wsproto.frame_protocol import CloseReason, FrameProtocol, Opcode, ParseFailed

from athena.errors import AthenaError, ClientError, InvalidRequest
from athena.model.events import error_event
from athena.serving.endpoints import PREPARE
from athena.shells.config import Config, SocketSettings
from athena.shells.gateway.app import Gateway
from athena.shells.gateway.incoming import LARGE_BODY, measure
from athena.shells.server.front import LINGER_S, Front, is_delivered, reset
from athena.shells.server.socket_request import SocketRequest
from athena.websocket.frames import Create, LaneProblem, Steer, error_message, read_message
from athena.websocket.session import Begin, End, Say, SocketAction, SocketLimits, SocketSession, SocketState, SocketTurn

LOG = logging.getLogger("athena.server")
_DROPPED = frozenset(
    ("connection", "content-encoding", "content-length", "content-type", "expect", "origin", "transfer-encoding", "upgrade",
     "x-request-id")
)  # fmt: skip
"""Headers of the request for the socket that are none of a request on it; each of those gets an id of its own."""
_DROPPED_PREFIXES = ("sec-websocket-", "sec-fetch-")
_SLOWEST = 512
"""Bytes per second, on the average of one span of time, below which a message is given up."""
_NOTICE_S = 1.0
"""How much longer than a request under way this connection waits for a client that does not read: the request is to note in its
log line that its client stalled."""
_INBOX = 32
"""Messages that may wait to be read before no more are taken from the client."""
_TCP_IDLE_S = 30
_TCP_INTERVAL_S = 10
_TCP_PROBES = 3


def socket_limits(config: Config) -> SocketLimits:
    """What one connection may do, by the configuration."""
    return SocketLimits(body_bytes=config.limits.body_bytes, event_bytes=config.limits.answer_bytes)


class SocketConnection(asyncio.Protocol):
    """One client's socket, with the requests that are under way on it."""

    def __init__(
        self,
        gateway: Gateway,
        front: Front,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        *,
        peer: str,
        headers: dict[str, str],
        query: str,
    ) -> None:
        self.front = front
        self.loop = loop
        self.peer = peer
        self.is_blocked = False
        """More waits for the client than should."""
        self._gateway = gateway
        self._transport = transport
        self._settings: SocketSettings = gateway.config.websocket
        self._body_s = gateway.config.timeouts.client_body_s
        self._write_s = gateway.config.timeouts.client_write_s + _NOTICE_S
        self._headers = {
            name: value for name, value in headers.items() if name not in _DROPPED and not name.startswith(_DROPPED_PREFIXES)
        }
        self._headers["content-type"] = "application/json"
        self._query = query
        self._protocol = FrameProtocol(client=False, extensions=[])
        self._session = SocketSession(socket_limits(gateway.config), secrets.token_hex(8))
        self._pieces: list[bytes] = []
        """Of a message that is coming in."""
        self._size = 0
        self._paced = 0
        """Bytes of it in the present span of time."""
        self._inbox: deque[bytes] = deque()
        self._is_reading_aside = False
        """A thread reads a large message; those after it wait."""
        self._reading = True
        self._requests: dict[SocketTurn, SocketRequest] = {}
        self._incoming = front.memory.lease()
        self._kept = front.memory.lease()
        self._unsent = front.memory.lease(answer=True)
        self._closing = ""
        """Why the connection is being closed; empty while it is open."""
        now = loop.time()
        self._expires = now + self._settings.connection_s
        self._heard = now
        self._pings_at = now + self._settings.ping_s
        self._message_by: float | None = None
        self._written = 0
        """Bytes that were given to the transport."""
        self._taken = 0
        """How many of them the client had taken when that was last looked at."""
        self._taken_by: float | None = None
        """When the client must have taken more; None while little enough waits for it."""
        self._timer: asyncio.TimerHandle | None = None
        self._watch()
        _keep_alive(transport)
        gateway.metrics.sockets.inc()

    # -- the connection ----------------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_for("lost")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._leave()
        for lease in (self._incoming, self._kept, self._unsent):
            lease.close()
        self.front.left(self)
        self._gateway.metrics.sockets.dec()
        self._gateway.metrics.socket_ends.labels(self._closing).inc()

    def eof_received(self) -> bool:
        """A client that sends nothing more is gone: it would say so by a frame."""
        return False

    def pause_writing(self) -> None:
        """The client does not take its bytes: its upstreams wait."""
        self.is_blocked = True
        self._unsent.hold(self._transport.get_write_buffer_size())
        self._wait_for_reader()
        for request in self._requests.values():
            request.blocked = True

    def resume_writing(self) -> None:
        self.is_blocked = False
        self._unsent.close()
        if not self._closing:
            self._taken_by = None
        for request in tuple(self._requests.values()):
            request.drained()

    def data_received(self, data: bytes) -> None:
        """The next bytes of the client."""
        self._heard = self.loop.time()
        if self._closing and self._closing != "client":
            self._look_for_close(data)
            return
        self._protocol.receive_bytes(data)
        try:
            for frame in self._protocol.received_frames():
                self._frame(frame.opcode, frame.payload, frame.message_finished)
                if self._closing:
                    return
        except ParseFailed as broken:
            self._close(broken.code, str(broken), "protocol")

    def _look_for_close(self, data: bytes) -> None:
        """We said goodbye: wait for the client's, and pass over the rest. What came after a broken frame means nothing."""
        if self._closing == "protocol":
            return
        self._protocol.receive_bytes(data)
        try:
            if any(frame.opcode is Opcode.CLOSE for frame in self._protocol.received_frames()):
                self._transport.close()
        except ParseFailed:
            self._transport.close()

    # -- frames ------------------------------------------------------------------------------------------------------------

    def _frame(self, opcode: Opcode, payload: object, is_last: bool) -> None:
        match opcode:
            case Opcode.PING:
                if not self.is_blocked:
                    self._send(bytes(self._protocol.pong(bytes(cast(bytes, payload)))))
            case Opcode.PONG:
                pass
            case Opcode.CLOSE:
                code = cast("tuple[int, str]", payload)[0]
                self._end_for("client")
                self._send(bytes(self._protocol.close(code)))
                self._leave()
                self._transport.close()
                self._wait_for_reader()
            case _:
                self._data(payload.encode() if isinstance(payload, str) else bytes(cast(bytes, payload)), is_last)

    def _data(self, piece: bytes, is_last: bool) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        self._paced += len(piece)
        if self._size > self._session.limits.body_bytes:
            error = ClientError(
                f"the message is larger than {self._session.limits.body_bytes} bytes", code="request_too_large", status=413
            )
            self._refuse(error)
            self._close(CloseReason.MESSAGE_TOO_BIG, "the message is too large", "too_large")
        elif not self._incoming.resize(self._size + sum(map(len, self._inbox))):
            self._refuse(_out_of_memory())
            self._close(CloseReason.TRY_AGAIN_LATER, "memory is short", "memory")
        elif is_last:
            text = b"".join(self._pieces)
            self._pieces.clear()
            self._size = self._paced = 0
            self._message_by = None
            self._inbox.append(text)
            self._read()
        elif self._message_by is None or self._paced >= _SLOWEST * self._body_s:
            self._paced = 0
            self._message_by = self.loop.time() + self._body_s
            self._watch()

    def _read(self) -> None:
        """Take the messages that have come, one after the other; a large one in a thread."""
        while self._inbox and not self._is_reading_aside and not self._closing:
            text = self._inbox.popleft()
            work = partial(_read_measured, text, self._gateway.config.limits.request_keys)
            if len(text) <= LARGE_BODY:
                try:
                    self._take(work())
                except AthenaError as error:
                    self._refuse(error)
            else:
                self._is_reading_aside = True
                self.loop.run_in_executor(None, _outcome, work).add_done_callback(self._has_read)
        if not self._closing:
            self._incoming.hold(self._size + sum(map(len, self._inbox)))
        if self._is_reading_aside or len(self._inbox) > _INBOX:
            self._pause()
        else:
            self._resume()

    def _has_read(self, done: asyncio.Future[Create | Steer | AthenaError]) -> None:
        self._is_reading_aside = False
        if self._closing:
            return
        found = done.result()
        try:
            if isinstance(found, AthenaError):
                raise found
            self._take(found)
        except AthenaError as error:
            self._refuse(error)
        self._read()

    def _take(self, message: Create | Steer) -> None:
        settings = self._gateway.config.websocket
        if not settings.enabled and self._session.state is SocketState.OPEN:
            self._do(self._session.drain())  # switched off meanwhile
            if self._closing:
                return
        self._do(self._session.message(message))

    def _refuse(self, error: AthenaError) -> None:
        """A message that comes to nothing: an error, and the connection goes on."""
        event = error_event(error)
        status = (error.status or 400) if isinstance(error, ClientError) else 503
        lane = error.lane if isinstance(error, LaneProblem) else None
        LOG.info("message refused: %s", error.message, extra={"fields": {"status": status, "code": event.code}})
        self._write(error_message(event, status, lane))

    def _pause(self) -> None:
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    # -- what the session says -----------------------------------------------------------------------------------------------

    def _do(self, actions: list[SocketAction]) -> None:
        for action in actions:
            match action:
                case Say(message=message):
                    self._write(message)
                case Begin() as begin:
                    self._begin(begin)
                case End(code=code, reason=reason):
                    self._close(code, reason, "age" if reason == "websocket_connection_limit_reached" else "drain")
        if not self._kept.resize(self._session.held):
            self._session.forget()
            self._kept.hold(self._session.held)
        if self._session.is_idle:
            self.front.rests(self)

    def _begin(self, begin: Begin) -> None:
        if not self._requests:
            self.front.admission.busy(self)
        request = self._requests[begin.turn] = SocketRequest(self, begin, self._headers, self._query)
        endpoint = None if begin.turn.create.generates else PREPARE
        task = self.loop.create_task(self._gateway.serve(request, endpoint=endpoint))
        self.front.tasks.add(task)
        task.add_done_callback(partial(self._served, request))

    def _served(self, request: SocketRequest, task: asyncio.Task[None]) -> None:
        self.front.tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            LOG.error("a request failed outside the gateway's own care", exc_info=failure)
        if not request.complete:
            request.finish()

    def say(self, messages: list[bytes], turn: SocketTurn) -> None:
        """Messages of an answer that is under way."""
        if messages:
            if turn.carried and turn.answer.response_id:
                self._session.created(turn)
            self._write(*messages)

    def answered(self, request: SocketRequest) -> None:
        """An answer is written to its end."""
        if self._requests.pop(request.turn, None) is not None:
            actions = self._session.over(request.turn)
            if not self._closing:
                self._do(actions)

    def _write(self, *messages: bytes) -> None:
        if not self._transport.is_closing():
            self._send(b"".join(map(_text_frame, messages)))

    def _send(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    # -- the end -----------------------------------------------------------------------------------------------------------

    def _end_for(self, reason: str) -> None:
        self._closing = self._closing or reason

    def _leave(self) -> None:
        """Nothing more will be sent to this client: what is under way for it ends."""
        self._session.closed()
        self._inbox.clear()
        self._pieces.clear()
        for request in tuple(self._requests.values()):
            request.left()

    def _close(self, code: int, reason: str, cause: str) -> None:
        """Say goodbye, and give the client a moment to say it too."""
        if self._closing or self._transport.is_closing():
            return
        self._end_for(cause)
        self._send(bytes(self._protocol.close(code, reason[:100])))
        self._leave()
        self._resume()
        if cause == "protocol" and self._transport.can_write_eof():
            self._transport.write_eof()  # its own goodbye could not be read any more
        self.loop.call_later(LINGER_S, self._transport.abort)

    def shutdown(self) -> None:
        """The gateway drains: an idle connection ends now, a busy one after its answers."""
        if not self._closing:
            self._do(self._session.drain())

    def give_way(self) -> None:
        """Another client needs the place of this idle connection: it ends now."""
        self._close(CloseReason.GOING_AWAY, "another client needs the place", "room")
        self._transport.close()

    def cut(self) -> None:
        """The gateway ends now, whatever this client is doing."""
        self._end_for("drain")
        self._transport.abort()

    def is_delivered(self) -> bool:
        """Is the connection closing, and has the client's machine taken every byte?"""
        return is_delivered(self._transport)

    def abort(self) -> None:
        """End the connection at once, with everything that waits in it."""
        self._end_for("stalled")
        self._leave()
        reset(self._transport)

    # -- time --------------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        times = [] if self._closing else [self._pings_at, self._expires, self._message_by]
        at = min((time for time in (*times, self._taken_by) if time is not None), default=None)
        self._timer = None if at is None else self.loop.call_at(at, self._on_time)

    def _wait_for_reader(self) -> None:
        """From now on the client has to take some of what waits for it."""
        self._taken = self._written - self._transport.get_write_buffer_size()
        self._taken_by = self.loop.time() + self._write_s
        self._watch()

    def _on_time(self) -> None:
        self._timer = None
        now = self.loop.time()
        if self._taken_by is not None and now >= self._taken_by:
            if self._written - self._transport.get_write_buffer_size() <= self._taken:
                LOG.info("a client did not take its answers over a WebSocket; it is cut")
                self.abort()
                return
            self._wait_for_reader()
        if self._closing or self._transport.is_closing():
            self._watch()
            return
        if self._message_by is not None and now >= self._message_by:
            self._close(CloseReason.POLICY_VIOLATION, "the message came too slowly", "slow")
            return
        if now >= self._expires:
            self._expires = float("inf")
            self._do(self._session.expire())
        if now >= self._pings_at and not self._closing:
            if now - self._heard >= self._settings.silence_s:
                LOG.info("nothing came over a WebSocket for %g seconds; it is cut", now - self._heard)
                self._end_for("silent")
                self.abort()
                return
            self._pings_at = now + self._settings.ping_s
            if not self.is_blocked:
                self._send(bytes(self._protocol.ping()))
        if not self._closing:
            self._watch()


def _read_measured(text: bytes, keys: int) -> Create | Steer:
    """A message, within the bounds of a request's body."""
    try:
        measure(text, keys)
    except InvalidRequest as error:
        raise InvalidRequest(error.message.replace("the body", "the message"), code=error.code) from None
    return read_message(text)


def _outcome(work: Callable[[], Create | Steer]) -> Create | Steer | AthenaError:
    try:
        return work()
    except AthenaError as error:
        return error


def _out_of_memory() -> AthenaError:
    return AthenaError(
        "the gateway holds as much in memory as it may (limits.memory_bytes); ask again in a moment",
        kind="overloaded",
        code="memory_limit",
    )


def _text_frame(payload: bytes) -> bytes:
    """One message of a server: never masked, never in pieces."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 1 << 16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), payload)


def _keep_alive(transport: asyncio.Transport) -> None:
    """Let the system find out when the client's machine is gone: an idle socket would not show it."""
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "TCP_KEEPIDLE"):
        return
    for option, value in (
        (socket.TCP_KEEPIDLE, _TCP_IDLE_S),
        (socket.TCP_KEEPINTVL, _TCP_INTERVAL_S),
        (socket.TCP_KEEPCNT, _TCP_PROBES),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
