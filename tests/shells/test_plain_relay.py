"""The relay of plain text: what passes leaves as it would the usual way, and all else is left alone.

`tests/exchange/test_short_way.py` holds it against the long way over every recorded stream. Here is what that has none of:
the chunks of HTTP around the records, bytes that are no JSON, the tables of markers.
"""

from __future__ import annotations

import json
import re
import sys

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from athena.dialects.plain_reads import PlainReads, PlainShape, PlainSplice, SplicedRecord, decoded_texts
from athena.formats.machine.recognizer import Table, recognizer
from athena.shells.gateway.plain_relay import MOST_BYTES, PlainRelay
from athena.shells.upstream.framing import ResponseFraming
from support.examples import examples
from support.raw_server import chunk

HEAD, TAIL = b'data: {"t":"', b'"}\n\n'
BEFORE, BEHIND = b'event: d\ndata: {"text":', b"}\n\n"


class Client:
    """Notes what it is written; `blocked` after so many writes."""

    def __init__(self, blocked_after: int = sys.maxsize) -> None:
        self.written: list[bytes] = []
        self.noted: list[tuple[bytes, bytes, float]] = []
        self.told = 0
        self._blocked_after = blocked_after

    @property
    def blocked(self) -> bool:
        return len(self.written) >= self._blocked_after

    def on_blocked(self) -> None:
        self.told += 1

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def passed(self, data: bytes, output: bytes, now: float) -> None:
        self.noted.append((data, output, now))


def relay_for(client: Client, *, stays: bool = False, table: Table | None = None) -> PlainRelay:
    splice = PlainSplice(
        HEAD, TAIL, HEAD if stays else BEFORE, TAIL if stays else BEHIND, stays, table.any if table is not None else None
    )
    relay = PlainRelay(splice, lambda: 2.5, client.write, client, client.on_blocked)
    relay.tell(client.passed)
    return relay


def records(*texts: bytes) -> bytes:
    return b"".join(HEAD + text + TAIL for text in texts)


def learnt() -> PlainReads:
    reads = PlainReads()
    shape = PlainShape(re.compile(rb'"t":(?=")'), lambda name, payload: str(json.loads(payload)["t"]))
    assert reads.learn(shape, records(b"x"))
    return reads


RAW = st.lists(
    st.one_of(
        st.sampled_from((
            b"a", b"word ", b"\\", b'"', b"\\n", b"\\u00e9", b"\\ud83d", b"\\ude00", b"\\uD83D\\uDE00", b"\\u0000", b"\\u001F",
            b"\\/", b"\\b\\f\\r\\t", b'\\"', b"\\\\", b"\xc3", b"\xc3\xa9", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\x00",
            b"\n", b"\x1f", b"\x7f", b"\\u00", b"\\x", b"<", b"<tool_call>", b"fu", b"\\u003ctool_call>", b"`", b"",
            b"x" * 4000,
        )),
        st.binary(max_size=3),
    ),
    max_size=4,
).map(b"".join)  # fmt: skip
PLAIN = st.lists(st.sampled_from((b"a", b"word ", b"\\n", b"\xc3\xa9", b"\\ud83d\\ude00", b'\\"')), min_size=1, max_size=4).map(
    b"".join
)
CHUNKS = st.lists(st.lists(st.one_of(PLAIN, RAW), min_size=1, max_size=3), min_size=1, max_size=3)


@given(
    chunks=CHUNKS,
    stays=st.booleans(),
    watched=st.booleans(),
    cut=st.integers(0, 40),
    junk=st.sampled_from((b"", b"0", b"\r\n")),
)
@example(chunks=[[b"a"], [b"b", b"c"]], stays=False, watched=True, cut=0, junk=b"")
@example(chunks=[[b"\\ud83d\\ude00"]], stays=True, watched=True, cut=0, junk=b"")
@example(chunks=[[b"\\ude00"]], stays=True, watched=True, cut=0, junk=b"")
@examples(300)
def test_what_passes_is_what_the_other_readers_make_of_it(
    chunks: list[list[bytes]], stays: bool, watched: bool, cut: int, junk: bytes
) -> None:
    """The framing of HTTP, the reader of plain records, the search for markers and msgspec say the same of it."""
    data = b"".join(chunk(records(*texts)) for texts in chunks) + junk
    data = data[: len(data) - cut] if cut < 30 else data
    client, table = Client(), recognizer("auto").text if watched else None
    relay = relay_for(client, stays=stays, table=table)
    if not data or not relay.take(data):
        assert (client.written, client.noted) == ([], [])
        assert relay.settle()[:2] == ([], [])
        # One record that every reader knows and in which nothing may begin is taken.
        if len(chunks) == len(chunks[0]) == 1 and not junk and (not cut or cut >= 30):
            raw = chunks[0][0]
            plain = learnt().text_of(records(raw))
            assert not plain or re.search("[<>`~[\\]f✿\n]", plain), raw
        return
    framing = ResponseFraming(max_head_bytes=1000, max_fields=10)
    framing.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
    framing.pieces.clear()
    framing.feed(data)
    assert framing.between_chunks
    came = b"".join(framing.pieces)
    texts, end = learnt().texts_of(came, 0)
    assert end == len(came)
    assert all(texts)
    assert table is None or not any(table.any(text) for text in texts)
    frames = [BEFORE + msgspec.json.encode(text) + BEHIND for text in texts]
    output = came if stays else b"".join(frames)
    assert client.written == [chunk(output)]
    assert client.noted == [(came, output, 2.5)]
    (string,), times, _, last = relay.settle()
    assert (decoded_texts([string]), times, last) == (texts, [2.5], came if stays else b"")
    spliced = SplicedRecord(HEAD, TAIL, HEAD if stays else BEFORE, TAIL if stays else BEHIND, stays)
    assert (spliced.came(string), spliced.left(string)) == (came, output)


