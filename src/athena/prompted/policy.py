"""When enough was found, and what becomes of the text around it: the stream policies of source system C as values.

An answer is a row of text pieces and call groups (one JSON value that holds calls is one group). The same row gives the same
result however it arrives, because a policy is asked about the row and never about chunks. Only the collect window knows time,
and it never cuts into a group: it runs while nothing is being read.
"""

from __future__ import annotations

import msgspec


class StreamPolicy(msgspec.Struct, frozen=True):
    """What to take of an answer."""

    name: str
    stops: bool = False
    """The answer is over once the calls are complete; what follows is dropped."""
    single: bool = False
    """One call is enough."""
    array_ends: bool = False
    """A closed array of calls is the end of them."""
    window: bool = False
    """Wait only so long for further calls."""
    holds_text: bool = False
    """All text waits for the end, and is shown only if no call was found."""
    mixed: bool = False
    """Text around the calls is shown too."""


POLICIES = {
    policy.name: policy
    for policy in (
        StreamPolicy("stop_on_first", stops=True, single=True),
        StreamPolicy("collect_then_stop", stops=True, array_ends=True, window=True),
        StreamPolicy("drain_all", holds_text=True),
        StreamPolicy("allow_mixed", mixed=True),
    )
}
