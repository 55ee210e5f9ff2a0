"""Everything of a request but its messages and tools, written for an upstream.

Each `Control` is one neutral field, the wire fields that may say it, and how it is written. To its own dialect a request keeps
the client's words; only a control whose meaning changed, or whose words the upstream refuses, is written anew.

Wire facts: docs/reference/wire-facts.md#rules-of-translation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import compress
from operator import attrgetter, ne
from typing import Any

import msgspec

from athena.calls.ids import hashed
from athena.dialects.base import EncodeTarget
from athena.dialects.losses import Losses
from athena.errors import UnsupportedFeature
from athena.model.profile import Profile
from athena.model.request import Request
from athena.schemas import for_openai

_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_TIERS = {"standard_only": "default", "standard": "default"}
_FORMAT_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_USER_ID = re.compile(r"[a-zA-Z0-9_-]{1,512}")


class ControlWriter(Losses):
    """What writing needs, and what it could not say."""

    __slots__ = ("instructions", "profile", "target")

    def __init__(self, target: EncodeTarget) -> None:
        super().__init__(strict=target.strict)
        self.target = target
        self.profile = target.profile
        self.instructions: list[str] = []
        """Lines to add to the system text, for what the upstream has no field for."""


class Control(msgspec.Struct, frozen=True):
    """One neutral field on the wire."""

    field: str
    keys: tuple[str, ...]
    write: Callable[[Request, ControlWriter], dict[str, Any]]


def _plain(field: str, key: str | None = None) -> Control:
    """A field that both sides call (nearly) the same."""
    wire = key or field

    def write(request: Request, writer: ControlWriter) -> dict[str, Any]:
        value = getattr(request, field)
        return {} if value is None else {wire: value}

    return Control(field, (wire,), write)


def _length(request: Request, writer: ControlWriter) -> dict[str, Any]:
    wanted = request.max_output if request.max_output is not None else writer.profile.max_tokens_default
    return {} if wanted is None else {writer.profile.max_tokens_field: wanted}


def _seed(request: Request, writer: ControlWriter) -> dict[str, Any]:
    return {} if request.seed is None else {writer.profile.seed_field: request.seed}


def _stop(request: Request, writer: ControlWriter) -> dict[str, Any]:
    return {"stop": list(request.stop)} if request.stop else {}


def _choices(request: Request, writer: ControlWriter) -> dict[str, Any]:
    return {"n": request.n} if request.n > 1 else {}


def _logprobs(request: Request, writer: ControlWriter) -> dict[str, Any]:
    if request.logprobs is None:
        return {}
    if not writer.profile.logprobs:
        writer.drop("logprobs", "not taken by this upstream")
        return {}
    return {"logprobs": True, **({"top_logprobs": request.logprobs} if request.logprobs else {})}


def _tool_choice(request: Request, writer: ControlWriter) -> dict[str, Any]:
    choice = request.tool_choice
    if choice is None or not request.tools:
        return {}
    if choice.kind == "hosted" and choice.names:
        raise UnsupportedFeature("tool_choice: this upstream does not run that tool itself", path="tool_choice")
    if choice.mode == "named":
        return {"tool_choice": {"type": choice.kind, choice.kind: {"name": choice.names[0]}}}
    if choice.mode == "allowed":
        kinds = {tool.name: tool.kind for tool in request.tools}
        listed = []
        for name in choice.names:
            kind = "custom" if kinds.get(name) == "custom" else "function"
            listed.append({"type": kind, kind: {"name": name}})
        mode = "required" if choice.required else "auto"
        return {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": listed}}}
    return {"tool_choice": writer.profile.required_word if choice.mode == "required" else choice.mode}


def _parallel(request: Request, writer: ControlWriter) -> dict[str, Any]:
    if request.parallel is None or not request.tools:
        return {}
    return {"parallel_tool_calls": request.parallel}


# -- reasoning --------------------------------------------------------------------------------------------------------------


def nearest_effort(effort: str, profile: Profile) -> str | None:
    """The upstream's word for an effort: its own, the nearest lower, else the nearest higher; None when it has none."""
    effort = profile.effort_map.get(effort, effort)
    if effort in profile.efforts or effort not in _ORDER:
        return effort
    known = [candidate for candidate in _ORDER if candidate in profile.efforts]
    lower = [candidate for candidate in known if _ORDER.index(candidate) < _ORDER.index(effort) and candidate != "none"]
    return lower[-1] if lower else known[0] if known else None


