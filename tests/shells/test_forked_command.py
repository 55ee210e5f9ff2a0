"""A fork of the server of forks behaves as a process with an interpreter of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.athena_process import environment, serving, start_athena
from support.forked_command import ForkedCommand
from support.patience import PATIENCE, until


@pytest.fixture(autouse=True)
def _in_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATHENA_SOAK", raising=False)


@pytest.mark.parametrize("arguments", [["--version"], ["srve"], ["config", "show"], ["parse", "--json"]])
def test_a_fork_says_what_an_interpreter_says(arguments: list[str], tmp_path: Path) -> None:
    said = []
    for forked in (True, False):
        (tmp_path / "given").write_text("ü")
        with open(tmp_path / "given") as given, open(tmp_path / "out", "w+") as out, open(tmp_path / "err", "w+") as err:
            streams = (given.fileno(), out.fileno(), err.fileno())
            process = start_athena(arguments, streams, tmp_path, environment(tmp_path, ATHENA_PORT="7"), forked=forked)
            said.append((process.wait(PATIENCE), (tmp_path / "out").read_text(), (tmp_path / "err").read_text()))
    assert said[0] == said[1]


def test_a_fork_has_the_descriptors_of_an_interpreter_and_ends_as_one(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo") as fork, serving(tmp_path, "--demo", forked=False) as other:
        assert isinstance(fork.process, ForkedCommand)
        assert isinstance(other.process, subprocess.Popen)
        assert until(
            lambda: len(os.listdir(f"/proc/{fork.process.pid}/fd")) == len(os.listdir(f"/proc/{other.process.pid}/fd"))
        )
        for server in (fork, other):
            server.signal(signal.SIGKILL)
            assert server.wait() == -signal.SIGKILL
