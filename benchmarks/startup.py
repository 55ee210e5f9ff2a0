"""Start of the gateway: time to listening, memory at rest, packages installed with it, CPU to import the core."""

from __future__ import annotations

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

TARGETS = {"seconds": 1.0, "megabytes": 60, "packages": 15, "import": 0.15}


def main() -> None:
    """Print the figures beside their targets."""
    seconds, megabytes = _serve()
    print(f"  serving after {seconds:.2f} s (target {TARGETS['seconds']:.0f})")
    print(f"  {megabytes:.0f} MB resident at rest (target {TARGETS['megabytes']})")
    packages = _packages()
    print(f"  {len(packages)} run-time packages (target at most {TARGETS['packages']}): {', '.join(packages)}")
    for module in ("athena", "athena.translate", "athena.parsing"):
        print(f"  import {module}: {_import_cpu(module):.3f} s CPU (target {TARGETS['import']} for the core)")


def _serve() -> tuple[float, float]:
    """The best of three starts on the demo upstream, and the memory of the last."""
    best, memory = float("inf"), 0.0
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
                best = min(best, _until_healthy(port) - began)
                time.sleep(1.5)
                memory = _resident(process.pid)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(10)
    return best, memory


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
        for requirement in metadata.requires(waiting.pop()) or ():
            if "extra ==" in requirement:
                continue
            name = re.split(r"[\s;<>=!~\[(]", requirement, maxsplit=1)[0].lower()
            try:
                metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
            if name not in found:
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
