"""Log lines: their forms, what they must never show, where they go."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import stat
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from athena.serving.record import RequestRecord, as_fields
from athena.shells import logs
from athena.shells.config import Config, Log, Secret, Upstream
from athena.shells.logs import log_body, sinks
from athena.shells.logs.lines import JsonLines, TerminalLines, TextLines
from athena.shells.logs.redactor import Redactor, secrets_of
from athena.shells.logs.sinks import FileSink, LinesHandler
from support.patience import PATIENCE


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("athena")
    levels = root.level, own.level
    yield
    logs.shut_down()
    logging.captureWarnings(False)
    root.setLevel(levels[0])
    own.setLevel(levels[1])


def record(message: str, *, name: str = "athena", fields: dict[str, Any] | None = None) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": name, "levelname": "INFO", "levelno": 20, "msg": message, "created": 1_000_000.5})
    if fields is not None:
        made.fields = fields
    return made


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefgh12345678",
        "authorization: bearer SECRET-abc",
        '{"x-api-key": "SECRET-abc"}',
        "x-api-key=SECRET-abc",
        "b'x-goog-api-key', b'SECRET-abc'",
        "api_key='SECRET-abc'",
        "key is sk-SECRETSECRET",
        "sk-or-v1-SECRET0123456789",
        "https://host/v1?key=SECRET-abc&alt=sse",
        "token ath_SECRETSECRET99",
        "AIzaSECRETSECRETSECRET",
        "3f786850e387550fdab836ed7e6dc881de23001bSECRET",
        "Cookie: SECRETabc",
        "SET-COOKIE: SECRETabc",
        "set-cookıe: SECRETabc",
        "x-api-\u212aEY: SECRETabc",
        "apiKey: SECRETabc",
        "X-Auth-Token: SECRETabc",
        "paſſword: SECRETabc",
        "client_secret=SECRETabc",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJTRUNSRVQifQ.SECRET12345",
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    shown = Redactor()(text)
    assert "SECRET" not in shown
    assert "abcdefgh12345678" not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text",
    [
        "req_62cefbd0c790ea294e0c4eb5",
        "123e4567-e89b-12d3-a456-426614174000",
        "moonshotai/kimi-k2-0905-preview-turbo-long-name-of-a-model",
        "meta-llama-4-maverick-17b-128e-instruct-fp8-turbo-chat",
        "the upstream needs a key: set OPENROUTER_API_KEY, or api_key",
        "athena config new-key makes one; api_key: ${OPENROUTER_API_KEY}",
        "/home/user/projects/2026/very/long/path/to/some/file-name-2.py",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor()(text) == text


def test_configured_secrets_are_masked_whatever_they_look_like() -> None:
    upstream = Upstream(base_url="http://a", api_key=Secret("open sesame"), headers={"x": Secret("tra la la")})
    config = Config(upstreams={"a": upstream}, envelope_key=Secret("hush hush"))
    assert set(secrets_of(config)) == {"open sesame", "tra la la", "hush hush"}
    assert Redactor(secrets_of(config))("says open sesame and tra la la") == "says *** and ***"


def test_the_request_line() -> None:
    done = RequestRecord(
        "req_1", dialect="anthropic_messages", model="claude-x", upstream="or", upstream_model="kimi", status=200
    )
    done.outcome, done.duration_ms, done.first_byte_ms, done.calls, done.key = "ok", 1234.5, 310.0, 2, "laptop"
    line = TextLines(Redactor()).format(record("request", name="athena.request", fields=as_fields(done)))
    assert "info    200 ok     anthropic_messages claude-x -> or/kimi" in line
    assert "1.23s first 310ms" in line
    assert line.endswith("req_1 key=laptop calls=2")
    value = json.loads(JsonLines(Redactor()).format(record("request", name="athena.request", fields=as_fields(done))))
    assert value["message"] == "request"
    assert (value["calls"], value["status"], value["duration_ms"]) == (2, 200, 1234.5)
    assert value["time"] == "1970-01-12T13:46:40.500Z"


def _line_on_terminal(columns: int, **fields: Any) -> str:
    done = RequestRecord(
        "req_1", dialect="openai_chat", path="/v1/chat/completions", model="kimi-k2", upstream="or", status=200
    )
    done.upstream_model, done.outcome, done.duration_ms, done.first_byte_ms = "moonshotai/kimi-k2", "ok", 1234.5, 310.0
    for name, value in fields.items():
        setattr(done, name, value)
    form = TerminalLines(Redactor(), colours=False, columns=lambda: columns)
    return form.format(record("request", name="athena.request", fields=as_fields(done)))


def test_the_line_on_a_terminal_is_as_wide_as_the_terminal() -> None:
    lost = "temperature dropped: the upstream does not take it; messages[3].cache_control dropped: it has no cache marks"
    found = {"calls": 2, "text_calls": 1, "format": "kimi_k2", "repairs": 1, "warning_text": lost}
    for columns in (70, 100, 160):
        line = _line_on_terminal(columns, **found)
        assert len(line) == columns
        assert line.endswith("  1.23s  req_1" if columns < 130 else "  1.23s first 310ms  req_1")
    assert "kimi-k2 → or/moonshotai/kimi-k2" not in line, "the same name is not told twice"
    assert "or/moonshotai/kimi-k2  2 calls, 1 from text (kimi_k2), repaired, temperature dropped" in line


def test_a_name_with_a_slash_is_not_told_twice() -> None:
    name = "moonshotai/kimi-k2-0905"
    found = {"calls": 1, "text_calls": 1, "format": "kimi_k2", "model": name, "upstream": "openrouter", "upstream_model": name}
    assert "200 ok    openrouter/moonshotai/kimi-k2-0905  1 call from text (kim" in _line_on_terminal(110, **found)
    for asked, target in (
        ("openrouter/" + name, "openrouter/" + name),
        ("kimi-k2-0905", "openrouter/" + name),
        ("other/kimi-k2-0905", "other/kimi-k2-0905 → openrouter/" + name),
        ("claude-x", "claude-x → openrouter/" + name),
    ):
        assert f"200 ok    {target}  1 call" in _line_on_terminal(140, **{**found, "model": asked})


def test_a_narrow_line_gives_up_names_before_what_happened() -> None:
    found = {"calls": 1, "text_calls": 1, "format": "kimi_k2", "repairs": 1, "attempts": 2, "request_id": f"req_{'0' * 24}"}
    happened = "1 call from text (kimi_k2), repaired, 2 attempts"
    asked = {"model": "claude-sonnet-4-5-20250929", "warning_text": "top_k dropped: the upstream does not take it"}
    assert f"claude-sonnet-4-5-20250929 → or/moonshotai/kimi-k2  {happened}, top" in _line_on_terminal(200, **found, **asked)
    assert f"200 ok    or/moonshotai/kimi-k2  {happened}" in _line_on_terminal(120, **found, **asked)
    assert "200 ok    or/moonshot…  1 call from text" in _line_on_terminal(80, **found, **asked)


@pytest.mark.parametrize("columns", [80, 160])
def test_wide_letters_do_not_break_the_line(columns: int) -> None:
    for name in ("漢字" * 60, "字", "e\u0301" * 100, "👍" * 60):
        line = _line_on_terminal(columns, model=name, upstream_model=name)
        assert cell_len(line) == columns, name


def test_what_cannot_be_seen_is_written_as_an_escape() -> None:
    evil = "a\u200eb\u200fc\u061cd\u00a0e\u200bf\ufeffg\U000e0041h\u202ei\udc80"
    for form in (TextLines(Redactor()), TerminalLines(Redactor(), colours=False, columns=lambda: 300)):
        line = form.format(record("said " + evil))
        assert line.endswith(r"said a\u200eb\u200fc\u061cd\xa0e\u200bf\ufeffg\U000e0041h\u202ei\udc80")
        assert form.format(record("漢字 é — ok")).endswith("漢字 é — ok")


def test_a_failure_on_a_terminal_says_where_and_why() -> None:
    why = "404 page not found (key sk-SECRETSECRET)"
    url = "https://host.example/api/chat/completions"
    failed = {"status": 404, "outcome": "error", "error": "not_found", "error_message": why, "url": url}
    first, second = _line_on_terminal(120, **failed).splitlines()
    assert "404 error" in first
    assert second == "    not_found: https://host.example/api/chat/completions: 404 page not found (key sk-***)"


def test_what_a_narrow_terminal_shows_breaks_between_words() -> None:
    why = "http://127.0.0.1:9102/v1 has no path for openai_chat (404 page not found, status 404): check the base_url"
    done = {"status": 404, "outcome": "error", "error": "upstream_status", "error_message": why}
    first, *rest = _line_on_terminal(80, request_id="req_0123456789abcdef01234567", **done).splitlines()
    assert len(first) == 80
    assert first.endswith("  req_01234567")
    assert "or/moonshotai/kimi" in first
    assert all(line.startswith("    ") and len(line) <= 80 for line in rest)
    assert " ".join(line.strip() for line in rest) == f"upstream_status: {why}"
    form = TerminalLines(Redactor(), colours=False, columns=lambda: 60)
    told = form.format(record("the first request failed; " + "word " * 20))
    assert all(len(line) <= 60 for line in told.splitlines())
    assert told.split() == [*told.split()[:2], "the", "first", "request", "failed;", *["word"] * 20]


def test_the_terminal_of_the_log_is_standard_error(tmp_path: Path) -> None:
    """Its width counts where standard output goes elsewhere, and a terminal that knows no escapes gets none."""
    code = (
        "import sys, logging; from athena.shells import logs; from athena.shells.config import Config;"
        "logs.configure(Config(), threaded=False, inspector='http://127.0.0.1:1/inspect');"
        "from athena.serving.record import RequestRecord;"
        "logs.write_line(RequestRecord('req_1', model='m', outcome='ok', status=200))"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    for term, has_escapes in (("xterm-256color", True), ("dumb", False)):
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 133))
        with (tmp_path / "out").open("w") as elsewhere:
            subprocess.run(
                [sys.executable, "-c", code], stdout=elsewhere, stderr=theirs, env={**environment, "TERM": term}, check=True
            )
        line = os.read(ours, 65536).decode().rstrip("\r\n")
        os.close(ours)
        os.close(theirs)
        assert ("\x1b" in line) is has_escapes
        assert len(re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x1b]*\x1b\\", "", line)) == 133


def test_ids_are_linked_to_the_inspector_where_there_is_one() -> None:
    form = TerminalLines(Redactor(), colours=True, inspector="http://127.0.0.1:12377/inspect", columns=lambda: 100)
    line = form.format(record("request", name="athena.request", fields=as_fields(RequestRecord("req_1", model="m"))))
    assert "\x1b]8;;http://127.0.0.1:12377/inspect#/x/req_1\x1b\\req_1\x1b]8;;\x1b\\" in line


def test_ids_in_fields_are_not_taken_for_keys() -> None:
    fields = {"request_id": "req_62cefbd0c790ea294e0c4eb5", "api_key": "hush", "note": "sk-SECRETSECRET"}
    line = TextLines(Redactor()).format(record("body", fields=fields))
    assert line.endswith("body request_id=req_62cefbd0c790ea294e0c4eb5 api_key=*** note=sk-***")


@pytest.mark.parametrize("form", [TextLines, JsonLines])
def test_the_id_of_a_trace_is_not_taken_for_a_key(form: type[TextLines | JsonLines]) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    fields = {"request_id": "req_1", "model": trace, "trace_id": trace, "status": 200}
    line = form(Redactor()).format(record("request", name="athena.request", fields=fields))
    assert line.count(trace) == 1
    assert trace not in form(Redactor([trace])).format(record("request", fields=fields))
    assert "sk-SECRETSECRET" not in form(Redactor()).format(record("request", fields={"trace_id": "sk-SECRETSECRET"}))


@pytest.mark.parametrize("form", [TextLines, JsonLines])
def test_nobody_can_add_a_line(form: type[TextLines | JsonLines]) -> None:
    evil = "x\n2026-01-01 00:00:00.000 info    all is well\r\x1b[2J\u2028"
    line = form(Redactor()).format(record(f"said {evil}", fields={"model": evil}))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line


@pytest.mark.parametrize("form", [TextLines, JsonLines])
def test_traces_are_redacted_and_stay_apart(form: type[TextLines | JsonLines]) -> None:
    made = record("failed")
    try:
        raise ValueError("with sk-SECRETSECRET\n2026-01-01 00:00:00.000 info    forged")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = form(Redactor()).format(made)
    assert "ValueError" in line
    assert "SECRET" not in line
    assert all(part.startswith("    ") for part in line.splitlines()[1:])


def test_bodies_only_at_debug_and_redacted(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    for level, count in (("info", 0), ("debug", 1)):
        logs.configure(Config(log=Log(file=str(file), level=level, format="json")))  # type: ignore[arg-type]  # both are levels
        log_body("client request", "req_1", b'{"key": "sk-SECRETSECRET", "text": "' + b"a b " * 10_000 + b'"}')
        logs.shut_down()
        lines = file.read_text().splitlines()
        assert len(lines) == count
    value = json.loads(lines[0])
    assert (value["direction"], value["request_id"], value["bytes"]) == ("client request", "req_1", 40_038)
    assert "SECRET" not in lines[0]
    assert len(value["body"]) < 20_000


def test_files_are_private_and_rotate(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "a.log"
    sink = FileSink(file, 1000)
    for number in range(50):
        sink.write(f"{number:03d} {'x' * 95}\n")
    sink.close()
    names = sorted(path.name for path in file.parent.iterdir())
    assert names == ["a.log", "a.log.1", "a.log.2", "a.log.3"]
    assert all(path.stat().st_size <= 1000 for path in file.parent.iterdir())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in file.parent.iterdir())
    assert file.read_text().splitlines()[-1].startswith("049")


def test_a_file_that_was_moved_is_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    sink = FileSink(file, 1000)
    sink.write("one\n")
    file.rename(tmp_path / "b.log")
    sink.write("two\n")
    sink.close()
    assert file.read_text() == "two\n"


class Stuck:
    """A disk that does not answer until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.entered = threading.Event()
        self.text = ""

    def write(self, text: str) -> None:
        self.entered.set()
        self.go.wait(PATIENCE)
        self.text += text

    def close(self) -> None:
        pass


