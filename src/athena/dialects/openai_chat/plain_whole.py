"""Whole answers of Chat servers that are a text, well-formed calls, or both: read without a tracker of calls in pieces.

`ChatAnswerReader` says the same of them, at length. Whatever it would do more about than to pass them on is none of these: a
second choice, a call without an id, reasoning, a refusal, an unknown field.
"""

from __future__ import annotations

from typing import Any

import msgspec

from athena.dialects.openai_chat.usage import decode_usage
from athena.dialects.openai_chat.vocabulary import CHOICE_KEYS, CHUNK_KEYS, FINISH_KINDS, LABELS
from athena.dialects.openai_chat.wire import decode_value
from athena.model.events import (
    Done,
    Event,
    Finish,
    FinishKind,
    Start,
    TextDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
)  # fmt: skip

_CHUNK_KEYS = CHUNK_KEYS | LABELS
_CHOICE_KEYS = CHOICE_KEYS | LABELS
_CHOICE_READ = frozenset({"index", "message", "finish_reason"})
_MESSAGE_READ = frozenset({"role", "content", "tool_calls"})
_CALL_READ = frozenset({"index", "id", "type", "function"})
_SAYS_MORE = ("x_groq", "timings", "error")
"""Fields of an answer that may say something besides its message."""


def plain_answer(body: bytes, same_dialect: bool) -> list[Event] | None:
    """The answer's start, its text and calls, and its end; None where it is not only that."""
    try:
        value = decode_value(body)
        choices = value["choices"]
        if type(choices) is not list or len(choices) != 1 or value.get("object") == "error":
            return None
        for key in _SAYS_MORE:
            if value.get(key) is not None:
                return None
        choice = choices[0]
        message = choice["message"]
        start = _start(value, same_dialect)
        if start is None or not _is_usual(choice, message, same_dialect):
            return None
        events: list[Event] = [start]
        text, calls = message.get("content"), message.get("tool_calls")
        if text is not None and text != "":
            if type(text) is not str:
                return None
            events.append(TextDelta(text))
        if calls is not None and not (type(calls) is list and _read_calls(calls, events)):
            return None
        kind = _kind(choice["finish_reason"], bool(calls))
        if kind is None or len(events) == 1:
            return None
        usage = value.get("usage")
        counted = decode_usage(usage) if usage is not None else None
        events.append(Done(Finish(kind, choice["finish_reason"]), 0, counted, True))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None  # it is not what it seemed: the reader of everything says what it is
    return events


def _start(value: dict[str, Any], same_dialect: bool) -> Start | None:
    extras = None
    if same_dialect:
        found = {key: item for key, item in value.items() if item is not None and key not in CHUNK_KEYS}
        extras = found or None
    elif not _CHUNK_KEYS.issuperset(value):
        for key, item in value.items():
            if item is not None and key not in _CHUNK_KEYS:
                return None
    created, identity, model = value.get("created"), value.get("id"), value.get("model")
    return Start(
        identity if type(identity) is str else "",
        model if type(model) is str else "",
        int(created) if isinstance(created, int | float) and 0 < created < 1 << 53 else None,
        extras=extras,
    )


def _is_usual(choice: dict[str, Any], message: dict[str, Any], same_dialect: bool) -> bool:
    """Do the choice and its message hold nothing but what is read here?"""
    index = choice.get("index")
    if index is not None and (type(index) is not int or index != 0):
        return False
    known = CHOICE_KEYS if same_dialect else _CHOICE_KEYS
    for key, item in choice.items():
        if item is None or key in _CHOICE_READ:
            continue
        if key not in known or key == "delta" or key == "usage" or type(item) is str:
            return False
    for key, item in message.items():
        if item is None or key in _MESSAGE_READ:
            continue
        if key != "annotations" or item != []:
            return False
    return True


def _read_calls(calls: list[Any], events: list[Event]) -> bool:
    """Add the calls; False where one of them has to be looked at more closely."""
    for number, entry in enumerate(calls):
        function, identity = entry["function"], entry["id"]
        if len(function) != 2 or not _CALL_READ.issuperset(entry) or type(identity) is not str or not identity:
            return False
        name, arguments = function["name"], function["arguments"]
        if type(name) is not str or not name or type(arguments) is not str or not arguments:
            return False
        events.append(ToolCallStart(number, identity, name))
        events.append(ToolCallDelta(number, arguments))
        events.append(ToolCallComplete(number, identity, name, arguments))
    return True


def _kind(reason: Any, has_calls: bool) -> FinishKind | None:
    kind = FINISH_KINDS.get(reason) if type(reason) is str else None
    if has_calls:
        return "tool" if kind == "tool" or kind == "stop" else None
    if kind == "tool":
        return "stop"
    return kind if kind == "stop" or kind == "length" else None
