"""The generated pages are current, and what they say of the configuration is there."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from athena.shells.config import schema_text
from support.code_blocks import ROOT


def test_the_reference_is_current() -> None:
    """If this fails: python docs/generate_reference.py"""
    # In a process of its own: a command keeps the help option with which a test has called it first.
    generator = [sys.executable, str(ROOT / "docs" / "generate_reference.py"), "--check"]
    done = subprocess.run(generator, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "generator", ["generate_errors.py", "generate_losses.py", "generate_pages.py", "generate_vocabulary.py"]
)
def test_the_pages_are_current(generator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails: python docs/<generator>"""
    # In this process, which has imported the SDKs already.
    monkeypatch.setattr(sys, "argv", [generator, "--check"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "docs" / generator), run_name="__main__")
    assert ended.value.code == 0


def test_remedies_name_settings_that_exist() -> None:
    schema: dict[str, Any] = json.loads(schema_text())
    properties: dict[str, Any] = schema["properties"]
    codes = tomllib.loads((ROOT / "src" / "athena" / "shells" / "cli" / "error_codes.toml").read_text("utf-8"))
    named = re.findall(r"`([a-z_]+)\.([a-z_]+)`", json.dumps(codes))
    assert len(named) > 15
    for group, key in named:
        assert key in properties[group]["default"], f"{group}.{key}"
