"""A prepared request as a body for a Messages upstream.

A request that came in this dialect starts from its own JSON: only the fields whose meaning changed are written anew, so an
unchanged request goes out equal, unknown fields included. From any other dialect the body is built from nothing, because this
API refuses fields it does not know.

Wire facts: docs/reference/wire-facts.md#anthropic-messages.
"""

from __future__ import annotations

import operator
from typing import Any

import msgspec

from athena.dialects.anthropic_messages.decode_request import read_settings
from athena.dialects.anthropic_messages.encode_blocks import AnthropicMessageWriter, MessageDraft, cache_control, marked
from athena.dialects.anthropic_messages.encode_thinking import ThinkingFields, lacks_thinking, write_thinking
from athena.dialects.anthropic_messages.encode_tools import tools_of_history, write_choice, write_tools
from athena.dialects.anthropic_messages.field_filter import without_fields
from athena.dialects.anthropic_messages.vocabulary import NAME, NEW_VERSION, OLD_VERSION
from athena.dialects.base import Encoded, EncodeTarget
from athena.dialects.losses import Losses
from athena.model.parts import Text
from athena.model.profile import Profile
from athena.model.request import Output, Reasoning, Request
from athena.schemas import for_anthropic_output
from athena.wire.fields import Fields
from athena.wire.recall import Recall

PATH = "/v1/messages"
CACHE_BREAKPOINTS = 4
JSON_ONLY = "Answer with one JSON object and nothing else: no prose, no code fence."
JSON_SCHEMA_ONLY = "Answer with JSON that matches this schema and nothing else: no prose, no code fence."

_SAMPLING = ("temperature", "top_p", "top_k")
_UNKNOWN_SAMPLING = (
    "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "seed", "logprobs",
)  # fmt: skip
_REFUSED_SERVER = ("conversation", "background", "prompt", "container", "cached_content", "cachedContent")
"""Settings of other providers that stand for content or a promise: an answer without them would answer another question."""


def encode_request(request: Request, target: EncodeTarget, recall: Recall | None = None) -> Encoded:
    """The body, its path and headers, and what did not survive."""
    same = request.dialect == NAME
    report = Losses(strict=target.strict)
    writer = AnthropicMessageWriter(target, report, same=same, recall=recall)
    messages = writer.messages(request.turns)
    if same and request.raw is not None:
        body = _overlaid(request, request.raw, target, messages, writer, report)
    else:
        body = _built(request, target, messages, writer, report, recall)
    for key, value in target.profile.body.items():
        body.setdefault(key, value)
    body = without_fields(body, target.profile.drop_fields, report)
    version = target.profile.wire_version or _version(request, body, same=same)
    headers = {"anthropic-version": version, **target.profile.headers}
    return Encoded(body=body, path=PATH, headers=headers, losses=tuple(report.found))


def _version(request: Request, body: dict[str, Any], *, same: bool) -> str:
    """A client's own version goes on; a translated request takes the old one only to keep its sampling parameters.

    A client that named none gets the old one, which takes all that the new one does.
    """
    if same:
        return request.wire_version or OLD_VERSION
    return OLD_VERSION if any(key in body for key in _SAMPLING) else NEW_VERSION


# -- from this dialect ----------------------------------------------------------------------------------------------------


def _overlaid(
    request: Request,
    raw: dict[str, Any],
    target: EncodeTarget,
    messages: list[MessageDraft],
    writer: AnthropicMessageWriter,
    report: Losses,
) -> dict[str, Any]:
    body = dict(raw)
    body["model"] = target.model
    body["messages"] = [message.value() for message in messages]
    system = request.system
    if not (len(system) == 1 and isinstance(system[0].raw, str)):
        _put_list(body, "system", writer.system(system))
    _put_list(body, "tools", write_tools(request, target, report, same=True))
    if bool(raw.get("stream")) != request.stream:
        _put(body, "stream", request.stream or None)
    before = read_settings(Fields(raw))
    after = {key: getattr(request, key) for key in before}
    without_tools = not request.tools and not raw.get("thread")  # a thread keeps its tools
    if any(after[key] != before[key] for key in ("tool_choice", "parallel")) or without_tools:
        _put_choice(body, request)
    for key in _SAMPLING:
        if after[key] != before[key]:
            _put(body, key, after[key])
    if after["stop"] != before["stop"]:
        _put(body, "stop_sequences", list(request.stop) or None)
    _overlay_thinking(body, request, before, target.profile, messages, report)
    return body


