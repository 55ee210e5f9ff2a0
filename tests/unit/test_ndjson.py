"""Newline-delimited JSON: any split, any line end, bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.errors import LimitExceeded, UsageError
from athena.wire.ndjson import NdjsonDecoder, encode_line


def decode(*pieces: bytes, limit: int = 1 << 20) -> list[bytes]:
    decoder = NdjsonDecoder(limit)
    lines = [line for piece in pieces for line in decoder.feed(piece)]
    return lines + decoder.close()


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\r\n{"b":2}\r\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        (b'\n\n {"a":1} \n\n', [b'{"a":1}']),
        ('{"a":"é\u2028"}\n'.encode(), ['{"a":"é\u2028"}'.encode()]),
        (b"", []),
        (b"\n", []),
    ],
)
def test_streams(stream: bytes, lines: list[bytes]) -> None:
    assert decode(stream) == lines
    assert decode(*(bytes([byte]) for byte in stream)) == lines


@given(
    st.lists(st.sampled_from([b'{"a":1}', b"", b"\xc3\xa9", b" x "]), max_size=12),
    st.sampled_from([b"\n", b"\r\n"]),
    st.lists(st.integers(0, 80), max_size=8),
)
def test_any_split_gives_the_same_lines(lines: list[bytes], end: bytes, cuts: list[int]) -> None:
    stream = end.join(lines)
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[start:stop] for start, stop in zip([0, *places], [*places, len(stream)], strict=True)]
    assert decode(*pieces) == decode(stream) == [line.strip() for line in lines if line.strip()]


def test_lines_come_out_as_soon_as_they_are_complete() -> None:
    decoder = NdjsonDecoder()
    assert decoder.feed(b'{"a"') == []
    assert decoder.feed(b':1}\n{"b') == [b'{"a":1}']
    assert decoder.close() == [b'{"b']
    assert decoder.close() == []
    with pytest.raises(UsageError):
        decoder.feed(b"x")


@pytest.mark.parametrize("size", [1, 9, 1000])
def test_one_line_over_the_limit_is_refused_however_it_is_cut(size: int) -> None:
    stream = b"x" * 100 + b"\n"
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    with pytest.raises(LimitExceeded) as caught:
        decode(*pieces, limit=50)
    assert caught.value.code == "event_too_large"
    assert decode(*pieces, limit=100) == [b"x" * 100]


def test_encoded_line_comes_back() -> None:
    assert decode(encode_line(b"{}") + encode_line(b"[]")) == [b"{}", b"[]"]