def test_a_stuck_disk_costs_lines_not_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "_QUEUE_LINES", 10)
    sink = Stuck()
    handler = LinesHandler(sink, threaded=True)
    handler.setFormatter(TextLines(Redactor()))
    handler.emit(record("first"))
    assert sink.entered.wait(PATIENCE)
    for number in range(50):
        handler.emit(record(f"line {number}"))
    assert handler.dropped == 40
    sink.go.set()
    handler.close()
    assert "40 log lines were dropped" in sink.text
    assert "line 9" in sink.text


def test_a_full_disk_is_survived() -> None:
    class Full:
        def write(self, text: str) -> None:
            raise OSError(28, os.strerror(28))

        def close(self) -> None:
            pass

    handler = LinesHandler(Full(), threaded=False)
    handler.emit(record("lost"))
    assert handler.dropped == 1
    handler.close()


def test_a_line_that_cannot_be_shown_does_not_stop_the_others() -> None:
    sink = Stuck()
    sink.go.set()
    handler = LinesHandler(sink, threaded=False)
    handler.setFormatter(TextLines(Redactor()))
    bad = record("%d")
    bad.args = ("no number",)
    handler.emit(bad)
    handler.emit(record("good"))
    assert "cannot be shown" in sink.text
    assert "good" in sink.text
