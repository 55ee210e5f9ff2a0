"""A client's request off the wire: headers, body, JSON, each within its bound and each failure an error of its own.

Labelled "hostile client": everything here may be crafted. Bodies are read only as far as the limit, unpacked only as far as the
limit and the memory budget allow, and JSON is measured before anything walks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from athena.errors import ClientError, InvalidRequest, LimitExceeded
from athena.serving.holding import RequestMemory
from athena.serving.weight import Weight, weigh, with_measured_text
from athena.shells.config import Limits
from athena.shells.gateway.client import Client
from athena.wire.fields import decode_json_object

LARGE_BODY = 256 * 1024
_SHORT = 16 * 1024
_FEW_BYTES = 1024 * 1024
"""A body in which no number of values takes long."""
_FEW_MARKS = 4096
"""Brackets and commas up to which it does not matter how many of them stand in strings."""
_STEP = 64 * 1024
_VALUES_PER_KEY = 4
"""Lists may hold values that have no key: how many for each key that is allowed."""
_BACKSLASH = 0x5C
_NO_MARKS = bytes(byte for byte in range(256) if byte not in b",:[{")
_SLOWEST = 512
"""Bytes per second, on the average of one span of time, below which a body is given up."""
_SHORT_SPAN_S = 5.0
_SHORT_SLOWEST = 16 * 1024
"""The same two while memory is short: a body that is announced and does not come keeps others out."""
_LOOK_S = 1.0
"""Seconds after which a body that pauses is looked at again."""
_GROWTH = 256 * 1024
"""Bytes for which a body without a length asks at a time."""
_INFLATED = 1024 * 1024
"""Bytes that a packed body may become before room is asked for the next ones."""

Decoded = TypeVar("Decoded")


_MANY_OBJECTS = 4000
_MANY_REFERENCES = 4
_REFERENCE = b'"$ref"'
_ESCAPED_REFERENCE = re.compile(rb"\\u00(?:24|72|65|66)")
"""A letter of `$ref` spelled as an escape, which only serves to hide it."""


def is_heavy(body: bytes) -> bool:
    """May a request take long to read and to translate, so that it is done in a thread while other streams go on?

    Its size says so, or how many objects it holds, or references in the schemas of its tools, which some upstreams need
    written out.
    """
    if len(body) > LARGE_BODY or body.count(b"{") > _MANY_OBJECTS or body.count(_REFERENCE) > _MANY_REFERENCES:
        return True
    return b"\\u00" in body and _ESCAPED_REFERENCE.search(body) is not None


async def read_request(
    client: Client,
    limits: Limits,
    limit_s: float,
    memory: RequestMemory,
    decode: Callable[[dict[str, Any]], Decoded],
    *,
    on_body: Callable[[bytes], None] = lambda body: None,
) -> tuple[Decoded, Weight, bool]:
    """The whole request, decoded; what it weighs; and whether it is large enough to be worked on in threads.

    Room in memory is asked for before each step. `on_body` is shown the body as it came. Raises what `read_body` raises, and
    what `decode` does.
    """
    body = await read_body(client, limits.body_bytes, limit_s, memory)
    on_body(body)
    large = is_heavy(body)
    measured = partial(measure, body, limits.request_keys)
    weight, values = await asyncio.to_thread(measured) if large else measured()
    memory.weighed(weight)
    work = partial(_decoded, body, limits, decode, weight, values, large)
    del body, measured
    if not large:
        return (*work(), False)
    done = await asyncio.to_thread(work)
    client.take_body()  # it may have left meanwhile
    return (*done, True)


def measure(body: bytes, keys: int) -> tuple[Weight, int]:
    """What the body weighs, and how many values it has at the most. Raises InvalidRequest where they are too many."""
    values = _bound_of_values(body, keys)
    return weigh(len(body), ascii_only=body.isascii(), values=values), values


def _bound_of_values(body: bytes, keys: int) -> int:
    """How many values there can be: exactly, or where it hardly matters with the marks that stand in strings."""
    if len(body) <= _FEW_BYTES:
        marks = body.translate(None, _NO_MARKS)
        found = len(marks) - marks.count(b":")
        if found <= _FEW_MARKS:
            return found
    return _count_values(body, _VALUES_PER_KEY * keys if len(body) > _FEW_BYTES else len(body))


def _decoded(
    body: bytes, limits: Limits, decode: Callable[[dict[str, Any]], Decoded], weight: Weight, values: int, large: bool
) -> tuple[Decoded, Weight]:
    value = shaped(body, limits.request_depth, limits.request_keys)
    if large and not body.isascii():
        weight = with_measured_text(weight, value, len(body), values)
    return decode(value), weight


# -- the body ----------------------------------------------------------------------------------------------------------------


async def read_body(client: Client, limit: int, limit_s: float, memory: RequestMemory) -> bytes:
    """The whole body, unpacked; raises LimitExceeded, InvalidRequest or ClientGone, or ClientError when it comes too slowly.

    Where memory has no room for it, AthenaError is raised before any of it is read.
    """
    announced = client.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    memory.announce(int(announced) if announced.isdigit() else 0)
    body, complete = client.take_body()
    if not complete:
        body = await _rest_of_body(client, body, limit, limit_s, memory)
    if len(body) > limit:
        raise _too_large(limit)
    encoding = client.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return body
    return await _unpacked(body, encoding, limit, memory)


async def _rest_of_body(client: Client, first: bytes, limit: int, limit_s: float, memory: RequestMemory) -> bytes:
    """Within each span of `limit_s` seconds a minimum must come, or the end of the body.

    A span is counted from its beginning: no byte that comes moves its end. Only the whole minimum does, and then the next span
    begins. While memory is short, spans are shorter and more is asked for: who holds a place must mean it.
    """
    pieces, size = [first], len(first)
    loop = asyncio.get_running_loop()
    came, began = 0, loop.time()
    complete = False
    while not complete:
        memory.growing(size + _GROWTH if "content-length" not in client.headers else size)
        span, slowest = (min(limit_s, _SHORT_SPAN_S), _SHORT_SLOWEST) if memory.is_short else (limit_s, _SLOWEST)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(began + span, loop.time() + _LOOK_S)):
                await client.more_body(limit - size)
        piece, complete = client.take_body()
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        came += len(piece)
        if came >= span * slowest:
            came, began = 0, loop.time()
        elif loop.time() >= began + span and not complete:
            raise _too_slow(span, slowest)
    return b"".join(pieces)


async def _unpacked(body: bytes, encoding: str, limit: int, memory: RequestMemory) -> bytes:
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ClientError(
            f"content-encoding {encoding!r} is not supported; send the body plain or as gzip",
            code="unsupported_encoding",
            status=415,
        )
    # However small it is, it may become as large as the limit allows: room is asked for step by step.
    inflater = _Inflater(body, encoding)
    packed = len(body)
    del body
    pieces: list[bytes] = []
    size = 0
    while not inflater.is_done:
        memory.growing(size + _INFLATED, packed)
        piece = await asyncio.to_thread(inflater.step, _INFLATED)
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
    return b"".join(pieces)


class _Inflater:
    """A packed body, unpacked in steps of bounded size."""

    def __init__(self, body: bytes, encoding: str) -> None:
        self._body = memoryview(body)
        self._at = 0
        self._rest = b""
        self._encoding = encoding
        self._decoder = zlib.decompressobj(15 if encoding == "deflate" else 47)

    @property
    def is_done(self) -> bool:
        return self._decoder.eof

    def step(self, most: int) -> bytes:
        """The next bytes, at most that many. Raises InvalidRequest when the body is broken or cut."""
        pieces: list[bytes] = []
        room = most
        while room and not self._decoder.eof:
            packed: bytes | memoryview = self._rest
            if not packed:
                packed = self._body[self._at : self._at + _STEP]
                self._at += len(packed)
            try:
                piece = self._decoder.decompress(packed, room)
            except zlib.error as error:
                raise InvalidRequest(f"the body is not valid {self._encoding}: {error}", code="invalid_body") from None
            if not piece and not packed:
                raise InvalidRequest(f"the {self._encoding} body is cut short", code="invalid_body")
            self._rest = self._decoder.unconsumed_tail
            pieces.append(piece)
            room -= len(piece)
        return b"".join(pieces)


def _too_slow(span: float, slowest: int) -> ClientError:
    message = f"the request body came too slowly: less than {slowest} bytes per second for {span:g} seconds"
    return ClientError(message, kind="timeout", code="body_timeout", status=408)


def _too_large(limit: int) -> LimitExceeded:
    return LimitExceeded(f"the request body is larger than {limit} bytes", code="request_too_large", status=413)


# -- the JSON ----------------------------------------------------------------------------------------------------------------


def shaped(body: bytes, depth: int, keys: int) -> dict[str, Any]:
    """The body as an object, not nested deeper than `depth` and without more than `keys` keys."""
    value = decode_json_object(body)
    # Brackets and colons bound what is inside: a short text is counted sooner than its values are walked.
    if len(body) <= _SHORT:
        marks = body.translate(None, _NO_MARKS)
        if marks.count(b"{") + marks.count(b"[") <= depth and marks.count(b":") <= keys:
            return value
    _check_shape(value, depth, keys)
    return value


def _count_values(body: bytes, most: int) -> int:
    """How many values a body holds at the most; raises InvalidRequest as soon as they are more than `most`.

    Decoding holds the interpreter: millions of tiny values, a second long. They are counted first, in short steps. A value that
    is not the first of its list or object follows a comma, the first an opening bracket; those in strings do not count. Whether
    the body is JSON at all the decoder will say.
    """
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
    return found


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
