"""The generated pages are current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_pages_are_current() -> None:
    """If this fails: python docs/generate_reference.py"""
    command = [sys.executable, str(ROOT / "docs" / "generate_reference.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
