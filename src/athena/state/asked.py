"""What the body of a Responses request asks of the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from athena.errors import InvalidRequest
from athena.state.errors import mutually_exclusive
from athena.state.values import ResponseItem

TRIGGER = "compaction_trigger"


class AskedToKeep(msgspec.Struct, frozen=True, kw_only=True):
    """What of a request concerns the store: what it continues, and whether its answer is to be kept."""

    store: bool | None = None
    """As the client says; None: it does not."""
    previous: str | None = None
    conversation: str | None = None
    references: tuple[str, ...] = ()
    """Ids of items that stand in the input by reference."""
    background: bool = False
    truncates: bool = False
    """`truncation: auto`: the oldest items may be left out where the conversation is too long for the model."""
    compacts: bool = False
    """The input asks for the conversation so far to be compacted, and for nothing else."""
    threshold: int | None = None
    """Tokens above which the conversation is to be compacted first."""

    @property
    def needs_history(self) -> bool:
        """Must something be loaded before the request can be read?"""
        return self.previous is not None or self.conversation is not None or bool(self.references)


def read_asked(body: Mapping[str, Any]) -> AskedToKeep:
    """Raises InvalidRequest in OpenAI's words where it contradicts itself. What else is wrong with a body, its decoder says."""
    previous, conversation = _text(body, "previous_response_id"), _conversation(body)
    if previous is not None and conversation is not None:
        raise mutually_exclusive("previous_response_id", "conversation")
    background, store = _flag(body, "background"), _flag(body, "store")
    if background and store is False:
        raise InvalidRequest(
            "background: a response in the background must be stored; leave `store` out or true", path="background"
        )
    items = body.get("input")
    # Most items are messages: one look at each of those is enough.
    given = [item for item in items if isinstance(item, dict) and not _is_message(item)] if isinstance(items, list) else []
    return AskedToKeep(
        store=store,
        previous=previous,
        conversation=conversation,
        references=tuple([item["id"] for item in given if is_reference(item)]),
        background=bool(background),
        truncates=body.get("truncation") == "auto",
        compacts=any(item.get("type") == TRIGGER for item in given),
        threshold=_threshold(body),
    )


def referred_ids(body: Mapping[str, Any]) -> list[str]:
    """The ids of everything stored that a body refers to, as far as it is well formed."""
    conversation = body.get("conversation")
    items = body.get("input")
    names = [body.get("previous_response_id"), conversation.get("id") if isinstance(conversation, dict) else conversation]
    if isinstance(items, list):
        names += [item["id"] for item in items if isinstance(item, dict) and is_reference(item)]
    return [name for name in names if isinstance(name, str)]


def _is_message(item: ResponseItem) -> bool:
    return "role" in item and item.get("type", "message") == "message"


def is_reference(item: ResponseItem) -> bool:
    """Does the item only name another one? Its type may be left out."""
    kind = item.get("type")
    return isinstance(item.get("id"), str) and (kind == "item_reference" or (kind is None and "role" not in item))


def _text(body: Mapping[str, Any], key: str) -> str | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{key}: must be an id", path=key)
    return value


def _flag(body: Mapping[str, Any], key: str) -> bool | None:
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"{key}: must be true or false", path=key)
    return value


def _conversation(body: Mapping[str, Any]) -> str | None:
    value = body.get("conversation")
    if isinstance(value, dict):
        value = value.get("id")
        if value is None:
            raise InvalidRequest("conversation.id: field required", path="conversation.id")
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise InvalidRequest("conversation: must be an id, or an object with one", path="conversation")
    return value


def _threshold(body: Mapping[str, Any]) -> int | None:
    settings = body.get("context_management")
    if settings is None:
        return None
    if not isinstance(settings, list) or not all(isinstance(entry, dict) for entry in settings):
        raise InvalidRequest("context_management: must be an array of objects", path="context_management")
    for position, entry in enumerate(settings):
        path = f"context_management[{position}]"
        if entry.get("type") != "compaction":
            raise InvalidRequest(f"{path}.type: only compaction is known", path=f"{path}.type")
        threshold = entry.get("compact_threshold")
        if threshold is not None:
            if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 1:
                raise InvalidRequest(f"{path}.compact_threshold: must be a number of tokens", path=f"{path}.compact_threshold")
            return threshold
    return None
