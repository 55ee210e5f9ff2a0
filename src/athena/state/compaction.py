"""A conversation in fewer words: the model's own summary of it, sealed in an item that stands for what was before it.

The text of a summary goes back to the client encrypted (`encrypted_content`), as with OpenAI: only a gateway with the same key
can read it, and nobody can change it. When it comes back, it is told to the model as a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from athena.model.events import Done, Error, Event, Extra, Finish, Start, TextDelta, WholePart
from athena.model.parts import Foreign
from athena.model.request import Kept
from athena.state.errors import unreadable_compaction
from athena.state.values import ResponseItem

PREFIX = "gwc1."
"""What a sealed summary begins with."""
_ASK = (
    "Write a summary of this conversation so far that will replace it: you will go on from the summary alone. Say what the "
    "user asked for and how they want it done; what was done, found and decided, with the exact names, paths, values and "
    "commands that matter; what failed and why; what is open and what comes next. Leave out what is of no use any more. Write "
    "only the summary, in plain text, and call no tool."
)
_TOLD = "The conversation up to here was replaced by this summary of it:\n\n"
_COVERS = "\n"
"""What the sealed text of a compaction by `context_management` begins with: the client appends it to the whole history, which
it stands for. The summary itself begins with no white space."""
_COMPACTIONS = ("compaction", "compaction_summary")
_INSTRUCTIONS = ("system", "developer")
_SPOKEN = ("function_call", "custom_tool_call")
_RETAINED_CHARS = 80_000
"""Text of the user's own messages that is retained beside a summary, the newest first."""

Seal = Callable[[str], str]
Open = Callable[[str], str | None]


def summary_request(body: dict[str, Any]) -> dict[str, Any]:
    """A request whose history is to be compacted, as one that asks the model for the summary."""
    asking = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": _ASK}]}
    kept = {key: value for key, value in body.items() if key not in ("tool_choice", "text", "include", "max_tool_calls")}
    if kept.get("tools"):
        # The calls of the history need their tools at some upstreams; new calls are not wanted.
        kept["tool_choice"] = "none"
    items = kept.get("input")
    return {**kept, "input": [*(items if isinstance(items, list) else []), asking]}


def retained_messages(items: list[ResponseItem]) -> tuple[ResponseItem, ...]:
    """The user's messages that stay as they are beside a compaction: the newest, as far as there is room."""
    kept: list[ResponseItem] = []
    room = _RETAINED_CHARS
    for item in reversed(items):
        if item.get("role") != "user" or item.get("type") not in (None, "message"):
            continue
        room -= len(msgspec.json.encode(item.get("content")))
        if room < 0:
            break
        kept.append(item)
    return tuple(reversed(kept))


def with_summary(items: list[ResponseItem], added: int, summary: list[ResponseItem]) -> list[ResponseItem]:
    """What the model gets where a summary stands for the items: the request's instructions, the summary, what the request added
    and nobody has answered yet, and the calls that it answers.

    `added`: how many of the items are the request's own. They are the whole history where the client sends that.
    """
    own = len(items) - added
    last = max((index for index, item in enumerate(items) if not _is_answered(item)), default=0)
    answered = max((index + 1 for index, item in enumerate(items[:last]) if _is_answered(item)), default=0)
    start = _before_calls(items, max(own, answered))
    return [*filter(_is_instruction, items[own:start]), *summary, *items[start:]]


def _is_answered(item: ResponseItem) -> bool:
    """Is the item the model's own, or a summary, so that nothing before it waits for an answer?"""
    kind = str(item.get("type"))
    return item.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call") or _is_summary(item)


def _is_instruction(item: ResponseItem) -> bool:
    return item.get("role") in _INSTRUCTIONS


def _before_calls(items: list[ResponseItem], start: int) -> int:
    """Where the items from `start` on have to begin so that each result has its call, and each call its reasoning."""
    called: dict[str, int] = {}
    for index, item in enumerate(items):
        if isinstance(item.get("call_id"), str) and str(item.get("type")).endswith("_call"):
            called.setdefault(item["call_id"], index)
    wanted: set[str] = set()
    for index in range(len(items) - 1, -1, -1):
        if index < start and not wanted:
            break
        start = min(start, index)
        call_id, kind = items[index].get("call_id"), str(items[index].get("type"))
        if isinstance(call_id, str) and kind.endswith("_output") and called.get(call_id, index) < index:
            wanted.add(call_id)
        elif isinstance(call_id, str) and kind.endswith("_call"):
            wanted.discard(call_id)
    while (
        0 < start < len(items)
        and items[start].get("type") in _SPOKEN
        and items[start - 1].get("type") in ("reasoning", *_SPOKEN)
    ):
        start -= 1
    return start


