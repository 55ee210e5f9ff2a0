"""Where a request stands in its caller's trace, by the headers of W3C Trace Context.

Where no traces are exported, a client's `traceparent` and `tracestate` go to the upstream as they came. Where they are, every
attempt names its own span as the parent of whatever the upstream does. Span ids of attempts follow from that of the request, so
that whoever exports the spans afterwards knows them without having been asked when the request was sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

import msgspec

_PARENT = re.compile(
    r"(?:00|(?P<later>(?!00|ff)[0-9a-f]{2}))-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?(later)(?:-[!-~]{0,256})?)"
)
"""Only versions after 00 may have more to say."""
_STATE_LIMIT = 512
_SAMPLED = 1
_KNOWN_FLAGS = _SAMPLED | 2
"""The second says that the trace's id is random; what others mean is not known, so they are not passed on."""


class Trace(msgspec.Struct, frozen=True):
    """The span of one request."""

    trace_id: str
    """32 hexadecimal digits, as in all ids of the caller's trace."""
    parent_id: str
    """The caller's span, 16 digits; empty where the trace begins here."""
    span_id: str
    flags: str
    state: str

    @property
    def is_sampled(self) -> bool:
        """Does the caller keep this trace? A trace that begins here is kept."""
        return bool(int(self.flags, 16) & _SAMPLED)

    def attempt_id(self, attempt: int) -> str:
        """The span of one attempt, numbered from 1."""
        return sha256(f"{self.span_id}/{attempt}".encode()).hexdigest()[:16]

    def headers(self, attempt: int) -> list[tuple[bytes, bytes]]:
        """What an upstream is told of the trace."""
        parent = f"00-{self.trace_id}-{self.attempt_id(attempt)}-{self.flags}"
        told = [(b"traceparent", parent.encode())]
        return [*told, (b"tracestate", self.state.encode())] if self.state else told


def new_trace(headers: Mapping[str, str], randomness: bytes) -> Trace:
    """The span of a request with these headers. `randomness` is 24 bytes long. A malformed parent begins a new trace."""
    span_id = randomness[16:24].hex()
    found = _PARENT.fullmatch(headers.get("traceparent", ""))
    if found is None:
        return Trace(randomness[:16].hex(), "", span_id, "01", "")
    _, trace_id, parent_id, flags = found.groups()
    return Trace(trace_id, parent_id, span_id, f"{int(flags, 16) & _KNOWN_FLAGS:02x}", _state(headers))


def passed_on(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """A client's place in its trace as it came, for an upstream, where no spans are made here."""
    parent = headers.get("traceparent")
    if parent is None or _PARENT.fullmatch(parent) is None:
        return []
    told = [(b"traceparent", parent.encode())]
    state = _state(headers)
    return [*told, (b"tracestate", state.encode())] if state else told


def _state(headers: Mapping[str, str]) -> str:
    state = headers.get("tracestate", "")
    return state if len(state) <= _STATE_LIMIT and state.isascii() and state.isprintable() else ""
