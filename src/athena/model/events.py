"""The one vocabulary between upstream decoders and client encoders.

The seven events of source system D (`TextDelta` ... `Error`) are what everything speaks. `Start`, `WholePart`, `Extra` and
`KeepAlive` carry what those seven cannot.

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

from typing import Any, Literal, TypeAlias, TypeGuard

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
    """`stop`, `tool`, `length`, `refusal`, ...: the same word for every upstream."""
    raw: str = ""
    """The upstream's own word for it."""
    stop_sequence: str | None = None
    """The stop sequence that was met, where the upstream says it."""
    details: Any = None
    """What else the upstream said about the end."""


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
    """The first event of an answer: its id and model are known."""

    id: str = ""
    """The answer's id, as the upstream gives it."""
    model: str = ""
    """The model that answers, as the upstream names it."""
    created: int | None = None
    """When, in seconds since 1970."""
    usage: Usage | None = None
    """Token counts that are known this early."""
    extras: dict[str, Any] | None = None
    """Constant unknown fields of the upstream's dialect (system_fingerprint, provider, ...)."""


class TextDelta(_Event, frozen=True):
    """The next piece of visible text."""

    text: str
    """The piece; join them all."""
    choice: int = 0
    """Which of several answers it belongs to; 0 where there is one."""
    refusal: bool = False
    """The upstream sent it in its refusal slot."""
    signature: Opaque | None = None
    """Reasoning state that its maker attached to this text."""


class ThinkingDelta(_Event, frozen=True):
    """The next piece of reasoning; with a `signature` it ends the thinking block."""

    text: str = ""
    """The piece; empty where only the signature came."""
    choice: int = 0
    """Which of several answers it belongs to."""
    signature: Opaque | None = None
    """Reasoning state that only its maker can read; it must come back with the next turn."""
    summary: bool = False
    """It is a summary of the reasoning and not the reasoning itself."""
    item_id: str | None = None
    """The upstream's own id of the block: Responses binds encrypted state to it."""


class ToolCallStart(_Event, frozen=True):
    """A call begins; its name is final. Show it, but run nothing before `ToolCallComplete`."""

    call: int
    """The call's number in this answer, from 0; later events of the call carry it."""
    id: str
    """The call's id, to be given back with its result."""
    name: str
    """The tool."""
    choice: int = 0
    """Which of several answers it belongs to."""
    kind: CallKind = "function"
    """`custom`: the arguments are free text and not JSON."""
    namespace: str | None = None
    """The group of tools it belongs to, where the dialect has such."""
    signature: Opaque | None = None
    """Reasoning state that belongs to this call."""
    item_id: str | None = None
    """The upstream's id of the item, beside the call's own."""
    arguments: str = ""
    """Only from `ToolCallTracker.start_call`: text that arrived before the start."""


class ToolCallDelta(_Event, frozen=True):
    """The next piece of a call's arguments."""

    call: int
    """The number that `ToolCallStart` gave."""
    arguments: str
    """The piece; joined they are the call's arguments."""
    choice: int = 0
    """Which of several answers it belongs to."""


class ToolCallComplete(_Event, frozen=True):
    """A call is whole and may be run: the only event that says so."""

    call: int
    """The number that `ToolCallStart` gave."""
    id: str
    """The call's id, to be given back with its result."""
    name: str
    """The tool."""
    arguments: str
    """Complete JSON text, as the model wrote it, or free text when `kind` is custom."""
    choice: int = 0
    """Which of several answers it belongs to."""
    kind: CallKind = "function"
    """`custom`: the arguments are free text and not JSON."""
    namespace: str | None = None
    """The group of tools it belongs to, where the dialect has such."""
    signature: Opaque | None = None
    """Reasoning state that belongs to this call; it must come back with the next turn."""
    item_id: str | None = None
    """The upstream's id of the item, beside the call's own."""
    repaired: bool = False
    """The arguments were repaired: the joined deltas may differ from them."""


class Done(_Event, frozen=True):
    """A choice ended as its upstream intended, for the reason in `finish`."""

    finish: Finish
    """Why it ended."""
    choice: int = 0
    """Which of several answers ended."""
    usage: Usage | None = None
    """Token counts; on the last one."""
    last: bool = True
    """Nothing follows: every choice has ended."""


class Error(_Event, frozen=True):
    """Something went wrong. A fatal one is the answer's end; any other is about one call or a note."""

    message: str
    """What is wrong, for people."""
    kind: ErrorKind = "upstream"
    """The row of every dialect's error table."""
    code: str = "upstream_error"
    """The exact cause, such as `truncated_call`; the error reference lists them."""
    fatal: bool = True
    """It ends the answer, and nothing of it counts as a success."""
    call: int | None = None
    """The call that failed, where it is about one that has begun."""
    choice: int = 0
    """Which of several answers it belongs to."""
    status: int | None = None
    """The upstream's own HTTP status, where it sent one."""
    retry_after: float | None = None
    """Seconds to wait, where the upstream said so."""
    param: str | None = None
    """The field of the request that is at fault."""
    raw: str = ""
    """The beginning of what the upstream sent."""
    details: dict[str, Any] | None = None
    """Anthropic: the machine-readable details of the error, by which its SDKs recover; for clients of that dialect."""


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
    """The upstream is alive and has nothing to say yet."""


PlainPiece: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta
"""The events of which an answer has many that differ in their text alone."""

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
"""Anything an answer is made of; `athena.model.events` states the grammar."""


def is_failure(event: Event | None) -> TypeGuard[Error]:
    """Does the answer fail with this event?"""
    return isinstance(event, Error) and event.fatal


def is_terminal(event: Event | None) -> TypeGuard[Done | Error]:
    """Does the answer end with this event, well or not?"""
    return (isinstance(event, Done) and event.last) or (isinstance(event, Error) and event.fatal)


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
