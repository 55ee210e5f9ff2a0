"""The body of an answer: the upstream's bytes go in as they come, the SDK's go out.

The stream classes of `httpx` and `httpx2` are told apart by their class, so each library gets a subclass of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache
from types import ModuleType
from typing import Any

from athena.exchange import Step
from athena.transport.call import Call

_READS_TO_THE_END = 4
_SECONDS_TO_THE_END = 0.1


class _Body:
    """What both have: the call, the upstream's answer, and how far it is."""

    network_errors: tuple[type[Exception], ...] = ()
    timeouts: tuple[type[Exception], ...] = ()

    def __init__(self, call: Call, answer: Any) -> None:
        self._call = call
        self._answer = answer
        self._shown = self._done = self._closed = False
        self.first = b""
        """What the SDK reads before anything else."""
        call.begin(answer.status_code, {name.lower(): value for name, value in answer.headers.items()})

    @property
    def _packed(self) -> bool:
        """Compressed, although nobody asked for it."""
        return bool(self._answer.headers.get("content-encoding"))

    def _decided(self, step: Step) -> bool:
        """Is the SDK's status known, or that another request is to be made?"""
        if step.head is None and step.again is None:
            return False
        self._shown, self._done = True, step.done
        return True

    @property
    def _must_tell(self) -> bool:
        """The network failed: an error in the SDK's own words, unless it has seen nothing; then it is its own matter."""
        return self._shown or self._call.has_said_all


class _SyncBody(_Body):
    """The SDK's bytes, made as the upstream's come. Whoever iterates again goes on where the last one stopped."""

    def __init__(self, call: Call, answer: Any) -> None:
        super().__init__(call, answer)
        self._pieces: Iterator[bytes] = iter(answer.iter_bytes() if self._packed else answer.stream)

    def until_decided(self) -> Step:
        """Go on until the SDK's status is known, or another request is to be made."""
        while not self._decided(step := self._step()):
            pass
        return step

    def _step(self) -> Step:
        try:
            piece = next(self._pieces, None)
        except self.network_errors as failure:
            # Raised here and nowhere else: handed to a function, it would be tied to that function's frame.
            if not self._must_tell:
                raise
            return self._call.end(failure)
        except self.timeouts:
            # The SDK's patience is at its end; but when all is said, only the end itself is missing.
            if not self._call.has_said_all:
                raise
            return self._call.end()
        return self._call.end() if piece is None else self._call.data(piece)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self.first:
            output, self.first = self.first, b""
            return output
        while not self._done:
            step = self._step()
            self._done = step.done
            if step.output:
                return step.output
        raise StopIteration

    def close(self) -> None:
        """The SDK has read it all, or enough."""
        if self._closed:
            return
        self._closed = True
        if self._call.answered:
            self._read_to_the_end()
        self._answer.close()

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

    def __init__(self, call: Call, answer: Any) -> None:
        super().__init__(call, answer)
        self._pieces: AsyncIterator[bytes] = aiter(answer.aiter_bytes() if self._packed else answer.stream)

    async def until_decided(self) -> Step:
        """Go on until the SDK's status is known, or another request is to be made."""
        while not self._decided(step := await self._step()):
            pass
        return step

    async def _step(self) -> Step:
        try:
            piece = await anext(self._pieces, None)
        except self.network_errors as failure:
            # Raised here and nowhere else: handed to a function, it would be tied to that function's frame.
            if not self._must_tell:
                raise
            return self._call.end(failure)
        except self.timeouts:
            # The SDK's patience is at its end; but when all is said, only the end itself is missing.
            if not self._call.has_said_all:
                raise
            return self._call.end()
        return self._call.end() if piece is None else self._call.data(piece)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self.first:
            output, self.first = self.first, b""
            return output
        while not self._done:
            step = await self._step()
            self._done = step.done
            if step.output:
                return step.output
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """The SDK has read it all, or enough."""
        if self._closed:
            return
        self._closed = True
        if self._call.answered:
            await self._read_to_the_end()
        await self._answer.aclose()

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
