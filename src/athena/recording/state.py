"""Reasoning state in a recording: what was sealed, opened and remembered while a request was served, and the same again later.

A gateway seals the reasoning state of one family for clients of another with its own key, and remembers state by call id. A
recording holds neither the key nor the memory, only what this one request used of them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from athena.model.parts import Opaque
from athena.opaque import PREFIX, Envelope, Memory, OpaqueStore, read_opaque
from athena.recording.lines import Seals
from athena.typed_values import reader

_NO_KEY = b"a recording holds no key"
_read_memory = reader(Memory)


class StateNotes(msgspec.Struct):
    """What one request sealed, opened and remembered."""

    made: dict[str, str] = {}
    accepted: list[str] = []
    remembered: dict[str, Memory] = {}

    @property
    def is_used(self) -> bool:
        """Is there anything to say?"""
        return bool(self.made or self.accepted or self.remembered)

    def seals(self) -> Seals:
        """What was sealed and opened, as a line of the recording."""
        return Seals(self.made, self.accepted, {name: msgspec.to_builtins(memory) for name, memory in self.remembered.items()})


class NotedEnvelope(Envelope):
    """An envelope whose use is written down."""

    __slots__ = ("_envelope", "_notes")

    def __init__(self, envelope: Envelope, notes: StateNotes) -> None:
        self._envelope = envelope
        self._notes = notes

    def seal(self, opaque: Opaque) -> str:
        """As the envelope does."""
        sealed = self._envelope.seal(opaque)
        body, _, code = sealed.rpartition(".")
        self._notes.made[digest_of(body)] = code
        return sealed

    def open(self, text: str) -> Opaque | None:
        """As the envelope does."""
        opened = self._envelope.open(text)
        if opened is not None:
            self._notes.accepted.append(digest_of(text))
        return opened


class NotedStore(OpaqueStore):
    """A memory whose use is written down."""

    __slots__ = ("_notes", "_store")

    def __init__(self, store: OpaqueStore, notes: StateNotes) -> None:
        self._store = store
        self._notes = notes

    def put(self, tenant: str, call_id: str, memory: Memory) -> None:
        """As the memory does."""
        self._store.put(tenant, call_id, memory)

    def get(self, tenant: str, call_id: str) -> Memory | None:
        """As the memory does."""
        found = self._store.get(tenant, call_id)
        if found is not None:
            self._notes.remembered[call_id] = found
        return found

    def holds_any(self, tenant: str, call_ids: Iterable[str]) -> bool:
        """As the memory does. What is there is written down when it is asked for."""
        return self._store.holds_any(tenant, call_ids)


class RecordedEnvelope(Envelope):
    """Seals and opens as a recording says. What it does not know it seals with no secret at all: nobody would accept it."""

    __slots__ = ("_accepted", "_made")

    def __init__(self, seals: Seals) -> None:
        super().__init__(_NO_KEY)
        self._made = seals.made
        self._accepted = frozenset(seals.accepted)

    def seal(self, opaque: Opaque) -> str:
        """The text that was made then."""
        body, _, code = super().seal(opaque).rpartition(".")
        return f"{body}.{self._made.get(digest_of(body), code)}"

    def open(self, text: str) -> Opaque | None:
        """What was found in it then."""
        return unsealed(text) if digest_of(text) in self._accepted else None


class RecordedStore(OpaqueStore):
    """A memory that answers as the one of the recorded request did."""

    __slots__ = ("_known",)

    def __init__(self, seals: Seals) -> None:
        super().__init__(1)
        self._known: dict[str, Any] = seals.remembered

    def put(self, tenant: str, call_id: str, memory: Memory) -> None:
        """Nothing: no later request is served from here."""

    def get(self, tenant: str, call_id: str) -> Memory | None:
        """What the recorded request found under this key."""
        found = self._known.get(call_id)
        return _read_memory(found) if found is not None else None

    def holds_any(self, tenant: str, call_ids: Iterable[str]) -> bool:
        """Did the recorded request find anything of these calls?"""
        return not self._known.keys().isdisjoint(call_ids)


def unsealed(text: str) -> Opaque | None:
    """What an envelope says, whoever made it. Only for text that is known to be ours."""
    body = text.removeprefix(PREFIX).partition(".")[0]
    try:
        return read_opaque(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None


def digest_of(text: str) -> str:
    """The name under which an envelope is listed."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
