"""Builds the wheel and the source distribution and installs each as users do: with pip, uv and pipx, on each interpreter named.

Each install is a new environment with a home of its own outside of the checkout, and its packages come from the package
registry. It must bring the commands, the demo's repaired calls and the library, with no warning on import and no more packages
than are documented.

`./dev packages` runs it with every interpreter that it finds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ("uv==0.13.7", "pipx==1.18.4", "twine==7.0.0")
MOST_PACKAGES = 15
"""That a default install brings besides ours."""
_LIBRARY = (
    'import athena; text = \'<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>\'; '
    "print(athena.__version__, athena.parse(text).calls[0].name)"
)
_BASE = {name: value for name, value in os.environ.items() if not name.startswith(("ATHENA_", "PYTHON", "VIRTUAL_ENV"))}


def run(command: list[str | Path], place: Path, **more: str) -> str:
    """What a command prints; the whole check ends where it fails."""
    environment = {**_BASE, "HOME": str(place / "home"), "COLUMNS": "100", **more}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def built(place: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution. A wheel that is made of the latter must hold the same files."""
    dist, again = place / "dist", place / "again"
    pip_wheel = ["pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(again)]
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(dist)], cwd=ROOT, check=True, capture_output=True)
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    subprocess.run([sys.executable, "-m", *pip_wheel, str(source)], check=True)
    (other,) = again.glob("*.whl")
    if held(wheel) != held(other):
        sys.exit(f"the wheel of the source distribution differs: {sorted(held(wheel) ^ held(other))[:20]}")
    return wheel, source


def held(wheel: Path) -> set[tuple[str, int]]:
    """The names of a wheel's files with their checksums."""
    with zipfile.ZipFile(wheel) as opened:
        return {(info.filename, info.CRC) for info in opened.infolist()}


def check_commands(athena: list[str | Path], gateway: list[str | Path], place: Path, version: str, **more: str) -> None:
    """The two names of the command, and the demo's repaired calls."""
    for command in (athena, gateway):
        said = run([*command, "--version"], place, **more)
        if version not in said:
            sys.exit(f"{' '.join(map(str, command))} --version says {said!r}, not {version}")
    demo = run([*athena, "demo"], place, **more)
    if demo.count("get_weather") < 4:
        sys.exit(f"athena demo does not show its repaired calls:\n{demo}")


def check_pip(python: str, artifact: Path, place: Path, version: str) -> str:
    """A new environment of this interpreter with this file: what it holds, in a few words."""
    environment = place / "environment"
    run([python, "-m", "venv", "--clear", environment], place)
    own = environment / "bin" / "python"
    run([own, "-m", "pip", "install", "-q", artifact], place)
    run([own, "-m", "pip", "check"], place)
    listed = json.loads(run([own, "-m", "pip", "list", "--format", "json"], place))
    packages = sorted(row["name"] for row in listed if row["name"] not in ("pip", "setuptools", "athena-gateway"))
    if len(packages) > MOST_PACKAGES:
        sys.exit(f"a default install brings {len(packages)} packages, more than {MOST_PACKAGES}: {', '.join(packages)}")
    check_commands([environment / "bin" / "athena"], [environment / "bin" / "athena-gateway"], place, version)
    said = run([own, "-W", "error", "-c", _LIBRARY], place)
    if said.split() != [version, "f"]:
        sys.exit(f"the library says {said!r}")
    number = run([own, "-c", "import platform; print(platform.python_version())"], place).strip()
    return f"Python {number}, pip install {artifact.suffix.lstrip('.') or artifact.name}: {len(packages)} packages"


def check_tools(python: str, wheel: Path, source: Path, place: Path, version: str) -> Iterator[str]:
    """`uvx` and `pipx` with the wheel, and what the package index would say of both files."""
    tools = place / "tools"
    run([python, "-m", "venv", "--clear", tools], place)
    run([tools / "bin" / "python", "-m", "pip", "install", "-q", *TOOLS], place)
    run([tools / "bin" / "twine", "check", "--strict", wheel, source], place)
    yield "twine check --strict: nothing to complain of"
    uv = {"UV_PYTHON_DOWNLOADS": "never", "UV_CACHE_DIR": str(place / "uv"), "UV_NO_CONFIG": "1", "UV_PYTHON": python}
    from_wheel: list[str | Path] = [tools / "bin" / "uvx", "--from", wheel]
    check_commands([*from_wheel, "athena"], [*from_wheel, "athena-gateway"], place, version, **uv)
    yield f"{run([tools / 'bin' / 'uv', '--version'], place).strip()}: uvx athena-gateway, and athena demo"
    pipx = {"PIPX_HOME": str(place / "pipx"), "PIPX_BIN_DIR": str(place / "pipx-bin"), "PIPX_DEFAULT_PYTHON": python}
    once: list[str | Path] = [tools / "bin" / "pipx", "run", "--spec", wheel]
    check_commands([*once, "athena"], [*once, "athena-gateway"], place, version, **pipx)
    run([tools / "bin" / "pipx", "install", wheel], place, **pipx)
    check_commands([place / "pipx-bin" / "athena"], [place / "pipx-bin" / "athena-gateway"], place, version, **pipx)
    yield f"pipx {run([tools / 'bin' / 'pipx', '--version'], place).strip()}: run and install"


def main() -> int:
    """All interpreters of the command line."""
    pythons = sys.argv[1:]
    if not pythons:
        sys.exit("name the interpreters to try: try_packages.py /usr/bin/python3 python3.13")
    with tempfile.TemporaryDirectory(prefix="athena-packages-") as name:
        place = Path(name)
        (place / "home").mkdir()
        wheel, source = built(place)
        version = re.split("-", wheel.name)[1]
        print(f"built {wheel.name} ({wheel.stat().st_size:,} bytes) and {source.name} ({source.stat().st_size:,})", flush=True)
        for python in pythons:
            for artifact in (wheel, source):
                print(check_pip(python, artifact, place, version), flush=True)
        for said in check_tools(pythons[0], wheel, source, place, version):
            print(said, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
