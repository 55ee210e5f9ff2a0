"""A neutral Request as a Responses body.

A request that came in this dialect starts from its own raw body and only what no longer fits is written anew; any other request
is written from nothing. Both use the same writers, one per group of fields.

Wire facts: docs/reference/wire-facts.md#rules-of-translation.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any

from athena.calls.ids import hashed
from athena.dialects.base import Encoded, EncodeTarget
from athena.dialects.losses import Losses
from athena.dialects.openai_responses.decode_items import decode_input, is_instruction
from athena.dialects.openai_responses.decode_request import read_instructions, read_settings
from athena.dialects.openai_responses.decode_tools import decode_tools
from athena.dialects.openai_responses.encode_items import ItemEncoder
from athena.dialects.openai_responses.encode_tools import encode_output, encode_tool_choice, encode_tools
from athena.dialects.openai_responses.vocabulary import ENCRYPTED_REASONING, MINIMUM_OUTPUT, NAME, OUTPUT_LOGPROBS
from athena.errors import UnsupportedFeature
from athena.model.parts import Text
from athena.model.request import Effort, Reasoning, Request
from athena.wire.fields import Fields
from athena.wire.recall import Recall

_PATH = "/responses"
_Body = dict[str, Any]
_EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_IDENTITY_LENGTH = 128
_SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


def encode_request(request: Request, target: EncodeTarget, recall: Recall | None = None) -> Encoded:
    """The body to POST and what it lost."""
    losses = Losses(strict=target.strict)
    if request.dialect == NAME and request.raw is not None:
        body = _overlaid(request, target, losses)
    else:
        body = _fresh(request, target, losses, recall)
    for field in target.profile.drop_fields:
        if body.pop(field, None) is not None:
            losses.hint(field, "not taken by this upstream")
    for field, value in target.profile.body.items():
        body.setdefault(field, value)
    return Encoded(body, _PATH, losses=tuple(losses.found))


# -- from the client's own body ---------------------------------------------------------------------------------------------


def _overlaid(request: Request, target: EncodeTarget, losses: Losses) -> _Body:
    raw = request.raw or {}
    body = {**raw, "model": target.model}
    if request.stream != bool(raw.get("stream")):
        body["stream"] = request.stream
    _overlay_conversation(request, target, losses, body)
    before = read_settings(Fields(raw))
    for fields, write in _WRITERS:
        if any(getattr(request, field) != before[field] for field in fields if field in before):
            write(request, target, body, losses)
    if request.kept is not None and target.profile.reasoning_control != "none":
        # This gateway keeps the conversation, and its reasoning with it: the state has to come with the answer.
        include = body.get("include")
        given = include if isinstance(include, list) else []
        if ENCRYPTED_REASONING not in given:
            body["include"] = [*given, ENCRYPTED_REASONING]
    return body


def _overlay_conversation(request: Request, target: EncodeTarget, losses: Losses, body: _Body) -> None:
    """Instructions, items and tools: each as it came unless it no longer says the same."""
    fields = Fields(request.raw or {})
    given = body.get("input")
    items: list[Any] = given if isinstance(given, list) else [{"role": "user", "content": given}] if given is not None else []
    declared = [item for item in items if item.get("type") == "additional_tools"]
    said = [item for item in items if item.get("type") != "additional_tools"]
    # Only the items that are no turns are read again; turns say themselves whether they were changed.
    leading = list(takewhile(is_instruction, said))
    before = decode_input(Fields({"input": [*declared, *leading]}))
    listed = tuple(tool for tool in request.tools if not tool.inline)
    same_tools = listed == (*decode_tools(fields.children("tools")), *before.tools)
    encoder = ItemEncoder(request, target, losses)
    if request.system == (*read_instructions(fields), *before.system):
        system = leading
    else:
        system = _write_system(request, body, encoder)
    spoken = [*system, *encoder.turns()]
    if spoken != said or (declared and not same_tools):
        body["input"] = [*(declared if same_tools else ()), *spoken]
    if not same_tools:
        _write_tools(request, target, body, losses)


# -- from nothing -----------------------------------------------------------------------------------------------------------


def _fresh(request: Request, target: EncodeTarget, losses: Losses, recall: Recall | None) -> _Body:
    if request.previous_id is not None and request.dialect != NAME:
        raise UnsupportedFeature("previous_id: conversations stored elsewhere cannot be continued here", path="previous_id")
    if request.n > 1:
        raise UnsupportedFeature(f"n: this upstream gives one answer per request, not {request.n}", path="n")
    body: _Body = {"model": target.model}
    encoder = ItemEncoder(request, target, losses, recall)
    system = _write_system(request, body, encoder)
    body["input"] = [*system, *encoder.turns()]
    if request.stream:
        body["stream"] = True
    _write_tools(request, target, body, losses, recall)
    for _, write in _WRITERS:
        write(request, target, body, losses)
    _report_rest(request, target, body, losses)
    return body


def _report_rest(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    """What this dialect has no field for."""
    for field in (
        "top_k", "min_p", "repetition_penalty", "logit_bias", "seed",
    ):  # fmt: skip
        value = getattr(request, field)
        if value is not None and target.profile.chat_sampling and field in target.profile.sampling:
            body[field] = value
        elif value is not None:
            losses.drop(field, "this API has no such field")
    if request.stop:
        losses.drop("stop", "this API has no stop sequences")
    if request.speed is not None:
        losses.hint("speed", "this API has no such field")
    for key in request.server or ():
        losses.drop(key, "bound to another provider's services")
    for key, value in (request.extras or {}).items():
        if key in target.profile.pass_fields:
            body[key] = value
        else:
            losses.hint(key, "unknown field of another dialect")


# -- writers: each sets or removes its fields in a body ------------------------------------------------------------------------


def _set(body: _Body, key: str, value: Any) -> None:
    if value is None:
        body.pop(key, None)
    else:
        body[key] = value


def _write_system(request: Request, body: _Body, encoder: ItemEncoder) -> list[dict[str, Any]]:
    """Instructions as a string where they are one plain text, else as the leading message that is returned."""
    body.pop("instructions", None)
    system = request.system
    if len(system) == 1 and isinstance(system[0], Text) and system[0].cache is None:
        _set(body, "instructions", system[0].text or None)
        return []
    return encoder.system()


def _write_tools(request: Request, target: EncodeTarget, body: _Body, losses: Losses, recall: Recall | None = None) -> None:
    _set(body, "tools", encode_tools(request, target, losses, recall) or None)
    if "tools" not in body:
        body.pop("tool_choice", None)


def _write_choice(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    choice = request.tool_choice
    if choice is None or not request.tools:
        body.pop("tool_choice", None)
    elif "tools" in body or request.dialect == NAME:
        body["tool_choice"] = encode_tool_choice(choice, request.tools)


def _write_parallel(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    _set(body, "parallel_tool_calls", request.parallel)


def _write_sampling(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    for field in _SAMPLING:
        _set(body, field, getattr(request, field))


def _write_length(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    limit = request.max_output
    if limit is not None and limit < MINIMUM_OUTPUT:
        losses.emulate("max_output", f"raised to {MINIMUM_OUTPUT}, the least this API takes")
        limit = MINIMUM_OUTPUT
    _set(body, "max_output_tokens", limit)


def _write_reasoning(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    wanted, profile = request.reasoning, target.profile
    known = body.get("reasoning")
    reasoning = dict(known) if isinstance(known, dict) else {}
    if profile.reasoning_control == "none":
        if wanted != Reasoning():
            losses.drop("reasoning", "this upstream has no control of reasoning")
        body.pop("reasoning", None)
        return
    if wanted.mode == "between_tools" and request.dialect != NAME:
        losses.emulate("reasoning", "this model cannot be told when to think; it is asked for little effort")
    _set(reasoning, "effort", _effort(wanted, profile.efforts))
    summary = wanted.summary
    if summary is None and wanted.visible is not False and (wanted.visible or wanted.mode in ("on", "adaptive")):
        summary = "auto"
    _set(reasoning, "summary", summary)
    _set(body, "reasoning", reasoning or None)


def _effort(wanted: Reasoning, known: tuple[str, ...]) -> str | None:
    """The effort the client named, or the one its switch or budget stands for."""
    if wanted.mode == "off":
        return _nearest("none", known)
    if wanted.effort is not None:
        return wanted.effort
    if wanted.mode == "between_tools":
        return _nearest("low", known)
    if wanted.budget is None or wanted.budget < 0:
        return None
    for limit, effort in ((2000, "low"), (10000, "medium"), (32000, "high")):
        if wanted.budget < limit:
            return _nearest(effort, known)
    return _nearest("xhigh", known)


def _nearest(effort: str, known: tuple[str, ...]) -> str:
    ranked = [candidate for candidate in _EFFORTS if candidate in known]
    if effort in ranked or not ranked:
        return effort
    position = _EFFORTS.index(effort)
    lower = [candidate for candidate in ranked if _EFFORTS.index(candidate) < position and candidate != "none"]
    return lower[-1] if lower else ranked[0]


def _write_output(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    output = request.output
    spoken = [modality for modality in output.modalities if modality.lower() != "text"]
    if spoken or output.audio is not None:
        raise UnsupportedFeature("modalities: this upstream answers in text only", path="modalities")
    if output.prediction is not None:
        losses.hint("prediction", "this API has no such field")
    _set(body, "text", encode_output(output, target, losses) or None)


def _write_storage(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    """Nothing is stored upstream unless asked for and allowed; then reasoning state has to travel with the answers."""
    include = list(request.include) if request.dialect == NAME else []
    if request.dialect == NAME:
        _set(body, "store", request.store)
    else:
        keep = bool(request.store) and target.profile.store
        body["store"] = keep
        if target.profile.reasoning_control != "none":
            include.append(ENCRYPTED_REASONING)
    if request.logprobs is None:
        include = [entry for entry in include if entry != OUTPUT_LOGPROBS]
    elif OUTPUT_LOGPROBS not in include:
        include.append(OUTPUT_LOGPROBS)
    _set(body, "top_logprobs", request.logprobs or None)
    _set(body, "include", include or None)


def _write_cache(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    _set(body, "prompt_cache_key", request.cache.key)
    if request.dialect == NAME:
        _set(body, "prompt_cache_options", request.cache.options)


def _write_identity(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    profile, user = target.profile, request.end_user
    if request.dialect == NAME:
        # A client names its user in one of two fields; a changed identity goes where it was.
        _set(
            body,
            "user" if body.get("user") is not None and body.get("safety_identifier") is None else "safety_identifier",
            user,
        )
    elif user is not None:
        if profile.user_field is None:
            losses.hint("end_user", "this upstream takes no end user")
        else:
            body[profile.user_field] = user if len(user) <= _IDENTITY_LENGTH else hashed(user, 40)
    metadata = request.metadata
    if metadata is not None and request.dialect != NAME and not profile.metadata:
        losses.hint("metadata", "this upstream takes no metadata")
        metadata = None
    _set(body, "metadata", metadata)
    tier = request.tier
    if tier is not None and request.dialect != NAME and not profile.tier:
        losses.hint("tier", "this upstream takes no service tier")
        tier = None
    _set(body, "service_tier", tier)


def _write_previous(request: Request, target: EncodeTarget, body: _Body, losses: Losses) -> None:
    _set(body, "previous_response_id", request.previous_id)


_WRITERS: tuple[tuple[tuple[str, ...], Callable[[Request, EncodeTarget, _Body, Losses], None]], ...] = (
    (("tool_choice",), _write_choice),
    (("parallel",), _write_parallel),
    (("max_output",), _write_length),
    (_SAMPLING, _write_sampling),
    (("reasoning",), _write_reasoning),
    (("output",), _write_output),
    (("store", "include", "logprobs"), _write_storage),
    (("cache",), _write_cache),
    (("end_user", "metadata", "tier"), _write_identity),
    (("previous_id",), _write_previous),
)
