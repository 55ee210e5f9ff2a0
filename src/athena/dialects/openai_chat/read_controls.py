"""Everything of a request but its messages and tools: sampling, length, reasoning, output, caching.

Besides OpenAI's own fields the extensions that clients of other Chat servers send are understood, because clients do not know
which server answers them.

Wire facts: docs/reference/wire-facts.md#chat-requests.
"""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

from athena.dialects.openai_chat.media import cache_mark
from athena.dialects.openai_chat.vocabulary import NAME
from athena.model.request import Cache, Effort, Output, Reasoning, Request, ToolChoice
from athena.wire.fields import Fields

_EFFORTS: tuple[Effort, ...] = get_args(Effort)
_MODES = {
    "auto": ToolChoice("auto"),
    "none": ToolChoice("none"),
    "required": ToolChoice("required"),
    "any": ToolChoice("required"),
}

_FEW_FIELDS = frozenset({
    "model", "messages", "tools", "stream", "stream_options", "max_completion_tokens", "max_tokens", "temperature", "top_p",
})  # fmt: skip
"""A request of these alone asks for nothing else."""


_ABSENT = type(None)
_USUAL_TYPES: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "stream": (bool, _ABSENT),
    "stream_options": (dict, _ABSENT),
    "max_completion_tokens": (int, _ABSENT),
    "max_tokens": (int, _ABSENT),
    "temperature": (int, float, _ABSENT),
    "top_p": (int, float, _ABSENT),
}
_USUAL_VALUES = frozenset(product(*_USUAL_TYPES.values()))
"""The types of all values together that a usual request may have."""
_OPTIONS = frozenset({"include_usage"})


def usual_controls(value: dict[str, Any]) -> Request | None:
    """What `read_controls` reads of a body with few fields whose values are as usual; None for any other body. A field is then
    either understood as a whole or absent."""
    if not _FEW_FIELDS.issuperset(value):
        return None
    values: tuple[Any, ...] = tuple(map(value.get, _USUAL_TYPES))
    if tuple(map(type, values)) not in _USUAL_VALUES:
        return None
    model, streamed, options, newer, older, temperature, top_p = values
    if not model or (newer or 0) < 0 or (older or 0) < 0:
        return None
    usage = None
    if options is not None:
        usage = options.get("include_usage")
        if not _OPTIONS.issuperset(options) or (usage is not None and type(usage) is not bool):
            return None
    return Request(
        dialect=NAME,
        model=model,
        stream=bool(streamed),
        include_usage=usage,
        max_output=newer if newer is not None else older,
        temperature=temperature,
        top_p=top_p,
    )


