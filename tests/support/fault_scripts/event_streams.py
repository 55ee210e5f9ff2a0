"""Event streams in other shapes (rows 20 to 23)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from support.fault_scripts.registry import fault
from support.upstream_speech import ARGUMENTS, NAME, call_entry, chat_whole, chunk
from support.upstream_talk import Talk


def _shaped(name: str, shape: Callable[[bytes], bytes], split: Callable[[bytes], list[bytes]] | None = None) -> None:
    """A fault that rewrites the bytes of a healthy stream."""

    @fault(name)
    async def script(talk: Talk) -> None:
        data = shape(b"".join(talk.speech.frames).replace(b"\r\n", b"\n"))
        pieces = split(data) if split else [data[start : start + 97] for start in range(0, len(data), 97)]
        await talk.say(pieces, talk.speech.whole)


def _pretty(data: bytes) -> bytes:
    """Every record spread over several data lines."""
    blocks = []
    for block in data.strip().split(b"\n\n"):
        lines = block.split(b"\n")
        payload = lines[-1].removeprefix(b"data: ")
        if payload != b"[DONE]":
            spread = json.dumps(json.loads(payload), indent=1, ensure_ascii=False).encode()
            lines[-1:] = [b"data: " + line for line in spread.split(b"\n")]
        blocks.append(b"\n".join(lines))
    return b"\n\n".join(blocks) + b"\n\n"


def _single_bytes(data: bytes) -> list[bytes]:
    return [data[start : start + 1] for start in range(len(data))]


def _around_carriage_returns(data: bytes) -> list[bytes]:
    return [*[piece + b"\r" for piece in data.split(b"\r")][:-1], data.split(b"\r")[-1]]


def _random_pieces(data: bytes) -> list[bytes]:
    source = random.Random(7)
    pieces, start = [], 0
    while start < len(data):
        size = source.choice((1, 2, 3, 5, 40, 200))
        pieces.append(data[start : start + size])
        start += size
    return pieces


_shaped("crlf", lambda data: data.replace(b"\n", b"\r\n"))
_shaped("cr-only", lambda data: data.replace(b"\n", b"\r"))
_shaped("split-crlf", lambda data: data.replace(b"\n", b"\r\n"), _around_carriage_returns)
_shaped("bom", lambda data: b"\xef\xbb\xbf" + data)
_shaped("comments", lambda data: b": hello\n\n" + data.replace(b"\n\n", b"\n\n:\n: keep-alive\n\n"))
_shaped("no-space", lambda data: data.replace(b"data: ", b"data:").replace(b"event: ", b"event:"))
_shaped("extra-fields", lambda data: b"retry: 100\n\n" + data.replace(b"data: ", b"id: 7\nfoo: bar\ndata: "))
_shaped("multiline-data", _pretty)
_shaped("split-utf8", lambda data: data, _single_bytes)
_shaped("split-random", lambda data: data, _random_pieces)
_shaped("coalesced", lambda data: data, lambda data: [data])
_shaped("no-last-blank", lambda data: data.rstrip(b"\n"))


@fault("invalid-utf8")
async def _invalid_utf8(talk: Talk) -> None:
    wrong = "Grüße ".encode().replace(b"\xc3\xbc", b"\xff\xfe")
    await talk.say(
        [one.replace("Grüße ".encode(), wrong) for one in talk.speech.frames],
        talk.speech.whole.replace("Grüße ".encode(), wrong),
    )


@fault("utf16")
async def _utf16(talk: Talk) -> None:
    data = b"".join(talk.speech.frames) if talk.stream else talk.speech.whole
    await talk.head()
    await talk.send(data.decode().encode("utf-16"))
    await talk.end()


@fault("nul")
async def _nul(talk: Talk) -> None:
    await talk.say(
        [one.replace(b"hello", b"hel\x00lo") for one in talk.speech.frames], talk.speech.whole.replace(b"hello", b"hel\x00lo")
    )


@fault("lone-surrogate")
async def _lone_surrogate(talk: Talk) -> None:
    await talk.say(
        [one.replace(b"hello", b"\\ud83d") for one in talk.speech.frames], talk.speech.whole.replace(b"hello", b"\\ud83d")
    )


@fault("split-surrogate")
async def _split_surrogate(talk: Talk) -> None:
    """One emoji cut between two records."""
    frames = list(talk.speech.frames)
    frames[1:3] = [
        chunk({"content": "X"}).replace(b'"X"', b'"a \\ud83d"'),
        chunk({"content": "X"}).replace(b'"X"', b'"\\ude00 b"'),
    ]
    await talk.say(frames, chat_whole({"content": "a 😀 b", "tool_calls": [call_entry("call_1", NAME, "".join(ARGUMENTS))]}))
