"""What the inspector's page and `athena record show` read: values that become the JSON of `/inspect/api`.

`ExchangeRow` is one exchange in a list. `View` is one exchange whole: three lanes (what upstreams sent, what was understood,
what the client got) whose items are linked by `step`. One step is one thing that came in (a read, the end of an answer, a
moment of time), the events it brought and the bytes it sent to the client.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from athena.recording.lines import ExchangeKind

Word = Literal["ok", "repaired", "echo", "error", "left", "live"]


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    pass


class ExchangeRow(_Value, frozen=True, kw_only=True):
    """One exchange in a list."""

    id: str
    at: float
    """When it began, in seconds since 1970."""
    state: Literal["live", "done"] = "done"
    verdict: Word = "ok"
    """The one word to colour it by. `left`: the client went away."""
    program: str = ""
    session: str = ""
    agent: str = ""
    parent: str = ""
    response: str = ""
    """The id of the response that its answer is kept as."""
    key: str = ""
    dialect: str = ""
    path: str = ""
    model: str = ""
    upstream: str = ""
    upstream_model: str = ""
    upstream_dialect: str = ""
    format: str = ""
    stream: bool = False
    status: int = 0
    outcome: str = ""
    error: str = ""
    calls: int = 0
    text_calls: int = 0
    repairs: int = 0
    bad_calls: int = 0
    echoes: int = 0
    warnings: int = 0
    attempts: int = 0
    chunks: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    first_byte_ms: float = 0.0
    duration_ms: float = 0.0
    own_us_per_chunk: float = 0.0
    size: int = 0
    """Bytes of the whole exchange, before they are packed."""
    redacted: bool = False
    kind: ExchangeKind = "served"


class Mark(_Value, frozen=True, kw_only=True):
    """Something that a reader of the lanes should look at, and the rule that made it."""

    kind: Literal[
        "text_call", "repair", "hold", "drop", "invented_id", "echo", "bad_call", "finish", "error", "keep_alive", "retry"
    ]
    rule: str
    """The name of the rule: a format's id, a repair level, an error code, `x-athena-warnings` action."""
    text: str
    """One sentence for people."""
    step: int
    event: int | None = None
    """The event it is about, by its number."""
    call: int | None = None


class ReadItem(_Value, frozen=True, kw_only=True):
    """Lane one: what came from the upstream, or a moment that counted."""

    step: int
    t: float
    kind: Literal["attempt", "head", "read", "end", "tick", "keep_alive", "stop", "told"]
    """`told`: nothing came; the step is what the gateway itself told the client."""
    attempt: int
    """Its number, from 1; 0 before the first."""
    size: int = 0
    text: str = ""
    """The bytes as text; what is not UTF-8 is shown as U+FFFD."""
    status: int = 0
    note: str = ""
    """What an end, a head or an attempt says in a few words."""


class EventItem(_Value, frozen=True, kw_only=True):
    """Lane two: what was understood."""

    number: int
    step: int
    t: float
    event: Any
    """The event's fields; `event` names its type: TextDelta, ToolCallStart, ..."""


class WriteItem(_Value, frozen=True, kw_only=True):
    """Lane three: what the client got."""

    step: int
    t: float
    size: int
    text: str
    status: int = 0
    """The client's status, where this write began its answer."""
    first_event: int | None = None
    last_event: int | None = None
    """The events these bytes tell, by number: held events are told later than they were understood."""


class CallVerdict(_Value, frozen=True, kw_only=True):
    """One call, and what is right or wrong with it."""

    call: int
    id: str
    name: str
    arguments: str
    step: int
    came_as: str
    """`native`, or `text` with its format and place: `text in reasoning, kimi_k2`."""
    complete: bool
    json: Literal["yes", "no", "custom"]
    declared: bool
    schema: Literal["yes", "no", "unchecked"]
    schema_problem: str = ""
    provenance: Literal["model", "quoted", "native"]
    """`quoted`: the request itself holds this call's markup; `native`: structured calls are not searched for."""
    finish: str = ""
    """Why the answer ended, and whether the upstream said so or it is derived: `tool, derived`."""
    repaired: bool = False
    id_from: Literal["upstream", "invented"] = "upstream"


class Change(_Value, frozen=True, kw_only=True):
    """A difference between the client's request and the upstream's: a loss, an emulation, a repair."""

    path: str
    action: str
    reason: str


class UpstreamRequest(_Value, frozen=True, kw_only=True):
    """One attempt's request."""

    attempt: int
    upstream: str
    model: str
    dialect: str
    url: str
    headers: dict[str, str]
    body: str
    status: int = 0
    failure: str = ""


class Requests(_Value, frozen=True, kw_only=True):
    """The client's request beside the upstreams'."""

    method: str
    path: str
    headers: dict[str, str]
    body: str
    upstream: list[UpstreamRequest]
    changes: list[Change]
    tools: list[str]


class Timing(_Value, frozen=True, kw_only=True):
    """Moments and spans of one request, in milliseconds but for the last field. What upstreams did is told of the last attempt:
    the others brought nothing that the client got."""

    total: float
    attempt: float | None = None
    """When the last attempt began."""
    upstream_head: float | None
    first_read: float | None
    first_write: float | None
    longest_gap: float
    held: float
    """How long the longest held text waited."""
    own_us_per_chunk: float


class Prefix(_Value, frozen=True, kw_only=True):
    """How the request begins like the last one of its session: what a prompt cache can keep."""

    of: str
    """The id of the exchange it is compared with."""
    common: int
    size: int
    before: str
    """A few words before the first byte that differs, and the two ways in which it goes on."""
    was: str
    now: str


class Equality(_Value, frozen=True, kw_only=True):
    """Does this version make the same answer of it?"""

    equal: bool
    differences: list[str] = []


class View(_Value, frozen=True, kw_only=True):
    """Everything that the inspector shows of one exchange."""

    row: ExchangeRow
    reads: list[ReadItem]
    events: list[EventItem]
    writes: list[WriteItem]
    marks: list[Mark]
    calls: list[CallVerdict]
    requests: Requests
    settings: Any
    timing: Timing
    replay: Equality
    help: str = ""
    """An error: what to do about it."""
    prefix: Prefix | None = None
    notes: list[str] = []


class Difference(_Value, frozen=True, kw_only=True):
    """One event that differs between two runs; None where the other side has none."""

    at: int
    was: Any
    now: Any


class ReplayResult(_Value, frozen=True, kw_only=True):
    """An exchange run again with other settings."""

    equal: bool
    settings: dict[str, str]
    differences: list[Difference]
    was: View
    now: View


class Session(_Value, frozen=True, kw_only=True):
    """The exchanges of one session, by agent."""

    id: str
    program: str
    first: float
    last: float
    exchanges: int
    errors: int
    repaired: int
    agents: list[SessionAgent]


class SessionAgent(_Value, frozen=True, kw_only=True):
    """One agent of a session; `parent` started it."""

    id: str
    parent: str
    exchanges: int
    last: float


class HealthPoint(_Value, frozen=True, kw_only=True):
    """What one upstream and model did in one slice of time."""

    at: float
    requests: int
    errors: int
    calls: int
    text_calls: int
    bad_calls: int
    repairs: int
    first_byte_ms: float


class HealthHistory(_Value, frozen=True, kw_only=True):
    """One upstream and model over time."""

    upstream: str
    model: str
    up: bool
    requests: int
    errors: int
    calls: int
    good_calls: int
    leaks: int
    """Answers in which calls came as text."""
    points: list[HealthPoint]
