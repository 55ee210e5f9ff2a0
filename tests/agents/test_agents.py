"""Real coding agents, headless and offline, read a file through the gateway, however the model writes its call.

Not part of the normal run: `./dev agents` installs the agents and runs this. Agents are started by `athena code`, so its rows
are tried too. Exit codes of agents say little (docs/reference/client-facts.md#agents-in-general): the word from the file must
stand in their output.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from athena.shells.agent_run import started_gateway
from athena.shells.agents import AGENTS
from athena.shells.temporary_gateway import Wish
from support.replays import check_archive
from support.scripted_agent_upstream import FORMS, ScriptedAgentUpstream, is_refused, offered_tools, tool_results
from support.session_upstream import DIALECTS, QUESTION, STEPS, SessionUpstream, offered
from support.sessions import prompt_of, shared

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
NOT_INSTALLED = {"vibe", "crush"}
"""Rows of `athena code` that `./dev agents` does not try: one needs a newer Python than ours, one's package fetches its program
from elsewhere."""
JOINING = {"continue"}
"""Agents that ask again after the error and put both answers together: the call that comes of it is none they can run."""
NOWHERE = "http://127.0.0.1:9"
HOSTILE: dict[str, dict[str, Any]] = {
    "claude": {
        ".claude/settings.json": {
            "env": {
                "ANTHROPIC_BASE_URL": NOWHERE,
                "ANTHROPIC_API_KEY": "sk-theirs",
                "ANTHROPIC_AUTH_TOKEN": "theirs",
                "ANTHROPIC_MODEL": "theirs",
                "CLAUDE_CODE_USE_BEDROCK": "1",
            },
            "apiKeyHelper": "echo theirs",
            "model": "opus",
        }
    },
    "codex": {
        ".codex/config.toml": 'model = "gpt-5.5"\nmodel_provider = "other"\nmodel_context_window = 999\n'
        f'[model_providers.other]\nname = "Other"\nbase_url = "{NOWHERE}/v1"\nwire_api = "responses"\n'
    },
    "gemini": {
        ".gemini/settings.json": '{\n  // mine\n  "security": {"auth": {"selectedType": "oauth-personal", "enforcedType": '
        '"oauth-personal"}},\n  /* too */ "model": {"name": "theirs"}\n}\n',
        ".gemini/.env": f"GEMINI_API_KEY=theirs\nGOOGLE_GEMINI_BASE_URL={NOWHERE}\n",
    },
    "opencode": {
        ".config/opencode/opencode.json": {
            "enabled_providers": ["openai"],
            "model": "openai/gpt-5",
            "agent": {"build": {"model": "openai/gpt-5"}},
            "provider": {"athena": {"options": {"baseURL": f"{NOWHERE}/v1"}}},
        }
    },
    "qwen": {
        ".qwen/settings.json": {
            "security": {"auth": {"selectedType": "qwen-oauth", "baseUrl": f"{NOWHERE}/v1", "apiKey": "theirs"}},
            "model": {"name": "theirs"},
            "modelProviders": {"openai": [{"id": "native", "baseUrl": f"{NOWHERE}/v1", "envKey": "THEIRS"}]},
            "env": {"OPENAI_BASE_URL": f"{NOWHERE}/v1", "OPENAI_API_KEY": "theirs"},
        }
    },
    "goose": {".config/goose/config.yaml": f"GOOSE_PROVIDER: anthropic\nGOOSE_MODEL: theirs\nOPENAI_HOST: {NOWHERE}\n"},
    "kimi": {
        ".kimi-code/config.toml": 'default_model = "theirs"\n[providers.theirs]\ntype = "openai"\napi_key = "theirs"\n'
        f'base_url = "{NOWHERE}/v1"\n[models.theirs]\nprovider = "theirs"\nmodel = "theirs"\nmax_context_size = 9000\n'
    },
    "pi": {".pi/agent/settings.json": {"defaultProvider": "openai", "defaultModel": "gpt-5"}},
    "cline": {
        ".cline/data/settings/providers.json": {
            "version": 1,
            "lastUsedProvider": "anthropic",
            "modes": {},
            "providers": {
                "anthropic": {
                    "settings": {"provider": "anthropic", "apiKey": "theirs", "model": "theirs"},
                    "updatedAt": "2026-01-01T00:00:00.000Z",
                    "tokenSource": "manual",
                }
            },
        }
    },
    "continue": {
        ".continue/config.yaml": "name: Mine\nversion: 1.0.0\nschema: v1\n"
        f"models: [{{name: theirs, provider: openai, model: theirs, apiBase: {NOWHERE}/v1, apiKey: theirs}}]\n"
    },
}
"""Settings that a person may have for other servers, by file in their home."""
_ELSEWHERE = {
    "ANTHROPIC_BASE_URL": NOWHERE,
    "ANTHROPIC_API_KEY": "theirs",
    "OPENAI_BASE_URL": f"{NOWHERE}/v1",
    "OPENAI_API_KEY": "theirs",
    "OPENAI_MODEL": "theirs",
    "GOOGLE_GEMINI_BASE_URL": NOWHERE,
    "GEMINI_API_KEY": "theirs",
    "GEMINI_MODEL": "theirs",
}
_ENV_FILE = "".join(f"{name}={value}\n" for name, value in _ELSEWHERE.items())
IN_PROJECT: dict[str, dict[str, Any]] = {
    "claude": dict.fromkeys(
        (".claude/settings.json", ".claude/settings.local.json"), HOSTILE["claude"][".claude/settings.json"]
    ),
    "codex": HOSTILE["codex"],
    "gemini": {".gemini/settings.json": HOSTILE["gemini"][".gemini/settings.json"], ".gemini/.env": _ENV_FILE},
    "opencode": {"opencode.json": HOSTILE["opencode"][".config/opencode/opencode.json"]},
    "qwen": {**HOSTILE["qwen"], ".qwen/.env": _ENV_FILE},
    "pi": {".pi/settings.json": HOSTILE["pi"][".pi/agent/settings.json"]},
}
"""The same for files of the project that the agent works in, which may be somebody else's; each has an `.env` besides."""
AGAIN: dict[str, tuple[str, ...]] = {
    "claude": ("--continue", "-p", "{prompt}", "--allowedTools", "Read"),
    "codex": (
        *("-c", "features.plugins=false", "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"),
        *("resume", "--last", "{prompt}"),
    ),
    "gemini": ("--resume", "latest", "-p", "{prompt}", "--approval-mode", "yolo", "--skip-trust"),
    "pi": ("--continue", "-p", "--offline", "{prompt}"),
    "opencode": ("run", "--auto", "--continue", "{prompt}"),
    "qwen": ("--continue", "-y", "-p", "{prompt}"),
    "goose": (
        # A session of goose keeps its model unless another is named.
        *("run", "--name", "tried", "--resume", "--model", "{model}", "--no-profile", "--with-builtin", "developer"),
        *("-t", "{prompt}"),
    ),
    "kimi": ("--continue", "-p", "{prompt}"),
    "continue": ("--resume", "-p", "--auto", "{prompt}"),
}
"""How the last session is gone on with. Cline wants the session's id for that."""
FIRST: dict[str, tuple[str, ...]] = {
    "goose": ("run", "--name", "tried", "--no-profile", "--with-builtin", "developer", "-t", "{prompt}"),
}
"""How a session begins that is to be gone on with, where that differs."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedAgentUpstream]:
    """The model behind the gateway."""
    with ScriptedAgentUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def configuration(upstream: ScriptedAgentUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A rule per answer form and oddity, which agents take for models; and the names that some agents know. Whatever was
    recorded by it is replayed at the end."""
    lines = ["upstreams:", f"  scripted: {{dialect: openai_chat, base_url: '{upstream.url}'}}", "models:"]
    for form, model in FORMS.items():
        tools = "prompted" if form == "prompted" else "auto"
        for oddity in ("", ":twice", ":cut"):
            lines += [f"  - {{match: '{form}{oddity}', use: 'scripted/{model}{oddity}', tools: {tools}}}"]
    for agent in HEADLESS:  # a model for each, since the gateway remembers a refusal
        lines += [f"  - {{match: 'learnt:{agent}', use: 'scripted/{FORMS['prompted']}:{agent}', tools: auto}}"]
    lines += [f"  - {{match: ['gpt-*', 'claude-*'], use: 'scripted/{FORMS['kimi-reasoning']}'}}"]
    state = tmp_path_factory.mktemp("state")
    lines += [f"state_dir: '{state}'", "record: on"]
    file = tmp_path_factory.mktemp("configuration") / "athena.yml"
    file.write_text("\n".join(lines))
    yield file
    check_archive(state)


