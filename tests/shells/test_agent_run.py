"""`athena code` with a stand-in for the agent: a script that reports what it was started with."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from athena.shells import agent_run
from athena.shells.agent_run import CanNotRun, running_gateway, started_gateway
from athena.shells.agents import AGENTS, OverlaidHome, launch, lay_over
from athena.shells.cli.code import AGENTS as OFFERED
from athena.shells.cli.code import code
from athena.shells.config import Sources, load
from athena.shells.daemon import Home, State
from athena.shells.temporary_gateway import Wish
from support.patience import PATIENCE

_CODE = (sys.executable, "-m", "athena", "code")
_REPORT = """#!{python}
import json, os, sys
json.dump({{"arguments": sys.argv[1:], "variables": dict(os.environ)}}, open({report!r}, "w"))
{then}
"""


class Stage:
    """A home, a PATH and a place for the stand-in's report."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.programs = place / "programs"
        self.report_file = place / "report.json"
        for directory in (self.home, self.programs):
            directory.mkdir()
        self.variables = {"HOME": str(self.home), "PATH": str(self.programs)}

    def install(self, name: str, then: str = "") -> None:
        program = self.programs / name
        program.write_text(_REPORT.format(python=sys.executable, report=str(self.report_file), then=then))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def report(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self.report_file.read_text())
        return found

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*_CODE, *words],
            env=self.variables | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The demo gateway, in a process of its own."""
    place = tmp_path_factory.mktemp("gateway")
    file = place / "athena.yml"
    file.write_text(f"upstreams: {{}}\nstate_dir: '{place / 'state'}'\n")
    with started_gateway(Wish(config_file=str(file), demo=True), place) as up:
        assert up.demo
        yield up.url


def test_the_agent_gets_the_gateway_its_arguments_and_nothing_else(stage: Stage, gateway: str) -> None:
    stage.install("claude", "print('answer'); sys.exit(7)")
    done = stage.run(
        *(
            "--url",
            gateway + "/v1/",
            "--key",
            "ath_1",
            "--model",
            "some/model",
            "claude",
            "--",
            "-p",
            "hi there",
            "--model",
            "own",
        ),
        ANTHROPIC_API_KEY="theirs",
        NO_PROXY="intern",
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "answer\n", "")
    report = stage.report()
    assert report["arguments"] == ["-p", "hi there", "--model", "own"]
    variables = report["variables"]
    assert variables["ANTHROPIC_BASE_URL"] == gateway
    assert variables["ANTHROPIC_AUTH_TOKEN"] == "ath_1"
    assert variables["ANTHROPIC_MODEL"] == variables["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "some/model"
    assert "ANTHROPIC_API_KEY" not in variables
    assert variables["NO_PROXY"] == "intern,127.0.0.1"
    assert not list(stage.home.iterdir())


def test_without_a_model_the_first_listed_is_taken_but_claude_keeps_its_own(stage: Stage, gateway: str) -> None:
    stage.install("codex")
    assert stage.run("--url", gateway, "codex").returncode == 0
    first = agent_run.ask(gateway, "any").models[0]
    assert f'model="{first}"' in stage.report()["arguments"]
    stage.install("claude")
    assert stage.run("--url", gateway).returncode == 0
    assert "ANTHROPIC_MODEL" not in stage.report()["variables"]


def test_a_gateway_is_started_for_the_run_and_ends_with_it(stage: Stage) -> None:
    ask = "import urllib.request; urllib.request.urlopen(os.environ['ANTHROPIC_BASE_URL'] + '/ready')"
    stage.install("claude", ask)
    done = stage.run("--demo")
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stderr
    assert not _is_up(stage.report()["variables"]["ANTHROPIC_BASE_URL"])


def test_a_gateway_that_does_not_start_says_why(stage: Stage, tmp_path: Path) -> None:
    stage.install("claude")
    file = tmp_path / "athena.yml"
    file.write_text("limits: {tools: many}\n")
    done = stage.run("--config", str(file))
    assert done.returncode == 1
    assert "did not start" in done.stderr
    assert "athena.yml" in done.stderr


def test_a_gateway_in_the_background_is_found(stage: Stage, gateway: str) -> None:
    home = Home(stage.home / ".athena")
    lock = home.lock()
    try:
        home.write(State(pid=os.getpid(), port=1, start_time="", config_path="", url=gateway))
        stage.install("claude")
        assert stage.run().returncode == 0
    finally:
        os.close(lock)
    assert stage.report()["variables"]["ANTHROPIC_BASE_URL"] == gateway


def test_a_gateway_in_the_background_that_only_has_the_demo_is_refused(stage: Stage, gateway: str) -> None:
    home = Home(stage.home / ".athena")
    lock = home.lock()
    try:
        home.write(State(pid=os.getpid(), port=1, start_time="", config_path="", url=gateway, demo=True))
        stage.install("claude")
        done = stage.run()
        assert done.returncode == 1
        assert "the gateway in the background has no upstream" in done.stderr
        assert "--base-url" in done.stderr
        assert not stage.report_file.exists()
        asked_for = stage.run("--demo")
        assert asked_for.returncode == 0, asked_for.stderr
    finally:
        os.close(lock)
    assert stage.report()["variables"]["ANTHROPIC_BASE_URL"] != gateway


def test_the_temporary_gateway_itself_wants_an_upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("ATHENA_") or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    file = tmp_path / "empty.yml"
    file.write_text("upstreams: {}\n")
    with (
        pytest.raises(CanNotRun, match="no upstream is configured"),
        started_gateway(Wish(config_file=str(file)), tmp_path),
    ):
        pass


def test_a_state_file_left_behind_is_no_gateway(tmp_path: Path) -> None:
    home = Home(tmp_path)
    os.close(home.lock())
    home.write(State(pid=os.getpid(), port=1, start_time="", config_path="", url="http://127.0.0.1:1"))
    loaded = load(Sources(directory=tmp_path, home=tmp_path, environment={"ATHENA_STATE_DIR": str(tmp_path)}))
    assert running_gateway(loaded) is None


def test_what_is_missing_is_named_with_its_remedy(stage: Stage) -> None:
    done = stage.run("codex")
    assert done.returncode == 1
    assert "npm install -g @openai/codex" in done.stderr


def test_no_gateway_at_the_address(stage: Stage) -> None:
    stage.install("claude")
    done = stage.run("--url", "http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no gateway answers at http://127.0.0.1:9" in done.stderr


def test_a_gateway_with_keys_asks_for_one(stage: Stage) -> None:
    stage.install("claude")
    refused = stage.run("--base-url", "http://127.0.0.1:9/v1", ATHENA_GATEWAY_KEY="ath_right")
    assert refused.returncode == 1
    assert "--key" in refused.stderr
    done = stage.run("--base-url", "http://127.0.0.1:9/v1", ATHENA_GATEWAY_KEY="ath_right", ATHENA_CODE_KEY="ath_right")
    assert done.returncode == 0, done.stderr


def test_wrong_usage() -> None:
    for words in (
        ["emacs"],
        ["--url", "http://127.0.0.1:9", "--base-url", "http://127.0.0.1:9", "claude"],
        ["--url", "u", "--demo"],
        ["--nonsense"],
    ):
        assert CliRunner().invoke(code, words).exit_code == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_agent_and_its_end_is_ours(number: int, stage: Stage, gateway: str) -> None:
    # Every signal gets its handler, so the one that came is seen, and no other.
    catch = (
        "import signal\n"
        "for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\n"
        "    signal.signal(one, lambda number, _: sys.exit(40 + number))\n"
        "print('ready', flush=True)\n"
        "signal.pause()"
    )
    stage.install("claude", catch)
    process = subprocess.Popen(
        [*_CODE, "--url", gateway], env=stage.variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(PATIENCE) == 40 + number


def test_an_agent_that_a_signal_ended(stage: Stage, gateway: str) -> None:
    stage.install("claude", "os.kill(os.getpid(), 9)")
    assert stage.run("--url", gateway).returncode == 128 + 9


def test_the_temporary_gateway_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    hold = (
        "import sys; from pathlib import Path\n"
        "from athena.shells.agent_run import started_gateway\n"
        "from athena.shells.temporary_gateway import Wish\n"
        "with started_gateway(Wish(demo=True), Path(sys.argv[1])) as up: print(up.url, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)],
        env={"HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        log = tmp_path / "gateway.log"
        assert _is_up(url)
        parent.kill()
        parent.wait()
    _wait_until_closed(log)
    assert not _is_up(url)


def _is_up(url: str) -> bool:
    try:
        agent_run.ask(url, "any")
    except CanNotRun:
        return False
    return True


def _wait_until_closed(file: Path) -> None:
    """Until no process has the file open any more: the gateway writes its log there."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and _is_open(file):
        time.sleep(0.02)


