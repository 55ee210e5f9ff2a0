"""How each coding agent is pointed at a gateway, as data: one row per agent.

Every row uses the agent's own variables and flags, and files in a directory of the run that the agent is told to read; the
person's own settings and sessions stay where they are and are never written. In the texts of a row stand

    {url} {key} {model}     the gateway's address, the key to present, the chosen model
    {dir} {home}            the directory of the run, the agent's home that is laid over the person's own
    {context} {output}      the model's window and longest answer in tokens
    {context|128000}        the same with a value of last resort
    {context>100000}        the same where it is at least that

An entry whose value cannot be filled in, because no model is chosen or its window is not known, is left out; one whose name
ends in `?` also when nothing is left in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from athena.shells.config import Window

KEY_VARIABLE = "ATHENA_CODE_KEY"
"""Where an agent that wants the name of a variable finds the key."""


class SettingsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of settings for the agent, in the temporary directory."""

    name: str
    """Below the directory."""
    settings: Mapping[str, Any]
    below: tuple[str, ...] = ()
    """Files of the person or the machine under which ours is laid, the first that is there: `~` is the home, `$NAME` the file
    that a variable names. Lists of ours replace theirs."""
    flag: str = ""
    """The flag that names the file to the agent. What the person gave with the same flag lies under ours."""
    holds_variables: bool = False
    """The agent takes variables from settings too, and prefers those: ours are repeated under `env`, and what is removed is
    set to nothing."""
    program: str = ""
    """For an agent that reads no file but runs a program: its text, with the settings as JSON for `%s`."""


class OverlaidHome(msgspec.Struct, frozen=True, kw_only=True):
    """For an agent that takes a setting from nowhere but a file in its home: a home with one file changed, which is kept."""

    directory: str
    """The agent's directory in the person's home; everything else in it is linked to."""
    file: str
    settings: Mapping[str, Any]
    """Laid over the person's own settings."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """How one coding agent is found, configured and started."""

    name: str
    title: str
    executables: tuple[str, ...]
    """What it is called when installed; the first one found is run."""
    install: str
    dialect: str
    """The dialect it speaks to the gateway."""
    variables: Mapping[str, Any] = {}
    """Set for the agent. A mapping is handed over as JSON text. A window that the person has set is left alone."""
    removed: tuple[str, ...] = ()
    """Variables that would lead it past the gateway."""
    settings: Mapping[str, Any] = {}
    """Settings given on its command line as `-c key=value`."""
    arguments: tuple[str, ...] = ()
    """Put before the person's own arguments."""
    model_arguments: tuple[str, ...] = ()
    """The same, only when a model is chosen."""
    file: SettingsFile | None = None
    home: OverlaidHome | None = None
    needs_model: bool = False
    """It cannot start without a model's name."""
    brings_models: tuple[str, ...] = ()
    """Names of its own that the gateway maps: nothing is chosen for it unasked."""
    needs_tokens: int = 0
    """A window below which it has hardly any room beside its own prompt."""
    assumes_tokens: int = 0
    """The window that it assumes for a model it knows nothing about, where that is more than most models have."""
    resume: str = ""
    """What goes on with the last session, for an agent that itself names a command which does not lead here."""


class Launch(msgspec.Struct, frozen=True):
    """What to run: everything about an agent for one gateway."""

    command: tuple[str, ...]
    variables: Mapping[str, str]
    removed: tuple[str, ...]
    files: Mapping[Path, str] = {}
    """To be written before, readable by this user only: they may hold the key."""


