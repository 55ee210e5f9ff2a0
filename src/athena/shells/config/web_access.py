"""Which host names and which web pages may talk to the gateway: headers in, verdict out, no IO.

Any web page can make its visitor's browser send requests to this machine. A gateway that asks for no key must tell them from
the requests of the user's own programs, and three headers do that, because a page cannot choose them:

- `Host`. A page can point its own name at 127.0.0.1 (DNS rebinding). The browser then takes the gateway for the page's own
  server and lets the page read every answer, but the request still carries the page's name in `Host`.
- `Origin` and `Sec-Fetch-Site`. Browsers put the page's origin into every request that could change something, and say of every
  request whether it comes from another site.
- `Content-Type`. A browser asks first (a preflight) before it lets a page send JSON elsewhere, but not before plain text or a
  form. Where an `Origin` is present only JSON is taken, so no request skips the question.

A gateway with keys is safe from pages that have none: neither hosts nor origins are checked then, unless `allow_hosts` names
some. Pages of `allow_origins` get the headers of CORS, everybody else gets none and so can read nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from athena.errors import ConfigError, ErrorKind
from athena.shells.config.addresses import is_loopback
from athena.shells.config.model import Config

ANY = "*"
_NAME = r"[A-Za-z0-9._-]+"
_AUTHORITY = re.compile(rf"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>{_NAME}))(?::(?P<port>[0-9]{{0,5}}))?\Z")
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#@\s]*)\Z")
_LONGEST = 300
"""Characters of a `Host` or `Origin` that are looked at: a name has at most 253."""
_SHOWN = 100
_DEFAULT_PORTS = {"http": 80, "https": 443}
_OWN_SITE = ("same-origin", "none")
"""`Sec-Fetch-Site` of a request that no other page caused; `none` is the user's own doing."""
_WITHOUT_BODY = frozenset(("GET", "HEAD", "OPTIONS", "DELETE"))
_JSON = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json\s*(?:;|\Z)", re.IGNORECASE)

EXPOSED = (
    "request-id",
    "x-request-id",
    "x-athena-served-by",
    "x-athena-warnings",
    "x-athena-token-count",
    "x-should-retry",
    "retry-after",
    "retry-after-ms",
)
"""Headers of an answer that a page may read beside those that every page may."""
SENT_HEADERS = frozenset(
    (
        "accept",
        "accept-language",
        "api-key",
        "authorization",
        "baggage",
        "cache-control",
        "content-language",
        "content-type",
        "http-referer",
        "idempotency-key",
        "last-event-id",
        "pragma",
        "sentry-trace",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-api-key",
        "x-app",
        "x-client-request-id",
        "x-request-id",
        "x-requested-with",
        "x-session-id",
        "x-title",
    )
)
SENT_PREFIXES = ("anthropic-", "openai-", "x-athena-", "x-goog-", "x-openrouter-", "x-stainless-")
"""Headers that SDKs send from browsers. None of them changes where a request goes or whose it is, but for the caller's key."""
_KEPT_S = 7200
"""Seconds for which a browser may remember the answer to a preflight; none remembers it for longer."""

HeaderPairs = tuple[tuple[bytes, bytes], ...]


class Admitted(msgspec.Struct, frozen=True):
    """The request passes the rules for browsers."""

    origin: str = ""
    """What `Access-Control-Allow-Origin` of its answer says; empty: the answer has none."""


class Preflight(msgspec.Struct, frozen=True):
    """A browser asks whether a page may send a request, and it may: the answer's headers."""

    headers: HeaderPairs


class WebRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """The request breaks the rules for browsers and gets this answer."""

    status: int
    kind: ErrorKind
    code: str
    message: str


WebVerdict = Admitted | Preflight | WebRefusal
ADMITTED = Admitted()


class Authority(NamedTuple):
    """A host name or address, lower-case, and the port if one is given."""

    host: str
    port: int | None
    is_loopback: bool
    """Can only this machine reach it? Found out once for each text, as every request brings one."""


