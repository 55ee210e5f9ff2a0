"""The CONNECT handshake with an HTTP proxy (RFC 9110 9.3.6).

Every connection through a proxy is a tunnel, plain `http` upstreams included, so that the proxy never sees a key that TLS
would hide and there is one way of speaking only. Environment variables are not read here: a proxy is used when configured.
"""

from __future__ import annotations

import asyncio
import re
import socket

from athena.errors import UpstreamClosed, UpstreamProtocol
from athena.serving.network import Proxy

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r\n")
_MAX_ANSWER_BYTES = 16 * 1024


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
        # The far side speaks second in TLS and in HTTP: these bytes cannot be an answer.
        raise UpstreamProtocol("bytes came through the proxy before anything was asked", code="proxy_protocol")
