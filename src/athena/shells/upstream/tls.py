"""TLS contexts: the system's CAs or those of a file, verification that only an explicit setting turns off."""

from __future__ import annotations

import ssl

from athena.errors import ConfigError
from athena.serving.network import TlsSettings


class TlsContexts:
    """One context per distinct setting: loading the system's CAs takes milliseconds."""

    def __init__(self) -> None:
        self._contexts: dict[TlsSettings, ssl.SSLContext] = {}

    def get(self, settings: TlsSettings) -> ssl.SSLContext:
        """The context for these settings; an unreadable CA file is a ConfigError."""
        context = self._contexts.get(settings)
        if context is None:
            context = self._contexts[settings] = make_context(settings)
        return context


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """A fresh context."""
    try:
        # With a file, the system's authorities are not loaded: nobody but the file's own is trusted.
        context = ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as cause:
        raise ConfigError(f"ca_file {settings.ca_file!r} can not be used: {cause}", code="invalid_ca_file") from cause
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
