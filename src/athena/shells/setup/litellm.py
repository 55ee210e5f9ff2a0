"""A LiteLLM proxy's `config.yaml` as an `athena.yml`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from athena.errors import ConfigError
from athena.shells.setup.importing import (
    Imported,
    Reader,
    Upstreams,
    is_number,
    take_api_key,
    take_gateway_key,
    with_variables,
)

_PROVIDERS: dict[str, dict[str, Any]] = {
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
_REFUSED = {
    "bedrock": "make a Bedrock API key; its base_url is https://bedrock-runtime.REGION.amazonaws.com/openai/v1",
    "vertex_ai": "Athena signs nothing for Google's cloud: use a key of the Gemini API (provider gemini)",
    "sagemaker": "Athena signs nothing for Amazon's cloud: give the address of a server that speaks one of the four APIs",
}
_BODY = (
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "reasoning_effort", "seed", "stop", "keep_alive",
)  # fmt: skip
_NUMBERS = {
    "num_retries": ("retries", "attempts", 10),
    "request_timeout": ("timeouts", "total_s", 86400),
    "timeout": ("timeouts", "total_s", 86400),
    "allowed_fails": ("health", "failures", 1000),
    "cooldown_time": ("health", "cooldown_s", 86400),
    "global_max_parallel_requests": ("limits", "requests", 1_000_000),
}
"""Of its settings: our section, our name, and the largest value there."""
_STRATEGIES = {"simple-shuffle": "order", "latency-based-routing": "latency", "cost-based-routing": "cost"}
"""Its routing strategies, and what `prefer` of a rule calls them; `order` goes by weights where there are some."""
_WEIGHTS = ("weight", "rpm", "tpm")
"""By what LiteLLM draws one of several deployments: the first of these that the first deployment has."""
_COSTS = ("input_cost_per_token", "output_cost_per_token")
_LIMITS_REMEDY = (
    "Athena limits no rates: set limits in the provider's account (it is a weight where a name has several deployments)"
)
_EVENTS_REMEDY = "use metrics (/metrics), record: or telemetry: instead"
_HEALTH_REMEDY = "set upstreams.*.health_check"
_REDIS_REMEDY = "routing needs no shared memory; store.url is the one database that several machines may share"
_REMEDIES = {
    "rpm": _LIMITS_REMEDY,
    "tpm": _LIMITS_REMEDY,
    "max_parallel_requests": "set upstreams.*.max_connections, or limits.requests for the whole gateway",
    "drop_params": "the default: what a target cannot take is dropped with a warning",
    "max_retries": "retries.attempts holds for all models",
    "retry_policy": "retries: decides by what went wrong: only what cannot have reached the model is tried again",
    "allowed_fails_policy": "set health.failures and health.error_rate",
    "api_version": "Azure's /openai/v1 needs none",
    "success_callback": _EVENTS_REMEDY,
    "failure_callback": _EVENTS_REMEDY,
    "callbacks": _EVENTS_REMEDY,
    "alerting": _EVENTS_REMEDY,
    "routing_strategy": "set prefer of a model's rule to order, health, latency or cost",
    "database_url": "no database is needed",
    "store_model_in_db": "no database is needed; a changed athena.yml is taken up while the gateway runs",
    "cache": "answers are not cached",
    "cache_params": "answers are not cached",
    "redis_host": _REDIS_REMEDY,
    "redis_port": _REDIS_REMEDY,
    "redis_password": _REDIS_REMEDY,
    "redis_url": _REDIS_REMEDY,
    "mode": "every model answers chat requests; embeddings pass through",
    "base_model": "Athena counts no costs, for which LiteLLM needs it",
    "input_cost_per_token": "costs are not counted; prefer: cost compares the cost of a rule's targets",
    "output_cost_per_token": "costs are not counted; prefer: cost compares the cost of a rule's targets",
    "supports_function_calling": "set tools: prompted in the rule of a model that has no tool calling",
    "stream_timeout": "set timeouts.idle_s, the longest silence of a stream",
    "context_window_fallbacks": "a conversation that is too long is an error that agents understand and compact for",
    "content_policy_fallbacks": "a refusal is passed on; fallback is for failures",
    "enable_pre_call_checks": "a request that is too long gets the upstream's own error",
    "background_health_checks": _HEALTH_REMEDY,
    "health_check_interval": _HEALTH_REMEDY,
    "num_ctx": "set it on the server (OLLAMA_CONTEXT_LENGTH)",
    "hidden": "the model list shows every name of a rule without wildcards",
    "modify_params": "Athena fits each request to its target by itself",
    "redact_user_api_key_info": "keys are never logged",
    "turn_off_message_logging": "messages are not logged, except redacted at log.level debug",
    "ui_access_mode": "the inspector (/inspect) is for whoever has its token or a gateway key",
}
_ROOMS = {
    "environment_variables": "set them in the environment of the gateway; their values are not copied",
    "guardrails": "Athena changes and checks no content",
    "mcp_servers": "Athena runs no tools; agents connect to MCP servers themselves",
}
"""Whole sections that have no place here."""


@dataclass
class _Group:
    """The deployments that share a model name, and the rule that they become."""

    name: str
    rule: dict[str, Any] = field(default_factory=dict)
    """What holds for all of them."""
    targets: list[dict[str, Any]] = field(default_factory=list)
    orders: list[float] = field(default_factory=list)
    """LiteLLM's `order` of each: those with the lowest are asked first."""
    fallback: list[str] = field(default_factory=list)
    weighed_by: str = ""

    def uses(self) -> list[str]:
        return [target["use"] for target in self.targets]

    def as_rule(self, prefer: str, match: str = "") -> dict[str, Any]:
        first = min(self.orders)
        shared = [target for target, order in zip(self.targets, self.orders, strict=True) if order == first]
        ordered = sorted(zip(self.orders, self.uses(), strict=True), key=lambda pair: pair[0])
        later = [use for order, use in ordered if order > first]
        rule: dict[str, Any] = {
            "match": match or self.name,
            "use": shared[0]["use"] if len(shared) == 1 else copy.deepcopy(shared),
        }
        if len(shared) > 1 and prefer != "order":
            rule["prefer"] = prefer
        fallback = list(dict.fromkeys(use for use in [*later, *self.fallback] if use not in [one["use"] for one in shared]))
        return rule | copy.deepcopy(self.rule) | ({"fallback": fallback} if fallback else {})


