"""A WebSocket client that writes every byte itself, so that it can break every rule."""

from __future__ import annotations

import json
import os
import socket
import struct
from types import TracebackType
from typing import Any, Self

from support.patience import PATIENCE

TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0
HANDSHAKE = (
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)


def frame(opcode: int, payload: bytes = b"", *, last: bool = True, masked: bool = True, reserved: int = 0) -> bytes:
    """One frame, as the standard wants it or not."""
    size = len(payload)
    head = bytes([(0x80 if last else 0) | reserved << 4 | opcode])
    mark = 0x80 if masked else 0
    if size < 126:
        head += bytes([mark | size])
    elif size < 1 << 16:
        head += bytes([mark | 126]) + struct.pack("!H", size)
    else:
        head += bytes([mark | 127]) + struct.pack("!Q", size)
    if not masked:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[place % 4] for place, byte in enumerate(payload))


class SocketClient:
    """One connection. `head` is what the gateway answered to the handshake."""

    def __init__(
        self, port: int, path: str = "/v1/responses", *headers: str, early: bytes = b"", receive_buffer: int = 0
    ) -> None:
        self._socket = socket.socket()
        self._socket.settimeout(PATIENCE)
        if receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.connect(("127.0.0.1", port))
        self._came = b""
        lines = [f"GET {path} HTTP/1.1", f"host: 127.0.0.1:{port}", *HANDSHAKE, *headers]
        self._socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + early)
        while b"\r\n\r\n" not in self._came:
            more = self._socket.recv(65536)
            assert more, "the connection ended"
            self._came += more
        head, _, self._came = self._came.partition(b"\r\n\r\n")
        self.head = head.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def say(self, message: dict[str, Any]) -> None:
        self.send(frame(TEXT, json.dumps(message).encode()))

    def create(self, text: str = "hi", **fields: Any) -> None:
        self.say({"type": "response.create", "model": "m", "input": text, **fields})

    def reset(self) -> None:
        """Be gone without a word."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def half_close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def receive(self) -> tuple[int, bytes]:
        """The next frame: its kind, and what it holds. CLOSE without a payload when the connection ends."""
        try:
            head = self._exactly(2)
            size = head[1]
            if size == 126:
                (size,) = struct.unpack("!H", self._exactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._exactly(8))
            return head[0] & 15, self._exactly(size)
        except (EOFError, ConnectionError):
            return CLOSE, b""

    def _exactly(self, size: int) -> bytes:
        while len(self._came) < size:
            more = self._socket.recv(65536)
            if not more:
                raise EOFError
            self._came += more
        found, self._came = self._came[:size], self._came[size:]
        return found

    def event(self) -> dict[str, Any]:
        """The next message; pings are passed over."""
        while True:
            kind, payload = self.receive()
            if kind == TEXT:
                found: dict[str, Any] = json.loads(payload)
                return found
            assert kind != CLOSE, f"the connection ended: {payload!r}"

    def until(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of these types."""
        while (event := self.event())["type"] not in kinds:
            pass
        return event

    def closed(self) -> int:
        """The code with which the gateway says goodbye; 0 where it says none. Messages before it are passed over."""
        while True:
            kind, payload = self.receive()
            if kind == CLOSE:
                return int(struct.unpack("!H", payload[:2])[0]) if payload else 0
