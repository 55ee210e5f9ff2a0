"""The slot `thoughtSignature`.

Gemini's own signatures are opaque text and travel as they are. The field is bytes in the vendor's SDKs: they refuse what is not
base64 and write it back in the URL-safe alphabet. So an envelope with another family's state goes in as base64 and is found
again in either alphabet. Where the state belongs to the thinking before a part, because only that part is sure to be replayed,
it says so and carries a digest of that thinking: many clients replay the part without the thoughts, or with other ones, and
state that no longer fits its text must not go back to its maker.

`skip_thought_signature_validator` is what clients write where they have none; it counts as no signature.

Wire facts: docs/reference/wire-facts.md#gemini-requests.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from athena.model.parts import Opaque
from athena.opaque import PREFIX, is_envelope

PLACEHOLDER = "skip_thought_signature_validator"
FAMILY = "gemini"
_THINKING = "thinking."


def native(payload: str) -> Opaque:
    """Text of the slot as reasoning state."""
    return Opaque(family=FAMILY, kind="thought_signature", payload=payload)


class ThinkingState:
    """State of another family that belongs to the thinking before the part that carries it."""

    __slots__ = ("digest", "state")

    def __init__(self, digest: str, state: Opaque) -> None:
        self.digest = digest
        self.state = state

    def fits(self, text: str) -> bool:
        """Is this the thinking that was signed?"""
        return digest_of(text) == self.digest


def digest_of(text: str) -> str:
    """What names a thinking text inside the slot."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_slot(text: str | None) -> Opaque | ThinkingState | None:
    """What a client or upstream put in the slot."""
    if not text or text == PLACEHOLDER:
        return None
    if is_envelope(text):
        return native(text)
    inner = _decoded(text)
    if inner == PLACEHOLDER:
        return None
    if inner.startswith(PREFIX):
        return native(inner)
    if inner.startswith(_THINKING):
        digest, _, envelope = inner[len(_THINKING) :].partition(".")
        if is_envelope(envelope):
            return ThinkingState(digest, native(envelope))
    return native(text)


def write_slot(state: Opaque) -> str:
    """What to put in the slot of the part that owns the state."""
    return _encoded(state.payload) if is_envelope(state.payload) else state.payload


def write_thinking_slot(state: Opaque, digest: str) -> str:
    """What to put in the slot of the part after the thinking that owns the state."""
    return _encoded(f"{_THINKING}{digest}.{state.payload}") if is_envelope(state.payload) else state.payload


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    """Short slots and ours in plain text; "" for what is neither."""
    if len(text) > 64 and not text.startswith(("Z3cx", "dGhpbmtpbmcu")):
        # Base64 of our two beginnings; a long native signature is not worth decoding.
        return ""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""
