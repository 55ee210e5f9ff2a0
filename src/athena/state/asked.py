"""What the body of a Responses request asks of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from athena.errors import InvalidRequest
from athena.state.errors import mutually_exclusive
from athena.state.values import ResponseItem

TRIGGER = "compaction_trigger"
_MOST_METADATA = 16
_LONGEST_KEY = 64
_LONGEST_VALUE = 512


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
    read_metadata(body)
    items = body.get("input")
    # Most items are messages: one look at each of those is enough.
    given = [item for item in items if isinstance(item, dict) and not _is_message(item)] if isinstance(items, list) else []
    if conversation is not None and isinstance(items, list):
        check_item_ids(items, "input")
    return AskedToKeep(
        store=store,
        previous=previous,
        conversation=conversation,
        references=tuple([item["id"] for item in given if is_reference(item)]),
        background=bool(background),
        truncates=_truncates(body),
        compacts=any(item.get("type") == TRIGGER for item in given),
        threshold=_threshold(body),
    )


def read_metadata(body: Mapping[str, Any]) -> dict[str, str]:
    """Up to 16 pairs of texts, as OpenAI allows. Raises InvalidRequest."""
    value = body.get("metadata")
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidRequest("metadata: must be an object of texts", path="metadata")
    if len(value) > _MOST_METADATA or any(len(k) > _LONGEST_KEY or len(v) > _LONGEST_VALUE for k, v in value.items()):
        message = (
            f"metadata: at most {_MOST_METADATA} entries, keys of {_LONGEST_KEY} and values of {_LONGEST_VALUE} characters"
        )
        raise InvalidRequest(message, path="metadata")
    return value


def _truncates(body: Mapping[str, Any]) -> bool:
    value = body.get("truncation")
    if value not in (None, "auto", "disabled"):
        raise InvalidRequest("Invalid value for 'truncation'. Supported values are: 'auto', 'disabled'.", path="truncation")
    return value == "auto"


def referred_ids(body: Mapping[str, Any]) -> list[str]:
    """The ids of everything stored that a body refers to, as far as it is well formed."""
    conversation = body.get("conversation")
    names = [body.get("previous_response_id"), conversation.get("id") if isinstance(conversation, dict) else conversation]
    return [*[name for name in names if isinstance(name, str)], *referred_items(body)]


def continues(body: Mapping[str, Any]) -> bool:
    """Does a body refer to anything stored, well formed or not?"""
    return any(body.get(key) is not None for key in ("previous_response_id", "conversation")) or bool(referred_items(body))


def referred_items(body: Mapping[str, Any]) -> list[str]:
    """The ids of the items that stand in the input of a body by reference, or in instructions that are items."""
    lists = [given for key in ("input", "instructions") if isinstance(given := body.get(key), list)]
    return [item["id"] for items in lists for item in items if isinstance(item, dict) and is_reference(item)]


def check_item_ids(items: Sequence[object], path: str) -> None:
    """Raises InvalidRequest for an item of a conversation whose id a store cannot hold: PostgreSQL has no text with a NUL."""
    for position, item in enumerate(items):
        if isinstance(item, dict) and isinstance(name := item.get("id"), str) and "\0" in name:
            raise InvalidRequest(f"{path}[{position}].id: must not hold a NUL", path=f"{path}[{position}].id")


def _is_message(item: ResponseItem) -> bool:
    return item.get("role") is not None and item.get("type", "message") == "message"


def is_reference(item: ResponseItem) -> bool:
    """Does the item only name another one? Its type may be left out."""
    kind = item.get("type")
    return isinstance(item.get("id"), str) and (kind == "item_reference" or (not kind and item.get("role") is None))


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
