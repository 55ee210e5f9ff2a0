"""What one request and its answer hold of the memory budget, step by step. Pure.

A request is let in by the length it announces, and has room for all its work from then on where its text is plain; only a body
that inflates, or whose text turns out to be wide or full of tiny values, asks for more. What is no longer needed is given back:

    announce / growing     the body is coming in, or being inflated
    weighed                it is whole: room to decode it and to make the upstream's request of it
    decoded, built         the body is gone; the decoded request and the upstream's request stay
    answering              the upstream answers and no other target will be asked: its request is gone too
"""

from __future__ import annotations

from athena.errors import LimitExceeded, UpstreamError
from athena.serving.budget import Budget, Lease
from athena.serving.weight import READING, Weight

RETRY_AFTER_S = 2.0
"""The delay in the answer to a client that is refused for lack of memory."""
_REQUEST = 32 * 1024
"""What a request takes besides its body: its task, its objects, the buffers of two connections."""
_FREE = 64 * 1024
"""Bytes of an answer that are not counted: almost all answers are smaller, and none of those pays for the counting."""
_STEP = 256 * 1024
WHOLE = 6
_STREAMED = 2
"""For one byte of an answer that is held: collected to its end it is decoded and encoded in one go, at that many times its
size; in a stream it is held back as it came and as text."""

_NO_WEIGHT = Weight(0, 0, 0)


def out_of_memory() -> UpstreamError:
    """The error that refuses a request, or breaks an answer off, because there is no room for it."""
    return UpstreamError(
        "the gateway holds as much in memory as it may (limits.memory_bytes); ask again in a moment",
        kind="overloaded",
        code="memory_limit",
        retry_after=RETRY_AFTER_S,
    )


class RequestMemory(Lease):
    """What one request holds. Every method that asks for more raises where it does not fit."""

    _weight = _NO_WEIGHT

    @property
    def is_short(self) -> bool:
        """Is memory refused to others? Then a body that does not come is given up sooner."""
        return self._budget.is_short

    def announce(self, size: int) -> None:
        """A body of that many bytes is going to be read."""
        self._need(READING * size)

    def growing(self, size: int, packed: int = 0) -> None:
        """The body will have `size` bytes in a moment, beside the `packed` ones it is made of."""
        if (wanted := _REQUEST + READING * size + packed) > self.size:
            self._need(wanted - _REQUEST)

    def weighed(self, weight: Weight) -> None:
        """The body is complete and is going to be worked on."""
        self._weight = weight
        self._need(weight.work)

    def has_room(self, weight: Weight) -> bool:
        """Would it fit, whatever it turns out to weigh up to this? Nothing is asked for yet."""
        return self.fits(_REQUEST + weight.work)

    def building(self) -> None:
        """A request to an upstream is going to be made, perhaps once more."""
        if self.size < _REQUEST + self._weight.work:
            self._need(self._weight.work)

    def decoded(self, weight: Weight) -> None:
        """It is decoded, and its weight is known better. What it has it keeps: the upstream's request is made next."""
        self._weight = weight

    def built(self) -> None:
        self.hold(_REQUEST + self._weight.text + self._weight.call)

    def answering(self) -> None:
        """The upstream's request is not needed any more."""
        self.hold(_REQUEST + self._weight.text)

    def _need(self, size: int) -> None:
        if self.resize(_REQUEST + size):
            return
        if _REQUEST + size > self.most:
            raise LimitExceeded(
                f"the request needs {size} bytes of memory; this gateway has {self.most} for all (limits.memory_bytes)",
                code="request_too_large",
                status=413,
            )
        raise out_of_memory()


class AnswerMemory:
    """What is held of one answer: bytes that came from the upstream and of which the client has seen nothing yet."""

    held = 0
    """Bytes that came and of which the client has seen nothing."""
    _lease: Lease | None = None
    _paid = _FREE

    def __init__(self, budget: Budget, *, streamed: bool) -> None:
        self._budget = budget
        self._factor = _STREAMED if streamed else WHOLE

    def hold(self, size: int) -> bool:
        """That many more. False: there is no room for them."""
        self.held += size
        if self.held <= self._paid:
            return True
        paid = -(-(self.held - _FREE) // _STEP) * _STEP
        if self._lease is None:
            self._lease = self._budget.lease(answer=True)
        if not self._lease.resize(paid * self._factor):
            return False
        self._paid = _FREE + paid
        return True

    def shown(self) -> None:
        """The client has got what there was."""
        self.held = 0
        self._paid = _FREE
        if self._lease is not None:
            self._lease.close()

    close = shown
