"""Hosts, web pages and CORS over real connections: both servers, every path, and the application mounted in another one."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from athena.asgi import create_app
from athena.dialects import dialect_names
from athena.shells.config import Config, GatewayKey, Upstream, hash_key
from support.athena_process import Serving, serving
from support.fault_judge import Answer, read_answer, request_body, request_bytes, send
from support.leaking_upstream import FORMS, LeakingUpstream
from support.patience import PATIENCE

MODEL = FORMS["kimi-content"]
KEY = "ath_only-for-these-tests"
PAGE = "https://app.example"
EVIL = "origin: https://evil.example"
PATHS = ("/", "/health", "/ready", "/metrics", "/v1/models", "/v1beta/models", "/v1/models/m", "/no/such/path")


@pytest.fixture(scope="module")
def upstream() -> Iterator[LeakingUpstream]:
    with LeakingUpstream() as running:
        yield running


def settings(upstream: LeakingUpstream, **more: Any) -> dict[str, Any]:
    return {"upstreams": {"leaking": {"base_url": upstream.url}}, "models": [{"match": "*", "use": f"leaking/{MODEL}"}], **more}


@pytest.fixture(scope="module")
def server(upstream: LeakingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """No keys, one page allowed, one name allowed."""
    config = settings(upstream, allow_origins=[PAGE], allow_hosts=["gateway.example"])
    with serving(tmp_path_factory.mktemp("open"), config=config) as running:
        yield running


@pytest.fixture(scope="module")
def keyed(upstream: LeakingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """With a key, for every page."""
    config = settings(upstream, keys=[hash_key(KEY)], allow_origins=["*"])
    with serving(tmp_path_factory.mktemp("keyed"), config=config) as running:
        yield running


def ask(server: Serving, method: str, path: str, *headers: str, host: str = "localhost", body: bytes = b"") -> Answer:
    """One request on a connection of its own."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}", *headers, "connection: close", f"content-length: {len(body)}"]
    with send(server.port, "\r\n".join(lines).encode() + b"\r\n\r\n" + body) as sock:
        return read_answer(sock)


# -- refusals --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_closed_to_foreign_names_and_pages(server: Serving, path: str) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "POST"):
        assert ask(server, method, path, host="attacker.example:12377").status == 421
        assert ask(server, method, path, EVIL, "content-type: application/json").status == 403
        assert ask(server, method, path, "origin: null").status == 403
        assert ask(server, method, path, "sec-fetch-site: cross-site").status == 403
    answer = ask(server, "GET", path, EVIL)
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_open_to_programs_of_this_machine_and_to_allowed_names(server: Serving, path: str) -> None:
    expected = 404 if path == "/no/such/path" else 200
    for host in ("localhost", "127.0.0.1:12377", "[::1]:1", "gateway.example"):
        assert ask(server, "GET", path, host=host).status == expected


@pytest.mark.parametrize("client", dialect_names())
def test_a_refusal_is_in_the_dialect_and_names_the_setting(server: Serving, client: str, upstream: LeakingUpstream) -> None:
    path, body = request_body(client, MODEL, stream=True)
    data, before = json.dumps(body).encode(), len(upstream.turns)
    host = ask(server, "POST", path, "content-type: application/json", host="attacker.example", body=data)
    origin = ask(server, "POST", path, "content-type: application/json", EVIL, body=data)
    plain = ask(server, "POST", path, "content-type: text/plain", f"origin: {PAGE}", body=data)
    for answer, status, word in ((host, 421, "allow_hosts"), (origin, 403, "allow_origins"), (plain, 415, "application/json")):
        assert answer.status == status
        error = json.loads(answer.body)["error"]
        assert word in error["message"]
        if client == "gemini":
            assert error["code"] == status
        if client == "anthropic_messages":
            assert json.loads(answer.body)["type"] == "error"
    assert len(upstream.turns) == before


def test_nothing_of_the_body_is_waited_for(server: Serving) -> None:
    """A head that announces a body which never comes: the refusal does not wait for it."""
    for more in (f"{EVIL}\r\n", "sec-fetch-site: cross-site\r\n", f"origin: {PAGE}\r\ncontent-type: text/plain\r\n"):
        head = f"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\nexpect: 100-continue\r\n{more}\r\n"
        with send(server.port, head.encode()) as sock:
            answer = read_answer(sock)
        assert answer.status in (403, 415)
        assert b"100 Continue" not in answer.raw


def test_refusals_are_logged(server: Serving) -> None:
    ask(server, "GET", "/health", host="rebound.example")
    assert server.says("this gateway is not known as 'rebound.example'")


# -- pages that are allowed ------------------------------------------------------------------------------------------------


def test_preflight_of_an_allowed_page(server: Serving) -> None:
    asked = ("access-control-request-method: POST", "access-control-request-headers: authorization,content-type,x-evil")
    answer = ask(server, "OPTIONS", "/v1/chat/completions", f"origin: {PAGE}", *asked)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-allow-headers"] == "authorization, content-type"
    assert "Origin" in answer.headers["vary"]
    private = ask(server, "OPTIONS", "/v1/x", f"origin: {PAGE}", *asked, "access-control-request-private-network: true")
    assert private.status == 200
    assert private.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", dialect_names())
