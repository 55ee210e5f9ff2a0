"""A client's request off the wire: headers, body, JSON, each within its bound and each failure an error of its own.

Labelled "hostile client": everything here may be crafted. Bodies are read only as far as the limit, unpacked only as far as the
limit and the memory budget allow, and JSON is measured before anything walks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import zlib
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from athena.errors import ClientError, InvalidRequest, LimitExceeded
from athena.serving.holding import RequestMemory
from athena.serving.weight import (
    Weight,
    has_wide_strings,
    has_wide_text,
    is_narrow,
    weigh,
    with_measured_text,
    with_narrow_text,
)
from athena.shells.config import LimitSettings
from athena.shells.gateway.client import Client
from athena.wire.fields import decode_json_object
from athena.wire.fragments import Fragments
from athena.wire.opening import Opened, open_body
from athena.wire.recall import Recall
from athena.wire.shape import shape_of

LARGE_BODY = 256 * 1024
_SHORT = 16 * 1024
_FEW_BYTES = 1024 * 1024
"""A body in which no number of values takes long."""
_FEW_MARKS = 4096
_BYTES_PER_MARK = 16
"""Brackets and commas up to which it does not matter how many of them stand in strings: that many, or one for so many bytes.
How many values there are is known once they are decoded; until then more room is held than is needed."""
_BYTES_PER_STRING = 256
"""Bytes that are searched in the time that a look at a string takes."""
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
_Result = TypeVar("_Result", covariant=True)
_AROUND = 512
"""Values that may stand beside the parts of a body: its settings. Those of strange bodies are counted when they are decoded."""
_SHORT_DIGITS = 4
"""Digits of the length of a body for which no room is held while it comes in, if it is there already."""
_WORTH_CUTTING = 4 * 1024
"""Bytes below which a body is decoded sooner than it is cut and looked up."""


class Decode(Protocol[_Result]):
    """A body's value as what it means; `recall` knows what its parts were before."""

    def __call__(self, value: dict[str, Any], recall: Recall | None = None, /) -> _Result: ...


_MANY_OBJECTS = 4000
_MANY_REFERENCES = 4
_REFERENCE = b'"$ref"'
_DOLLARS = 512
"""Dollar signs that are looked at one by one."""
_ESCAPED_REFERENCE = re.compile(rb"\\u00(?:24|72|65|66)")
"""A letter of `$ref` spelled as an escape, which only serves to hide it."""


def is_heavy(body: bytes) -> bool:
    """May a request take long to read and to translate, so that it is done in a thread while other streams go on?

    Its size says so, or how many objects it holds, or references in the schemas of its tools, which some upstreams need
    written out.
    """
    if len(body) > LARGE_BODY:
        return True
    if _has_many(b"{", body) or _has_many_references(body):
        return True
    return b"\\u00" in body and _ESCAPED_REFERENCE.search(body) is not None


def _has_many(mark: bytes, body: bytes) -> bool:
    """Counts brackets by what is left without them: that goes from bracket to bracket, where `count` looks at every byte."""
    if len(body) < 2 * _MANY_OBJECTS:
        return False
    return len(body) - len(body.replace(mark, b"", _MANY_OBJECTS + 1)) > _MANY_OBJECTS


def _has_many_references(body: bytes) -> bool:
    """Looks at dollar signs, of which there are few and which are found fast."""
    find, is_reference = body.find, body.startswith
    found, at = 0, -1
    for _ in range(_DOLLARS):
        at = find(b"$", at + 1)
        if at < 0:
            return False
        if is_reference(_REFERENCE, at - 1):
            found += 1
            if found > _MANY_REFERENCES:
                return True
    return body.count(_REFERENCE) > _MANY_REFERENCES


def _marks(body: bytes) -> bytes:
    """Brackets, commas and colons of a text, in strings or not: no more values, objects and keys can be in it."""
    return body.translate(None, _NO_MARKS)


