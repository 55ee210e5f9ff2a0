"""A neutral request as a Gemini body.

At home, that is from a Gemini client, the client's own body is the start: only what no longer says what the request says is
replaced, so an unchanged request comes out as it came in.

Wire facts: docs/reference/wire-facts.md#rules-of-translation.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from athena.calls.names import model_in_path
from athena.dialects.base import Encoded, EncodeTarget, searches_web
from athena.dialects.gemini.decode_contents import NAME
from athena.dialects.gemini.decode_request import decode_settings
from athena.dialects.gemini.encode_contents import ContentsEncoder
from athena.dialects.gemini.spelling import EitherCase, put, spelled
from athena.dialects.losses import Losses
from athena.dialects.recalled import Rewritten
from athena.model.parts import Image, Refusal, Text, ToolResult
from athena.model.profile import Profile
from athena.model.request import Reasoning, Request, Tool
from athena.schemas import for_gemini
from athena.wire.recall import Recall

_BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192, "high": 24576, "xhigh": -1, "max": -1}
_LEVELS = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "xhigh": "HIGH", "max": "HIGH"}
_COLLECTIONS = ("models/", "tunedModels/", "publishers/", "projects/")
_SCALARS = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_output": "maxOutputTokens",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
_NO_ROOM = {
    "min_p": "min_p", "repetition_penalty": "repetition_penalty", "logit_bias": "logit_bias", "end_user": "user",
    "speed": "speed",
}  # fmt: skip


def encode_request(request: Request, target: EncodeTarget, recall: Recall | None = None) -> Encoded:
    """The body and path for a Gemini upstream; raises UnsupportedFeature for what must not be dropped."""
    losses = Losses(strict=target.strict)
    home = request.dialect == NAME
    body: dict[str, Any] = dict(request.raw) if home and request.raw is not None else {}
    before = decode_settings(EitherCase(body)) if body else {}
    recall = recall if not home else None
    _write_contents(request, target, body, losses, recall)
    changed = {name for name in _FIELDS if getattr(request, name) != before.get(name, _DEFAULTS[name])}
    if "system" in changed:
        put(body, "systemInstruction", _instruction(request, home, losses))
    if "tools" in changed:
        write = partial(_tools, request, target, losses)
        put(body, "tools", Rewritten(recall, target, losses, NAME).tools(request, request.tools, write) or None)
    if "tool_choice" in changed:
        _write_choice(request, body)
    _write_generation(request, target, body, changed, losses)
    if "metadata" in changed:
        put(body, "labels", _labels(request, target, losses))
    if "tier" in changed:
        put(body, "serviceTier", request.tier if _knows_tier(request, target.profile) else None)
    if not home:
        _report(request, target, losses)
    for key, value in target.profile.body.items():
        body.setdefault(key, value)
    for key in target.profile.drop_fields:
        if spelled(body, key) in body:
            put(body, key, None)
            losses.omit(key, "not taken by this upstream")
    return Encoded(
        body=body, path=path_of(target.model, request.stream), headers=dict(target.profile.headers), losses=tuple(losses.found)
    )


_FIELDS = (
    "system", "tools", "tool_choice", "metadata", "tier", "stop", "n", "logprobs", "reasoning", "output", *_SCALARS,
)  # fmt: skip
_EMPTY = Request(dialect=NAME, model="")
_DEFAULTS: dict[str, Any] = {name: getattr(_EMPTY, name) for name in _FIELDS}


def path_of(model: str, stream: bool) -> str:
    """The path below the base URL. Raises InvalidRequest for a name that would lead elsewhere."""
    name = model if model.startswith(_COLLECTIONS) else f"models/{model}"
    action = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/{model_in_path(name)}:{action}"


def _write_contents(
    request: Request, target: EncodeTarget, body: dict[str, Any], losses: Losses, recall: Recall | None
) -> None:
    contents = ContentsEncoder(request, target, losses, recall).encode()
    key = spelled(body, "contents")
    written = body.get(key)
    known = written if isinstance(written, list) else [written]
    if len(known) == len(contents) and all(new is old for new, old in zip(contents, known, strict=True)):
        return
    body[key] = contents


def _instruction(request: Request, home: bool, losses: Losses) -> dict[str, Any] | None:
    parts: list[Any] = []
    for index, part in enumerate(request.system):
        if home and part.raw is not None:
            parts.append(part.raw)
        elif isinstance(part, Text | Refusal):
            if part.text:
                parts.append({"text": part.text})
        else:
            losses.omit(f"system[{index}]", "instructions hold text only")
    return {"parts": parts} if parts else None


# -- tools -------------------------------------------------------------------------------------------------------------------


def _tools(request: Request, target: EncodeTarget, losses: Losses) -> list[dict[str, Any]]:
    home = request.dialect == NAME
    functions: list[Any] = []
    hosted: list[dict[str, Any]] = []
    for index, tool in enumerate(request.tools):
        path = f"tools[{index}]"
        if home and tool.raw is not None:
            (hosted if tool.kind == "hosted" else functions).append(tool.raw)
        elif tool.kind == "hosted":
            hosted.extend(_hosted(request, tool, path, target, losses))
        else:
            functions.append(_function(tool, path, target.profile, home, losses))
    declared = [{"functionDeclarations": functions}] if functions else []
    return declared + hosted


def _function(tool: Tool, path: str, profile: Profile, home: bool, losses: Losses) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": tool.name}
    if tool.description:
        declaration["description"] = tool.description
    as_json, where = profile.json_schema_tools, f"{path}.parameters"
    schema = for_gemini(tool.schema, json_schema=as_json, losses=losses.found, path=where, growth=losses.growth)
    if schema:
        declaration["parametersJsonSchema" if profile.json_schema_tools else "parameters"] = schema
    if home:
        declaration.update(tool.extras or {})
    else:
        losses.extras(path, tool.extras, "unknown to this upstream")
        if tool.strict:
            losses.hint(f"{path}.strict", "this upstream does not enforce schemas")
        if tool.deferred:
            losses.emulate(f"{path}.defer_loading", "the tool is loaded at once")
    return declaration


def _hosted(request: Request, tool: Tool, path: str, target: EncodeTarget, losses: Losses) -> list[dict[str, Any]]:
    """A tool that runs at the provider: native from a Gemini client, web search from all, nothing else."""
    kind = tool.hosted or tool.name
    if request.dialect == NAME:
        return [{kind: tool.config or {}}]
    if searches_web(tool) and target.profile.hosted_tools:
        if tool.config:
            losses.omit(path, "settings of the web search")
        return [{"googleSearch": {}}]
    choice = request.tool_choice
    forced = choice is not None and choice.kind == "hosted" and choice.mode == "named"
    (losses.refuse if forced else losses.drop)(path, f"the tool {kind!r} runs at another provider")
    return []


def _write_choice(request: Request, body: dict[str, Any]) -> None:
    key = spelled(body, "toolConfig")
    config = dict(body.get(key) or {})
    calling = dict(config.get(spelled(config, "functionCallingConfig")) or {})
    mode, names = _choice(request)
    put(calling, "mode", mode)
    put(calling, "allowedFunctionNames", names or None)
    put(config, "functionCallingConfig", calling or None)
    put(body, "toolConfig", config or None)


def _choice(request: Request) -> tuple[str | None, list[str]]:
    choice = request.tool_choice
    if choice is None:
        return None, []
    names = list(choice.names)
    if choice.mode in ("required", "named"):
        return "ANY", names
    if choice.mode == "allowed":
        return ("ANY" if choice.required else "VALIDATED"), names
    return ("NONE" if choice.mode == "none" else "AUTO"), []


# -- generationConfig --------------------------------------------------------------------------------------------------------


def _write_generation(request: Request, target: EncodeTarget, body: dict[str, Any], changed: set[str], losses: Losses) -> None:
    config: dict[str, Any] = dict(body.get(spelled(body, "generationConfig")) or {})
    untouched = dict(config)
    for name, key in _SCALARS.items():
        if name in changed:
            put(config, key, getattr(request, name))
    if "stop" in changed:
        put(config, "stopSequences", list(request.stop) or None)
    if "n" in changed:
        put(config, "candidateCount", request.n if request.n > 1 else None)
    if "logprobs" in changed:
        put(config, "responseLogprobs", True if request.logprobs is not None else None)
        put(config, "logprobs", request.logprobs or None)
    if "reasoning" in changed:
        put(config, "thinkingConfig", _thinking(request.reasoning, target.profile) or None)
        if request.reasoning.mode == "between_tools":
            losses.emulate("reasoning", "when to think is this model's own choice")
    if "output" in changed:
        _write_output(request, target, config, losses)
    if request.dialect != NAME:
        _write_resolution(request, config, losses)
    if config != untouched:
        put(body, "generationConfig", config or None)


def _thinking(reasoning: Reasoning, profile: Profile) -> dict[str, Any]:
    """Budgets for models that count tokens, levels for the others."""
    if profile.reasoning_control == "none":
        return {}
    config: dict[str, Any] = {}
    if profile.thinking_budget:
        budget = _budget(reasoning, profile)
        if budget is not None:
            config["thinkingBudget"] = budget
    else:
        level = _level(reasoning, profile)
        if level is not None:
            config["thinkingLevel"] = level
    visible = reasoning.visible
    if visible is None and (reasoning.summary is not None or reasoning.display == "summarized"):
        visible = True
    if visible is not None and config.get("thinkingBudget") != 0:
        # Thoughts of a model that does not think are refused.
        config["includeThoughts"] = visible
    return config


def _budget(reasoning: Reasoning, profile: Profile) -> int | None:
    if reasoning.mode == "off" or reasoning.effort == "none":
        return 0 if profile.thinking_off == "disabled" else _BUDGETS[_least_effort(profile)]
    if reasoning.budget is not None:
        return reasoning.budget
    if reasoning.effort is not None:
        return _BUDGETS[reasoning.effort]
    return None if reasoning.mode == "default" else -1


def _level(reasoning: Reasoning, profile: Profile) -> str | None:
    if reasoning.mode == "off" or reasoning.effort == "none":
        return _LEVELS[_least_effort(profile)]
    effort: str | None = reasoning.effort
    if effort is None and reasoning.budget is not None:
        effort = "low" if reasoning.budget < 2000 else "medium" if reasoning.budget < 10000 else "high"
        if effort not in profile.efforts:
            # The one level that some models lack is the middle one; less is never more than was asked for.
            effort = "low"
    return None if effort is None else _LEVELS[effort]


def _least_effort(profile: Profile) -> str:
    return next((effort for effort in _LEVELS if effort in profile.efforts), "minimal")


def _write_output(request: Request, target: EncodeTarget, config: dict[str, Any], losses: Losses) -> None:
    output = request.output
    put(config, "responseSchema", None)
    put(config, "responseJsonSchema", None)
    put(config, "responseMimeType", "application/json" if output.kind in ("json", "schema") else None)
    if output.kind == "schema" and output.schema is not None:
        as_json = target.profile.json_schema_tools
        schema = for_gemini(output.schema, json_schema=as_json, losses=losses.found, path="output.schema")
        put(config, "responseJsonSchema" if as_json else "responseSchema", schema or None)
    put(config, "responseModalities", [word.upper() for word in output.modalities] or None)
    for name in ("verbosity", "prediction", "audio"):
        if getattr(output, name) is not None:
            losses.omit(f"output.{name}", "not known to this upstream")
    for name in ("description", "strict"):
        if getattr(output, name):
            losses.hint(f"output.{name}", "schemas have no such field here")


def _write_resolution(request: Request, config: dict[str, Any], losses: Losses) -> None:
    """One resolution for all images is what every model takes."""
    parts = [part for turn in request.turns for part in turn.parts]
    parts += [inner for part in parts if isinstance(part, ToolResult) for inner in part.parts]
    details = {part.detail for part in parts if isinstance(part, Image)} - {None, "auto"}
    if len(details) == 1 and (detail := next(iter(details))) in ("low", "high"):
        config["mediaResolution"] = f"MEDIA_RESOLUTION_{str(detail).upper()}"
    elif details:
        losses.omit("image.detail", "this upstream takes one resolution, low or high, for all images")


# -- what has no place here --------------------------------------------------------------------------------------------------


def _labels(request: Request, target: EncodeTarget, losses: Losses) -> dict[str, Any] | None:
    if not request.metadata:
        return None
    if request.dialect != NAME and not target.profile.metadata:
        losses.omit("metadata", "not taken by this upstream")
        return None
    return {key: str(value) for key, value in request.metadata.items()}


def _knows_tier(request: Request, profile: Profile) -> bool:
    return profile.tier and request.tier in (profile.tiers or ("flex", "standard", "priority"))


def _report(request: Request, target: EncodeTarget, losses: Losses) -> None:
    for name, path in _NO_ROOM.items():
        if getattr(request, name):
            losses.omit(path, "not known to this upstream")
    if request.parallel is False:
        losses.drop("parallel_tool_calls", "this upstream has no switch for it")
    if request.tier is not None and not _knows_tier(request, target.profile):
        losses.omit("service_tier", f"the tier {request.tier!r} is not known to this upstream")
    for fields in (request.extras, request.server):
        for key in fields or ():
            losses.drop(key, "not known to this upstream")
    if request.cache.key is not None or request.cache.mark is not None:
        losses.omit("cache", "this upstream caches by itself")
