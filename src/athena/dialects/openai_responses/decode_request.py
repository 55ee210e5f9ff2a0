"""A Responses request body as a neutral Request.

Wire facts: docs/reference/wire-facts.md#responses-requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from athena.dialects.openai_responses.decode_items import decode_input
from athena.dialects.openai_responses.decode_tools import decode_tool_choice, decode_tools
from athena.dialects.openai_responses.vocabulary import NAME, OUTPUT_LOGPROBS
from athena.errors import InvalidRequest
from athena.model.parts import Part, Text
from athena.model.request import Cache, Effort, Output, Reasoning, Request, Tool
from athena.wire.fields import Fields
from athena.wire.recall import Recall

_SERVER = (
    "access_programs", "background", "context_management", "conversation", "image", "max_tool_calls", "moderation",
    "personality", "prompt", "truncation",
)  # fmt: skip
_EFFORTS: tuple[str, ...] = get_args(Effort)


def decode_request(
    body: Mapping[str, Any],
    *,
    model: str | None = None,
    stream: bool | None = None,
    version: str | None = None,
    counting: bool = False,
    recall: Recall | None = None,
) -> Request:
    """A client's body. `counting`: the body of the token counter, where model and input may be absent."""
    raw = dict(body)
    fields = Fields(raw, recall=recall)
    name = model or fields.text("model") or ""
    fields.any("model")
    if not name and not counting:
        raise InvalidRequest("model: field required", path="model")
    given = decode_input(fields)
    if not fields.has("input") and not counting and not any(fields.has(key) for key in _CARRIES_INPUT):
        raise InvalidRequest("input: field required", path="input")
    instructions = read_instructions(fields)
    asked = fields.flag("stream")
    settings = read_settings(fields)
    tools = (*fields.whole_field("tools", _declared), *given.tools)
    return Request(
        dialect=NAME,
        model=name,
        stream=bool(asked if stream is None else stream),
        system=(*instructions, *given.system),
        system_hint="instructions" if instructions else given.system_hint,
        turns=given.turns,
        tools=tools,
        **settings,
        raw=raw,
        extras=fields.rest(),
        unread=fields.unread(),
    )


def _declared(fields: Fields) -> tuple[Tool, ...]:
    return tuple(decode_tools(fields.children("tools")))


_CARRIES_INPUT = ("previous_response_id", "conversation", "prompt", "instructions")


def read_instructions(fields: Fields) -> tuple[Part, ...]:
    """Usually a string; a prompt template hands out items."""
    value = fields.any("instructions")
    if isinstance(value, list):
        return decode_input(fields.inner({"input": value}, "instructions")).system
    text = fields.text("instructions")
    return (Text(text=text),) if text else ()


def read_settings(fields: Fields) -> dict[str, Any]:
    """Everything of a body that is neither model, stream, tools nor conversation, by its neutral name."""
    logprobs = fields.integer("top_logprobs")
    include = fields.texts("include")
    if logprobs is None and OUTPUT_LOGPROBS in include:
        logprobs = 0
    user, safety = fields.text("user"), fields.text("safety_identifier")
    server = {key: value for key in _SERVER if (value := fields.any(key)) is not None}
    return {
        "tool_choice": decode_tool_choice(fields),
        "parallel": fields.flag("parallel_tool_calls"),
        "max_output": fields.integer("max_output_tokens"),
        "temperature": fields.number("temperature"),
        "top_p": fields.number("top_p"),
        "logprobs": logprobs,
        "presence_penalty": fields.number("presence_penalty"),
        "frequency_penalty": fields.number("frequency_penalty"),
        "reasoning": _reasoning(fields.child("reasoning")),
        "output": _output(fields.child("text")),
        "cache": Cache(key=fields.text("prompt_cache_key"), options=fields.mapping("prompt_cache_options")),
        "end_user": safety or user,
        "metadata": fields.mapping("metadata"),
        "tier": fields.text("service_tier"),
        "store": fields.flag("store"),
        "previous_id": fields.text("previous_response_id"),
        "include": include,
        "server": server or None,
    }


def _reasoning(fields: Fields | None) -> Reasoning:
    if fields is None:
        return Reasoning()
    effort = fields.text("effort")
    if effort is not None and effort not in _EFFORTS:
        fields.forget("effort")
    summary = fields.text("summary") or fields.text("generate_summary")
    return Reasoning(
        mode="off" if effort == "none" else "default",
        effort=cast(Effort, effort) if effort in _EFFORTS else None,
        visible=True if summary else None,
        summary=summary,
    )


def _output(fields: Fields | None) -> Output:
    if fields is None:
        return Output()
    verbosity = fields.text("verbosity")
    form = fields.child("format")
    kind = form.needed_text("type", allow_empty=False) if form is not None else "text"
    if form is None or kind == "text":
        return Output(verbosity=verbosity)
    if kind == "json_object":
        return Output(kind="json", verbosity=verbosity)
    if kind != "json_schema":
        fields.forget("format")
        return Output(verbosity=verbosity)
    schema = form.mapping("schema")
    if schema is None:
        raise form.wrong("schema", "a JSON schema")
    return Output(
        kind="schema",
        name=form.needed_text("name", allow_empty=False),
        schema=schema,
        strict=form.flag("strict"),
        description=form.text("description"),
        verbosity=verbosity,
    )
