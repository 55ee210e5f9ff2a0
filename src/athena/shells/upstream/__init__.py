"""Athena's own HTTP/1.1 client for upstreams, on asyncio (or uvloop) and httptools.

    client = UpstreamClient(ClientSettings())
    origin, prefix = parse_base_url("https://api.example.com/v1")
    response = await client.send("POST", origin, prefix + "/chat/completions", headers, body)
    try:
        while data := await response.read():
            ...
    finally:
        response.close()

Why not a ready-made client: those handed a stray second response to the next request (docs/reference/faults.md#http-itself),
and cost a multiple per request (`benchmarks/upstream_client.py`). Here a connection that brings one unsolicited byte dies: in
the read that ended the response, while idle, or still unread in the kernel when the connection is taken again. What no HTTP/1.1
client can tell apart is a stray response that arrives only after the next request was written.

Reading order: `settings`, `client`, `pool`, `dial` (with `proxy`, `tls`), `connection`, `response`, `framing`, `encoding`.
"""

from athena.serving.network import ClientSettings, Origin, PoolLimits, Timeouts, TlsSettings, parse_base_url
from athena.shells.upstream.client import UpstreamClient
from athena.shells.upstream.pool import PoolStats
from athena.shells.upstream.response import UpstreamResponse

__all__ = [
    "ClientSettings",
    "Origin",
    "PoolLimits",
    "PoolStats",
    "Timeouts",
    "TlsSettings",
    "UpstreamClient",
    "UpstreamResponse",
    "parse_base_url",
]
