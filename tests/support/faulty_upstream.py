"""The faulty upstream: a raw asyncio server whose behaviour the model name selects (docs/reference/faults.md).

It speaks all four dialects; the path says which. A model is `<fault>` or `<fault>.<tag>`: the tag keeps the counts of one test
apart from those of others. Nothing here is polite: every byte is written by `fault_scripts`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import socket
import struct
import termios
import threading
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import msgspec

from support.fault_scripts import FAULTS
from support.patience import PATIENCE
from support.upstream_talk import Asked, Talk, addressed


class Visit(msgspec.Struct):
    """One request that came, and what became of its connection."""

    model: str
    dialect: str
    stream: bool
    headers: dict[str, str]
    body: dict[str, Any]
    at: float
    connection: int
    gone_at: float | None = None
    """When the client's end of the connection closed, as far as it was watched."""
    sent: int = 0
    """Bytes written, of which some may wait on this side."""
    waits: bool = False
    """Everything it is going to say for now was written."""
    told: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set by `FaultyUpstream.tell`."""
    writer: asyncio.StreamWriter | None = None
    _last_taken: int = 0

    @property
    def taken(self) -> int:
        """Bytes that the other side's kernel has: written, and neither in our buffer nor in our kernel's. As it was last asked
        for when the connection is gone."""
        assert self.writer is not None
        transport = self.writer.transport
        if transport.is_closing():
            return self._last_taken
        waiting = struct.unpack("i", fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        self._last_taken = self.sent - transport.get_write_buffer_size() - int(waiting)
        return self._last_taken


class SocketTalk(Talk):
    """The answer goes over a connection."""

    def __init__(
        self,
        visit: Visit,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        notify: Callable[[], None],
    ) -> None:
        super().__init__(Asked(visit.dialect, visit.model, visit.stream, visit.headers, visit.body), number)
        self._visit = visit
        self._reader = reader
        self._writer = writer
        self._notify = notify

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        self._visit.sent += len(data)
        await self._writer.drain()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def reset(self) -> None:
        """End the connection with a RST."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def wait_for_test(self) -> None:
        self._visit.waits = True
        self._notify()

    async def until_told(self) -> None:
        self.wait_for_test()
        async with asyncio.timeout(PATIENCE):
            await self._visit.told.wait()

    async def hold(self) -> None:
        self.wait_for_test()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while await self._reader.read(65536):
                    pass
        self._visit.gone_at = time.monotonic()


class FaultyUpstream:
    """Use as a context manager; serves from a thread of its own."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self._by_model: dict[str, list[Visit]] = {}
        self.canary = 0
        """Requests for paths that no dialect has: somebody followed a redirect."""
        self.open_connections = 0
        self.scripts: dict[str, Callable[[Talk], Awaitable[None]]] = {}
        """What a test adds to the faults, by the whole name of a model."""
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def __enter__(self) -> FaultyUpstream:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def of(self, model: str) -> list[Visit]:
        """The visits for one model, in order."""
        return list(self._by_model.get(model, ()))

    def forget(self) -> None:
        """All visits so far: they keep the bodies that came."""
        self.visits.clear()
        self._by_model.clear()

    def wait_for(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Until the condition holds; looked at whenever anything happened here."""
        with self._changed:
            return self._changed.wait_for(condition, seconds)

    def waits(self, model: str) -> bool:
        """Has the last request for the model got all that comes by itself? Waited for."""
        return self.wait_for(lambda: bool(self.of(model)) and self.of(model)[-1].waits)

    def tell(self, visit: Visit) -> None:
        """Let a script go on that waits for the test."""
        self._loop.call_soon_threadsafe(visit.told.set)

    # -- the server --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=64 * 1024 * 1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        self.open_connections += 1
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            number = self._connections
            while await self._one(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self.open_connections -= 1
            writer.close()
            self._notify()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (item.partition(":") for item in rest) if name}
        body = json.loads(await reader.readexactly(int(headers.get("content-length") or 0)) or b"{}")
        path = line.split(" ")[1]
        known = addressed(path, body)
        if known is None:
            self.canary += 1
            writer.write(b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n")
            return True
        dialect, model, stream = known
        visit = Visit(model, dialect, stream, headers, body, time.monotonic(), connection, writer=writer)
        number = len(self.of(model))
        self.visits.append(visit)
        self._by_model.setdefault(model, []).append(visit)
        self._notify()
        talk = SocketTalk(visit, number, reader, writer, self._notify)
        try:
            await (self.scripts.get(model) or FAULTS[model.partition(".")[0]])(talk)
        except ConnectionError:
            visit.gone_at = time.monotonic()
            raise
        finally:
            self._notify()
        return talk.keep
