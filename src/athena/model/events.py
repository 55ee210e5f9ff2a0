"""The one vocabulary between upstream decoders and client encoders.

The seven events of source system D (`TextDelta` ... `Error`) are what everything speaks. `Start`, `WholePart`, `Extra` and
`KeepAlive` carry what those seven can not.

Grammar, for every stage and every dialect::

    answer   = Start? item* terminal
    item     = TextDelta | ThinkingDelta | call | WholePart | Extra | KeepAlive | Error(fatal=False)
    call     = ToolCallStart ToolCallDelta* ( ToolCallComplete | Error(call=...) )     calls may interleave
    terminal = Done(last=False)* Done(last=True) | Error(fatal=True)                   exactly one, and nothing after it

`call` numbers the calls of one answer from 0 in order of appearance, over all choices. The joined deltas of a call equal the
`arguments` of its `ToolCallComplete`, unless that says `repaired`. `arguments` is the model's own JSON text (free text for a
custom tool): never re-serialised, so number forms, key order and duplicate keys survive.

Thinking: the deltas of one block are followed by at most one `ThinkingDelta` with a `signature`, which ends that block. A
redacted block is a `ThinkingDelta` with no text and a signature of kind `redacted`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from athena.errors import AthenaError, ErrorKind
from athena.model.parts import CallKind, Opaque, Part

FinishKind = Literal[
    "stop",
    "stop_sequence",
    "tool",
    "length",
    "context",
    "refusal",
    "filter",
    "pause",
    "continuation",
    "malformed",
]


class Finish(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Why an answer ended: our word for it, and the upstream's own."""

    kind: FinishKind = "stop"
    raw: str = ""
    stop_sequence: str | None = None
    details: Any = None


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Token counts. `input_total` includes what was cached, `output_total` includes reasoning."""

    input_total: int = 0
    output_total: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    audio_in: int = 0
    audio_out: int = 0
    tool_prompt: int = 0
    estimated: bool = False
    raw: dict[str, Any] | None = None
    """The upstream's own usage object, for same-dialect answers."""


class _Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="event", tag=True):
    pass


class Start(_Event, frozen=True):
    """The upstream began to answer."""

    id: str = ""
    model: str = ""
    created: int | None = None
    usage: Usage | None = None
    extras: dict[str, Any] | None = None
    """Constant unknown fields of the upstream's dialect (system_fingerprint, provider, ...)."""


class TextDelta(_Event, frozen=True):
    """Visible answer text. `refusal` marks text the upstream sent in its refusal slot."""

    text: str
    choice: int = 0
    refusal: bool = False
    signature: Opaque | None = None


class ThinkingDelta(_Event, frozen=True):
    """Reasoning text; with a `signature` it ends the thinking block."""

    text: str = ""
    choice: int = 0
    signature: Opaque | None = None
    summary: bool = False
    item_id: str | None = None
    """The upstream's own id of the block: Responses binds encrypted state to it."""


class ToolCallStart(_Event, frozen=True):
    """A call begins; its name is final."""

    call: int
    id: str
    name: str
    choice: int = 0
    kind: CallKind = "function"
    namespace: str | None = None
    signature: Opaque | None = None
    item_id: str | None = None
    arguments: str = ""
    """Only from `ToolCallTracker.start_call`: text that arrived before the start."""


class ToolCallDelta(_Event, frozen=True):
    """The next piece of a call's arguments."""

    call: int
    arguments: str
    choice: int = 0


class ToolCallComplete(_Event, frozen=True):
    """A call is whole: `arguments` is complete JSON (or free text when `kind` is custom)."""

    call: int
    id: str
    name: str
    arguments: str
    choice: int = 0
    kind: CallKind = "function"
    namespace: str | None = None
    signature: Opaque | None = None
    item_id: str | None = None
    repaired: bool = False


class Done(_Event, frozen=True):
    """A choice ended well. The last one carries the usage."""

    finish: Finish
    choice: int = 0
    usage: Usage | None = None
    last: bool = True


class Error(_Event, frozen=True):
    """Something went wrong; `fatal` ends the answer. `kind` is the row of every dialect's error table."""

    message: str
    kind: ErrorKind = "upstream"
    code: str = "upstream_error"
    fatal: bool = True
    call: int | None = None
    choice: int = 0
    status: int | None = None
    """The upstream's own HTTP status, where it sent one."""
    retry_after: float | None = None
    param: str | None = None
    raw: str = ""


class WholePart(_Event, frozen=True):
    """A part that arrives in one piece: citation, image, audio, server-tool block, anything opaque."""

    part: Part
    choice: int = 0


class Extra(_Event, frozen=True):
    """Unknown or rare fields of one upstream record (logprobs, ...), for an encoder of the same dialect."""

    fields: dict[str, Any]
    choice: int | None = None
    """None: fields of the record itself; else of that choice."""
    delta: bool = False
    """Fields of the choice's delta or message rather than of the choice."""


class KeepAlive(_Event, frozen=True):
    """The upstream is alive and has nothing to say."""


Event: TypeAlias = (
    Start
    | TextDelta
    | ThinkingDelta
    | ToolCallStart
    | ToolCallDelta
    | ToolCallComplete
    | Done
    | Error
    | WholePart
    | Extra
    | KeepAlive
)


def error_event(error: AthenaError) -> Error:
    """The fatal event that says what an exception says."""
    return Error(
        message=error.message,
        kind=error.kind,
        code=error.code,
        status=error.status,
        retry_after=error.retry_after,
        param=error.path or None,
        raw=error.raw,
    )
