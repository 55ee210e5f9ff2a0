"""Every command: its help, its exit codes, its words when something is wrong."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path
from typing import get_args

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from athena import __version__
from athena.dialects import dialect_names
from athena.shells.cli import cli, names
from athena.shells.cli.argv import hide_keys
from athena.shells.cli.background import Duration
from athena.shells.cli.explain import error_codes
from athena.shells.cli.registry import ROWS, Commands
from athena.shells.config import hash_key, schema_text
from athena.shells.config.model import LogLevel
from support.athena_process import COMMAND, athena, environment, start_athena
from support.code_blocks import ROOT
from support.patience import PATIENCE


def all_commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [()]
    group = cli
    assert isinstance(group, Commands)
    context = click.Context(group)
    for name in group.list_commands(context):
        found.append((name,))
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found += [(name, inner) for inner in command.commands]
    return found


@pytest.mark.parametrize("path", all_commands(), ids=" ".join)
def test_help_teaches(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"], prog_name="athena")
    assert result.exit_code == 0
    assert re.search(r"^ +(\$ )?.*athena ", result.output, re.M), "no example"
    assert all(len(line) < 130 for line in result.output.splitlines())


def test_rows_name_commands_that_exist() -> None:
    group = cli
    assert isinstance(group, Commands)
    context = click.Context(group)
    assert len({row.name for row in ROWS}) == len(ROWS)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.name == name
    assert group.get_command(context, "nothing") is None


def test_words_of_flags_are_those_of_the_configuration() -> None:
    assert set(names.DIALECTS) == set(dialect_names())
    assert get_args(LogLevel) == names.LEVELS


def test_version(tmp_path: Path) -> None:
    assert athena(tmp_path, "--version").out == f"athena {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--port", "x"),
        ("serve", "--nonsense"),
        ("nonsense",),
        ("serve", "--dialect", "latin"),
        ("stop", "--timeout", "x"),
    ],
)
def test_wrong_usage_is_exit_code_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = athena(tmp_path, *arguments)
    assert result.code == 2
    assert result.err.startswith("athena: ")
    assert "--help'" in result.err
    assert "Traceback" not in result.err


def test_bad_configuration_is_exit_code_1_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "athena.yml").write_text("host: 127.0.0.1\nport: many\n")
    assert athena(tmp_path, "config", "trust", "--yes").code == 0
    for arguments in (("serve",), ("config", "check"), ("start",)):
        result = athena(tmp_path, *arguments)
        assert result.code == 1
        assert "athena.yml:2: port" in result.err
        assert "Traceback" not in result.err


def test_a_public_address_needs_a_key(tmp_path: Path) -> None:
    for arguments in (("serve", "--host", "0.0.0.0", "--port", "0"), ("config", "check")):
        result = athena(tmp_path, *arguments, ATHENA_HOST="0.0.0.0")
        assert result.code == 1
        assert "no gateway key is set" in result.err


def test_the_top_imports_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys; sys.argv=['athena','serve','--help']; from athena.shells.cli import main; main();"
        "heavy=[name for name in ('uvicorn','rich','asyncio','yaml','jsonschema_rs','athena.exchange') if name in sys.modules];"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(tmp_path), timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr


# -- config ----------------------------------------------------------------------------------------------------------------


def test_config_init_then_check(tmp_path: Path) -> None:
    assert athena(tmp_path, "config", "init").code == 0
    assert oct((tmp_path / "athena.yml").stat().st_mode)[-3:] == "600"
    again = athena(tmp_path, "config", "init")
    assert again.code == 1
    assert "--force" in again.err
    assert athena(tmp_path, "config", "init", "--force").code == 0
    checked = athena(tmp_path, "config", "check")
    assert (checked.code, checked.err) == (0, "")
    assert "athena.yml" in checked.out


def test_config_check_fails_on_misspelled_keys(tmp_path: Path) -> None:
    (tmp_path / "other.yml").write_text("prot: 1\n")
    result = athena(tmp_path, "config", "check", "other.yml")
    assert result.code == 1
    assert "warning: other.yml:1: prot" in result.err
    assert athena(tmp_path, "config", "check", "none.yml").code == 1


def test_config_show_masks(tmp_path: Path) -> None:
    result = athena(tmp_path, "config", "show", "--set", "--base-url", "http://127.0.0.1:8000", "--api-key", "open-sesame")
    assert result.code == 0
    assert "http://127.0.0.1:8000" in result.out
    assert "--base-url" in result.out
    assert "open-sesame" not in result.out
    as_json = athena(tmp_path, "config", "show", "--json", ATHENA_PORT="4444")
    values = {".".join(map(str, value["path"])): value for value in json.loads(as_json.out)}
    assert values["port"] == {"path": ["port"], "value": 4444, "source": "ATHENA_PORT"}
    assert "Nothing is set" in athena(tmp_path, "config", "show", "--set").out


def test_config_schema_and_profiles(tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(cli, ["config", "schema"]).output == schema_text()
    listed = runner.invoke(cli, ["config", "profiles"]).output
    assert re.search(r"^openrouter +openai_chat$", listed, re.M)
    for name in (line.split()[0] for line in listed.splitlines()):
        shown = runner.invoke(cli, ["config", "profiles", name])
        assert shown.exit_code == 0
        assert "dialect: " in shown.output
    unknown = athena(tmp_path, "config", "profiles", "nobody")
    assert unknown.code == 1
    assert "unknown profile 'nobody'" in unknown.err


def test_keys_are_made_and_hashed(tmp_path: Path) -> None:
    made = athena(tmp_path, "config", "new-key", "--name", "laptop")
    key = made.out.strip()
    assert key.startswith("ath_")
    assert f'{{name: laptop, hash: "{hash_key(key)}"}}' in made.err
    hashed = athena(tmp_path, "config", "hash-key", stdin=f"{key}\n")
    assert hashed.out.strip() == hash_key(key)
    (tmp_path / "athena.yml").write_text(made.err[made.err.index("keys:") :])
    assert athena(tmp_path, "config", "check", "athena.yml").code == 0
    assert athena(tmp_path, "config", "hash-key", stdin="").code == 1


# -- the rest --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert "_ATHENA_COMPLETE" in result.output


def test_completion_completes(tmp_path: Path) -> None:
    done = athena(tmp_path, _ATHENA_COMPLETE="bash_complete", COMP_WORDS="athena st", COMP_CWORD="1")
    assert {line.partition(",")[2] for line in done.out.splitlines()} == {"start", "stop", "status", "store"}
    done = athena(tmp_path, _ATHENA_COMPLETE="bash_complete", COMP_WORDS="athena help sto", COMP_CWORD="2")
    assert {line.partition(",")[2] for line in done.out.splitlines()} == {
        "stop",
        "store",
        "store_down",
        "store_full",
        "store_unreadable",
    }


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["parse", "--format"], {"auto", "standard", "kimi_k2"}),
        (["replay", "--format"], {"kimi_k2"}),
        (["formats"], {"kimi_k2", "learn"}),
        (["detect"], {"big", "lab-model"}),
        (["models"], {"big"}),
        (["parse", "--model"], {"big"}),
        (["serve", "--model-opus"], {"big"}),
        (["code", "claude", "--model"], {"big"}),
        (["serve", "--profile"], {"openrouter"}),
        (["config", "profiles"], {"openrouter"}),
        (["doctor", "--upstream"], {"lab"}),
        (["verify"], {"lab/"}),
        (["init", "--upstream"], {"ollama"}),
        (["init", "--agent"], {"claude"}),
        (["code"], {"claude"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_names_are_completed(words: list[str], offered: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shell is offered after these words, in the process: a shell would start one for each."""
    file = tmp_path / "athena" / "athena.yml"
    file.parent.mkdir()
    file.write_text("""
upstreams: {lab: {base_url: "http://127.0.0.1:9/v1"}}
models: [{match: big, use: lab/one}, {match: lab-model, use: lab/two}]
""")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    completer = ShellComplete(cli, {}, "athena", "_ATHENA_COMPLETE")
    assert offered <= {item.value for item in completer.get_completions(words, "")}


