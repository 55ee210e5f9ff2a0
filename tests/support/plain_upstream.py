"""An upstream that answers each path as a table says and keeps every request it got.

For what is not about a model's answer: lists of models, embeddings, refusals.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import msgspec


class Reply(msgspec.Struct, frozen=True):
    """What a path answers. Pieces are sent one by one; `cut` ends the connection before the body is whole."""

    body: Any = {}
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] = {}
    pieces: tuple[bytes, ...] = ()
    cut: bool = False


class Asked(msgspec.Struct, frozen=True):
    """One request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class PlainUpstream:
    """Use as a context manager. `table` maps a path, without its query, to its reply, and can be changed at any time."""

    def __init__(self, table: dict[str, Reply] | None = None) -> None:
        self.table = table if table is not None else {}
        self.asked: list[Asked] = []
        upstream = self

        class Handler(_Handler):
            table = upstream.table
            asked = upstream.asked

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def of(self, path: str) -> list[Asked]:
        """The requests to one path."""
        return [request for request in self.asked if request.path.partition("?")[0] == path]

    def __enter__(self) -> PlainUpstream:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    table: dict[str, Reply]
    asked: list[Asked]

    def log_message(self, *words: Any) -> None:
        """Nothing: the test has its own eyes."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked.append(Asked(self.command, self.path, headers, json.loads(raw) if raw else None))
        reply = self.table.get(self.path.partition("?")[0])
        if reply is None:
            reply = Reply({"error": {"message": "Not Found", "type": "invalid_request_error"}}, 404)
        pieces = reply.pieces or (reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode(),)
        length = sum(map(len, pieces)) + (100 if reply.cut else 0)
        self.send_response(reply.status)
        for name, value in {"content-type": reply.kind, "content-length": str(length), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)
            self.wfile.flush()
        self.close_connection = self.close_connection or reply.cut
