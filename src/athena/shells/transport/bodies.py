"""The body of an answer: the upstream's bytes go in as they come, the SDK's go out.

The stream classes of `httpx` and `httpx2` are told apart by their class, so each library gets a subclass of its own.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from functools import cache
from types import ModuleType
from typing import Any

from athena.errors import UpstreamClosed
from athena.exchange import Step
from athena.serving.retries import with_relative_wait
from athena.serving.serving import Serving, ServingState

_READS_TO_THE_END = 4
_SECONDS_TO_THE_END = 0.1


def broken_connection(failure: str) -> UpstreamClosed:
    """The error for a network that failed after the answer had begun."""
    return UpstreamClosed(f"the connection to the upstream broke: {failure}", code="upstream_reset")


class _Body:
    """What both have: the request, and the upstream's answer."""

    network_errors: tuple[type[Exception], ...] = ()
    timeouts: tuple[type[Exception], ...] = ()

    def __init__(self, serving: Serving, answer: Any) -> None:
        self._serving = serving
        self._answer = answer
        self._closed = False
        self.first = b""
        """What the SDK reads before anything else."""
        headers = {name.lower(): value for name, value in answer.headers.items()}
        serving.head(answer.status_code, with_relative_wait(headers, time.time()), time.monotonic())

    @property
    def _packed(self) -> bool:
        """Compressed, although the request did not allow it."""
        return bool(self._answer.headers.get("content-encoding"))

    def _is_decided(self, step: Step) -> bool:
        """Is the SDK's status known, or what else is to be done?"""
        return step.head is not None or self._serving.state is not ServingState.READING

    @property
    def _must_tell(self) -> bool:
        """The network failed: an error in the SDK's own words, unless it has seen nothing; then it is its own matter."""
        return self._serving.has_head or self._serving.has_said_all

    def _end(self) -> None:
        """The request is over, unless there is another attempt to make."""
        if self._serving.state in (ServingState.READING, ServingState.OVER):
            self._serving.close(time.monotonic())

    def _take(self, piece: bytes | None) -> Step:
        now = time.monotonic()
        if piece is None:
            return self._serving.end(None, now)
        plain = self._serving.plain(piece, now)
        return Step(output=plain) if plain is not None else self._serving.data(piece, now)

    def _cut(self, failure: str | None) -> Step:
        """The body ended too early; None: only its end is missing."""
        return self._serving.end(broken_connection(failure) if failure is not None else None, time.monotonic())


class _SyncBody(_Body):
    """The SDK's bytes, made as the upstream's come. A second iteration continues where the first one stopped."""

    def __init__(self, serving: Serving, answer: Any) -> None:
        super().__init__(serving, answer)
        self._pieces: Iterator[bytes] = iter(answer.iter_bytes() if self._packed else answer.stream)

    def until_decided(self) -> Step:
        """Go on until the SDK's status is known, or another request is to be made."""
        while not self._is_decided(step := self._step()):
            pass
        return step

    def _step(self) -> Step:
        try:
            piece = next(self._pieces, None)
        except self.network_errors as failure:
            # Raised here and nowhere else: handed to a function, it would be tied to that function's frame.
            if not self._must_tell:
                raise
            return self._cut(str(failure))
        except self.timeouts:
            # The SDK's patience is at its end; but when all is said, only the end itself is missing.
            if not self._serving.has_said_all:
                raise
            return self._cut(None)
        return self._take(piece)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self.first:
            output, self.first = self.first, b""
            return output
        while self._serving.state is ServingState.READING:
            step = self._step()
            if step.output:
                return step.output
        raise StopIteration

    def close(self) -> None:
        """The SDK has read it all, or enough."""
        if self._closed:
            return
        self._closed = True
        if self._serving.keeps_connection:
            self._read_to_the_end()
        self._answer.close()
        self._end()

    def _read_to_the_end(self) -> None:
        """All is said; if the end of the body is there too, the connection can be used again. Never waits for it."""
        stream = self._answer.extensions.get("network_stream")
        try:
            for _ in range(_READS_TO_THE_END):
                if stream is None or not stream.get_extra_info("is_readable") or next(self._pieces, None) is None:
                    return
        except (*self.network_errors, *self.timeouts):
            return


class _AsyncBody(_Body):
    """The same for asynchronous clients."""

    def __init__(self, serving: Serving, answer: Any) -> None:
        super().__init__(serving, answer)
        self._pieces: AsyncIterator[bytes] = aiter(answer.aiter_bytes() if self._packed else answer.stream)

    async def until_decided(self) -> Step:
        """Go on until the SDK's status is known, or another request is to be made."""
        while not self._is_decided(step := await self._step()):
            pass
        return step

    async def _step(self) -> Step:
        try:
            piece = await anext(self._pieces, None)
        except self.network_errors as failure:
            # Raised here and nowhere else: handed to a function, it would be tied to that function's frame.
            if not self._must_tell:
                raise
            return self._cut(str(failure))
        except self.timeouts:
            # The SDK's patience is at its end; but when all is said, only the end itself is missing.
            if not self._serving.has_said_all:
                raise
            return self._cut(None)
        return self._take(piece)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self.first:
            output, self.first = self.first, b""
            return output
        while self._serving.state is ServingState.READING:
            step = await self._step()
            if step.output:
                return step.output
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """The SDK has read it all, or enough."""
        if self._closed:
            return
        self._closed = True
        if self._serving.keeps_connection:
            await self._read_to_the_end()
        await self._answer.aclose()
        self._end()

    async def _read_to_the_end(self) -> None:
        """All is said; if the end of the body comes at once, the connection can be used again."""
        from anyio import move_on_after  # what both libraries stand on, under asyncio and trio alike

        try:
            with move_on_after(_SECONDS_TO_THE_END):
                for _ in range(_READS_TO_THE_END):
                    if await anext(self._pieces, None) is None:
                        return
        except (*self.network_errors, *self.timeouts):
            return


@cache
def sync_body(library: ModuleType) -> type[_SyncBody]:
    """The class for answers to synchronous clients of that library."""
    return type("Body", (_SyncBody, library.SyncByteStream), _failures(library))


@cache
def async_body(library: ModuleType) -> type[_AsyncBody]:
    """The class for answers to asynchronous clients of that library."""
    return type("AsyncBody", (_AsyncBody, library.AsyncByteStream), _failures(library))


def _failures(library: ModuleType) -> dict[str, Any]:
    return {
        "network_errors": (library.NetworkError, library.RemoteProtocolError),
        "timeouts": (library.TimeoutException,),
    }
