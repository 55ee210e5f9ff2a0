"""A running gateway between an upstream that says what a test wrote down and clients that send what it wrote down.

Both sides are raw bytes. `strict_answers` reads what the gateway sent back as a strict proxy would: every byte belongs to
exactly one well-framed response, so a second head inside a body, a body that is too long or a missing end is a finding.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from support.fault_config import DIALECTS, fault_config
from support.fault_judge import Answer
from support.gateway_process import GatewayProcess
from support.patience import FOR_EVER
from support.scripted_upstream import ScriptedUpstream
from support.upstream_talk import Talk

PATIENCE = 120.0
"""Seconds after which an exchange counts as stuck; far more than any machine needs."""
AT_ONCE = 8


class WrittenUpstream(ScriptedUpstream):
    """Answers a model's name with the bytes that are written down for it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, bytes] = {}
        """Whole HTTP responses by model; after one the connection is closed."""

    async def answer(self, talk: Talk) -> None:
        if talk.model in self.answers:
            await talk.raw(self.answers[talk.model])
        else:
            await self.answer_elsewhere(talk)


@contextlib.contextmanager
def world(directory: Path) -> Iterator[tuple[WrittenUpstream, GatewayProcess]]:
    """An upstream and a gateway that leads to it; `chat/NAME` is the model NAME behind the Chat dialect, and so on."""
    with WrittenUpstream() as upstream:
        timeouts = dict.fromkeys(("connect_s", "first_byte_s", "idle_s", "total_s"), FOR_EVER)
        gateway = GatewayProcess(fault_config(upstream.url, timeouts=timeouts), directory, log_level="info")
        try:
            yield upstream, gateway
        finally:
            gateway.stop()
        log = gateway.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]


UPSTREAM_OF = {dialect: name for name, dialect in DIALECTS.items()}


def exchange_all(port: int, requests: Sequence[bytes], *, then_end: bool = False) -> list[bytes]:
    """Send each request on a connection of its own, several at once; what came back until the connection ended.

    `then_end`: end the sending side behind the request, as a gateway would wait for the rest of one whose framing is broken.
    """
    return asyncio.run(_exchange_all(port, requests, then_end))


async def _exchange_all(port: int, requests: Sequence[bytes], then_end: bool) -> list[bytes]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(request: bytes) -> bytes:
        async with slots, asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=64 * 1024 * 1024)
            received = bytearray()
            with contextlib.suppress(ConnectionError):
                writer.write(request)
                if then_end:
                    writer.write_eof()
                while data := await reader.read(1 << 16):
                    received += data
            writer.close()
            return bytes(received)

    return await asyncio.gather(*(one(request) for request in requests))


def strict_answers(raw: bytes) -> list[Answer]:
    """The responses in these bytes. Raises ValueError where they are not a sequence of whole, well-framed responses."""
    found: list[Answer] = []
    at = 0
    while at < len(raw):
        answer, at = _strict_answer(raw, at)
        if answer.status >= 200:
            found.append(answer)
    return found


def _strict_answer(raw: bytes, at: int) -> tuple[Answer, int]:
    end = raw.find(b"\r\n\r\n", at)
    if end < 0:
        raise ValueError(f"no head: {raw[at : at + 200]!r}")
    line, *fields = raw[at:end].decode("latin-1").split("\r\n")
    status = re.fullmatch(r"HTTP/1\.1 (\d{3}) [ -~]*", line)
    if status is None:
        raise ValueError(f"not a status line: {line[:200]!r}")
    headers = dict(_header(field) for field in fields)
    body, at = _strict_body(raw, end + 4, headers, int(status[1]))
    return Answer(int(status[1]), headers, body, 0.0, True, raw), at


def _header(field: str) -> tuple[str, str]:
    found = re.fullmatch(r"([!-9;-~]+): ([ -~\x80-\xff]*)", field)
    if found is None:
        raise ValueError(f"not a header: {field[:200]!r}")
    return found[1].lower(), found[2]


def _strict_body(raw: bytes, at: int, headers: dict[str, str], status: int) -> tuple[bytes, int]:
    if status < 200 or status in (204, 304):
        return b"", at
    if "content-length" in headers:
        to = at + int(headers["content-length"])
        if len(raw) < to:
            raise ValueError("the body is cut")
        return raw[at:to], to
    if headers.get("transfer-encoding") != "chunked":
        raise ValueError("a body without framing")
    body = bytearray()
    while True:
        size = re.compile(rb"([0-9a-f]+)\r\n").match(raw, at)
        if size is None:
            raise ValueError(f"not a chunk: {raw[at : at + 100]!r}")
        start, count = size.end(), int(size[1], 16)
        body += raw[start : start + count]
        at = start + count + 2
        if raw[start + count : at] != b"\r\n":
            raise ValueError("a chunk is cut or too long")
        if not count:
            return bytes(body), at


def in_batches(total: int, size: int = 500) -> Iterable[range]:
    """The numbers below `total`, in ranges that fit into memory together with what comes of them."""
    return (range(start, min(total, start + size)) for start in range(0, total, size))
