"""The lines of a recording: everything that is needed to serve one request again without a network.

Lines that say what happened stand in the order in which it happened. Their `t` is the time in seconds since the request began;
`Header.clock + t` is exactly what the driver's clock said, so that a replay decides by the same times.

Events are not here: the same code makes them again from the same reads.
"""

from __future__ import annotations

import base64
from typing import Any, Literal, TypeAlias

import msgspec

from athena.errors import ErrorKind

ExchangeKind = Literal["served", "passed", "refused"]
"""`passed`: answered without a translation, as lists of models, token counts and embeddings are. `refused`: no upstream was
asked. Only what was served can be replayed."""
VERSION = 1
"""Of the file's form. A reader refuses a larger one and reads every smaller one."""


class _Line(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="line"):
    pass


class Payload(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Bytes as text where they are UTF-8, else as base64."""

    text: str = ""
    base64: str = ""

    @classmethod
    def of(cls, data: bytes) -> Payload:
        """The payload that holds these bytes."""
        try:
            return cls(text=data.decode())
        except UnicodeDecodeError:
            return cls(base64=base64.b64encode(data).decode())

    @property
    def data(self) -> bytes:
        """The bytes."""
        return base64.b64decode(self.base64) if self.base64 else self.text.encode()


class Header(_Line, frozen=True, tag="recording"):
    """What this is and whose request it was."""

    id: str
    """The request's id, which is also the seed of every id that is made up in the answer."""
    version: int = VERSION
    athena: str = ""
    """The version that made it."""
    at: float = 0.0
    """When the request began, in seconds since 1970."""
    clock: float = 0.0
    """What the driver's clock said then."""
    program: str = ""
    """The client as it names itself: `claude-cli/2.1`, `codex_cli_rs/0.60`."""
    session: str = ""
    agent: str = ""
    parent: str = ""
    """The client's own ids of the session, of the agent in it, and of the agent that started that one."""
    response: str = ""
    """The id of the response that its answer is kept as, where it is kept."""
    kind: ExchangeKind = "served"
    redacted: bool = False
    notes: list[str] = []
    """What a reader has to know: that a part was left out, or that redaction changed what is understood."""


class Failure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Why an attempt did not end by itself."""

    type: str
    message: str
    kind: ErrorKind
    code: str
    status: int | None = None
    retry_after: float | None = None
    request_sent: bool = True


class TargetSettings(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One upstream and model that may be asked, and how. Settings that have their usual values are left out."""

    upstream: str
    model: str
    dialect: str
    url: str = ""
    own_path: str | None = None
    tools: str = "native"
    route: dict[str, Any] = {}
    prompted_route: dict[str, Any] | None = None
    limits: dict[str, int] = {}
    context_limit_kb: int = 0
    profile: dict[str, Any] = {}
    left_out: list[str] = []
    """What was left out of requests to it from the start, because it is known to refuse that."""
    has_key: bool = True
    """Had the upstream credentials? Messages about refused ones depend on it."""


class Settings(_Line, frozen=True, tag="settings"):
    """By what the request was served."""

    targets: list[TargetSettings] = []
    """In the order in which they may be asked."""
    refusal: Failure | None = None
    """None of them was up."""
    answers: dict[str, Any] = {}
    retries: dict[str, Any] = {}
    correct: bool = True
    key: str = ""
    """The name of the gateway key."""
    kept: dict[str, Any] | None = None
    """What the gateway kept of the response. The request is then recorded with everything that it continues."""
    large: bool = False


class Seals(_Line, frozen=True, tag="seals"):
    """Reasoning state that was sealed, opened or remembered. The key is not here, only what it was used for."""

    made: dict[str, str] = {}
    """The code at the end of each envelope, by what it seals."""
    accepted: list[str] = []
    """Envelopes in the request that were ours."""
    remembered: dict[str, Any] = {}
    """What was kept of earlier turns, by call id."""


class ClientRequest(_Line, frozen=True, tag="request"):
    """What the client asked, without its credentials."""

    body: Payload
    method: str = "POST"
    path: str = ""
    query: str = ""
    dialect: str = ""
    headers: dict[str, str] = {}


class Attempt(_Line, frozen=True, tag="attempt"):
    """A request to an upstream, without its credentials."""

    t: float
    target: int
    """Which of the settings' targets."""
    path: str
    headers: dict[str, str]
    body: Payload
    created: int = 0
    """The time of day that the answer may name."""
    input_tokens: int = 0
    """How many tokens the request was thought to have."""


class UpstreamHead(_Line, frozen=True, tag="head"):
    """The upstream began to answer."""

    t: float
    status: int
    headers: dict[str, str] = {}


class Read(_Line, frozen=True, tag="read"):
    """Bytes of the upstream's body, as they were read."""

    t: float
    body: Payload


class AttemptEnd(_Line, frozen=True, tag="end"):
    """The upstream's answer ended, or there was none."""

    t: float
    failure: Failure | None = None


class Tick(_Line, frozen=True, tag="tick"):
    """The time in which a model without tools of its own may write another call was over."""

    t: float


class KeptAlive(_Line, frozen=True, tag="keep_alive"):
    """The client got something that it passes over."""

    t: float


class Stopped(_Line, frozen=True, tag="stop"):
    """The request was ended: by the client, by us."""

    t: float
    reason: str


class NotKept(_Line, frozen=True, tag="not_kept"):
    """The response was to be kept before the client got its end, and was not."""

    t: float
    changed: dict[str, Any] | None = None
    """Fields of the response that say so, where the client got it all the same."""
    failure: Failure | None = None
    """Why the request failed, where it did."""


class ClientHead(_Line, frozen=True, tag="client_head"):
    """The client's status and headers."""

    t: float
    status: int
    headers: dict[str, str] = {}


class Write(_Line, frozen=True, tag="write"):
    """Bytes of the client's body, as they were handed to it."""

    t: float
    body: Payload


class RecordedOutcome(_Line, frozen=True, tag="outcome"):
    """How it ended: the fields of the request's log line, and what was counted beside them."""

    record: dict[str, Any]
    details: dict[str, Any] = {}


Happened: TypeAlias = Attempt | UpstreamHead | Read | AttemptEnd | Tick | KeptAlive | Stopped | NotKept | ClientHead | Write
"""A line about something that happened."""
Line: TypeAlias = Header | Settings | Seals | ClientRequest | Happened | RecordedOutcome
"""Any line of a recording."""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is kept of one request."""

    header: Header
    settings: Settings = Settings()
    seals: Seals = Seals()
    request: ClientRequest
    happened: tuple[Happened, ...] = ()
    """Attempts, reads, writes and what else happened, in order."""
    outcome: RecordedOutcome = RecordedOutcome({})

    @property
    def client_bytes(self) -> bytes:
        """The whole body that the client got."""
        return b"".join(line.body.data for line in self.happened if isinstance(line, Write))

    @property
    def upstream_bytes(self) -> bytes:
        """Everything that upstreams sent, over all attempts."""
        return b"".join(line.body.data for line in self.happened if isinstance(line, Read))


def since(start: float, now: float) -> float:
    """The time as few digits as give exactly `now` again when `start` is added."""
    exact = now - start
    for digits in (3, 6, 9):
        short = round(exact, digits)
        if start + short == now:
            return short
    return exact