def import_litellm(value: Mapping[str, Any]) -> Imported:
    """A LiteLLM proxy's `config.yaml`. Raises ConfigError for what is none."""
    if not isinstance(value.get("model_list"), list):
        raise ConfigError("this is not a LiteLLM configuration: it has no model_list")
    reader, upstreams, settings = Reader(value), Upstreams(), dict[str, Any]()
    prefer = _preference(value, reader)
    groups: dict[str, _Group] = {}
    for number, entry in enumerate(value["model_list"]):
        _read_deployment(entry, f"model_list[{number}]", prefer, reader, upstreams, groups)
    for room in ("litellm_settings", "router_settings"):
        given = value.get(room)
        if isinstance(given, Mapping):
            _read_numbers(given, room, reader, settings)
            _read_fallbacks(given, room, reader, groups)
    rules = {name: group.as_rule(prefer) for name, group in groups.items()}
    for room in ("litellm_settings", "router_settings"):
        aliases = (value.get(room) or {}).get("model_group_alias") if isinstance(value.get(room), Mapping) else None
        for alias, told in aliases.items() if isinstance(aliases, Mapping) else ():
            name = told.get("model") if isinstance(told, Mapping) else told
            if isinstance(name, str) and name in groups:
                rules.setdefault(str(alias), groups[name].as_rule(prefer, str(alias)))
                place = f"{room}.model_group_alias.{alias}"
                reader.use(f"{place}.model" if isinstance(told, Mapping) else place, f"match: {alias}")
    _read_general(value.get("general_settings"), reader, settings)
    for room, remedy in _ROOMS.items():
        reader.leave(room, remedy)
    # There an exact name goes before a pattern wherever it stands; here the first match wins.
    ordered = sorted(rules.values(), key=lambda rule: ("*" in rule["match"], -len(rule["match"]) * ("*" in rule["match"])))
    return reader.finish({"upstreams": upstreams.rows, "models": ordered, **settings}, _REMEDIES)


