"""A request that refers to what is stored, as the same request with everything in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from athena.errors import InvalidRequest
from athena.state.asked import TRIGGER, AskedToKeep, is_reference, referred_items
from athena.state.errors import item_not_found, unanswered_call, unknown_call
from athena.state.ids import is_ours
from athena.state.values import History, ResponseItem

_OURS = ("previous_response_id", "conversation", "background", "context_management")
"""What of a body is answered here and is nothing to an upstream that keeps no state."""
_TEXT_KEYS = {"type", "text", "annotations", "logprobs"}
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


class Resolved(msgspec.Struct, frozen=True):
    """A request that stands for itself."""

    body: dict[str, Any]
    """As if the client had sent the whole history and had asked for nothing to be kept."""
    added: tuple[ResponseItem, ...]
    """The items that this request adds to the conversation."""


def input_items(body: Mapping[str, Any]) -> list[ResponseItem]:
    """The input of a body as items; a plain text is a message of the user."""
    given = body.get("input")
    if given is None:
        return []
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    if not isinstance(given, list) or not {*map(type, given)} <= {dict}:
        raise InvalidRequest("input: must be a string or an array of items", path="input")
    return given


def resolve(body: Mapping[str, Any], asked: AskedToKeep, history: History) -> Resolved:
    """Raises what OpenAI says of references to nothing, and of calls and results that do not meet."""
    added = tuple(input_items(body))
    for name in referred_items({"instructions": body.get("instructions")}):
        raise item_not_found(name)  # only those of the input are looked up
    if asked.references or asked.compacts:
        added = tuple([_referred(item, history) for item in added if item.get("type") != TRIGGER])
    if asked.previous is not None or asked.conversation is not None:
        _check_pairs(history.items, added, answers=not asked.compacts)
    whole = {key: value for key, value in body.items() if key not in _OURS}
    if whole.get("truncation") == "auto":
        del whole["truncation"]
    if not asked.needs_history and not asked.compacts and not isinstance(body.get("input"), str):
        whole["input"] = body.get("input")
    elif asked.needs_history or asked.compacts:
        said = history.items if history.is_sent_form else map(sent_item, history.items)
        whole["input"] = [*said, *map(sent_item, added)]
    if whole.get("input") is None:
        whole.pop("input", None)
    whole["store"] = False
    return Resolved(whole, added)


def _referred(item: ResponseItem, history: History) -> ResponseItem:
    if not is_reference(item):
        return item
    found = history.references.get(item["id"])
    if found is None:
        found = next((each for each in history.items if each.get("id") == item["id"]), None)
    if found is None:
        raise item_not_found(item["id"])
    return found


def sent_item(item: ResponseItem) -> ResponseItem:
    """The item for an upstream: an id of ours means nothing there, and some refuse ids that they did not make. What is as it
    is sent already is the same object.

    A message that is nothing but text is said as text, which is read three times as fast as the same in parts.
    """
    kind, name = item.get("type"), item.get("id")
    ours = isinstance(name, str) and is_ours(name)
    if not ours or kind == "reasoning":
        return item
    if kind == "message":
        text = _only_text(item)
        if text is not None:
            return {"role": item["role"], "content": text}
    return {key: value for key, value in item.items() if key != "id"}


def _only_text(item: ResponseItem) -> str | None:
    content = item.get("content")
    if not isinstance(content, list) or len(content) != 1 or item.get("phase") is not None or item.get("status") != "completed":
        return None
    part = content[0]
    if part.get("type") not in ("input_text", "output_text") or part.get("annotations") or part.keys() - _TEXT_KEYS:
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None


def _check_pairs(before: Iterable[ResponseItem], added: Iterable[ResponseItem], *, answers: bool) -> None:
    """Every result needs its call, and where the conversation goes on every call needs its result."""
    open_calls: dict[str, None] = {}
    known: set[str] = set()
    for item in before:
        if "call_id" in item:
            _note_pair(item, open_calls, known)
    for item in added:
        call_id = item.get("call_id")
        if item.get("type") in _RESULTS and isinstance(call_id, str) and call_id not in known:
            raise unknown_call(call_id)
        _note_pair(item, open_calls, known)
    if open_calls and answers:
        raise unanswered_call(next(iter(open_calls)))


def _note_pair(item: ResponseItem, open_calls: dict[str, None], known: set[str]) -> None:
    kind, call_id = item.get("type"), item.get("call_id")
    if not isinstance(call_id, str):
        return
    if kind in _CALLS:
        known.add(call_id)
        if not item.get("async"):
            open_calls[call_id] = None
    elif kind in _RESULTS:
        open_calls.pop(call_id, None)


def is_compaction(item: bytes) -> bool:
    """Is that the JSON of a compaction?"""
    return b'"compaction"' in item and msgspec.json.decode(item).get("type") == "compaction"


def output_compacts(output: bytes) -> bool:
    """Is there a compaction in the output of a stored response, a JSON array? It stands for everything before it."""
    return b'"compaction"' in output and any(item.get("type") == "compaction" for item in msgspec.json.decode(output))


def needed_parts(parts: list[bytes]) -> list[bytes]:
    """Of the input and the output of each response in turn: what a continuation needs of them."""
    last = next((place for place in range(len(parts) - 1, 0, -2) if output_compacts(parts[place])), None)
    return parts if last is None else [b"[]", *parts[last:]]


def joined_chain(parts: Iterable[bytes]) -> list[ResponseItem]:
    """The items of stored responses in order: the input and the output of each, as JSON arrays, in turn."""
    return from_compaction(map(msgspec.json.decode, parts))


def from_compaction(sides: Iterable[list[ResponseItem]]) -> list[ResponseItem]:
    """The same of lists of items. Where an output holds a compaction, that stands for everything before it."""
    items: list[ResponseItem] = []
    for position, found in enumerate(sides):
        if position % 2:
            last = max((index for index, item in enumerate(found) if item.get("type") == "compaction"), default=None)
            if last is not None:
                items = []
                found = found[last:]
        items += found
    return items


def truncated(items: list[ResponseItem], fits: Callable[[list[ResponseItem]], bool]) -> list[ResponseItem]:
    """The newest items that fit, from the first one on that a conversation can begin with.

    Leading instructions stay. A conversation is cut in front of a user's message, so that no result loses its call; where not
    even the last such message fits, all after it is kept and the model says that it is too long.
    """
    start = 0
    while start < len(items) and items[start].get("role") in ("system", "developer"):
        start += 1
    head, rest = items[:start], items[start:]
    if fits(items):
        return items
    cuts = [index for index, item in enumerate(rest) if index and item.get("role") == "user"]
    low, high = 0, len(cuts) - 1
    # The further the cut, the less is left: the first one that fits is found by halving.
    while low < high:
        middle = (low + high) // 2
        if fits([*head, *rest[cuts[middle] :]]):
            high = middle
        else:
            low = middle + 1
    return [*head, *rest[cuts[low] :]] if cuts else items
