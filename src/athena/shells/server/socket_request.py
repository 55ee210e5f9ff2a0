"""One request on a WebSocket, and its answer: what the gateway knows as its client.

To the gateway it is a plain request for a stream: the same checks, limits, taps and driver. Only the way back differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from athena.shells.gateway.client import ClientGone, Headers, Recent
from athena.websocket.session import Begin, Remembered

if TYPE_CHECKING:
    from athena.shells.server.socket import SocketConnection

PATH = "/v1/responses"


class SocketRequest:
    """One `response.create` that is being answered."""

    def __init__(self, connection: SocketConnection, begin: Begin, headers: dict[str, str], query: str) -> None:
        self.method = "POST"
        self.path = PATH
        self.query = query
        self.headers = {**headers, "content-length": str(len(begin.body))}
        self.turn = begin.turn
        self.recent: Recent | None = partial(_remembered, begin.continues) if begin.continues is not None else None
        self.blocked = connection.is_blocked
        self.on_gone: Callable[[], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self.on_doubt: Callable[[], None] | None = None
        self.complete = False
        """The answer is written to its end."""
        self.gone = False
        self._body = begin.body
        self._connection = connection

    # -- the request -------------------------------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """The address of the other end of the connection."""
        return self._connection.peer

    def take_body(self) -> tuple[bytes, bool]:
        """All of the body, which is there from the beginning."""
        if self.gone:
            raise ClientGone
        body, self._body = self._body, b""
        return body, True

    async def more_body(self, enough: int) -> None:
        """The whole body came with the message, so nothing follows."""

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        return None

    def accept_socket(self, headers: Headers) -> bool:
        """A socket inside of a socket there is not."""
        return False

    def left(self) -> None:
        """The client is gone, or given up."""
        self.gone = True
        if not self.complete and self.on_gone is not None:
            on_gone, self.on_gone = self.on_gone, None
            on_gone()

    def drained(self) -> None:
        """The client took what waited for it."""
        self.blocked = False
        if self.on_drained is not None:
            self.on_drained()

    # -- the answer --------------------------------------------------------------------------------------------------------

    def start(self, status: int, headers: Headers, length: int | None) -> None:
        """The head that the answer would have over HTTP."""
        self.turn.answer.head(status, {name.decode("latin-1"): value.decode("latin-1") for name, value in headers})

    def write(self, data: bytes) -> None:
        """The next bytes of the answer's body."""
        if not self.gone and not self.complete and data:
            self._connection.say(self.turn.answer.feed(data), self.turn)

    def finish(self, data: bytes = b"") -> None:
        """The last bytes of the answer's body."""
        if self.complete:
            return
        self.write(data)
        self.complete = True
        if not self.gone:
            self._connection.say(self.turn.answer.end(), self.turn)
        self._connection.answered(self)

    def cut_off(self) -> None:
        """The client is given up: what waits for it is thrown away."""
        self._connection.abort()


def _remembered(kept: Remembered, name: str) -> list[dict[str, Any]] | None:
    return [msgspec.json.decode(item) for item in kept.history] if kept.id == name else None
