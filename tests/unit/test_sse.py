"""Server-sent events: every line end, every split, every bend that upstreams are known for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.errors import LimitExceeded, UsageError
from athena.wire.sse import SseDecoder, WireRecord, beginning_of, encode_comment, encode_event


def decode(*pieces: bytes, limit: int = 1 << 20) -> list[WireRecord]:
    decoder = SseDecoder(limit)
    records = [record for piece in pieces for record in decoder.feed(piece)]
    return records + decoder.close()


@pytest.mark.parametrize(
    ("stream", "records"),
    [
        (b"data: one\n\n", [("", b"one")]),
        (b"data:one\n\n", [("", b"one")]),
        (b"data:  one \n\n", [("", b" one ")]),
        (b"event: ping\ndata: {}\n\n", [("ping", b"{}")]),
        (b"event:ping\ndata:{}\n\n", [("ping", b"{}")]),
        (b"data: {}\nevent: late\n\n", [("late", b"{}")]),
        (b"data: one\r\n\r\n", [("", b"one")]),
        (b"data: one\r\r", [("", b"one")]),
        (b"data: one\r\n\ndata: two\n\r\ndata: three\r\r\n", [("", b"one"), ("", b"two"), ("", b"three")]),
        (b"\xef\xbb\xbfdata: one\n\n", [("", b"one")]),
        (b"data: \xef\xbb\xbfone\n\n", [("", b"\xef\xbb\xbfone")]),
        (b": OPENROUTER PROCESSING\n\ndata: one\n\n: again\n\n", [("", b"one")]),
        (b": inside\ndata: one\n: inside too\n\n", [("", b"one")]),
        (b"data: one\ndata: two\n\n", [("", b"one\ntwo")]),
        (b"data\n\n", [("", b"")]),
        (b"data:\n\n", [("", b"")]),
        (b"data: one\ndata\ndata: three\n\n", [("", b"one\n\nthree")]),
        (b"id: 7\nretry: 10\ndata: one\nother: x\n\n", [("", b"one")]),
        (b"event: lonely\n\ndata: one\n\n", [("", b"one")]),
        (b"event: first\ndata: a\n\ndata: b\n\n", [("first", b"a"), ("", b"b")]),
        (b"\n\n\n\ndata: one\n\n\n\n\ndata: two\n\n\n", [("", b"one"), ("", b"two")]),
        (b"data: last without a blank line", [("", b"last without a blank line")]),
        (b"data: last with one line end\n", [("", b"last with one line end")]),
        (b"data: one\n\nevent: x\ndata: two", [("", b"one"), ("x", b"two")]),
        ("data: a\u2028b\u2029c\x0bd\x0ce\x85f\n\n".encode(), [("", "a\u2028b\u2029c\x0bd\x0ce\x85f".encode())]),
        (b"data: \xff\xfe\n\n", [("", b"\xff\xfe")]),
        (b"event: \xff\ndata: x\n\n", [("\ufffd", b"x")]),
        (b"database: no\n\n", []),
        (b"", []),
        (b"\xef\xbb", []),
    ],
)
def test_streams(stream: bytes, records: list[WireRecord]) -> None:
    assert decode(stream) == records
    assert decode(*(bytes([byte]) for byte in stream)) == records, "one byte at a time"


_LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
_LINES = st.sampled_from(
    [
        b"data: x",
        b"data:y",
        b"data",
        b"event: e",
        b": comment",
        b"id: 1",
        b"data: \xc3\xa9",
        b"",
        b"",
        b"\xef\xbb\xbf",
        b"data: [DONE]",
    ]
)


@given(st.lists(st.tuples(_LINES, _LINE_ENDS), max_size=25), st.booleans(), st.lists(st.integers(0, 200), max_size=12))
def test_any_split_gives_the_same_records(lines: list[tuple[bytes, bytes]], cut_last_end: bool, cuts: list[int]) -> None:
    stream = b"".join(line + end for line, end in lines)
    if cut_last_end and lines:
        stream = stream[: -len(lines[-1][1])]
    whole = decode(stream)
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    assert decode(*pieces) == whole
    assert whole == _reference(stream)


def _reference(stream: bytes) -> list[WireRecord]:
    """The grammar written down naively: one line at a time over the whole stream."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    records: list[WireRecord] = []
    event, payload = "", list[bytes]()
    for line in [*text.split(b"\n"), b""]:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            payload.append(value)
        elif name == b"event":
            event = value.strip().decode()
        elif not line:
            if payload:
                records.append((event, b"\n".join(payload)))
            event, payload = "", []
    return records


