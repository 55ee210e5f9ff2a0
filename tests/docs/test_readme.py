"""What the README says is what happens."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_print_what_they_say(code: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    expected = [line[2:] for line in code.splitlines() if line.startswith("# ")]
    assert printed.getvalue().splitlines() == expected


def test_shell_commands_are_known() -> None:
    """CI runs `./dev test`; tests/shells runs `athena serve`. Here: every command of the README exists in ./dev."""
    commands = {line.split()[1] for block in blocks("sh") for line in block.splitlines() if line.startswith("./dev ")}
    assert commands == {"serve", "test"}
    usage = subprocess.run([str(ROOT / "dev"), "help"], capture_output=True, text=True, timeout=30, check=True).stdout
    for command in commands:
        assert f"\n  {command} " in usage


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
