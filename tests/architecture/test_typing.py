"""The public surface as type checkers of users see it. mypy judges `user_program` with all other tests (`./dev lint`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

import athena
import athena.batch
import athena.testing
import athena.transport
from support import user_program
from support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
HOMES = {f"athena.{name}" for name in athena.__all__}
HOMES |= {f"athena.{home}.{name}" for name, home in athena._HOMES.items() if home}
HOMES |= {f"{module.__name__}.{name}" for module in (athena.batch, athena.testing, athena.transport) for name in module.__all__}
HOMES |= {f"athena.errors.{name}" for name in athena.errors.__all__}


def judged(arguments: list[str], place: Path) -> dict[str, Any]:
    """What basedpyright says, as JSON. It takes the packages to look at from PYTHONPATH."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE), sysconfig.get_paths()["purelib"]))}
    command = [sys.executable, "-m", "basedpyright", "--outputjson", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=place, env=variables, timeout=5 * PATIENCE, check=False)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_a_users_program_is_clean_under_pyright_strict() -> None:
    """As `[tool.pyright]` of pyproject.toml says."""
    report = judged(["--pythonpath", sys.executable], ROOT)
    assert report["summary"]["filesAnalyzed"] == 1
    found = [f"{one['range']['start']['line'] + 1}: {one['message']}" for one in report["generalDiagnostics"]]
    assert found == []


def test_every_public_type_is_known(tmp_path: Path) -> None:
    """`--verifytypes` takes every module for public; of its findings those about public names count."""
    report = judged(["--verifytypes", "athena", "--ignoreexternal"], tmp_path)["typeCompleteness"]
    assert report["pyTypedPath"].endswith("py.typed")
    seen = {symbol["name"] for symbol in report["symbols"]}
    assert len(HOMES & seen) > 60
    unknown = [
        f"{symbol['name']}: {problem['message']}"
        for symbol in report["symbols"]
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
        for problem in symbol["diagnostics"] or [{"message": "part of it is unknown"}]
        if any(symbol["name"] == home or symbol["name"].startswith(f"{home}.") for home in HOMES)
    ]
    assert unknown == []


def test_the_users_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    arguments, shown, calls, written, extracted, path, status = user_program.everything()
    assert arguments == '{"tz": "UTC"}'
    assert isinstance(shown, list)
    assert shown[-1] == arguments
    assert isinstance(calls, list)
    assert isinstance(written, bytes)
    assert b"message_stop" in written
    assert isinstance(extracted, athena.ExtractedCalls)
    assert len(calls) == len(extracted.calls) == 1
    assert path == "model"
    assert status == 404


def test_the_wheel_says_that_it_is_typed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=PATIENCE, check=True)
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "athena/py.typed" in names
    files = [path for path in (SOURCE / "athena").rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    assert {str(path.relative_to(SOURCE)) for path in files} <= names
