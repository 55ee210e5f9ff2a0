"""What the gateway sees of a client: one request, and the way back. Servers implement it.

Writing is synchronous: the gateway answers from inside the upstream's read callback, without a task or a queue per chunk. A
client that does not take its bytes is `blocked`, and the gateway stops reading its upstream until `on_drained`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Headers = list[tuple[bytes, bytes]]
Recent = Callable[[str], list[dict[str, Any]] | None]
"""The whole conversation up to the response of that id, as items of Responses; None: it is not known."""


class ClientGone(Exception):
    """The client left before its request was complete."""


class Client(Protocol):
    """One request and its answer. Writing after the client has left does no harm."""

    method: str
    path: str
    """Without the query, percent-decoded."""
    query: str
    headers: dict[str, str]
    """By lower-case name; repeated ones joined by a comma, as HTTP allows."""
    blocked: bool
    """More bytes wait for the client than should."""
    on_gone: Callable[[], None] | None
    """Called once if the client leaves before its answer is complete."""
    on_drained: Callable[[], None] | None
    """Called when a blocked client took its bytes."""
    recent: Recent | None
    """What the connection itself remembers of responses that it was given."""
    on_doubt: Callable[[], None] | None
    """Called once if the client stops sending while its answer is under way: it may have left, which only shows when something
    is written to it."""

    @property
    def peer(self) -> str:
        """The address of the other end of the connection; empty when it is not known."""

    def take_body(self) -> tuple[bytes, bool]:
        """What came of the body since the last call, and whether that was all of it. Raises ClientGone."""

    async def more_body(self, enough: int) -> None:
        """Wait until `take_body` has something to say: all of the body, more than `enough` of it, or much. Cancelled, nothing
        is lost."""

    def start(self, status: int, headers: Headers, length: int | None) -> None:
        """The head of the answer; `length` of its body, None if it is not known. It goes out with what follows."""

    def write(self, data: bytes) -> None:
        """The next bytes of the body."""

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        """What takes whole chunks as HTTP writes them, until `finish` or until the client leaves; None: only `write` does."""

    def finish(self, data: bytes = b"") -> None:
        """The last bytes of the body."""

    def accept_socket(self, headers: Headers) -> bool:
        """Answer by changing to WebSocket, with these headers. False, and nothing has happened, where this cannot be."""

    def cut_off(self) -> None:
        """The client is given up: nothing more is read or sent, and what waits for it is thrown away."""
