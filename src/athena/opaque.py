"""Reasoning state of one provider family, carried through the opaque slot of another family's dialect.

A signature or encrypted reasoning item is worth something only to its maker. When the client speaks another dialect, it is
wrapped as `gw1.<base64url JSON>.<MAC>` and put where that client keeps such things; on the way back it is unwrapped, checked
and handed to the family that minted it, or dropped. Nobody without the key can make one up.

Wire facts: docs/reference/wire-facts.md#opaque-reasoning-state.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Iterable
from itertools import repeat

import msgspec

from athena.model.parts import Opaque, Thinking

PREFIX = "gw1."
read_opaque = msgspec.json.Decoder(Opaque).decode


class Envelope:
    """Seals and opens reasoning state with one key per deployment."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(b"athena-envelope" + key).digest()

    def seal(self, opaque: Opaque) -> str:
        """The state as text for a foreign slot."""
        body = base64.urlsafe_b64encode(msgspec.json.encode(opaque)).rstrip(b"=")
        return f"{PREFIX}{body.decode()}.{self._mac(body)}"

    def open(self, text: str) -> Opaque | None:
        """The state that `seal` wrapped; None for anything else, altered envelopes included."""
        if not text.startswith(PREFIX):
            return None
        body, _, mac = text[len(PREFIX) :].partition(".")
        if not hmac.compare_digest(mac.encode("utf-8", "replace"), self._mac(body.encode("utf-8", "replace")).encode()):
            return None
        try:
            return read_opaque(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (binascii.Error, ValueError, msgspec.MsgspecError):
            return None

    def _mac(self, body: bytes) -> str:
        return base64.urlsafe_b64encode(hmac.digest(self._key, body, "sha256")[:16]).rstrip(b"=").decode()


def is_envelope(text: str) -> bool:
    """Does the text claim to be one of our envelopes?"""
    return text.startswith(PREFIX)


class Memory(msgspec.Struct, frozen=True):
    """What an assistant turn needs besides its call, when the client did not keep it."""

    thinking: tuple[Thinking, ...] = ()
    signature: Opaque | None = None


_STORE_CHARS = 64 * 1024 * 1024


class OpaqueStore:
    """Reasoning state by call id, for clients that drop what they do not know.

    Bounded in calls and in characters, since models write as much as they like: the oldest goes first.
    """

    __slots__ = ("_chars", "_items", "_limit", "_most_chars")

    def __init__(self, limit: int = 4096, most_chars: int = _STORE_CHARS) -> None:
        self._items: OrderedDict[tuple[str, str], Memory] = OrderedDict()
        self._limit = limit
        self._most_chars = most_chars
        self._chars = 0

    def put(self, tenant: str, call_id: str, memory: Memory) -> None:
        """Remember what belongs to a call."""
        key = (tenant, call_id)
        before = self._items.pop(key, None)
        self._chars += _size(key, memory) - (_size(key, before) if before is not None else 0)
        self._items[key] = memory
        while self._items and (len(self._items) > self._limit or self._chars > self._most_chars):
            self._chars -= _size(*self._items.popitem(last=False))

    def get(self, tenant: str, call_id: str) -> Memory | None:
        """What was remembered; None when nothing was."""
        return self._items.get((tenant, call_id))

    def holds_any(self, tenant: str, call_ids: Iterable[str]) -> bool:
        """Was something remembered of one of these calls?"""
        return bool(self._items) and not self._items.keys().isdisjoint(zip(repeat(tenant), call_ids))


def _size(key: tuple[str, str], memory: Memory) -> int:
    states = (memory.signature, *(thought.signature for thought in memory.thinking))
    payloads = sum(len(state.payload) for state in states if state is not None)
    return len(key[1]) + sum(len(thought.text) for thought in memory.thinking) + payloads
