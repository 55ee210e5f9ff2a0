"""Rendering a stranger's template: the process that does it (`child`), its limits, and its end.

The child gets no environment, may use so much memory and processor time, and is ended when it takes too long. What it answers
is text; nothing of it is run.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import msgspec

from athena.errors import CannotLearn, UsageError
from athena.learning.probes import RenderFailed, Variables

_CHILD = Path(__file__).with_name("child.py")
_ANSWER_BYTES = 8 * 1024 * 1024
_PIECE = 64 * 1024


class RenderingLimits(msgspec.Struct, frozen=True):
    """What rendering all probes of one template may take."""

    seconds: float = 60.0
    """On the clock, for all renderings together."""
    cpu_seconds: int = 10
    memory_bytes: int = 512 * 1024 * 1024
    characters: int = 1024 * 1024
    """Of one rendering."""


class TemplateProcess:
    """A template, ready to be rendered; a context that ends its process."""

    def __init__(self, source: str, tokens: Mapping[str, str], limits: RenderingLimits = RenderingLimits()) -> None:  # noqa: B008 - frozen
        self._limits = limits
        self._patience = limits.seconds
        """Seconds that may still be spent waiting for the child; what is done between its answers does not count."""
        self._unread = b""
        self._process = subprocess.Popen(
            # Isolated: neither the environment nor the current directory decides what is imported.
            [sys.executable, "-I", "-B", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
        try:
            self._write(
                {
                    "template": source,
                    "tokens": dict(tokens),
                    "memory_bytes": limits.memory_bytes,
                    "cpu_seconds": limits.cpu_seconds,
                    "characters": limits.characters,
                }
            )
            answer = self._read()
            if "missing" in answer:
                raise UsageError("learning a format needs jinja2, which is not installed: pip install 'athena-gateway[learn]'")
            if "error" in answer:
                raise CannotLearn(f"this is no chat template: {_printable(str(answer['error']))}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TemplateProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process. Idempotent."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not written yet has no reader any more
                    pipe.close()
        self._process.wait()

    def render(self, variables: Variables) -> str:
        """The template with these variables. Raises RenderFailed, and CannotLearn where a limit ended it."""
        self._write(variables)
        answer = self._read()
        if "error" in answer:
            raise RenderFailed(_printable(str(answer["error"])))
        return str(answer["text"])

    # -- lines -------------------------------------------------------------------------------------------------------------

    def _write(self, value: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        left = memoryview(json.dumps(value).encode() + b"\n")
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)
        while left:
            self._wait((), (pipe,))
            try:
                left = left[os.write(pipe, left[:_PIECE]) :]
            except BrokenPipeError:
                self._ended()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            self._wait((pipe,), ())
            piece = os.read(pipe, _PIECE)
            if not piece:
                self._ended()
            self._unread += piece
            if len(self._unread) > _ANSWER_BYTES:
                self._stop("it writes too much")
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _wait(self, reading: tuple[int, ...], writing: tuple[int, ...]) -> None:
        began = time.monotonic()
        ready = select.select(reading, writing, (), max(0.0, self._patience))
        self._patience -= time.monotonic() - began
        if not any(ready):
            self._stop(f"it takes longer than {self._limits.seconds:g} seconds to render")

    def _ended(self) -> NoReturn:
        """The child is gone: say why."""
        code = self._process.wait()
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            self._stop(f"it was stopped: rendering took more than {self._limits.cpu_seconds} seconds of processor time")
        self._stop("it was stopped: rendering used too much memory, or ended the process")

    def _stop(self, reason: str) -> NoReturn:
        self.close()
        raise CannotLearn(reason)


def _printable(text: str) -> str:
    """What a template says, on one line: nothing in it can move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
