"""The gateway in the background: started, found, followed, stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from athena.errors import AthenaError
from athena.shells.daemon import DaemonState, Home, NotRunning, follow, tail
from support.athena_process import COMMAND, Serving, athena, environment
from support.held_upstream import HeldUpstream
from support.patience import PATIENCE

START = ("start", "--wait", "20s")
"""With room for a busy machine."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    state = Home(tmp_path / ".local/state/athena")
    if state.is_locked() and (found := state.read()) is not None:
        os.killpg(found.pid, signal.SIGKILL)


def status(home: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(athena(home, "status", "--json").out)
    return result


def test_a_whole_life(home: Path) -> None:
    key = "sk-a-key-that-nobody-may-see-1234567890"
    started = athena(home, *START, "--port", "0", "--base-url", "http://127.0.0.1:9", "--api-key", key)
    assert (started.code, started.err) == (0, "")
    state_file = home / ".local/state/athena" / "athena.pid"
    state = json.loads(state_file.read_text())
    assert {"pid", "port", "start_time", "config_path"} <= state.keys()
    assert f"http://127.0.0.1:{state['port']}" in started.out
    for name in ("athena.pid", "athena.log", "athena.lock"):
        assert stat.S_IMODE((home / ".local/state/athena" / name).stat().st_mode) == 0o600
    assert key not in Path(f"/proc/{state['pid']}/cmdline").read_text()

    shown = status(home)
    assert shown["running"] is True
    assert shown["ready"] is True
    assert shown["pid"] == state["pid"]
    assert str(state["port"]) in athena(home, "status").out

    again = athena(home, *START, "--port", "0")
    assert again.code == 1
    assert f"already runs in the background (pid {state['pid']}, port {state['port']})" in again.err

    assert "listening" in athena(home, "logs").out
    stopped = athena(home, "stop")
    assert (stopped.code, stopped.out) == (0, "Athena is stopped.\n")
    assert not state_file.exists()
    assert athena(home, "status", "--json").out == '{"running": false}\n'
    assert athena(home, "status").code == 1
    assert athena(home, "stop").code == 0
    assert key not in (home / ".local/state/athena" / "athena.log").read_text()


def test_a_stale_state_file_is_not_running(home: Path) -> None:
    directory = Home(home / ".local/state/athena")
    os.close(directory.lock())
    directory.write(DaemonState(pid=os.getpid(), port=1, start_time="2026-01-01T00:00:00+00:00", config_path=""))
    with pytest.raises(NotRunning):
        directory.running()
    assert status(home) == {"running": False}


def test_only_one_can_have_the_lock(tmp_path: Path) -> None:
    directory = Home(tmp_path / "state")
    assert not directory.is_locked()
    lock = directory.lock()
    assert directory.is_locked()
    with pytest.raises(AthenaError, match="already runs"):
        directory.lock()
    os.close(lock)
    assert not directory.is_locked()


def test_a_failed_start_shows_the_log(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = athena(home, *START, "--port", str(port))
    assert result.code == 1
    assert f"port {port} on 127.0.0.1 is in use" in result.err
    assert "athena.log says" in result.err
    assert not Home(home / ".local/state/athena").is_locked()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--port", "80"), "choose 1024 to 65535"),
        (("--host", "0.0.0.0", "--port", "0"), "no gateway key is set"),
        (("--config", "nowhere.yml"), "nowhere.yml: does not exist"),
    ],
)
def test_a_start_that_cannot_work_starts_nothing(home: Path, arguments: tuple[str, ...], words: str) -> None:
    result = athena(home, "start", *arguments)
    assert result.code == 1
    assert words in result.err
    assert not (home / ".local/state/athena").exists()


def test_a_start_that_takes_too_long_is_given_up(home: Path) -> None:
    result = athena(home, "start", "--port", "0", "--wait", "1ms")
    assert result.code == 1
    assert "was not up within 0.001 s" in result.err
    assert not Home(home / ".local/state/athena").is_locked()


