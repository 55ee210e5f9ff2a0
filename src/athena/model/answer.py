"""A whole answer: what the events of one exchange add up to. Data only."""

from __future__ import annotations

from typing import Any

import msgspec

from athena.model.events import Error, Finish, Usage
from athena.model.parts import Part, Refusal, Text, Thinking, ToolCall


class Choice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One candidate answer. `finish` is None when the answer never ended properly."""

    index: int
    parts: tuple[Part, ...]
    finish: Finish | None = None
    extras: dict[str, Any] | None = None
    delta_extras: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The visible text; a refusal counts."""
        return "".join(part.text for part in self.parts if isinstance(part, Text | Refusal))

    @property
    def thinking(self) -> str:
        """The reasoning that may be read."""
        return "".join(part.text for part in self.parts if isinstance(part, Thinking))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls, every one of them whole."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


class Answer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Everything the upstream said. With an `error` set, nothing in it may be shown as a success."""

    id: str
    """As the upstream gave it."""
    model: str
    """The model that answered, as the upstream names it."""
    created: int | None
    """When, in seconds since 1970."""
    choices: tuple[Choice, ...]
    """The answers; one, unless several were asked for."""
    usage: Usage | None = None
    """Token counts."""
    extras: dict[str, Any] | None = None
    """Unknown fields of the upstream's dialect."""
    error: Error | None = None
    """The failure that ended it; None when it ended well or has not ended."""
    notes: tuple[Error, ...] = ()
    """Errors that did not end the answer."""

    @property
    def text(self) -> str:
        """The visible text of the first choice."""
        return self.choices[0].text if self.choices else ""

    @property
    def thinking(self) -> str:
        """The reasoning of the first choice that may be read."""
        return self.choices[0].thinking if self.choices else ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the first choice, every one of them whole."""
        return self.choices[0].calls if self.choices else ()

    @property
    def finish(self) -> Finish | None:
        """Why the first choice ended; None when it never ended properly."""
        return self.choices[0].finish if self.choices else None
