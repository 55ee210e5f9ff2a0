"""One call at a time, for dialects whose blocks are sequential (Anthropic's streams).

The first call runs live. What other calls and text say meanwhile waits until it ends, then follows in order of appearance; so
two interleaved calls never mix, and a lone call is never delayed. Each event waits at most once: the work stays linear.
"""

from __future__ import annotations

from collections import deque

import msgspec

from athena.model.events import (
    Done,
    Error,
    Event,
    KeepAlive,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    is_failure,
)


class OneCallAtATime(msgspec.Struct, eq=False):
    """Feed events, get them with calls one after another."""

    _open: int | None = None
    _waiting: deque[list[Event]] = msgspec.field(default_factory=deque)
    _behind: dict[int, list[Event]] = {}

    def feed(self, events: list[Event]) -> list[Event]:
        """The events that may be shown now."""
        if self._open is None and ToolCallStart not in map(type, events):
            return events
        out: list[Event] = []
        for event in events:
            if self._open is not None:
                self._while_open(event, out)
            else:
                out.append(event)
                if isinstance(event, ToolCallStart):
                    self._open = event.call
        return out

    def _while_open(self, event: Event, out: list[Event]) -> None:
        if isinstance(event, Done) or is_failure(event):
            # Whatever is still open here was cut; the encoder must not close it.
            self._open = None
            if isinstance(event, Error):
                # The answer failed: showing what waits would mean closing the open call, which would make it look whole.
                self._waiting.clear()
            while self._waiting:
                out.extend(self._waiting.popleft())
            out.append(event)
        elif isinstance(event, ToolCallStart):
            self._behind[event.call] = [event]
            self._waiting.append(self._behind[event.call])
        elif isinstance(event, ToolCallDelta | ToolCallComplete | Error) and event.call is not None:
            if event.call == self._open:
                out.append(event)
                if not isinstance(event, ToolCallDelta):
                    self._release(out)
            else:
                self._behind.setdefault(event.call, []).append(event)
        elif isinstance(event, KeepAlive | Error):
            # Neither has a place among the blocks.
            out.append(event)
        else:
            self._waiting.append([event])

    def _release(self, out: list[Event]) -> None:
        """The open call ended: show what waited, up to the next call that is not whole yet."""
        self._open = None
        while self._waiting:
            batch = self._waiting.popleft()
            out.extend(batch)
            if isinstance(batch[0], ToolCallStart) and not isinstance(batch[-1], ToolCallComplete | Error):
                self._open = batch[0].call
                return
