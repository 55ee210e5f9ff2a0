"""Opening connections: addresses that fail or hang, TLS, proxies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from athena.errors import ConfigError, UpstreamClosed, UpstreamProtocol, UpstreamTimeout
from athena.shells.upstream import ClientSettings, Origin, Timeouts, TlsSettings, UpstreamClient, parse_base_url
from athena.shells.upstream.dial import Address, Resolver
from support.certificates import Authority
from support.event_loops import Run, both_loops
from support.patience import FOR_EVER, PATIENCE
from support.raw_server import Hold, Pause, RawServer, Request, Script, Tls, answer

OK = answer(b"ok")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextlib.contextmanager
def black_hole(host: str = "127.0.0.1") -> Iterator[int]:
    """A port where connecting hangs: its backlog is full and nobody accepts."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((host, 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def resolver(*targets: tuple[str, int]) -> Resolver:
    async def resolve(host: str, port: int) -> Sequence[Address]:
        return [
            Address(socket.AF_INET6, (*target, 0, 0)) if ":" in target[0] else Address(socket.AF_INET, target)
            for target in targets
        ]

    return resolve


async def ask(client: UpstreamClient, origin: Origin, timeouts: Timeouts | None = None) -> bytes:
    response = await client.send("POST", origin, "/", [], b"{}", timeouts or Timeouts(connect=PATIENCE))
    data = b""
    while more := await response.read():
        data += more
    return data


def connecting(
    run: Run,
    main: Callable[[UpstreamClient], Awaitable[None]],
    settings: ClientSettings | None = None,
    resolve: Resolver | None = None,
) -> None:
    async def inner() -> None:
        client = UpstreamClient(settings, resolver=resolve) if resolve else UpstreamClient(settings)
        try:
            await main(client)
        finally:
            await client.close()
            assert all(left.open == 0 for left in client.stats().values())
        await asyncio.sleep(0)

    run(inner)


# -- addresses -------------------------------------------------------------------------------------------------------------


@both_loops
def test_refused(run: Run) -> None:
    async def main(client: UpstreamClient) -> None:
        with pytest.raises(UpstreamClosed) as caught:
            await ask(client, Origin("http", "127.0.0.1", closed_port()))
        assert caught.value.code == "upstream_unreachable"
        assert "`athena help upstream_unreachable` says more" in str(caught.value)
        assert not caught.value.request_sent
        assert not caught.value.response_started

    connecting(run, main)


