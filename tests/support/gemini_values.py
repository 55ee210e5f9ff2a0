"""Values that the tests of Gemini's requests and of its answers share."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from google import genai
from google.genai import types as genai_types

from athena.dialects.base import EncodeContext
from athena.dialects.gemini import DIALECT
from athena.model.events import (
    Event,
)
from athena.model.parts import (
    Part,
)
from athena.model.request import Request, Turn


class Stage:
    """One scripted answer after another; the requests are kept."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: list[tuple[int, str, bytes]] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.client = genai.Client(api_key="test", http_options=genai_types.HttpOptions(base_url=url))

    def will_say(self, body: bytes, *, status: int = 200, kind: str = "text/event-stream") -> None:
        self.answers.append((status, kind, body))

    def stream(self) -> list[genai_types.GenerateContentResponse]:
        return list(self.client.models.generate_content_stream(model="m", contents="Hi"))


@pytest.fixture(scope="module")
def served() -> Iterator[Stage]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            scene.requests.append((self.path, body))
            self._answer()

        def do_GET(self) -> None:
            scene.requests.append((self.path, {}))
            self._answer()

        def _answer(self) -> None:
            status, kind, body = scene.answers.pop(0)
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    scene = Stage(f"http://127.0.0.1:{server.server_address[1]}")
    yield scene
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def stage(served: Stage) -> Stage:
    served.answers.clear()
    served.requests.clear()
    return served


REQUEST = Request(dialect="gemini", model="gemini-x", stream=True)


def encoded(events: list[Event], *, stream: bool = True, **context: Any) -> bytes:
    encoder = DIALECT.encoder(EncodeContext(request=REQUEST, seed="seed", **context), stream=stream)
    return b"".join(encoder.feed([event]) for event in events)


def decode(body: dict[str, Any], **options: Any) -> Request:
    return DIALECT.decode_request(body, model=options.pop("model", "m"), **options)


def said(role: Any, *parts: Part) -> Turn:
    return Turn(role=role, parts=parts)
