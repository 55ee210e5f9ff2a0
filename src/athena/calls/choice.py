"""Was the request's tool choice kept? Some upstreams ignore it, and a client that forced a tool takes whatever call comes.

| the client asked for | the answer | outcome |
|---|---|---|
| `none` | a call | the error `tool_choice_unmet` |
| a named tool, or a set of allowed ones | a call of another | the error `tool_choice_unmet`, before that call is shown |
| a named tool, or any tool (`required`) | ends by itself without a call | the error `tool_choice_unmet` |
| no parallel calls | a second call | the first is passed on, the others are left out and counted |

An answer that was cut, refused or filtered keeps its own ending: that says more than a missing call.
"""

from __future__ import annotations

import msgspec

from athena.calls.names import NAMESPACE_SEPARATOR
from athena.model.events import (
    Done,
    Error,
    Event,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    WholePart,
)  # fmt: skip
from athena.model.parts import Foreign
from athena.model.request import Request

_ENDED_BY_ITSELF = frozenset({"stop", "stop_sequence", "tool"})


class ChoiceGuard:
    """One per answer, after everything that finds or renames calls. Feed events, get those the client may see."""

    def __init__(self, request: Request) -> None:
        choice = request.tool_choice
        mode = choice.mode if choice is not None else "auto"
        self._forbidden = mode == "none"
        self._names = frozenset(choice.names) if choice is not None and mode in ("named", "allowed") else None
        self._required = mode in ("required", "named") or (mode == "allowed" and choice is not None and choice.required)
        self._single = request.parallel is False
        if choice is not None and choice.kind == "hosted":
            # The upstream runs it itself, and shows what came of it.
            self._names, self._required = None, False
        self._called: set[int] = set()
        """The choices of the answer that hold a call."""
        self._numbers: dict[int, int | None] = {}
        """What each call is numbered for the client; None: it is left out."""
        self._shown = 0
        self._ended = False
        self.left_out = 0
        """Calls beyond the first of an answer that was to have one."""

    @classmethod
    def of(cls, request: Request) -> ChoiceGuard | None:
        """The guard of this request; None where every answer keeps its choice."""
        if request.tool_choice is None and request.parallel is not False:
            return None
        guard = cls(request) if request.tools else None
        if guard is None or not (guard._forbidden or guard._names is not None or guard._required or guard._single):
            return None
        return guard

    def feed(self, events: list[Event]) -> list[Event]:
        """The events as far as they keep the choice."""
        out: list[Event] = []
        for event in events:
            if self._ended:
                break
            if isinstance(event, ToolCallStart):
                self._start(event, out)
            elif isinstance(event, ToolCallDelta | ToolCallComplete):
                self._write(event, out)
            elif isinstance(event, Error):
                self._error(event, out)
            elif isinstance(event, Done):
                self._done(event, out)
            else:
                if isinstance(event, WholePart) and isinstance(event.part, Foreign):
                    # A tool that the upstream ran itself.
                    self._called.add(event.choice)
                out.append(event)
        return out

    def _start(self, event: ToolCallStart, out: list[Event]) -> None:
        if self._forbidden:
            self._fail(f"the request forbids calls, and the model called {event.name[:80]}", event.choice, out)
            return
        full = f"{event.namespace}{NAMESPACE_SEPARATOR}{event.name}" if event.namespace else event.name
        if self._names is not None and event.name not in self._names and full not in self._names:
            wanted = ", ".join(sorted(self._names))
            self._fail(
                f"the request asks for a call of {wanted[:200]}, and the model called {event.name[:80]}", event.choice, out
            )
            return
        if self._single and event.choice in self._called:
            self._numbers[event.call] = None
            self.left_out += 1
            return
        self._called.add(event.choice)
        self._numbers[event.call] = self._shown
        self._shown += 1
        self._write(event, out)

    def _write(self, event: ToolCallStart | ToolCallDelta | ToolCallComplete, out: list[Event]) -> None:
        number = self._numbers.get(event.call, event.call)
        if number is not None:
            out.append(event if number == event.call else msgspec.structs.replace(event, call=number))

    def _error(self, event: Error, out: list[Event]) -> None:
        number = self._numbers.get(event.call, event.call) if event.call is not None else None
        if event.call is not None and number is None:
            if not event.fatal:
                return
            event = msgspec.structs.replace(event, call=None)
        elif number != event.call:
            event = msgspec.structs.replace(event, call=number)
        out.append(event)
        self._ended = event.fatal

    def _done(self, event: Done, out: list[Event]) -> None:
        if self._required and event.choice not in self._called and event.finish.kind in _ENDED_BY_ITSELF:
            self._fail("the request demands a call and the model made none", event.choice, out)
            return
        out.append(event)

    def _fail(self, reason: str, choice: int, out: list[Event]) -> None:
        out.append(Error(reason, code="tool_choice_unmet", choice=choice))
        self._ended = True