def read_controls(fields: Fields, *, model: str | None = None, stream: bool | None = None) -> Request:
    """The request without system, turns and tools."""
    options = fields.child("stream_options")
    include_usage = options.flag("include_usage") if options is not None else None
    if _FEW_FIELDS.issuperset(fields.value):
        return Request(
            dialect=NAME,
            model=_model(fields, model),
            stream=bool(stream if stream is not None else fields.flag("stream")),
            include_usage=include_usage,
            max_output=_max_output(fields),
            temperature=fields.number("temperature"),
            top_p=fields.number("top_p"),
        )
    return Request(
        dialect=NAME,
        model=_model(fields, model),
        stream=bool(stream if stream is not None else fields.flag("stream")),
        include_usage=include_usage,
        tool_choice=_tool_choice(fields),
        parallel=fields.flag("parallel_tool_calls"),
        max_output=_max_output(fields),
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        top_k=fields.integer("top_k"),
        min_p=fields.number("min_p"),
        presence_penalty=fields.number("presence_penalty"),
        frequency_penalty=fields.number("frequency_penalty"),
        repetition_penalty=fields.number("repetition_penalty"),
        logit_bias=fields.mapping("logit_bias"),
        stop=fields.texts("stop"),
        seed=_first(fields.integer("seed"), fields.integer("random_seed")),
        n=_choices(fields),
        logprobs=_logprobs(fields),
        reasoning=_reasoning(fields),
        output=_output(fields),
        cache=_cache(fields),
        end_user=_first(fields.text("safety_identifier"), fields.text("user"), fields.text("user_id")),
        metadata=fields.mapping("metadata"),
        tier=fields.text("service_tier"),
        store=fields.flag("store"),
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _max_output(fields: Fields) -> int | None:
    newer, older = fields.integer("max_completion_tokens"), fields.integer("max_tokens")
    if newer is not None and newer < 0:
        raise fields.wrong("max_completion_tokens", "zero or more")
    if older is not None and older < 0:
        raise fields.wrong("max_tokens", "zero or more")
    return newer if newer is not None else older


def _choices(fields: Fields) -> int:
    count = fields.integer("n")
    if count is not None and count < 1:
        raise fields.wrong("n", "one or more")
    return count or 1


def _logprobs(fields: Fields) -> int | None:
    wanted, count = fields.flag("logprobs"), fields.integer("top_logprobs")
    return (count or 0) if wanted else None


def _model(fields: Fields, named: str | None) -> str:
    """The path's model, where it names one: then the body need not, and what it says is no loss."""
    if named:
        fields.any("model")
        return named
    return fields.needed_text("model", allow_empty=False)


def _tool_choice(fields: Fields) -> ToolChoice | None:
    value = fields.any("tool_choice")
    if value is not None:
        return _read_choice(fields, "tool_choice", value)
    older = fields.any("function_call")
    if isinstance(older, dict):
        return ToolChoice("named", (fields.inner(older, "function_call").needed_text("name", allow_empty=False),))
    return _read_choice(fields, "function_call", older) if older is not None else None


def _read_choice(fields: Fields, key: str, value: object) -> ToolChoice | None:
    if isinstance(value, str):
        if value not in _MODES:
            fields.forget(key)
        return _MODES.get(value)
    if not isinstance(value, dict):
        raise fields.wrong(key, "auto, none, required or an object")
    choice = fields.inner(value, fields.at(key))
    kind = choice.text("type") or ("function" if choice.has("function") else None)
    if kind == "function" or kind == "custom":
        inner = choice.child(kind)
        named = inner if inner is not None else choice
        return ToolChoice(
            "named", (named.needed_text("name", allow_empty=False),), "custom" if kind == "custom" else "function"
        )
    if kind == "allowed_tools":
        inner = choice.child("allowed_tools") or choice
        names = tuple(_tool_name(tool) for tool in inner.children("tools"))
        return ToolChoice("allowed", names, required=inner.text("mode") == "required")
    if kind in _MODES:
        return _read_choice(fields, key, kind)
    if kind is None:
        raise choice.wrong("type", "function, custom or allowed_tools")
    return ToolChoice("named", (kind,), "hosted")


def _tool_name(tool: Fields) -> str:
    kind = tool.text("type") or "function"
    inner = tool.child(kind) if isinstance(tool.value.get(kind), dict) else None
    return (inner or tool).needed_text("name", allow_empty=False)


def _reasoning(fields: Fields) -> Reasoning:
    found: dict[str, Any] = {}
    effort = fields.any("reasoning_effort")
    if effort in _EFFORTS:
        found["effort"] = effort
    elif isinstance(effort, str | int | float):
        fields.forget("reasoning_effort")
    elif effort is not None:
        raise fields.wrong("reasoning_effort", "an effort")
    _openrouter_reasoning(fields, found)
    _thinking_switch(fields, found)
    if found.get("effort") == "none":
        found["mode"] = "off"
    return Reasoning(**found)


def _openrouter_reasoning(fields: Fields, found: dict[str, Any]) -> None:
    shown = fields.flag("include_reasoning")
    if shown is not None:
        found["visible"] = shown
    if not isinstance(fields.value.get("reasoning"), dict):
        return
    control = fields.child("reasoning")
    assert control is not None
    effort = control.text("effort")
    if effort in _EFFORTS:
        found["effort"] = effort
    elif effort is not None:
        control.forget("effort")
    budget = control.integer("max_tokens")
    if budget is not None:
        found["budget"] = budget
    enabled = control.flag("enabled")
    if enabled is not None:
        found["mode"] = "on" if enabled else "off"
    hidden = control.flag("exclude")
    if hidden is not None:
        found["visible"] = not hidden
    summary = control.text("summary")
    if summary is not None:
        found["summary"] = summary


def _thinking_switch(fields: Fields, found: dict[str, Any]) -> None:
    """Switches of servers where thinking is on or off: an object, a flag, or an argument of the chat template."""
    thinking = fields.any("thinking")
    if isinstance(thinking, dict):
        mode = {"enabled": "on", "disabled": "off", "adaptive": "adaptive", "auto": "default"}.get(str(thinking.get("type")))
        if mode is not None:
            found["mode"] = mode
        budget = thinking.get("budget_tokens")
        if isinstance(budget, int) and not isinstance(budget, bool):
            found["budget"] = budget
    switch = fields.any("enable_thinking")
    arguments = fields.any("chat_template_kwargs")
    if isinstance(arguments, dict):
        switch = _first(arguments.get("enable_thinking"), arguments.get("thinking"), switch)
    if isinstance(switch, bool):
        found["mode"] = "on" if switch else "off"


def _output(fields: Fields) -> Output:
    found: dict[str, Any] = {}
    form = fields.child("response_format")
    if form is not None:
        kind = form.needed_text("type")
        if kind == "json_object":
            found["kind"] = "json"
            schema = form.mapping("schema")
            if schema is not None:
                found.update(kind="schema", schema=schema)
        elif kind == "json_schema":
            inner = form.child("json_schema")
            if inner is None:
                raise form.wrong("json_schema", "an object with name and schema")
            schema = inner.mapping("schema")
            found.update(
                kind="json" if schema is None else "schema",
                name=inner.text("name"),
                schema=schema,
                strict=inner.flag("strict"),
                description=inner.text("description"),
            )
        elif kind != "text":
            fields.forget("response_format")
    return Output(
        **found,
        verbosity=fields.text("verbosity"),
        modalities=fields.texts("modalities"),
        audio=fields.mapping("audio"),
        prediction=fields.any("prediction"),
    )


def _cache(fields: Fields) -> Cache:
    options = fields.any("prompt_cache_options")
    retention = fields.any("prompt_cache_retention")
    if retention is not None:
        options = {**(options if isinstance(options, dict) else {}), "retention": retention}
    return Cache(key=fields.text("prompt_cache_key"), mark=cache_mark(fields), options=options)
