"""Configurations of other gateways as ours: what is said there and means the same here, and by name whatever does not.

Nothing is left out silently: a `_Reader` remembers which values were used, and names the others in the end.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from athena.errors import ConfigError
from athena.shells.config import hash_key

_ENVIRONMENT = re.compile(r"(?:os\.environ/|\$\{?)([A-Za-z_][A-Za-z0-9_]*)\}?")
_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class Unmapped(msgspec.Struct, frozen=True):
    """A value that has no place here. The remedy says what to do instead."""

    field: str
    remedy: str


class Imported(msgspec.Struct, frozen=True):
    """What becomes of another gateway's configuration."""

    settings: dict[str, Any]
    """The values of an `athena.yml`."""
    mapped: tuple[tuple[str, str], ...]
    """Fields of the other file, and what they became."""
    unmapped: tuple[Unmapped, ...]


class _Reader:
    """A tree of values that knows which of them were used."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._leaves = dict(_leaves(value, ""))
        self._used: set[str] = set()
        self.mapped: list[tuple[str, str]] = []
        self.unmapped: list[Unmapped] = []

    def use(self, field: str, became: str) -> None:
        """The value at this place, and all below it, has become something here."""
        self._take(field)
        self.mapped.append((field, became))

    def leave(self, field: str, remedy: str) -> None:
        """It has no place here."""
        self._take(field)
        self.unmapped.append(Unmapped(field, remedy))

    def _take(self, field: str) -> None:
        self._used |= {leaf for leaf in self._leaves if leaf == field or leaf.startswith((f"{field}.", f"{field}["))}

    def finish(self, settings: dict[str, Any], remedies: Mapping[str, str]) -> Imported:
        """Everything that was not used is unmapped; `remedies` by the last word of a field."""
        for leaf in self._leaves:
            if leaf not in self._used:
                word = re.split(r"[.\[]", re.sub(r"\[\d+\]$", "", leaf))[-1]
                self.unmapped.append(Unmapped(leaf, remedies.get(word, "it has no counterpart")))
        return Imported(settings, tuple(self.mapped), tuple(self.unmapped))


def _leaves(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{at}.{name}" if at else str(name))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{at}[{number}]")
    else:
        yield at, value


def _secret(value: Any) -> str:
    """A value of theirs that may name a variable, as ours."""
    found = _ENVIRONMENT.fullmatch(str(value))
    return f"${{{found.group(1)}}}" if found else str(value).replace("${", "$${")


def _is_variable(value: Any) -> bool:
    return _ENVIRONMENT.fullmatch(str(value)) is not None


class _Upstreams:
    """The upstreams of the new configuration: one for each address and key."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def name_of(self, wanted: str, row: dict[str, Any]) -> str:
        base = name = _NAME.sub("-", wanted).strip("-").lower() or "upstream"
        number = 1
        while name in self.rows and self.rows[name] != row:
            number += 1
            name = f"{base}-{number}"
        self.rows[name] = row
        return name


# -- LiteLLM ---------------------------------------------------------------------------------------------------------------