_CHAT_PROVIDER = {
    "npm": "@ai-sdk/openai-compatible",
    "name": "Athena",
    "options": {"baseURL": "{url}/v1", "apiKey": "{key}"},
    "models": {"{model}": {"limit?": {"context": "{context}", "output": "{output}"}}},
}
_PI_MODEL = {
    "id": "{model}",
    "name": "{model}",
    "reasoning": False,
    "input": ["text"],
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    "contextWindow": "{context|128000}",
    "maxTokens": "{output|16384}",
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
                "ANTHROPIC_MODEL": "{model}",
                "ANTHROPIC_DEFAULT_OPUS_MODEL": "{model}",
                "ANTHROPIC_DEFAULT_SONNET_MODEL": "{model}",
                "ANTHROPIC_DEFAULT_HAIKU_MODEL": "{model}",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                # A line that is another one in every session, at the very front: no prompt cache of any upstream survives it.
                "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
                "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "{context}",
                "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "{context>100000}",
                "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "{output}",
            },
            removed=("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
            file=SettingsFile(name="claude.json", settings={}, flag="--settings", holds_variables=True),
            brings_models=("claude-opus-4-8", "claude-sonnet-4-5", "claude-haiku-4-5"),
            needs_tokens=48_000,
            assumes_tokens=1_000_000,
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
                "model": "{model}",
                "model_context_window": "{context}",
            },
            resume="athena code codex -- resume --last",
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
                "GEMINI_MODEL": "{model}",
                "GEMINI_CLI_HOME": "{home}",
            },
            removed=("GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"),
            home=OverlaidHome(
                directory=".gemini",
                file="settings.json",
                settings={
                    "security": {"auth": {"selectedType": "gemini-api-key", "enforcedType": "gemini-api-key"}},
                    "privacy": {"usageStatisticsEnabled": False},
                },
            ),
        ),
        Agent(
            name="opencode",
            title="opencode",
            executables=("opencode",),
            install="npm install -g opencode-ai",
            dialect="openai_chat",
            variables={
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_CONFIG_CONTENT": {
                    "provider": {"athena": _CHAT_PROVIDER},
                    "enabled_providers": ["athena"],
                    "disabled_providers": [],
                    "model": "athena/{model}",
                    "small_model": "athena/{model}",
                    "agent": {name: {"model": "athena/{model}"} for name in ("build", "plan", "general")},
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
            variables={
                "OPENAI_BASE_URL": "{url}/v1",
                "OPENAI_API_KEY": "{key}",
                "OPENAI_MODEL": "{model}",
                "QWEN_CODE_SYSTEM_SETTINGS_PATH": "{dir}/qwen.json",
                KEY_VARIABLE: "{key}",
            },
            file=SettingsFile(
                name="qwen.json",
                below=(
                    "$QWEN_CODE_SYSTEM_SETTINGS_PATH",
                    "/etc/qwen-code/settings.json",
                    "/Library/Application Support/QwenCode/settings.json",
                ),
                settings={
                    "security": {"auth": {"selectedType": "openai"}},
                    "model": {"name": "{model}"},
                    "modelProviders": {
                        "openai": [
                            {
                                "id": "{model}",
                                "name": "{model}",
                                "baseUrl": "{url}/v1",
                                "envKey": KEY_VARIABLE,
                                "generationConfig": {
                                    "contextWindowSize": "{context}",
                                    "samplingParams": {"max_tokens": "{output}"},
                                },
                            }
                        ]
                    },
                },
            ),
            arguments=("--auth-type", "openai"),
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
                "GOOSE_MODEL": "{model}",
                "GOOSE_SUBAGENT_PROVIDER": "openai",
                "GOOSE_SUBAGENT_MODEL": "{model}",
                "OPENAI_HOST": "{url}",
                "OPENAI_BASE_PATH": "v1/chat/completions",
                "OPENAI_API_KEY": "{key}",
                "GOOSE_DISABLE_KEYRING": "1",
                "GOOSE_CONTEXT_LIMIT": "{context}",
                "GOOSE_MAX_TOKENS": "{output}",
            },
            needs_model=True,
        ),
        Agent(
            name="kimi",
            title="Kimi Code",
            executables=("kimi",),
            install="npm install -g @moonshot-ai/kimi-code",
            dialect="openai_chat",
            variables={
                "KIMI_MODEL_NAME": "{model}",
                "KIMI_MODEL_API_KEY": "{key}",
                "KIMI_MODEL_BASE_URL": "{url}/v1",
                "KIMI_MODEL_PROVIDER_TYPE": "openai",
                "KIMI_MODEL_MAX_CONTEXT_SIZE": "{context}",
                "KIMI_MODEL_MAX_OUTPUT_SIZE": "{output}",
                "KIMI_CODE_NO_AUTO_UPDATE": "1",
            },
            needs_model=True,
        ),
        Agent(
            name="pi",
            title="pi",
            executables=("pi",),
            install="npm install -g @mariozechner/pi-coding-agent",
            dialect="openai_chat",
            variables={KEY_VARIABLE: "{key}", "PI_SKIP_VERSION_CHECK": "1"},
            file=SettingsFile(
                name="athena.js",
                settings={
                    "name": "Athena",
                    "baseUrl": "{url}/v1",
                    "apiKey": KEY_VARIABLE,
                    "api": "openai-completions",
                    "models": [_PI_MODEL],
                },
                flag="-e",
                program='export default function (pi) {\n  pi.registerProvider("athena", %s);\n}\n',
            ),
            model_arguments=("--provider", "athena", "--model", "{model}"),
            needs_model=True,
        ),
        Agent(
            name="cline",
            title="Cline",
            executables=("cline",),
            install="npm install -g cline",
            dialect="openai_chat",
            variables={
                "CLINE_PROVIDER_SETTINGS_PATH": "{dir}/cline.json",
                # Else a process of its own that runs already serves the session, by the settings it was started with.
                "CLINE_SESSION_BACKEND_MODE": "local",
            },
            file=SettingsFile(
                name="cline.json",
                below=("$CLINE_PROVIDER_SETTINGS_PATH", "~/.cline/data/settings/providers.json"),
                settings={
                    "version": 1,
                    "lastUsedProvider": "openai-compatible",
                    "modes": {},
                    "providers": {
                        "openai-compatible": {
                            "settings": {
                                "provider": "openai-compatible",
                                "apiKey": "{key}",
                                "model": "{model}",
                                "baseUrl": "{url}/v1",
                            },
                            "updatedAt": "2026-01-01T00:00:00.000Z",
                            "tokenSource": "manual",
                        }
                    },
                },
            ),
            model_arguments=("--provider", "openai-compatible", "--model", "{model}"),
            needs_model=True,
        ),
        Agent(
            name="continue",
            title="Continue",
            executables=("cn",),
            install="npm install -g @continuedev/cli",
            dialect="openai_chat",
            variables={"CONTINUE_TELEMETRY_ENABLED": "0"},
            file=SettingsFile(
                name="continue.yaml",
                below=("~/.continue/config.yaml",),
                settings={
                    "name": "Athena",
                    "version": "1.0.0",
                    "schema": "v1",
                    "models": [
                        {
                            "name": "{model}",
                            "provider": "openai",
                            "model": "{model}",
                            "apiBase": "{url}/v1",
                            "apiKey": "{key}",
                            "roles": ["chat", "edit", "apply", "summarize"],
                            "capabilities": ["tool_use"],
                            "defaultCompletionOptions": {"contextLength": "{context}", "maxTokens": "{output}"},
                        }
                    ],
                },
                flag="--config",
            ),
            needs_model=True,
        ),
        Agent(
            name="vibe",
            title="Mistral Vibe",
            executables=("vibe",),
            install="uv tool install mistral-vibe",
            dialect="openai_chat",
            variables={
                KEY_VARIABLE: "{key}",
                "VIBE_ACTIVE_MODEL": "athena",
                "VIBE_PROVIDERS": [
                    {
                        "name": "athena",
                        "api_base": "{url}/v1",
                        "api_key_env_var": KEY_VARIABLE,
                        "api_style": "openai",
                        "backend": "generic",
                    }
                ],
                "VIBE_MODELS": [
                    {
                        "name": "{model}",
                        "provider": "athena",
                        "alias": "athena",
                        "max_context_length": "{context}",
                        "max_output_tokens": "{output}",
                    }
                ],
                "VIBE_ENABLE_TELEMETRY": "false",
                "VIBE_ENABLE_UPDATE_CHECKS": "false",
            },
            needs_model=True,
        ),
        Agent(
            name="crush",
            title="Crush",
            executables=("crush",),
            install="npm install -g @charmland/crush",
            dialect="openai_chat",
            variables={
                KEY_VARIABLE: "{key}",
                "CRUSH_GLOBAL_DATA": "{dir}/crush",
                "CRUSH_DISABLE_PROVIDER_AUTO_UPDATE": "1",
            },
            file=SettingsFile(
                name="crush/crush.json",
                below=("$CRUSH_GLOBAL_DATA/crush.json", "$XDG_DATA_HOME/crush/crush.json", "~/.local/share/crush/crush.json"),
                settings={
                    "providers": {
                        "athena": {
                            "name": "Athena",
                            "type": "openai-compat",
                            "base_url": "{url}/v1",
                            "api_key": f"${KEY_VARIABLE}",
                            "models": [
                                {
                                    "id": "{model}",
                                    "name": "{model}",
                                    "context_window": "{context|128000}",
                                    "default_max_tokens": "{output|16384}",
                                }
                            ],
                        }
                    },
                    "models": {
                        "large": {"provider": "athena", "model": "{model}"},
                        "small": {"provider": "athena", "model": "{model}"},
                    },
                },
            ),
            needs_model=True,
        ),
    )
}