@lru_cache(maxsize=256)
def parse_authority(text: str) -> Authority | None:
    """The value of a `Host` header; None for what is none."""
    found = _AUTHORITY.match(text)
    if found is None:
        return None
    host = found["name"]
    if host is None:
        try:
            host = ipaddress.IPv6Address(found["v6"]).compressed
        except ValueError:
            return None
    port = int(found["port"]) if found["port"] else None
    if port is not None and port > 65535:
        return None
    host = host.lower().removesuffix(".")
    return Authority(host, port, is_loopback(host))


def _bracketed(text: str) -> str:
    """An address of IPv6 as it stands in a URL."""
    return f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text


def _authorities(texts: Iterable[str]) -> frozenset[Authority]:
    return frozenset(found for text in texts if (found := parse_authority(text)) is not None)


# -- what the configuration may say -----------------------------------------------------------------------------------------


def clean_host(text: str) -> str:
    """An entry of `allow_hosts` in its one spelling. Raises ConfigError."""
    text = text.strip().lower()
    if text == ANY:
        return text
    star = text.startswith("*.")
    found = parse_authority(_bracketed(text[2:] if star else text))
    if found is None:
        raise ConfigError("must be a host name such as gateway.example, name:port, *.example or *")
    host = f"[{found.host}]" if ":" in found.host else found.host
    return ("*." if star else "") + host + ("" if found.port is None else f":{found.port}")


def clean_origin(text: str) -> str:
    """An entry of `allow_origins` as browsers spell it. Raises ConfigError."""
    text = text.strip().lower()
    if text == ANY:
        return text
    if text == "null":
        raise ConfigError("null is the origin of every page from a file and of every sandboxed frame, whoever made it")
    found = _ORIGIN.match(text if text.endswith("://") else text.removesuffix("/"))
    if found is None or ANY in text:
        raise ConfigError(
            "must be one origin: scheme, host and port only, such as https://app.example or http://localhost:3000"
        )
    scheme, authority = found["scheme"], found["authority"]
    if scheme not in _DEFAULT_PORTS:
        return f"{scheme}://{authority}"
    parsed = parse_authority(authority)
    if parsed is None:
        raise ConfigError("must name a host")
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    port = "" if parsed.port in (None, _DEFAULT_PORTS[scheme]) else f":{parsed.port}"
    return f"{scheme}://{host}{port}"


# -- the verdict ------------------------------------------------------------------------------------------------------------


