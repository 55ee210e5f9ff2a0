"""HTTP proxies: which host goes through one, and the CONNECT handshake (RFC 9110 9.3.6).

Every connection through a proxy is a tunnel, plain `http` upstreams included, so that the proxy never sees a key that TLS
would hide and there is one way of speaking only. Environment variables are not read here: a proxy is used when configured.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from athena.errors import ConfigError, UpstreamClosed, UpstreamProtocol

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r\n")
_MAX_ANSWER_BYTES = 16 * 1024


class Proxy(msgspec.Struct, frozen=True):
    """An HTTP proxy. Its credentials are left out of every representation."""

    host: str
    port: int
    authorization: str | None = None

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """`http://[user:password@]host[:port]`."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            # The message of urlsplit may repeat the credentials.
            raise ConfigError("the proxy's URL is malformed", code="invalid_proxy") from None
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigError("the proxy's URL must be http://host:port", code="invalid_proxy")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
        return cls(parts.hostname, 80 if port is None else port, authorization)

    def __repr__(self) -> str:
        return f"Proxy({self.host!r}, {self.port}{', authorization=***' if self.authorization else ''})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("host", self.host), ("port", self.port)]


def bypasses_proxy(host: str, port: int, no_proxy: Sequence[str]) -> bool:
    """Does the list name this host? Entries: `*`, a domain (its subdomains too) or an address, each with `:port`; a network."""
    return any(_names(entry.strip().lower(), host, port) for entry in no_proxy)


def _names(entry: str, host: str, port: int) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    address = _address(host)
    if address is not None and "/" in entry:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, separator, wanted_port = entry.rpartition(":")
    if separator and wanted_port.isdigit() and (":" not in name or name.startswith("[")):
        if int(wanted_port) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    if address is not None:
        return _address(entry) == address
    domain = entry.removeprefix("*").removeprefix(".")
    return host == domain or host.endswith("." + domain)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


async def open_tunnel(loop: asyncio.AbstractEventLoop, sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask the proxy behind this socket to connect to `host:port`; afterwards the socket leads there."""
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    await loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
    answer = bytearray()
    while (end := answer.find(b"\r\n\r\n")) < 0:
        if len(answer) > _MAX_ANSWER_BYTES:
            raise UpstreamProtocol("the proxy's answer to CONNECT has no end", code="proxy_protocol")
        data = await loop.sock_recv(sock, 4096)
        if not data:
            raise UpstreamClosed("the proxy closed the connection during CONNECT", code="proxy_closed")
        answer += data
    line = _STATUS_LINE.match(answer)
    if line is None:
        raise UpstreamProtocol("the proxy's answer to CONNECT is not HTTP", code="proxy_protocol")
    status = int(line[1])
    if not 200 <= status < 300:
        raise UpstreamClosed(f"the proxy refused to connect: status {status}", code="proxy_refused", status=502)
    if len(answer) > end + 4:
        # The far side speaks second in TLS and in HTTP: whoever sent these bytes, they are no answer to us.
        raise UpstreamProtocol("bytes came through the proxy before anything was asked", code="proxy_protocol")
