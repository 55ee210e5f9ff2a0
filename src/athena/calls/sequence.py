"""One call at a time, for dialects whose blocks are sequential (Anthropic's streams).

The first call runs live. What other calls and text say meanwhile waits until it ends, then follows in order of appearance; so
two interleaved calls never mix, and a lone call is never delayed.
"""

from __future__ import annotations

from collections.abc import Iterable

from athena.model.events import Done, Error, Event, ToolCallComplete, ToolCallDelta, ToolCallStart


class OneCallAtATime:
    """Feed events, get them with calls one after another."""

    __slots__ = ("_open", "_waiting")

    def __init__(self) -> None:
        self._open: int | None = None
        self._waiting: list[Event] = []

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """The events that may be shown now."""
        out: list[Event] = []
        for event in events:
            if self._open is None and not isinstance(event, ToolCallStart):
                out.append(event)
            else:
                self._take(event, out)
        return out

    def _take(self, event: Event, out: list[Event]) -> None:
        if self._open is None:
            assert isinstance(event, ToolCallStart)
            self._open = event.call
            out.append(event)
        elif isinstance(event, ToolCallDelta | ToolCallComplete) and event.call == self._open:
            out.append(event)
            if isinstance(event, ToolCallComplete):
                self._release(out)
        elif isinstance(event, Error) and (event.fatal or event.call == self._open):
            out.append(event)
            self._release(out)
        elif isinstance(event, Done):
            # A call that is still open here was cut; the encoder must not close it.
            self._open = None
            out.extend(self._waiting)
            self._waiting = []
            out.append(event)
        else:
            self._waiting.append(event)

    def _release(self, out: list[Event]) -> None:
        self._open = None
        waiting, self._waiting = self._waiting, []
        for position, event in enumerate(waiting):
            if self._open is None and not isinstance(event, ToolCallStart):
                out.append(event)
                continue
            self._take(event, out)
            if self._open is None and position + 1 < len(waiting):
                continue
