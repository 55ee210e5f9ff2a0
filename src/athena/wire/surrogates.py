"""Lone surrogates: legal in JSON escapes and in Python strings, impossible in UTF-8.

msgspec refuses a record that escapes one, and refuses to encode a string that holds one. One odd character of a model must cost
that character, not the record or the stream. This module is the only place that knows: what comes in is read through
`without_lone_surrogates`, what goes out to clients is written by `encode_json`, and what must not change by `lossless_json`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_ESCAPES = re.compile(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})")
_REPLACEMENT = rb"\ufffd"

_encode = msgspec.json.encode


def without_lone_surrogates(payload: bytes) -> bytes:
    """JSON text with every unpaired surrogate escape replaced by U+FFFD; the same object when there is none."""
    if b"\\ud" not in payload and b"\\uD" not in payload:
        return payload
    return _ESCAPES.sub(lambda found: _REPLACEMENT if found.group(1) else found.group(), payload)


def encode_json(value: Any) -> bytes:
    """JSON for a client. Half of a character becomes U+FFFD: as an escape, strict parsers (Rust's, for one) would refuse it."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_whole_characters(value))


def lossless_json(value: Any) -> bytes:
    """JSON that keeps every string as it is, for readers that take half of a character as an escape."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=msgspec.to_builtins).encode()


def _whole_characters(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_characters(item) for item in value]
    return value
