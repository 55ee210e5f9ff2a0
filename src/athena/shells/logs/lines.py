"""How a record is shown: a line of JSON, a line of text for a file, or one as wide as the terminal for a person who watches."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from athena.shells.logs.redactor import MASK, SHORT_TEXT, TEXTS_SEEN, Redactor

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
_WIDE = 130
"""Columns from which on a request's whole id is shown, and the time of its first byte."""
_LEAST_NAME = 12
"""Columns of a model's name that are shown however much there is to tell."""
_SHORT_ID = len("req_") + 8


def _plain(text: str) -> str:
    """One line of what can be seen, whatever its fields contain: the rest (controls, marks of direction, characters without a
    width, spaces that are none) is written as an escape."""
    return text if text.isprintable() else "".join([_shown(letter) for letter in text])


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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
            return {str(name): self._clean_field(name, item) for name, item in value.items()}
        if isinstance(value, tuple | list):
            return [self._clean(item) for item in value]
        return value

    def _clean_field(self, name: Any, value: Any) -> Any:
        if _is_secret_name(name) and value:
            return MASK
        return self._redact.trace_id(value) if name == _TRACE and isinstance(value, str) else self._clean(value)


_TRACE = "trace_id"
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
            if name == _TRACE:
                text = _plain(self._redact.trace_id(str(value)))
            else:
                text = MASK if _is_secret_name(name) and value else self._safe(str(value))
            pairs.append(f"{name}={text!r}" if not text or " " in text else f"{name}={text}")
        return pairs

    def _safe(self, text: str) -> str:
        shown = self._shown.get(text)
        if shown is None:
            shown = _plain(self._redact(text))
            if len(text) <= SHORT_TEXT:
                if len(self._shown) >= TEXTS_SEEN:
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
        self._columns = columns or _columns_of_stderr

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
        right = f"  {_times(fields) if columns >= _WIDE else _seconds(fields.get('duration_ms', 0.0))}  "
        room = columns - _TERMINAL_MARGIN - len(left) - len(right) - len(shown_id)
        told = self._safe(_story(fields))
        names = self._names(fields, room - (_columns(told) + 2 if told else 0))
        losses = self._safe(fields.get("warning_text", ""))
        text = _fitted("  ".join(filter(None, (names, ", ".join(filter(None, (told, losses)))))), room)
        line = f"{left}{text}{right}{self._linked(request_id, shown_id)}"
        if fields.get("error_message"):
            where = f"{fields['url']}: " if fields.get("url") else ""
            words = f"{fields.get('error', '')}: {self._safe(where + fields['error_message'])}"
            line += f"\n    {_folded(words, columns, 4)}"
        return line

    def _names(self, fields: Mapping[str, Any], room: int) -> str:
        """What was asked for and what answered; where there is no room for both, what answered."""
        target = self._safe(_target(fields))
        source = self._safe(fields.get("model") or fields.get("path", ""))
        if not target or f"/{target}".endswith(f"/{source}"):  # the same name is not told twice
            return _cut(target or source, max(room, _LEAST_NAME))
        both = f"{source} → {target}"
        return both if _columns(both) <= room else _cut(target, max(room, _LEAST_NAME))

    def _message(self, message: str, fields: Mapping[str, Any]) -> str:
        return _folded(super()._message(message, fields), max(_NARROWEST, self._columns()), _TERMINAL_MARGIN)

    def _linked(self, request_id: str, shown: str) -> str:
        """The id as a link of the terminal (OSC 8); terminals without links show the id alone."""
        if not self._inspector or not self._colours:
            return shown
        return f"\x1b]8;;{self._inspector}#/x/{quote(request_id, safe='')}\x1b\\{shown}\x1b]8;;\x1b\\"


def _columns_of_stderr() -> int:
    """Its own: standard output may go elsewhere."""
    try:
        return os.get_terminal_size(2).columns
    except OSError:
        return _NARROWEST


_TERMINAL_MARGIN = len("21:44:28 warning ")


def _target(fields: Mapping[str, Any]) -> str:
    return "/".join(part for part in (fields.get("upstream", ""), fields.get("upstream_model", "")) if part)


def _times(fields: Mapping[str, Any]) -> str:
    times = _seconds(fields.get("duration_ms", 0.0))
    return f"{times} first {_seconds(fields['first_byte_ms'])}" if fields.get("first_byte_ms") else times


def _story(fields: Mapping[str, Any]) -> str:
    """What happened to the calls, in words: `2 calls, 1 from text (kimi_k2), repaired`."""
    told = []
    calls, found = fields.get("calls", 0), fields.get("text_calls", 0)
    form = f"from text ({fields.get('format', '')})"
    if calls:
        told.append(f"{calls} call{'s' if calls > 1 else ''}{f' {form}' if found == calls else ''}")
    if found and found != calls:
        told.append(f"{found} {form}")
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


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # few lines need it

    return cell_len(text)


def _cut(text: str, room: int) -> str:
    """As much of a text as there are columns for."""
    if _columns(text) <= room:
        return text
    if text.isascii():
        return text[: room - 1] + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, room - 1) + "…"


def _fitted(text: str, room: int) -> str:
    """The text in exactly that many columns."""
    text = _cut(text, max(room, 1))
    return text + " " * (room - _columns(text))


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds:.0f}ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f}s"


def plain_line(message: str) -> str:
    """A line in the form of the text log, for what is written before logging begins."""
    return f"{local_time(time.time())} info    {_plain(message)}\n"


def local_time(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment)) + f".{int(moment % 1 * 1000):03d}"


def _iso_time(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1000):03d}Z"
