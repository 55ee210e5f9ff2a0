"""Whole answers of Chat servers that are one text: read without a reader of calls, reasoning and several choices.

`ChatAnswerReader` says the same of them, at length. Whatever it would do more about than to pass the text on is none of these:
a second choice, a call, reasoning, a refusal, a field that nobody knows.
"""

from __future__ import annotations

from typing import Any

import msgspec

from athena.dialects.openai_chat.usage import decode_usage
from athena.dialects.openai_chat.vocabulary import CHOICE_KEYS, CHUNK_KEYS, DELTA_KEYS, FINISH_ERRORS, FINISH_KINDS, LABELS
from athena.dialects.openai_chat.wire import decode_value
from athena.model.events import Done, Event, Finish, Start, TextDelta

_CHUNK_KEYS = CHUNK_KEYS | LABELS
_CHOICE_KEYS = CHOICE_KEYS | LABELS
_DELTA_KEYS = DELTA_KEYS | LABELS
_CHOICE_READ = frozenset({"index", "message", "finish_reason"})
_SAYS_MORE = ("x_groq", "timings", "error")
"""Fields of an answer that may say something besides the text."""
_ENDS = frozenset(word for word, kind in FINISH_KINDS.items() if kind in ("stop", "length"))


def plain_answer(body: bytes, same_dialect: bool) -> list[Event] | None:
    """The answer's start, text and end; None where it is not only that."""
    try:
        value = decode_value(body)
        choice = _only_choice(value)
        if choice is None:
            return None
        message: dict[str, Any] = choice["message"]
        text = message["content"]
        return _events(value, choice, message, text, same_dialect) if type(text) is str and text else None
    except (KeyError, TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None  # it is not what it seemed: the reader of everything says what it is


def _only_choice(value: Any) -> dict[str, Any] | None:
    choices = value["choices"]
    if type(choices) is not list or len(choices) != 1 or value.get("object") == "error":
        return None
    for key in _SAYS_MORE:
        if value.get(key) is not None:
            return None
    choice = choices[0]
    return choice if type(choice) is dict else None


def _events(
    value: dict[str, Any], choice: dict[str, Any], message: dict[str, Any], text: str, same_dialect: bool
) -> list[Event] | None:
    reason = choice["finish_reason"]
    if type(reason) is not str or reason not in _ENDS or reason in FINISH_ERRORS:
        return None
    index = choice.get("index")
    if index is not None and (type(index) is not int or index != 0):
        return None
    extras = None
    if same_dialect:
        found = {key: item for key, item in value.items() if item is not None and key not in CHUNK_KEYS}
        extras = found or None
        choice_keys, message_keys = CHOICE_KEYS, DELTA_KEYS
    else:
        for key, item in value.items():
            if item is not None and key not in _CHUNK_KEYS:
                return None
        choice_keys, message_keys = _CHOICE_KEYS, _DELTA_KEYS
    for key, item in choice.items():
        if item is None or key in _CHOICE_READ:
            continue
        if key not in choice_keys or key == "delta" or key == "usage" or type(item) is str:
            return None
    for key, item in message.items():
        if item is None or key == "content" or key == "role":
            continue
        if key not in message_keys or item != [] or (key != "tool_calls" and key != "annotations"):
            return None
    created, identity, model = value.get("created"), value.get("id"), value.get("model")
    start = Start(
        identity if type(identity) is str else "",
        model if type(model) is str else "",
        int(created) if isinstance(created, int | float) and 0 < created < 1 << 53 else None,
        extras=extras,
    )
    usage = value.get("usage")
    counted = decode_usage(usage) if usage is not None else None
    return [start, TextDelta(text), Done(Finish(FINISH_KINDS[reason], reason), 0, counted, True)]