@given(
    pieces=st.lists(
        st.one_of(
            st.sampled_from(sorted({*recognizer("auto").text.meanings, "get_weather", "get_time("})),
            st.text(max_size=3),
        ),
        max_size=3,
    ),
    end=st.integers(0, 8),
    tools=st.booleans(),
)
@examples(300)
def test_no_marker_and_no_beginning_of_one_passes(pieces: list[str], end: int, tools: bool) -> None:
    """With the markers of a format that depends on the declared tools, too."""
    found = recognizer("pythonic", others=True).for_tools(("get_weather", "get_time")) if tools else recognizer("auto")
    text = "".join(pieces).replace("\ud800", "")
    text = text[: len(text) - end] if end < 5 else text
    text = text.encode("utf-8", "ignore").decode()
    for table in (found.text, found.reasoning):
        client = Client()
        taken = relay_for(client, table=table).take(chunk(b'data: {"t":%b}\n\n' % msgspec.json.encode(text)))
        assert not (taken and table.any(text) is not None), text


def test_only_whole_chunks_in_the_usual_writing_pass() -> None:
    one = records(b"a")
    kept = (
        b"", b"1", chunk(one)[:-1], chunk(one) + b"\n", b"0\r\n\r\n", chunk(one) + b"0\r\n\r\n", chunk(b"x") + chunk(one),
        b"%x;a=b\r\n%b\r\n" % (len(one), one), b"%x \r\n%b\r\n" % (len(one), one), b"0x%x\r\n%b\r\n" % (len(one), one),
        b"%x\r\n%b\r\n" % (len(one) + 1, one), b"%x\r\n%b\n\n" % (len(one), one), b"%x\n%b\r\n" % (len(one), one),
        chunk(one[:-1]), chunk(one[:-4] + b"\r\n\r\n"), chunk(records(b"")), chunk(records(b"x" * 9000)), chunk(one[1:]),
        b"-%x\r\n%b\r\n" % (len(one), one), b"ffffffff\r\n" + one, chunk(b" " + one), chunk(one + b" "),
    )  # fmt: skip
    for data in kept:
        client = Client()
        assert not relay_for(client).take(data), data
        assert not client.written


def test_texts_are_settled_before_there_are_too_many() -> None:
    client = Client()
    relay = relay_for(client)
    read = records(b"a" * 100)
    taken = sum(relay.take(chunk(read)) for _ in range(MOST_BYTES // 100))
    assert taken == MOST_BYTES // len(read) + 1
    strings, times, own_time, last = relay.settle()
    assert (strings, times, last) == ([b'"%b"' % (b"a" * 100)] * taken, [2.5] * taken, b"")
    assert own_time > 0
    assert relay.take(chunk(records(b"b")))
    assert relay.settle()[:2] == ([b'"b"'], [2.5])


def test_a_blocked_client_is_told_behind_the_write_that_blocked_it() -> None:
    client = Client(blocked_after=2)
    relay = relay_for(client)
    assert relay.take(chunk(records(b"a")))
    assert not client.told
    assert relay.take(chunk(records(b"b")))
    assert (client.told, len(client.written)) == (1, 2)
    assert relay.settle()[:2] == ([b'"a"', b'"b"'], [2.5, 2.5])


def test_faults_go_to_the_caller() -> None:
    class Fault(Exception):
        pass

    def failing(*_: object) -> None:
        raise Fault

    splice = PlainSplice(HEAD, TAIL, BEFORE, BEHIND, False, None)
    read = chunk(records(b"a"))
    for broken in ("clock", "write", "passed", "blocked"):
        client = Client(blocked_after=0)
        relay = PlainRelay(
            splice,
            failing if broken == "clock" else lambda: 1.0,  # type: ignore[arg-type]
            failing if broken == "write" else client.write,
            client,
            failing if broken == "blocked" else client.on_blocked,
        )
        relay.tell(failing if broken == "passed" else None)
        with pytest.raises(Fault):
            relay.take(read)
        relay.settle()
