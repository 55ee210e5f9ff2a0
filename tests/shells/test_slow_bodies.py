"""How long a client may take to send its body, on a clock of the test's own: nothing here waits, and every time is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from athena.errors import ClientError
from athena.serving.budget import Budget
from athena.serving.holding import RequestMemory
from athena.shells.gateway.client import Headers, Recent
from athena.shells.gateway.incoming import read_body
from support.virtual_clock import run_virtually

LIMIT_S = 60.0
MANY = 1024 * 1024
TOO_SLOW = "408 body_timeout"


class SendingClient:
    """A client that sends `pieces`, each a pause before it and its bytes. `eager`: every piece wakes the reader, as ASGI
    servers do; else only much of the body or its end does, as in our own server.
    """

    def __init__(self, pieces: list[tuple[float, bytes]], *, eager: bool) -> None:
        self.method, self.path, self.query = "POST", "/v1/messages", ""
        self.headers: dict[str, str] = {}
        self.peer = "127.0.0.1"
        self.blocked = False
        self.on_gone: Callable[[], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self.on_doubt: Callable[[], None] | None = None
        self.recent: Recent | None = None
        self._eager = eager
        self._pieces = pieces
        self._came: list[bytes] = []
        self._complete = False
        self._woken = asyncio.Event()
        self._enough = 0
        self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        for pause, piece in self._pieces:
            await asyncio.sleep(pause)
            self._came.append(piece)
            if self._eager or sum(map(len, self._came)) > self._enough:
                self._woken.set()
        self._complete = True
        self._woken.set()

    def take_body(self) -> tuple[bytes, bool]:
        data = b"".join(self._came)
        self._came.clear()
        return data, self._complete

    async def more_body(self, enough: int) -> None:
        self._enough = min(enough, 256 * 1024)
        self._woken.clear()
        if not self._complete:
            await self._woken.wait()

    def start(self, status: int, headers: Headers, length: int | None) -> None:
        raise AssertionError("reading a body answers nothing")

    write: Any = start
    finish: Any = start
    cut_off: Any = start
    accept_socket: Any = start
    chunk_writer: Any = start

    def leave(self) -> None:
        self._sending.cancel()


def ended_at(pieces: list[tuple[float, bytes]], *, eager: bool) -> tuple[float, str]:
    """When reading ended, and how: "read", or the error's status and code."""

    async def main() -> tuple[float, str]:
        client = SendingClient(pieces, eager=eager)
        loop = asyncio.get_running_loop()
        try:
            body = await read_body(client, MANY, LIMIT_S, RequestMemory(Budget(1 << 30, loop.time)))
        except ClientError as error:
            return loop.time(), f"{error.status} {error.code}"
        finally:
            client.leave()
        assert body == b"".join(piece for _, piece in pieces)
        return loop.time(), "read"

    return run_virtually(main)


DRIP = [(1 / 3, b"x")] * 2000
SLOW = [(1.0, b"x" * 500)] * 300
STEADY = [(1.0, b"x" * 600)] * 300
PAUSE_IN_THE_MIDDLE = [(1.0, b"x" * 100_000), (1000.0, b"x")]
DRIP_AFTER_MUCH = [(1.0, b"x" * 100_000), *DRIP]
CASES = {
    "nothing at all": ([(1000.0, b"x")], 60.0, TOO_SLOW),
    "three bytes a second": (DRIP, 60.0, TOO_SLOW),
    "a byte every 59 seconds": ([(59.0, b"x")] * 100, 60.0, TOO_SLOW),
    "500 bytes a second": (SLOW, 60.0, TOO_SLOW),
    "600 bytes a second, five minutes long": (STEADY, 300.0, "read"),
    "the end just in time": ([(59.9, b"x")], 59.9, "read"),
}


@pytest.mark.parametrize("eager", [True, False], ids=["every piece wakes", "much wakes"])
@pytest.mark.parametrize("case", CASES)
def test_a_slow_body_is_cut_when_the_limit_says(case: str, eager: bool) -> None:
    pieces, when, how = CASES[case]
    found_when, found_how = ended_at(pieces, eager=eager)
    assert found_how == how
    assert found_when == pytest.approx(when)


@pytest.mark.parametrize("pieces", [PAUSE_IN_THE_MIDDLE, DRIP_AFTER_MUCH], ids=["silence", "drip"])
@pytest.mark.parametrize("eager", [True, False], ids=["every piece wakes", "much wakes"])
def test_what_was_sent_before_buys_no_more_than_one_limit(pieces: list[tuple[float, bytes]], eager: bool) -> None:
    when, how = ended_at(pieces, eager=eager)
    assert how == TOO_SLOW
    assert LIMIT_S <= when <= 2 * LIMIT_S
