"""Ids of stored objects: ours, unguessable, and telling of an item which response holds it.

An id is a prefix that says what it names, `ath`, and 40 hexadecimal digits: the second in which it was made, and 128 random
bits. The time comes first so that what is made together stands together in a database's index, where each new row would else
change a page of its own. No other server of this API writes such ids. An item of a response has the digits of its response and
its place there: `i` for what the client sent, `o` for what the model said. So a reference to an item needs no index. Whoever
knows an id may still read nothing of another owner.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

RANDOM_BYTES = 16
"""Random bytes that a new id is made of."""
RESPONSE = "resp_"
CONVERSATION = "conv_"
_OURS = re.compile(r"[a-z]+_ath[0-9a-f]{40}(?:[io][0-9a-f]{1,8})?")
_PLACE = re.compile(r"[a-z]+_(ath[0-9a-f]{40})([io])([0-9a-f]{1,8})")
_PREFIXES = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "compaction": "cmp_",
}

ItemSide = Literal["i", "o"]


class ItemPlace(msgspec.Struct, frozen=True):
    """Where an item stands: in which response, on which side, at which position."""

    response: str
    side: ItemSide
    position: int


def new_id(prefix: str, now: float, random: bytes) -> str:
    """An id that is made at this time of day, of `RANDOM_BYTES` random bytes."""
    return f"{prefix}ath{int(now) & 0xFFFFFFFF:08x}{random.hex()}"


def is_ours(name: str) -> bool:
    """Is this an id that a gateway of ours made?"""
    return "_ath" in name and _OURS.fullmatch(name) is not None


def item_prefix(item: dict[str, Any]) -> str:
    """How the id of such an item begins."""
    return _PREFIXES.get(item.get("type") or "message", "item_")


def item_id(prefix: str, response: str, side: ItemSide, position: int) -> str:
    """The id of an item of that response."""
    return f"{prefix}{response.removeprefix(RESPONSE)}{side}{position:x}"


def place_of(name: str) -> ItemPlace | None:
    """Where the item of this id stands; None for an id that does not tell."""
    found = _PLACE.fullmatch(name)
    if found is None:
        return None
    return ItemPlace(RESPONSE + found[1], "i" if found[2] == "i" else "o", int(found[3], 16))
