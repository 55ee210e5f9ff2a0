"""`athena code` with a stand-in for the agent: a script that reports what it was started with."""

from __future__ import annotations

import contextlib
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
from athena.shells.agent_run import AgentGateway, CanNotRun, fitting, log_of_run, running_gateway, started_gateway
from athena.shells.agents import AGENTS, Launch, OverlaidHome, launch, lay_over, read_settings
from athena.shells.cli.code import AGENTS as OFFERED
from athena.shells.cli.code import code
from athena.shells.config import Sources, Window, load
from athena.shells.daemon import DaemonState, Home
from athena.shells.temporary_gateway import Wish
from support.athena_process import Result, Serving, environment, run_athena
from support.gateway_process import free_port
from support.patience import PATIENCE, until
from support.plain_upstream import PlainUpstream, Reply

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
        self.variables = environment(self.home, PATH=str(self.programs))

    def install(self, name: str, then: str = "") -> None:
        program = self.programs / name
        program.write_text(_REPORT.format(python=sys.executable, report=str(self.report_file), then=then))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def report(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self.report_file.read_text())
        return found

    def run(self, *words: str, **variables: str) -> Result:
        return run_athena(["code", *words], Path(), self.variables | variables)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The demo gateway, in a process of its own."""
    place = tmp_path_factory.mktemp("gateway")
    file = place / "athena.yml"
    file.write_text(f"upstreams: {{}}\nstate_dir: '{place / 'state'}'\n")
    with started_gateway(Wish(config_file=str(file), demo=True), place / "gateway.log") as up:
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
    assumed = (
        "athena: how much some/model takes is not known, and Claude Code assumes 1,000,000 tokens; --context TOKENS tells it\n"
    )
    assert (done.code, done.out, done.err) == (7, "answer\n", assumed)
    report = stage.report()
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS" not in report["variables"], "no window is made up"
    assert report["arguments"][0] == "--settings"
    assert report["arguments"][2:] == ["-p", "hi there", "--model", "own"]
    variables = report["variables"]
    assert variables["ANTHROPIC_BASE_URL"] == gateway
    assert variables["ANTHROPIC_AUTH_TOKEN"] == "ath_1"
    assert variables["ANTHROPIC_MODEL"] == variables["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "some/model"
    assert "ANTHROPIC_API_KEY" not in variables
    assert variables["NO_PROXY"] == "intern,127.0.0.1"
    assert not list(stage.home.iterdir())
    for model, said in (("claude-sonnet-4-5", {}), ("some/model", {"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "200000"})):
        assert stage.run("--url", gateway, "--model", model, "claude", **said).err == ""


def test_without_a_model_the_first_listed_is_taken_but_claude_keeps_its_own(stage: Stage, gateway: str) -> None:
    stage.install("codex")
    assert stage.run("--url", gateway, "codex").code == 0
    first = agent_run.ask(gateway, "any").models[0]
    assert f'model="{first}"' in stage.report()["arguments"]
    stage.install("claude")
    assert stage.run("--url", gateway).code == 0
    assert "ANTHROPIC_MODEL" not in stage.report()["variables"]


def test_a_gateway_is_started_for_the_run_and_ends_with_it(stage: Stage) -> None:
    ask = "import urllib.request; urllib.request.urlopen(os.environ['ANTHROPIC_BASE_URL'] + '/ready')"
    stage.install("claude", ask)
    done = stage.run("--demo")
    assert done.code == 0, done.err
    assert "demo" in done.err
    assert not _is_up(stage.report()["variables"]["ANTHROPIC_BASE_URL"])


def test_a_gateway_that_does_not_start_says_why(stage: Stage, tmp_path: Path) -> None:
    stage.install("claude")
    file = tmp_path / "athena.yml"
    file.write_text("limits: {tools: many}\n")
    done = stage.run("--config", str(file))
    assert done.code == 1
    assert "did not start" in done.err
    assert "athena.yml" in done.err


def test_a_gateway_in_the_background_is_found(stage: Stage, gateway: str) -> None:
    home = Home(stage.home / ".local/state/athena")
    lock = home.lock()
    try:
        home.write(DaemonState(pid=os.getpid(), port=1, start_time="", config_path="", url=gateway))
        stage.install("claude")
        assert stage.run().code == 0
    finally:
        os.close(lock)
    assert stage.report()["variables"]["ANTHROPIC_BASE_URL"] == gateway


def test_a_gateway_in_the_background_that_only_has_the_demo_is_refused(stage: Stage, gateway: str) -> None:
    home = Home(stage.home / ".local/state/athena")
    lock = home.lock()
    try:
        home.write(DaemonState(pid=os.getpid(), port=1, start_time="", config_path="", url=gateway, demo=True))
        stage.install("claude")
        done = stage.run()
        assert done.code == 1
        assert "the gateway in the background has no upstream" in done.err
        assert "--base-url" in done.err
        assert not stage.report_file.exists()
        asked_for = stage.run("--demo")
        assert asked_for.code == 0, asked_for.err
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
        started_gateway(Wish(config_file=str(file)), tmp_path / "gateway.log"),
    ):
        pass


def test_a_state_file_left_behind_is_no_gateway(tmp_path: Path) -> None:
    home = Home(tmp_path)
    os.close(home.lock())
    home.write(DaemonState(pid=os.getpid(), port=1, start_time="", config_path="", url="http://127.0.0.1:1"))
    loaded = load(Sources(directory=tmp_path, home=tmp_path, environment={"ATHENA_STATE_DIR": str(tmp_path)}))
    assert running_gateway(loaded) is None


def test_what_is_missing_is_named_with_its_remedy(stage: Stage) -> None:
    done = stage.run("codex")
    assert done.code == 1
    assert "npm install -g @openai/codex" in done.err


def test_no_gateway_at_the_address(stage: Stage) -> None:
    stage.install("claude")
    done = stage.run("--url", "http://127.0.0.1:9")
    assert (done.code, done.out) == (1, "")
    assert "no gateway answers at http://127.0.0.1:9" in done.err


def test_a_gateway_with_keys_asks_for_one(stage: Stage, upstream: PlainUpstream) -> None:
    stage.install("claude")
    refused = stage.run("--base-url", upstream.url, ATHENA_GATEWAY_KEY="ath_right")
    assert refused.code == 1
    assert "--key" in refused.err
    done = stage.run("--base-url", upstream.url, ATHENA_GATEWAY_KEY="ath_right", ATHENA_CODE_KEY="ath_right")
    assert done.code == 0, done.err


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
    code = [sys.executable, "-m", "athena", "code", "--url", gateway]
    process = subprocess.Popen(code, env=stage.variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(PATIENCE) == 40 + number


def test_an_agent_that_a_signal_ended(stage: Stage, gateway: str) -> None:
    stage.install("claude", "os.kill(os.getpid(), 9)")
    assert stage.run("--url", gateway).code == 128 + 9


def test_the_temporary_gateway_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    hold = (
        "import sys; from pathlib import Path\n"
        "from athena.shells.agent_run import started_gateway\n"
        "from athena.shells.temporary_gateway import Wish\n"
        "with started_gateway(Wish(demo=True), Path(sys.argv[1]) / 'gateway.log') as up:\n"
        "    print(up.url, flush=True); sys.stdin.read()"
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
        assert until(lambda: _is_up(url))
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


def _plan(agent: str, directory: Path, *own: str, model: str = 'm"x', window: Window = Window(), **environment: str) -> Launch:  # noqa: B008
    return launch(
        AGENTS[agent],
        "program",
        own,
        url="http://g",
        key="k-1",
        model=model,
        directory=directory,
        overlay=directory / "home",
        window=window,
        environment=environment,
        home=directory,
    )


@pytest.mark.parametrize("name", AGENTS)
def test_every_row_fills_in_completely(name: str, tmp_path: Path) -> None:
    for model in ('m"x', ""):
        for window in (Window(), Window(200_000, 8000)):
            plan = _plan(name, tmp_path, "own", model=model, window=window)
            written = [*plan.command, *plan.variables.values(), *plan.files.values()]
            marks = ("{url}", "{key}", "{model}", "{dir}", "{home}", "{context", "{output")
            assert not any(mark in text for text in written for mark in marks)
            assert any("http://g" in text for text in written)
            assert any("k-1" in text for text in (*plan.variables.values(), *plan.files.values()))
            assert not any("k-1" in word for word in plan.command), "others can read what stands on a command line"
            assert plan.command[-1] == "own"


@pytest.mark.parametrize("name", sorted(AGENTS.keys() - {"gemini", "cline"}))
def test_agents_are_told_how_much_the_model_takes(name: str, tmp_path: Path) -> None:
    def shown(window: Window) -> str:
        plan = _plan(name, tmp_path, window=window)
        return " ".join((*plan.command, *plan.variables.values(), *plan.files.values()))

    assert "212345" in shown(Window(212_345, 7654))
    assert name == "codex" or "7654" in shown(Window(212_345, 7654))
    assert "212345" not in shown(Window())


def test_a_model_without_a_known_window_is_still_a_model(tmp_path: Path) -> None:
    content = json.loads(_plan("opencode", tmp_path, model="m").variables["OPENCODE_CONFIG_CONTENT"])
    assert content["provider"]["athena"]["models"] == {"m": {}}
    known = json.loads(_plan("opencode", tmp_path, model="m", window=Window(9, 3)).variables["OPENCODE_CONFIG_CONTENT"])
    assert known["provider"]["athena"]["models"] == {"m": {"limit": {"context": 9, "output": 3}}}


def test_a_window_that_the_person_set_is_left_alone(tmp_path: Path) -> None:
    plan = _plan("claude", tmp_path, window=Window(64_000, 8000), CLAUDE_CODE_MAX_OUTPUT_TOKENS="1000")
    assert "CLAUDE_CODE_MAX_OUTPUT_TOKENS" not in plan.variables
    assert plan.variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "64000"
    # Less than this it takes for the least it knows, and complains.
    assert "CLAUDE_CODE_AUTO_COMPACT_WINDOW" not in plan.variables


def test_claudes_own_settings_do_not_lead_past_the_gateway(tmp_path: Path) -> None:
    theirs = {"env": {"ANTHROPIC_BASE_URL": "http://other", "MINE": "1"}, "permissions": {"allow": ["Read"]}}
    for given in (json.dumps(theirs), str(tmp_path / "theirs.json")):
        (tmp_path / "theirs.json").write_text(json.dumps(theirs))
        for own in (("--settings", given, "-p", "hi"), (f"--settings={given}", "-p", "hi")):
            plan = _plan("claude", tmp_path, *own)
            (file,) = plan.files
            assert plan.command == ("program", "--settings", str(file), "-p", "hi")
            settings = json.loads(plan.files[file])
            assert settings["permissions"] == {"allow": ["Read"]}
            assert settings["env"]["MINE"] == "1"
            assert settings["env"]["ANTHROPIC_BASE_URL"] == "http://g"
            assert settings["env"]["ANTHROPIC_AUTH_TOKEN"] == "k-1"
            assert settings["env"]["ANTHROPIC_API_KEY"] == settings["env"]["CLAUDE_CODE_USE_BEDROCK"] == ""


def test_settings_of_the_machine_and_the_person_stay_below_ours(tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    machine.write_text('{"tools": {"sandbox": true}, "security": {"auth": {"selectedType": "qwen-oauth"}}}')
    plan = _plan("qwen", tmp_path, QWEN_CODE_SYSTEM_SETTINGS_PATH=str(machine))
    settings = json.loads(plan.files[tmp_path / "qwen.json"])
    assert settings["tools"] == {"sandbox": True}
    assert settings["security"] == {"auth": {"selectedType": "openai"}}
    (tmp_path / ".continue").mkdir()
    (tmp_path / ".continue" / "config.yaml").write_text("name: Mine\nrules: [be brief]\nmodels: [{name: theirs}]\n")
    plan = _plan("continue", tmp_path)
    settings = json.loads(plan.files[tmp_path / "continue.yaml"])
    assert settings["rules"] == ["be brief"]
    assert [model["apiBase"] for model in settings["models"]] == ["http://g/v1"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('// first\n{"a": "// no comment", /* x */ "b": [1, 2,], // end\n}', {"a": "// no comment", "b": [1, 2]}),
        ('{"a": "\\" /* , } */", }', {"a": '" /* , } */'}),
        ('{"a": 1, // cut', {}),
        ('{"a": "cut', {}),
        ("/*", {}),
        ("", {}),
        ("[" * 100_000, {}),
    ],
)
def test_settings_with_comments(text: str, value: Any) -> None:
    assert read_settings(text) == value


def test_a_window_leaves_room_for_the_question() -> None:
    assert fitting(Window()) == Window()
    assert fitting(Window(None, 500)) == Window()
    assert fitting(Window(32_768)) == Window(32_768, 8192)
    assert fitting(Window(262_144)) == Window(262_144, 32_000)
    assert fitting(Window(32_768, 32_768)) == Window(32_768, 16_384)


def test_a_model_that_nobody_named(gateway: str) -> None:
    lists_none = agent_run.AgentGateway(gateway, ())
    with pytest.raises(CanNotRun, match="--model"):
        agent_run.choose_model(AGENTS["goose"], None, lists_none)
    assert agent_run.choose_model(AGENTS["codex"], None, lists_none) == ""


@pytest.mark.parametrize(
    "own",
    [
        '{"security": {"auth": {"selectedType": "oauth"}, "other": 1}, "theme": "dark"}',
        '{"security": {"auth": {"selectedType": "oauth"}, "other": 1}, /* mine */ "theme": "dark", // too\n}',
        "// no JSON",
        None,
    ],
)
def test_a_home_laid_over_the_persons_own(own: str | None, tmp_path: Path) -> None:
    person, place = tmp_path / "person", tmp_path / "place"
    person.mkdir()
    if own is not None:
        (person / ".agent").mkdir()
        (person / ".agent" / "settings.json").write_text(own)
        (person / ".agent" / "memory.md").write_text("remember")
    overlay = OverlaidHome(
        directory=".agent", file="settings.json", settings={"security": {"auth": {"selectedType": "gemini-api-key"}}}
    )
    lay_over(overlay, person, place)
    settings = json.loads((place / ".agent" / "settings.json").read_text())
    assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
    if own is not None:
        assert (person / ".agent" / "settings.json").read_text() == own
        assert (place / ".agent" / "memory.md").read_text() == "remember"
        if own.startswith("{"):
            assert settings["theme"] == "dark"
            assert settings["security"]["other"] == 1


def test_what_an_agent_leaves_in_such_a_home_is_there_in_the_next_run(tmp_path: Path) -> None:
    person, place = tmp_path / "person", tmp_path / "place"
    (person / ".agent").mkdir(parents=True)
    theirs, ours = person / ".agent" / "settings.json", place / ".agent" / "settings.json"
    theirs.write_text('{"theme": "dark"}')
    (person / ".agent" / "old.md").write_text("old")
    overlay = OverlaidHome(directory=".agent", file="settings.json", settings={"ours": 1})
    lay_over(overlay, person, place)
    (place / ".agent" / "sessions").mkdir()
    ours.write_text('{"theme": "light", "ours": 1}')
    os.utime(theirs, (1, 1))
    (person / ".agent" / "old.md").unlink()
    lay_over(overlay, person, place)
    assert (place / ".agent" / "sessions").is_dir()
    assert not (place / ".agent" / "old.md").is_symlink()
    assert json.loads(ours.read_text()) == {"theme": "light", "ours": 1}
    os.utime(ours, (2, 2))
    theirs.write_text('{"theme": "blue"}')
    lay_over(overlay, person, place)
    assert json.loads(ours.read_text()) == {"theme": "blue", "ours": 1}


# -- the upstream, the log, the gateways that run already ---------------------------------------------------------------------


@pytest.fixture
def upstream() -> Iterator[PlainUpstream]:
    """A server with one model that takes 40,000 tokens."""
    with PlainUpstream({"/v1/models": Reply({"data": [{"id": "its/model", "max_model_len": 40_000}]})}) as running:
        yield running


def test_an_upstream_alone_is_enough_for_an_agent_that_needs_a_model(stage: Stage, upstream: PlainUpstream) -> None:
    stage.install("goose")
    done = stage.run("--base-url", upstream.url, "goose")
    assert done.code == 0, done.err
    variables = stage.report()["variables"]
    assert variables["GOOSE_MODEL"] == "its/model"
    assert (variables["GOOSE_CONTEXT_LIMIT"], variables["GOOSE_MAX_TOKENS"]) == ("40000", "10000")


def test_the_window_of_what_stands_behind_claudes_own_names(stage: Stage, upstream: PlainUpstream) -> None:
    stage.install("claude")
    done = stage.run("--base-url", upstream.url, ATHENA_MODEL="its/model")
    assert done.code == 0, done.err
    assert "takes 40000 tokens; Claude Code needs about 48000" in done.err
    variables = stage.report()["variables"]
    assert variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "10000"
    assert "ANTHROPIC_MODEL" not in variables
    told = stage.run("--base-url", upstream.url, "--context", "90000", "--output", "5000", ATHENA_MODEL="its/model")
    assert told.code == 0, told.err
    assert stage.report()["variables"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "90000"
    assert stage.report()["variables"]["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "5000"


def test_an_upstream_that_is_not_there_stops_the_run_before_it_begins(stage: Stage) -> None:
    stage.install("claude")
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    done = stage.run("--base-url", nobody)
    assert done.code == 1
    assert "upstream default: " in done.err
    assert "--base-url" in done.err
    assert not stage.report_file.exists()
    assert stage.run("--base-url", nobody, "--no-check").code == 0


def test_an_upstream_that_refuses_its_key_stops_the_run(stage: Stage, upstream: PlainUpstream) -> None:
    upstream.table["/v1/models"] = Reply({"error": {"message": "no"}}, 401)
    stage.install("claude")
    done = stage.run("--base-url", upstream.url)
    assert done.code == 1
    assert "refuses its credentials" in done.err
    assert "--api-key-env" in done.err


def test_one_bad_upstream_of_several_is_only_told() -> None:
    told: list[str] = []
    agent_run.check_upstreams(AgentGateway("u", (), {"a": "ok", "b": "unreachable"}, "upstream b: gone"), told.append)
    assert told == ["upstream b: gone"]
    agent_run.check_upstreams(AgentGateway("u", (), {"a": "ok", "b": "no_list"}), told.append)
    assert len(told) == 1


def test_the_log_of_a_run_is_kept_and_named_when_a_request_failed(stage: Stage, upstream: PlainUpstream) -> None:
    ask = (
        "import urllib.error, urllib.request\n"
        'body = b\'{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}\'\n'
        "request = urllib.request.Request(os.environ['ANTHROPIC_BASE_URL'] + '/v1/messages', body)\n"
        "try: urllib.request.urlopen(request)\n"
        "except urllib.error.HTTPError as error: error.close()"
    )
    stage.install("claude", ask)
    done = stage.run("--base-url", upstream.url)
    assert done.code == 0, done.err
    (log,) = (stage.home / ".local/state/athena" / "runs").glob("*.log")
    assert f"one request failed in this run; the gateway's log: {log}" in done.err
    assert "warning 404 error" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_only_the_logs_of_the_last_runs_are_kept(tmp_path: Path) -> None:
    for number in range(30):
        log_of_run(str(tmp_path)).with_name(f"2020-{number:02}.log").write_text("")
    newest = log_of_run(str(tmp_path))
    assert len(list(newest.parent.glob("*.log"))) == 19
    assert not (newest.parent / "2020-00.log").exists()


def test_a_gateway_in_a_terminal_is_found(stage: Stage, upstream: PlainUpstream) -> None:
    stage.install("claude")
    with _served(stage, "--base-url", upstream.url) as serving:
        done = stage.run()
        assert done.code == 0, done.err
        assert stage.report()["variables"]["ANTHROPIC_BASE_URL"] == serving.url
    assert not list((stage.home / ".local/state/athena" / "terminals").iterdir())
    assert stage.run().code == 1


def test_a_demo_in_a_terminal_is_not_taken_for_a_model(stage: Stage) -> None:
    stage.install("claude")
    with _served(stage, "--demo"):
        done = stage.run()
    assert done.code == 1
    assert "no upstream is configured" in done.err


@contextlib.contextmanager
def _served(stage: Stage, *arguments: str) -> Iterator[Serving]:
    serving = Serving(stage.home, ("--port", "0", *arguments), {"HOME": str(stage.home)})
    try:
        yield serving
    finally:
        serving.signal(signal.SIGTERM)
        serving.wait()
        serving.end()


_WATCHED = """
import os, sys
def told(event, arguments):
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "socket.connect", "socket.bind"):
        word = arguments[0] if event == "subprocess.Popen" else ""
        descriptor = os.open({file!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{{event}} {{os.path.basename(str(word))}}\\n".encode())
        os.close(descriptor)
sys.addaudithook(told)
"""
"""Writes down every process that a Python program starts, and every address that it asks or listens on."""


def test_questions_about_the_agent_start_the_agent_alone(stage: Stage, upstream: PlainUpstream, gateway: str) -> None:
    """No gateway, no check of the upstream, no list of models, and nothing left in the home."""
    stage.install("codex", "print('1.2.3')")
    watch, told = stage.home.parent / "watch", stage.home.parent / "told"
    watch.mkdir()
    (watch / "sitecustomize.py").write_text(_WATCHED.format(file=str(told)))
    upstream.visits.clear()
    at_upstream, at_gateway = ("--base-url", f"{upstream.url}/v1"), ("--url", gateway)
    for flags, question in (((), "--version"), (at_upstream, "--version"), (at_gateway, "-h")):
        told.unlink(missing_ok=True)
        done = stage.run("codex", *flags, "--", question, PYTHONPATH=str(watch))
        assert (done.code, done.out, done.err) == (0, "1.2.3\n", "")
        assert stage.report()["arguments"] == [question]
        assert told.read_text().splitlines() == ["subprocess.Popen codex"], (question, flags)
    assert (upstream.visits, list(stage.home.iterdir())) == ([], [])
    told.unlink()
    assert stage.run("codex", "--url", gateway, "--", "exec", PYTHONPATH=str(watch)).code == 0
    assert "socket.connect" in told.read_text(), "what is counted here can be seen"
