"""What to do where reading model text leaves a choice: values, not flags spread over code."""

from __future__ import annotations

from typing import Literal

import msgspec

Malformed = Literal["text", "error", "drop"]
RepairLevel = Literal["off", "syntax", "schema"]
EchoRule = Literal["text", "error", "allow"]


class Policies(msgspec.Struct, frozen=True):
    """The choices of one parser. The defaults are those of the gateway."""

    text: Literal["pass", "hold"] = "pass"
    """`hold`: no visible text before the first call begins or the answer ends."""
    arguments: Literal["stream", "hold"] = "stream"
    """`hold`: a call is shown whole or not at all."""
    malformed: Malformed | None = None
    """An unusable call and of which nothing was shown yet. None: `error` for formats of reserved tokens, whose markup must
    not leak, else `text`. Once a call was begun, its failure is always an error."""
    unknown_tool: Literal["pass", "text", "error"] = "pass"
    """A call in reserved tokens that names an undeclared tool. In formats of ordinary text such a call is text."""
    repair: RepairLevel = "syntax"
    """`schema` holds the arguments of a call until it ends: what was shown is never taken back."""
    thinking: Literal["split", "keep"] = "split"
    """`keep`: reasoning between delimiters in visible text stays there, delimiters and all."""
    after_calls: Literal["keep", "drop"] = "keep"
    """Text behind the last call of an answer."""
    echo: EchoRule = "text"
    """A call that the model quotes from the request (`formats.machine.echo`): leave it as the text it is, fail, or let it be a
    call. Matters only where somebody says what the request holds."""


class Counts(msgspec.Struct):
    """What a parser did, for metrics and reports."""

    calls: int = 0
    repairs: int = 0
    unknown_tools: int = 0
    malformed: int = 0
    truncated: int = 0
    declined: int = 0
    """Markers that turned out to be text."""
    doubles: int = 0
    """Calls left out because the upstream had sent the same call natively."""
    echoes: int = 0
    """Calls that were quoted from the request."""

    @property
    def faults(self) -> int:
        """What of the markup could not be used."""
        return self.malformed + self.truncated + self.unknown_tools
