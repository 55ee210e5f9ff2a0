"""The request that asks for a WebSocket: what must be in it (RFC 6455, 4.2), and the headers of the answer."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping

from athena.errors import ClientError, InvalidRequest

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES = 16
VERSION = "13"


def accepted(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers that accept a request, by its own (lower-case). Raises ClientError where it is no proper one."""
    if headers.get("sec-websocket-version", "").strip() != VERSION:
        raise ClientError(f"the only version of WebSocket here is {VERSION}", code="websocket_version", status=426)
    tokens = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    key = headers.get("sec-websocket-key", "").strip()
    try:
        is_key = len(base64.b64decode(key, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        is_key = False
    if "upgrade" not in tokens or not is_key:
        raise InvalidRequest("this is not a valid request for a WebSocket", code="websocket_handshake")
    proof = base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest())
    return [(b"upgrade", b"websocket"), (b"connection", b"Upgrade"), (b"sec-websocket-accept", proof)]