def launch(
    agent: Agent,
    executable: str,
    arguments: Sequence[str],
    *,
    url: str,
    key: str,
    model: str,
    directory: Path,
    overlay: Path | None = None,
    window: Window = Window(),  # noqa: B008  # a value that never changes
    environment: Mapping[str, str],
    home: Path,
) -> Launch:
    """The command, variables and files that run an agent on a gateway. `model` may be empty; see `needs_model`."""
    places: dict[str, str | int | None] = {
        "url": url,
        "key": key,
        "model": model or None,
        "dir": str(directory),
        "home": str(overlay) if overlay is not None else None,
        "context": window.context,
        "output": window.output,
    }
    variables = {
        name: _text(_filled(value, places))
        for name, value in agent.variables.items()
        if _filled(value, places) is not _NOTHING and not (_is_window(value) and name in environment)
    }
    settings = _filled(agent.settings, places)
    flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={json.dumps(value)}")]
    before = [*flags, *agent.arguments, *(agent.model_arguments if model else ())]
    own, files = list(arguments), {}
    if agent.file is not None:
        path = directory / agent.file.name
        given = _take_flag(own, agent.file.flag) if agent.file.flag and not agent.file.program else None
        ours = _filled(agent.file.settings, places)
        if agent.file.holds_variables:
            ours = {"env": {**dict.fromkeys(agent.removed, ""), **variables}, **ours}
        below = _settings_of(given) if given is not None else _first_settings(agent.file.below, environment, home)
        files[path] = _written(agent.file, _merged(below, ours))
        if agent.file.flag:
            before += [agent.file.flag, str(path)]
    return Launch(
        command=(executable, *(str(_filled(word, places)) for word in before), *own),
        variables=variables,
        removed=agent.removed,
        files=files,
    )


