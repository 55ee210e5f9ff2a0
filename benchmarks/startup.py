"""Start of the gateway: time and CPU to listening, memory at rest, CPU of the first answers, packages, imports of the core."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

TARGETS = {"seconds": 0.6, "megabytes": 60, "packages": 15, "import": 0.15}


def main() -> None:
    """Print the figures beside their targets."""
    started = _serve()
    print(f"  serving after {started.seconds:.2f} s (target {TARGETS['seconds']}), {started.cpu:.2f} s of CPU")
    print(f"  {started.megabytes:.0f} MB resident at rest (target {TARGETS['megabytes']})")
    print(f"  CPU of the first answers: {', '.join(f'{cpu * 1000:.1f}' for cpu in started.answers)} ms")
    packages = _packages()
    print(f"  {len(packages)} run-time packages (target at most {TARGETS['packages']}): {', '.join(packages)}")
    for module in ("athena", "athena.translate", "athena.parsing"):
        print(f"  import {module}: {_import_cpu(module):.3f} s CPU (target {TARGETS['import']} for the core)")


class _Started(NamedTuple):
    seconds: float
    cpu: float
    megabytes: float
    answers: list[float]
    """CPU seconds of the first three answers."""


def _serve() -> _Started:
    """The best of three starts on the demo upstream; memory and answers are those of the last."""
    seconds, cpu, memory, answers = float("inf"), float("inf"), 0.0, [0.0]
    for _ in range(3):
        with tempfile.TemporaryDirectory() as home, socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            probe.close()
            environment = {"HOME": home, "PATH": os.environ.get("PATH", "")}
            began = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "athena", "serve", "--demo", "--port", str(port)],
                env=environment,
                cwd=home,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                seconds = min(seconds, _until_healthy(port) - began)
                cpu = min(cpu, _cpu(process.pid))
                _until_idle(process.pid)
                memory = _resident(process.pid)
                answers = [_answer_cpu(process.pid, port) for _ in range(3)]
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(10)
    return _Started(seconds, cpu, memory, answers)


def _cpu(pid: int) -> float:
    """CPU seconds of all threads so far."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _until_idle(pid: int) -> None:
    """Until what goes on after the start is done."""
    before = -1.0
    while (now := _cpu(pid)) - before > 0.005:
        before = now
        time.sleep(1)


def _answer_cpu(pid: int, port: int) -> float:
    tool = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
    asked = {"model": "demo", "max_tokens": 99, "messages": [{"role": "user", "content": "Weather in Rome?"}], "tools": [tool]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/messages", json.dumps(asked).encode(), {"content-type": "application/json"}
    )
    before = _cpu(pid)
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert b'"tool_use"' in answer.read()
    return _cpu(pid) - before


def _until_healthy(port: int) -> float:
    deadline = time.perf_counter() + 20
    while time.perf_counter() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                if answer.status == 200:
                    return time.perf_counter()
        except OSError:
            time.sleep(0.01)
    raise RuntimeError("the gateway did not start")


def _resident(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) / 1024 if found else 0.0


def _packages() -> list[str]:
    """Everything that `pip install athena-gateway` brings, transitive ones counted."""
    found: set[str] = set()
    waiting = ["athena-gateway"]
    while waiting:
        for text in metadata.requires(waiting.pop()) or ():
            requirement = Requirement(text)
            name = requirement.name.lower()
            is_meant = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if is_meant and name not in found:
                found.add(name)
                waiting.append(name)
    return sorted(found)


def _import_cpu(module: str) -> float:
    code = f"import time; import msgspec; t = time.process_time(); import {module}; print(time.process_time() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(5)
    ]
    return min(runs)


if __name__ == "__main__":
    main()
