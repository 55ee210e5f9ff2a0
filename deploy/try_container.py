"""Checks deploy/Containerfile: lints it, then builds and runs it with a container engine, or runs its steps without one.

Without an engine every stage is a directory of its own. Absolute paths of the file are read below that directory, a step that
makes a user is left out, and the base image is this machine's Python: that shows that the files are there, that the pinned
packages install, and that the entry point serves. What a base image itself lacks is shown only by an engine.

`./dev container` runs it; it needs the package registry.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE = ROOT / "deploy" / "Containerfile"
_ROOTS = ("/source", "/build", "/wheels", "/opt/athena", "/var/lib/athena")
_CONFIGURATION = 'upstreams: {local: {base_url: "http://127.0.0.1:9/v1"}}\nkeys: ["sha256:%s"]\n' % ("0" * 64)
_PATIENCE_S = 60


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a container file, with continued lines joined."""
    joined = re.sub(r"\\\n", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    for line in joined.splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word, rest.strip()


def engine() -> str | None:
    """An engine that can build here."""
    for name in ("docker", "podman", "buildah"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0:
            return name
    return None


class Steps:
    """The file's steps, run in directories."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._stages: dict[str, Path] = {}
        self._root = place
        self._directory = "/"
        self.environment: dict[str, str] = {}
        self.command: list[str] = []

    def run(self, text: str) -> None:
        """All of them. Raises CalledProcessError."""
        for word, rest in instructions(text):
            print(f"{word} {rest}")
            match word:
                case "FROM":
                    self._root = self._place / f"stage{len(self._stages)}"
                    self._root.mkdir()
                    self._stages[rest.partition(" AS ")[2] or str(len(self._stages))] = self._root
                    self.environment, self.command = {"PATH": os.environ["PATH"], "HOME": str(self._root)}, []
                case "WORKDIR":
                    self._directory = rest
                    Path(self.inside(rest)).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(shlex.split(rest))
                case "RUN" if not rest.startswith("useradd"):
                    subprocess.run(
                        ["sh", "-ec", self.inside(rest)], cwd=self.inside(self._directory), env=self.environment, check=True
                    )
                case "ENV":
                    for pair in shlex.split(rest):
                        name, _, value = pair.partition("=")
                        self.environment[name] = self.inside(value).replace("$PATH", self.environment["PATH"])
                case "ENTRYPOINT" | "CMD":
                    self.command += json.loads(rest)

    def inside(self, text: str) -> str:
        """Text in which the absolute paths of the file lead into the stage."""
        return re.sub(rf"(?<![\w/])({'|'.join(_ROOTS)})\b", lambda found: str(self._root) + found.group(), text)

    def _copy(self, words: list[str]) -> None:
        *sources, target = [word for word in words if not word.startswith("--")]
        stage = next((word.partition("=")[2] for word in words if word.startswith("--from=")), None)
        to = Path(self.inside(target if target.startswith("/") else f"{self._directory}/{target}"))
        for source in sources:
            origin = self._stages[stage] / source.lstrip("/") if stage else ROOT / source
            if origin.is_dir():
                shutil.copytree(origin, to, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
                _move_scripts(to, origin)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(origin, to)


def _move_scripts(to: Path, origin: Path) -> None:
    """A virtual environment knows its own path, which here differs between the stages."""
    for script in (to / "bin").glob("*") if (to / "bin").is_dir() else ():
        if script.is_file() and not script.is_symlink() and script.stat().st_size < 100_000:
            script.write_bytes(script.read_bytes().replace(str(origin).encode(), str(to).encode()))


def serves(command: list[str], environment: dict[str, str], place: Path) -> None:
    """Start the entry point with a configuration of its own, and ask for its health."""
    file = place / "athena.yml"
    file.write_text(_CONFIGURATION, encoding="utf-8")
    words = [str(file) if word == "/etc/athena/athena.yml" else word for word in command]
    # A free port instead of the usual one, on which a gateway of this machine may listen.
    with subprocess.Popen([*words, "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True, cwd=place) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            port = url.rpartition(":")[2]
            deadline = time.monotonic() + _PATIENCE_S
            while time.monotonic() < deadline:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                        print(f"{url}/health: {answer.read().decode()}")
                        return
                except OSError:
                    time.sleep(0.1)
            raise SystemExit("the entry point does not answer")
        finally:
            process.terminate()


def main() -> int:
    """Lint, then build or run the steps."""
    linter = Path(sys.executable).with_name("hadolint")
    if linter.exists() or shutil.which("hadolint"):
        subprocess.run([str(linter) if linter.exists() else "hadolint", str(FILE)], check=True)
        print("hadolint finds nothing")
    found = engine()
    if found is not None:
        subprocess.run([found, "build", "-f", str(FILE), "-t", "athena-gateway-try", str(ROOT)], check=True)
        print(f"built with {found}")
        return 0
    print("no container engine works here: running the steps in directories")
    with tempfile.TemporaryDirectory(prefix="athena-container-") as place:
        steps = Steps(Path(place))
        steps.run(FILE.read_text(encoding="utf-8"))
        serves(steps.command, steps.environment, Path(place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