# -- filling in ------------------------------------------------------------------------------------------------------------

_NOTHING = object()
_MARK = re.compile(r"\{(url|key|model|dir|home|context|output)(?:([|>])([0-9]+))?\}")


def _is_window(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("{context", "{output"))


def _filled(value: Any, places: Mapping[str, str | int | None]) -> Any:
    """The value with its marks filled in; `_NOTHING` where one of them has no value."""
    if isinstance(value, str):
        return _filled_text(value, places)
    if isinstance(value, Mapping):
        found = {_filled(name, places): _filled(inner, places) for name, inner in value.items()}
        kept = {name: inner for name, inner in found.items() if name is not _NOTHING and inner is not _NOTHING}
        return {name.removesuffix("?"): inner for name, inner in kept.items() if inner or not name.endswith("?")}
    if isinstance(value, list | tuple):
        return [inner for inner in (_filled(item, places) for item in value) if inner is not _NOTHING]
    return value


def _filled_text(text: str, places: Mapping[str, str | int | None]) -> Any:
    whole = _MARK.fullmatch(text)
    if whole is not None:
        found, sign, number = places[whole.group(1)], whole.group(2), int(whole.group(3) or 0)
        if found is None:
            return number if sign == "|" else _NOTHING
        return _NOTHING if sign == ">" and isinstance(found, int) and found < number else found
    if any(places[mark.group(1)] is None for mark in _MARK.finditer(text)):
        return _NOTHING
    return _MARK.sub(lambda mark: str(places[mark.group(1)]), text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    return {**below, **{name: _merged(below.get(name), value) for name, value in above.items()}}


# -- the person's own settings ---------------------------------------------------------------------------------------------


def _take_flag(arguments: list[str], flag: str) -> str | None:
    """The value of a flag among the person's arguments, which are taken out of them."""
    for position, word in enumerate(arguments):
        if word == "--":
            return None
        if word == flag and position + 1 < len(arguments):
            value = arguments[position + 1]
            del arguments[position : position + 2]
            return value
        if word.startswith(flag + "="):
            del arguments[position]
            return word[len(flag) + 1 :]
    return None


def _settings_of(given: str) -> Any:
    """Settings given as a file's name or as JSON."""
    if given.lstrip().startswith("{"):
        return read_settings(given)
    return _read_file(Path(given).expanduser())


def _first_settings(places: Sequence[str], environment: Mapping[str, str], home: Path) -> Any:
    for place in places:
        first, slash, rest = place.partition("/")
        if first.startswith("$"):
            if not environment.get(first[1:]):
                continue
            place = environment[first[1:]] + slash + rest
        path = home / place[2:] if place.startswith("~/") else Path(place)
        if path.is_file():
            return _read_file(path)
    return {}


def _read_file(path: Path) -> Any:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    return read_settings(text, is_yaml=path.suffix in (".yaml", ".yml"))


def lay_over(overlay: OverlaidHome, person: Path, place: Path) -> None:
    """Fill a home: links to what the person has, and the one file with our settings over theirs.

    What the agent itself puts there stays for the next run. So does what the person changes in its settings during a run, until
    their own file is newer.
    """
    own, ours = person / overlay.directory, place / overlay.directory
    ours.mkdir(mode=0o700, parents=True, exist_ok=True)
    for entry in ours.iterdir():
        if entry.is_symlink() and not entry.exists():
            entry.unlink()
    for entry in own.iterdir() if own.is_dir() else ():
        link = ours / entry.name
        if entry.name != overlay.file and not link.exists():
            link.symlink_to(entry.absolute())
    newest = max((own / overlay.file, ours / overlay.file), key=_changed_at)
    settings = _read_file(newest) if newest.is_file() else {}
    written = ours / f".{overlay.file}.new"
    written.write_text(json.dumps(_merged(settings, overlay.settings), indent=2), "utf-8")
    written.replace(ours / overlay.file)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read_settings(text: str, *, is_yaml: bool = False) -> Any:
    """Settings as agents read them: YAML, or JSON in which comments and a last comma may stand. What is unreadable is empty."""
    try:
        return (yaml.safe_load(text) or {}) if is_yaml else json.loads(_without_last_commas(_without_comments(text)))
    except (ValueError, RecursionError, yaml.YAMLError):
        return {}


def _end_of_string(text: str, start: int) -> int:
    """Behind the string that begins at `start`."""
    at = start + 1
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at + 1


def _without_comments(text: str) -> str:
    pieces, at = [], 0
    while at < len(text):
        end = at + 1
        if text[at] == '"':
            end = _end_of_string(text, at)
            pieces.append(text[at:end])
        elif text.startswith("//", at):
            end = text.find("\n", at)
        elif text.startswith("/*", at):
            end = text.find("*/", at) + 2
        else:
            pieces.append(text[at])
        at = end if end > at else len(text)
    return "".join(pieces)


def _without_last_commas(text: str) -> str:
    pieces, at = [], 0
    while at < len(text):
        end = _end_of_string(text, at) if text[at] == '"' else at + 1
        if text[at] != "," or text[end:].lstrip()[:1] not in ("}", "]"):
            pieces.append(text[at:end])
        at = end
    return "".join(pieces)


def _written(file: SettingsFile, settings: Any) -> str:
    text = json.dumps(settings, indent=2)
    return file.program % text if file.program else text
