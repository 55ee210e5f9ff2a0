"""Where a connection to an upstream leads, what may be set about it, and the URL of a request: values only, no IO."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from athena.errors import ConfigError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_VERSION = re.compile(r"v[0-9]+[a-z0-9]*\Z")
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]{0,252}[a-z0-9_.])?")


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


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long each step of one request may take, in seconds."""

    pool: float = 10.0
    """Waiting for a free connection when all allowed ones are busy."""
    connect: float = 5.0
    """Name resolution, TCP, proxy and TLS together."""
    first_byte: float = 600.0
    """From the request going out to the first byte of the body: upstreams send their headers early and think then."""
    idle: float = 120.0
    """Between two pieces of the body. Time in which the consumer itself held reading back does not count."""
    total: float = 3600.0
    """From the call of `send` to the last byte of the body."""


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the server proves who it is. `ca_file` names the authorities to trust instead of the system's."""

    ca_file: str | None = None
    verify: bool = True
    """False accepts any certificate of anybody; never a default."""
    handshake_timeout: float = 5.0


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections one upstream may have, and how long unused ones are kept."""

    name: str = ""
    """Whose limits these are: two upstreams at one address do not share their connections."""
    max_connections: int = 4096
    max_idle: int = 128
    idle_lifetime: float = 20.0
    """Seconds an unused connection is kept; a shorter `Keep-Alive: timeout=` of the server wins."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the client. Those on connections hold per origin, where a request brings none of its own."""

    max_connections: int = 4096
    max_idle: int = 128
    idle_lifetime: float = 20.0
    """As in `PoolLimits`."""
    max_open: int = 0
    """Connections open at once over all origins: the process has only so many descriptors. For one more, the idle connection
    that was not used for longest is closed. 0: no limit."""
    stagger: float = 0.25
    """Seconds before the next address is tried while the one before still hangs (RFC 8305)."""
    resend_when_fresh: bool = True
    """Resend also when a connection opened for this very request closes without a byte, not only a pooled one."""
    max_head_bytes: int = 64 * 1024
    max_header_fields: int = 100
    buffer_bytes: int = 256 * 1024
    """Unread body bytes at which the socket is no longer read; it is again at half of that."""
    receive_bytes: int = 256 * 1024
    """What the kernel may take of an answer that we do not read. Far more than a model writes in a round trip; left alone, the
    kernel would grow it to many megabytes for each stream whose client does not read."""
    turn_s: float = 0.01
    """How long one turn of the event loop goes on handing out what came; then other connections have theirs."""
    max_decoded_bytes: int = 1024 * 1024 * 1024
    max_decoded_ratio: int = 100


DEFAULT_TIMEOUTS = Timeouts()
DEFAULT_TLS = TlsSettings()


class Origin(msgspec.Struct, frozen=True, cache_hash=True):
    """Where connections lead and how they get there. Equal origins share connections."""

    scheme: str
    host: str
    port: int
    tls: TlsSettings = DEFAULT_TLS
    proxy: Proxy | None = None

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


def parse_base_url(
    url: str, *, tls: TlsSettings = DEFAULT_TLS, proxy: str | None = None, no_proxy: Sequence[str] = ()
) -> tuple[Origin, str]:
    """An upstream's base URL as its origin and the path prefix of all its requests (no slash at the end)."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as cause:
        raise ConfigError(f"base_url is not a URL: {cause}", code="invalid_base_url") from cause
    if parts.scheme not in _DEFAULT_PORTS:
        raise ConfigError(f"base_url must begin with http:// or https://, not {parts.scheme!r}", code="invalid_base_url")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("base_url holds credentials; put them in api_key", code="invalid_base_url")
    if parts.query or parts.fragment:
        raise ConfigError("base_url holds a query or a fragment", code="invalid_base_url")
    if re.fullmatch(r"[!-~]*", parts.path) is None:
        raise ConfigError("the path of base_url holds a character that needs percent-encoding", code="invalid_base_url")
    host = _host_name(parts.hostname or "")
    if port is None:
        port = _DEFAULT_PORTS[parts.scheme]
    through = Proxy.parse(proxy) if proxy and not bypasses_proxy(host, port, no_proxy) else None
    return Origin(parts.scheme, host, port, tls, through), parts.path.rstrip("/")


def _host_name(host: str) -> str:
    """The host in the form that goes on the wire."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as cause:
        raise ConfigError(f"base_url has no valid host: {host!r}", code="invalid_base_url") from cause
    if _HOST.fullmatch(name.lower()) is None:
        raise ConfigError(f"base_url has no valid host: {host!r}", code="invalid_base_url")
    return name.lower()


def upstream_url(base_url: str, path: str, own_path: str | None = None) -> str:
    """The URL to post to. `path` is the dialect's, with or without its version; a version in the base wins over it.

    `own_path` is the upstream's configured path, taken as it is. A query of the base is part of every URL.
    """
    base, _, query = base_url.partition("?")
    url = _joined(base, path, own_path, versioned=_names_version(base, query))
    if not query:
        return url
    return f"{url}&{query}" if "?" in url else f"{url}?{query}"


def _names_version(base: str, query: str) -> bool:
    """Does the base say which version of the API is meant, in its path or by a date in its query?"""
    dated = any(name == "api-version" for name, _ in parse_qsl(query))
    return dated or any(_VERSION.match(segment) for segment in urlsplit(base).path.split("/"))


def _joined(base: str, path: str, own_path: str | None, *, versioned: bool) -> str:
    if own_path is not None:
        return f"{base}/{own_path.lstrip('/')}"
    head, _, rest = path.lstrip("/").partition("/")
    version = "v1"
    if _VERSION.match(head):
        version = head
    else:
        rest = path.lstrip("/")
    return f"{base}/{rest}" if versioned else f"{base}/{version}/{rest}"
