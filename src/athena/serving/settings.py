"""What an operator may set about attempts and upstreams. These values are parts of the configuration: the text under a field is
its description in the reference, so it is written for the person who edits `athena.yml`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=604800)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """Retries of failed requests, made only while the client has not received a byte."""

    attempts: Annotated[int, Meta(ge=0, le=10)] = 2
    """Retries after the first attempt."""
    wait_s: Seconds = 60
    """Seconds of waiting in total."""
    share: Share = 0.2
    """Retries as a share of all traffic."""
    retry_after_max_s: Seconds = 120
    """Longest Retry-After passed on to a client."""
    after_timeout: bool = False
    """Retry also when the request went out and no answer came; it may then be paid twice."""


FindingName = Literal[
    "invalid_json", "unknown_name", "off_schema", "leak", "repaired", "cut", "reasoning_only", "empty", "echo", "error"
]
"""The values of `athena.quality.Finding`."""


class ToolHealth(msgspec.Struct, frozen=True, kw_only=True):
    """When a model of an upstream is left out for what its answers hold, while its rule has another target."""

    bad_share: Share = 0.1
    """Bad answers as a share of `answers` at which it is left out; 0: never."""
    answers: Annotated[int, Meta(ge=4, le=1000)] = 40
    """How many of its last answers to requests with tools are looked at. The share is always of this number, so that one bad
    answer after a start takes nothing out."""
    window_s: Seconds = 600
    """Seconds after which an answer counts no longer."""
    bad: tuple[FindingName, ...] = ("invalid_json", "unknown_name", "off_schema", "cut", "reasoning_only", "empty")
    """What makes an answer bad. Calls in text (leak) and repaired ones reach the client whole, so they are left to you; error
    means failures of the upstream, and those count for its circuit breaker already."""
    probe_s: Seconds = 10
    """While it is left out, one request with tools goes there in so many seconds: a canary."""
    probes: AtLeastOne = 10
    """Good answers in a row that bring it back."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """When an upstream is in cooldown after failures."""

    failures: Count = 5
    """Failures in a row after which an upstream is left out while a fallback exists; 0: never."""
    error_rate: Share = 0.5
    """Share of failed requests at which it is left out too; 0: never."""
    window_s: Seconds = 30
    """Seconds over which that share is taken."""
    min_requests: AtLeastOne = 20
    """Requests in that time below which the share says nothing."""
    cooldown_s: Seconds = 15
    """Seconds it is left out; then one request at a time tries whether it is back."""
    cooldown_max_s: Seconds = 240
    """The time doubles with every such try that fails, up to this."""
    fail_fast: bool = False
    """No target is left: answer 503 at once. false: ask the first target all the same."""
    tools: ToolHealth = ToolHealth()
    """When a model of an upstream is left out for what its answers hold."""
