"""How each coding agent is pointed at a gateway, as data: one row per agent (`clients.md` section 1).

Every row uses the agent's own variables and flags, or a temporary home laid over the person's own; their settings files are
never written. `{url}`, `{key}`, `{model}` and `{home}` in a row stand for the gateway's address, the key to present, the
chosen model and the temporary home.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

KEY_VARIABLE = "ATHENA_CODE_KEY"
"""Where an agent that wants the name of a variable finds the key."""


class OverlaidHome(msgspec.Struct, frozen=True, kw_only=True):
    """For an agent that takes a setting from nowhere but a file in its home: a temporary home with one file changed."""

    directory: str
    """The agent's directory in the person's home; everything else in it is linked to."""
    file: str
    settings: Mapping[str, Any]
    """Laid over the person's own settings, where that file is plain JSON."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One coding agent."""

    name: str
    title: str
    executables: tuple[str, ...]
    """What it is called when installed; the first one found is run."""
    install: str
    dialect: str
    """The dialect it speaks to the gateway."""
    variables: Mapping[str, Any] = {}
    """Set for the agent. A mapping is handed over as JSON text."""
    removed: tuple[str, ...] = ()
    """Variables that would lead it past the gateway."""
    settings: Mapping[str, Any] = {}
    """Settings given on its command line as `-c key=value`."""
    arguments: tuple[str, ...] = ()
    """Put before the person's own arguments."""
    home: OverlaidHome | None = None
    model_variables: Mapping[str, Any] = {}
    """Set only when a model is chosen."""
    model_settings: Mapping[str, Any] = {}
    model_arguments: tuple[str, ...] = ()
    needs_model: bool = False
    """It can not start without a model's name."""
    brings_models: bool = False
    """Its own names (opus, sonnet, haiku) are mapped by the gateway: nothing is chosen for it unasked."""


class Launch(msgspec.Struct, frozen=True):
    """What to run: everything about an agent for one gateway."""

    command: tuple[str, ...]
    variables: Mapping[str, str]
    removed: tuple[str, ...]


_OPENCODE_PROVIDER = {
    "npm": "@ai-sdk/openai-compatible",
    "name": "Athena",
    "options": {"baseURL": "{url}/v1", "apiKey": "{key}"},
    "models": {"{model}": {}},
}

AGENTS: Mapping[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude",
            title="Claude Code",
            executables=("claude",),
            install="npm install -g @anthropic-ai/claude-code",
            dialect="anthropic_messages",
            variables={
                "ANTHROPIC_BASE_URL": "{url}",
                "ANTHROPIC_AUTH_TOKEN": "{key}",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            },
            removed=("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
            model_variables={
                "ANTHROPIC_MODEL": "{model}",
                "ANTHROPIC_DEFAULT_OPUS_MODEL": "{model}",
                "ANTHROPIC_DEFAULT_SONNET_MODEL": "{model}",
                "ANTHROPIC_DEFAULT_HAIKU_MODEL": "{model}",
            },
            brings_models=True,
        ),
        Agent(
            name="codex",
            title="Codex",
            executables=("codex",),
            install="npm install -g @openai/codex",
            dialect="openai_responses",
            variables={KEY_VARIABLE: "{key}"},
            settings={
                "model_provider": "athena",
                "model_providers.athena.name": "Athena",
                "model_providers.athena.base_url": "{url}/v1",
                "model_providers.athena.env_key": KEY_VARIABLE,
                "model_providers.athena.wire_api": "responses",
                # These belong to an account at its own provider, which this run does not use.
                "features.apps": False,
                "features.remote_plugin": False,
                "features.plugin_discovery_prefetch": False,
            },
            model_settings={"model": "{model}"},
        ),
        Agent(
            name="gemini",
            title="Gemini CLI",
            executables=("gemini",),
            install="npm install -g @google/gemini-cli",
            dialect="gemini",
            variables={
                "GOOGLE_GEMINI_BASE_URL": "{url}",
                "GEMINI_API_KEY": "{key}",
                "GEMINI_CLI_HOME": "{home}",
            },
            removed=("GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"),
            home=OverlaidHome(
                directory=".gemini",
                file="settings.json",
                settings={
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "privacy": {"usageStatisticsEnabled": False},
                },
            ),
            model_variables={"GEMINI_MODEL": "{model}"},
        ),
        Agent(
            name="opencode",
            title="opencode",
            executables=("opencode",),
            install="npm install -g opencode-ai",
            dialect="openai_chat",
            variables={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
            model_variables={
                "OPENCODE_CONFIG_CONTENT": {
                    "provider": {"athena": _OPENCODE_PROVIDER},
                    "model": "athena/{model}",
                    "small_model": "athena/{model}",
                },
            },
            needs_model=True,
        ),
        Agent(
            name="qwen",
            title="Qwen Code",
            executables=("qwen",),
            install="npm install -g @qwen-code/qwen-code",
            dialect="openai_chat",
            variables={"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "{key}"},
            arguments=("--auth-type", "openai"),
            model_variables={"OPENAI_MODEL": "{model}"},
            model_arguments=("--model", "{model}"),
            needs_model=True,
        ),
        Agent(
            name="goose",
            title="goose",
            executables=("goose", "goose-binary-linux-x64"),
            install="npm install -g @aaif/goose-binary-linux-x64",
            dialect="openai_chat",
            variables={
                "GOOSE_PROVIDER": "openai",
                "OPENAI_HOST": "{url}",
                "OPENAI_BASE_PATH": "v1/chat/completions",
                "OPENAI_API_KEY": "{key}",
                "GOOSE_DISABLE_KEYRING": "1",
            },
            model_variables={"GOOSE_MODEL": "{model}"},
            needs_model=True,
        ),
    )
}


def launch(agent: Agent, executable: str, arguments: tuple[str, ...], *, url: str, key: str, model: str, home: str) -> Launch:
    """The command and variables that run an agent on a gateway. `model` may be empty; see `needs_model`."""
    places = {"{url}": url, "{key}": key, "{model}": model, "{home}": home}
    chosen = bool(model)
    settings = {**agent.settings, **(agent.model_settings if chosen else {})}
    flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={json.dumps(_filled(value, places))}")]
    before = _filled([*agent.arguments, *(agent.model_arguments if chosen else ())], places)
    variables = {**agent.variables, **(agent.model_variables if chosen else {})}
    return Launch(
        command=(executable, *flags, *before, *arguments),
        variables={name: _text(_filled(value, places)) for name, value in variables.items()},
        removed=agent.removed,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    """The value with every placeholder in its texts and keys replaced."""
    if isinstance(value, str):
        for mark, text in places.items():
            value = value.replace(mark, text)
        return value
    if isinstance(value, Mapping):
        return {_filled(name, places): _filled(inner, places) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(item, places) for item in value]
    return value


def lay_over(overlay: OverlaidHome, person: Path, temporary: Path) -> None:
    """Fill a temporary home: links to what the person has, and the one file with our settings over theirs."""
    own, ours = person / overlay.directory, temporary / overlay.directory
    ours.mkdir(mode=0o700)
    settings: Any = {}
    if own.is_dir():
        for entry in own.iterdir():
            if entry.name != overlay.file:
                (ours / entry.name).symlink_to(entry.absolute())
        with contextlib.suppress(OSError, ValueError):
            settings = json.loads((own / overlay.file).read_text("utf-8"))
    (ours / overlay.file).write_text(json.dumps(_merged(settings, overlay.settings)), "utf-8")


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    return {**below, **{name: _merged(below.get(name), value) for name, value in above.items()}}
