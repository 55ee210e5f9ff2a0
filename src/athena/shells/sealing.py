"""Summaries of conversations that clients keep: encrypted and authenticated with AES-256-GCM under the envelope's key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os

from athena.state.compaction import PREFIX

_NONCE = 12


class Sealer:
    """Seals and opens texts with one key per deployment."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(b"athena-compaction" + key).digest()

    def seal(self, owner: str, text: str) -> str:
        """The text as only a gateway with the same key can read it, for the same owner."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # it takes long to import, and few need it

        nonce = os.urandom(_NONCE)
        sealed = nonce + AESGCM(self._key).encrypt(nonce, text.encode("utf-8", "surrogatepass"), _bound_to(owner))
        return PREFIX + base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, owner: str, text: str) -> str | None:
        """The text that `seal` was given; None for anything else, altered texts and those of other owners included."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not text.startswith(PREFIX):
            return None
        body = text[len(PREFIX) :]
        try:
            sealed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            opened = AESGCM(self._key).decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound_to(owner))
        except (binascii.Error, InvalidTag, ValueError):
            return None
        return opened.decode("utf-8", "surrogatepass")


def _bound_to(owner: str) -> bytes:
    return f"{PREFIX}{owner}".encode("utf-8", "surrogatepass")