@pytest.fixture(scope="module")
def gateway(configuration: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in a process of its own."""
    with started_gateway(Wish(config_file=str(configuration)), tmp_path_factory.mktemp("gateway") / "gateway.log") as up:
        yield up.url


class Run:
    """One question to one agent, in a home and a directory of its own."""

    def __init__(self, place: Path) -> None:
        self.word = "SECRET-" + secrets.token_hex(6)
        self.errors = ""
        """What the agent said on standard error the last time."""
        self.home = place / "home"
        self.directory = place / "project"
        for directory in (self.home, self.directory):
            directory.mkdir()
        self.file = self.directory / "secret.txt"
        self.file.write_text(self.word + "\n")

    def next_file(self, name: str) -> None:
        """Another file, with another word."""
        self.word = "SECRET-" + secrets.token_hex(6)
        self.file = self.directory / name
        self.file.write_text(self.word + "\n")

    def put(self, files: dict[str, Any], place: Path | None = None) -> None:
        """Files of the person, in their home; or in another place."""
        for name, content in files.items():
            file = (place or self.home) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content if isinstance(content, str) else json.dumps(content))

    def ask(self, agent: str, *options: str, words: tuple[str, ...] = (), prompt: str = "") -> str:
        """What the agent printed; `options` are those of `athena code`, `words` the agent's own."""
        prompt = prompt or _PROMPT.format(path=self.file)
        model = options[options.index("--model") + 1]
        arguments = [word.replace("{prompt}", prompt).replace("{model}", model) for word in words or HEADLESS[agent]]
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
        self.errors = errors
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
    assert [is_refused(request) for request in requests] == [True, False] * 2, (
        "each turn is asked again at once, and then known"
    )


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
    joins = agent in JOINING and form != "prompted"
    assert joins or run.word in output or "ended the answer before it was finished" in output + run.errors
    assert str(run.file) in upstream.cut
    for request in upstream.requests[before:]:
        for _, text in tool_results(request):
            assert run.word in text or (joins and "missing" in text)


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


@pytest.mark.parametrize("agent", HOSTILE)
def test_a_persons_own_settings_do_not_lead_past_the_gateway(
    agent: str, gateway: str, upstream: ScriptedAgentUpstream, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    run.put(HOSTILE[agent])
    before = len(upstream.requests)
    assert run.word in run.ask(agent, "--url", gateway, "--model", "native")
    assert {request["model"] for request in upstream.requests[before:]} == {FORMS["native"]}


@pytest.mark.parametrize("agent", HEADLESS)
def test_a_projects_settings_do_not_lead_past_the_gateway(
    agent: str, gateway: str, upstream: ScriptedAgentUpstream, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    run.put({**IN_PROJECT.get(agent, {}), ".env": _ENV_FILE}, run.directory)
    before = len(upstream.requests)
    assert run.word in run.ask(agent, "--url", gateway, "--model", "native")
    assert {request["model"] for request in upstream.requests[before:]} == {FORMS["native"]}


@pytest.mark.parametrize("agent", AGAIN)
def test_a_session_goes_on_in_the_next_run(agent: str, gateway: str, upstream: ScriptedAgentUpstream, tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.word in run.ask(agent, "--url", gateway, "--model", "native", words=FIRST.get(agent, ()))
    before = len(upstream.requests)
    run.ask(agent, "--url", gateway, "--model", "kimi-content", words=AGAIN[agent], prompt="Say it once more.")
    later = [request for request in upstream.requests[before:] if offered_tools(request)]
    assert later
    assert run.word in json.dumps(later[-1]["messages"]), "what was said before is part of the conversation"


@pytest.fixture(scope="module")
def model() -> Iterator[SessionUpstream]:
    """The model that is behind four dialects."""
    with SessionUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def switching(model: SessionUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway with one model per dialect."""
    lines = ["upstreams:"]
    lines += [f"  {dialect}: {{dialect: {dialect}, base_url: '{model.url}'}}" for dialect in DIALECTS]
    lines += ["models:", *(f"  - {{match: 'on-{dialect}', use: '{dialect}/tried-model'}}" for dialect in DIALECTS)]
    lines += [f"state_dir: '{tmp_path_factory.mktemp('state')}'"]
    file = tmp_path_factory.mktemp("switching") / "athena.yml"
    file.write_text("\n".join(lines))
    with started_gateway(Wish(config_file=str(file)), tmp_path_factory.mktemp("gateway") / "gateway.log") as up:
        yield up.url


@pytest.mark.parametrize("agent", HEADLESS)
def test_one_session_over_four_dialects(agent: str, switching: str, model: SessionUpstream, tmp_path: Path) -> None:
    """The person's own settings are hostile, the Chat model's template is strict, and each run takes another upstream."""
    run = Run(tmp_path)
    run.put(HOSTILE[agent])
    words: list[str] = []
    for number, dialect in enumerate((*DIALECTS, "openai_chat")):
        before, faults = len(model.requests), len(model.faults)
        run.next_file(f"secret-{number}.txt")
        how = AGAIN.get(agent, ()) if number else FIRST.get(agent, ())
        output = run.ask(
            agent, "--url", switching, "--model", f"on-{dialect}", words=how, prompt=QUESTION.format(path=run.file)
        )
        assert model.faults[faults:] == []
        assert run.word in output, (dialect, run.errors)
        turns = [body for spoken, body in model.requests[before:] if spoken == dialect and offered(dialect, body)]
        assert len(turns) == STEPS + 1, "no turn was repeated"
        if agent in AGAIN:
            assert all(word in json.dumps(turns[-1]) for word in words), "what was said before is part of the conversation"
        words.append(run.word)
        kept = _beginnings_kept(dialect, turns)
        print(f"{agent} on {dialect}: of {len(prompt_of(turns[-1]))} characters {min(kept):.3%} at least stay as they were")
        assert min(kept) >= 0.999, (dialect, kept)
        assert len(kept) >= STEPS - 1


def _beginnings_kept(dialect: str, turns: list[dict[str, Any]]) -> list[float]:
    """How much of each turn begins the next, where the agent did not offer other tools meanwhile, as Kimi Code does."""
    names = [{tool["name"] for tool in offered(dialect, body)} for body in turns]
    same = [names[number] == names[number + 1] for number in range(len(turns) - 1)]
    pairs = itertools.compress(itertools.pairwise(map(prompt_of, turns)), same)
    return [shared(earlier, later) for earlier, later in pairs]


@pytest.mark.parametrize("agent", ["claude", "opencode", "qwen", "goose", "kimi", "continue"])
def test_an_agent_keeps_to_the_longest_answer(
    agent: str, gateway: str, upstream: ScriptedAgentUpstream, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    before = len(upstream.requests)
    run.ask(agent, "--url", gateway, "--model", "native", "--context", "120000", "--output", "7777")
    asked = [request for request in upstream.requests[before:] if offered_tools(request)]
    assert {request.get("max_tokens", request.get("max_completion_tokens")) for request in asked} == {7777}


def test_every_agent_is_tried() -> None:
    assert HEADLESS.keys() == AGENTS.keys() - NOT_INSTALLED
    assert HOSTILE.keys() == HEADLESS.keys()