def _is_open(file: Path) -> bool:
    for links in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(os.path.realpath(link) == str(file) for link in links.iterdir()):
                return True
        except OSError:
            continue
    return False


def test_the_command_offers_every_row() -> None:
    assert tuple(AGENTS) == OFFERED


def test_every_row_fills_in_completely() -> None:
    for agent in AGENTS.values():
        plan = launch(agent, "program", ("own",), url="http://g", key="k", model='m"x', home="/h")
        written = [*plan.command, *plan.variables.values()]
        assert not any(mark in text for text in written for mark in ("{url}", "{key}", "{model}", "{home}"))
        assert any("http://g" in text for text in written)
        assert any("k" in text for text in plan.variables.values())
        assert plan.command[-1] == "own"
        bare = launch(agent, "program", (), url="http://g", key="k", model="", home="/h")
        assert not any("{model}" in text for text in [*bare.command, *bare.variables.values()])


def test_a_model_that_nobody_named(gateway: str) -> None:
    lists_none = agent_run.Gateway(gateway, ())
    with pytest.raises(CanNotRun, match="--model"):
        agent_run.choose_model(AGENTS["goose"], None, lists_none)
    assert agent_run.choose_model(AGENTS["codex"], None, lists_none) == ""


@pytest.mark.parametrize(
    "own", ['{"security": {"auth": {"selectedType": "oauth"}, "other": 1}, "theme": "dark"}', "// no JSON", None]
)
def test_a_home_laid_over_the_persons_own(own: str | None, tmp_path: Path) -> None:
    person, temporary = tmp_path / "person", tmp_path / "temporary"
    for directory in (person, temporary):
        directory.mkdir()
    if own is not None:
        (person / ".agent").mkdir()
        (person / ".agent" / "settings.json").write_text(own)
        (person / ".agent" / "memory.md").write_text("remember")
    overlay = OverlaidHome(
        directory=".agent", file="settings.json", settings={"security": {"auth": {"selectedType": "gemini-api-key"}}}
    )
    lay_over(overlay, person, temporary)
    settings = json.loads((temporary / ".agent" / "settings.json").read_text())
    assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
    if own is not None:
        assert (person / ".agent" / "settings.json").read_text() == own
        assert (temporary / ".agent" / "memory.md").read_text() == "remember"
        if own.startswith("{"):
            assert settings["theme"] == "dark"
            assert settings["security"]["other"] == 1