def _preference(value: Mapping[str, Any], reader: Reader) -> str:
    router = value.get("router_settings")
    strategy = router.get("routing_strategy") if isinstance(router, Mapping) else None
    if not isinstance(strategy, str) or strategy not in _STRATEGIES:
        return "order"
    prefer = _STRATEGIES[strategy]
    reader.use("router_settings.routing_strategy", "weights of targets" if prefer == "order" else f"prefer: {prefer}")
    return prefer


def _read_deployment(entry: Any, at: str, prefer: str, reader: Reader, upstreams: Upstreams, groups: dict[str, _Group]) -> None:
    given = entry.get("litellm_params") if isinstance(entry, Mapping) else None
    given = given if isinstance(given, Mapping) else {}
    if not all(isinstance(name, str) for name in (given.get("model"), given and entry.get("model_name"))):
        reader.leave(at, "it needs model_name and litellm_params.model")
        return
    provider, slash, model = given["model"].partition("/")
    if not slash or (provider not in _PROVIDERS and provider not in _REFUSED and "api_base" in given):
        provider, model = "openai", given["model"]
    known = _PROVIDERS.get(provider)
    if known is None or ("base_url" not in known and "api_base" not in given):
        general = f"{provider} is not an API that can be an upstream by its address; add one with dialect and base_url"
        reader.leave(at, _REFUSED.get(provider, general))
        return
    inside = f"{at}.litellm_params"
    target = f"{upstreams.name_of(provider, _read_upstream(given, inside, known, provider, reader))}/{model}"
    reader.use(f"{inside}.model", f"use: {target}")
    reader.use(f"{at}.model_name", f"match: {entry['model_name']}")
    group = groups.setdefault(entry["model_name"], _Group(entry["model_name"]))
    info = entry.get("model_info") if isinstance(entry.get("model_info"), Mapping) else {}
    _read_share(group, target, given, info, at, prefer, reader)
    _read_rule(group, given, info, at, reader)


def _read_upstream(
    given: Mapping[str, Any], inside: str, known: dict[str, Any], provider: str, reader: Reader
) -> dict[str, Any]:
    row = dict(known)
    if "api_base" in given:
        row["base_url"] = with_variables(given["api_base"])
        if provider == "azure" and row["base_url"].count("/") <= 3:
            row["base_url"] = row["base_url"].rstrip("/") + "/openai/v1"
        reader.use(f"{inside}.api_base", f"upstreams.*.base_url: {row['base_url']}")
    if "api_key" in given:
        take_api_key(given["api_key"], f"{inside}.api_key", row, reader)
    for name in ("extra_headers", "headers"):
        if isinstance(given.get(name), Mapping) and given[name]:
            row["headers"] = {str(header): with_variables(text) for header, text in given[name].items()}
            reader.use(f"{inside}.{name}", "upstreams.*.headers")
    return row


def _read_share(group: _Group, target: str, given: Mapping[str, Any], info: Any, at: str, prefer: str, reader: Reader) -> None:
    """The place of a deployment among those of its name."""
    inside = f"{at}.litellm_params"
    if not group.targets:
        group.weighed_by = next((name for name in _WEIGHTS if is_number(given.get(name))), "")
    weight = given.get(group.weighed_by) if group.weighed_by else 1
    row: dict[str, Any] = {"use": target, "weight": min(weight, 1_000_000) if is_number(weight) else 0}
    if is_number(given.get("weight")):
        reader.use(f"{inside}.weight", f"weight: {given['weight']} where the name has several deployments")
    if prefer == "cost":
        costs = [(f"{place}.{name}", values[name]) for place, values in ((inside, given), (f"{at}.model_info", info))
                 for name in _COSTS if is_number(values.get(name))]  # fmt: skip
        if costs:
            row["cost"] = sum(cost for _, cost in costs)
            for place, _ in costs:
                reader.use(place, "cost of the target")
    if is_number(given.get("order")):
        reader.use(f"{inside}.order", "use for the lowest, fallback for the others")
    group.targets.append(row)
    group.orders.append(given["order"] if is_number(given.get("order")) else 1_000_000)


