"""Clients that are this process itself: what the gateway asks of a client where there is no connection."""

from __future__ import annotations

from collections.abc import Callable

from athena.shells.gateway.client import Headers, Recent


class InnerClient:
    """One request that is there from the beginning, and its answer, kept as it comes."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes = b"", *, peer: str = "") -> None:
        self.method, self.path, self.query, self.peer = "POST", path, "", peer
        self.headers = headers
        self.blocked = False
        self.on_gone: Callable[[], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self.on_doubt: Callable[[], None] | None = None
        self.recent: Recent | None = None
        self.status = 0
        self.is_cut = False
        self._asked = body
        self._pieces: list[bytes] = []

    @property
    def body(self) -> bytes:
        """The answer so far."""
        return b"".join(self._pieces)

    def take_body(self) -> tuple[bytes, bool]:
        """All of the request's body."""
        body, self._asked = self._asked, b""
        return body, True

    async def more_body(self, enough: int) -> None:
        """The whole body was given at the start, so nothing follows."""

    def start(self, status: int, headers: Headers, length: int | None) -> None:
        self.status = status

    def write(self, data: bytes) -> None:
        self._pieces.append(data)

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        return None

    def finish(self, data: bytes = b"") -> None:
        if data:
            self.write(data)

    def accept_socket(self, headers: Headers) -> bool:
        """There is no connection to change."""
        return False

    def cut_off(self) -> None:
        self.is_cut = True
