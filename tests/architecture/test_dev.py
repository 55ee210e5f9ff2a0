"""`./dev` takes the oldest supported interpreter there is a choice of, and makes an environment of another one anew.

Interpreters are played by small scripts that say a version; `/usr/bin/python3` is the machine's own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import PATIENCE

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """`dev` alone in a folder, with what it reads before it installs anything."""
    folder = tmp_path / "checkout"
    (folder / "requirements").mkdir(parents=True)
    shutil.copy(ROOT / "dev", folder)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in ("build", "run", "test"):
        (folder / "requirements" / f"{name}.txt").write_text("")
    return folder


def interpreter(path: Path, version: str) -> Path:
    """Says `version` where it is asked for one, "makes" environments of itself, and notes all it is told to do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""#!/bin/sh
echo "$0 $*" >>"{path}.log"
case "$*" in
  *version_info*) echo {version} ;;
  "-m venv --clear "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *pytest*) echo "pytest of {version}: $*" ;;
esac
"""
    )
    path.chmod(0o755)
    return path


_TOOLS = (
    "awk",
    "bash",
    "cat",
    "cksum",
    "cp",
    "cut",
    "dirname",
    "env",
    "grep",
    "mkdir",
    "nproc",
    "rm",
    "sed",
    "sh",
    "sort",
    "tr",
)


def dev(checkout: Path, *arguments: str, folders: tuple[Path, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it where the path has the usual tools, no Python, and these folders."""
    home, tools = checkout.parent / "home", checkout.parent / "tools"
    home.mkdir(exist_ok=True)
    if not tools.exists():
        tools.mkdir()
        for name in _TOOLS:
            (tools / name).symlink_to(shutil.which(name) or name)
    return subprocess.run(
        [str(checkout / "dev"), *arguments],
        capture_output=True,
        text=True,
        env={"PATH": ":".join(map(str, (*folders, tools))), "HOME": str(home), **variables},
        timeout=PATIENCE,
        check=False,
    )


def installed(checkout: Path) -> str:
    """The version in the stamp of the environment."""
    return (checkout / ".venv" / ".stamp-run").read_text().split()[0]


def test_the_one_that_was_named_is_used_and_an_environment_of_another_is_made_anew(checkout: Path) -> None:
    old = interpreter(checkout.parent / "old", "3.11.2")
    new = interpreter(checkout.parent / "new", "3.13.1")
    dev(checkout, "athena", PYTHON=str(new))
    assert installed(checkout) == "3.13.1"
    marker = checkout / ".venv" / "made-once"
    marker.touch()
    dev(checkout, "athena", PYTHON=str(new))
    assert marker.exists()
    again = dev(checkout, "athena", PYTHON=str(old))
    assert installed(checkout) == "3.11.2"
    assert not marker.exists()
    assert ".venv is of 3.13.1" in again.stderr


def test_what_is_compiled_is_kept_where_the_machine_says_otherwise(checkout: Path) -> None:
    """Containers set PYTHONDONTWRITEBYTECODE; every process of the tests would compile everything again."""
    named = interpreter(checkout.parent / "some", "3.13.1")
    dev(checkout, "athena", PYTHON=str(named))
    program = checkout / ".venv" / "bin" / "athena"
    program.write_text('#!/bin/sh\necho "forbidden: ${PYTHONDONTWRITEBYTECODE:-no}"\n')
    program.chmod(0o755)
    assert dev(checkout, "athena", PYTHON=str(named), PYTHONDONTWRITEBYTECODE="1").stdout == "forbidden: no\n"


@pytest.mark.parametrize("version", ["3.10.13", "2.7.18", "4.0.0", ""])
def test_one_that_is_not_supported_is_refused_with_a_remedy(checkout: Path, version: str) -> None:
    refused = dev(checkout, "athena", PYTHON=str(interpreter(checkout.parent / "odd", version)))
    assert refused.returncode == 1
    assert "Python 3.11 or later is needed" in refused.stderr
    assert "PYTHON=" in refused.stderr
    assert not (checkout / ".venv").exists()


