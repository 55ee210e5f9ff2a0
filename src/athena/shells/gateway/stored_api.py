"""What clients do to stored responses and conversations: read, list, change, cancel and delete them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from athena.dialects.openai_responses.decode_items import check_items
from athena.dialects.openai_responses.vocabulary import CONVERSATION_ITEMS, MESSAGE_ROLES
from athena.errors import ClientError, InvalidRequest
from athena.serving.endpoints import Endpoint
from athena.shells.gateway.responses_state import ResponsesState
from athena.state.asked import check_item_ids, is_reference, read_metadata
from athena.state.errors import conversation_not_found, duplicate_item, item_not_found, response_not_found
from athena.state.ids import CONVERSATION, RANDOM_BYTES, item_prefix, new_id
from athena.state.stored import check_includes, list_object, listed, page_of, read_page, response_object, with_ids
from athena.state.values import OPEN, Conversation, ResponseItem, StoredItem, StoredResponse
from athena.wire.surrogates import encode_json

_MOST_ITEMS = 20
"""Items that one request may add to a conversation, as with OpenAI."""


def nothing_kept() -> ClientError:
    """The answer where nothing is kept."""
    return ClientError(
        "this gateway keeps no responses and no conversations (store: false in its configuration)",
        kind="not_found",
        code="unsupported_endpoint",
        status=404,
    )


class StoredApi:
    """The endpoints of what is stored, for one owner at a time."""

    def __init__(self, state: ResponsesState) -> None:
        self._state = state
        self._store = state.store

    async def answer(self, endpoint: Endpoint, method: str, query: str, body: dict[str, Any], owner: str) -> dict[str, Any]:
        """The answer to a request. Raises in OpenAI's words."""
        names = endpoint.names
        given = parse_qsl(query, max_num_fields=50)
        check_includes(given)
        asked = dict(given)
        match endpoint.stored, method:
            case "response", "GET":
                return response_object(await self._response(owner, names[0]))
            case "response", _:
                return await self._delete_response(owner, names[0])
            case "input_items", _:
                return await self._input_items(owner, names[0], asked)
            case "cancel", _:
                return await self._cancel(owner, names[0])
            case "conversations", _:
                return await self._make_conversation(owner, body)
            case "conversation", "GET":
                return conversation_object(await self._conversation(owner, names[0]))
            case "conversation", "POST":
                return await self._update_conversation(owner, names[0], body)
            case "conversation", _:
                return await self._delete_conversation(owner, names[0])
            case "items", "GET":
                return await self._items(owner, names[0], asked)
            case "items", _:
                return await self._add_items(owner, names[0], body)
            case "item", "GET":
                return (await self._item(owner, names[0], names[1]))[0]
            case _:
                return await self._delete_item(owner, names[0], names[1])

    # -- responses -----------------------------------------------------------------------------------------------------------

    async def _response(self, owner: str, name: str) -> StoredResponse:
        found = await self._store.response(owner, name)
        if found is None:
            raise response_not_found(name)
        return found

    async def _delete_response(self, owner: str, name: str) -> dict[str, Any]:
        if not await self._store.delete_response(owner, name):
            raise response_not_found(name)
        return {"id": name, "object": "response", "deleted": True}

    async def _input_items(self, owner: str, name: str, asked: Mapping[str, str]) -> dict[str, Any]:
        """Everything that the model was given: what was said before, then what the request added."""
        page = read_page(asked)
        turns = await self._store.turns(owner, name)
        if turns is None:
            raise response_not_found(name)
        items: list[ResponseItem] = []
        for each, given, output in turns:
            items += with_ids(msgspec.json.decode(given), each)
            if each != name:
                items += msgspec.json.decode(output)
        return page_of(items, page)

    async def _cancel(self, owner: str, name: str) -> dict[str, Any]:
        """End a response in the background; one that is over stays as it is."""
        found = await self._response(owner, name)
        if not found.background:
            raise InvalidRequest("Cannot cancel a synchronous response.", code="not_in_background")
        if found.status in OPEN:
            body = {**msgspec.json.decode(found.body), "status": "cancelled"}
            await self._store.cancel_response(owner, name)
            await self._store.finish_response(msgspec.structs.replace(found, status="cancelled", body=encode_json(body)))
            found = await self._response(owner, name)
        return response_object(found)

    async def stream_from(self, owner: str, name: str, query: str) -> int | None:
        """The number of the event after which the stream of a response is asked for; None: the response itself is.
        Raises where it has no stream."""
        asked = dict(parse_qsl(query, max_num_fields=50))
        if asked.get("stream") not in ("true", "True", "1"):
            return None
        found = await self._response(owner, name)
        if not found.background:
            raise InvalidRequest("Only a response that was created with background=true can be streamed.", path="stream")
        after = asked.get("starting_after", "-1")
        if after != "-1" and not (after.isascii() and after.isdigit() and len(after) < 16):
            raise InvalidRequest("starting_after: must be the sequence_number of an event", path="starting_after")
        return int(after)

    # -- conversations -------------------------------------------------------------------------------------------------------

    async def _conversation(self, owner: str, name: str) -> Conversation:
        found = await self._store.conversation(owner, name)
        if found is None:
            raise conversation_not_found(name)
        return found

    async def _make_conversation(self, owner: str, body: Mapping[str, Any]) -> dict[str, Any]:
        metadata = read_metadata(body)
        items = await self._new_items(owner, body) if body.get("items") is not None else []
        made = Conversation(
            id=new_id(CONVERSATION, time.time(), os.urandom(RANDOM_BYTES)),
            owner=owner,
            created=float(int(time.time())),
            metadata=encode_json(metadata),
        )
        await self._store.put_conversation(made, _stored(items))
        return conversation_object(made)

    async def _update_conversation(self, owner: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if "metadata" not in body:
            raise InvalidRequest("metadata: field required", path="metadata")
        if not await self._store.set_metadata(owner, name, encode_json(read_metadata(body))):
            raise conversation_not_found(name)
        return conversation_object(await self._conversation(owner, name))

    async def _delete_conversation(self, owner: str, name: str) -> dict[str, Any]:
        if not await self._store.delete_conversation(owner, name):
            raise conversation_not_found(name)
        return {"id": name, "object": "conversation.deleted", "deleted": True}

    async def _items(self, owner: str, name: str, asked: Mapping[str, str]) -> dict[str, Any]:
        page = read_page(asked)
        await self._conversation(owner, name)
        after: int | None = None
        if page.after is not None:
            found = await self._store.item(owner, page.after, name)
            if found is None:
                raise InvalidRequest(f"after: no item with id '{page.after[:200]}'", path="after")
            after = found[1]
        items = await self._store.items(name, after=after, limit=page.limit + 1, newest_first=page.order == "desc")
        shown: list[ResponseItem] = [msgspec.json.decode(item.body) for item in items[: page.limit]]
        return list_object(shown, has_more=len(items) > page.limit)

    async def _add_items(self, owner: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        items = await self._new_items(owner, body)
        given = [each.get("id") for each in body["items"]]
        for position, item in enumerate(items):
            if item["id"] in given and await self._store.item(owner, item["id"], name) is not None:
                raise duplicate_item(item["id"], f"items[{position}].id")
        added = await self._store.add_new_items(owner, name, _stored(items))
        if isinstance(added, str):
            raise duplicate_item(added, "items")
        if not added:
            raise conversation_not_found(name)
        return list_object(items, has_more=False)

    async def _new_items(self, owner: str, body: Mapping[str, Any]) -> list[ResponseItem]:
        """The items of a body, each with an id of its own; a reference is the item that it names."""
        given = _given_items(body)
        found = await self._state.referred(owner, [item["id"] for item in given if is_reference(item)])
        items = [found[item["id"]] if is_reference(item) else listed(item, _id_of(item)) for item in given]
        taken: set[str] = set()
        for position, item in enumerate(items):
            if item["id"] in taken:
                raise duplicate_item(item["id"], f"items[{position}].id")
            taken.add(item["id"])
        return items

    async def _item(self, owner: str, conversation: str, name: str) -> tuple[ResponseItem, int]:
        await self._conversation(owner, conversation)
        found = await self._store.item(owner, name, conversation)
        if found is None:
            raise item_not_found(name)
        item: ResponseItem = msgspec.json.decode(found[0].body)
        return item, found[1]

    async def _delete_item(self, owner: str, conversation: str, name: str) -> dict[str, Any]:
        found = await self._conversation(owner, conversation)
        if not await self._store.delete_item(owner, conversation, name):
            raise item_not_found(name)
        return conversation_object(found)


def conversation_object(conversation: Conversation) -> dict[str, Any]:
    """The conversation as a client gets it."""
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created),
        "metadata": msgspec.json.decode(conversation.metadata),
    }


