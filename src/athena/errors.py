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
    │   └── UnknownTool            a call names an undeclared tool
    ├── CannotLearn                a chat template shows no format that can be read back
    ├── ConfigError                the configuration is at fault
    └── UsageError                 Athena's own API is used wrongly, such as feed after close

Decide by type, `kind` or `code`, never by the message. `kind` is the row of the error table in
`dialects` (one row, four spellings); `code` is a stable machine name of the exact cause. The first paragraph of every class
says when it is raised, the second what to do; `docs/errors.md` is made of them.
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
"""The rows of every dialect's error table; the error reference says what each means and what each SDK raises for it."""

__all__ = [
    "AthenaError",
    "CannotLearn",
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


def more_about(code: str) -> str:
    """The end of a message: how to read what an error's code means and what to do about it."""
    return f"`athena help {code}` says more"


class AthenaError(Exception):
    """Base of everything Athena raises on purpose.

    Catch this one to catch them all. `message` is for people; decide by the class, by `kind` or by `code`.

    Args:
        message: What is wrong, in one sentence that names the field, the file or the upstream.
        kind: The row of every dialect's error table; the class has its own.
        code: The machine name of the exact cause; the class has its own.
        status: The upstream's HTTP status, where it sent one.
        path: The field of the request or the key of the configuration that is at fault.
        retry_after: Seconds to wait before trying again, where the upstream said so.
        raw: The beginning of what the upstream sent.
    """

    kind: ErrorKind = "server"
    """Which row of the error table it is: `invalid`, `auth`, `rate_limit`, `upstream`, ..."""
    code: str = "internal_error"
    """The exact cause, such as `truncated_call` or `connect_timeout`; stable."""
    message: str
    """What is wrong, for people."""
    status: int | None
    """The upstream's own HTTP status, where it sent one."""
    path: str
    """The field or key at fault, such as `messages[2].content`; empty when there is none."""
    retry_after: float | None
    """Seconds to wait, where the upstream said so."""
    raw: str
    """The beginning of what the upstream sent; empty when nothing came."""

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
    """The caller's request is at fault.

    Change the request; sending the same one again changes nothing.
    """

    kind: ErrorKind = "invalid"
    code = "invalid_request"


class InvalidRequest(ClientError):
    """A field is missing, malformed or illegal; `path` names it.

    Correct that field.
    """

    code = "invalid_request"


class UnsupportedFeature(ClientError):
    """The request is legal but cannot be expressed to the chosen upstream; `path` names the field.

    Leave the field out, choose an upstream that has it (see the dialects page), or, where the refusal comes from
    `strict`, turn that off to have it dropped with a warning.
    """

    code = "unsupported_feature"


class UnknownModel(ClientError):
    """No configured upstream serves the model name.

    Use one of the names that the message or `GET /v1/models` lists, or add a rule to `models`.
    """

    kind: ErrorKind = "not_found"
    code = "model_not_found"


class LimitExceeded(ClientError):
    """A bound on size or number was crossed; the message names the bound.

    Send less, or raise the bound under `limits` (in the library: the `limits` argument).
    """

    kind: ErrorKind = "too_large"
    code = "limit_exceeded"


class UpstreamError(AthenaError):
    """The model's server is at fault.

    Try again later or elsewhere. `request_sent` and `response_started` say whether the model may already have run.
    """

    kind: ErrorKind = "upstream"
    code = "upstream_error"
    request_sent: bool = False
    """Did any byte of the request go out? Then the upstream may have run it, and may bill it."""
    response_started: bool = False
    """Did any byte of an answer come in?"""


class UpstreamStatus(UpstreamError):
    """The upstream answered with an error of its own; `status` and `raw` keep what it said.

    Read the message: it is the upstream's. With `retry_after`, wait that long.
    """

    code = "upstream_status"


class UpstreamProtocol(UpstreamError):
    """The upstream answered something its dialect does not allow.

    See that `dialect` and `base_url` fit the server; `log: {sse_dir: DIR}` keeps what it sent.
    """

    code = "upstream_protocol"


class UpstreamTimeout(UpstreamError):
    """The upstream did not answer in time.

    Raise the limit that `code` names under `timeouts`, or see why the upstream is slow.
    """

    kind: ErrorKind = "timeout"
    code = "upstream_timeout"


class UpstreamClosed(UpstreamError):
    """The upstream could not be reached, or ended the answer before it was finished.

    Ask again: what came is no answer. If it happens often, look at the upstream and at proxies before it.
    """

    code = "upstream_closed"


class FormatError(AthenaError):
    """A tool call written by the model cannot be used.

    Ask the model again; nothing of the call may be run.
    """

    kind: ErrorKind = "upstream"
    code = "malformed_call"


class MalformedCall(FormatError):
    """The arguments of a call are not a JSON object.

    Ask again, or allow more repair (`repair: schema`).
    """

    code = "malformed_call"


class TruncatedCall(FormatError):
    """The answer ended inside a call.

    Ask again, with a higher `max_tokens` if the answer ended for its length.
    """

    code = "truncated_call"


class UnknownTool(FormatError):
    """A call names a tool that the request did not declare.

    Declare the tool, or answer the call with an error result so that the model can correct itself.
    """

    code = "unknown_tool"


class CannotLearn(AthenaError):
    """No format can be learnt from a chat template: it writes no calls, or not in a form that can be read back.

    The message says why. Name a shipped format instead, or write a format file by hand.
    """

    kind: ErrorKind = "invalid"
    code = "cannot_learn"


class ConfigProblem(NamedTuple):
    """One thing that is wrong in a configuration, where it stands, and what to do about it."""

    message: str
    """What is wrong."""
    key: str = ""
    """The key at fault, such as `models[0].use`."""
    source: str = ""
    """The file, or the environment variable or flag, that holds the value."""
    line: int | None = None
    """The line in that file."""
    remedy: str = ""
    """What to do about it."""
    fatal: bool = True
    """False: a warning."""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        text = ": ".join(part for part in (place, self.key, self.message) if part)
        return f"{text} ({self.remedy})" if self.remedy else text


class ConfigError(AthenaError):
    """The configuration is at fault; the message names file, line and key.

    Fix what the message names; `problems` holds all of them. `athena config check` shows the same.
    """

    code = "invalid_config"
    problems: tuple[ConfigProblem, ...] = ()
    """Everything that is wrong, warnings included, when there may be several."""

    @classmethod
    def of(cls, problems: tuple[ConfigProblem, ...]) -> ConfigError:
        """One error for everything that is wrong: `problems`, warnings among them."""
        fatal = [problem for problem in problems if problem.fatal]
        head = "the configuration has a problem" if len(fatal) == 1 else f"the configuration has {len(fatal)} problems"
        error = cls("\n  ".join([f"{head}:", *map(str, fatal)]), path=fatal[0].key if fatal else "")
        error.problems = problems
        return error


class UsageError(AthenaError):
    """Athena's own API is used wrongly, such as `feed` after `close`.

    Fix the program: the message says what was expected.
    """

    code = "usage_error"
