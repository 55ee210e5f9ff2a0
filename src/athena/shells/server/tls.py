"""TLS of the listening sockets, with a certificate that can change while they listen."""

from __future__ import annotations

import ssl
from typing import Any

from athena.shells.config import Tls, listener_context

SHUTDOWN_S = 2.0
"""Seconds for which a closed connection waits for the client's own goodbye."""


class ListenerTls:
    """A listening socket keeps the context that it was given. Every handshake begins there and goes on in the newest one."""

    def __init__(self, tls: Tls) -> None:
        """Raises ConfigError when the certificate and the key can not be used."""
        self._newest = listener_context(tls)
        self._listening = self._newest
        self._listening.sni_callback = self._choose

    def use(self, tls: Tls) -> None:
        """Show this certificate from the next handshake on. Raises ConfigError; then the last one stays."""
        self._newest = listener_context(tls)

    def server_arguments(self, handshake_s: float) -> dict[str, Any]:
        """What `create_server` is to be told."""
        return {"ssl": self._listening, "ssl_handshake_timeout": handshake_s, "ssl_shutdown_timeout": SHUTDOWN_S}

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called in every handshake, whether the client names a server or not."""
        connection.context = self._newest
