"""The five classes of failure of prompted tools, each under its branch of the one tree.

ToolConfigurationError   options that cannot work, found at construction            500
ToolValidationError      a request that breaks a limit or a rule of tools            400
ToolProcessingError      an answer that does not give what was asked for             502
ToolSystemError          cancelled by the caller                                     499
ToolNetworkError         the upstream failed                                         502
"""

from __future__ import annotations

from athena.errors import AthenaError, ConfigError, ErrorKind, FormatError, InvalidRequest, UpstreamError

__all__ = [
    "ToolConfigurationError",
    "ToolNetworkError",
    "ToolProcessingError",
    "ToolSystemError",
    "ToolValidationError",
    "http_status",
]


class ToolConfigurationError(ConfigError):
    """The adapter's options cannot work.

    Fix all that `problems` names.
    """

    code = "invalid_tool_options"


class ToolValidationError(InvalidRequest):
    """The request's tools break a rule or a limit; the message names the number.

    Declare fewer or shorter tools, or raise the option.
    """

    code = "invalid_tools"


class ToolProcessingError(FormatError):
    """The answer does not hold the call that was required, or holds an unusable one.

    Ask again, or let the adapter do so with `reask=True`.
    """

    code = "tool_answer_unusable"


class ToolSystemError(AthenaError):
    """The caller's `cancelled` ended the work.

    Nothing has to be done.
    """

    kind: ErrorKind = "cancelled"
    code = "cancelled"


class ToolNetworkError(UpstreamError):
    """The upstream failed: an error status, an error in the stream, or an end before the end.

    Try again later; `status` and `raw` keep what the upstream said.
    """

    code = "upstream_error"


_STATUS: tuple[tuple[type[AthenaError], int], ...] = (
    (ToolConfigurationError, 500),
    (ToolValidationError, 400),
    (ToolProcessingError, 502),
    (ToolSystemError, 499),
    (ToolNetworkError, 502),
)


def http_status(error: AthenaError) -> int:
    """The HTTP status for an error of this room; an upstream's own status where it sent one."""
    if error.status is not None:
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
