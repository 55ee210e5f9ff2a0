"""Every command that tells something tells it to programs too, with --json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from athena.shells.cli import cli

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests" / "cases" / "recordings" / "leaked_call.athena"

WITHOUT = {
    "serve": "runs until it is ended; --log-format json makes its log JSON",
    "code": "runs the agent, whose output it is",
    "completion": "prints a script for a shell",
    "config schema": "prints JSON anyway",
}
"""Commands that have no --json, and why."""


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _commands(below, (*path, name))
        if not command.invoke_without_command or not path:
            return
    yield " ".join(path), command


def test_every_command_has_it_or_a_reason() -> None:
    commands = dict(_commands(cli))
    assert len(commands) > 30
    without = {name for name, command in commands.items() if not any("--json" in option.opts for option in command.params)}
    assert without == set(WITHOUT)


class Shell:
    """Commands in one empty home, one after the other."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.code = 0
        self.err = ""

    def lines(self, *arguments: str, stdin: str = "") -> list[Any]:
        """What a command printed on standard output: JSON, line by line."""
        variables = {"HOME": str(self.home), **dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "ATHENA_CONFIG"))}
        done = CliRunner().invoke(cli, arguments, input=stdin, env=variables, standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        self.code, self.err = int(done.return_value or 0), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def one(self, *arguments: str, stdin: str = "") -> Any:
        """The single object that a command printed."""
        (found,) = self.lines(*arguments, stdin=stdin)
        return found


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


def test_a_configuration_is_made_and_trusted(shell: Shell) -> None:
    assert shell.one("config", "init", "--json") == {
        "file": "athena.yml",
        "next_steps": ["athena config trust", "athena config check"],
    }
    (shell.home / "athena.yml").write_text("upstreams: {lab: {base_url: http://127.0.0.1:9/v1}}\n")
    file = str(shell.home / "athena.yml")
    looked_at = shell.one("config", "trust", "--json")
    assert (shell.code, looked_at["trusted"], looked_at["file"], looked_at["settings"]) == (1, False, file, 1)
    (effect,) = looked_at["effects"]
    assert (effect["setting"], effect["line"]) == ("upstreams.lab.base_url: http://127.0.0.1:9/v1", 1)
    assert shell.one("config", "trust", "--list", "--json")["state"] == "changed since, not used"
    assert shell.one("config", "trust", "--yes", "--json") == {**looked_at, "trusted": True}
    assert (shell.one("config", "trust", "--json")["trusted"], shell.code) == (True, 0)
    assert shell.one("config", "trust", "--list", "--json")["state"] == "trusted"
    assert shell.one("config", "untrust", "--json") == {"file": file, "trusted": False}
    assert shell.lines("config", "trust", "--list", "--json") == []
    own = shell.home / ".config" / "athena" / "athena.yml"
    assert shell.one("config", "init", str(own), "--json") == {"file": str(own), "next_steps": ["athena config check"]}
    assert shell.one("config", "trust", str(own), "--json") == {"file": str(own), "trusted": True, "own_directory": True}


def test_a_key_is_hashed(shell: Shell) -> None:
    found = shell.one("config", "hash-key", "--json", stdin="0123456789abcdef\n")
    assert set(found) == {"hash"}
    assert found["hash"]
    assert shell.err == ""


def test_recordings_are_kept_and_deleted(shell: Shell) -> None:
    (name,) = shell.one("record", "import", str(RECORDING), "--json")["ids"]
    written = shell.one("record", "export", name, "-o", "report.athena", "--json")
    assert (written["file"], len(written["ids"])) == ("report.athena", 1)
    page = shell.one("record", "export", name, "--keep-text", "--html", "-o", "report.html", "--json")
    assert (page["file"], page["ids"]) == ("report.html", [name])
    redacted = shell.one("record", "redact", "report.athena", "-o", "again.athena", "--json")
    assert (redacted["file"], len(redacted["ids"])) == ("again.athena", 1)
    assert shell.one("record", "delete", name, "--yes", "--json") == {"deleted": 1}


@pytest.mark.parametrize("command", [("export", "req_1"), ("redact", str(RECORDING))])
def test_a_text_on_standard_output_has_no_room_for_an_object(shell: Shell, command: tuple[str, str]) -> None:
    with pytest.raises(click.UsageError, match="name one with --output"):
        shell.lines("record", *command, "--json")


def test_a_log_is_shown(shell: Shell) -> None:
    log = shell.home / ".local" / "state" / "athena" / "athena.log"
    log.parent.mkdir(parents=True)
    log.write_text('12:00:00 info    started\n{"event": "request"}\n{broken\n')
    assert shell.lines("logs", "--json") == [{"line": "12:00:00 info    started"}, {"event": "request"}, {"line": "{broken"}]
