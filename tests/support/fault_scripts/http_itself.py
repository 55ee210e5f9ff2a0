"""Faults of HTTP itself (rows 26 to 28)."""

from __future__ import annotations

from support.fault_scripts.registry import fault
from support.upstream_speech import chat_whole
from support.upstream_talk import Talk


@fault("bad-chunk-size")
async def _bad_chunk_size(talk: Talk) -> None:
    await talk.head()
    await talk.send(talk.speech.frames[0] if talk.stream else b"{")
    await talk.raw(b"zz\r\n{}\r\n0\r\n\r\n")


@fault("cl-and-te")
async def _cl_and_te(talk: Talk) -> None:
    await talk.head("200 OK", "content-length: 5")
    await talk.send(b"".join(talk.speech.frames) if talk.stream else talk.speech.whole)
    await talk.end()


@fault("http10")
async def _http10(talk: Talk) -> None:
    await talk.raw(f"HTTP/1.0 200 OK\r\ncontent-type: {talk.kind}\r\n\r\n".encode())
    await talk.raw(b"".join(talk.speech.frames) if talk.stream else talk.speech.whole)


@fault("chunk-ext")
async def _chunk_ext(talk: Talk) -> None:
    data = b"".join(talk.speech.frames) if talk.stream else talk.speech.whole
    await talk.head("200 OK", "trailer: x-sum")
    await talk.raw(b"%x;name=value\r\n%b\r\n0\r\nx-sum: 1\r\n\r\n" % (len(data), data))
    talk.keep = True


@fault("early-hints")
async def _early_hints(talk: Talk) -> None:
    await talk.raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\n\r\n")
    await talk.control()


STRAY = "STRAY-ANSWER-OF-SOMEBODY-ELSE"


@fault("response-smuggle")
async def _response_smuggle(talk: Talk) -> None:
    """A second response right behind the first one, for whoever comes next on this connection."""
    stray = chat_whole({"content": STRAY}, "stop")
    data = b"".join(talk.speech.frames) if talk.stream else talk.speech.whole
    first = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (talk.kind.encode(), len(data), data)
    second = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(stray), stray)
    await talk.raw(first + second)
    talk.keep = True


@fault("huge-headers")
async def _huge_headers(talk: Talk) -> None:
    await talk.control("x-big: " + "x" * 100_000)


@fault("odd-headers")
async def _odd_headers(talk: Talk) -> None:
    await talk.control(
        "set-cookie: session=SECRET-COOKIE", "access-control-allow-origin: https://evil.example", "keep-alive: timeout=5",
        "proxy-authenticate: Basic", "upgrade: h2c", "te: trailers", "x-odd: \xff\xfe", "server: SECRET-SERVER",
        "alt-svc: h3=':443'", "strict-transport-security: max-age=1", "location: http://evil.example/",
    )  # fmt: skip