def covering(text: str) -> str:
    """A summary to be sealed for a compaction that stands for everything before it, also for the user's messages."""
    return _COVERS + text


def opened_items(items: list[ResponseItem], unseal: Open) -> list[ResponseItem]:
    """The items with compactions of ours as messages that the model can read; those of others stay.

    What the last one of ours stands for is left out. Instructions stay, and calls whose results come later. A client that
    asked for the compaction may have retained messages before it, which stay where there is nothing else before it.
    """
    opened: list[ResponseItem] = []
    last, covers = 0, False
    for position, item in enumerate(items):
        text = _summary(item, unseal)
        if text is not None:
            last, covers = position, text.startswith(_COVERS)
            item = {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": _TOLD + text.removeprefix(_COVERS)}],
            }
        opened.append(item)
    if not covers and all(item.get("role") in ("user", *_INSTRUCTIONS) for item in items[:last]):
        return opened
    start = _before_calls(opened, last + 1)
    called = opened[start:last] if start <= last else []
    return [*filter(_is_instruction, opened[: min(start, last)]), *called, *opened[last:]]


def _summary(item: ResponseItem, unseal: Open) -> str | None:
    """The text of a compaction of ours; None for any other item. Raises where it cannot be read: without it the model
    would answer another question."""
    sealed = item.get("encrypted_content")
    if item.get("type") not in _COMPACTIONS or not isinstance(sealed, str) or not sealed.startswith(PREFIX):
        return None
    text = unseal(sealed)
    if text is None:
        raise unreadable_compaction()
    return text


def _is_summary(item: ResponseItem) -> bool:
    """Is it a message that `opened_items` has made?"""
    content = item.get("content")
    if item.get("role") != "user" or not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return False
    return str(content[0].get("text")).startswith(_TOLD)


def holds_compaction(items: list[ResponseItem]) -> bool:
    """Is there a compaction of ours among them?"""
    sealed = [item for item in items if "encrypted_content" in item]
    return any(item.get("type") in _COMPACTIONS and str(item["encrypted_content"]).startswith(PREFIX) for item in sealed)


class CompactionStage:
    """The events of an answer that is a summary, as those of one that is a compaction: one item, and nothing beside it."""

    def __init__(self, kept: Kept, seal: Seal | None) -> None:
        assert seal is not None, "a request for a compaction is served with a seal"
        self._kept = kept
        self._seal = seal
        self._pieces: list[str] = []
        self._ended = False

    def feed(self, events: list[Event]) -> list[Event]:
        """The model's text is collected; its reasoning and its calls are left out."""
        passed: list[Event] = []
        for event in events:
            if self._ended:
                break
            match event:
                case TextDelta(choice=0, refusal=False):
                    self._pieces.append(event.text)
                case Done(last=True):
                    self._ended = True
                    passed += self._end(event)
                case Error(fatal=True):
                    self._ended = True
                    passed.append(event)
                case Start() | Extra(choice=None):
                    passed.append(event)
                case _:
                    pass
        return passed

    def _end(self, done: Done) -> list[Event]:
        text = "".join(self._pieces).strip()
        if not text or done.finish.kind in ("filter", "refusal"):
            why = f"it ended with {done.finish.kind}" if text else "it wrote none"
            return [Error(f"the model gave no summary of the conversation: {why}", kind="upstream", code="no_summary")]
        item = compaction_item(self._kept.item_id("cmp_", 0), self._seal(text))
        part = Foreign(kind="compaction", dialect="openai_responses", raw=item)
        return [WholePart(part), Done(Finish(), usage=done.usage, last=True)]


def compaction_item(name: str, sealed: str) -> ResponseItem:
    """The item that stands for what was before it."""
    return {"id": name, "type": "compaction", "encrypted_content": sealed}
