"""A relay before a server that keeps every request that went through, with the status of its answer.

It shows what a browser really sent, also where the page that made it do so learns nothing. It can hold pages of its own, which
come from the same address as the server behind it: that is how DNS rebinding looks to a browser.
"""

from __future__ import annotations

import re
import socket
import threading
from types import TracebackType

import msgspec

from support.patience import PATIENCE


class Passed(msgspec.Struct):
    """One request that went through."""

    method: str
    target: str
    headers: dict[str, str]
    status: int = 0


class RecordingRelay:
    """Use as a context manager. One request per connection: answers are told to close it."""

    def __init__(self, port: int, pages: dict[str, str] | None = None) -> None:
        self.passed: list[Passed] = []
        self._behind = port
        self._pages = pages or {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> RecordingRelay:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        # Closing alone does not wake a thread that waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                head = _read_head(client)
                if head is None:
                    return
                first, rest = head
                lines = first.decode("latin-1").split("\r\n")
                method, target, _ = lines[0].split(" ", 2)
                if target in self._pages:
                    client.sendall(page_bytes(self._pages[target]))
                    return
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
                passed = Passed(method, target, headers)
                self.passed.append(passed)
                # The server behind closes after its answer, so that the next request comes by a connection of its own.
                kept = [line for line in lines if not line.lower().startswith("connection:")]
                self._pass_on(client, "\r\n".join([*kept, "Connection: close", "", ""]).encode("latin-1") + rest, passed)
            except OSError:
                return  # the browser or the server left

    def _pass_on(self, client: socket.socket, request: bytes, passed: Passed) -> None:
        with socket.create_connection(("127.0.0.1", self._behind), PATIENCE) as server:
            server.sendall(request)
            upward = threading.Thread(target=_copy, args=(client, server), daemon=True)
            upward.start()
            answer = b""
            while data := server.recv(65536):
                answer += data if not passed.status else b""
                if not passed.status and (found := re.match(rb"HTTP/1\.1 (\d{3}) ", answer)):
                    passed.status = int(found.group(1))
                client.sendall(data)


def page_bytes(html: str) -> bytes:
    """A whole answer that is a page."""
    body = html.encode()
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        % len(body)
        + body
    )


def _read_head(client: socket.socket) -> tuple[bytes, bytes] | None:
    """The head of a request without its empty line, and what came behind it; None when nothing comes."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(65536)
        if not more:
            return None  # browsers open connections that they then do not need
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        return
