"""https for clients: certificates that are refused, served, replaced while streams are open, and clients that do it wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from athena.dialects import dialect_names
from athena.errors import ConfigError
from athena.shells.agent_run import started_gateway
from athena.shells.config import Config, Loaded, Sources, TimeoutSettings, Tls, load, needs_restart
from athena.shells.server.tls import ListenerTls
from athena.shells.temporary_gateway import Wish
from support.athena_process import Serving, athena, serving
from support.canonical import Piece
from support.certificates import Authority
from support.held_upstream import HeldUpstream
from support.patience import PATIENCE
from support.sdks import ask

HOST = "127.0.0.1"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


# -- configuration ---------------------------------------------------------------------------------------------------------


def loaded(tmp_path: Path, tls: dict[str, Any], **environment: str) -> Loaded:
    file = tmp_path / "athena.yml"
    file.write_text(json.dumps({"base_url": "http://127.0.0.1:9", "tls": tls}))
    return load(Sources(config_file=file, directory=tmp_path, home=tmp_path, environment=environment))


def fault(tmp_path: Path, tls: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, tls)
    (problem,) = refused.value.problems
    return str(problem)


def test_a_pair_that_fits(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue(HOST, "fits")
    found = loaded(tmp_path, {"cert": str(cert), "key": str(key)})
    assert found.warnings == ()
    assert {cert, key} <= set(found.key_files)


def test_both_in_one_file_found_from_home(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue(HOST, "apart")
    both = tmp_path / "both.pem"
    both.touch(mode=0o600)
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    found = loaded(tmp_path, {"cert": "~/both.pem"})
    assert found.warnings == ()
    assert found.config.tls.cert == str(both)


def test_a_key_with_a_password(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue(HOST, "sealed", password=b"open sesame")
    pair = {"cert": str(cert), "key": str(key)}
    found = loaded(tmp_path, {**pair, "key_password": "${PASSWORD}"}, PASSWORD="open sesame")
    assert "sesame" not in repr(found.config)
    problem = fault(tmp_path, pair)
    assert "tls.key_password: the private key in" in problem
    assert "is encrypted" in problem
    problem = fault(tmp_path, {**pair, "key_password": "wrong-canary"})
    assert "tls.key_password: is not the password" in problem
    assert "canary" not in problem


def test_faults_name_their_setting(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue(HOST, "one")
    _, other = authority.issue(HOST, "other")
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    missing = str(tmp_path / "missing.pem")
    cases: list[tuple[dict[str, str], str]] = [
        ({"cert": missing, "key": str(key)}, f"tls.cert: {missing} cannot be read: No such file or directory"),
        ({"cert": str(cert), "key": missing}, f"tls.key: {missing} cannot be read: No such file or directory"),
        ({"cert": str(tmp_path), "key": str(key)}, f"tls.cert: {tmp_path} is not a file"),
        ({"cert": str(text), "key": str(key)}, f"tls.cert: {text} does not hold a certificate in PEM form"),
        ({"cert": str(key), "key": str(key)}, f"tls.cert: {key} does not hold a certificate in PEM form"),
        ({"cert": str(cert), "key": str(cert)}, f"tls.key: {cert} does not hold a private key in PEM form"),
        ({"cert": str(cert)}, "tls.cert: " + f"{cert} does not hold a private key in PEM form (name its file in tls.key)"),
        ({"cert": str(cert), "key": str(other)}, f"tls.key: {other} does not belong to the certificate in {cert}"),
        ({"key": str(key)}, "tls.key: stands without a certificate (set tls.cert)"),
    ]
    for tls, words in cases:
        assert words in fault(tmp_path, tls)


def test_a_broken_pem_is_told_apart_from_none(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue(HOST, "broken")
    lines = cert.read_text().splitlines()
    cert.write_text("\n".join([lines[0], "AAAA", *lines[3:]]))
    assert "cannot be used" in fault(tmp_path, {"cert": str(cert), "key": str(key)})


def test_a_key_that_others_can_read_is_warned_about(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue(HOST, "shown")
    key.chmod(0o644)
    (warning,) = loaded(tmp_path, {"cert": str(cert), "key": str(key)}).warnings
    assert "tls.key: others can read or change the private key (chmod 600)" in str(warning)


def test_flags_and_variables(authority: Authority, tmp_path: Path) -> None:
    cert, key = map(str, authority.issue(HOST, "flags"))
    here: dict[str, Any] = {"directory": tmp_path, "home": tmp_path}
    by_flag = load(Sources(flags={"tls_cert": cert, "tls_key": key}, **here))
    by_variable = load(Sources(environment={"ATHENA_TLS__CERT": cert, "ATHENA_TLS__KEY": key}, **here))
    assert by_flag.config.tls == by_variable.config.tls == Tls(cert=cert, key=key)
    with pytest.raises(ConfigError, match=r"--tls-key: .*cannot be read"):
        load(Sources(flags={"tls_cert": cert, "tls_key": "nowhere.key"}, **here))


def test_only_turning_it_on_or_off_needs_a_restart() -> None:
    on, other, off = Config(tls=Tls(cert="a")), Config(tls=Tls(cert="b")), Config()
    assert needs_restart(on, other) == ()
    assert needs_restart(on, off) == needs_restart(off, on) == ("tls",)


def test_a_start_with_a_bad_pair_says_so(tmp_path: Path) -> None:
    result = athena(tmp_path, "serve", "--port", "0", "--tls-cert", "nowhere.pem")
    assert result.code == 1
    assert "--tls-cert: nowhere.pem cannot be read: No such file or directory" in result.err
    assert "Traceback" not in result.err


# -- served ----------------------------------------------------------------------------------------------------------------


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.ca_file)


def connect(server: Serving, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection((HOST, server.port), PATIENCE)
    try:
        return context.wrap_socket(plain, server_hostname=HOST)
    except BaseException:
        plain.close()
        raise


def read_to_end(client: socket.socket) -> bytes:
    answer = b""
    while data := client.recv(65536):
        answer += data
    return answer


def read_until(client: socket.socket, word: bytes) -> bytes:
    answer = b""
    while word not in answer:
        data = client.recv(65536)
        assert data, answer
        answer += data
    return answer


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def settings(upstream: HeldUpstream, cert: Path, key: Path, **more: Any) -> dict[str, Any]:
    return {
        "upstreams": {"held": {"base_url": upstream.url}},
        "models": [{"match": "m", "use": "held"}],
        "tls": {"cert": str(cert), "key": str(key)},
        **more,
    }


@pytest.fixture(scope="module")
def upstream() -> Iterator[HeldUpstream]:
    with HeldUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def server(upstream: HeldUpstream, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    cert, key = authority.issue(HOST, "served")
    more = {"timeouts": {"client_headers_s": 1}, "limits": {"body_bytes": 4096}}
    with serving(tmp_path_factory.mktemp("tls"), config=settings(upstream, cert, key, **more)) as running:
        yield running


@pytest.mark.parametrize("client", dialect_names())
@pytest.mark.parametrize("stream", [True, False])
def test_official_sdks(
    client: str,
    stream: bool,
    authority: Authority,
    demo: Serving,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
    url = demo.url
    assert url.startswith("https://")
    assert Piece("call", "get_weather", {}) in ask(client, url, "athena-demo", stream=stream).pieces


@pytest.fixture(scope="module")
def demo(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A gateway on the demo model, in two processes."""
    cert, key = map(str, authority.issue(HOST, "demo"))
    flags = ("--demo", "--workers", "2", "--tls-cert", cert, "--tls-key", key)
    server = Serving(tmp_path_factory.mktemp("demo"), flags, {})
    yield server
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    server.end()


