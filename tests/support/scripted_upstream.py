"""The upstream of the tests: a raw asyncio server that answers each request as a script says.

A script is a coroutine that is given a `Talk`. `answer` chooses it, and is all that the upstreams of single tests add: the
faults by the model's name, a table of replies, a model that writes its calls as text. Nothing here is polite: a script writes
every byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import msgspec

from support.patience import PATIENCE
from support.upstream_talk import Asked, Talk


class Visit(msgspec.Struct):
    """One request that came, and what became of its connection."""

    method: str
    path: str
    model: str
    """Empty, and so is the dialect, where the path is none of those that answer."""
    dialect: str
    stream: bool
    headers: dict[str, str]
    body: Any
    at: float
    connection: int
    gone_at: float | None = None
    """When the client's end of the connection closed, as far as it was watched."""
    sent: int = 0
    """Bytes written, of which some may wait on this side."""
    waits: bool = False
    """Everything it is going to say for now was written."""
    told: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set by `ScriptedUpstream.tell`."""
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
        asked: Asked,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        notify: Callable[[], None],
    ) -> None:
        super().__init__(asked, number)
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


class ScriptedUpstream(ABC):
    """Use as a context manager; serves from a thread of its own."""

    base_path = ""
    """Where `url` leads; clients of OpenAI's dialects want "/v1" there."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self._by_model: dict[str, list[Visit]] = {}
        self.open_connections = 0
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @abstractmethod
    async def answer(self, talk: Talk) -> None:
        """The script of one request to a path that answers."""

    async def answer_elsewhere(self, talk: Talk) -> None:
        """The script of one request to any other path, such as the list of models."""
        await talk.whole(b'{"error": {"message": "Not Found", "type": "invalid_request_error"}}', "404 Not Found")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base_path}"

    @property
    def bodies(self) -> list[Any]:
        """What was sent in every request that came."""
        return [visit.body for visit in self.visits]

    def forget(self) -> None:
        """All visits so far: they keep the bodies that came."""
        self.visits.clear()
        self._by_model.clear()

    def wait_for(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Until the condition holds; looked at whenever anything happened here."""
        with self._changed:
            return self._changed.wait_for(condition, seconds)

    def tell(self, visit: Visit) -> None:
        """Let a script go on that waits for the test."""
        self._loop.call_soon_threadsafe(visit.told.set)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something where the scripts run, and wait until it is done."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    # -- the server --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=64 * 1024 * 1024, backlog=1024)
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
        raw = await reader.readexactly(int(headers.get("content-length") or 0))
        method, path, _ = line.split(" ")
        asked = Asked(method, path, headers, raw)
        visit = Visit(method, path, asked.model, asked.dialect, asked.stream, headers, asked.body, time.monotonic(), connection)
        visit.writer = writer
        before = self._by_model.setdefault(asked.model, [])
        talk = SocketTalk(visit, asked, len(before), reader, writer, self._notify)
        before.append(visit)
        self.visits.append(visit)
        self._notify()
        try:
            await (self.answer(talk) if asked.dialect else self.answer_elsewhere(talk))
        except ConnectionError:
            visit.gone_at = time.monotonic()
            raise
        finally:
            self._notify()
        return talk.keep
