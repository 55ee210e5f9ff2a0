"""The inspector's page and its data over a real socket, the data being whatever a test puts there.

The page is the gateway's own; the data is answered as `docs/recordings.md` says, so that views, sizes and moments can be chosen
that no model would make.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from athena.recording.view import ExchangeRow, HealthHistory, Session, View
from athena.serving.learning import Lesson
from athena.serving.route_health import RouteReport
from athena.shells.gateway.inspect_stored import ToldTalk
from athena.shells.inspector import page_answer
from support.inspected import replay_of

TOKEN = "a-token-of-the-tests"


class _Server(ThreadingHTTPServer):
    """Waits for its threads when it is closed, so that no test leaves one behind."""

    daemon_threads = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections that a browser opened and keeps for later: their threads would wait for a request for ever."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)


class InspectorServer:
    """Use it with `with`; change its values and `tell` what happened."""

    def __init__(self) -> None:
        self.rows: list[ExchangeRow] = []
        self.views: dict[str, View] = {}
        self.sessions: list[Session] = []
        self.health: list[HealthHistory] = []
        self.lessons: list[Lesson] = []
        self.routes: list[RouteReport] = []
        self.talks: list[ToldTalk] = []
        self.models: list[str] = []
        self.mode = "memory"
        self.asked: list[str] = []
        self.replays: list[dict[str, str]] = []
        self._lock = threading.Lock()
        """For the listeners: each handler has a thread of its own."""
        self._listeners: list[queue.Queue[bytes | None]] = []
        self._is_over = False
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.page = f"{self.url}/inspect?token={TOKEN}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> InspectorServer:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._thread.join()
        with self._lock:
            self._is_over = True
        self.hang_up()
        self._server.hang_up()
        self._server.server_close()

    def tell(self, kind: str, value: Any) -> None:
        """An event of `live`."""
        with self._lock:
            for listener in self._listeners:
                listener.put(b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(value)))

    def hang_up(self) -> None:
        """End the live answers, as a gateway does that ends."""
        with self._lock:
            for listener in self._listeners:
                listener.put(None)

    def forget(self, wanted: dict[str, str]) -> None:
        """Lessons of one upstream's model are forgotten."""
        self.lessons = [lesson for lesson in self.lessons if wanted != {"upstream": lesson.upstream, "model": lesson.model}]

    def fitting(self, query: dict[str, list[str]]) -> list[ExchangeRow]:
        """The rows of a list, filtered as far as tests need it."""
        found = self.rows
        for name in ("verdict", "model", "upstream", "session"):
            for value in query.get(name, []):
                found = [row for row in found if value in getattr(row, name) or value in getattr(row, f"upstream_{name}", "")]
        for value in query.get("name", []):
            found = [row for row in found if row.id == value]
        for value in query.get("q", []):
            found = [row for row in found if value in f"{row.id} {row.model} {row.upstream} {row.upstream_model} {row.program}"]
        return [row for row in found if row.repairs or "repaired" not in query]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments: Any) -> None:
                pass

            def do_GET(self) -> None:
                server._get(self)

            def do_DELETE(self) -> None:
                name = unquote(self.path.split("/")[4])
                server.views.pop(name)
                server.rows = [row for row in server.rows if row.id != name]
                self.send_response(204)
                self.end_headers()
                server.tell("gone", {"id": name})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                settings = msgspec.json.decode(body, type=dict[str, str])
                if self.path == "/learnt/forget":
                    server.forget(settings)
                    server._json(self, {"forgotten": [], "workers": 1})
                    return
                server.replays.append(settings)
                name = unquote(self.path.split("/")[4])
                server._json(self, replay_of(server.views[name], settings))

        return Handler

    def _get(self, handler: BaseHTTPRequestHandler) -> None:
        target = urlsplit(handler.path)
        query = parse_qs(target.query)
        self.asked.append(handler.path)
        page = page_answer(target.path, may_enter=query.get("token") == [TOKEN])
        if page is not None:
            handler.send_response(page.status)
            for name, value in page.headers:
                handler.send_header(name.decode(), value.decode())
            handler.send_header("content-length", str(len(page.body)))
            handler.end_headers()
            handler.wfile.write(page.body)
            return
        if handler.headers.get("authorization") != f"Bearer {TOKEN}":
            self._json(handler, {"error": {"code": "inspector_token", "message": "no token"}}, 401)
            return
        self._data(handler, [unquote(part) for part in target.path.split("/")[3:]], query)

    def _data(self, handler: BaseHTTPRequestHandler, parts: list[str], query: dict[str, list[str]]) -> None:
        match parts:
            case ["exchanges"]:
                rows = self.fitting(query)
                self._json(handler, {"rows": rows, "total": len(self.rows), "next": None, "dropped": 0})
            case ["exchanges", name] if name in self.views:
                self._json(handler, self.views[name])
            case ["exchanges", name] if any(row.id == name and row.state == "live" for row in self.rows):
                self._json(handler, {"error": {"code": "in_flight", "message": "it is still in flight"}}, 409)
            case ["exchanges", _, "export" | "case"]:
                self._json(handler, {"line": "recording"})
            case ["sessions"]:
                self._json(handler, {"sessions": self.sessions})
            case ["health"]:
                body = {"upstreams": self.health, "since": 1_794_825_678.0, "lessons": self.lessons, "routes": self.routes}
                self._json(handler, body)
            case ["conversations"]:
                self._json(handler, {"talks": [told.talk for told in self.talks], "keeps": True})
            case ["conversations", name]:
                self._json(handler, next(told for told in self.talks if name in (told.talk.id, *told.talk.responses)))
            case ["models"]:
                self._json(handler, {"models": self.models})
            case ["live"]:
                self._live(handler)
            case _:
                self._json(handler, {"error": {"code": "no_such_exchange", "message": "no such exchange"}}, 404)

    def _live(self, handler: BaseHTTPRequestHandler) -> None:
        waiting: queue.Queue[bytes | None] = queue.Queue()
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        live = sum(row.state == "live" for row in self.rows)
        hello = {"in_flight": live, "kept": len(self.rows), "mode": self.mode, "dropped": 0}
        waiting.put(b"event: hello\ndata: %b\n\n" % msgspec.json.encode(hello))
        for row in self.rows:
            if row.state == "live":
                waiting.put(b"event: row\ndata: %b\n\n" % msgspec.json.encode(row))
        with self._lock:
            if self._is_over:
                return
            self._listeners.append(waiting)
        try:
            while (event := waiting.get()) is not None:
                handler.wfile.write(event)
                handler.wfile.flush()
        except OSError:
            pass  # the page was closed
        finally:
            with self._lock:
                self._listeners.remove(waiting)

    def _json(self, handler: BaseHTTPRequestHandler, value: Any, status: int = 200) -> None:
        body = msgspec.json.encode(value)
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
