"""TLS of the listening sockets, with a certificate that can change while they listen."""

from __future__ import annotations

import ssl
from typing import Any

from athena.shells.config import TimeoutSettings, Tls, listener_context


class ListenerTls:
    """A listening socket keeps the context that it was given. Every handshake begins there and goes on in the newest one."""

    def __init__(self, tls: Tls) -> None:
        """Raises ConfigError when the certificate and the key cannot be used."""
        self._newest = listener_context(tls)
        self._listening = self._newest
        self._listening.sni_callback = self._choose

    def use(self, tls: Tls) -> None:
        """Show this certificate from the next handshake on. Raises ConfigError; then the last one stays."""
        self._newest = listener_context(tls)

    def server_arguments(self, timeouts: TimeoutSettings) -> dict[str, Any]:
        """Arguments for `create_server`. In the time for the shutdown the rest of an answer is still delivered."""
        return {
            "ssl": self._listening,
            "ssl_handshake_timeout": timeouts.client_headers_s,
            "ssl_shutdown_timeout": timeouts.client_write_s,
        }

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called in every handshake, whether the client names a server or not."""
        connection.context = self._newest
