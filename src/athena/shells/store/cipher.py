"""Encryption of what the store holds, where a key is configured: AES-256-GCM, bound to the row that it stands in.

JSON begins with a bracket, so the first byte tells what is encrypted from what was stored before a key was set.
"""

from __future__ import annotations

import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from athena.shells.store.database import ENCRYPTED
from athena.state.errors import StoreUnreadable

_NONCE = 12


class Cipher:
    """Encrypts and decrypts the contents of rows with one key."""

    def __init__(self, secret: str) -> None:
        self._cipher = AESGCM(hashlib.sha256(b"athena-store" + secret.encode()).digest())

    def seal(self, content: bytes, place: str) -> bytes:
        """The content for a certain row; elsewhere it cannot be read."""
        nonce = os.urandom(_NONCE)
        return ENCRYPTED + nonce + self._cipher.encrypt(nonce, content, place.encode())

    def open(self, content: bytes, place: str) -> bytes:
        """What was sealed; what was stored unencrypted is returned as it is. Raises StoreUnreadable."""
        if content[:1] != ENCRYPTED:
            return content
        try:
            return self._cipher.decrypt(content[1 : 1 + _NONCE], content[1 + _NONCE :], place.encode())
        except (InvalidTag, ValueError):
            raise StoreUnreadable(f"{place} cannot be decrypted: it was stored with another store.encryption_key") from None
