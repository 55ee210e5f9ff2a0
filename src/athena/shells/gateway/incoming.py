"""A client's request off the wire: headers, body, JSON, each within its bound and each failure an error of its own.

Labelled "hostile client": everything here may be crafted. Bodies are read only as far as the limit, unpacked only as far as the
limit, and JSON is measured before anything walks it.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import Any

from athena.errors import ClientError, InvalidRequest, LimitExceeded
from athena.shells.gateway.client import Client
from athena.wire.fields import decode_json_object

LARGE_BODY = 256 * 1024
_SHORT = 16 * 1024
_FEW_BYTES = 1024 * 1024
"""A body in which no number of values takes long."""
_STEP = 64 * 1024
_VALUES_PER_KEY = 4
"""Lists may hold values that have no key: how many for each key that is allowed."""
_BACKSLASH = 0x5C
_SLOWEST = 512
"""Bytes per second below which a body is given up, once the pause it may make has passed."""


_MANY_OBJECTS = 4000
_MANY_REFERENCES = 4
_REFERENCE = b'"$ref"'
_ESCAPED_REFERENCE = re.compile(rb"\\u00(?:24|72|65|66)")
"""A letter of `$ref` in a spelling that nobody uses who does not want to hide it."""


def is_heavy(body: bytes) -> bool:
    """May a request take long to read and to translate, so that it is done in a thread while other streams go on?

    Its size says so, or how many objects it holds, or references in the schemas of its tools, which some upstreams need
    written out.
    """
    if len(body) > LARGE_BODY or body.count(b"{") > _MANY_OBJECTS or body.count(_REFERENCE) > _MANY_REFERENCES:
        return True
    return b"\\u00" in body and _ESCAPED_REFERENCE.search(body) is not None


async def read_body(client: Client, limit: int, pause_s: float) -> bytes:
    """The whole body, unpacked; raises LimitExceeded, InvalidRequest or ClientGone, or ClientError when it comes too slowly."""
    announced = client.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    body, complete = client.take_body()
    if not complete:
        body = await _rest_of_body(client, body, limit, pause_s)
    if len(body) > limit:
        raise _too_large(limit)
    encoding = client.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return body
    # However small it is, it may become as large as the limit allows.
    return await asyncio.to_thread(_unpacked, body, encoding, limit)


async def _rest_of_body(client: Client, first: bytes, limit: int, pause_s: float) -> bytes:
    pieces, size = [first], len(first)
    loop = asyncio.get_running_loop()
    began = loop.time()
    complete = False
    while not complete:
        late = False
        try:
            async with asyncio.timeout(pause_s):
                await client.more_body(limit - size)
        except TimeoutError:
            late = True
        piece, complete = client.take_body()
        if late and not piece and not complete:
            raise _too_slow()
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        if (elapsed := loop.time() - began) > pause_s and size < elapsed * _SLOWEST:
            # A byte now and then is no pause, but it holds the place of somebody who means it.
            raise _too_slow()
    return b"".join(pieces)


def _unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ClientError(
            f"content-encoding {encoding!r} is not supported; send the body plain or as gzip",
            code="unsupported_encoding",
            status=415,
        )
    decoder = zlib.decompressobj(47 if encoding != "deflate" else 15)
    try:
        plain = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise InvalidRequest(f"the body is not valid {encoding}: {error}", code="invalid_body") from error
    if len(plain) > limit:
        raise _too_large(limit)
    if not decoder.eof:
        raise InvalidRequest(f"the {encoding} body is cut short", code="invalid_body")
    return plain


def _too_slow() -> ClientError:
    return ClientError("the request body came too slowly", kind="timeout", code="body_timeout", status=408)


def _too_large(limit: int) -> LimitExceeded:
    return LimitExceeded(f"the request body is larger than {limit} bytes", code="request_too_large", status=413)


def read_json(body: bytes, depth: int, keys: int) -> dict[str, Any]:
    """The body as an object, not nested deeper than `depth` and without more than `keys` keys."""
    _check_values(body, _VALUES_PER_KEY * keys)
    value = decode_json_object(body)
    # Brackets and colons bound what is inside: a short text is counted sooner than its values are walked.
    if len(body) > _SHORT or body.count(b"{") + body.count(b"[") > depth or body.count(b":") > keys:
        _check_shape(value, depth, keys)
    return value


def _check_values(body: bytes, most: int) -> None:
    """Decoding holds the interpreter: millions of tiny values, a second long. They are counted first, in short steps.

    A value that is not the first of its list or object follows a comma, the first an opening bracket; those in strings do not
    count. Whether the body is JSON at all the decoder will say.
    """
    if len(body) <= _FEW_BYTES:
        return
    found, in_string, at = 0, False, 0
    while at < len(body):
        end = min(at + _STEP, len(body))
        if in_string and body.find(b'"', at, end) < 0 and body[end - 1] != _BACKSLASH:
            at = end  # inside of an image
            continue
        while body[end - 1] == _BACKSLASH and end < len(body):
            end += 1  # an escape is not cut
        part = body[at:end]
        at = end
        if b"\\" in part:
            part = part.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = part.split(b'"')
        outside = b"".join(pieces[in_string::2])
        found += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if found > most:
            raise InvalidRequest(f"the body has more than {most} values", code="too_many_values")
        in_string ^= len(pieces) % 2 == 0


def _check_shape(value: Any, depth: int, keys: int) -> None:
    """Level by level, so that depth costs no stack."""
    level: list[Any] = [value]
    left = keys
    for _ in range(depth):
        below: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                left -= len(node)
                below.extend(child for child in node.values() if isinstance(child, dict | list))
            else:
                below.extend(child for child in node if isinstance(child, dict | list))
        if left < 0:
            raise InvalidRequest(f"the body has more than {keys} keys", code="too_many_keys")
        if not below:
            return
        level = below
    raise InvalidRequest(f"the body is nested deeper than {depth} levels", code="too_deep")
