"""A client behind any ASGI server. One task sends what the gateway wrote; the server's own waiting is its back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from athena.shells.gateway.client import ClientGone, Headers, Recent

AsgiMessage = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[AsgiMessage]]
AsgiSend = Callable[[AsgiMessage], Awaitable[None]]
_WAITING_BYTES = 64 * 1024
"""What may wait for the server before the client counts as blocked."""


class AsgiClient:
    """One HTTP scope. Use it with `async with`: leaving waits until everything was handed to the server."""

    def __init__(self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope["query_string"].decode("latin-1")
        self.headers = header_map(scope["headers"])
        self.recent: Recent | None = None
        self.peer: str = (scope.get("client") or ("",))[0] or ""
        self.blocked = False
        self.on_gone: Callable[[], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self.on_doubt: Callable[[], None] | None = None
        self._receive = receive
        self._send = send
        self._body: list[bytes] = []
        self._body_complete = False
        self._gone = False
        self._head: AsgiMessage | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._finished = False
        self._something = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsgiClient:
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        if not self._finished:
            self.cut_off()
        if self._sender is not None:
            await self._sender

    # -- the request -------------------------------------------------------------------------------------------------------

    def take_body(self) -> tuple[bytes, bool]:
        """What came of the body since the last call, and whether that was all of it."""
        if self._gone:
            raise ClientGone
        data = b"".join(self._body)
        self._body.clear()
        return data, self._body_complete

    async def more_body(self, enough: int) -> None:
        """Wait for the server's next message."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._gone = True
            return
        if piece := message.get("body", b""):
            self._body.append(piece)
        if not message.get("more_body", False):
            self._body_complete = True
            self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if not self._finished and self.on_gone is not None:
            self.on_gone()

    # -- the answer --------------------------------------------------------------------------------------------------------

    def start(self, status: int, headers: Headers, length: int | None) -> None:
        if length is not None:
            headers = [*headers, (b"content-length", b"%d" % length)]
        self._head = {"type": "http.response.start", "status": status, "headers": headers}
        self._sender = asyncio.ensure_future(self._send_all())

    def write(self, data: bytes) -> None:
        """The next bytes of the body."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self.blocked = self._waiting_bytes > _WAITING_BYTES
        self._something.set()

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        return None

    def finish(self, data: bytes = b"") -> None:
        """The last bytes of the body."""
        self._finished = True
        self.write(data)

    def accept_socket(self, headers: Headers) -> bool:
        """Another server's connections stay plain."""
        return False

    def cut_off(self) -> None:
        """Give the client up. How a half-sent answer ends is the server's to decide."""
        self._waiting.clear()
        if self._sender is not None:
            self._sender.cancel()
            self._sender = None

    async def _send_all(self) -> None:
        assert self._head is not None
        await self._send(self._head)
        while True:
            await self._something.wait()
            self._something.clear()
            data, last = b"".join(self._waiting), self._finished
            self._waiting.clear()
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            self._waiting_bytes = sum(map(len, self._waiting))
            if last:
                return
            if self.blocked and self._waiting_bytes <= _WAITING_BYTES:
                self.blocked = False
                if self.on_drained is not None:
                    self.on_drained()


def header_map(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; repeated ones joined by a comma."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers
