"""The bytes of a request's head.

Hostile client: header values may stem from outside, so anything that could end a line early is refused, never cleaned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import itemgetter

from athena.errors import InvalidRequest, UsageError

# The client writes these itself: a second copy would make two readers disagree about where a message ends.
_OWN_NAMES = frozenset(
    {
        b"accept-encoding",
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"/[!-~]*")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_METHODS = {name: name.encode() for name in ("GET", "POST", "PUT", "PATCH", "DELETE")}
_MAX_KNOWN_NAMES = 1024
_name_of = itemgetter(0)
_known_names: set[bytes] = set()
"""Names that passed the checks before; bounded, since they may come from clients."""


def render_head(method: str, target: str, authority: str, headers: Sequence[tuple[bytes, bytes]], body_length: int) -> bytes:
    """Request line and headers up to and including the blank line."""
    verb = _METHODS.get(method)
    if verb is None:
        raise UsageError(f"method {method!r} is not supported")
    if _TARGET.fullmatch(target) is None:
        raise InvalidRequest("the upstream's path holds a character that needs percent-encoding", code="invalid_path")
    lines = [verb + f" {target} HTTP/1.1\r\nhost: {authority}\r\naccept-encoding: identity".encode("ascii")]
    if not _known_names.issuperset(map(_name_of, headers)):
        for name, _ in headers:
            _check_name(name)
    lines += map(b": ".join, headers)
    if body_length or method != "GET":
        lines.append(b"content-length: %d" % body_length)
    lines.append(b"\r\n")
    head = b"\r\n".join(lines)
    # One look at the whole finds any line end that is not ours; only then is the culprit sought.
    if len(_CONTROL.findall(head)) != 2 * len(lines) + 4:
        _refuse_value(headers)
    return head


def _check_name(name: bytes) -> None:
    if _TOKEN.fullmatch(name) is None:
        raise InvalidRequest("a header name holds a character that is not allowed", code="invalid_header")
    if name.lower() in _OWN_NAMES:
        raise UsageError(f"header {name.decode('ascii')} is written by the client itself")
    if len(_known_names) < _MAX_KNOWN_NAMES:
        _known_names.add(name)


def _refuse_value(headers: Sequence[tuple[bytes, bytes]]) -> None:
    for name, value in headers:
        if _CONTROL.search(value) is not None:
            # The value may be a key: it is not repeated.
            raise InvalidRequest(
                f"the value of header {name.decode('ascii')} holds a control character",
                code="invalid_header",
                path=name.decode("ascii"),
            )
    raise UsageError("the headers changed while they were written")