def test_stop_ends_what_does_not_end(home: Path) -> None:
    with HeldUpstream() as upstream:
        config = {"upstreams": {"held": {"base_url": upstream.url}}, "models": [{"match": "*", "use": "held"}], "port": 0}
        (home / "athena.yml").write_text(json.dumps(config))
        assert athena(home, *START, "--config", "athena.yml").code == 0
        state = status(home)
        assert state["config_path"] == str((home / "athena.yml").resolve())
        body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}'
        with socket.create_connection(("127.0.0.1", state["port"]), PATIENCE) as client:
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            answer = b""
            while b"one" not in answer:
                answer += client.recv(65536)
            stopped = athena(home, "stop", "--timeout", "300ms")
            while data := client.recv(65536):
                answer += data
    assert stopped.out == "Athena did not stop within 0.3 s and was ended.\n"
    assert b"shutting down" in answer
    assert status(home) == {"running": False}


def test_a_process_that_hears_nothing_is_killed(home: Path) -> None:
    assert athena(home, *START, "--port", "0", "--workers", "2").code == 0
    state = status(home)
    os.killpg(state["pid"], signal.SIGSTOP)
    assert athena(home, "stop", "--timeout", "100ms").code == 0
    assert status(home) == {"running": False}
    assert not (home / ".local/state/athena" / "athena.pid").exists()


def test_logs_follow_over_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "athena.log"
    log.write_text("old\n")
    seen: list[str] = []
    done = threading.Event()

    def read() -> None:
        for text in follow(log, pause=0.01):
            seen.append(text)
            if "last" in text:
                break
        done.set()

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in "".join(seen):
            with open(log, "a") as file:  # again and again: nobody tells when the reader stands
                file.write(f"{text}\n")
            assert time.monotonic() < deadline
            time.sleep(0.05)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    wait_for("new")
    log.rename(tmp_path / "athena.log.1")
    wait_for("last")
    assert done.wait(PATIENCE)
    assert "old" not in "".join(seen)


def test_tail_reads_the_end(tmp_path: Path) -> None:
    log = tmp_path / "athena.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert tail(log, 2) == ["line 998", "line 999"]
    assert tail(log, 0) == []
    assert tail(log, 5, after=log.stat().st_size) == []
    assert tail(tmp_path / "none", 5) == []


def test_logs_command_follows(home: Path) -> None:
    directory = home / ".local/state/athena"
    directory.mkdir(parents=True)
    (directory / "athena.log").write_text("first\n")
    # Tests that run in the background of a shell have the signal ignored, and so would what they start.
    command = ["env", "--default-signal=INT", *COMMAND, "logs", "-f", "-n", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=home, env=environment(home)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        seen = ""
        stop = threading.Event()

        def write() -> None:
            while not stop.wait(0.05):
                with open(directory / "athena.log", "a") as file:
                    file.write("second\n")

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        seen = process.stdout.readline()
        stop.set()
        writer.join()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(PATIENCE) == 0
    assert seen == "second\n"


def test_no_log_is_told(home: Path) -> None:
    result = athena(home, "logs")
    assert result.code == 1
    assert "there is no log yet" in result.err


def test_gateways_in_terminals_are_shown(home: Path) -> None:
    assert athena(home, "status").code == 1
    serving = Serving(home, ("--demo",), {})
    try:
        assert serving.url
        shown = athena(home, "status")
        assert shown.code == 0
        assert f"Athena runs on {serving.url} in a terminal, ready" in shown.out
        assert "upstreams  demo (up)" in shown.out
        forgot = athena(home, "status", "--forget")
        assert (forgot.code, forgot.err) == (0, "")
        assert "forgot 0 lessons" in forgot.out
        typo = athena(home, "status", "--forget", "nobody/m", "--json")
        assert (typo.code, "did not forget: upstream: there is none of this name" in typo.err) == (1, True)
        (entry,) = status(home)["terminals"]
        assert (entry["pid"], entry["demo"], entry["ready"]) == (serving.process.pid, True, True)
        serving.process.kill()
        serving.wait()
        # It had no time to take its word back, and holds its lock no longer.
        assert status(home) == {"running": False}
    finally:
        serving.end()
