"""claude-code-router's `config.json` as an `athena.yml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from athena.errors import ConfigError
from athena.shells.setup.importing import Imported, Reader, Upstreams, take_api_key, take_gateway_key, with_variables

_BY_NAME = "a rule per model name decides"
_REMEDIES = {
    "transformer": "Athena's own profile of that provider does this",
    "transformers": "there are no scripts; Athena's own profiles fit requests to providers",
    "longContext": f"requests are not routed by their size: {_BY_NAME}",
    "longContextThreshold": f"requests are not routed by their size: {_BY_NAME}",
    "think": f"requests are not routed by thinking: {_BY_NAME}",
    "webSearch": f"requests are not routed by their tools: {_BY_NAME}",
    "image": f"requests are not routed by their content: {_BY_NAME}",
    "forceUseImageAgent": f"requests are not routed by their content: {_BY_NAME}",
    "CUSTOM_ROUTER_PATH": f"there are no scripts: {_BY_NAME}",
    "LOG": "logging is on; log: {file: athena.log} keeps it",
    "NON_INTERACTIVE_MODE": "not needed",
    "CLAUDE_PATH": "athena code finds claude on the PATH",
    "REWRITE_SYSTEM_PROMPT": "Athena does not change the agent's instructions",
    "StatusLine": "Athena draws no status line; athena status shows what runs",
    "fallback": "Athena falls back per model name: set fallback in the model's rule",
}
_LEVELS = {"warn": "warning", "trace": "debug", "fatal": "error"}


def import_claude_code_router(value: Mapping[str, Any]) -> Imported:
    """claude-code-router's `config.json`. Raises ConfigError for what is none."""
    room = "Providers" if "Providers" in value else "providers"
    providers = value.get(room)
    if not isinstance(providers, list):
        raise ConfigError("this is not a configuration of claude-code-router: it has no Providers")
    reader, upstreams = Reader(value), Upstreams()
    names: dict[str, str] = {}
    rules: list[dict[str, Any]] = []
    for number, entry in enumerate(providers):
        rules += _read_provider(entry, f"{room}[{number}]", value.get("PROXY_URL"), reader, upstreams, names)
    rules += _read_router(value, names, reader)
    settings: dict[str, Any] = {"upstreams": upstreams.rows, "models": rules}
    if isinstance(value.get("HOST"), str) and value["HOST"]:
        settings["host"] = value["HOST"]
        reader.use("HOST", f"host: {value['HOST']}")
    if isinstance(value.get("PORT"), int):
        settings["port"] = value["PORT"]
        reader.use("PORT", f"port: {value['PORT']}")
    if isinstance(value.get("API_TIMEOUT_MS"), int | float | str) and re.fullmatch(r"[1-9]\d*", str(value["API_TIMEOUT_MS"])):
        settings["timeouts"] = {"total_s": int(value["API_TIMEOUT_MS"]) / 1000}
        reader.use("API_TIMEOUT_MS", f"timeouts: {{total_s: {settings['timeouts']['total_s']:g}}}")
    if value.get("LOG_LEVEL") in ("debug", "info", "warning", "error", *_LEVELS):
        level = _LEVELS.get(value["LOG_LEVEL"], value["LOG_LEVEL"])
        settings["log"] = {"level": level}
        reader.use("LOG_LEVEL", f"log: {{level: {level}}}")
    if "APIKEY" in value:
        take_gateway_key(value["APIKEY"], "APIKEY", "router", reader, settings)
    return reader.finish(settings, _REMEDIES)


def _read_provider(
    entry: Any, at: str, proxy: Any, reader: Reader, upstreams: Upstreams, names: dict[str, str]
) -> list[dict[str, Any]]:
    address = entry.get("api_base_url") if isinstance(entry, Mapping) else None
    if not isinstance(address, str) or not isinstance(entry.get("name"), str):
        reader.leave(at, "it needs name and api_base_url")
        return []
    row: dict[str, Any] = {"base_url": re.sub(r"/(?:chat/completions|messages|responses|models)/?\Z", "", address)}
    reader.use(f"{at}.api_base_url", f"upstreams.*.base_url: {row['base_url']}")
    if "api_key" in entry:
        take_api_key(entry["api_key"], f"{at}.api_key", row, reader)
    if isinstance(proxy, str) and proxy and not _is_here(address):
        row["proxy"] = with_variables(proxy)
        reader.use("PROXY_URL", "upstreams.*.proxy, except of servers on this machine")
    name = names[entry["name"]] = upstreams.name_of(entry["name"], row)
    reader.use(f"{at}.name", f"upstreams.{name}")
    models = [model for model in entry.get("models") or () if isinstance(model, str)]
    if models:
        reader.use(f"{at}.models", 'a rule for each "provider,model"')
    body = _read_longest_answer(entry.get("transformer"), f"{at}.transformer", reader)
    return [{"match": f"{entry['name']},{model}", "use": f"{name}/{model}", **body} for model in models]


def _is_here(address: str) -> bool:
    try:
        return urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        return False


def _read_longest_answer(transformer: Any, at: str, reader: Reader) -> dict[str, Any]:
    """`["maxtoken", {"max_tokens": 16384}]` is the one transformer that says something about requests."""
    used = transformer.get("use") if isinstance(transformer, Mapping) else None
    for number, one in enumerate(used if isinstance(used, list) else ()):
        match one:
            case ["maxtoken", {"max_tokens": int(most)}]:
                reader.use(f"{at}.use[{number}]", f"body: {{max_tokens: {most}}}")
                return {"body": {"max_tokens": most}}
    return {}


def _read_router(value: Mapping[str, Any], names: dict[str, str], reader: Reader) -> list[dict[str, Any]]:
    """The rules of `Router`, with what `fallback` says for them."""
    router = value.get("Router")
    after = value.get("fallback")
    rules: list[dict[str, Any]] = []
    for kind, pattern in (("background", "*haiku*"), ("default", "*")):
        target = _target(router.get(kind), names) if isinstance(router, Mapping) else ""
        if not target:
            continue
        rules.append({"match": pattern, "use": target})
        reader.use(f"Router.{kind}", f"match: {pattern!r}")
        told = after.get(kind) if isinstance(after, Mapping) else None
        targets = [_target(one, names) for one in told] if isinstance(told, list) else []
        if targets and all(targets):
            rules[-1]["fallback"] = targets
            reader.use(f"fallback.{kind}", f"fallback of {pattern!r}")
    return rules


def _target(wanted: Any, names: dict[str, str]) -> str:
    """`provider,model` as `upstream/model`; nothing where the provider is not known."""
    provider, _, model = wanted.partition(",") if isinstance(wanted, str) else ("", "", "")
    return f"{names[provider]}/{model}" if provider in names and model else ""
