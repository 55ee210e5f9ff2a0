"""Every exception Athena raises, in one tree.

    AthenaError
    ├── ClientError                the caller's request is at fault
    │   ├── InvalidRequest         a field is missing, malformed or illegal (names its path)
    │   ├── UnsupportedFeature     legal, but the chosen upstream has no way to express it
    │   ├── UnknownModel           no upstream serves that model name
    │   └── LimitExceeded          a size or count bound was crossed
    ├── UpstreamError              the model's server is at fault
    │   ├── UpstreamStatus         it answered with an error status or an error body
    │   ├── UpstreamProtocol       it answered something its dialect does not allow
    │   ├── UpstreamTimeout        it did not answer in time
    │   └── UpstreamClosed         it ended the answer before finishing it
    ├── FormatError                model text is at fault
    │   ├── MalformedCall          a call's arguments are not JSON
    │   ├── TruncatedCall          the text ended inside a call
    │   └── UnknownTool            a call names a tool nobody declared
    ├── ConfigError                the configuration is at fault
    └── UsageError                 Athena's own API is used wrongly, such as feed after close

Decide by type, `kind` or `code`, never by the message. `kind` is the row of the error table in
`dialects` (one row, four spellings); `code` is a stable machine name of the exact cause.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

ErrorKind = Literal[
    "invalid",
    "context_length",
    "content_policy",
    "auth",
    "billing",
    "permission",
    "not_found",
    "conflict",
    "too_large",
    "rate_limit",
    "overloaded",
    "timeout",
    "cancelled",
    "upstream",
    "server",
]

__all__ = [
    "AthenaError",
    "ClientError",
    "ConfigError",
    "ConfigProblem",
    "ErrorKind",
    "FormatError",
    "InvalidRequest",
    "LimitExceeded",
    "MalformedCall",
    "TruncatedCall",
    "UnknownModel",
    "UnknownTool",
    "UnsupportedFeature",
    "UpstreamClosed",
    "UpstreamError",
    "UpstreamProtocol",
    "UpstreamStatus",
    "UpstreamTimeout",
    "UsageError",
]


class AthenaError(Exception):
    """Base of all errors; `kind` picks the row of every dialect's error table."""

    kind: ErrorKind = "server"
    code: str = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind | None = None,
        code: str | None = None,
        status: int | None = None,
        path: str = "",
        retry_after: float | None = None,
        raw: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or type(self).kind
        self.code = code or type(self).code
        self.status = status
        self.path = path
        self.retry_after = retry_after
        self.raw = raw


class ClientError(AthenaError):
    """The caller's request is at fault; sending it again changes nothing."""

    kind: ErrorKind = "invalid"
    code = "invalid_request"


class InvalidRequest(ClientError):
    """A field is missing, malformed or illegal; `path` names it."""

    code = "invalid_request"


class UnsupportedFeature(ClientError):
    """The request is legal but can not be expressed to the chosen upstream; `path` names the field."""

    code = "unsupported_feature"


class UnknownModel(ClientError):
    """No configured upstream serves the model name."""

    kind: ErrorKind = "not_found"
    code = "model_not_found"


class LimitExceeded(ClientError):
    """A bound of `Limits` was crossed."""

    kind: ErrorKind = "too_large"
    code = "limit_exceeded"


class UpstreamError(AthenaError):
    """The model's server is at fault."""

    kind: ErrorKind = "upstream"
    code = "upstream_error"
    request_sent: bool = False
    """Did any byte of the request go out? Then the upstream may have run it, and may bill it."""
    response_started: bool = False
    """Did any byte of an answer come in?"""


class UpstreamStatus(UpstreamError):
    """The upstream answered with an error of its own; status and body are kept."""

    code = "upstream_status"


class UpstreamProtocol(UpstreamError):
    """The upstream answered something its dialect does not allow."""

    code = "upstream_protocol"


class UpstreamTimeout(UpstreamError):
    """The upstream did not answer in time."""

    kind: ErrorKind = "timeout"
    code = "upstream_timeout"


class UpstreamClosed(UpstreamError):
    """The upstream ended the answer before it was finished."""

    code = "upstream_closed"


class FormatError(AthenaError):
    """A tool call written by the model can not be used."""

    kind: ErrorKind = "upstream"
    code = "malformed_call"


class MalformedCall(FormatError):
    """The arguments of a call are not a JSON object."""

    code = "malformed_call"


class TruncatedCall(FormatError):
    """The answer ended inside a call."""

    code = "truncated_call"


class UnknownTool(FormatError):
    """A call names a tool that the request did not declare."""

    code = "unknown_tool"


class ConfigProblem(NamedTuple):
    """One thing that is wrong in a configuration, where it stands, and what to do about it."""

    message: str
    key: str = ""
    source: str = ""
    """The file, or the environment variable or flag, that holds the value."""
    line: int | None = None
    remedy: str = ""
    fatal: bool = True
    """False: a warning."""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        text = ": ".join(part for part in (place, self.key, self.message) if part)
        return f"{text} ({self.remedy})" if self.remedy else text


class ConfigError(AthenaError):
    """The configuration is at fault; the message names file and key. `problems` are all of them, when there may be several."""

    code = "invalid_config"
    problems: tuple[ConfigProblem, ...] = ()

    @classmethod
    def of(cls, problems: tuple[ConfigProblem, ...]) -> ConfigError:
        """One error for everything that is wrong."""
        fatal = [problem for problem in problems if problem.fatal]
        head = "the configuration has a problem" if len(fatal) == 1 else f"the configuration has {len(fatal)} problems"
        error = cls("\n  ".join([f"{head}:", *map(str, fatal)]), path=fatal[0].key if fatal else "")
        error.problems = problems
        return error


class UsageError(AthenaError):
    """Athena's own API is used wrongly."""

    code = "usage_error"
