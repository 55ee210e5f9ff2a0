"""Real coding agents, headless and offline, read a file through the gateway, however the model writes its call.

Not part of the normal run: `./dev agents` installs the agents and runs this. Agents are started by `athena code`, so its rows
are tried too. Exit codes of agents say little (`clients.md` section 1): the word from the file must stand in their output.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from athena.shells.agent_run import started_gateway
from athena.shells.agents import AGENTS
from athena.shells.temporary_gateway import Wish
from support.scripted_agent_upstream import FORMS, ScriptedAgentUpstream, is_refused, offered_tools, tool_results

pytestmark = pytest.mark.agents

_PROGRAMS = Path(__file__).parents[2] / ".agents" / "node_modules" / ".bin"
_PATIENCE = 120
_PROMPT = "Read the file {path} and tell me the word in it."
_ATHENA_CODE = (sys.executable, "-m", "athena", "code")

HEADLESS: dict[str, tuple[str, ...]] = {
    "claude": ("-p", "{prompt}", "--allowedTools", "Read"),
    "codex": (
        *("-c", "features.plugins=false"),
        *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "{prompt}"),
    ),
    "gemini": ("-p", "{prompt}", "--approval-mode", "yolo", "--skip-trust"),
    "opencode": ("run", "--auto", "{prompt}"),
    "qwen": ("-y", "-p", "{prompt}"),
    "goose": ("run", "--no-session", "--no-profile", "--with-builtin", "developer", "-t", "{prompt}"),
    "kimi": ("-p", "{prompt}"),
    "pi": ("-p", "--offline", "{prompt}"),
    "cline": ("{prompt}",),
    "continue": ("-p", "--auto", "{prompt}"),
}
"""How each agent is asked one question; what stands after `--`."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedAgentUpstream]:
    """The model behind the gateway."""
    with ScriptedAgentUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def configuration(upstream: ScriptedAgentUpstream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rule per answer form and oddity, which agents take for models; and the names that some agents know."""
    lines = ["upstreams:", f"  scripted: {{dialect: openai_chat, base_url: '{upstream.url}'}}", "models:"]
    for form, model in FORMS.items():
        tools = "prompted" if form == "prompted" else "auto"
        for oddity in ("", ":twice", ":cut"):
            lines += [f"  - {{match: '{form}{oddity}', use: 'scripted/{model}{oddity}', tools: {tools}}}"]
    for agent in HEADLESS:  # a model for each, since the gateway remembers a refusal
        lines += [f"  - {{match: 'learnt:{agent}', use: 'scripted/{FORMS['prompted']}:{agent}', tools: auto}}"]
    lines += [f"  - {{match: ['gpt-*', 'claude-*'], use: 'scripted/{FORMS['kimi-reasoning']}'}}"]
    lines += [f"state_dir: '{tmp_path_factory.mktemp('state')}'"]
    file = tmp_path_factory.mktemp("configuration") / "athena.yml"
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(scope="module")
def gateway(configuration: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in a process of its own."""
    with started_gateway(Wish(config_file=str(configuration)), tmp_path_factory.mktemp("gateway") / "gateway.log") as up:
        yield up.url


class Run:
    """One question to one agent, in a home and a directory of its own."""

    def __init__(self, place: Path) -> None:
        self.word = "SECRET-" + secrets.token_hex(6)
        self.home = place / "home"
        self.directory = place / "project"
        for directory in (self.home, self.directory):
            directory.mkdir()
        self.file = self.directory / "secret.txt"
        self.file.write_text(self.word + "\n")

    def ask(self, agent: str, *options: str) -> str:
        """What the agent printed; `options` are those of `athena code`."""
        prompt = _PROMPT.format(path=self.file)
        arguments = [argument.replace("{prompt}", prompt) for argument in HEADLESS[agent]]
        process = subprocess.Popen(
            [*_ATHENA_CODE, *options, agent, "--", *arguments],
            cwd=self.directory,
            env={"HOME": str(self.home), "PATH": f"{_PROGRAMS}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            pytest.fail(f"{agent} did not end within {_PATIENCE} s\n{output}\n{errors}")
        print(errors, file=sys.stderr)
        return output


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("agent", HEADLESS)
def test_the_agent_reads_the_file(agent: str, form: str, gateway: str, upstream: ScriptedAgentUpstream, tmp_path: Path) -> None:
    run = Run(tmp_path)
    before = len(upstream.requests)
    assert run.word in run.ask(agent, "--url", gateway, "--model", form)
    asked = [request for request in upstream.requests[before:] if offered_tools(request)]
    assert len(asked) == 2, "one turn to call the tool, one to answer: no turn was repeated"
    assert not any(map(is_refused, upstream.requests[before:]))


@pytest.mark.parametrize("agent", HEADLESS)
def test_a_refusal_of_tools_makes_them_prompted_within_the_run(
    agent: str, gateway: str, upstream: ScriptedAgentUpstream, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    before = len(upstream.requests)
    assert run.word in run.ask(agent, "--url", gateway, "--model", f"learnt:{agent}")
    requests = [request for request in upstream.requests[before:] if is_refused(request) or offered_tools(request)]
    assert [is_refused(request) for request in requests] == [True, False, False], "one refusal, then the two turns"


@pytest.mark.parametrize("form", ["native", "kimi-reasoning", "prompted"])
@pytest.mark.parametrize("agent", HEADLESS)
def test_two_calls_in_one_answer_stay_two(
    agent: str, form: str, gateway: str, upstream: ScriptedAgentUpstream, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    before = len(upstream.requests)
    assert run.word in run.ask(agent, "--url", gateway, "--model", form + ":twice")
    assert len(upstream.requests) > before
    assert len({call_id for call_id, _ in tool_results(upstream.requests[-1])}) == 2


@pytest.mark.parametrize("form", ["native", "kimi-content", "prompted"])
@pytest.mark.parametrize("agent", HEADLESS)
def test_half_a_call_is_never_run(agent: str, form: str, gateway: str, upstream: ScriptedAgentUpstream, tmp_path: Path) -> None:
    run = Run(tmp_path)
    before = len(upstream.requests)
    output = run.ask(agent, "--url", gateway, "--model", form + ":cut")
    assert run.word in output or "ended the answer before it was finished" in output
    assert str(run.file) in upstream.cut
    for request in upstream.requests[before:]:
        assert all(run.word in text for _, text in tool_results(request))


@pytest.mark.parametrize(
    ("agent", "model"),
    [
        ("codex", "gpt-5.5"),  # a free-form tool beside functions
        ("codex", "gpt-5.6-sol"),  # one free-form tool that takes a program, in a namespace, declared inside the input
        ("claude", "claude-sonnet-4-5"),
        ("claude", "claude-opus-4-8"),
    ],
)
def test_names_that_an_agent_knows_change_what_it_sends(agent: str, model: str, gateway: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.word in run.ask(agent, "--url", gateway, "--model", model)


@pytest.mark.parametrize("agent", HEADLESS)
def test_a_gateway_for_one_run_is_enough(agent: str, configuration: Path, tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.word in run.ask(agent, "--config", str(configuration), "--model", "kimi-reasoning")


def test_every_agent_is_tried() -> None:
    assert HEADLESS.keys() == AGENTS.keys()
