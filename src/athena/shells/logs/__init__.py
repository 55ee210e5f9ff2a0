"""What the process says about itself: text or JSON lines, without secrets, written off the event loop.

A record may carry `extra={"fields": {...}}`; the request line of the gateway is such a record. Every line is redacted after it
is formatted, so nothing gets around it: configured secrets by their exact text, others by their looks. Lines go through a
bounded queue to a thread of their own: a slow disk costs lines, which are counted, and never a stream.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from athena.serving.record import RequestRecord, as_fields
from athena.shells.config import Config, Loaded, Log
from athena.shells.logs.lines import JsonLines, TerminalLines, TextLines
from athena.shells.logs.redactor import Redactor, secrets_of
from athena.shells.logs.sinks import FileSink, LinesHandler, Sink, StderrSink
from athena.shells.stream_mask import StreamMask

BODY_LOG = logging.getLogger("athena.body")
_BODY_SHOWN = 16 * 1024

# -- bodies ----------------------------------------------------------------------------------------------------------------


def log_body(direction: str, request_id: str, data: bytes) -> None:
    """A body or a piece of a stream, at debug only, cut to a bound; `direction` says from whom to whom."""
    if not BODY_LOG.isEnabledFor(logging.DEBUG):
        return
    fields: dict[str, Any] = {"request_id": request_id, "direction": direction, "bytes": len(data)}
    # Masked before it is cut: of a key that lies across the cut the line's own redaction would know only the beginning.
    mask = StreamMask(_SECRETS)
    shown = mask.feed(bytes(data[:_BODY_SHOWN])) + mask.close()
    fields["body"] = shown.decode("utf-8", "replace")
    BODY_LOG.debug("body", extra={"fields": fields})


# -- what is wrong with the configuration ----------------------------------------------------------------------------------


def log_warnings(loaded: Loaded) -> None:
    """Files and keys that are not used, where Athena is part of another program and has no terminal of its own."""
    for problem in loaded.warnings:
        logging.getLogger("athena").warning("%s", problem)


def log_refusal(upstream: str, model: str, feature: str, keep_s: float) -> None:
    """Requests for a model go without what its upstream refuses."""
    tools = feature == "tools"
    logging.getLogger("athena").warning(
        "%s refuses %s for %s: %s for %g seconds; %s says so for good",
        upstream,
        feature,
        model,
        "they go into the prompt" if tools else "requests go without it",
        keep_s,
        "`tools: prompted`" if tools else "a `profile` of the upstream",
        extra={"fields": {"upstream": upstream, "upstream_model": model, "feature": feature}},
    )


def log_forgotten(upstream: str, model: str, count: int) -> None:
    """Somebody asked to forget what was learnt from refusals."""
    logging.getLogger("athena").info(
        "what was learnt about %s is forgotten: %d %s",
        "/".join(filter(None, (upstream, model))) or "all upstreams",
        count,
        "lesson" if count == 1 else "lessons",
        extra={"fields": {"upstream": upstream, "upstream_model": model, "forgotten": count}},
    )


# -- how this process logs -------------------------------------------------------------------------------------------------

_HANDLER: list[logging.Handler] = []
"""The one handler of this process."""
_ROOT, _OWN, _LINES = logging.getLogger(), logging.getLogger("athena"), logging.getLogger("athena.request")


class _RequestLine(logging.LogRecord):
    """The line about one request with no more than our own forms show. Its fields are found when it is written."""

    name, msg, args, exc_info = "athena.request", "request", None, None

    def __init__(self, level: int, record: RequestRecord) -> None:
        self.levelname = logging.getLevelName(level)
        self.created = time.time()
        self._record = record

    @property
    def fields(self) -> dict[str, Any]:
        return as_fields(self._record)


def write_line(record: RequestRecord) -> None:
    """The line about a request, at info when the answer went well, else at warning."""
    level = logging.INFO if record.outcome in ("ok", "client_closed") else logging.WARNING
    if not _LINES.isEnabledFor(level):
        return
    if _HANDLER and _ROOT.handlers == _HANDLER and not _OWN.handlers and not _LINES.handlers:
        _HANDLER[0].emit(_RequestLine(level, record))
        return
    # Somebody else listens, too. Made by hand: `log` looks for the line of code that called it, which nobody is shown.
    line = logging.LogRecord(_LINES.name, level, "", 0, "request", None, None)
    line.fields = as_fields(record)
    _LINES.handle(line)


_SECRETS: list[str] = []
"""The secrets of the configuration by which this process logs."""


def configure(config: Config, *, threaded: bool = True, default_file: str = "", inspector: str = "") -> None:
    """Log as the configuration says, from now on; replaces an earlier arrangement. Raises OSError for a file it may not use.

    `inspector` is the address of the inspector's page, for links on a terminal.
    """
    settings: Log = config.log
    file = settings.file or default_file
    sink: Sink = FileSink(Path(file).expanduser(), settings.file_bytes) if file else StderrSink()
    _SECRETS[:] = secrets_of(config)
    redact = Redactor(_SECRETS)
    handler = LinesHandler(sink, threaded=threaded)
    if settings.format == "json":
        handler.setFormatter(JsonLines(redact))
    elif file or sys.stderr is None or not sys.stderr.isatty():
        handler.setFormatter(TextLines(redact))
    else:
        colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        handler.setFormatter(TerminalLines(redact, colours=colours, inspector=inspector))
    shut_down()
    _HANDLER.append(handler)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("athena").setLevel(settings.level.upper())
    logging.captureWarnings(True)


def shut_down() -> None:
    """Write what is waiting and stop."""
    root = logging.getLogger()
    while _HANDLER:
        handler = _HANDLER.pop()
        root.removeHandler(handler)
        handler.close()


def forget() -> None:
    """After a fork: the parent's handler is not ours to close."""
    root = logging.getLogger()
    while _HANDLER:
        root.removeHandler(_HANDLER.pop())