def test_messages_name_codes_that_help_explains() -> None:
    """`athena help` reads a word as a command first, so no code may have a command's name."""
    sources = (ROOT / "src").rglob("*.py")
    named = {code for path in sources for code in re.findall(r"more_about\([\"'](\w+)[\"']\)", path.read_text("utf-8"))}
    assert len(named) >= 7
    assert named <= set(error_codes())
    assert {row.name for row in ROWS}.isdisjoint(error_codes())


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30.0), ("500ms", 0.5), ("2m", 120.0), ("1h", 3600.0), ("7", 7.0)])
def test_durations(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


def test_keys_leave_the_arguments() -> None:
    argv = ["athena", "serve", "--api-key", "open-sesame", "--api-key=again", "--port", "1"]
    assert hide_keys(argv) == ["serve", "--api-key", "open-sesame", "--api-key=again", "--port", "1"]
    assert argv == ["athena", "serve", "--api-key", "***", "--api-key=***", "--port", "1"]


def on_terminal(home: Path, *arguments: str, **extra: str) -> str:
    """What a command writes to a terminal."""
    master, slave = pty.openpty()
    process = start_athena(arguments, (slave, slave, slave), home, environment(home, TERM="xterm", **extra))
    os.close(slave)
    text = b""
    while select.select([master], [], [], PATIENCE)[0]:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        text += data
    os.close(master)
    process.wait(PATIENCE)
    return text.decode()


def test_colours_only_on_a_terminal(tmp_path: Path) -> None:
    assert "\x1b[" in on_terminal(tmp_path, "serve", "--nonsense")
    assert "\x1b[" not in on_terminal(tmp_path, "serve", "--nonsense", NO_COLOR="1")
    assert "\x1b[" not in athena(tmp_path, "serve", "--nonsense").err


def test_a_closed_pipe_is_no_fault(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} config schema | head -1"],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["srve"], 2, "there is no command 'srve'; did you mean serve?"),
        (["zzz"], 2, "there is no command 'zzz'\n"),
        (["serve", "--prot", "9"], 2, "there is no option --prot; did you mean --host or --port"),
        (["status", "--zzz"], 2, "there is no option --zzz\nTry 'athena status --help'."),
        (["code", "cluade"], 2, "there is no agent 'cluade'; did you mean claude?"),
        (["code", "zzz"], 2, "there is no agent 'zzz'; known: claude, codex"),
        (["init", "--yes"], 2, "--yes asks nothing: name the provider (--upstream NAME; athena init --list shows them)"),
        (["init"], 2, "this is not a terminal, so nothing can be asked: name the provider"),
        (["completion"], 2, "Choose from: bash, zsh, fish"),
        (["config"], 2, "Usage: athena config [OPTIONS]"),
        (["version"], 0, f"athena {__version__}"),
        (["-V"], 0, f"athena {__version__}"),
        (["help", "detect"], 0, "Usage: athena detect"),
        (["help"], 0, "Usage: athena [OPTIONS]"),
        (["help", "config", "check"], 0, "Usage: athena config check"),
        (["help", "upstream_unreachable"], 0, "What to do: start the server, see `base_url`."),
        (["help", "response-not-found"], 0, "see state (docs/state.md) for what is kept and how long."),
        (["help", "upstream_unreachabel"], 2, "no error code 'upstream_unreachabel'; did you mean upstream_unreachable"),
        (["help", "srve"], 2, "there is no command and no error code 'srve'; did you mean serve"),
        (["help", "zzz"], 2, "there is no command and no error code 'zzz'\n"),
        (["detect", "kimi-k2", "gpt-4.1"], 0, "kimi-k2  kimi_k2\ngpt-4.1  standard\nstandard: structured calls"),
        (["detect", "--json", "kimi-k2"], 0, '{"kimi-k2":"kimi_k2"}'),
        (["models"], 1, "no upstream is configured; athena init sets one up"),
        (["models", "--base-url", "http://127.0.0.1:9/v1"], 1, "http://127.0.0.1:9/v1/models cannot be reached"),
    ],
)
def test_what_a_newcomer_types(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    done = athena(tmp_path, *arguments)
    assert done.code == code, done.err
    assert said in done.out + done.err


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["help", "upstream_empty", "--json"], {"code", "section", "when", "remedy"}),
        (["config", "profiles", "--json"], {"anthropic", "ollama"}),
        (["config", "profiles", "ollama", "--json"], {"dialect", "reasoning_field"}),
        (["config", "new-key", "--name", "laptop", "--json"], {"key", "name", "hash"}),
        (["store", "check", "--json"], {"store", "problems", "held", "bytes", "max_bytes"}),
        (["store", "migrate", "--json"], {"before", "after"}),
        (["store", "vacuum", "--json"], {"deleted"}),
        (["stop", "--json"], {"stopped", "was_running", "finished"}),
        (["config", "check", "--json"], {"valid", "problems", "files"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_answers_as_json(tmp_path: Path, arguments: list[str], fields: set[str]) -> None:
    done = athena(tmp_path, *arguments)
    assert done.code == 0, done.err
    assert fields <= set(json.loads(done.out))
    assert not done.err
