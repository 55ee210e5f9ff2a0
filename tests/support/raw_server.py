"""A server that does to each connection exactly what a script says, byte by byte: the misbehaving upstream.

The n-th connection gets the n-th script; the last script serves all further ones. A script is a list of steps; bytes are sent
as they are, in one call. When it ends the connection is closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import socket
import ssl
import struct
import sys
import termios
import threading
import time
from collections.abc import Sequence
from types import TracebackType

import msgspec

from support.patience import PATIENCE


class Request(msgspec.Struct, frozen=True):
    """Read one whole request; it is kept in `RawServer.requests`."""


class FirstByte(msgspec.Struct, frozen=True):
    """Read the first byte of a request and no more."""


class Pause(msgspec.Struct, frozen=True):
    """Do nothing for a while: the fault itself, never a way to wait for somebody."""

    seconds: float


class Until(msgspec.Struct, frozen=True):
    """Wait for the test."""

    event: threading.Event


class Signal(msgspec.Struct, frozen=True):
    """Tell the test that what stands before this step has happened, and that what was sent is at the client's socket."""

    event: threading.Event


class Hold(msgspec.Struct, frozen=True):
    """Keep the connection open until the client ends it."""


class Reset(msgspec.Struct, frozen=True):
    """End the connection with a RST."""


class Flood(msgspec.Struct, frozen=True):
    """Send one piece again and again, `times` times; `RawServer.flooded` counts the bytes the kernel took."""

    piece: bytes
    times: int


class Tls(msgspec.Struct, frozen=True):
    """From here on the connection speaks TLS."""

    context: ssl.SSLContext


Step = bytes | Request | FirstByte | Pause | Until | Signal | Hold | Reset | Flood | Tls
Script = Sequence[Step]


class RawServer:
    """Use as a context manager; `port` is where it listens."""

    def __init__(self, *scripts: Script, host: str = "127.0.0.1") -> None:
        self._scripts = scripts
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self.requests: list[bytes] = []
        self.connections = 0
        self.flooded = 0
        self.gone = threading.Semaphore(0)
        """Released once for each connection that has ended."""
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> RawServer:
        self._acceptor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in (self._acceptor, *self._threads):
            thread.join(PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, script), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, script: Script) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(PATIENCE)
        with contextlib.suppress(OSError):
            for step in script:
                following = self._play(sock, step)
                if following is None:
                    break
                sock = following
        self.gone.release()
        # A connection with unread bytes would be reset instead of closed.
        with contextlib.suppress(OSError):
            sock.setblocking(False)
            sock.recv(65536)
        with contextlib.suppress(OSError):
            sock.close()

    def _play(self, sock: socket.socket, step: Step) -> socket.socket | None:
        match step:
            case bytes():
                sock.sendall(step)
            case Request():
                request = _read_request(sock)
                if not request:
                    return None
                self.requests.append(request)
            case FirstByte():
                if not sock.recv(1):
                    return None
            case Pause(seconds):
                time.sleep(seconds)
            case Until(event):
                event.wait(PATIENCE)
            case Signal(event):
                _wait_for_arrival(sock)
                event.set()
            case Hold():
                while sock.recv(65536):
                    pass
                return None
            case Reset():
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
                return None
            case Flood(piece, times):
                for _ in range(times):
                    sock.sendall(piece)
                    self.flooded += len(piece)
            case Tls(context):
                return context.wrap_socket(sock, server_side=True)
        return sock


def _wait_for_arrival(sock: socket.socket) -> None:
    """Until the other side's kernel has taken all that was sent: from then on its next look at the socket finds it."""
    deadline = time.monotonic() + PATIENCE
    while int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder) and time.monotonic() < deadline:
        time.sleep(0.001)


def _read_request(sock: socket.socket) -> bytes:
    """One request by its Content-Length; b"" if the client ended the connection instead."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        more = sock.recv(65536)
        if not more:
            return b""
        data += more
    length = re.search(rb"(?i)\r\ncontent-length: ([0-9]+)\r\n", data)
    wanted = end + 4 + (int(length[1]) if length else 0)
    while len(data) < wanted:
        more = sock.recv(65536)
        if not more:
            return b""
        data += more
    return data


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A response with a Content-Length."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def chunked_head(*headers: str) -> bytes:
    """The head of a chunked response."""
    return "\r\n".join(["HTTP/1.1 200 OK", "transfer-encoding: chunked", *headers]).encode("latin-1") + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk; the empty one ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
