"""`athena serve` as a newcomer meets it, and `athena demo`."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import athena
from athena.asgi import create_app
from athena.errors import ConfigError
from athena.shells.config import Config
from support.athena_process import COMMAND, Serving, environment, serving
from support.patience import PATIENCE


def post(url: str, body: str) -> dict[str, Any]:
    request = urllib.request.Request(url, body.encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        result: dict[str, Any] = json.load(answer)
        return result


def test_the_first_minute(tmp_path: Path) -> None:
    """No key, no file: the demo answers, and the printed command shows a repaired call."""
    with serving(tmp_path, OPENAI_API_KEY="sk-x") as server:
        line = _command(server)
        words = shlex.split(line)
        assert words[0] == "curl"
        url = next(word for word in words if word.startswith("http"))
        answer = post(url, words[words.index("-d") + 1])
        assert answer["stop_reason"] == "tool_use"
        assert answer["content"][-1]["name"] == "get_weather"
        assert answer["content"][-1]["input"] == {"city": "Tokyo"}
        assert "<|" not in json.dumps(answer)
        assert "demo model" in server.banner
        assert "OPENAI_API_KEY is set; to use it: athena serve --base-url" in server.banner


def _command(server: Serving) -> str:
    deadline = time.monotonic() + PATIENCE
    while "To use it".lower() not in server.banner.lower():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return next(line.strip() for line in server.banner.splitlines() if line.strip().startswith("curl"))


def test_it_is_light(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        stat = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
        assert found
        assert int(found.group(1)) < 60 * 1024
        assert cpu < 1.5  # CPU seconds until it listens, with room for a busy machine


@pytest.mark.parametrize("form", [("--api-key", "KEY"), ("--api-key=KEY",)])
def test_keys_are_not_in_the_process_listing(tmp_path: Path, form: tuple[str, ...]) -> None:
    key = "not-to-be-seen-anywhere"
    arguments = [part.replace("KEY", key) for part in form]
    with serving(tmp_path, "--base-url", "http://127.0.0.1:9", "--log-level", "debug", *arguments) as server:
        assert key.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert key not in server.log() + server.banner


def test_demo_can_be_forced(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo", "--base-url", "http://127.0.0.1:9") as server:
        body = {"model": "any/name", "messages": [{"role": "user", "content": "hello"}]}
        answer = post(f"{server.url}/v1/chat/completions", json.dumps(body))
        assert "demo model" in answer["choices"][0]["message"]["content"]


def test_flags_before_any_command_are_for_serve(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Athena listens on http://127.0.0.1:")
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_the_demo_upstream_alone(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "demo", "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment(tmp_path)
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        with urllib.request.urlopen(f"{found.group()}/models", timeout=PATIENCE) as answer:
            assert json.load(answer)["data"][0]["id"] == "athena-demo"
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_the_gateway_can_be_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("ATHENA_") or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    file = tmp_path / "mine.yml"
    file.write_text("base_url: http://127.0.0.1:9\n")
    assert "default" in create_app(file).config.upstreams
    assert "default" in create_app(str(file)).config.upstreams
    assert create_app(Config()).config == Config()
    with pytest.raises(ConfigError, match="no upstream"):
        create_app()
    assert athena.__version__
