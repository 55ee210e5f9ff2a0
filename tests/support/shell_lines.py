"""Shell commands as documentation shows them: which may simply be run, and what vouches for the others."""

from __future__ import annotations

import shlex
import subprocess
from functools import cache

import click

from athena.shells.agents import AGENTS
from athena.shells.cli import cli
from support.code_blocks import ROOT
from support.patience import PATIENCE

RUN = {
    "athena": {"config", "detect", "formats", "parse", "--version"},
    "curl": None,
    "cat": None,
    "echo": None,
    "printf": None,
}
"""Programs, and of `athena` the commands, that end by themselves and change nothing but the current directory."""

VOUCHED = {
    "athena": "tests/shells/test_cli_serve.py::test_the_first_minute",
    "athena serve": "tests/shells/test_cli_serve.py::test_the_first_minute",
    "athena demo": "tests/shells/test_cli_demo.py::test_plain_output_shows_both_sides",
    "athena init": "tests/shells/test_cli_init.py::test_flags_answer_everything",
    "athena models": "tests/shells/test_cli_commands.py::test_what_a_newcomer_types",
    "athena start": "tests/shells/test_daemon.py::test_a_whole_life",
    "athena stop": "tests/shells/test_daemon.py::test_a_whole_life",
    "athena status": "tests/shells/test_daemon.py::test_a_whole_life",
    "athena logs": "tests/shells/test_daemon.py::test_logs_command_follows",
    "athena doctor": "tests/shells/test_doctor.py::test_the_commands_words_and_exit_codes",
    "athena verify": "tests/verify/test_command.py::test_reports_resuming_and_comparing",
    "athena record": "tests/recordings/test_kept.py::test_commands_on_files",
    "athena replay": "tests/recordings/test_kept.py::test_the_inspectors_data",
    "athena code": "tests/shells/test_agent_run.py::test_the_agent_gets_the_gateway_its_arguments_and_nothing_else",
    "uvicorn": "tests/shells/test_cli_serve.py::test_the_gateway_can_be_mounted",
}
"""Commands that run until they are stopped, and the test that runs them."""

OFFLINE = {
    "pip install athena-gateway[learn]": "the same; tests/learning has jinja2 from the requirement file",
    "pip install athena-gateway": "the package index is not reached by tests; tests/architecture builds the wheel",
}
"""Whole lines that nothing here can run, and why."""


def commands(script: str) -> list[list[str]]:
    """The simple commands of a script, as words, without where they read from and write to."""
    lexer = shlex.shlex(_one_line(script.replace("\\\n", " ")), posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set(";&|"):
            found.append([])
        elif set(word) <= set("<>"):
            next(lexer)
        else:
            found[-1].append(word)
    return [words for words in found if words]


def _one_line(script: str) -> str:
    """Line ends outside quotes become semicolons, comments go."""
    written: list[str] = []
    quote = ""
    comment = False
    previous = "\n"
    for letter in script:
        if comment:
            if letter != "\n":
                continue
            comment = False
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and previous.isspace():
            comment = True
            continue
        written.append(" ; " if letter == "\n" and not quote else letter)
        previous = letter
    return "".join(written)


def is_runnable(words: list[str]) -> bool:
    """May this command simply be run?"""
    if words[0] not in RUN:
        return False
    allowed = RUN[words[0]]
    return allowed is None or (len(words) > 1 and words[1] in allowed)


def check(words: list[str], exports: dict[str, str]) -> None:
    """A command that is not run here: it must exist as written, and a test that exists must vouch for it."""
    program = words[0]
    if program == "./dev":
        assert f"\n  {words[1]} " in _usage(), f"./dev knows no {words[1]}"
        if words[1] in ("serve", "athena"):
            check(["athena", *(words[1:] if words[1] == "serve" else words[2:])], exports)
        return
    agent = next((agent for agent in AGENTS.values() if program in agent.executables), None)
    if agent is not None:
        unknown = [name for name in exports if name not in agent.variables]
        assert not unknown, f"`athena code {agent.name}` does not set {unknown}"
        _exists("tests/agents/test_agents.py::test_the_agent_reads_the_file")
        return
    if program == "athena":
        check_arguments(words[1:])
    name = " ".join(words[:2]) if program == "athena" and len(words) > 1 else program
    assert name in VOUCHED, f"nothing runs `{shlex.join(words)}`: see tests/support/shell_lines.py"
    _exists(VOUCHED[name])


def check_arguments(arguments: list[str]) -> None:
    """Click reads the arguments; nothing is invoked."""
    command: click.Command = cli
    context = click.Context(cli, info_name="athena")
    rest = arguments
    while isinstance(command, click.Group) and rest:
        found = command.get_command(context, rest[0])
        assert found is not None, f"athena has no command {rest[0]}"
        command, rest = found, rest[1:]
        context = click.Context(command, info_name=rest[0] if rest else "", parent=context)
    if command is not cli:
        command.make_context(command.name, list(rest), resilient_parsing=False).close()


@cache
def _usage() -> str:
    return subprocess.run([str(ROOT / "dev"), "help"], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def _exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text("utf-8"), f"no such test: {test}"