async def read_request(
    client: Client,
    limits: LimitSettings,
    limit_s: float,
    memory: RequestMemory,
    decode: Decode[Decoded],
    *,
    on_body: Callable[[bytes], None] = lambda body: None,
    fragments: Fragments | None = None,
    space: Callable[[], Hashable] = lambda: None,
    empty: Decoded | None = None,
) -> tuple[Decoded, Weight, bool]:
    """The whole request, decoded; what it weighs; and whether it is large enough to be worked on in threads.

    Room in memory is asked for before each step. `on_body` is shown the body as it came. Parts of the body that `fragments`
    remembers for the space that `space` gives are not decoded again. `empty` stands for no body at all, where one may be left
    out. Raises what `read_body` raises, and what `decode` does.
    """
    body, complete = client.take_body() if _is_short(client.headers) else (b"", False)
    if not complete:
        body = await read_body(client, limits.body_bytes, limit_s, memory, body)
    elif len(body) > limits.body_bytes:
        raise _too_large(limits.body_bytes)
    if empty is not None and not body.strip():
        return empty, Weight(0, 0, 0), False
    on_body(body)
    if len(body) < _WORTH_CUTTING and b"$" not in body and b"\\u00" not in body:
        # It is not heavy, and how many values it has at the most is counted at once: so is what it weighs.
        marks = _marks(body)
        colons = marks.count(b":")
        if marks.count(b"{") + marks.count(b"[") <= limits.request_depth and colons <= limits.request_keys:
            weight = weigh(len(body), narrow=body.isascii(), values=len(marks) - colons)
            memory.weighed(weight)
            return decode(decode_json_object(body)), weight, False
    opened: Opened | None = None
    rough: int | None = None
    if fragments is not None and fragments.limit and len(body) >= _WORTH_CUTTING:
        if len(body) > _FEW_BYTES:
            opened, rough = await asyncio.to_thread(_opened, body, fragments, space())
        else:
            opened = open_body(body, fragments, space())
    # Only what is new has to be read: an agent's request of any size is mostly known.
    new = body if opened is None or not opened.known else b"".join(opened.unknown())
    many_known = opened is not None and opened.known_objects > _MANY_OBJECTS
    large = len(body) > _FEW_BYTES or is_heavy(new) or many_known
    # Decoding lets nobody else work, in a thread or not: where it is not long, only what follows is done in one.
    at_once = not large or not (len(body) > _FEW_BYTES or many_known or _has_many(b"{", new) or _has_many(b"[", new))
    narrow = at_once and is_narrow(body)
    if at_once and memory.has_room(_at_worst(body, new, opened, narrow)):
        # Nobody else asks for memory until it is decoded; then it is known how much it takes.
        read = _read(body, limits, opened)
        weight = weigh(len(body), narrow=narrow, values=read.values)
        if not large:
            decoded = decode(read.value, read.recall)
            memory.weighed(weight)
            return decoded, weight, False
        memory.weighed(weight)
        work = partial(_meant, body, decode, weight, narrow, read)
        del read
    else:
        measured = partial(_measured, body, new, limits.request_keys, opened, rough)
        weight, values, narrow = await asyncio.to_thread(measured) if len(body) > _FEW_BYTES else measured()
        memory.weighed(weight)
        work = partial(_decoded, body, limits, decode, weight, values, large, opened, narrow)
        if not large:
            return (*work(), False)
        del measured
    del body, new, opened
    done = await asyncio.to_thread(work)
    client.take_body()  # it may have left meanwhile
    return (*done, True)


def as_it_is(value: dict[str, Any], recall: Recall | None = None, /) -> dict[str, Any]:
    """For bodies that no dialect decodes."""
    return value


def _opened(body: bytes, fragments: Fragments, space: Hashable) -> tuple[Opened | None, int]:
    """The body in parts, and how many values it has at the most. One that may hold more parts than can be counted before they
    are cut is read as a whole."""
    rough = _rough_values(body)
    return open_body(body, fragments, space) if rough <= len(body) // _BYTES_PER_MARK else None, rough


def _at_worst(body: bytes, new: bytes, opened: Opened | None, narrow: bool) -> Weight:
    """What the body can weigh at the most: no value takes less than two bytes."""
    values = (0 if opened is None else opened.known_values + _AROUND) + len(new) // 2 + 1
    return weigh(len(body), narrow=narrow, values=values)


def _measured(body: bytes, new: bytes, keys: int, opened: Opened | None, rough: int | None) -> tuple[Weight, int, bool]:
    """What the body weighs, how many values it has at the most, and whether its text is narrow. Values in the parts that are
    known need not be counted again; `rough` is how many there are at the most, where that is known."""
    values: int | None = None
    if opened is not None:
        values = opened.known_values + _bound_of_values(new, len(new) or 1, rough if new is body else None) + _AROUND
    if values is None or (len(body) > _FEW_BYTES and values > _VALUES_PER_KEY * keys):
        values = _bound_of_values(body, keys, rough)
    narrow = is_narrow(body)
    return weigh(len(body), narrow=narrow, values=values), values, narrow


