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


def unfinished_tail(items: list[ResponseItem], added: int) -> list[ResponseItem]:
    """What the model still needs beside a summary of everything: what the last request added, and the calls that it answers.

    `added`: how many of the items are the request's own.
    """
    start = len(items) - added
    wanted = {item.get("call_id") for item in items[start:] if str(item.get("type")).endswith("_output")}
    while start > 0 and wanted:
        calls = [index for index in range(start) if items[index].get("call_id") in wanted]
        if not calls:
            break
        start = calls[0]
        wanted = {item.get("call_id") for item in items[start:] if str(item.get("type")).endswith("_output")}
        wanted -= {item.get("call_id") for item in items[start:] if str(item.get("type")).endswith("_call")}
    while start > 0 and items[start].get("type") in _SPOKEN and items[start - 1].get("type") in ("reasoning", *_SPOKEN):
        start -= 1
    return items[start:]


def opened_items(items: list[ResponseItem], unseal: Open) -> list[ResponseItem]:
    """The items with compactions of ours as messages that the model can read; those of others stay."""
    return [_opened(item, unseal) for item in items]


def _opened(item: ResponseItem, unseal: Open) -> ResponseItem:
    sealed = item.get("encrypted_content")
    if item.get("type") not in ("compaction", "compaction_summary") or not isinstance(sealed, str):
        return item
    text = unseal(sealed) if sealed.startswith(PREFIX) else None
    if text is None:
        return item
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": _TOLD + text}]}


def holds_compaction(items: list[ResponseItem]) -> bool:
    """Is there a compaction of ours among them?"""
    sealed = [item for item in items if "encrypted_content" in item]
    return any(
        item.get("type") in ("compaction", "compaction_summary") and str(item["encrypted_content"]).startswith(PREFIX)
        for item in sealed
    )


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