@both_loops
def test_a_name_nobody_knows(run: Run) -> None:
    async def fail(host: str, port: int) -> Sequence[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def main(client: UpstreamClient) -> None:
        with pytest.raises(UpstreamClosed) as caught:
            await ask(client, Origin("http", "nobody.invalid", 80))
        assert caught.value.code == "upstream_dns_failed"
        assert not caught.value.request_sent

    connecting(run, main, resolve=fail)
    connecting(run, main, resolve=resolver())


@both_loops
def test_the_systems_resolver(run: Run) -> None:
    with RawServer([Request(), OK, Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, Origin("http", "localhost", server.port)) == b"ok"

        connecting(run, main)


@both_loops
def test_a_connect_that_hangs(run: Run) -> None:
    with black_hole() as port:

        async def main(client: UpstreamClient) -> None:
            with pytest.raises(UpstreamTimeout) as caught:
                await ask(client, Origin("http", "127.0.0.1", port), Timeouts(connect=0.1))
            assert caught.value.code == "connect_timeout"
            assert not caught.value.request_sent
            with pytest.raises(UpstreamTimeout) as caught:
                await ask(client, Origin("http", "127.0.0.1", port), Timeouts(total=0.1))
            assert caught.value.code == "total_timeout"

        connecting(run, main)


@both_loops
def test_a_resolver_that_hangs(run: Run) -> None:
    async def hang(host: str, port: int) -> Sequence[Address]:
        await asyncio.Event().wait()
        raise AssertionError

    async def main(client: UpstreamClient) -> None:
        with pytest.raises(UpstreamTimeout) as caught:
            await ask(client, Origin("http", "slow.invalid", 80), Timeouts(connect=0.05))
        assert caught.value.code == "connect_timeout"

    connecting(run, main, resolve=hang)


@both_loops
def test_the_next_address_after_one_that_hangs(run: Run) -> None:
    with black_hole() as hole, RawServer([Request(), OK, Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            started = asyncio.get_running_loop().time()
            assert await ask(client, Origin("http", "two.invalid", 80)) == b"ok"
            assert asyncio.get_running_loop().time() - started >= 0.05

        connecting(run, main, ClientSettings(stagger=0.05), resolver(("127.0.0.1", hole), ("127.0.0.1", server.port)))


@both_loops
def test_the_next_address_at_once_after_one_that_refuses(run: Run) -> None:
    with RawServer([Request(), OK, Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            # One that waited for the next address's turn would never get there.
            assert await ask(client, Origin("http", "two.invalid", 80)) == b"ok"

        targets = [("127.0.0.1", closed_port()), ("127.0.0.1", closed_port()), ("127.0.0.1", server.port)]
        connecting(run, main, ClientSettings(stagger=FOR_EVER), resolver(*targets))


@both_loops
def test_all_addresses_fail(run: Run) -> None:
    async def main(client: UpstreamClient) -> None:
        with pytest.raises(UpstreamClosed) as caught:
            await ask(client, Origin("http", "two.invalid", 80))
        assert caught.value.code == "upstream_unreachable"

    connecting(run, main, resolve=resolver(("127.0.0.1", closed_port()), ("127.0.0.1", closed_port())))


@both_loops
def test_version_six_first_then_four(run: Run) -> None:
    with RawServer([Request(), OK, Hold()]) as four:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, Origin("http", "two.invalid", 80)) == b"ok"

        connecting(run, main, resolve=resolver(("::1", closed_port()), ("127.0.0.1", four.port)))


@both_loops
def test_losers_of_the_race_are_closed(run: Run) -> None:
    with black_hole() as hole, RawServer([Request(), OK, Hold()]) as server:

        async def main(client: UpstreamClient) -> None:
            before = _open_sockets()
            assert await ask(client, Origin("http", "three.invalid", 80)) == b"ok"
            await client.close()
            while _open_sockets() > before:
                await asyncio.sleep(0.001)

        targets = [("127.0.0.1", hole), ("127.0.0.1", hole), ("127.0.0.1", server.port)]
        connecting(run, main, ClientSettings(stagger=0.02), resolver(*targets))


def _open_sockets() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


# -- TLS -------------------------------------------------------------------------------------------------------------------


def tls_script(context: ssl.SSLContext) -> Script:
    return [Tls(context), Request(), OK, Request(), OK, Hold()]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@both_loops
def test_tls_with_a_ca_of_ones_own(run: Run, authority: Authority, host: str) -> None:
    names: list[str | None] = []
    context = authority.server_context(host)
    context.sni_callback = lambda _, name, __: names.append(name)
    with RawServer(tls_script(context)) as server:

        async def main(client: UpstreamClient) -> None:
            origin = Origin("https", host, server.port, TlsSettings(ca_file=authority.ca_file))
            assert await ask(client, origin) == b"ok"
            assert await ask(client, origin) == b"ok"

        connecting(run, main)
    assert server.connections == 1
    assert names == [host if host == "localhost" else None]


@pytest.mark.parametrize("case", ["unknown authority", "wrong name", "only the system's authority"])
@both_loops
def test_certificates_are_verified(
    run: Run, authority: Authority, case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    context = authority.server_context("127.0.0.1" if case != "wrong name" else "other.invalid")
    tls = TlsSettings() if case == "unknown authority" else TlsSettings(ca_file=authority.ca_file)
    if case == "only the system's authority":
        # The file's authorities are trusted instead of the system's, not beside them.
        monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
        tls = TlsSettings(ca_file=Authority(tmp_path).ca_file)
    with RawServer(tls_script(context)) as server:

        async def main(client: UpstreamClient) -> None:
            with pytest.raises(UpstreamProtocol) as caught:
                await ask(client, Origin("https", "127.0.0.1", server.port, tls))
            assert caught.value.code == "upstream_certificate"
            assert not caught.value.request_sent

        connecting(run, main)
    assert server.requests == []


@both_loops
def test_verification_is_off_only_when_told(run: Run, authority: Authority) -> None:
    with RawServer(tls_script(authority.server_context("other.invalid"))) as server:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, Origin("https", "127.0.0.1", server.port, TlsSettings(verify=False))) == b"ok"

        connecting(run, main)


@both_loops
def test_tls_settings_do_not_share_connections(run: Run, authority: Authority) -> None:
    with RawServer(tls_script(authority.server_context("127.0.0.1"))) as server:

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, Origin("https", "127.0.0.1", server.port, TlsSettings(verify=False))) == b"ok"
            with pytest.raises(UpstreamProtocol):
                await ask(client, Origin("https", "127.0.0.1", server.port))

        connecting(run, main)


@both_loops
def test_a_handshake_that_hangs_or_is_none(run: Run) -> None:
    with RawServer([Hold()]) as silent, RawServer([b"HTTP/1.1 400 Bad Request\r\n\r\n"]) as plain, RawServer([]) as closing:

        async def main(client: UpstreamClient) -> None:
            with pytest.raises(UpstreamTimeout) as late:
                await ask(client, Origin("https", "127.0.0.1", silent.port, TlsSettings(handshake_timeout=0.1)))
            assert late.value.code == "tls_timeout"
            with pytest.raises(UpstreamTimeout) as late:
                await ask(client, Origin("https", "127.0.0.1", silent.port), Timeouts(connect=0.1))
            assert late.value.code == "connect_timeout"
            for server in (plain, closing):
                with pytest.raises(UpstreamProtocol) as broken:
                    await ask(client, Origin("https", "127.0.0.1", server.port))
                assert broken.value.code == "upstream_tls"
                assert not broken.value.request_sent

        connecting(run, main)


@both_loops
def test_an_unreadable_ca_file(run: Run, tmp_path: Path) -> None:
    async def main(client: UpstreamClient) -> None:
        with pytest.raises(ConfigError):
            await ask(client, Origin("https", "127.0.0.1", 1, TlsSettings(ca_file=str(tmp_path / "absent.pem"))))

    connecting(run, main)


@pytest.mark.parametrize("body", [b"", b"until the end" * 10000])
@both_loops
def test_a_tls_body_until_the_end(run: Run, authority: Authority, body: bytes) -> None:
    context = authority.server_context("127.0.0.1")
    with RawServer([Tls(context), Request(), b"HTTP/1.0 200 OK\r\n\r\n" + body]) as server:

        async def main(client: UpstreamClient) -> None:
            origin = Origin("https", "127.0.0.1", server.port, TlsSettings(ca_file=authority.ca_file))
            assert await ask(client, origin) == body

        connecting(run, main)


# -- proxies ---------------------------------------------------------------------------------------------------------------

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\nvia: test\r\n\r\n"


@both_loops
def test_a_tunnel_with_credentials(run: Run, authority: Authority) -> None:
    context = authority.server_context("model.invalid")
    with RawServer([Request(), ESTABLISHED, Tls(context), Request(), OK, Request(), OK, Hold()]) as proxy:

        async def main(client: UpstreamClient) -> None:
            origin, path = parse_base_url(
                "https://model.invalid/v1",
                tls=TlsSettings(ca_file=authority.ca_file),
                proxy=f"http://user:secret@127.0.0.1:{proxy.port}",
            )
            for _ in range(2):
                response = await client.send("GET", origin, path)
                assert await response.read() == b"ok"

        connecting(run, main)
    assert proxy.connections == 1
    assert proxy.requests[0] == (
        b"CONNECT model.invalid:443 HTTP/1.1\r\nHost: model.invalid:443\r\nProxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n"
    )
    assert b"roxy" not in proxy.requests[1]


@both_loops
def test_a_tunnel_to_a_plain_upstream(run: Run) -> None:
    with RawServer([Request(), ESTABLISHED, Request(), OK, Hold()]) as proxy:

        async def main(client: UpstreamClient) -> None:
            origin, _ = parse_base_url("http://model.invalid", proxy=f"http://127.0.0.1:{proxy.port}")
            assert await ask(client, origin) == b"ok"

        connecting(run, main)
    assert proxy.requests[0].startswith(b"CONNECT model.invalid:80 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("script", "kind", "code"),
    [
        ([Request(), answer(b"no", status="407 Proxy Authentication Required")], UpstreamClosed, "proxy_refused"),
        ([Request(), b"nonsense\r\n\r\n"], UpstreamProtocol, "proxy_protocol"),
        ([Request(), b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40000, Hold()], UpstreamProtocol, "proxy_protocol"),
        ([Request(), ESTABLISHED + b"x", Hold()], UpstreamProtocol, "proxy_protocol"),
        ([Request()], UpstreamClosed, "proxy_closed"),
        ([Request(), Hold()], UpstreamTimeout, "connect_timeout"),
        ([Request(), b"HTTP/1.1 200", Pause(0.05), Hold()], UpstreamTimeout, "connect_timeout"),
    ],
)
@both_loops
def test_proxies_that_fail(run: Run, script: Script, kind: type[Exception], code: str) -> None:
    with RawServer(script) as proxy:

        async def main(client: UpstreamClient) -> None:
            origin, _ = parse_base_url("https://model.invalid", proxy=f"http://u:secret@127.0.0.1:{proxy.port}")
            with pytest.raises((UpstreamClosed, UpstreamProtocol, UpstreamTimeout)) as caught:
                await ask(client, origin, Timeouts(connect=0.2 if kind is UpstreamTimeout else PATIENCE))
            assert isinstance(caught.value, kind)
            assert caught.value.code == code
            assert not caught.value.request_sent
            assert "secret" not in repr(caught.value)

        connecting(run, main)


@both_loops
def test_hosts_that_go_past_the_proxy(run: Run) -> None:
    with RawServer([Request(), OK, Hold()]) as server, RawServer([Hold()]) as proxy:

        async def main(client: UpstreamClient) -> None:
            origin, _ = parse_base_url(server.url, proxy=f"http://127.0.0.1:{proxy.port}", no_proxy=["127.0.0.0/8"])
            assert await ask(client, origin) == b"ok"

        connecting(run, main)
    assert proxy.connections == 0


@both_loops
def test_the_environment_is_not_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer([Request(), OK, Hold()]) as server, RawServer([Hold()]) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")

        async def main(client: UpstreamClient) -> None:
            assert await ask(client, parse_base_url(server.url)[0]) == b"ok"

        connecting(run, main)
    assert proxy.connections == 0
