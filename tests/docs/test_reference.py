"""The generated pages are current, and what they say of the configuration is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from athena.shells.config import schema_text
from support.code_blocks import ROOT
from support.patience import PATIENCE


@pytest.mark.parametrize(
    "generator", ["generate_reference.py", "generate_errors.py", "generate_losses.py", "generate_pages.py"]
)
def test_the_pages_are_current(generator: str) -> None:
    """If this fails: python docs/<generator>"""
    command = [sys.executable, str(ROOT / "docs" / generator), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 0, ran.stderr


def test_remedies_name_settings_that_exist() -> None:
    schema: dict[str, Any] = json.loads(schema_text())
    properties: dict[str, Any] = schema["properties"]
    codes = tomllib.loads((ROOT / "src" / "athena" / "shells" / "cli" / "error_codes.toml").read_text("utf-8"))
    named = re.findall(r"`([a-z_]+)\.([a-z_]+)`", json.dumps(codes))
    assert len(named) > 15
    for group, key in named:
        assert key in properties[group]["default"], f"{group}.{key}"
