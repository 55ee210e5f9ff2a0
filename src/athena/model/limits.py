"""The largest size of every buffer. Text or bytes beyond it are a typed error; no buffer grows further."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Sizes are in bytes on the wire side and in characters on the text side."""

    event_bytes: int = 32 * 1024 * 1024
    """One server-sent event."""
    answer_bytes: int = 64 * 1024 * 1024
    """One whole (not streamed) answer."""
    calls: int = 1024
    """Tool calls in one answer."""
    argument_chars: int = 16 * 1024 * 1024
    """Arguments of one call."""
    held_chars: int = 16 * 1024 * 1024
    """Text held back for one choice while its meaning is undecided."""
    section_chars: int = 1024 * 1024
    """Text inside one call section that is neither a call nor its arguments; 0 switches the bound off."""
    id_chars: int = 200
    """A call id written by a model as text."""
    json_depth: int = 512
    """Nesting of JSON arguments."""


DEFAULT_LIMITS = Limits()