def test_answers_to_an_allowed_page_can_be_read_by_it(server: Serving, client: str, stream: bool) -> None:
    path, body = request_body(client, MODEL, stream=stream)
    with send(server.port, request_bytes(path, body, f"origin: {PAGE}", "sec-fetch-site: cross-site")) as sock:
        answer = read_answer(sock)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert answer.headers["vary"] == "Origin"


def test_errors_can_be_read_by_an_allowed_page(server: Serving) -> None:
    answer = ask(server, "POST", "/v1/messages", f"origin: {PAGE}", "content-type: application/json", body=b"nonsense")
    assert answer.status == 400
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert ask(server, "GET", "/no/such/path", f"origin: {PAGE}").headers["access-control-allow-origin"] == PAGE


def test_answers_to_programs_tell_caches_that_origins_differ(server: Serving) -> None:
    answer = ask(server, "GET", "/v1/models")
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in answer.headers


# -- OPTIONS ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", "OPTIONS, GET, HEAD"),
        ("/v1/messages", "OPTIONS, POST"),
        ("/v1/models", "OPTIONS, GET"),
        ("*", "OPTIONS, GET, HEAD, POST"),
    ],
)
def test_options_tells_the_methods(server: Serving, path: str, allowed: str) -> None:
    answer = ask(server, "OPTIONS", path)
    assert (answer.status, answer.headers["allow"], answer.body) == (200, allowed, b"")


def test_options_of_a_path_that_is_not_there(server: Serving) -> None:
    assert ask(server, "OPTIONS", "/no/such/path").status == 404


# -- with keys -------------------------------------------------------------------------------------------------------------


def test_with_keys_the_key_decides(keyed: Serving) -> None:
    answer = ask(keyed, "GET", "/v1/models", EVIL, host="anything.example")
    assert answer.status == 401
    assert answer.headers["access-control-allow-origin"] == "*"
    answer = ask(keyed, "GET", "/v1/models", EVIL, f"authorization: Bearer {KEY}", host="anything.example")
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "*"


def test_a_preflight_needs_no_key(keyed: Serving) -> None:
    answer = ask(keyed, "OPTIONS", "/v1/messages", EVIL, "access-control-request-method: POST")
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "*"


# -- who may know the upstreams --------------------------------------------------------------------------------------------


def test_upstreams_are_named_to_this_machine(server: Serving) -> None:
    told = json.loads(ask(server, "GET", "/ready").body)
    assert {route["upstream"] for route in told.pop("routes")} <= {"leaking"}  # those that other tests asked
    assert told == {"status": "ok", "upstreams": {"leaking": True}, "learnt": []}
    for header in ("x-forwarded-for: 10.0.0.1", "forwarded: for=10.0.0.1", "via: 1.1 proxy", "x-real-ip: 10.0.0.1"):
        assert json.loads(ask(server, "GET", "/ready", header).body) == {"status": "ok"}


def test_with_keys_upstreams_are_named_to_whoever_has_one(keyed: Serving) -> None:
    assert json.loads(ask(keyed, "GET", "/ready").body) == {"status": "ok"}
    assert json.loads(ask(keyed, "GET", "/ready", "x-api-key: wrong").body) == {"status": "ok"}
    named = json.loads(ask(keyed, "GET", "/ready", f"x-api-key: {KEY}").body)
    assert named == {"status": "ok", "upstreams": {"leaking": True}, "learnt": [], "routes": []}


# -- mounted ---------------------------------------------------------------------------------------------------------------


def call(config: Config, path: str, headers: dict[str, str], client: tuple[str, int] | None = None) -> tuple[int, Any]:
    """One GET of the application without a server: status and body."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send_message(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": client,
    }
    asyncio.run(asyncio.wait_for(create_app(config)(scope, receive, send_message), PATIENCE))
    return sent[0]["status"], json.loads(b"".join(message["body"] for message in sent[1:]))


def mounted(**more: Any) -> Config:
    return Config(upstreams={"local": Upstream(base_url="http://127.0.0.1:9/v1")}, envelope_key=None, **more)


def test_a_mounted_gateway_leaves_hosts_to_the_application_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert call(mounted(), "/health", {"host": "anything.example"})[0] == 200
    assert call(mounted(), "/health", {"host": "app.example", "origin": "https://app.example"})[0] == 200
    assert call(mounted(), "/health", {"host": "app.example", "origin": "https://evil.example"})[0] == 403
    assert call(mounted(allow_hosts=("app.example",)), "/health", {"host": "anything.example"})[0] == 421


def test_a_mounted_gateway_names_upstreams_to_nobody_it_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    keys = (GatewayKey(hash=hash_key(KEY)),)
    for client in (("203.0.113.9", 5000), None):
        assert call(mounted(), "/ready", {"host": "app.example"}, client) == (200, {"status": "ok"})
    named = (200, {"status": "ok", "upstreams": {"local": True}, "learnt": [], "routes": []})
    assert call(mounted(), "/ready", {"host": "app.example"}, ("127.0.0.1", 5000)) == named
    assert call(mounted(keys=keys), "/ready", {"host": "x"}, ("127.0.0.1", 5000)) == (200, {"status": "ok"})
    assert call(mounted(keys=keys), "/ready", {"host": "x", "x-api-key": KEY}, ("203.0.113.9", 1)) == named


def test_a_server_without_a_host_header_is_still_served(server: Serving) -> None:
    """HTTP/1.0, as load balancers ask for health; every browser sends a Host."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock:
        sock.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert read_answer(sock).status == 200