def _given_items(body: Mapping[str, Any]) -> list[ResponseItem]:
    """The items of a body as they came. Raises InvalidRequest for what a conversation cannot go on with."""
    items = body.get("items")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InvalidRequest("items: must be an array of items", path="items")
    if len(items) > _MOST_ITEMS:
        raise InvalidRequest(f"items: at most {_MOST_ITEMS} items at a time", path="items")
    # A request with such an item is refused: so would be every response of the conversation.
    check_items(items, "items")
    for position, item in enumerate(items):
        if is_reference(item):
            continue
        kind, role = item.get("type") or "message", item.get("role")
        if kind not in CONVERSATION_ITEMS:
            raise _unknown(f"items[{position}].type", kind, CONVERSATION_ITEMS)
        if kind == "message" and role not in MESSAGE_ROLES:
            raise _unknown(f"items[{position}].role", role, MESSAGE_ROLES)
    check_item_ids(items, "items")
    return items


def _unknown(path: str, value: object, known: frozenset[str]) -> InvalidRequest:
    return InvalidRequest(f"{path}: '{str(value)[:200]}' is none of {', '.join(sorted(known))}", path=path)


def _id_of(item: ResponseItem) -> str:
    given = item.get("id")
    return given if isinstance(given, str) and given else new_id(item_prefix(item), time.time(), os.urandom(RANDOM_BYTES))


def _stored(items: list[ResponseItem]) -> list[StoredItem]:
    return [StoredItem(str(item["id"]), encode_json(item)) for item in items]
