"""Answers that the gateway itself gives."""

from __future__ import annotations

from typing import Any

import msgspec

from athena.shells.gateway.client import Client, Headers
from athena.shells.gateway.received import ReceivedRequest


def reply(client: Client, status: int, body: bytes, kind: str, headers: Headers) -> None:
    """Answer with this body of this media type."""
    client.start(status, [*headers, (b"content-type", kind.encode())], len(body))
    client.finish(body)


def reply_json(received: ReceivedRequest, body: Any, status: int = 200, *more: tuple[bytes, bytes]) -> bytes:
    """Answer with this value, and `more` headers. Returns the answer's body."""
    encoded = msgspec.json.encode(body)
    reply(received.client, status, encoded, "application/json", [*received.answer_headers, *more])
    return encoded
