"""Answers that are too large, or packed (rows 24, 25 and 48)."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

from support.fault_scripts.registry import fault
from support.upstream_speech import DONE, chat_stream, chat_whole, chunk
from support.upstream_talk import Talk


@fault("giant-line")
async def _giant_line(talk: Talk) -> None:
    text = "x" * (1024 * 1024)
    await talk.say(chat_stream([{"content": text}], "stop"), chat_whole({"content": text}, "stop"))


@fault("endless-line")
async def _endless_line(talk: Talk) -> None:
    await talk.head()
    await talk.send(
        b'data: {"choices":[{"index":0,"delta":{"content":"' if talk.stream else b'{"choices":[{"message":{"content":"'
    )
    for _ in range(1000):
        await talk.send(b"x" * 65536)


@fault("endless-stream")
async def _endless_stream(talk: Talk) -> None:
    """Ends only with the client, or with the total limit."""
    await talk.at_once(*(talk.speech.frames[: talk.speech.in_text] if talk.stream else [b" "]))
    talk.wait_for_test()
    while True:
        await talk.send(talk.speech.frames[talk.speech.in_text - 1] if talk.stream else b" ")
        await talk.sleep(0.01)


def _squeezed(name: str, squeeze: Callable[[bytes], bytes], label: str) -> None:
    @fault(name)
    async def script(talk: Talk) -> None:
        data = squeeze(b"".join(talk.speech.frames) if talk.stream else talk.speech.whole)
        await talk.head("200 OK", f"content-encoding: {label}")
        await talk.send(*[data[start : start + 50] for start in range(0, len(data), 50)])
        await talk.end()


_squeezed("gzip-sse", gzip.compress, "gzip")
_squeezed("deflate-sse", zlib.compress, "deflate")
_squeezed("gzip-lie", lambda data: data, "gzip")
_squeezed("gzip-truncated", lambda data: gzip.compress(data)[:200], "gzip")
_squeezed("br-label", lambda data: data, "br")


@fault("gzip-bomb")
async def _gzip_bomb(talk: Talk) -> None:
    """64 MiB of nothing in 64 KiB."""
    squeezer = zlib.compressobj(9, wbits=31)
    nothing = squeezer.compress(b"data: {" if talk.stream else b"{") + squeezer.compress(b" " * (1024 * 1024))
    block = squeezer.compress(b" " * (1024 * 1024)) + squeezer.flush(zlib.Z_FULL_FLUSH)
    await talk.head("200 OK", "content-encoding: gzip")
    # In one write: how much has come is not left to how busy this machine is.
    await talk.send(nothing + 64 * block)
    await talk.end()


@fault("flood")
async def _flood(talk: Talk) -> None:
    """200 MiB of text as fast as it is taken."""
    record = chunk({"content": "x" * 16_000})
    await talk.head()
    for _ in range(200 * 64):
        await talk.send(record)
    await talk.send(chunk({}, "stop"), DONE)
    await talk.end()