def _overlay_thinking(
    body: dict[str, Any],
    request: Request,
    before: dict[str, Any],
    profile: Profile,
    messages: list[MessageDraft],
    report: Losses,
) -> None:
    """Thinking and the shape of the answer: written anew only where the client's own words no longer fit."""
    fits = _takes(request.reasoning, profile) and not (request.reasoning.mode == "on" and lacks_thinking(messages))
    changed = request.reasoning != before["reasoning"] or not fits
    config = dict(body.get("output_config") or {})
    if changed:
        written = _fitting_thinking(request, profile, messages, report, same=True)
        _put(body, "thinking", written.thinking)
        _put(body, "max_tokens", written.max_tokens)
        _put(config, "effort", written.effort)
    elif request.max_output != before["max_output"]:
        _put(body, "max_tokens", request.max_output)
    if request.output != before["output"]:
        body.pop("output_format", None)
        _put(config, "format", _output_format(request.output, report))
    if changed or request.output != before["output"]:
        _put(body, "output_config", config or None)


def _takes(reasoning: Reasoning, profile: Profile) -> bool:
    """Does the model take the client's kind of thinking as it was asked for?"""
    if reasoning.mode == "on":
        return profile.thinking_budget or not profile.thinking_adaptive
    if reasoning.mode == "adaptive":
        return profile.thinking_adaptive or not profile.thinking_budget
    if reasoning.mode == "off":
        return profile.thinking_off == "disabled"
    return True


