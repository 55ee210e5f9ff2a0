"""What MiniMax-Provider-Verifier asks of an answer's text, by its own definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from athena.verify.cases import TextCheck

_LETTERS = 3
_OFTEN = 4
_LOOKED_AT = 200_000


def passes_text_check(check: TextCheck, text: str, body: Mapping[str, Any]) -> bool:
    """Does the text of an answer to this request pass?"""
    text = text[:_LOOKED_AT]
    match check:
        case "":
            return True
        case "no_cyrillic":
            return not any("\u0400" <= letter <= "\u04ff" for letter in text)
        case "no_repetition":
            return not _repeats(text)
        case "parameters_in_order":
            return _names_in_order(text, body)
        case "ends_with_bracket":
            return text.endswith("]")


def _repeats(text: str) -> bool:
    """Do any three letters stand in the text four times, not counting those that overlap?"""
    often = Counter(text[start : start + _LETTERS] for start in range(len(text) - _LETTERS + 1))
    return any(text.count(letters) >= _OFTEN for letters, count in often.items() if count >= _OFTEN)


def _names_in_order(text: str, body: Mapping[str, Any]) -> bool:
    """Does the text name the parameters of the first tool in the order in which they are declared, two of them at least?"""
    tools = body.get("tools") or ()
    properties = tools[0]["function"].get("parameters", {}).get("properties", {}) if tools else {}
    names = list(properties)
    found = sorted((place, name) for name in names if (place := text.find(name)) >= 0)
    return len(found) >= 2 and [name for _, name in found] == names[: len(found)]
