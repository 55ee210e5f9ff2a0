"""A Chat upstream whose streams stay open until the test lets them end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from types import TracebackType

from support.patience import PATIENCE

# One answer per connection.
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"


class HeldUpstream:
    """Use as a context manager. Every stream says "one" at once; `say` adds words to all; `finish` ends them well."""

    def __init__(self) -> None:
        self.port = 0
        self.opened = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> HeldUpstream:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def say(self, word: str) -> None:
        """One more word on every open stream."""
        self._write(_piece({"content": word}))

    def finish(self) -> None:
        """End every open stream as a model would."""
        self._write(_piece({}, "stop") + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    @property
    def open_streams(self) -> int:
        """Streams whose reader is still there."""
        return len(self._writers)

    def _write(self, data: bytes) -> None:
        async def write() -> None:
            for writer in tuple(self._writers):
                writer.write(data)

        asyncio.run_coroutine_threadsafe(write(), self._loop).result(PATIENCE)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024))
        self.port = self._server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _close(self) -> None:
        self._server.close()
        for writer in tuple(self._writers):
            writer.close()
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(length)
            writer.write(_HEAD + _piece({"role": "assistant", "content": "one"}))
            self._writers.add(writer)
            self.opened += 1
            while await reader.read(4096):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            with contextlib.suppress(ConnectionError):
                writer.close()


def _piece(delta: dict[str, str], finish: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-held",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "held",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return _chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
