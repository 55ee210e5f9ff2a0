"""Accepting client connections, only as many as there is room for.

Left to itself an event loop accepts until the process has no descriptor left; then it closes connections without a word, or
writes a traceback for each. Here nothing is accepted while the front is full: new connections wait in the kernel's queue.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from athena.shells.server.front import Front

LOG = logging.getLogger("athena.server")
_AT_ONCE = 64
"""Connections accepted in one turn of the loop; those that are open have their turn in between."""
_PAUSE_S = 0.1
"""Seconds until a full front is looked at again, if no connection has closed before."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SILENCE_S = 60.0
"""Seconds between two log lines about the same want."""


class Acceptor:
    """Takes connections from a listening socket. `connect` makes the protocol of each; `tls` is what the loop needs for TLS."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        front: Front,
        connect: Callable[[], asyncio.BaseProtocol],
        tls: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._front = front
        self._connect = connect
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._told_at = -_SILENCE_S
        self._closed = False
        front.on_room.append(self._continue)
        loop.add_reader(sock, self._accept)

    def close(self) -> None:
        """Accept nothing more, after those who connected before now: they may have sent a request. The socket is the
        caller's."""
        if not self._closed:
            self._accept()
            self._closed = True
            self._front.on_room.remove(self._continue)
            self._loop.remove_reader(self._sock)
            if self._timer is not None:
                self._timer.cancel()

    async def settle(self) -> None:
        """Wait until all who were accepted have entered. Under TLS they may take long, and have not asked for anything yet."""
        if self._tasks and not self._tls:
            await asyncio.wait(tuple(self._tasks))

    def _accept(self) -> None:
        front = self._front
        for _ in range(_AT_ONCE):
            if front.is_full:
                self._pause()
                return
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it has left again
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    LOG.error("a connection cannot be accepted: %s", error)
                else:
                    self._exhausted(error)
                self._pause()
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            front.arriving += 1
            task = self._loop.create_task(self._attach(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _attach(self, sock: socket.socket) -> None:
        try:
            # The loop owns the socket from here on, also where this fails.
            await self._loop.connect_accepted_socket(self._connect, sock, **self._tls)
        except OSError as error:
            LOG.debug("a client connection came to nothing: %s", error)  # it has left, or does not speak TLS
        finally:
            self._front.arrived()

    def _exhausted(self, error: OSError) -> None:
        """The system has no descriptor left, whatever our limits say: an idle connection gives its own."""
        if self._loop.time() - self._told_at >= _SILENCE_S:
            self._told_at = self._loop.time()
            LOG.warning("no connection can be accepted now (%s); idle ones are closed. See limits.connections", error.strerror)
        self._front.close_one()

    def _pause(self) -> None:
        if self._timer is None and not self._closed:
            self._loop.remove_reader(self._sock)
            self._timer = self._loop.call_later(_PAUSE_S, self._continue)

    def _continue(self) -> None:
        if self._timer is not None and not self._closed:
            self._timer.cancel()
            self._timer = None
            self._loop.add_reader(self._sock, self._accept)
