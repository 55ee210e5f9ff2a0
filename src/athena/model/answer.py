"""A whole answer: what the events of one exchange add up to. Data only."""

from __future__ import annotations

from typing import Any

import msgspec

from athena.model.events import Error, Finish, Usage
from athena.model.parts import Part


class Choice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One candidate answer. `finish` is None when the answer never ended properly."""

    index: int
    parts: tuple[Part, ...]
    finish: Finish | None = None
    extras: dict[str, Any] | None = None
    delta_extras: dict[str, Any] | None = None


class Answer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Everything the upstream said. With an `error` set, nothing in it may be shown as a success."""

    id: str
    model: str
    created: int | None
    choices: tuple[Choice, ...]
    usage: Usage | None = None
    extras: dict[str, Any] | None = None
    error: Error | None = None
    notes: tuple[Error, ...] = ()
    """Errors that did not end the answer."""