def _effort_of(request: Request) -> str | None:
    """How hard to think, from whatever the client said; None: it said nothing."""
    reasoning = request.reasoning
    if reasoning.mode == "off":
        return "none"
    if reasoning.effort is not None:
        return reasoning.effort
    if reasoning.budget is not None:
        budget = reasoning.budget
        return "none" if budget == 0 else "low" if budget < 2048 else "medium" if budget < 10000 else _more(budget)
    return {"on": "medium", "adaptive": "medium", "between_tools": "low"}.get(reasoning.mode)


def _more(budget: int) -> str:
    return "high" if budget < 32000 else "xhigh"


def _reasoning(request: Request, writer: ControlWriter) -> dict[str, Any]:
    effort, profile = _effort_of(request), writer.profile
    if profile.reasoning_control != "openrouter" and request.reasoning.visible is False:
        writer.hint("reasoning.display", "this upstream cannot be told to keep its reasoning to itself")
    if effort is None:
        if request.reasoning.visible is not None and profile.reasoning_control == "openrouter":
            return {"reasoning": {"exclude": not request.reasoning.visible}}
        return {}
    wanted = nearest_effort(effort, profile)
    off = effort == "none"
    budget = _budget(request, profile)
    match profile.reasoning_control:
        case "effort":
            return {**budget, **({} if wanted is None else {"reasoning_effort": wanted})}
        case "openrouter":
            return {"reasoning": _openrouter(request, wanted, off)}
        case "thinking":
            return {"thinking": {"type": "disabled" if off else "enabled"}, **budget}
        case "thinking_and_effort":
            switch: dict[str, Any] = {"thinking": {"type": "disabled" if off else "enabled"}}
            said = request.reasoning.effort is not None or request.reasoning.budget is not None
            return {**switch, **({"reasoning_effort": wanted} if said and not off and wanted is not None else {})}
        case "template":
            return {"chat_template_kwargs": {profile.template_switch: not off}, **budget}
    writer.hint("reasoning", "this upstream has no switch for reasoning")
    return {}


def _budget(request: Request, profile: Profile) -> dict[str, Any]:
    if profile.budget_field is None or not request.reasoning.budget:
        return {}
    return {profile.budget_field: request.reasoning.budget}


def _openrouter(request: Request, wanted: str | None, off: bool) -> dict[str, Any]:
    reasoning = request.reasoning
    if off:
        control: dict[str, Any] = {"effort": "none"}
    elif reasoning.effort is None and reasoning.budget:
        control = {"max_tokens": reasoning.budget}
    elif reasoning.effort is not None and wanted is not None:
        control = {"effort": wanted}
    else:
        control = {"enabled": True}
    if reasoning.visible is not None:
        control["exclude"] = not reasoning.visible
    if reasoning.summary is not None:
        control["summary"] = reasoning.summary
    return control


# -- output, caching, identity ------------------------------------------------------------------------------------------------


def _output(request: Request, writer: ControlWriter) -> dict[str, Any]:
    output, profile = request.output, writer.profile
    body: dict[str, Any] = {}
    if output.kind == "schema" and profile.json_schema:
        name = _FORMAT_NAME.sub("_", output.name or "response")[:64]
        inner: dict[str, Any] = {"name": name}
        if output.schema is not None:
            strict = bool(output.strict)
            inner["schema"] = (
                for_openai(output.schema, strict=True, losses=writer.found, path="response_format", growth=writer.growth)
                if strict
                else output.schema
            )
        if output.strict is not None:
            inner["strict"] = output.strict
        if output.description is not None:
            inner["description"] = output.description
        body["response_format"] = {"type": "json_schema", "json_schema": inner}
    elif output.kind != "text":
        if profile.json_object:
            body["response_format"] = {"type": "json_object"}
        schema = "" if output.schema is None else msgspec.json.encode(output.schema).decode()
        if schema:
            writer.instructions.append(f"Answer with one JSON value that matches this JSON Schema, and nothing else:\n{schema}")
            writer.emulate("response_format", "the schema is told to the model, not enforced")
        elif not profile.json_object:
            writer.instructions.append("Answer with one JSON object and nothing else.")
            writer.emulate("response_format", "JSON is asked for in words")
    if output.verbosity is not None:
        if profile.verbosity:
            body["verbosity"] = output.verbosity
        else:
            writer.hint("verbosity", "not taken by this upstream")
    if output.modalities:
        body["modalities"] = [mode.lower() for mode in output.modalities]
    if output.audio is not None:
        body["audio"] = output.audio
    if output.prediction is not None:
        body["prediction"] = output.prediction
    return body


