"""Valid messages made wrong in small ways, the same ways for the same seed.

Bytes are flipped, cut, doubled, dropped and mixed with fragments that parsers stumble over; JSON values are replaced by values
of another type, renamed, nested and repeated, so that most mutants get past the JSON decoder and into the code behind it.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

FRAGMENTS = (
    b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\r\n", b"\r\n\r\n", b"\n\n", b"\r", b"data: ", b"data: [DONE]\n\n",
    b"event: error\n", b": ping\n\n", b"HTTP/1.1 500 X\r\n\r\n", b"0\r\n\r\n", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\ud800",
    b"null", b"1e400", b"-", b"<tool_call>", b"</tool_call>", b"<|tool_call_begin|>", b"<think>", b"</think>", b"[TOOL_CALLS]",
    b'{"name": "get_weather"', b"\xe2\x80\xae", b"\xef\xbb\xbf", b"%00", b"../", b"$ref", b"__proto__",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 2**53 + 1, 10**400, 1e308, "", "x", "\ud800", "\x00", "a" * 3000, "..", [], {}, [None], [[]],
    {"": None}, {"type": None}, {"type": "future_thing"}, [{"type": "text"}], {"$ref": "#"}, [1, "two", None, {}],
)  # fmt: skip


def mutated_bytes(data: bytes, dice: random.Random) -> bytes:
    """The message with one to three changes anywhere in its bytes."""
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(data) + 1)
        to = min(len(data), at + dice.choice((1, 1, 2, 8, 64)))
        match dice.randrange(6):
            case 0:
                data = data[:at] + dice.choice(FRAGMENTS) + data[at:]
            case 1:
                data = data[:at] + dice.choice(FRAGMENTS) + data[to:]
            case 2:
                data = data[:at] + data[to:]
            case 3:
                data = data[:to] + data[at:]
            case 4:
                data = data[:at]
            case _:
                data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
    return data


def mutated_value(value: Any, dice: random.Random) -> Any:
    """The JSON value with one to three members replaced, dropped, doubled or renamed, wherever they stand."""
    value = json.loads(json.dumps(value))
    for _ in range(dice.randint(1, 3)):
        places = list(_places(value))
        if not places:
            return copy.deepcopy(dice.choice(VALUES))
        holder, key = dice.choice(places)
        match dice.randrange(8):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[dice.choice(("type", "id", "name", "x" * 300, "\x00", key + "_"))] = holder.pop(key)
            case 2 if isinstance(holder, list):
                holder.insert(key, holder[key])
            case 3:
                holder[key] = [holder[key]]
            case 4:
                other, name = dice.choice(places)
                holder[key] = json.loads(json.dumps(other[name])) if _still_there(other, name) else None
            case _:
                holder[key] = copy.deepcopy(dice.choice(VALUES))
    return value


def _places(value: Any) -> Any:
    """Every member of every object and list, as the holder and the key in it."""
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in list(members):
        yield value, key
        yield from _places(member)


def _still_there(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)
