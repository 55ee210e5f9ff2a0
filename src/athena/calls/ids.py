"""Call ids: made from what is known, never from a clock or a counter of ours, so that every turn of a conversation gets the
same bytes again. Limits per target: docs/reference/wire-facts.md#tool-ids.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable

from athena.model.parts import Part, ToolCall, ToolResult, changed
from athena.model.profile import IdStyle
from athena.model.request import Turn

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_62_SQUARED, _62_TO_THE_4, _62_TO_THE_8 = 62**2, 62**4, 62**8
_PAIRS = tuple(low + high for high in _BASE62 for low in _BASE62)
_SAFE = re.compile(r"[A-Za-z0-9_-]+")
_MISTRAL = re.compile(r"[A-Za-z0-9]{9}")
_PRINTABLE = re.compile(r"[!-~]+")


def hashed(text: str, length: int = 24) -> str:
    """`length` base62 characters that depend on all of `text`."""
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    digits: list[str] = []
    while len(digits) * 2 < length:
        # Eight digits at a time: what is left to divide is then a number of the machine's own size.
        number, part = divmod(number, _62_TO_THE_8)
        high, low = divmod(part, _62_TO_THE_4)
        digits += (
            _PAIRS[low % _62_SQUARED], _PAIRS[low // _62_SQUARED], _PAIRS[high % _62_SQUARED], _PAIRS[high // _62_SQUARED]
        )  # fmt: skip
    return "".join(digits)[:length]


def synthesized_id(seed: str, number: int, prefix: str = "call_") -> str:
    """The id of a call whose upstream gave none: the same for the same answer and position."""
    return prefix + hashed(f"{seed}\0{number}")


def fitting_id(call_id: str, style: IdStyle) -> str:
    """The id itself when the target takes it, else a hash of it in the target's form."""
    if style == "anthropic":
        return call_id if _SAFE.fullmatch(call_id) else "toolu_" + hashed(call_id)
    if style == "chat":
        return call_id if len(call_id) <= 40 and _PRINTABLE.fullmatch(call_id) else "call_" + hashed(call_id)
    if style == "responses":
        return call_id if len(call_id) <= 64 and _PRINTABLE.fullmatch(call_id) else "call_" + hashed(call_id)
    if style == "mistral":
        return call_id if _MISTRAL.fullmatch(call_id) else hashed(call_id, 9)
    return call_id


_TAKEN: dict[IdStyle, Callable[[str], object]] = {
    "anthropic": _SAFE.fullmatch,
    "chat": re.compile(r"[!-~]{1,40}").fullmatch,
    "responses": re.compile(r"[!-~]{1,64}").fullmatch,
    "mistral": _MISTRAL.fullmatch,
    "kimi": lambda call_id: False,
}


def any_id(call_id: str) -> bool:
    """Takes ids as they are, like a prompt does: it shows none, or as text."""
    return True


def id_fits(style: IdStyle) -> Callable[[str], object]:
    """What is true for the ids that a target of this style takes as they are. Kimi takes none: its ids are made of names and
    numbers."""
    return _TAKEN.get(style, any_id)


def unique_history_ids(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Make call ids unique over a conversation: servers that restart at call_0 each turn repeat them.

    The second and later uses of an id get the ordinal of their turn as a suffix. Results follow the latest turn that used the
    id; calls of one turn with the same id get their results in order.
    """
    seen: set[str] = set()
    current: dict[str, tuple[int, list[str]]] = {}
    turned: list[Turn] = []
    for ordinal, turn in enumerate(turns):
        renamed: list[Part] = []
        dirty = False
        for part in turn.parts:
            if isinstance(part, ToolCall):
                fresh = part.id
                if fresh in seen:
                    fresh = f"{part.id}_{ordinal}"
                    while fresh in seen:
                        fresh += "x"
                seen.add(fresh)
                used_in, waiting = current.get(part.id, (-1, []))
                if used_in == ordinal:
                    waiting.append(fresh)
                else:
                    current[part.id] = (ordinal, [fresh])
                if fresh != part.id:
                    part = changed(part, id=fresh)
                    dirty = True
            elif isinstance(part, ToolResult):
                _, waiting = current.get(part.call_id, (-1, [part.call_id]))
                fresh = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                if fresh != part.call_id:
                    part = changed(part, call_id=fresh)
                    dirty = True
            renamed.append(part)
        turned.append(changed(turn, parts=tuple(renamed)) if dirty else turn)
    return tuple(turned)


def fit_history_ids(turns: Iterable[Turn], style: IdStyle) -> tuple[Turn, ...]:
    """Rewrite the ids of calls and results alike to what the target takes."""
    kimi: dict[str, str] = {}
    turned: list[Turn] = []
    for turn in turns:
        renamed: list[Part] = []
        dirty = False
        for part in turn.parts:
            if isinstance(part, ToolCall):
                if style == "kimi":
                    kimi[part.id] = f"functions.{part.name}:{len(kimi)}"
                fresh = kimi.get(part.id, part.id) if style == "kimi" else fitting_id(part.id, style)
                if fresh != part.id:
                    part = changed(part, id=fresh)
                    dirty = True
            elif isinstance(part, ToolResult) and part.call_id:
                fresh = kimi.get(part.call_id, part.call_id) if style == "kimi" else fitting_id(part.call_id, style)
                if fresh != part.call_id:
                    part = changed(part, call_id=fresh)
                    dirty = True
            renamed.append(part)
        turned.append(changed(turn, parts=tuple(renamed)) if dirty else turn)
    return tuple(turned)
