"""What is kept: responses, conversations and their items, as values that a store holds. Data only."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
ResponseItem = dict[str, Any]
"""One item of the Responses API, as it stands on the wire."""

OPEN: frozenset[str] = frozenset(("queued", "in_progress"))
"""The statuses of a response that is still being made."""


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response: what the client added to the conversation, what came of it, and what it is built on."""

    id: str
    owner: str
    """The name of the gateway key that made it; empty where the gateway asks for none. Nobody else can read it."""
    created: float
    parent: str | None = None
    """The response that it continues."""
    conversation: str | None = None
    position: int | None = None
    """Where it belongs to a conversation: the position there behind the last item that it follows."""
    status: Status = "completed"
    background: bool = False
    body: bytes = b"{}"
    """The response object without its output, as JSON."""
    input: bytes = b"[]"
    """The items that its own request added, as they came, as a JSON array."""
    output: bytes = b"[]"
    """The items of the answer, as a JSON array."""
    compacts: bool = False
    """Does the output hold a compaction, which stands for everything before it?"""
    upstream: str = ""
    """Where an upstream keeps this response itself: that upstream's name. Then there is nothing else to keep."""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A list of items that several responses share."""

    id: str
    owner: str
    created: float
    metadata: bytes = b"{}"


class StoredItem(msgspec.Struct, frozen=True):
    """One item of a conversation."""

    id: str
    body: bytes


class StoredEvent(msgspec.Struct, frozen=True):
    """One event of the stream of a response that is made in the background."""

    number: int
    """Its `sequence_number`."""
    body: bytes
    """Its JSON."""


class History(msgspec.Struct, frozen=True):
    """What a request continues, loaded."""

    items: tuple[ResponseItem, ...] = ()
    """Everything that was said before, in order."""
    references: dict[str, ResponseItem] = {}
    """The items that `item_reference` names, by id."""
    is_sent_form: bool = False
    """Are the items as upstreams get them already, without ids of ours?"""
