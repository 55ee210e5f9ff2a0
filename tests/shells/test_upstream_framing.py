"""Where a response ends: every legal shape, every split of it, and everything that must not pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.errors import UpstreamProtocol
from athena.shells.upstream.framing import ResponseFraming
from support.raw_server import answer, chunk, chunked_head

OK = "HTTP/1.1 200 OK\r\n"
CHUNKED = chunked_head() + chunk(b"hello ") + chunk(b"world") + chunk(b"")

LEGAL = {
    "length": (answer(b"hello world"), 200, b"hello world", True),
    "empty": (answer(b""), 200, b"", True),
    "chunked": (CHUNKED, 200, b"hello world", True),
    "chunk extensions": (chunked_head() + b'5;a=b;c="d"\r\nhello\r\n0;last\r\n\r\n', 200, b"hello", True),
    "trailers": (chunked_head() + chunk(b"hello") + b"0\r\nx-sum: 1\r\nx-note: two words\r\n\r\n", 200, b"hello", True),
    "upper case sizes": (chunked_head() + b"00A\r\n0123456789\r\n0\r\n\r\n", 200, b"0123456789", True),
    "odd case of names": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n" + chunk(b""), 200, b"", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b"", True),
    "no reason": (b"HTTP/1.1 200\r\ncontent-length: 1\r\n\r\nx", 200, b"x", True),
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"x"), 200, b"x", True),
    "103 first": (b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 3 + CHUNKED, 200, b"hello world", True),
    "close": (answer(b"x", "connection: close"), 200, b"x", False),
    "chunked close": (chunked_head("Connection: Close") + chunk(b"x") + chunk(b""), 200, b"x", False),
    "1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", 200, b"x", False),
    "1.0 keep-alive": (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\nx", 200, b"x", True),
    "redirect": (answer(b"", "location: http://127.0.0.1/", status="307 Temporary Redirect"), 307, b"", True),
}

ILLEGAL = {
    "not HTTP": b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
    "0.9": b"<html>\r\n\r\n",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\n\r\n",
    "both lengths": f"{OK}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n".encode(),
    "both lengths, turned": f"{OK}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n".encode(),
    "two lengths": f"{OK}content-length: 5\r\ncontent-length: 6\r\n\r\n".encode(),
    "the same length twice": f"{OK}content-length: 5\r\ncontent-length: 5\r\n\r\n".encode(),
    "a list of lengths": f"{OK}content-length: 5, 5\r\n\r\n".encode(),
    "plus": f"{OK}content-length: +5\r\n\r\n".encode(),
    "minus": f"{OK}content-length: -5\r\n\r\n".encode(),
    "hexadecimal length": f"{OK}content-length: 0x5\r\n\r\n".encode(),
    "empty length": f"{OK}content-length: \r\n\r\n".encode(),
    "huge length": f"{OK}content-length: 99999999999999999999\r\n\r\n".encode(),
    "gzip coding": f"{OK}transfer-encoding: gzip, chunked\r\n\r\n".encode(),
    "identity coding": f"{OK}transfer-encoding: identity\r\n\r\n".encode(),
    "twice chunked": f"{OK}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n".encode(),
    "chunked in 1.0": b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    "space before the colon": f"{OK}a : b\r\n\r\n".encode(),
    "no name": f"{OK}: b\r\n\r\n".encode(),
    "folded": f"{OK}a: b\r\n c\r\n\r\n".encode(),
    "bare LF": b"HTTP/1.1 200 OK\na: b\r\n\r\n",
    "NUL": f"{OK}a: b\0c\r\n\r\n".encode(),
    "leading line end": b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    "switching protocols": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "status 999": b"HTTP/1.1 999 Odd\r\n\r\n",
    "status 099": b"HTTP/1.1 099 Odd\r\n\r\n",
    "bad chunk size": chunked_head() + b"xyz\r\nhello\r\n",
    "signed chunk size": chunked_head() + b"+5\r\nhello\r\n",
    "prefixed chunk size": chunked_head() + b"0x5\r\nhello\r\n",
    "huge chunk size": chunked_head() + b"fffffffffffffffff\r\n",
    "chunk too long": chunked_head() + b"5\r\nhello!\r\n",
    "chunk with bare LF": chunked_head() + b"5\nhello\n",
    "101 fields": (OK + "a: b\r\n" * 101 + "\r\n").encode(),
    "65 KiB in one field": f"{OK}a: {'b' * 66000}\r\n\r\n".encode(),
    "head without end": f"{OK}a: {'b' * 66000}".encode(),
    "1xx without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    "extension without end": chunked_head() + b"5;" + b"x" * 70000,
    "a length in the trailers": chunked_head() + chunk(b"x") + b"0\r\ncontent-length: 7\r\n\r\n",
    "200 trailers": chunked_head() + chunk(b"x") + b"0\r\n" + b"a: b\r\n" * 200,
}


def feed(*parts: bytes) -> ResponseFraming:
    framing = ResponseFraming(max_head_bytes=65536, max_fields=100)
    for part in parts:
        framing.feed(part)
    return framing


@pytest.mark.parametrize("name", LEGAL)
def test_legal_responses_at_every_split(name: str) -> None:
    raw, status, body, keep_alive = LEGAL[name]
    splits = [(raw,), tuple(raw[at : at + 1] for at in range(len(raw)))]
    splits += [(raw[:at], raw[at:]) for at in range(1, len(raw))]
    for parts in splits:
        framing = feed(*parts)
        assert framing.complete, parts
        assert (framing.status, b"".join(framing.pieces), framing.keep_alive) == (status, body, keep_alive)
        assert not framing.stray, parts


@pytest.mark.parametrize(
    "stray", [b"\r", b"\n", b"\r\n", b"\n\r\n", b"\r\n\r\n", b"\r\n\r\n\r\n", b"H", b"\0", b"0\r\n\r\n", CHUNKED]
)
@pytest.mark.parametrize("name", LEGAL)
def test_one_byte_too_many_is_noticed_and_never_taken(name: str, stray: bytes) -> None:
    raw, status, body, _ = LEGAL[name]
    whole = raw + stray
    splits = [(whole,), (raw, stray), (raw[:-1], raw[-1:] + stray), tuple(whole[at : at + 1] for at in range(len(whole)))]
    for parts in splits:
        framing = feed(*parts)
        assert framing.complete
        assert framing.stray, parts
        assert (framing.status, b"".join(framing.pieces)) == (status, body)


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_responses(name: str) -> None:
    raw = ILLEGAL[name]
    with pytest.raises(UpstreamProtocol):
        feed(raw)
    with pytest.raises(UpstreamProtocol):
        feed(*(raw[at : at + 7] for at in range(0, len(raw), 7)))


def test_trailers_without_end() -> None:
    framing = feed(chunked_head() + chunk(b"x") + b"0\r\na: b")
    with pytest.raises(UpstreamProtocol, match="trailers"):
        framing.feed(b"b" * 70000)


def test_body_until_the_end_of_the_connection() -> None:
    framing = feed(b"HTTP/1.0 200 OK\r\n\r\nhel", b"lo")
    assert not framing.complete
    assert framing.feed_eof()
    assert b"".join(framing.pieces) == b"hello"
    assert not framing.keep_alive


@pytest.mark.parametrize("raw", [answer(b"hello")[:-1], CHUNKED[:-1], CHUNKED[:-5], OK.encode(), b""])
def test_an_early_end_is_no_end(raw: bytes) -> None:
    framing = feed(raw)
    assert not framing.feed_eof()


def test_headers_are_lower_case_and_joined() -> None:
    framing = feed(b"HTTP/1.1 200 OK\r\nX-One: a\r\nx-one:  b \r\nY: \xe9\r\ncontent-length: 0\r\n\r\n")
    assert framing.headers == {"x-one": "a, b", "y": "é", "content-length": "0"}


def test_early_hints_leave_no_headers() -> None:
    framing = feed(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + answer(b"x"))
    assert framing.headers == {"content-length": "1"}


def test_a_drip_of_head_bytes_is_linear() -> None:
    head = f"{OK}a: {'b' * 60000}\r\ncontent-length: 0\r\n\r\n".encode()
    assert feed(*(head[at : at + 1] for at in range(len(head)))).complete


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.data())
def test_any_chunks_in_any_split(pieces: list[bytes], data: st.DataObject) -> None:
    raw = chunked_head() + b"".join(map(chunk, pieces)) + chunk(b"")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=10)))
    parts = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True) if start < end]
    framing = feed(*parts)
    assert framing.complete
    assert not framing.stray
    assert b"".join(framing.pieces) == b"".join(pieces)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_response_or_a_protocol_error(junk: bytes) -> None:
    for raw in (junk, chunked_head() + junk, OK.encode() + junk):
        try:
            feed(raw)
        except UpstreamProtocol:
            continue


_WIRE = st.one_of(
    st.binary(min_size=1, max_size=40).map(chunk),
    st.text("\r\n35:x", min_size=1, max_size=9).map(lambda text: chunk(text.encode())),
    st.text("\r\n:x", max_size=9).map(lambda text: chunk(text.encode() + b"\n")),
    st.sampled_from((
        b"5\r\n", b"hello", b"\r\n", b"0\r\n\r\n", b"1", b"A\r\n0123456789\r\n", b"05\r\nhello\r\n", b"5;a=b\r\nhello\r\n",
        b"\n", b"-2\r\n", b"+5\r\nhello\r\n", b" 5\r\nhello\r\n", b"0x5\r\nhello\r\n", b"0\r\n",
        b"x: y\r\n", b"7\r\n5\r\nab\r\n\r\n", b"5\r\n3\r\nx\n\r\n", b"3\r\n\n", b"\n\n\r\n",
    )),
)  # fmt: skip


@given(st.lists(_WIRE, min_size=1, max_size=12), st.booleans(), st.data())
def test_chunks_taken_without_the_parser_are_what_it_would_take(wire: list[bytes], cut: bool, data: st.DataObject) -> None:
    reads = wire
    if cut:
        whole = b"".join(wire)
        places = sorted(data.draw(st.sets(st.integers(1, len(whole)), max_size=5)))
        reads = [whole[start:end] for start, end in zip([0, *places], [*places, len(whole)], strict=True) if start < end]
    judge, quick = feed(chunked_head()), feed(chunked_head())
    for read in reads:
        if judge.complete:
            break
        failed = False
        try:
            judge.feed(read)
        except UpstreamProtocol:
            failed = True
        piece = quick.lone_chunk(read)
        if piece is not None:
            quick.pieces.append(piece)
            assert not failed, read
        elif failed:
            with pytest.raises(UpstreamProtocol):
                quick.feed(read)
        else:
            quick.feed(read)
        assert b"".join(quick.pieces) == b"".join(judge.pieces)
        assert (quick.complete, quick.stray, quick._tail, quick._overhead) == (
            judge.complete,
            judge.stray,
            judge._tail,
            judge._overhead,
        )
        if failed:
            break
