"""The parts of the upstream client that do no IO: request heads, base URLs, proxies' lists, content encodings."""

from __future__ import annotations

import gzip
import zlib

import pytest

from athena.errors import ConfigError, InvalidRequest, UpstreamProtocol, UsageError
from athena.serving.network import Proxy, bypasses_proxy
from athena.shells.upstream import Origin, parse_base_url
from athena.shells.upstream.dial import Address, interleave
from athena.shells.upstream.encoding import ContentDecoder, decoder_for
from athena.shells.upstream.request import render_head

# -- request heads ---------------------------------------------------------------------------------------------------------


def test_a_request_head() -> None:
    head = render_head("POST", "/v1/x?a=b", "example.com:81", [(b"x-a", b"1"), (b"authorization", b"Bearer \xc3\xa9\t2")], 5)
    assert head == (
        b"POST /v1/x?a=b HTTP/1.1\r\nhost: example.com:81\r\naccept-encoding: identity\r\n"
        b"x-a: 1\r\nauthorization: Bearer \xc3\xa9\t2\r\ncontent-length: 5\r\n\r\n"
    )


def test_a_body_of_nothing_is_told_where_one_is_expected() -> None:
    assert b"content-length" not in render_head("GET", "/", "a", [], 0)
    assert b"content-length: 0\r\n" in render_head("POST", "/", "a", [], 0)


@pytest.mark.parametrize(
    "value", [b"a\r\nx: y", b"a\nb", b"a\rb", b"a\0b", b"secret\n", b"\x7f", b"\x1b[0m", b"\r\n\r\nGET / HTTP/1.1"]
)
def test_header_injection_is_refused_without_repeating_the_value(value: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        render_head("POST", "/", "a", [(b"fine", b"1"), (b"x-key", value)], 0)
    assert caught.value.path == "x-key"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", [b"", b"a b", b"a:", b"a\r\nb", b"\xe9", b"a\0"])
def test_odd_header_names_are_refused(name: bytes) -> None:
    with pytest.raises(InvalidRequest):
        render_head("POST", "/", "a", [(name, b"1")], 0)


@pytest.mark.parametrize("name", [b"Host", b"content-length", b"Transfer-Encoding", b"connection", b"Accept-Encoding", b"te"])
def test_the_clients_own_headers_are_not_doubled(name: bytes) -> None:
    with pytest.raises(UsageError):
        render_head("POST", "/", "a", [(name, b"1")], 0)


@pytest.mark.parametrize("path", ["", "x", "/a b", "/a\r\nb", "/é", "http://other/"])
def test_odd_paths_are_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        render_head("POST", path, "a", [], 0)


@pytest.mark.parametrize("method", ["CONNECT", "HEAD", "post", "A B"])
def test_odd_methods_are_refused(method: str) -> None:
    with pytest.raises(UsageError):
        render_head(method, "/", "a", [], 0)


# -- base URLs and proxies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "origin", "prefix", "authority"),
    [
        ("https://API.example.com/v1/", Origin("https", "api.example.com", 443), "/v1", "api.example.com"),
        ("http://127.0.0.1:8000", Origin("http", "127.0.0.1", 8000), "", "127.0.0.1:8000"),
        ("http://[::1]:80/a", Origin("http", "::1", 80), "/a", "[::1]"),
        ("https://bücher.example", Origin("https", "xn--bcher-kva.example", 443), "", "xn--bcher-kva.example"),
    ],
)
def test_base_urls(url: str, origin: Origin, prefix: str, authority: str) -> None:
    assert parse_base_url(url) == (origin, prefix)
    assert origin.authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a/",
        "http://",
        "http://u:p@a/",
        "http://a/?x=1",
        "http://a/#x",
        "http://a:99999/",
        "http://a b/",
        "http://a/\n",
    ],
)
def test_bad_base_urls(url: str) -> None:
    if url.endswith("\n"):
        # urlsplit drops line ends; nothing of it reaches the wire.
        assert parse_base_url(url)[1] == ""
        return
    with pytest.raises(ConfigError):
        parse_base_url(url)


def test_a_proxy_and_its_exceptions() -> None:
    origin, _ = parse_base_url("https://api.example.com", proxy="http://u%40x:p@proxy:3128", no_proxy=["internal"])
    assert origin.proxy == Proxy("proxy", 3128, "Basic dUB4OnA=")
    assert "dUB4OnA" not in repr(origin)
    assert "dUB4OnA" not in repr(origin.proxy.__rich_repr__())
    direct, _ = parse_base_url("https://a.internal", proxy="http://proxy:3128", no_proxy=["internal"])
    assert direct.proxy is None


