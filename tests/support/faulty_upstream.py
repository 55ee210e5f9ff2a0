"""The faulty upstream: a raw asyncio server whose behaviour the model name selects (docs/reference/faults.md).

It speaks all four dialects; the path says which. A model is `<fault>` or `<fault>.<tag>`: the tag keeps the counts of one test
apart from those of others. Nothing here is polite: every byte is written by `fault_scripts`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import re
import socket
import struct
import termios
import threading
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import msgspec

from support.patience import PATIENCE
from support.upstream_speech import CONTROL, Speech


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


class Talk:
    """One request and the connection to answer it on."""

    def __init__(
        self,
        visit: Visit,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        notify: Callable[[], None],
    ) -> None:
        self.visit = visit
        self._notify = notify
        self.number = number
        """How many requests for this very model came before."""
        self.stream = visit.stream
        self.dialect = visit.dialect
        self.reader = reader
        self.writer = writer
        self.keep = False
        self._chunked = False

    @property
    def speech(self) -> Speech:
        """The control answer."""
        return CONTROL[self.dialect]

    @property
    def kind(self) -> str:
        return "text/event-stream" if self.stream else "application/json"

    async def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self.writer.write(data)
        self.visit.sent += len(data)
        await self.writer.drain()

    def head_bytes(self, status: str = "200 OK", *headers: str, kind: str | None = None, chunked: bool = True) -> bytes:
        """A status line and headers; a chunked body follows unless told otherwise."""
        lines = [f"HTTP/1.1 {status}"]
        if kind != "":
            lines.append(f"content-type: {kind or self.kind}")
        if chunked:
            lines.append("transfer-encoding: chunked")
        self._chunked = chunked
        return "\r\n".join([*lines, *headers]).encode("latin-1") + b"\r\n\r\n"

    def body_bytes(self, piece: bytes) -> bytes:
        """A piece of the body, as a chunk where the body is chunked."""
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece

    async def head(self, status: str = "200 OK", *headers: str, kind: str | None = None, chunked: bool = True) -> None:
        """A status line and headers, written."""
        await self.raw(self.head_bytes(status, *headers, kind=kind, chunked=chunked))

    async def send(self, *pieces: bytes) -> None:
        """Body bytes, each piece a chunk and a write of its own."""
        for piece in pieces:
            await self.raw(self.body_bytes(piece))

    async def at_once(self, *pieces: bytes, head: bool = True, end: bool = False) -> None:
        """A head, body bytes and perhaps the end in a single write: no limit can end between them, however slow the machine."""
        data = (self.head_bytes() if head else b"") + b"".join(map(self.body_bytes, pieces))
        if end:
            data += b"0\r\n\r\n"
            self.keep = True
        await self.raw(data)

    async def end(self) -> None:
        """The body ends well, the connection can be used again."""
        if self._chunked:
            await self.raw(b"0\r\n\r\n")
            self.keep = True

    async def whole(self, body: bytes, status: str = "200 OK", *headers: str, kind: str = "application/json") -> None:
        """A complete answer with its length."""
        await self.head(status, f"content-length: {len(body)}", *headers, kind=kind, chunked=False)
        await self.raw(body)
        self.keep = True

    async def control(self, *headers: str) -> None:
        """The healthy answer."""
        await self.say(self.speech.frames, self.speech.whole, *headers)

    async def say(self, frames: tuple[bytes, ...] | list[bytes], whole: bytes, *headers: str) -> None:
        """A healthy answer with these frames, or this body."""
        if self.stream:
            await self.head("200 OK", *headers)
            await self.send(*frames)
            await self.end()
        else:
            await self.whole(whole, "200 OK", *headers)

    def reset(self) -> None:
        """End the connection with a RST."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def wait_for_test(self) -> None:
        """Let the test know that nothing more comes by itself."""
        self.visit.waits = True
        self._notify()

    async def until_told(self) -> None:
        """Wait for the test."""
        self.wait_for_test()
        async with asyncio.timeout(PATIENCE):
            await self.visit.told.wait()

    async def hold(self) -> None:
        """Keep the connection open until the client ends it."""
        self.wait_for_test()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while await self.reader.read(65536):
                    pass
        self.visit.gone_at = time.monotonic()


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
        from support.fault_scripts import FAULTS

        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (item.partition(":") for item in rest) if name}
        body = json.loads(await reader.readexactly(int(headers.get("content-length") or 0)) or b"{}")
        path = line.split(" ")[1]
        known = _addressed(path, body)
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
        talk = Talk(visit, number, reader, writer, self._notify)
        try:
            await (self.scripts.get(model) or FAULTS[model.partition(".")[0]])(talk)
        except ConnectionError:
            visit.gone_at = time.monotonic()
            raise
        finally:
            self._notify()
        return talk.keep


def _addressed(path: str, body: dict[str, Any]) -> tuple[str, str, bool] | None:
    """Dialect, model and mode of a request; None for a path nobody should ask for."""
    bare = path.partition("?")[0]
    for suffix, dialect in (
        ("/v1/chat/completions", "openai_chat"),
        ("/v1/messages", "anthropic_messages"),
        ("/v1/responses", "openai_responses"),
    ):
        if bare == suffix:
            return dialect, str(body["model"]), bool(body.get("stream"))
    found = re.fullmatch(r"/v1(?:beta)?/models/(.+):(generateContent|streamGenerateContent)", bare)
    return ("gemini", unquote(found[1]), found[2].startswith("stream")) if found else None
