"""Opening a connection: names to addresses, a race between them (RFC 8305), the proxy's tunnel, TLS."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from athena.errors import UpstreamClosed, UpstreamError, UpstreamProtocol, UpstreamTimeout, more_about
from athena.serving.network import Origin
from athena.shells.upstream.connection import Connection
from athena.shells.upstream.proxy import open_tunnel
from athena.shells.upstream.tls import TlsContexts

_PLAIN_HTTP = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"))
"""What OpenSSL says of a server that answers a handshake in plain HTTP."""
# A peer that vanished silently is noticed after about two minutes, also where no limit of ours is running.
_KEEP_ALIVE_OPTIONS = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class Address(msgspec.Struct, frozen=True):
    """Where a socket can connect to."""

    family: int
    target: tuple[Any, ...]


Resolver = Callable[[str, int], Awaitable[Sequence[Address]]]


async def resolve(host: str, port: int) -> Sequence[Address]:
    """The addresses of a name, by the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [Address(family, target) for family, _, _, _, target in found]


class Dialer:
    """Opens connections; holds the TLS contexts they share."""

    def __init__(self, stagger: float, receive_bytes: int, resolver: Resolver = resolve) -> None:
        self._stagger = stagger
        self._receive_bytes = receive_bytes
        self._resolver = resolver
        self._contexts = TlsContexts()

    async def open(self, connection: Connection, origin: Origin, seconds: float) -> None:
        """Open `connection` to `origin` within `seconds`, or raise an UpstreamError."""
        context = self._contexts.get(origin.tls) if origin.scheme == "https" else None
        stage = "connect"
        overall: asyncio.Timeout | None = None
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(seconds) as overall:
                via = (origin.proxy.host, origin.proxy.port) if origin.proxy else (origin.host, origin.port)
                sock = await self._connect(*via)
                if origin.proxy is not None:
                    stage = "proxy"
                    await open_tunnel(asyncio.get_running_loop(), sock, origin.proxy, origin.host, origin.port)
                stage = "tls"
                # From here on the loop owns the socket, also on failure: to close it as well would close its number, which
                # may be another connection's by then.
                handed_over, sock = sock, None
                loop = asyncio.get_running_loop()
                if context is None:
                    await loop.create_connection(lambda: connection, sock=handed_over)
                else:
                    async with asyncio.timeout(origin.tls.handshake_timeout):
                        await loop.create_connection(
                            lambda: connection, sock=handed_over, ssl=context, server_hostname=origin.host
                        )
        except (OSError, UpstreamError) as cause:
            if overall is not None and overall.expired():
                stage = "connect"
            raise _dial_failure(cause, stage, origin) from cause
        finally:
            if sock is not None:
                sock.close()

    # -- the race ----------------------------------------------------------------------------------------------------------

    async def _connect(self, host: str, port: int) -> socket.socket:
        """A connected socket to the first address that answers."""
        address = _literal(host, port)
        addresses = [address] if address else interleave(await self._resolver(host, port))
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "the name has no address")
        if len(addresses) == 1:
            return await _connect_to(addresses[0], self._receive_bytes)
        return await self._race(addresses)

    async def _race(self, addresses: Sequence[Address]) -> socket.socket:
        first = await self._first_connected(addresses)
        if isinstance(first, socket.socket):
            return first
        try:
            raise first
        finally:
            del first  # what is raised knows this frame: the frame must not know it

    async def _first_connected(self, addresses: Sequence[Address]) -> socket.socket | BaseException:
        """The socket of the first address that answers, or why the first one did not."""
        attempts: list[asyncio.Task[socket.socket]] = []
        running: set[asyncio.Task[socket.socket]] = set()
        failures: list[BaseException] = []
        waiting = list(reversed(addresses))
        winner: asyncio.Task[socket.socket] | None = None
        try:
            while waiting or running:
                if waiting:
                    attempt = asyncio.ensure_future(_connect_to(waiting.pop(), self._receive_bytes))
                    attempts.append(attempt)
                    running.add(attempt)
                # The next address starts when its turn comes or when one before it has failed.
                delay = self._stagger if waiting else None
                done, running = await asyncio.wait(running, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
                for attempt in done:
                    failure = attempt.exception()
                    if failure is None:
                        winner = attempt
                        return attempt.result()
                    failures.append(failure)
            return failures[0]
        finally:
            for attempt in attempts:
                if attempt is not winner:
                    attempt.cancel()
                    attempt.add_done_callback(_close_loser)


def interleave(addresses: Sequence[Address]) -> list[Address]:
    """The system's order, families taking turns, so that one broken family costs one step only."""
    if not addresses:
        return []
    first = [address for address in addresses if address.family == addresses[0].family]
    second = [address for address in addresses if address.family != addresses[0].family]
    turns: list[Address] = []
    for position in range(max(len(first), len(second))):
        turns += first[position : position + 1] + second[position : position + 1]
    return turns


def _literal(host: str, port: int) -> Address | None:
    """The address itself, if the host is one: no resolver thread for it."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    return Address(socket.AF_INET6, (host, port, 0, 0)) if version == 6 else Address(socket.AF_INET, (host, port))


async def _connect_to(address: Address, receive_bytes: int) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Before connecting: the handshake settles how large the window can become.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        for name, value in _KEEP_ALIVE_OPTIONS:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        await asyncio.get_running_loop().sock_connect(sock, address.target)
    except BaseException:
        sock.close()
        raise
    return sock


def _close_loser(attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _dial_failure(cause: OSError | UpstreamError, stage: str, origin: Origin) -> UpstreamError:
    """What went wrong, in our words; nothing of the request has gone out."""
    place = f"the proxy for {origin}" if origin.proxy and stage != "tls" else str(origin)
    failure: UpstreamError
    match cause:
        case OSError() if cause.errno in (errno.EMFILE, errno.ENFILE):
            failure = UpstreamError(
                "the gateway has no file descriptor left for a connection",
                kind="overloaded",
                code="descriptor_limit",
                retry_after=2,
            )
        case UpstreamError():
            failure = type(cause)(f"{origin}: {cause.message}", code=cause.code)
        case TimeoutError() if stage == "tls":
            failure = UpstreamTimeout(f"{place} took too long (TLS handshake)", code="tls_timeout")
        case TimeoutError():
            failure = UpstreamTimeout(f"{place} took too long (connect limit)", code="connect_timeout")
        case socket.gaierror():
            failure = UpstreamClosed(
                f"{place} cannot be found: {cause.strerror}; is the host name in base_url right? "
                f"{more_about('upstream_dns_failed')}",
                code="upstream_dns_failed",
            )
        case ssl.SSLCertVerificationError():
            failure = UpstreamProtocol(
                f"{place} has a certificate that is not trusted: {cause.verify_message}; ca_file names a private authority. "
                f"{more_about('upstream_certificate')}",
                code="upstream_certificate",
            )
        case ssl.SSLError():
            plain = cause.reason in _PLAIN_HTTP
            cause_text = (
                "answers in plain HTTP: is it http://?" if plain else f"does not speak TLS with us: {cause.reason or cause}."
            )
            failure = UpstreamProtocol(f"{place} {cause_text} {more_about('upstream_tls')}", code="upstream_tls")
        case _ if stage == "tls" and cause.errno in (None, errno.ECONNRESET):
            failure = UpstreamProtocol(f"{place} closed the connection during the TLS handshake", code="upstream_tls")
        case _:
            # asyncio's own words are about calls and tuples; the system's are about what happened.
            words = os.strerror(cause.errno) if cause.errno else cause
            failure = UpstreamClosed(
                f"{place} cannot be reached: {words}; is the server running, and is base_url right? "
                f"{more_about('upstream_unreachable')}",
                code="upstream_unreachable",
            )
    return failure
