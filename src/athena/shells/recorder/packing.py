"""How recordings are packed in their database: in groups, in few pieces, and the forms of earlier versions.

It is part of the database's form: what is packed otherwise must still be read.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Collection, Sequence
from typing import TypeAlias

import msgspec

from athena.recording import file
from athena.recording.grouped import Heads, told_streams
from athena.recording.lines import Recording
from athena.recording.parted import OrderedStreams, Parted, Streams, opened
from athena.serving.sessions import Belonging

GroupHeads: TypeAlias = Heads | list[Recording | None]
"""The heads of a group: as they are kept, or as earlier versions kept them."""
_LEVEL = 1
_RAW = -15
"""The window of what is packed without a header and a checksum."""
_SMALL = 8 * 1024
_LARGE = 16 * 1024
"""Bytes up to which a small window is enough, and from which on the dictionary is of no use."""
_DICTIONARY = (
    b'{"line":"recording","id":"req_","athena":"","at":17,"clock":1,"program":"claude-cli/2.1","session":"","agent":""}\n'
    b'{"line":"request","body":{},"path":"/v1/messages","dialect":"anthropic_messages","headers":{"user-agent":"","accept":"*/*"'
    b',"content-type":"application/json","anthropic-version":"2023-06-01","content-length":"'
    b'{"line":"attempt","t":0.0,"target":0,"path":"/v1/chat/completions","headers":{"content-type":"application/json","accept":'
    b'"text/event-stream"},"body":{"text":""},"created":17,"input_tokens":1}\n{"line":"head","t":0.1,"status":200,"headers":{'
    b'{"line":"client_head","t":0.1,"status":200,"headers":{"content-type":"text/event-stream; charset=utf-8","cache-control":'
    b'"no-cache","x-accel-buffering":"no","request-id":"req_","x-request-id":"req_"}}\n'
    b'{"line":"read","t":0.1,"body":{"text":"data: {\\"id\\":\\"\\",\\"object\\":\\"chat.completion.chunk\\",\\"created\\":17,'
    b'\\"model\\":\\"\\",\\"choices\\":[{\\"index\\":0,\\"delta\\":{\\"content\\":\\"\\"},\\"finish_reason\\":null}]}\\n\\n"}}\n'
    b'{"line":"write","t":0.1,"body":{"text":"event: content_block_delta\\ndata: {\\"type\\":\\"content_block_delta\\",'
    b'\\"index\\":0,\\"delta\\":{\\"type\\":\\"text_delta\\",\\"text\\":\\"\\"}}\\n\\n"}}\n{"line":"end","t":0.1}\n'
    b'{"line":"outcome","record":{"request_id":"req_","dialect":"anthropic_messages","model":"","upstream":"","upstream_dialect":'
    b'"openai_chat","upstream_model":"","stream":true,"tools":1,"calls":0,"attempts":1,"status":200,"outcome":"ok",'
    b'"input_tokens":1,"output_tokens":1,"chunks":1,"first_byte_ms":1.0,"duration_ms":1.0,"own_us_per_chunk":1.0},"details":{'
    b'{"role":"user","content":[{"type":"text","text":""}]},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_","name"'
    b':"","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_","content":""}]}'
    b'{"role":"assistant","content":null,"tool_calls":[{"id":"call_","type":"function","function":{"name":"","arguments":"{'
    b'{"id":"","at":17,"state":"done","verdict":"ok","program":"","session":"","agent":"","parent":"","key":"","dialect":"","path"'
)
"""What most recordings say, so that small blobs pack well."""
_read_recordings = msgspec.json.Decoder(list[Recording | None]).decode
_read_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode
_JSON = b"["
_read_heads = msgspec.msgpack.Decoder(Heads).decode


def heads_of(packed: bytes) -> GroupHeads:
    """The heads of a group."""
    plain = unpack(packed)
    return _read_recordings(plain) if plain.startswith(_JSON) else _read_heads(plain)


def opened_at(heads: GroupHeads, place: int, streams: Streams) -> tuple[Recording, Streams]:
    """The exchange at this place as a recording without its parts, and its streams."""
    if isinstance(heads, list):
        bare = heads[place]
        assert bare is not None
        return bare, streams
    kept = heads.heads[place]
    assert kept is not None
    return opened(kept.head, Belonging(*kept.whose), streams, heads.fields)


def without_heads(packed_heads: bytes, places: Collection[int]) -> bytes:
    """The packed heads of a group without those at these places; the others stay at theirs."""
    plain = unpack(packed_heads)
    if plain.startswith(_JSON):
        left = msgspec.json.encode([None if place in places else head for place, head in enumerate(_read_raw(plain))])
    else:
        told = _read_heads(plain)
        told.heads = [None if place in places else head for place, head in enumerate(told.heads)]
        left = msgspec.msgpack.encode(told)
    return pack(left)


def pack(data: bytes) -> bytes:
    """For texts that are short and much like all others."""
    small = len(data) < _SMALL
    packer = zlib.compressobj(_LEVEL, wbits=13 if small else 15, memLevel=6 if small else 8, zdict=_DICTIONARY)
    return packer.compress(data) + packer.flush()


def unpack(data: bytes) -> bytes:
    """What was packed so."""
    return zlib.decompressobj(zdict=_DICTIONARY).decompress(data)


def pack_streams(group: Sequence[Streams | None]) -> bytes:
    """The streams of a group. Moments are numbers without a pattern, and texts without what stood around them are words: both
    take long to pack and become little shorter."""
    return pack_group(*told_streams(group), group)


def pack_group(begin: int, plain: bytes, group: Sequence[Streams | None]) -> bytes:
    # A smaller table of places than usual: to move it on with the window takes longer than it saves. And no checksum: the
    # database is as sound as its disk.
    large = len(plain) > _LARGE
    packer = zlib.compressobj(_LEVEL, wbits=_RAW, memLevel=6) if large else zlib.compressobj(_LEVEL, zdict=_DICTIONARY)
    packed = packer.compress(plain) + packer.flush()
    times = [_as_bytes(each.times) if each is not None else b"" for each in group]
    texts = [each.texts if each is not None else b"" for each in group]
    return msgspec.msgpack.encode(_PackedStreams(begin, packed, times, texts, large))


class _PackedStreams(msgspec.Struct, array_like=True):
    """The streams of a group as they are kept."""

    begin: int
    """Where in what is packed the bytes of the streams begin, and what is told of them ends."""
    packed: bytes
    times: Sequence[bytes | list[float]]
    """As `_as_bytes` has them, or as earlier versions kept them."""
    texts: list[bytes] = []
    """Missing where they stand among the bytes, as earlier versions kept them."""
    is_raw: bool = False
    """Is it packed without a header and a checksum?"""


def _as_bytes(times: Sequence[float]) -> bytes:
    """The moments as numbers of eight bytes: to tell them one by one takes longer, and more room."""
    numbers = times if isinstance(times, array) else array("d", times)
    if sys.byteorder == "big":
        numbers = array("d", numbers)
        numbers.byteswap()
    return numbers.tobytes()


def _as_times(kept: bytes | list[float]) -> Sequence[float]:
    numbers = array("d", kept)
    if sys.byteorder == "big" and isinstance(kept, bytes):
        numbers.byteswap()
    return numbers


_read_group = msgspec.msgpack.Decoder(list[tuple[Streams, int] | None]).decode
_read_packed = msgspec.msgpack.Decoder(_PackedStreams).decode


def unpack_streams(data: bytes) -> list[Streams | None]:
    """The streams of a group."""
    kept = _read_packed(data)
    plain = zlib.decompress(kept.packed, _RAW) if kept.is_raw else unpack(kept.packed)
    at = kept.begin
    found: list[Streams | None] = []
    for place, told in enumerate(_read_group(plain[:at])):
        if told is None:
            found.append(None)
            continue
        streams, size = told
        times, texts = _as_times(kept.times[place]), kept.texts[place] if kept.texts else b""
        found.append(msgspec.structs.replace(streams, data=plain[at : at + size], times=times, texts=texts))
        at += size
    return found


_read_streams = msgspec.msgpack.Decoder(Streams).decode
_read_ordered = msgspec.msgpack.Decoder(OrderedStreams).decode


def older(packed: bytes, packed_streams: bytes | None) -> tuple[Recording, Streams]:
    """An exchange as earlier versions kept it, without a group."""
    (bare,) = file.decode(unpack(packed))
    if packed_streams is None:
        # Made before streams were kept apart: reads and writes stand among the lines.
        parted = Parted.of(bare)
        return opened(parted.head, parted.about.whose, parted.streams)
    rest, times, *form = msgspec.msgpack.decode(packed_streams)
    if form:  # since there are steps
        return bare, msgspec.structs.replace(_read_streams(unpack(rest)), times=times)
    return bare, msgspec.structs.replace(_read_ordered(unpack(rest)), times=times).steps()
