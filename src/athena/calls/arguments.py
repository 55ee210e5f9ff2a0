"""Arguments between the dialects that write them as text and those that write them as an object.

An object dialect cannot hold arguments that are not an object: they are wrapped under a key of ours and unwrapped on the way
back, so a broken call in a history stays exactly what the model wrote.

Wire facts: docs/reference/wire-facts.md#pairing-and-order.
"""

from __future__ import annotations

from typing import Any

import msgspec

RAW_KEY = "_raw_arguments"
VALUE_KEY = "_value"


def arguments_object(text: str) -> dict[str, Any]:
    """JSON text as the object that an object dialect needs."""
    if not text.strip():
        return {}
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {RAW_KEY: text}
    if value is None:
        return {}
    return value if isinstance(value, dict) else {VALUE_KEY: value}


def arguments_text(value: object) -> str:
    """An object dialect's arguments as compact JSON text; our own wrappers are undone."""
    if value is None:
        return "{}"
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and len(value) == 1:
        if isinstance(value.get(RAW_KEY), str):
            return str(value[RAW_KEY])
        if VALUE_KEY in value:
            return msgspec.json.encode(value[VALUE_KEY]).decode()
    return msgspec.json.encode(value).decode()