def test_connections_are_reused_and_pipelined(server: Serving, authority: Authority) -> None:
    with connect(server, trusting(authority)) as client:
        assert client.version() == "TLSv1.3"
        assert client.selected_alpn_protocol() is None
        client.sendall(GET.replace(b"Connection: close\r\n", b"") * 3)
        read_until(client, b'{"status":"ok"}')
        client.sendall(GET)
        assert read_to_end(client).count(b'{"status":"ok"}') >= 1


def test_the_protocol_is_agreed_on(server: Serving, authority: Authority) -> None:
    context = trusting(authority)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with connect(server, context) as client:
        assert client.selected_alpn_protocol() == "http/1.1"


def test_old_versions_are_refused(server: Serving, authority: Authority) -> None:
    context = trusting(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with connect(server, context) as client:
        assert client.version() == "TLSv1.2"
    context = trusting(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(server, context)


def test_a_body_that_is_too_large_is_told_while_it_is_sent(server: Serving, authority: Authority) -> None:
    with connect(server, trusting(authority)) as client:
        client.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400000\r\n\r\n")
        for _ in range(10):
            client.sendall(b"x" * 40_000)
        assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_a_client_that_leaves_ends_its_request(server: Serving, authority: Authority, upstream: HeldUpstream) -> None:
    with connect(server, trusting(authority)) as client:
        client.sendall(POST)
        read_until(client, b"one")
        until(lambda: upstream.open_streams > 0, "the upstream is asked")
    until(lambda: upstream.open_streams == 0, "the upstream's request goes on without its client")


@pytest.mark.parametrize("sent", [GET, b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x00" * 100], ids=repr)
def test_what_is_no_handshake_is_closed_without_a_word(server: Serving, sent: bytes) -> None:
    """Plain HTTP, and handshakes that are not finished in time."""
    with socket.create_connection((HOST, server.port), PATIENCE) as client:
        client.sendall(sent)
        try:
            answer = read_to_end(client)
        except ConnectionResetError:
            answer = b""
    assert b"HTTP" not in answer


def test_the_server_is_well_after_all_this(server: Serving, authority: Authority) -> None:
    with connect(server, trusting(authority)) as client:
        client.sendall(GET)
        assert b'{"status":"ok"}' in read_to_end(client)
    log = server.log()
    assert "url=https://127.0.0.1:" in log
    for word in ("Traceback", "Exception", "SSL", "never retrieved"):
        assert word not in log


# -- replaced --------------------------------------------------------------------------------------------------------------


def replace(pair: tuple[Path, Path], by: tuple[Path, Path]) -> None:
    for old, new in zip(pair, by, strict=True):
        fresh = old.with_suffix(".new")
        shutil.copy(new, fresh)
        os.replace(fresh, old)


def is_shown(server: Serving, authority: Authority, times: int) -> bool:
    """Do so many handshakes in a row all show a certificate of this authority?"""
    context = trusting(authority)
    try:
        for _ in range(times):
            connect(server, context).close()
    except ssl.SSLCertVerificationError:
        return False
    return True


@pytest.mark.parametrize("workers", [1, 2])
def test_a_new_certificate_is_taken_up_and_streams_go_on(
    workers: int, upstream: HeldUpstream, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "next").mkdir()
    following = Authority(tmp_path / "next")
    pair = authority.issue(HOST, f"replaced-{workers}")
    times = 1 if workers == 1 else 24  # the kernel deals connections out to the processes
    with serving(tmp_path, config=settings(upstream, *pair, workers=workers)) as server:
        assert is_shown(server, authority, times)
        with connect(server, trusting(authority)) as client:
            client.sendall(POST)
            read_until(client, b"one")
            # Half of a pair is no pair: refused, and the old one stays.
            shutil.copy(following.issue(HOST, "half")[1], pair[1])
            assert server.says("does not belong to the certificate")
            assert is_shown(server, authority, times)
            replace(pair, following.issue(HOST, "whole"))
            until(lambda: is_shown(server, following, times), "the new certificate is not shown")
            upstream.say("two")
            read_until(client, b"two")
            upstream.finish()
            read_until(client, b"[DONE]")
        if workers > 1:
            # Each is a copy of the parent, which has only ever seen the first certificate.
            kill_children(server)
            assert is_shown(server, following, times)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "Traceback" not in server.log()


def kill_children(server: Serving) -> None:
    """All serving processes of a parent, and wait until others have taken their places."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    before = children.read_text().split()
    for pid in before:
        os.kill(int(pid), signal.SIGKILL)
    until(lambda: len(set(children.read_text().split()) - set(before)) == len(before), "the processes are not replaced")


def test_the_end_finds_streams_and_handshakes(upstream: HeldUpstream, authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue(HOST, "drained")
    with serving(tmp_path, config=settings(upstream, *pair)) as server, socket.create_connection((HOST, server.port)) as slow:
        slow.sendall(b"\x16")
        with connect(server, trusting(authority)) as client:
            client.sendall(POST)
            read_until(client, b"one")
            server.signal(signal.SIGTERM)
            assert server.says("draining")
            upstream.finish()
            assert b"[DONE]" in read_to_end(client)
        assert server.wait() == 0
        assert "Traceback" not in server.log()


def test_the_end_does_not_wait_for_idle_clients(upstream: HeldUpstream, authority: Authority, tmp_path: Path) -> None:
    """A pool that keeps a connection does not look at it, and so does not answer the end of TLS."""
    config = settings(upstream, *authority.issue(HOST, "idle"), timeouts={"drain_s": 600})
    with serving(tmp_path, config=config) as server, connect(server, trusting(authority)) as client:
        client.sendall(GET.replace(b"Connection: close\r\n", b""))
        read_until(client, b'{"status":"ok"}')
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert client.recv(1) == b""


def test_a_slow_reader_has_its_time_for_the_end_of_an_answer(authority: Authority) -> None:
    cert, key = map(str, authority.issue(HOST, "times"))
    arguments = ListenerTls(Tls(cert=cert, key=key)).server_arguments(TimeoutSettings(client_headers_s=7, client_write_s=77))
    assert arguments["ssl_handshake_timeout"] == 7
    assert arguments["ssl_shutdown_timeout"] == 77


# -- commands --------------------------------------------------------------------------------------------------------------


def test_the_gateway_in_the_background(authority: Authority, tmp_path: Path) -> None:
    """Its readiness is seen although the certificate is for another name and the authority is unknown."""
    cert, key = map(str, authority.issue("gateway.example", "background"))
    started = athena(tmp_path, "start", "--wait", "20s", "--port", "0", "--tls-cert", cert, "--tls-key", key)
    try:
        assert started.code == 0, started.err
        assert "on https://127.0.0.1:" in started.out
        assert ", ready" in athena(tmp_path, "status").out
    finally:
        athena(tmp_path, "stop")


def test_the_gateway_of_one_agent_speaks_plain_http(authority: Authority, tmp_path: Path) -> None:
    """It is on loopback and the agent may not know the authority."""
    cert, key = map(str, authority.issue("gateway.example", "agent"))
    file = tmp_path / "team.yml"
    tls = {"cert": cert, "key": key}
    file.write_text(json.dumps({"base_url": "http://127.0.0.1:9", "tls": tls, "state_dir": str(tmp_path / "state")}))
    with started_gateway(Wish(config_file=str(file)), tmp_path / "run.log") as up:
        assert up.url.startswith("http://")
