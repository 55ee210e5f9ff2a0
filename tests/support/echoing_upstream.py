"""An upstream that remembers every request, headers included, and repeats the key it was sent in its answer."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class EchoingUpstream:
    """Speaks Chat, whole and streamed; with `piece` the stream is written in pieces of so many bytes, each on its own."""

    def __init__(self, piece: int = 0) -> None:
        self.seen: list[Seen] = []
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                upstream.seen.append(Seen(self.path, headers, body))
                data, kind = _answer(f"your key is {headers.get('authorization', 'unknown')}", bool(body.get("stream")))
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                for start in range(0, len(data), piece or len(data)):
                    self.wfile.write(data[start : start + (piece or len(data))])

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def __enter__(self) -> EchoingUpstream:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer(text: str, stream: bool) -> tuple[bytes, str]:
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    if not stream:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return json.dumps({**head, "choices": [choice]}).encode(), "application/json"
    chunks: list[dict[str, Any]] = [{"delta": {"content": text}, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"}]
    records = [{**head, "object": "chat.completion.chunk", "choices": [{"index": 0, **chunk}]} for chunk in chunks]
    frames = "".join(f"data: {json.dumps(record)}\n\n" for record in records)
    return f"{frames}data: [DONE]\n\n".encode(), "text/event-stream"
