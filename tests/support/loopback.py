"""A real loopback HTTP server around the exchange: official SDKs talk to it, a script plays the upstream.

The model name in the client's request selects the script, so one server and one SDK client serve all cases.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from athena.dialects import get_dialect
from athena.errors import AthenaError
from athena.exchange import Exchange, Options, Route, Step
from athena.model.events import error_event
from athena.model.profile import Profile
from athena.model.request import Request
from athena.opaque import Envelope, OpaqueStore

ENVELOPE = Envelope(b"test key")


class Script(msgspec.Struct):
    """What the upstream answers, and where it seems to stand."""

    dialect: str
    body: bytes
    stream: bool = True
    status: int = 200
    headers: dict[str, str] = {}
    profile: Profile = Profile()
    chunk: int = 0
    """Bytes per upstream read; 0: all at once."""
    route: dict[str, Any] = {}
    store: OpaqueStore | None = None
    later: list[bytes] = []
    """What it answers to the second request, the third, ...; the last one again when there are no more."""
    model: str = "upstream-model"
    exchanges: list[Exchange] = []
    """Filled by the server: what became of each request."""

    def answer(self) -> bytes:
        """The upstream's next answer."""
        answers = [self.body, *self.later]
        return answers[min(len(self.exchanges), len(answers)) - 1]

    def sent(self) -> list[Any]:
        """The bodies the upstream was sent, one per request."""
        return [json.loads(exchange.call.body) for exchange in self.exchanges]


class Loopback:
    """The server; `scripts` maps a model name to what its upstream says."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        loopback = self

        class Handler(_Handler):
            server_scripts = loopback.scripts

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_scripts: dict[str, Script]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        request = decode_http(self.path, body, self.headers.get("anthropic-version"))
        script = self.server_scripts[request.model]
        head_sent = False
        for step in run_script(request, script, array=request.dialect == "gemini" and "alt=sse" not in self.path):
            if step.head is not None:
                head_sent = True
                self.send_response(step.head.status)
                for key, value in step.head.headers.items():
                    self.send_header(key, value)
                self.send_header("connection", "close")
                self.send_header("x-should-retry", "false")
                self.end_headers()
            if step.output:
                assert head_sent, "bytes before the head"
                self.wfile.write(step.output)
        assert head_sent, "the exchange never answered"
        self.close_connection = True


def decode_http(path: str, body: dict[str, Any], version: str | None = None) -> Request:
    """What a gateway's router does: the path says the dialect, and for Gemini the model and the mode."""
    bare = path.partition("?")[0]
    if bare.endswith("/v1/messages"):
        return get_dialect("anthropic_messages").decode_request(body, version=version)
    if bare.endswith("/chat/completions"):
        return get_dialect("openai_chat").decode_request(body)
    if bare.endswith("/responses"):
        return get_dialect("openai_responses").decode_request(body)
    model, _, verb = bare.rpartition("/models/")[2].rpartition(":")
    return get_dialect("gemini").decode_request(body, model=model, stream=verb == "streamGenerateContent")


def run_script(request: Request, script: Script, *, array: bool = False) -> list[Step]:
    """One exchange against a scripted upstream, all steps of it."""
    route = Route(dialect=script.dialect, model=script.model, profile=script.profile, **script.route)
    options = Options(seed="test", created=1_700_000_000, envelope=ENVELOPE, store=script.store, array=array and request.stream)
    steps: list[Step] = []
    try:
        exchange = Exchange(request, route, options)
    except AthenaError as error:
        answer = get_dialect(request.dialect).encode_error(error_event(error))
        from athena.exchange import Head

        return [Step(Head(answer.status, {"content-type": "application/json"}), answer.body, True)]
    script.exchanges.append(exchange)
    kind = "text/event-stream" if script.stream else "application/json"
    steps.append(exchange.upstream_head(script.status, {"content-type": kind, **script.headers}))
    body = script.answer()
    size = script.chunk or max(len(body), 1)
    for start in range(0, len(body), size):
        steps.append(exchange.upstream_data(body[start : start + size]))
    steps.append(exchange.upstream_end())
    return steps
