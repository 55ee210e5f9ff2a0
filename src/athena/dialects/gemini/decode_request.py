"""A Gemini body as a neutral request. The model and whether to stream come from the URL.

Wire facts: docs/reference/wire-facts.md#gemini-requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from athena.dialects.gemini.decode_contents import NAME, decode_contents, decode_instruction
from athena.dialects.gemini.openapi import json_schema
from athena.dialects.gemini.spelling import EitherCase, camel
from athena.model.request import Cache, Effort, Output, Reasoning, Request, Tool, ToolChoice
from athena.wire.recall import Recall

_EFFORTS: dict[str, Effort] = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}
_SERVER = ("safetySettings", "cachedContent")
_SERVER_CONFIG = (
    "mediaResolution", "speechConfig", "imageConfig", "continuationToken", "audioTimestamp", "routingConfig",
    "modelSelectionConfig", "enableEnhancedCivicAnswers", "modelArmorConfig", "audioTranscriptionConfig",
    "enableAffectiveDialog",
)  # fmt: skip


def decode_request(
    body: Mapping[str, Any],
    *,
    model: str | None = None,
    stream: bool | None = None,
    version: str | None = None,
    recall: Recall | None = None,
) -> Request:
    """The request; raises InvalidRequest with the path of what is wrong."""
    raw = dict(body)
    fields = EitherCase(raw, recall=recall)
    turns = decode_contents(fields)
    settings = decode_settings(fields)
    named = fields.text("model")
    extras = fields.rest() or {}
    config_extras = settings.pop("config_extras", None)
    if config_extras:
        extras["generationConfig"] = config_extras
    return Request(
        dialect=NAME,
        model=plain_model(model or named or ""),
        stream=bool(stream),
        turns=turns,
        raw=raw,
        extras=extras or None,
        unread=fields.unread(),
        **settings,
    )


def plain_model(model: str) -> str:
    """The name without the collection it stands in."""
    return model.removeprefix("models/")


def decode_settings(fields: EitherCase) -> dict[str, Any]:
    """Everything of the body but its conversation, as fields of `Request`.

    The encoder reads its own client's body through this once more, to see which fields have changed.
    """
    settings: dict[str, Any] = {
        "system": decode_instruction(fields),
        "tools": fields.whole_field("tools", _tools),
        "metadata": fields.mapping("labels"),
        "store": fields.flag("store"),
    }
    tier = fields.word("serviceTier")
    settings["tier"] = tier.lower().removeprefix("service_tier_") if tier else None
    server = {key: fields.any(key) for key in _SERVER if fields.has(key)}
    config = fields.child("toolConfig")
    settings["tool_choice"] = _tool_choice(config) if config is not None else None
    if config is not None:
        server.update(config.rest() or {})
    generation = fields.child("generationConfig")
    if generation is not None:
        settings.update(_generation(generation))
        server.update({key: generation.any(key) for key in _SERVER_CONFIG if generation.has(key)})
        settings["config_extras"] = generation.rest()
    settings["server"] = server or None
    if server.get("cachedContent"):
        settings["cache"] = Cache(options={"cachedContent": server["cachedContent"]})
    return settings


def _generation(config: EitherCase) -> dict[str, Any]:
    return {
        "temperature": config.number("temperature"),
        "top_p": config.number("topP"),
        "top_k": config.integer("topK"),
        "n": config.integer("candidateCount") or 1,
        "max_output": config.integer("maxOutputTokens"),
        "stop": config.texts("stopSequences"),
        "seed": config.integer("seed"),
        "presence_penalty": config.number("presencePenalty"),
        "frequency_penalty": config.number("frequencyPenalty"),
        "logprobs": _logprobs(config),
        "reasoning": _reasoning(config),
        "output": _output(config),
    }


def _logprobs(config: EitherCase) -> int | None:
    wanted, count = config.flag("responseLogprobs"), config.integer("logprobs")
    return (count or 0) if wanted else None


def _reasoning(config: EitherCase) -> Reasoning:
    thinking = config.child("thinkingConfig")
    if thinking is None:
        return Reasoning()
    budget, level = thinking.integer("thinkingBudget"), thinking.word("thinkingLevel")
    visible = thinking.flag("includeThoughts")
    if level is not None:
        effort = _EFFORTS.get(level.removeprefix("THINKING_LEVEL_"))
        if effort is None:
            thinking.forget("thinkingLevel")
            return Reasoning(visible=visible)
        return Reasoning(mode="on", effort=effort, budget=budget if budget and budget > 0 else None, visible=visible)
    if budget is None:
        return Reasoning(visible=visible)
    if budget < -1:
        raise thinking.wrong("thinkingBudget", "-1, 0 or a number of tokens")
    if budget <= 0:
        return Reasoning(mode="off" if budget == 0 else "adaptive", visible=visible)
    return Reasoning(mode="on", budget=budget, visible=visible)


def _output(config: EitherCase) -> Output:
    mime = (config.text("responseMimeType") or "").lower()
    schema = None
    for key in ("responseJsonSchema", "responseSchema"):
        if config.has(key):
            schema = json_schema(config.any(key), config.at(key))
            break
    config.any("responseSchema")
    modalities = tuple(word.lower() for word in config.texts("responseModalities"))
    if mime == "application/json" or (schema is not None and mime != "text/x.enum"):
        kind = "json" if schema is None else "schema"
        return Output(kind=kind, schema=schema, modalities=modalities)  # type: ignore[arg-type]  # the two words of the Literal
    if mime == "text/x.enum":
        return Output(kind="text", schema=schema, modalities=modalities)
    return Output(modalities=modalities)


# -- tools -------------------------------------------------------------------------------------------------------------------


def _tools(fields: EitherCase) -> tuple[Tool, ...]:
    """Functions and hosted tools in order; a single object stands for a list of one."""
    tools: list[Tool] = []
    for entry in fields.children("tools"):
        for declaration in entry.children("functionDeclarations"):
            tools.append(_function(declaration))
        for key, config in (entry.rest() or {}).items():
            kind = camel(key)
            tools.append(
                Tool(
                    name=kind,
                    kind="hosted",
                    hosted=kind,
                    config=config if isinstance(config, dict) else {"value": config},
                    raw={key: config},
                )
            )
    return tuple(tools)


def _function(declaration: EitherCase) -> Tool:
    name = declaration.needed_text("name", allow_empty=False)
    schema = None
    for key in ("parametersJsonSchema", "parameters"):
        if declaration.has(key):
            schema = json_schema(declaration.any(key), declaration.at(key))
            break
    declaration.any("parameters")
    return Tool(
        name=name,
        description=declaration.text("description"),
        schema=schema,
        raw=declaration.value,
        extras=declaration.rest(),
    )


def _tool_choice(config: EitherCase) -> ToolChoice | None:
    calling = config.child("functionCallingConfig")
    if calling is None:
        return None
    mode, names = calling.word("mode"), calling.texts("allowedFunctionNames")
    if mode is None:
        return None
    if mode == "ANY":
        if not names:
            return ToolChoice("required")
        return ToolChoice("named", names) if len(names) == 1 else ToolChoice("allowed", names, required=True)
    if mode == "VALIDATED" and names:
        return ToolChoice("allowed", names)
    if names:
        calling.forget("allowedFunctionNames")  # they count with the other two modes only
    if mode in ("AUTO", "NONE"):
        return ToolChoice("auto" if mode == "AUTO" else "none")
    calling.forget("mode")
    return ToolChoice("auto") if mode == "VALIDATED" else None
