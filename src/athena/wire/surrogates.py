"""Lone surrogates: legal in JSON escapes and in Python strings, impossible in UTF-8.

msgspec refuses a record that escapes one, and refuses to encode a string that holds one. One odd character of a model must cost
that character, not the record or the stream.

Wire facts: docs/reference/wire-facts.md#lone-surrogates.
"""

from __future__ import annotations

import json
import re

import msgspec

_ESCAPES = re.compile(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})")
_REPLACEMENT = rb"\ufffd"

_encode = msgspec.json.encode


def without_lone_surrogates(payload: bytes) -> bytes:
    """JSON text with every unpaired surrogate escape replaced by U+FFFD; the same object when there is none."""
    if b"\\ud" not in payload and b"\\uD" not in payload:
        return payload
    return _ESCAPES.sub(lambda found: _REPLACEMENT if found.group(1) else found.group(), payload)


def encode_text(text: str) -> bytes:
    """A string as JSON; lone surrogates come out as escapes, which every client's parser takes."""
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return json.dumps(text).encode("ascii")