@pytest.mark.parametrize("url", ["https://proxy:1", "socks5://proxy:1", "proxy:3128", "http://:secret@:9x"])
def test_bad_proxies(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Proxy.parse(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "port", "entry", "bypassed"),
    [
        ("a.example.com", 443, "example.com", True),
        ("a.example.com", 443, ".example.com", True),
        ("a.example.com", 443, "*.example.com", True),
        ("example.com", 443, "Example.com", True),
        ("badexample.com", 443, "example.com", False),
        ("example.com", 443, "example.com:443", True),
        ("example.com", 443, "example.com:80", False),
        ("10.1.2.3", 80, "10.0.0.0/8", True),
        ("11.1.2.3", 80, "10.0.0.0/8", False),
        ("127.0.0.1", 80, "127.0.0.1", True),
        ("127.0.0.1", 80, "127.0.0.1:81", False),
        ("::1", 80, "::1", True),
        ("::1", 80, "[::1]:80", True),
        ("fd00::5", 80, "fd00::/8", True),
        ("example.com", 80, "10.0.0.0/8", False),
        ("anything", 80, "*", True),
        ("anything", 80, "", False),
    ],
)
def test_no_proxy_entries(host: str, port: int, entry: str, bypassed: bool) -> None:
    assert bypasses_proxy(host, port, ["unrelated", f" {entry} "]) is bypassed


def test_families_take_turns() -> None:
    six, four = [Address(10, (n,)) for n in "abc"], [Address(2, (n,)) for n in "d"]
    assert interleave([*six, *four]) == [six[0], four[0], six[1], six[2]]
    assert interleave([]) == []


# -- content encodings -----------------------------------------------------------------------------------------------------

TEXT = b"data: {}\n\n" * 5000


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def decoder(encoding: str, step: int = 4096, max_bytes: int = 1 << 30) -> ContentDecoder:
    found = decoder_for(encoding, max_bytes=max_bytes, max_ratio=100, step=step)
    assert found is not None
    return found


def decode(subject: ContentDecoder, wire: bytes, size: int) -> bytes:
    output = b""
    for at in range(0, len(wire), size):
        subject.feed(wire[at : at + size])
        while piece := subject.take():
            output += piece
    subject.finish()
    return output


@pytest.mark.parametrize("size", [1, 7, 100000])
@pytest.mark.parametrize(
    ("encoding", "wire"),
    [
        ("gzip", gzip.compress(TEXT)),
        ("X-GZIP", gzip.compress(TEXT)),
        ("gzip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
    ],
)
@pytest.mark.parametrize("step", [1000, 4096, len(TEXT), 1 << 20])
def test_honest_encodings(encoding: str, wire: bytes, size: int, step: int) -> None:
    assert decode(decoder(encoding, step), wire, size) == TEXT


def test_output_comes_in_steps() -> None:
    subject = decoder("gzip", step=1000)
    subject.feed(gzip.compress(TEXT))
    assert len(subject.take()) == 1000


@pytest.mark.parametrize(
    ("encoding", "wire"),
    [
        ("gzip", TEXT),
        ("gzip", gzip.compress(TEXT)[:-1]),
        ("gzip", gzip.compress(TEXT)[:-9]),
        ("gzip", gzip.compress(TEXT) + b"more"),
        ("deflate", zlib.compress(TEXT)[:-1]),
        ("deflate", zlib.compress(TEXT) + b"more"),
        ("deflate", b"x"),
    ],
)
def test_dishonest_encodings(encoding: str, wire: bytes) -> None:
    with pytest.raises(UpstreamProtocol) as caught:
        decode(decoder(encoding), wire, 1000)
    assert caught.value.code == "broken_encoding"


def test_a_bomb_by_ratio_and_by_size() -> None:
    bomb = gzip.compress(b"\0" * (8 << 20))
    with pytest.raises(UpstreamProtocol) as caught:
        decode(decoder("gzip"), bomb, 65536)
    assert caught.value.code == "decompression_limit"
    with pytest.raises(UpstreamProtocol):
        decode(decoder("gzip", max_bytes=10000), gzip.compress(TEXT), 65536)


def test_an_empty_body_needs_no_stream() -> None:
    assert decode(decoder("gzip"), b"", 1) == b""


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "nonsense"])
def test_unknown_encodings(encoding: str) -> None:
    with pytest.raises(UpstreamProtocol) as caught:
        decoder(encoding)
    assert caught.value.code == "unknown_encoding"


def test_identity() -> None:
    assert decoder_for("identity", max_bytes=1, max_ratio=1, step=1) is None
