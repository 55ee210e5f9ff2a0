"""The server of these tests ends whatever its pages do: one that waits for a page would stop all tests."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack

from support.inspector_server import TOKEN, InspectorServer
from support.patience import PATIENCE

LIVE = f"GET /inspect/api/live HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode()


def test_it_ends_with_pages_that_listen_and_connections_that_ask_nothing() -> None:
    with ExitStack() as pages:
        server = InspectorServer()
        server.__enter__()
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        for number in range(12):
            page = pages.enter_context(socket.create_connection(address, PATIENCE))
            if number % 3:
                page.sendall(LIVE)
                heard = b""
                while b"event: hello" not in heard:
                    heard += page.recv(4096)
        end = threading.Thread(target=server.__exit__, daemon=True)
        end.start()
        end.join(PATIENCE)
        assert not end.is_alive()
