"""How much memory recordings may take that are not written yet."""

from __future__ import annotations


class Room:
    """What all recordings hold together that are not written yet.

    Two counters that only grow: one belongs to the event loop, the other to whoever writes recordings.
    """

    __slots__ = ("limit", "released", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self.released = 0
