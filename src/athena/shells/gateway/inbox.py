"""Where an upstream's bytes wait for the one coroutine that serves the client.

One wake-up takes everything that came: no task and no queue per chunk stand between the two sockets. What the client does not
take fast enough stays in the upstream's socket.
"""

from __future__ import annotations

import asyncio

from athena.errors import UpstreamError
from athena.shells.upstream import UpstreamResponse

_PORTION = 64 * 1024


class Inbox:
    """The reading side of one upstream answer."""

    __slots__ = ("_future", "_limit", "_loop", "_paused", "_pieces", "_response", "_size", "ended", "failure")

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._future: asyncio.Future[None] | None = None
        self._response: UpstreamResponse | None = None
        self._paused = False
        self.ended = False
        self.failure: UpstreamError | None = None

    def attach(self, response: UpstreamResponse) -> None:
        """Take the response's bytes from now on."""
        self._response = response
        response.deliver_to(self._on_data, self._on_end)

    async def wait(self, deadline: float | None = None) -> None:
        """Until bytes or the end are there, or that time of the loop's clock."""
        if self._pieces or self.ended:
            return
        self._future = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._wake) if deadline is not None else None
        try:
            await self._future
        finally:
            self._future = None
            if timer is not None:
                timer.cancel()

    @property
    def has_backlog(self) -> bool:
        """Did the upstream say more than was taken here?"""
        return bool(self._pieces) or (self._response is not None and self._response.has_backlog)

    def take(self) -> bytes:
        """Bytes that came, in portions that a client which does not read may hold up; the upstream may send more again."""
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        if len(data) > _PORTION:
            pieces.append(data[_PORTION:])
            self._size = len(data) - _PORTION
            return data[:_PORTION]
        if self._paused and self._response is not None:
            self._paused = False
            self._response.resume()
        return data

    def give_up(self, failure: UpstreamError) -> None:
        """Nothing more is awaited: what came is taken, then the failure."""
        if not self.ended:
            self._on_end(failure)

    def close(self) -> None:
        """Nobody takes any more."""
        self._pieces.clear()
        self._response = None

    def _on_data(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > self._limit and not self._paused and self._response is not None:
            self._paused = True
            self._response.pause()
        self._wake()

    def _on_end(self, failure: UpstreamError | None) -> None:
        self.ended, self.failure = True, failure
        self._wake()

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
