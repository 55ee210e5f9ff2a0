"""A batch and its requests, as values that a store holds. Data only.

| state of a batch | what happens | what follows |
|---|---|---|
| RUNNING | its requests wait or are answered | ENDED with the last of them; CANCELING when its owner says so |
| CANCELING | requests that have begun are finished | ENDED |
| ENDED | every request has its result | |

| state of a request | what it means |
|---|---|
| WAITING | to be asked, at `due` at the earliest |
| RUNNING | a process asks; until `due` it is taken for alive, then another one may ask |
| SUCCEEDED, ERRORED | there is an answer |
| CANCELED, EXPIRED | it was never asked |
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec

BatchDialect = Literal["anthropic_messages", "openai_chat"]
"""Whose API a batch was submitted by; OpenAI's is the same for Chat and Responses."""


class BatchState(Enum):
    """Where a batch is; see the table of this module."""

    RUNNING = "running"
    CANCELING = "canceling"
    ENDED = "ended"


class RequestState(Enum):
    """Where a request of a batch is; see the table of this module."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    ERRORED = "errored"
    CANCELED = "canceled"
    EXPIRED = "expired"


class Submitted(msgspec.Struct, frozen=True):
    """One request of a batch, as its client wrote it."""

    custom_id: str
    body: bytes
    """The body of the request, as JSON."""


class RequestBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch without its requests."""

    id: str
    owner: str
    """The name of the gateway key that made it; nobody else can see it."""
    dialect: BatchDialect
    endpoint: str
    """The path that each request goes to."""
    created: float
    expires: float
    state: BatchState = BatchState.RUNNING
    cancelled: float | None = None
    ended: float | None = None
    input_file: str = ""
    headers: dict[str, str] = {}
    """Of the submission, that go for each of its requests: what it says of the API's version."""
    metadata: dict[str, str] = {}
    problems: tuple[LineProblem, ...] = ()
    """Why it was never begun."""


class LineProblem(msgspec.Struct, frozen=True):
    """What is wrong with a line of a file."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


StateCounts = dict[RequestState, int]
"""How many requests of a batch are in which state."""


class BatchResult(msgspec.Struct, frozen=True):
    """What one request of a batch was answered with."""

    custom_id: str
    position: int
    state: RequestState
    status: int = 0
    """Of the answer over HTTP; 0 where there is none."""
    request_id: str = ""
    body: bytes = b""
    """The answer, as JSON."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a client uploaded, or that holds the results of a batch."""

    id: str
    owner: str
    created: float
    name: str
    purpose: str
    size: int
    batch: str = ""
    """The batch whose results it holds; empty for an upload."""
    failed: bool = False
    """It holds those results that are errors."""