def _cache(request: Request, writer: ControlWriter) -> dict[str, Any]:
    cache, profile = request.cache, writer.profile
    body: dict[str, Any] = {}
    if cache.key is not None:
        if profile.cache_key or "prompt_cache_key" in profile.pass_fields:
            body["prompt_cache_key"] = cache.key
        else:
            writer.hint("prompt_cache_key", "not taken by this upstream")
    if cache.mark is not None and profile.cache_marks == "cache_control":
        body.update(mark_fields(cache.mark.ttl_seconds, profile))
    return body


def mark_fields(seconds: int, profile: Profile) -> dict[str, Any]:
    """A cache breakpoint in the upstream's spelling; nothing where it takes none."""
    if profile.cache_marks == "cache_control":
        return {"cache_control": {"type": "ephemeral", "ttl": "1h"} if seconds >= 3600 else {"type": "ephemeral"}}
    if profile.cache_marks == "breakpoint":
        return {"prompt_cache_breakpoint": {"mode": "explicit", **({"ttl": "12h"} if seconds >= 3600 else {})}}
    return {}


def _end_user(request: Request, writer: ControlWriter) -> dict[str, Any]:
    user, field = request.end_user, writer.profile.user_field
    if user is None:
        return {}
    if field is None:
        writer.hint("user", "not taken by this upstream")
        return {}
    if (field == "safety_identifier" and len(user) > 128) or (field == "user_id" and not _USER_ID.fullmatch(user)):
        user = hashed(user, 32)
    outer, _, inner = field.rpartition(".")
    return {outer: {inner: user}} if outer else {field: user}


def _metadata(request: Request, writer: ControlWriter) -> dict[str, Any]:
    if request.metadata is None:
        return {}
    if writer.profile.metadata:
        return {"metadata": request.metadata}
    writer.hint("metadata", "not taken by this upstream")
    return {}


def _tier(request: Request, writer: ControlWriter) -> dict[str, Any]:
    tier, profile = request.tier, writer.profile
    if tier is None:
        return {}
    tier = tier if tier in profile.tiers else _TIERS.get(tier, tier)
    if not profile.tier or (profile.tiers and tier not in profile.tiers):
        writer.hint("service_tier", f"{tier} is not a tier of this upstream")
        return {}
    return {"service_tier": tier}


def _store(request: Request, writer: ControlWriter) -> dict[str, Any]:
    if request.store is None or not writer.profile.store:
        return {}
    return {"store": request.store}


CONTROLS: tuple[Control, ...] = (
    Control("max_output", ("max_completion_tokens", "max_tokens"), _length),
    *(
        _plain(name)
        for name in (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "logit_bias",
        )
    ),
    Control("seed", ("seed", "random_seed"), _seed),
    Control("stop", ("stop",), _stop),
    Control("n", ("n",), _choices),
    Control("logprobs", ("logprobs", "top_logprobs"), _logprobs),
    Control("tool_choice", ("tool_choice", "function_call"), _tool_choice),
    Control("parallel", ("parallel_tool_calls",), _parallel),
    Control(
        "reasoning",
        ("reasoning_effort", "reasoning", "thinking", "enable_thinking", "include_reasoning", "chat_template_kwargs"),
        _reasoning,
    ),
    Control("output", ("response_format", "verbosity", "modalities", "audio", "prediction"), _output),
    Control("cache", ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "cache_control"), _cache),
    Control("end_user", ("safety_identifier", "user", "user_id"), _end_user),
    Control("metadata", ("metadata",), _metadata),
    Control("tier", ("service_tier",), _tier),
    Control("store", ("store",), _store),
)

_values_of = attrgetter(*(control.field for control in CONTROLS))
_PLACES = {key: place for place, control in enumerate(CONTROLS) for key in control.keys}
"""Which control a key of a body belongs to: no key belongs to two."""
_UNASKED = _values_of(Request(dialect="", model=""))


def asked_controls(request: Request) -> list[Control]:
    """Those that may have something to write: the length, which some upstreams want in any case, and what is not as usual."""
    asked = list(compress(CONTROLS, map(ne, _values_of(request), _UNASKED)))
    return asked if asked and asked[0] is CONTROLS[0] else [CONTROLS[0], *asked]


def said_controls(request: Request, body: dict[str, Any]) -> list[Control]:
    """Those of which this body or the request says anything at all."""
    places = set(compress(range(len(CONTROLS)), map(ne, _values_of(request), _UNASKED)))
    places.update(map(_PLACES.__getitem__, _PLACES.keys() & body.keys()))
    return [CONTROLS[place] for place in sorted(places)]
