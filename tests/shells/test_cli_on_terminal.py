"""What a person sees on a terminal: colours, and lines that are neither crooked nor wider than it is.

Each command runs on a pseudo-terminal of a given width, as in a window of that size.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.athena_process import COMMAND, environment, start_athena
from support.patience import PATIENCE

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x1b]*\x1b\\")
RED, GREEN, BOLD, OFF = "\x1b[31m", "\x1b[1;32m", "\x1b[1m", "\x1b[0m"
LEAKS = {
    "kimi_k2": "<|tool_call_begin|>",
    "qwen_xml": "<function=get_weather>",
    "hermes": "<tool_call>",
    "deepseek_v31": "<｜tool▁sep｜>",
    "pythonic": '[get_weather(city="Tokyo", days=3)]',
}
"""Of each scene of the demo, something that must stand there in one piece and in red."""


class Terminal:
    """A pseudo-terminal with a command on it, and all that it has shown."""

    def __init__(self, place: Path, columns: int, *arguments: str, **variables: str) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
        with open(os.devnull, "rb") as nothing:
            streams = (nothing.fileno(), theirs, theirs)
            self.process = start_athena(arguments, streams, place, environment(place, TERM="xterm-256color", **variables))
        os.close(theirs)
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read_until(self, words: str) -> None:
        """Read until these words are shown; empty: until the command has ended."""
        deadline = time.monotonic() + PATIENCE
        while not words or words not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if not select.select([self._ours], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # what Linux says when the other side is closed
                data = b""
            if not data:
                assert not words, self.shown
                return
            self.shown += self._decoder.decode(data)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        os.close(self._ours)

    def lines(self) -> list[str]:
        """The lines as they stand in the end, with their colours."""
        return self.shown.replace("\r\n", "\n").split("\n")


@contextmanager
def terminal(place: Path, columns: int, *arguments: str, **variables: str) -> Iterator[Terminal]:
    shown = Terminal(place, columns, *arguments, **variables)
    try:
        yield shown
    finally:
        shown.close()


def plain(line: str) -> str:
    """Without codes; of what a line was overwritten with, the last."""
    return CODES.sub("", line.rpartition("\r")[2])


def width(text: str) -> int:
    """Columns that a terminal takes for it."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_demo_is_coloured_and_straight(columns: int, tmp_path: Path) -> None:
    with terminal(tmp_path, columns, "demo", "--pace", "0") as shown:
        shown.read_until("")
        assert shown.process.wait(PATIENCE) == 0
    for name, leak in LEAKS.items():
        assert f"{BOLD}{name}{OFF}" in shown.shown
        assert f"{RED}{leak}" in shown.shown, name
    assert f"{GREEN}get_weather" in shown.shown
    lines = [plain(line) for line in shown.lines()]
    assert max(map(width, lines)) <= columns
    drawn = [line for line in lines if line and line[0] in "╭├│╰"]
    assert len(drawn) > 5 * len(LEAKS)
    assert {width(line) for line in drawn} == {columns}
    # A word between two markers is not broken where it fits on a line.
    assert any("functions.get_weather:0" in line for line in drawn)
    # The border between the two sides stands in the same column on every line.
    middles = {width(line[: re.search("[┬┼│┴]", line[1:]).end()]) for line in drawn}  # type: ignore[union-attr]
    assert len(middles) == 1
    # What a call is called with stands below its name, or beside it.
    values = {width(line.rpartition('{"city"')[0]) for line in lines if re.search(r'│ +\{"city":"Tokyo","days":3\} +│$', line)}
    names = {width(line.partition("tool_use get_weather")[0]) + len("tool_use ") for line in lines if "tool_use get_" in line}
    assert len(names) == 1
    assert values <= names
    assert bool(values) is (columns == 80)


def test_the_demo_without_colours(tmp_path: Path) -> None:
    with terminal(tmp_path, 80, "demo", "hermes", "--pace", "0", NO_COLOR="1") as shown:
        shown.read_until("")
    assert "\x1b[31m" not in shown.shown
    assert "<tool_call>" in shown.shown


@pytest.mark.parametrize("no_color", ["", "1"])
def test_serve_greets_in_colour_and_within_a_narrow_terminal(no_color: str, tmp_path: Path) -> None:
    variables = {"NO_COLOR": no_color} if no_color else {}
    with terminal(tmp_path, 80, "serve", "--port", "0", **variables) as shown:
        shown.read_until("--api-key-env NAME")
    lines = shown.lines()
    assert max(width(plain(line)) for line in lines) <= 80
    writes = next(line for line in lines if "it writes" in line)
    receives = next(line for line in lines if "you receive" in line)
    assert plain(writes).index("<|tool_call_begin|>") == plain(receives).index("tool_use get_weather")
    assert ("\x1b[31m<|tool_call_begin|>" in writes) is not bool(no_color)
    assert ("\x1b[32m\x1b[1mtool_use get_weather" in receives) is not bool(no_color)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_gateway_ends_with_its_window(workers: str, tmp_path: Path) -> None:
    """Closing a terminal sends the signal that otherwise reloads: a gateway that went on would be unseen and keep its port."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, "serve", "--demo", "--port", "0", "--workers", workers], stdin=theirs, stdout=theirs, stderr=theirs,
        cwd=tmp_path, env=environment(tmp_path, TERM="xterm-256color"), start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + PATIENCE
    while b"--api-key-env NAME" not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([ours], [], [], 0.1)[0]:
            shown += os.read(ours, 65536)
    process.send_signal(signal.SIGHUP)  # with the window there it reloads
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    os.close(ours)
    assert process.wait(PATIENCE) == 0


def test_a_failing_exchange_is_a_link(tmp_path: Path) -> None:
    """`athena verify --html` on a terminal: the id of an exchange leads to its place in the file beside the report."""
    with terminal(tmp_path, 100, "demo", "--serve", "--port", "0") as upstream:
        upstream.read_until("/v1")
        found = re.search(r"http://127\.0\.0\.1:\d+/v1", upstream.shown)
        assert found
        arguments = ("--model", "demo-leaks", "--battery", "engineering", "--budget", "24", "--html", "out.html")
        with terminal(tmp_path, 100, "verify", "--base-url", found.group(), *arguments) as shown:
            shown.read_until("")
    link = re.search(
        r"\x1b\]8;[^;]*;(file://\S+?/out\.exchanges\.html#/x/(verify-\S+?))\x1b\\(verify-\S+?) *\x1b\]8;;\x1b\\", shown.shown
    )
    assert link, shown.shown
    assert link.group(2) == link.group(3)
    assert (tmp_path / "out.exchanges.html").as_uri() in link.group(1)
    lines = [plain(line) for line in shown.lines()]
    assert f"athena record show {link.group(2)} shows the first" in "\n".join(lines)
