"""What the process says about itself: text or JSON lines, without secrets, written off the event loop.

A record may carry `extra={"fields": {...}}`; the request line of the gateway is such a record. Every line is redacted after it
is formatted, so nothing gets around it: configured secrets by their exact text, others by their looks. Lines go through a
bounded queue to a thread of their own: a slow disk costs lines, which are counted, and never a stream.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from athena.serving.record import RequestRecord, as_fields
from athena.shells.config import Config, Loaded, Log, Secret
from athena.shells.own_files import UnsafePlace, open_own
from athena.shells.stream_mask import StreamMask

BODY_LOG = logging.getLogger("athena.body")
_BODY_SHOWN = 16 * 1024
_QUEUE_LINES = 10_000
_BACKUPS = 3
_MASK = "***"

# -- secrets ---------------------------------------------------------------------------------------------------------------

_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=\-]{4,}")
_NAMED = re.compile(
    r"(?i)((?:x-api-key|x-goog-api-key|api[_-]?key|authorization|x-auth-token|set-cookie|cookie|password|client_secret)"
    r"[\"']{0,2}\s{0,4}[:=,]\s{0,4}b?[\"']?)(?!\s|bearer\b|basic\b|null\b|none\b|\$\{)[^\s\"',;&]{4,}"
)
_IN_NAMES = ("key", "auth", "cook", "passw", "secret")
"""One of these is in each name above, whatever the case of its letters: a text without any, as most are, need not be searched.
They have no i, for which the pattern also takes letters that do not fold to it."""
_PREFIXED = re.compile(r"\b(sk-|ath_|AIza|gsk_|xai-|hf_|ghp_|github_pat_|glpat-|AKIA|ya29\.|eyJ)[A-Za-z0-9_\-.]{8,}")
_LONG = re.compile(r"[A-Za-z0-9_+=\-]{32,}")
_DENSE = re.compile(r"[A-Za-z0-9+]{20,}")
_QUERY_KEY = re.compile(r"([?&](?:key|api_key|token)=)[^&\s\"']+")


_SHORT_TEXT = 200
_TEXTS_SEEN = 512
_OWN_ID = re.compile("req_[0-9a-f]{24}")
"""An id of a request as the gateway makes it; none of the patterns of secrets above can match one."""


class Redactor:
    """Masks secrets in text: those it knows, and what looks like one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({secret for secret in secrets if len(secret) >= 6}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self._seen: dict[str, str] = {}
        """Short texts of which it is known what they are shown as: most of what lines say comes again and again."""

    def __call__(self, text: str) -> str:
        shown = self._seen.get(text)
        if shown is None:
            shown = self._masked(text)
            if len(text) <= _SHORT_TEXT:
                if len(self._seen) >= _TEXTS_SEEN:
                    self._seen.clear()
                self._seen[text] = shown
        return shown

    def request_id(self, text: str) -> str:
        """The id of a request as a line shows it. It comes once: nothing is remembered of it."""
        if _OWN_ID.fullmatch(text) is None:
            return self._masked(text)
        return text if self._known is None else self._known.sub(_MASK, text)

    def _masked(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(_MASK, text)
        text = _BEARER.sub(rf"\1\2{_MASK}", text)
        folded = text.casefold()
        if any(part in folded for part in _IN_NAMES):
            text = _NAMED.sub(rf"\1{_MASK}", text)
        text = _QUERY_KEY.sub(rf"\1{_MASK}", text)
        text = _PREFIXED.sub(rf"\1{_MASK}", text)
        return _LONG.sub(_mask_dense, text)


def _mask_dense(found: re.Match[str]) -> str:
    """Random text has long pieces of letters and digits mixed; model names and ids do not."""
    text = found.group()
    for piece in _DENSE.findall(text):
        if any(letter.isdigit() for letter in piece) and any(letter.isalpha() for letter in piece):
            return text[:4] + _MASK
    return text


def secrets_of(value: Any) -> Iterator[str]:
    """Every secret text in a configuration."""
    if isinstance(value, Secret):
        yield value.reveal()
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from secrets_of(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from secrets_of(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from secrets_of(item)


# -- lines -----------------------------------------------------------------------------------------------------------------

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31;1"}
_REQUEST_SHOWN = frozenset(
    ("request_id", "status", "outcome", "dialect", "model", "upstream", "upstream_model", "duration_ms", "first_byte_ms")
)
"""Fields with a place of their own in the request line; the others follow as name=value."""
_QUIET = frozenset(("upstream_dialect", "chunks", "own_us_per_chunk"))
"""Fields that only the JSON form shows."""
_NOT_LISTED = _REQUEST_SHOWN | _QUIET
_NARROWEST = 60
"""Columns below which a terminal's line is not cut any further."""
_WIDE = 110
"""Columns from which on a request's whole id is shown."""
_SHORT_ID = len("req_") + 8


def _plain(text: str) -> str:
    """One line, whatever its fields contain."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}" if ord(found.group()) < 256 else "?", text)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _trace(record: logging.LogRecord) -> str:
    if record.exc_info and record.exc_info[0] is not None:
        return logging.Formatter().formatException(record.exc_info)
    return ""


class JsonLines(logging.Formatter):
    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _iso_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if trace := _trace(record):
            line["trace"] = trace
        # Redacted value by value: masking inside encoded JSON could swallow a quote.
        text = msgspec.json.encode(self._clean(line), enc_hook=str).decode()
        return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, dict):
            return {str(name): _MASK if _is_secret_name(name) and item else self._clean(item) for name, item in value.items()}
        if isinstance(value, tuple | list):
            return [self._clean(item) for item in value]
        return value


_SECRET_NAMES = frozenset(("api_key", "authorization", "x_api_key", "x_goog_api_key", "password", "cookie"))


def _is_secret_name(name: Any) -> bool:
    return str(name).lower().replace("-", "_") in _SECRET_NAMES


class TextLines(logging.Formatter):
    """Aligned columns for a file: time, level, then the request or the message."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact
        self._shown: dict[str, str] = {}
        """Short texts as they are shown: those of one request's line are those of the next one's."""
        self._second = (-1, "")
        """The last second that was written, and its text."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        is_request = record.name == "athena.request" and "request_id" in fields
        text = self._request(fields) if is_request else self._message(record.getMessage(), fields)
        if trace := _trace(record):
            # Indented, so that nothing in it can pass for a line of ours.
            text += "".join(f"\n    {_plain(part)}" for part in self._redact(trace).splitlines())
        level = record.levelname.lower()
        return f"{self._moment(record.created)} {self._label(level)} {text}"

    def _moment(self, created: float) -> str:
        second = int(created)
        if second != self._second[0]:
            self._second = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return f"{self._second[1]}.{int(created % 1 * 1000):03d}"

    def _label(self, level: str) -> str:
        return f"{level:<7}"

    def _message(self, message: str, fields: Mapping[str, Any]) -> str:
        return " ".join((self._safe(message), *self._pairs(fields)))

    def _request(self, fields: Mapping[str, Any]) -> str:
        """`200 ok      messages   claude-x -> openrouter/kimi-k2   1.24s first 0.31s  req_...  calls=1 input_tokens=43`"""
        source = f"{fields.get('dialect', ''):<18} {fields.get('model', '')}"
        target = _target(fields)
        route = f"{source} -> {target}" if target else source
        head = f"{fields.get('status') or '-':<3} {fields.get('outcome', ''):<6} {self._safe(route):<60}  {_times(fields):<20}"
        rest = self._pairs(fields, left_out=_NOT_LISTED)
        return " ".join((head, "", _plain(self._redact.request_id(fields["request_id"])), *rest))

    def _pairs(self, fields: Mapping[str, Any], left_out: frozenset[str] = frozenset()) -> list[str]:
        """Fields as `name=value`; a value is redacted by itself, since the name before it would make any id look like a key."""
        pairs = []
        for name, value in fields.items():
            if name in left_out:
                continue
            if type(value) is int and name not in _SECRET_NAMES:
                pairs.append(f"{name}={value}")
                continue
            text = _MASK if _is_secret_name(name) and value else self._safe(str(value))
            pairs.append(f"{name}={text!r}" if not text or " " in text else f"{name}={text}")
        return pairs

    def _safe(self, text: str) -> str:
        shown = self._shown.get(text)
        if shown is None:
            shown = _plain(self._redact(text))
            if len(text) <= _SHORT_TEXT:
                if len(self._shown) >= _TEXTS_SEEN:
                    self._shown.clear()
                self._shown[text] = shown
        return shown


class TerminalLines(TextLines):
    """Lines for a person who watches: one line as wide as the terminal for each request, and a second one where it failed."""

    def __init__(
        self, redact: Redactor, *, colours: bool, inspector: str = "", columns: Callable[[], int] | None = None
    ) -> None:
        """`inspector` is the address of the inspector's page, to which each request's id is linked."""
        super().__init__(redact)
        self._colours = colours
        self._inspector = inspector
        self._columns = columns or (lambda: shutil.get_terminal_size().columns)

    def _moment(self, created: float) -> str:
        return time.strftime("%H:%M:%S", time.localtime(created))

    def _label(self, level: str) -> str:
        label = super()._label(level)
        return f"\x1b[{_COLOURS.get(level, '0')}m{label}\x1b[0m" if self._colours else label

    def _request(self, fields: Mapping[str, Any]) -> str:
        request_id = _plain(self._redact.request_id(fields["request_id"]))
        columns = max(_NARROWEST, self._columns())
        # What a narrow terminal shows of an id finds the exchange all the same (athena record show req_5f0a).
        shown_id = request_id if columns >= _WIDE else request_id[:_SHORT_ID]
        left = f"{fields.get('status') or '-':<3} {fields.get('outcome', ''):<5} "
        right = f"  {_times(fields)}  "
        room = columns - _TERMINAL_MARGIN - len(left) - len(right) - len(shown_id)
        target = _target(fields)
        source = fields.get("model") or fields.get("path", "")
        parts = [f"{source} → {target}" if target and target.rpartition("/")[2] != source else target or source, _story(fields)]
        text = _cut(self._safe("  ".join(part for part in parts if part)), room)
        line = f"{left}{text:<{max(room, 0)}}{right}{self._linked(request_id, shown_id)}"
        if fields.get("error_message"):
            where = f"{fields['url']}: " if fields.get("url") else ""
            words = f"{fields.get('error', '')}: {self._safe(where + fields['error_message'])}"
            line += f"\n    {_folded(words, columns, 4)}"
        return line

    def _message(self, message: str, fields: Mapping[str, Any]) -> str:
        return _folded(super()._message(message, fields), max(_NARROWEST, self._columns()), _TERMINAL_MARGIN)

    def _linked(self, request_id: str, shown: str) -> str:
        """The id as a link of the terminal (OSC 8); terminals without links show the id alone."""
        if not self._inspector or not self._colours:
            return shown
        return f"\x1b]8;;{self._inspector}#/x/{quote(request_id, safe='')}\x1b\\{shown}\x1b]8;;\x1b\\"


_TERMINAL_MARGIN = len("21:44:28 warning ")


def _target(fields: Mapping[str, Any]) -> str:
    return "/".join(part for part in (fields.get("upstream", ""), fields.get("upstream_model", "")) if part)


def _times(fields: Mapping[str, Any]) -> str:
    times = _seconds(fields.get("duration_ms", 0.0))
    return f"{times} first {_seconds(fields['first_byte_ms'])}" if fields.get("first_byte_ms") else times


def _story(fields: Mapping[str, Any]) -> str:
    """What happened to the calls, in words: `2 calls, 1 from text (kimi_k2), repaired`."""
    told = []
    if calls := fields.get("calls"):
        told.append(f"{calls} call{'s' if calls > 1 else ''}")
    if found := fields.get("text_calls"):
        told.append(f"{found} from text ({fields.get('format', '')})")
    if fields.get("repairs"):
        told.append("repaired")
    if fields.get("bad_calls"):
        told.append(f"{fields['bad_calls']} against the schema")
    if fields.get("echoes"):
        told.append(f"{fields['echoes']} only quoted")
    if fields.get("chosen_by") == "canary":
        told.append("canary")
    if fields.get("attempts", 1) > 1:
        told.append(f"{fields['attempts']} attempts")
    if fields.get("warning_text"):
        told.append(fields["warning_text"])
    return ", ".join(told)


def _folded(text: str, columns: int, start: int) -> str:
    """Lines that break between words; the first begins after `start` columns, the others after four."""
    if start + len(text) <= columns:
        return text
    import textwrap

    lines = textwrap.wrap(
        text, columns, initial_indent=" " * start, subsequent_indent=" " * 4, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)[start:]


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds:.0f}ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f}s"


def plain_line(message: str) -> str:
    """A line in the form of the text log, for what is written before logging begins."""
    return f"{_local_time(time.time())} info    {_plain(message)}\n"


def _local_time(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment)) + f".{int(moment % 1 * 1000):03d}"


def _iso_time(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1000):03d}Z"


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


# -- where lines go --------------------------------------------------------------------------------------------------------


class Sink(Protocol):
    """Takes finished lines."""

    def write(self, text: str) -> None: ...

    def close(self) -> None: ...


class StderrSink:
    def write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(2, data) :]

    def close(self) -> None:
        """Nothing to close."""


_OWN_LINE = re.compile(
    rb"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3} (debug|info|warning|error|critical) "
    rb'|\{"time":"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}Z","level":"[a-z]+","logger":"'
    rb"|athena: "
)
"""How a log of ours begins: a line in text or JSON, or what `athena` itself said while it was started in the background."""


def open_log(path: Path) -> int:
    """A descriptor that appends to a log of ours, made with mode 600 where it is missing.

    Raises UnsafePlace for anything else that is there already: the lines hold names that clients choose, and in a file that
    some other program reads they could be instructions.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        _check_is_log(path, descriptor)
        os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_is_log(path: Path, descriptor: int) -> None:
    beginning = os.pread(descriptor, 128, 0)
    if beginning and not _OWN_LINE.match(beginning):
        raise UnsafePlace(f"{path} is there already and is not a log of Athena; name another file, or move this one away")


class FileSink:
    """A file of mode 600 that is put aside at a size. Several processes may write to the same one, or somebody may move it.

    Raises UnsafePlace when the file, or one that a full log would be moved to, is there and is not a log of ours.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._file = -1
        for number in range(1, _BACKUPS + 1):
            self._check_backup(self._backup(number))
        self._open()

    def write(self, text: str) -> None:
        """Write whole lines; may raise OSError."""
        data = text.encode("utf-8", "backslashreplace")
        if not self._is_current():
            self._open()
        size = os.fstat(self._file).st_size
        if size and size + len(data) > self._limit:
            self._rotate()
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self.close()
        self._file = open_log(self._path)

    def _check_backup(self, path: Path) -> None:
        try:
            descriptor = open_own(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            _check_is_log(path, descriptor)
        finally:
            os.close(descriptor)

    def _is_current(self) -> bool:
        if self._file < 0:
            return False
        try:
            found = os.lstat(self._path)
        except OSError:
            return False
        own = os.fstat(self._file)
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def _rotate(self) -> None:
        for number in range(_BACKUPS, 0, -1):
            source = self._path if number == 1 else self._backup(number - 1)
            with contextlib.suppress(FileNotFoundError):
                os.replace(source, self._backup(number))
        self._open()

    def _backup(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


_GATHER_S = 0.02


class LinesHandler(logging.Handler):
    """Formats and writes records; with `threaded` in a thread of its own, behind a bounded queue."""

    def __init__(self, sink: Sink, *, threaded: bool) -> None:
        super().__init__()
        self._sink = sink
        self._dropped = 0
        self._queue: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._drain, name="athena-log", daemon=True)
            self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that were dropped since the last report of it."""
        return self._dropped

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record; never waits, never raises."""
        if self._thread is None:
            self._write([record])
            return
        if self._queue.qsize() < _QUEUE_LINES:
            self._queue.put(record)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Write what is waiting, for at most two seconds."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(2)
            self._thread = None
        self._sink.close()
        super().close()

    def _drain(self) -> None:
        while True:
            records = [self._queue.get()]
            while len(records) < 500:
                try:
                    records.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            last = records[-1] is None
            self._write([record for record in records if record is not None])
            if last:
                return
            # What comes meanwhile is written in one go: waking up for each line costs more than the line.
            time.sleep(_GATHER_S)

    def _write(self, records: list[logging.LogRecord]) -> None:
        lines = [self._line(record) for record in records]
        if self._dropped:
            lost, self._dropped = self._dropped, 0
            notice = {"msg": f"{lost} log lines were dropped", "levelname": "WARNING", "levelno": 30, "name": "athena"}
            lines.append(self._line(logging.makeLogRecord(notice)))
        try:
            if lines:
                self._sink.write("\n".join(lines) + "\n")
        except OSError:
            self._dropped += len(records)

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as error:
            # A log line that cannot be formatted must not end the thread that writes all others.
            return f"{_local_time(record.created)} error   a log line of {record.name} cannot be shown: {type(error).__name__}"


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
        handler.setFormatter(TerminalLines(redact, colours=not os.environ.get("NO_COLOR"), inspector=inspector))
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