_LITELLM_PROVIDERS: dict[str, dict[str, Any]] = {
    "openai": {"base_url": "https://api.openai.com/v1"},
    "anthropic": {"base_url": "https://api.anthropic.com"},
    "gemini": {"base_url": "https://generativelanguage.googleapis.com"},
    "openrouter": {"base_url": "https://openrouter.ai/api/v1"},
    "deepseek": {"base_url": "https://api.deepseek.com/v1"},
    "moonshot": {"base_url": "https://api.moonshot.ai/v1"},
    "groq": {"base_url": "https://api.groq.com/openai/v1"},
    "mistral": {"base_url": "https://api.mistral.ai/v1"},
    "xai": {"base_url": "https://api.x.ai/v1"},
    "together_ai": {"base_url": "https://api.together.xyz/v1"},
    "fireworks_ai": {"base_url": "https://api.fireworks.ai/inference/v1"},
    "ollama": {"base_url": "http://127.0.0.1:11434/v1", "profile": "ollama"},
    "ollama_chat": {"base_url": "http://127.0.0.1:11434/v1", "profile": "ollama"},
    "hosted_vllm": {"base_url": "http://127.0.0.1:8000/v1", "profile": "vllm"},
    "vllm": {"base_url": "http://127.0.0.1:8000/v1", "profile": "vllm"},
    "lm_studio": {"base_url": "http://127.0.0.1:1234/v1"},
    "azure": {"profile": "azure"},
}
"""The provider before the slash of LiteLLM's model names."""
_LITELLM_BODY = ("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "reasoning_effort", "seed", "stop")
_LITELLM_NUMBERS = {
    "num_retries": ("retries", "attempts", 10),
    "request_timeout": ("timeouts", "total_s", 86400),
    "timeout": ("timeouts", "total_s", 86400),
    "allowed_fails": ("health", "failures", 1000),
    "cooldown_time": ("health", "cooldown_s", 86400),
}
"""Of its settings: our section, our name, and the largest value there."""
_LITELLM_REMEDIES = {
    "rpm": "there are no rate limits yet; put them into the provider's account",
    "tpm": "there are no rate limits yet; put them into the provider's account",
    "success_callback": "use metrics (/metrics), record: or telemetry: instead",
    "failure_callback": "use metrics (/metrics), record: or telemetry: instead",
    "callbacks": "use metrics (/metrics), record: or telemetry: instead",
    "routing_strategy": "targets are used in their order, the next one when one fails",
    "database_url": "no database is needed",
    "cache": "answers are not cached",
    "mode": "every model answers chat requests; embeddings pass through",
    "set_verbose": "log: {level: debug}",
    "input_cost_per_token": "costs are not counted",
    "output_cost_per_token": "costs are not counted",
    "stream_timeout": "set timeouts.idle_s, the longest silence of a stream",
    "context_window_fallbacks": "a conversation that is too long is an error that agents understand and compact for",
}


def import_litellm(value: Mapping[str, Any]) -> Imported:
    """A LiteLLM proxy's `config.yaml`. Raises ConfigError for what is none."""
    if not isinstance(value.get("model_list"), list):
        raise ConfigError("this is no LiteLLM configuration: it has no model_list")
    reader, upstreams = _Reader(value), _Upstreams()
    rules: dict[str, dict[str, Any]] = {}
    for number, entry in enumerate(value["model_list"]):
        _litellm_model(entry, f"model_list[{number}]", reader, upstreams, rules)
    settings: dict[str, Any] = {"upstreams": upstreams.rows, "models": list(rules.values())}
    _litellm_settings(value, reader, settings, rules)
    return reader.finish(settings, _LITELLM_REMEDIES)


def _litellm_model(entry: Any, at: str, reader: _Reader, upstreams: _Upstreams, rules: dict[str, dict[str, Any]]) -> None:
    given = entry.get("litellm_params") if isinstance(entry, Mapping) else None
    given = given if isinstance(given, Mapping) else {}
    if not all(isinstance(name, str) for name in (given.get("model"), given and entry.get("model_name"))):
        reader.leave(at, "it needs model_name and litellm_params.model")
        return
    provider, slash, model = given["model"].partition("/")
    if not slash or (provider not in _LITELLM_PROVIDERS and "api_base" in given):
        provider, model = "openai", given["model"]
    known = _LITELLM_PROVIDERS.get(provider)
    if known is None or ("base_url" not in known and "api_base" not in given):
        reader.leave(at, f"{provider} is not an API that can be an upstream by its address; add one with dialect and base_url")
        return
    row = dict(known)
    inside = f"{at}.litellm_params"
    if "api_base" in given:
        row["base_url"] = _secret(given["api_base"])
        reader.use(f"{inside}.api_base", f"upstreams.*.base_url: {row['base_url']}")
    if "api_key" in given:
        row["api_key"] = _secret(given["api_key"])
        shown = row["api_key"] if _is_variable(given["api_key"]) else "***"
        reader.use(f"{inside}.api_key", f"upstreams.*.api_key: {shown}")
    upstream = upstreams.name_of(provider, row)
    target = f"{upstream}/{model}"
    reader.use(f"{inside}.model", f"use: {target}")
    reader.use(f"{at}.model_name", f"match: {entry['model_name']}")
    rule = rules.get(entry["model_name"])
    if rule is not None:
        rule.setdefault("fallback", []).append(target)
        reader.mapped.append((at, f"fallback of {entry['model_name']} (targets are used in order, not in turns)"))
    else:
        rule = rules[entry["model_name"]] = {"match": entry["model_name"], "use": target}
    body = {name: given[name] for name in _LITELLM_BODY if name in given}
    body |= given["extra_body"] if isinstance(given.get("extra_body"), Mapping) else {}
    for name in (*_LITELLM_BODY, "extra_body"):
        if name in given:
            reader.use(f"{inside}.{name}", f"body: {name}")
    if body:
        rule.setdefault("body", {}).update(body)
    if isinstance(given.get("timeout"), int | float) and given["timeout"] > 0:
        rule.setdefault("timeouts", {})["total_s"] = given["timeout"]
        reader.use(f"{inside}.timeout", f"timeouts: {{total_s: {given['timeout']}}}")
    info = entry.get("model_info")
    for theirs, ours in (("max_input_tokens", "context"), ("max_output_tokens", "output"), ("max_tokens", "output")):
        if isinstance(info, Mapping) and isinstance(info.get(theirs), int) and info[theirs] > 0:
            rule.setdefault(ours, info[theirs])
            reader.use(f"{at}.model_info.{theirs}", f"{ours}: {info[theirs]}")


def _litellm_settings(
    value: Mapping[str, Any], reader: _Reader, settings: dict[str, Any], rules: dict[str, dict[str, Any]]
) -> None:
    for room in ("litellm_settings", "router_settings"):
        given = value.get(room)
        if not isinstance(given, Mapping):
            continue
        for theirs, (section, ours, most) in _LITELLM_NUMBERS.items():
            number = given.get(theirs)
            if isinstance(number, int | float) and not isinstance(number, bool) and number > 0:
                settings.setdefault(section, {})[ours] = min(number, most)
                reader.use(f"{room}.{theirs}", f"{section}: {{{ours}: {min(number, most)}}}")
        if given.get("drop_params") is not None:
            reader.use(f"{room}.drop_params", "the default: what a target cannot take is dropped with a warning")
        for name, targets in _pairs(given.get("fallbacks")):
            if name in rules and all(target in rules for target in targets):
                uses = [rules[target]["use"] for target in targets]
                rules[name]["fallback"] = [*rules[name].get("fallback", []), *uses]
                reader.use(f"{room}.fallbacks", "fallback of the models named in it")
        aliases = given.get("model_group_alias")
        for alias, name in aliases.items() if isinstance(aliases, Mapping) else ():
            if name in rules:
                settings["models"].insert(0, {**copy.deepcopy(rules[name]), "match": alias})
                reader.use(f"{room}.model_group_alias.{alias}", f"match: {alias}")
    general = value.get("general_settings")
    if isinstance(general, Mapping) and "master_key" in general:
        _gateway_key(general["master_key"], "general_settings.master_key", "master", reader, settings)


def _pairs(value: Any) -> Iterator[tuple[str, list[str]]]:
    """LiteLLM writes fallbacks as a list of objects with one key each."""
    for entry in value if isinstance(value, list) else ():
        for name, targets in entry.items() if isinstance(entry, Mapping) else ():
            if isinstance(targets, list):
                yield name, targets


def _gateway_key(value: Any, field: str, name: str, reader: _Reader, settings: dict[str, Any]) -> None:
    if not isinstance(value, str) or not value or _is_variable(value):
        reader.leave(field, "gateway keys are kept as hashes: athena config hash-key makes one of the key in your variable")
        return
    settings["keys"] = [{"name": name, "hash": hash_key(value)}]
    reader.use(field, "keys: its hash")


# -- claude-code-router ----------------------------------------------------------------------------------------------------

_CCR_REMEDIES = {
    "transformer": "Athena's own profile of that provider does this",
    "use": "Athena's own profile of that provider does this",
    "longContext": "requests are not routed by their size: a rule per model name decides",
    "longContextThreshold": "requests are not routed by their size: a rule per model name decides",
    "think": "requests are not routed by thinking: a rule per model name decides",
    "webSearch": "requests are not routed by their tools: a rule per model name decides",
    "image": "requests are not routed by their content: a rule per model name decides",
    "CUSTOM_ROUTER_PATH": "there are no scripts: a rule per model name decides",
    "LOG": "logging is on; log: {file: athena.log} keeps it",
    "NON_INTERACTIVE_MODE": "not needed",
    "StatusLine": "not needed",
}


def import_claude_code_router(value: Mapping[str, Any]) -> Imported:
    """claude-code-router's `config.json`. Raises ConfigError for what is none."""
    providers = value.get("Providers", value.get("providers"))
    room = "Providers" if "Providers" in value else "providers"
    if not isinstance(providers, list):
        raise ConfigError("this is no configuration of claude-code-router: it has no Providers")
    reader, upstreams = _Reader(value), _Upstreams()
    names: dict[str, str] = {}
    models: list[dict[str, Any]] = []
    for number, entry in enumerate(providers):
        at = f"{room}[{number}]"
        address = entry.get("api_base_url") if isinstance(entry, Mapping) else None
        if not isinstance(address, str) or not isinstance(entry.get("name"), str):
            reader.leave(at, "it needs name and api_base_url")
            continue
        row: dict[str, Any] = {"base_url": re.sub(r"/(?:chat/completions|messages|responses|models)/?\Z", "", address)}
        reader.use(f"{at}.api_base_url", f"upstreams.*.base_url: {row['base_url']}")
        if "api_key" in entry:
            row["api_key"] = _secret(entry["api_key"])
            reader.use(f"{at}.api_key", f"upstreams.*.api_key: {row['api_key'] if _is_variable(entry['api_key']) else '***'}")
        if isinstance(value.get("PROXY_URL"), str) and value["PROXY_URL"]:
            row["proxy"] = _secret(value["PROXY_URL"])
            reader.use("PROXY_URL", "upstreams.*.proxy")
        name = names[entry["name"]] = upstreams.name_of(entry["name"], row)
        reader.use(f"{at}.name", f"upstreams.{name}")
        for model in entry.get("models") or ():
            models.append({"match": f"{entry['name']},{model}", "use": f"{name}/{model}"})
        if entry.get("models"):
            reader.use(f"{at}.models", 'a rule for each "provider,model"')
    settings: dict[str, Any] = {"upstreams": upstreams.rows}
    router = value.get("Router")
    for kind, pattern in (("background", "*haiku*"), ("default", "*")):
        wanted = router.get(kind) if isinstance(router, Mapping) else None
        provider, _, model = wanted.partition(",") if isinstance(wanted, str) else ("", "", "")
        if provider in names and model:
            models.append({"match": pattern, "use": f"{names[provider]}/{model}"})
            reader.use(f"Router.{kind}", f"match: {pattern!r}")
    settings["models"] = models
    if isinstance(value.get("HOST"), str) and value["HOST"]:
        settings["host"] = value["HOST"]
        reader.use("HOST", f"host: {value['HOST']}")
    if isinstance(value.get("PORT"), int):
        settings["port"] = value["PORT"]
        reader.use("PORT", f"port: {value['PORT']}")
    if isinstance(value.get("API_TIMEOUT_MS"), int | float | str) and re.fullmatch(r"\d+", str(value["API_TIMEOUT_MS"])):
        settings["timeouts"] = {"total_s": int(value["API_TIMEOUT_MS"]) / 1000}
        reader.use("API_TIMEOUT_MS", f"timeouts: {{total_s: {settings['timeouts']['total_s']:g}}}")
    if value.get("LOG_LEVEL") in ("debug", "info", "warning", "error", "warn", "trace", "fatal"):
        level = {"warn": "warning", "trace": "debug", "fatal": "error"}.get(value["LOG_LEVEL"], value["LOG_LEVEL"])
        settings["log"] = {"level": level}
        reader.use("LOG_LEVEL", f"log: {{level: {level}}}")
    if "APIKEY" in value:
        _gateway_key(value["APIKEY"], "APIKEY", "router", reader, settings)
    return reader.finish(settings, _CCR_REMEDIES)