def measure(body: bytes, keys: int) -> tuple[Weight, int]:
    """What the body weighs, and how many values it has at the most. Raises InvalidRequest where they are too many."""
    return _measured(body, body, keys, None, None)[:2]


def _bound_of_values(body: bytes, keys: int, rough: int | None = None) -> int:
    """How many values there can be: exactly, or where it hardly matters with the marks that stand in strings, which are `rough`
    where they are counted already."""
    most = _VALUES_PER_KEY * keys if len(body) > _FEW_BYTES else len(body)
    found = _rough_values(body) if rough is None else rough
    if found <= _FEW_MARKS or found <= min(most, len(body) // _BYTES_PER_MARK):
        return found
    return _count_values(body, most)


def _rough_values(body: bytes) -> int:
    """Brackets and commas, in strings or not, counted in short steps."""
    found = 0
    for at in range(0, len(body), _STEP):
        marks = _marks(body[at : at + _STEP] if len(body) > _STEP else body)
        found += len(marks) - marks.count(b":")
    return found


class _Read(NamedTuple):
    """A body's value, what is remembered of its parts, and how many values it holds at the most."""

    value: dict[str, Any]
    recall: Recall | None
    values: int


def _read(body: bytes, limits: LimitSettings, opened: Opened | None) -> _Read:
    """The body as its value. Raises InvalidRequest where it is none, or is nested too deep or has too many keys."""
    known = opened.read() if opened is not None else None
    if known is not None and known[2].keys <= limits.request_keys and known[2].depth <= limits.request_depth:
        return _Read(known[0], known[1], known[2].values)
    value, values = _shaped(body, limits.request_depth, limits.request_keys)
    return _Read(value, None, values)


def _decoded(
    body: bytes,
    limits: LimitSettings,
    decode: Decode[Decoded],
    weight: Weight,
    values: int,
    large: bool,
    opened: Opened | None,
    narrow: bool,
) -> tuple[Decoded, Weight]:
    """What the body means, and what it weighs: `weight`, which is made of so many `values`, or less."""
    read = _read(body, limits, opened)
    if read.values < values:
        weight = weigh(len(body), narrow=narrow, values=read.values)
    else:
        read = read._replace(values=values)
    return _meant(body, decode, weight, narrow, read) if large else (decode(read.value, read.recall), weight)


def _meant(body: bytes, decode: Decode[Decoded], weight: Weight, narrow: bool, read: _Read) -> tuple[Decoded, Weight]:
    """What a large body means, and what it weighs when its text is looked at."""
    if not narrow:
        # Few strings are looked at sooner than all bytes.
        few = read.values <= len(body) // _BYTES_PER_STRING
        if (not few or has_wide_strings(read.value)) and has_wide_text(body):
            weight = with_measured_text(weight, read.value, len(body), read.values)
        else:
            weight = with_narrow_text(weight, len(body), read.values)
    return decode(read.value, read.recall), weight


# -- the body ----------------------------------------------------------------------------------------------------------------


def _is_short(headers: Mapping[str, str]) -> bool:
    """Is a plain body of few bytes announced? If all of it is there, room is asked for once, for what it really weighs."""
    announced = headers.get("content-length", "")
    return 0 < len(announced) <= _SHORT_DIGITS and announced.isdigit() and "content-encoding" not in headers


async def read_body(client: Client, limit: int, limit_s: float, memory: RequestMemory, begun: bytes = b"") -> bytes:
    """The whole body, unpacked; raises LimitExceeded, InvalidRequest or ClientGone, or ClientError when it comes too slowly.

    `begun` was taken of it before. Where memory has no room for it, AthenaError is raised before any more of it is read.
    """
    announced = client.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    memory.announce(int(announced) if announced.isdigit() else 0)
    body, complete = client.take_body()
    if begun:
        body = begun + body
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
    return _shaped(body, depth, keys)[0]


def _shaped(body: bytes, depth: int, keys: int) -> tuple[dict[str, Any], int]:
    """The same, and how many values it holds at the most."""
    value = decode_json_object(body)
    # Brackets and colons bound what is inside: a short text is counted sooner than its values are walked.
    if len(body) <= _SHORT:
        marks = _marks(body)
        colons = marks.count(b":")
        if marks.count(b"{") + marks.count(b"[") <= depth and colons <= keys:
            return value, len(marks) - colons
    shape = shape_of(value, depth)
    if shape is None:
        raise InvalidRequest(f"the body is nested deeper than {depth} levels", code="too_deep")
    if shape.keys > keys:
        raise InvalidRequest(f"the body has more than {keys} keys", code="too_many_keys")
    return value, shape.values


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