def _put(body: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        body.pop(key, None)
    else:
        body[key] = value


def _put_choice(body: dict[str, Any], request: Request) -> None:
    """Without tools a choice is refused; one that was null anyway may stay."""
    if request.tools:
        _put(body, "tool_choice", write_choice(request.tool_choice, request.parallel))
    elif body.get("tool_choice") is not None:
        del body["tool_choice"]


def _put_list(body: dict[str, Any], key: str, value: list[dict[str, Any]]) -> None:
    """An empty list says nothing: it stays where the client itself wrote nothing in its own way."""
    own = body.get(key)
    if isinstance(own, list) and len(own) == len(value) and all(map(operator.is_, own, value)):
        return
    if value or own:
        _put(body, key, value or None)


# -- from any other dialect -------------------------------------------------------------------------------------------------


def _built(
    request: Request,
    target: EncodeTarget,
    messages: list[MessageDraft],
    writer: AnthropicMessageWriter,
    report: Losses,
    recall: Recall | None,
) -> dict[str, Any]:
    profile = target.profile
    _check(request, report)
    output_format, instruction = _output(request.output, profile, report)
    system = writer.system((*request.system, Text(text=instruction)) if instruction else request.system)
    tools = write_tools(request, target, report, same=False, recall=recall)
    choice = write_choice(request.tool_choice, request.parallel) if tools else None
    if not tools and (tools := tools_of_history(messages)):
        choice = {"type": "none"}
        report.repair("tools", "the history holds calls, so their tools are declared and switched off")
    thinking = _fitting_thinking(request, profile, messages, report, same=False)
    body: dict[str, Any] = {"model": target.model, "max_tokens": thinking.max_tokens}
    _put(body, "system", system or None)
    body["messages"] = [message.value() for message in messages]
    _put(body, "tools", tools or None)
    _put(body, "tool_choice", choice)
    _put(body, "thinking", thinking.thinking)
    config: dict[str, Any] = {}
    _put(config, "effort", thinking.effort)
    _put(config, "format", output_format)
    _put(body, "output_config", config or None)
    _put_sampling(body, request, report)
    _put(body, "stop_sequences", _stops(request, report) or None)
    _put(body, "stream", request.stream or None)
    _put_identity(body, request, profile, report)
    _put_cache(body, request, profile)
    _put_extras(body, request, profile, report)
    return body


def _fitting_thinking(
    request: Request, profile: Profile, messages: list[MessageDraft], report: Losses, *, same: bool
) -> ThinkingFields:
    """Thinking as the model takes it, and off for a step it could not have thought about itself."""
    written = write_thinking(request.reasoning, request.max_output, profile, report, same=same)
    if written.thinking is None or written.thinking["type"] != "enabled" or not lacks_thinking(messages):
        return written
    report.repair("reasoning", "thinking is off for this step: its first call came from a model that signs nothing here")
    limit = request.max_output if request.max_output is not None else written.max_tokens
    return ThinkingFields({"type": "disabled"}, written.effort, limit)


def _check(request: Request, report: Losses) -> None:
    """What has no place here at all."""
    if request.n > 1:
        report.refuse("n", f"this API gives one answer per request, not {request.n}")
    if request.previous_id:
        report.refuse("previous_response_id", "this API keeps no conversations; send the whole history")
    if any(kind != "text" for kind in request.output.modalities) or request.output.audio is not None:
        report.refuse("modalities", "this API answers in text only")
    for key in _UNKNOWN_SAMPLING:
        if getattr(request, key) is not None:
            report.drop(key, "this API has no such parameter")
    for key in ("verbosity", "prediction"):
        if getattr(request.output, key) is not None:
            report.drop(key, "this API has no such parameter")
    if request.output.description is not None:
        report.hint("response_format.description", "a schema has no description of its own here")
    wanted = request.reasoning
    if (wanted.summary or wanted.visible) and wanted.mode == "default" and wanted.effort is None:
        report.hint("reasoning.display", "this model is not asked to think")
    if request.metadata:
        report.hint("metadata", "this API keeps no metadata but the user's id")
    if request.cache.key is not None:
        report.hint("prompt_cache_key", "this API caches by breakpoints")
    for key, value in (request.server or {}).items():
        if key in _REFUSED_SERVER and value:
            report.refuse(key, "it belongs to another provider's service and cannot be left out")
        report.drop(key, "a setting of another provider's service")


def _output(output: Output, profile: Profile, report: Losses) -> tuple[dict[str, Any] | None, str]:
    """The format to send, or an instruction where the model has none for it."""
    if output.kind == "json":
        report.emulate("response_format", "free JSON is asked for in words; only a schema can be enforced here")
        return None, JSON_ONLY
    if output.kind == "schema" and not profile.json_schema and output.schema is not None:
        report.emulate("response_format", "the schema is told to the model, not enforced")
        return None, f"{JSON_SCHEMA_ONLY}\n{msgspec.json.encode(output.schema).decode()}"
    return _output_format(output, report), ""


def _output_format(output: Output, report: Losses) -> dict[str, Any] | None:
    if output.kind != "schema" or output.schema is None:
        return None
    return {"type": "json_schema", "schema": for_anthropic_output(output.schema, losses=report.found, growth=report.growth)}


def _put_sampling(body: dict[str, Any], request: Request, report: Losses) -> None:
    temperature = request.temperature
    if temperature is not None and temperature > 1:
        report.repair("temperature", "lowered to 1, the most this API takes")
        temperature = 1
    _put(body, "temperature", temperature)
    _put(body, "top_p", request.top_p)
    _put(body, "top_k", request.top_k)


def _stops(request: Request, report: Losses) -> list[str]:
    kept = [stop for stop in request.stop if stop.strip()]
    if len(kept) < len(request.stop):
        report.drop("stop", "a stop sequence of nothing but whitespace is refused here")
    return kept


def _put_identity(body: dict[str, Any], request: Request, profile: Profile, report: Losses) -> None:
    if request.end_user is not None:
        if profile.user_field in (None, "metadata.user_id"):
            body["metadata"] = {"user_id": request.end_user}
        else:
            body[str(profile.user_field)] = request.end_user
    if request.tier is None:
        return
    if not profile.tier:
        report.hint("service_tier", "this upstream has no service tiers")
        return
    body["service_tier"] = "standard_only" if request.tier in ("default", "standard", "standard_only") else "auto"
    if request.tier not in ("default", "standard", "standard_only", "auto"):
        report.emulate("service_tier", f"{request.tier} is sent as auto")


def _put_cache(body: dict[str, Any], request: Request, profile: Profile) -> None:
    """The top-level mark, and at most four breakpoints in all: the last ones reach furthest."""
    room = CACHE_BREAKPOINTS
    if request.cache.mark is not None and profile.cache_marks == "cache_control":
        body["cache_control"] = cache_control(request.cache.mark, same=False)
        room -= 1
    places = [*marked(body.get("tools", [])), *marked(body.get("system", []))]
    for message in body["messages"]:
        places.extend(marked(message["content"]))
    for node in places[: max(0, len(places) - room)]:
        del node["cache_control"]


def _put_extras(body: dict[str, Any], request: Request, profile: Profile, report: Losses) -> None:
    for key, value in (request.extras or {}).items():
        if key in profile.pass_fields and key not in body:
            body[key] = value
        else:
            report.hint(key, "unknown to this dialect")