class WebAccess:
    """The rules of one configuration. `bound` are the addresses that our own server listens on; None: the server is somebody
    else's, who decides about host names."""

    def __init__(
        self, *, allow_hosts: Iterable[str] = (), allow_origins: Iterable[str] = (), keyed: bool, bound: Sequence[str] | None
    ) -> None:
        hosts = [clean_host(host) for host in allow_hosts]
        named = [host for host in hosts if not host.startswith(ANY)] + [_bracketed(address) for address in bound or ()]
        self._keyed = keyed
        self._checks_hosts = ANY not in hosts and (bool(hosts) or (bound is not None and not keyed))
        self._hosts = _authorities(named)
        self._domains = _authorities(host[2:] for host in hosts if host.startswith("*."))
        self._origins = frozenset(clean_origin(origin) for origin in allow_origins)
        self._any_origin = ANY in self._origins
        if self._any_origin and not keyed:
            raise ConfigError("allow_origins: * would let every web page use the gateway while no key is asked for")

    @classmethod
    def of(cls, config: Config, bound: Sequence[str] | None) -> WebAccess:
        """The rules that a configuration sets."""
        return cls(allow_hosts=config.allow_hosts, allow_origins=config.allow_origins, keyed=bool(config.keys), bound=bound)

    def judge(self, method: str, headers: Mapping[str, str], methods: Sequence[str] = ()) -> WebVerdict:
        """What becomes of a request. `headers` are lower-case; `methods` are those of its path."""
        if self._checks_hosts and (host := headers.get("host")) is not None and not self._is_own_host(host):
            return WebRefusal(
                status=421,
                kind="invalid",
                code="host_not_allowed",
                message=f"this gateway is not known as {_shown(host)}; if clients are to reach it under that name, add it to "
                "allow_hosts in the gateway's configuration",
            )
        origin = headers.get("origin")
        if origin is not None:
            return self._judge_page(method, origin, headers, methods)
        site = headers.get("sec-fetch-site")
        if site is None or site in _OWN_SITE or self._keyed:
            return ADMITTED
        return WebRefusal(
            status=403,
            kind="permission",
            code="origin_not_allowed",
            message="a web page of another site asked for this; if it is to, add its origin to allow_origins in the gateway's "
            "configuration",
        )

    def answer_headers(self, origin: str) -> HeaderPairs:
        """The headers of CORS on an answer to a request that was admitted with `origin`."""
        if origin:
            return _cors_headers(origin)
        return _VARY if self._origins and not self._any_origin else ()

    # -- hosts -------------------------------------------------------------------------------------------------------------

    def _is_own_host(self, text: str) -> bool:
        if len(text) > _LONGEST:
            return False
        found = parse_authority(text)
        if found is None:
            return False
        if found.is_loopback or found in self._hosts or found._replace(port=None) in self._hosts:
            return True
        return any(found.host.endswith("." + domain.host) and domain.port in (None, found.port) for domain in self._domains)

    # -- pages -------------------------------------------------------------------------------------------------------------

    def _judge_page(self, method: str, origin: str, headers: Mapping[str, str], methods: Sequence[str]) -> WebVerdict:
        allowed = ANY if self._any_origin else origin if origin in self._origins else ""
        asked = headers.get("access-control-request-method") if method == "OPTIONS" else None
        if not allowed and (asked is not None or not (self._keyed or _is_same_origin(origin, headers))):
            return WebRefusal(
                status=403,
                kind="permission",
                code="origin_not_allowed",
                message=f"a page of {_shown(origin)} may not use this gateway; if it is to, add its origin to allow_origins in "
                "the gateway's configuration",
            )
        if asked is not None:
            return Preflight(_preflight_headers(allowed, headers, methods))
        if method not in _WITHOUT_BODY and _JSON.match(headers.get("content-type", "").strip()) is None:
            return WebRefusal(
                status=415,
                kind="invalid",
                code="content_type",
                message="a request from a web page must have the content type application/json",
            )
        return Admitted(allowed) if allowed else ADMITTED


def _is_same_origin(origin: str, headers: Mapping[str, str]) -> bool:
    """Does the page come from this gateway itself? The scheme is not compared: what ends TLS before us changes it."""
    if len(origin) > _LONGEST or headers.get("sec-fetch-site", "none") not in _OWN_SITE:
        return False
    found = _ORIGIN.match(origin)
    host = parse_authority(headers.get("host", "")[:_LONGEST])
    if found is None or host is None or (default := _DEFAULT_PORTS.get(found["scheme"])) is None:
        return False
    page = parse_authority(found["authority"])
    return page is not None and page.host == host.host and (page.port or default) == (host.port or default)


_VARY: HeaderPairs = ((b"vary", b"Origin"),)


@lru_cache(maxsize=64)
def _cors_headers(origin: str) -> HeaderPairs:
    vary = () if origin == ANY else _VARY
    exposed = ", ".join(EXPOSED).encode()
    return ((b"access-control-allow-origin", origin.encode("latin-1")), (b"access-control-expose-headers", exposed), *vary)


def _preflight_headers(origin: str, headers: Mapping[str, str], methods: Sequence[str]) -> HeaderPairs:
    answer = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", ", ".join(methods or ("GET", "HEAD", "POST")).encode("ascii")),
        (b"access-control-max-age", b"%d" % _KEPT_S),
    ]
    asked = [name.strip().lower() for name in headers.get("access-control-request-headers", "").split(",")]
    sent = [name for name in dict.fromkeys(asked) if name in SENT_HEADERS or _is_prefixed(name)]
    if sent:
        answer.append((b"access-control-allow-headers", ", ".join(sent).encode("ascii")))
    if headers.get("access-control-request-private-network") == "true":
        answer.append((b"access-control-allow-private-network", b"true"))
    varies = b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network"
    return (*answer, (b"vary", varies))


def _is_prefixed(name: str) -> bool:
    return name.startswith(SENT_PREFIXES) and re.fullmatch(r"[a-z0-9-]+", name) is not None


def _shown(text: str) -> str:
    """A text of a stranger, to be repeated in a message."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
