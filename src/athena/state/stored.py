"""What is kept of an answer, and how it is shown again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from athena.errors import InvalidRequest
from athena.state.asked import AskedToKeep
from athena.state.ids import item_id, item_prefix
from athena.state.values import ResponseItem, StoredItem, StoredResponse
from athena.wire.response_json import ResponseJson
from athena.wire.surrogates import encode_json

_STATUSED = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
_MOST_SHOWN = 100
_LOST = "The gateway that made this response ended, or could not reach the store."
INCLUDES = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
)
"""What a client may ask to be shown of what is stored."""


def shown_fields(asked: AskedToKeep, *, stored: bool) -> dict[str, Any]:
    """The fields of the response object that the store decides."""
    fields: dict[str, Any] = {
        "background": asked.background,
        "previous_response_id": asked.previous,
        "store": stored,
        "truncation": "auto" if asked.truncates else "disabled",
    }
    if asked.conversation is not None:
        fields["conversation"] = {"id": asked.conversation}
    return fields


def listed(item: ResponseItem, name: str) -> ResponseItem:
    """An item of a request as lists show it: with its id, its status and its parts written out."""
    kind = item.get("type") or "message"
    if kind != "message":
        status = {"status": "completed"} if kind in _STATUSED and item.get("status") is None else {}
        return {**item, "type": kind, "id": name, **status}
    content, role = item.get("content"), item.get("role")
    if isinstance(content, str):
        part = (
            {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
            if role == "assistant"
            else {"type": "input_text", "text": content}
        )
        content = [part]
    return {**item, "type": "message", "id": name, "status": item.get("status") or "completed", "content": content}


def with_ids(items: Iterable[ResponseItem], response: str) -> list[ResponseItem]:
    """The items that a request adds, each with an id; one that it has stays."""
    named: list[ResponseItem] = []
    for position, item in enumerate(items):
        given = item.get("id")
        name = given if isinstance(given, str) and given else item_id(item_prefix(item), response, "i", position)
        named.append(listed(item, name))
    return named


def stored_response(
    final: Mapping[str, Any],
    written: ResponseJson,
    *,
    owner: str,
    created: float,
    asked: AskedToKeep,
    added: Sequence[ResponseItem],
    position: int | None,
) -> StoredResponse:
    """What to keep of a finished response; `position` is its place in its conversation."""
    return StoredResponse(
        id=final["id"],
        owner=owner,
        created=created,
        parent=asked.previous,
        conversation=asked.conversation,
        position=position,
        status=final["status"],
        background=asked.background,
        body=written.rest,
        input=encode_json(added),
        output=written.output,
        compacts=any(item.get("type") == "compaction" for item in final["output"]),
    )


def conversation_items(final: Mapping[str, Any], *, asked: AskedToKeep, added: Sequence[ResponseItem]) -> list[StoredItem]:
    """The items that a finished response adds to its conversation."""
    if asked.conversation is None or final["status"] in ("failed", "cancelled"):
        return []
    said = (*with_ids(added, final["id"]), *final["output"])
    return [StoredItem(str(item.get("id")), encode_json(item)) for item in said]


def listed_input(stored: StoredResponse) -> list[ResponseItem]:
    """What a request added, as lists show it. It is stored as it came: few ask for the list, and all pay for writing."""
    return with_ids(msgspec.json.decode(stored.input), stored.id)


def response_object(stored: StoredResponse) -> dict[str, Any]:
    """The response as a client gets it."""
    body: dict[str, Any] = msgspec.json.decode(stored.body)
    if stored.status != body.get("status"):
        body["status"] = stored.status
        if stored.status == "failed" and not body.get("error"):
            body["error"] = {"code": "server_error", "message": _LOST}
    return {**body, "output": msgspec.json.decode(stored.output)}


def last_event(response: StoredResponse, number: int) -> bytes:
    """The last event of the stream of a response that is over, as JSON. The API has no event for a response that was cancelled,
    so that ends as a failed one does, and its status says what it is."""
    kind = "response.failed" if response.status in ("failed", "cancelled") else f"response.{response.status}"
    whole = msgspec.Raw(ResponseJson(response.body, response.output).whole())
    return encode_json({"type": kind, "sequence_number": number, "response": whole})


# -- lists -------------------------------------------------------------------------------------------------------------------


class Page(msgspec.Struct, frozen=True):
    """Which part of a list is asked for."""

    limit: int = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


def check_includes(query: Iterable[tuple[str, str]]) -> None:
    """Whatever is stored is shown whole, so there is nothing to add. Raises InvalidRequest for an unknown value."""
    for key, value in query:
        if key in ("include", "include[]") and value not in INCLUDES:
            known = ", ".join(f"'{each}'" for each in INCLUDES)
            raise InvalidRequest(f"Invalid value: '{value[:200]}'. Supported values are: {known}.", path="include")


def read_page(query: Mapping[str, str]) -> Page:
    """From a query. Raises InvalidRequest."""
    limit, order = query.get("limit", "20"), query.get("order", "desc")
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:6]) <= _MOST_SHOWN:
        raise InvalidRequest(f"limit: must be a number from 1 to {_MOST_SHOWN}", path="limit")
    if order not in ("asc", "desc"):
        raise InvalidRequest("order: must be asc or desc", path="order")
    return Page(int(limit), "asc" if order == "asc" else "desc", query.get("after") or None)


def page_of(items: list[ResponseItem], page: Page) -> dict[str, Any]:
    """The part of a whole list, which is given in the order in which it was said. Raises InvalidRequest."""
    ordered = items if page.order == "asc" else items[::-1]
    start = 0
    if page.after is not None:
        found = next((index for index, item in enumerate(ordered) if item.get("id") == page.after), None)
        if found is None:
            raise InvalidRequest(f"after: no item with id '{page.after[:200]}'", path="after")
        start = found + 1
    return list_object(ordered[start : start + page.limit], has_more=start + page.limit < len(ordered))


def list_object(items: list[ResponseItem], *, has_more: bool) -> dict[str, Any]:
    """A list in OpenAI's form."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0].get("id") if items else None,
        "last_id": items[-1].get("id") if items else None,
        "has_more": has_more,
    }