@given(st.lists(st.tuples(st.sampled_from(["", "ping", "message_start"]), st.text(max_size=20)), max_size=10))
def test_what_is_encoded_comes_back(events: list[tuple[str, str]]) -> None:
    payloads = [(name, text.replace("\r", "").replace("\n", "").encode()) for name, text in events]
    stream = b"".join(encode_event(payload, name) + encode_comment("hold") for name, payload in payloads)
    assert decode(stream) == payloads


def test_records_come_out_as_soon_as_they_are_complete() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: one\n") == []
    assert decoder.feed(b"\ndata: tw") == [("", b"one")]
    assert decoder.held == len(b"data: tw")
    assert decoder.feed(b"o\r\n\r") == [("", b"two")]
    assert decoder.held == 0
    assert decoder.feed(b"\ndata: three\n\n") == [("", b"three")]


def test_character_cut_between_reads_is_whole_again() -> None:
    stream = "data: héé 日本\n\n".encode()
    assert decode(stream[:8], stream[8:13], stream[13:]) == [("", "héé 日本".encode())]


def test_close_is_idempotent_and_final() -> None:
    decoder = SseDecoder()
    decoder.feed(b"data: one")
    assert decoder.close() == [("", b"one")]
    assert decoder.close() == []
    with pytest.raises(UsageError):
        decoder.feed(b"data: two\n\n")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_one_event_over_the_limit_is_refused_however_it_is_cut(size: int) -> None:
    stream = b"data: " + b"x" * 100 + b"\n\n"
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    with pytest.raises(LimitExceeded) as caught:
        decode(*pieces, limit=50)
    assert caught.value.code == "event_too_large"
    assert decode(*pieces, limit=110) == [("", b"x" * 100)]


def test_many_small_events_in_one_read_are_no_large_event() -> None:
    assert len(decode(b"data: x\n\n" * 1000, limit=50)) == 1000


def test_events_well_over_a_megabyte_pass() -> None:
    payload = b"x" * 3_000_000
    stream = encode_event(payload)
    assert decode(*(stream[start : start + 65536] for start in range(0, len(stream), 65536)), limit=4_000_000) == [
        ("", payload)
    ]


class _CountingBytearray(bytearray):
    """Counts how many bytes a search may look at."""

    looked_at = 0

    def rfind(self, sub: object, start: object = 0, end: object = None, /) -> int:
        assert isinstance(sub, bytes)
        assert isinstance(start, int)
        self.looked_at += len(self) - start
        return super().rfind(sub, start)


def test_work_is_linear_in_the_bytes() -> None:
    decoder = SseDecoder()
    decoder.feed(b"data: ")
    counting = _CountingBytearray(decoder._pending)
    decoder._pending = counting
    for _ in range(5000):
        decoder.feed(b"xy")
    assert decoder.feed(b"\n\n") == [("", b"xy" * 5000)]
    assert counting.looked_at <= 3 * 5001 + 10


@pytest.mark.parametrize("blank", [b"", b"\n\n", b" \r\n" * 100])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"", "nothing"),
        (b'{"a":1}', "object"),
        (b"[{", "array"),
        (b"data: {}", "events"),
        (b"event: x", "events"),
        (b": comment", "events"),
        (b"id: 1", "events"),
        (b"retry: 5", "events"),
        (b"<html>", "markup"),
        (b"\xff", "other"),
    ],
)
def test_what_a_body_begins_with(start: bytes, kind: str, mark: bytes, blank: bytes) -> None:
    assert beginning_of(mark + blank + start) == beginning_of(bytearray(mark + blank + start)) == kind