def test_the_machines_own_comes_before_what_the_path_has(checkout: Path) -> None:
    """An environment of the interpreter that must be chosen is in place: any other choice would make it anew."""
    first = interpreter(checkout.parent / "bin" / "python3", "3.19.0")
    own = _version_of(Path("/usr/bin/python3"))
    expected = "3.19.0" if own is None or own < (3, 11) else ".".join(map(str, own))
    inputs = (checkout / "requirements" / "run.txt").read_bytes() + (checkout / "pyproject.toml").read_bytes()
    sum_of = subprocess.run(["cksum"], input=inputs, capture_output=True, check=True).stdout.decode().strip()
    program = checkout / ".venv" / "bin" / "athena"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    (checkout / ".venv" / ".stamp-run").write_text(f"{expected} {sum_of}\n")
    assert dev(checkout, "athena", folders=(first.parent,)).stdout == "ran\n"


def _version_of(path: Path) -> tuple[int, ...] | None:
    if not path.exists():
        return None
    script = "import sys; print(*sys.version_info[:3])"
    said = subprocess.run([str(path), "-c", script], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, said.split()))


def test_the_matrix_takes_the_newest_of_every_version_and_says_what_is_missing(checkout: Path) -> None:
    place = checkout.parent
    interpreter(place / "home" / ".pyenv" / "versions" / "3.12.1" / "bin" / "python3", "3.12.1")
    interpreter(place / "home" / ".pyenv" / "versions" / "3.12.11" / "bin" / "python3", "3.12.11")
    interpreter(place / "home" / ".pyenv" / "versions" / "3.11.9" / "bin" / "python3", "3.11.9")
    interpreter(place / "bin" / "python3.13", "3.13.2")
    interpreter(place / "bin" / "python3.9", "3.9.1")
    named = interpreter(place / "far" / "python", "3.15.0")
    run = dev(checkout, "matrix", "-x", folders=(place / "bin",), MATRIX_PYTHONS=f"{named} {place / 'nothing'}")
    found = [line.split()[3] for line in run.stdout.splitlines() if "found" in line and "not found" not in line]
    assert found == ["3.12.11", "3.13.2", "3.15.0"]
    assert "not found: 3.14 (" in run.stdout
    assert f"{place / 'nothing'} cannot be run" in run.stderr
    assert "pytest of 3.12.11: -m pytest" in run.stdout
    assert run.stdout.count("tests/formats/test_cases.py") == 3
    assert run.stdout.endswith("all passed: 3.12.11 3.13.2 3.15.0\n")
    assert (checkout / ".matrix" / "3.12" / ".stamp").exists()


def test_a_matrix_of_nothing_fails(checkout: Path) -> None:
    run = dev(checkout, "matrix")
    assert run.returncode == 1
    assert "nothing was run" in run.stderr
    assert "not found: 3.12 3.13 3.14 (" in run.stdout


def test_one_failing_interpreter_fails_the_matrix_and_the_others_still_run(checkout: Path) -> None:
    place = checkout.parent
    broken = interpreter(place / "far" / "broken", "3.12.4")
    broken.write_text(broken.read_text().replace('*pytest*) echo "pytest', '*pytest*) exit 3; echo "pytest'))
    good = interpreter(place / "far" / "good", "3.13.4")
    run = dev(checkout, "matrix", MATRIX_PYTHONS=f"{broken} {good}")
    assert run.returncode == 1
    assert "failed: 3.12.4" in run.stderr
    assert "pytest of 3.13.4" in run.stdout


def test_the_bound_is_the_packages_own() -> None:
    """`dev` knows the oldest supported version without Python; the package says it for installers."""
    text = (ROOT / "dev").read_text()
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()
    assert '"${minor:-0}" -ge 11' in text
    assert sys.version_info >= (3, 11)