def _read_rule(group: _Group, given: Mapping[str, Any], info: Any, at: str, reader: Reader) -> None:
    """What holds for all deployments of a name: the first one that says something decides."""
    inside = f"{at}.litellm_params"
    body = {name: given[name] for name in _BODY if name in given}
    body |= given["extra_body"] if isinstance(given.get("extra_body"), Mapping) else {}
    found: list[tuple[str, str, Any]] = []
    if body:
        found += [("body", f"{inside}.{name}", body) for name in (*_BODY, "extra_body") if name in given]
    if is_number(given.get("timeout")):
        found.append(("timeouts", f"{inside}.timeout", {"total_s": min(given["timeout"], 86400)}))
    for theirs, ours in (("max_input_tokens", "context"), ("max_output_tokens", "output"), ("max_tokens", "output")):
        if isinstance(info.get(theirs), int) and info[theirs] > 0:
            found.append((ours, f"{at}.model_info.{theirs}", info[theirs]))
    for ours, place, wanted in found:
        if group.rule.setdefault(ours, wanted) == wanted:
            name = place.rpartition(".")[2]
            reader.use(place, f"body: {name}" if ours == "body" else f"{ours}: {_short(wanted)}")
        else:
            reader.leave(place, f"a rule has one {ours} for all its targets: give this deployment a name and a rule of its own")


def _short(value: Any) -> str:
    return "{" + ", ".join(f"{name}: {one}" for name, one in value.items()) + "}" if isinstance(value, dict) else str(value)


def _read_numbers(given: Mapping[str, Any], room: str, reader: Reader, settings: dict[str, Any]) -> None:
    for theirs, (section, ours, most) in _NUMBERS.items():
        number = given.get(theirs)
        if is_number(number):
            settings.setdefault(section, {})[ours] = min(number, most)
            reader.use(f"{room}.{theirs}", f"{section}: {{{ours}: {min(number, most)}}}")
    if given.get("drop_params") is not None:
        reader.use(f"{room}.drop_params", "the default: what a target cannot take is dropped with a warning")
    if given.get("json_logs") is True:
        settings.setdefault("log", {})["format"] = "json"
        reader.use(f"{room}.json_logs", "log: {format: json}")
    if given.get("set_verbose") is not None:
        if given["set_verbose"] is True:
            settings.setdefault("log", {})["level"] = "debug"
        reader.use(f"{room}.set_verbose", "log: {level: debug}" if given["set_verbose"] is True else "the default")


def _read_fallbacks(given: Mapping[str, Any], room: str, reader: Reader, groups: dict[str, _Group]) -> None:
    for place, name, targets in _pairs(given.get("fallbacks"), f"{room}.fallbacks"):
        _add_fallbacks([groups[name]] if name in groups else [], targets, place, reader, groups)
    default = given.get("default_fallbacks")
    if isinstance(default, list):
        _add_fallbacks(list(groups.values()), default, f"{room}.default_fallbacks", reader, groups)


def _add_fallbacks(wanting: list[_Group], targets: list[Any], place: str, reader: Reader, groups: dict[str, _Group]) -> None:
    known = [groups[target] for target in targets if isinstance(target, str) and target in groups]
    if not wanting or len(known) != len(targets):
        reader.leave(place, "it names a model that is not in model_list, or was not taken over")
        return
    for group in wanting:
        group.fallback += [use for one in known if one is not group for use in one.uses()]
    reader.use(place, "fallback of the models it is for")


def _pairs(value: Any, at: str) -> Iterator[tuple[str, str, list[Any]]]:
    """LiteLLM writes fallbacks as a list of objects with one key each."""
    for number, entry in enumerate(value if isinstance(value, list) else ()):
        for name, targets in entry.items() if isinstance(entry, Mapping) else ():
            if isinstance(targets, list):
                yield f"{at}[{number}].{name}", str(name), targets


def _read_general(general: Any, reader: Reader, settings: dict[str, Any]) -> None:
    if not isinstance(general, Mapping):
        return
    if "master_key" in general:
        take_gateway_key(general["master_key"], "general_settings.master_key", "master", reader, settings)
    _read_numbers(general, "general_settings", reader, settings)
    size = general.get("max_request_size_mb")
    if is_number(size):
        settings.setdefault("limits", {})["body_bytes"] = int(size * 1024 * 1024)
        reader.use("general_settings.max_request_size_mb", f"limits: {{body_bytes: {int(size * 1024 * 1024)}}}")
