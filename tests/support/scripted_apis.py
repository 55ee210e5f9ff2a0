"""Loopback servers that stand where an API should be: a small Chat API, and everything that people take for one."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PAGE = b"<!doctype html><html><head><title>Welcome</title></head><body>Our models</body></html>"


class Asked(NamedTuple):
    """One request, as a script sees it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Said(NamedTuple):
    """What the server answers."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


Script = Callable[[Asked], Said]


def said(status: int, value: Any, **headers: str) -> Said:
    return Said(status, json.dumps(value).encode(), headers=tuple(headers.items()))


def refused(status: int, message: str, code: str = "", kind: str = "invalid_request_error") -> Said:
    return said(status, {"error": {"message": message, "type": kind, "code": code or None}})


class ApiServer:
    """A server that answers by a script, over TLS where a context is given."""

    def __init__(self, script: Script, context: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers.get("content-length") or 0)))

            def _answer(self, body: bytes) -> None:
                path = self.path.partition("?")[0]
                asked = Asked(self.command, path, {k.lower(): v for k, v in self.headers.items()}, json.loads(body or b"null"))
                server.asked.append(asked)
                answer = script(asked)
                self.send_response(answer.status)
                self.send_header("content-type", answer.kind)
                self.send_header("content-length", str(len(answer.body)))
                for name, value in answer.headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that breaks off is part of many scripts."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        scheme = "https" if context is not None else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def serving(script: Script, context: ssl.SSLContext | None = None) -> Iterator[ApiServer]:
    server = ApiServer(script, context)
    try:
        yield server
    finally:
        server.close()


def chat_api(
    prefix: str = "/v1",
    *,
    key: str = "",
    models: tuple[str, ...] = ("good-model",),
    tools: bool = True,
    stray: Script | None = None,
    answer: Script | None = None,
) -> Script:
    """A Chat API below `prefix` that behaves; `stray` answers every other path, `answer` every well-formed question."""

    def script(asked: Asked) -> Said:
        if asked.path == f"{prefix}/models" and asked.method == "GET":
            listed = [{"id": name, "object": "model", "context_length": 32768} for name in models]
            return _keyed(asked, key) or said(200, {"object": "list", "data": listed})
        if asked.path != f"{prefix}/chat/completions" or asked.method != "POST":
            return stray(asked) if stray is not None else refused(404, f"no such path: {asked.path}")
        without_key = _keyed(asked, key)
        if without_key is not None:
            return without_key
        if not asked.body.get("messages"):
            return refused(400, "messages is required")
        if asked.body["model"] not in models:
            return refused(404, f"The model `{asked.body['model']}` does not exist", "model_not_found")
        if asked.body.get("tools") and not tools:
            return refused(400, "this model does not support tools")
        return answer(asked) if answer is not None else chat_answer(asked)

    return script


def _keyed(asked: Asked, key: str) -> Said | None:
    if not key or asked.headers.get("authorization") == f"Bearer {key}":
        return None
    return refused(401, "Incorrect API key provided", "invalid_api_key")


def chat_answer(asked: Asked) -> Said:
    """OK, or a call of the first tool."""
    message: dict[str, Any] = {"role": "assistant", "content": "OK"}
    if asked.body.get("tools"):
        name = asked.body["tools"][0]["function"]["name"]
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": '{"city": "Tokyo"}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    finish = "tool_calls" if "tool_calls" in message else "stop"
    head = {"id": "chatcmpl-1", "created": 1, "model": asked.body["model"]}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    if not asked.body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return said(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    chunks = [
        {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage},
    ]
    frames = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    return Said(200, frames + b"data: [DONE]\n\n", "text/event-stream")


def page(asked: Asked) -> Said:
    return Said(200, PAGE, "text/html; charset=utf-8")


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def connect_proxy(target_port: int) -> Iterator[str]:
    """An HTTP proxy that leads every CONNECT to one loopback port; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve(client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            data = client.recv(4096)
            if not data:
                return
            head += data
        far = socket.create_connection(("127.0.0.1", target_port))
        sockets.append(far)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for pair in ((client, far), (far, client)):
            threads.append(threading.Thread(target=pump, args=pair, daemon=True))
            threads[-1].start()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                sockets.append(client)
                threads.append(threading.Thread(target=serve, args=(client,), daemon=True))
                threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for sock in sockets:
            sock.close()
