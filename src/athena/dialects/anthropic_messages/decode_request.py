"""A client's Messages body as a neutral request. Wire facts: `dialects.md` 1.1.2 to 1.1.4; requirements A5, A14 to A22, M23.

Strict where the API is strict about structure (roles, blocks, tool definitions), patient with everything else: both wire
versions are served, a field nobody knows is kept, and agents that try one new field must not get a 400 for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from athena.dialects.anthropic_messages.decode_blocks import read_block, read_cache, read_content
from athena.dialects.anthropic_messages.typed_tools import default_name, family_of
from athena.dialects.anthropic_messages.vocabulary import NAME
from athena.errors import InvalidRequest
from athena.model.parts import Part, Text
from athena.model.request import Cache, Effort, Output, Reasoning, Request, Role, Tool, ToolChoice, Turn
from athena.wire.fields import Fields

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_EFFORTS = frozenset(get_args(Effort)) - {"none", "minimal"}

SERVER_FIELDS = (
    "container",
    "diagnostics",
    "inference_geo",
    "context_management",
    "compaction",
    "mcp_servers",
    "fallbacks",
    "fallback_credit_token",
    "thread",
)
"""Settings of the provider's own services: no other provider has their counterpart."""
_SERVER_FIELDS = frozenset(SERVER_FIELDS)


def decode_request(
    body: Mapping[str, Any],
    *,
    model: str | None = None,
    stream: bool | None = None,
    version: str | None = None,
    counting: bool = False,
) -> Request:
    """The request, or an InvalidRequest that names the field at fault. `counting`: a token count needs no `max_tokens`."""
    value = dict(body)
    fields = Fields(value)
    name = fields.text("model") or model
    if not name:
        raise InvalidRequest("model: field required", path="model")
    if not counting and not fields.has("max_tokens"):
        raise InvalidRequest("max_tokens: field required", path="max_tokens")
    if not fields.has("messages"):
        raise InvalidRequest("messages: field required", path="messages")
    turns = fields.each("messages", _turn)
    if not turns:
        raise InvalidRequest("messages: at least one message is required", path="messages")
    streamed = fields.flag("stream")
    return Request(
        dialect=NAME,
        model=name,
        stream=bool(streamed if stream is None else stream),
        wire_version=version,
        system=_system(fields),
        system_hint="system" if fields.has("system") else None,
        turns=turns,
        tools=_tools(fields),
        raw=value,
        **read_settings(fields),
    )


def read_settings(fields: Fields) -> dict[str, Any]:
    """Everything beside model, messages, system and tools, as fields of `Request`."""
    choice, parallel = _choice(fields)
    output_config = fields.child("output_config")
    user, metadata = _metadata(fields)
    limit = fields.integer("max_tokens")
    if limit is not None and limit < 0:
        raise fields.wrong("max_tokens", "a number of tokens")
    return {
        "tool_choice": choice,
        "parallel": parallel,
        "max_output": limit,
        "temperature": fields.number("temperature"),
        "top_p": fields.number("top_p"),
        "top_k": fields.integer("top_k"),
        "stop": fields.texts("stop_sequences"),
        "reasoning": _reasoning(fields, output_config),
        "output": _output(fields, output_config),
        "cache": Cache(mark=read_cache(fields)),
        "end_user": user,
        "metadata": metadata,
        "tier": fields.text("service_tier"),
        "speed": fields.text("speed"),
        "server": _server(fields, output_config),
        "extras": fields.rest(),
    }


def _turn(message: Fields) -> Turn:
    role = _ROLES.get(message.needed_text("role"))
    if role is None:
        raise message.wrong("role", "user, assistant or system")
    if not message.has("content"):
        raise InvalidRequest(f"{message.at('content')}: field required", path=message.at("content"))
    parts = read_content(message, "content")
    untouched = all(part.raw is not None for part in parts)
    return Turn(role=role, parts=parts, raw=message.value if untouched else None, extras=message.rest())


def _system(fields: Fields) -> tuple[Part, ...]:
    value = fields.any("system")
    if isinstance(value, str):
        return (Text(text=value, raw=value),) if value else ()
    parts = fields.each("system", read_block)
    for index, part in enumerate(parts):
        if not isinstance(part, Text):
            path = f"system[{index}].type"
            raise InvalidRequest(f"{path}: system holds text blocks only", path=path)
    return parts


# -- tools ----------------------------------------------------------------------------------------------------------------


def _tools(fields: Fields) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    seen: set[str] = set()
    for item in fields.children("tools"):
        kind = item.text("type")
        tool = _function_tool(item) if kind in (None, "custom") else _typed_tool(item, str(kind))
        if item.has("name"):
            # A toolset has no name of its own and collides with nothing.
            if tool.name in seen:
                raise InvalidRequest(f"{item.at('name')}: {tool.name!r} is declared twice", path=item.at("name"))
            seen.add(tool.name)
        tools.append(tool)
    return tuple(tools)


def _function_tool(item: Fields) -> Tool:
    name = _tool_name(item, item.needed_text("name", allow_empty=False))
    schema = item.mapping("input_schema")
    if schema is not None and schema.get("type", "object") != "object":
        path = f"{item.at('input_schema')}.type"
        raise InvalidRequest(f"{path}: the schema of a tool's input must be of type object", path=path)
    return Tool(
        name=name,
        description=item.text("description"),
        schema=schema,
        strict=item.flag("strict"),
        deferred=item.flag("defer_loading") is True,
        cache=read_cache(item),
        raw=item.value,
        extras=item.rest(),
    )


def _tool_name(item: Fields, name: str) -> str:
    if _TOOL_NAME.fullmatch(name) is None:
        raise item.wrong("name", "1 to 128 letters, digits, underscores or hyphens")
    return name


def _typed_tool(item: Fields, kind: str) -> Tool:
    """A tool known by its type: run by the provider, or by the client with an input the type prescribes."""
    family = family_of(kind)
    name = item.text("name") or item.text("mcp_server_name") or default_name(family)
    strict, deferred, cache = item.flag("strict"), item.flag("defer_loading") is True, read_cache(item)
    config = {"type": kind, **(item.rest() or {})}
    return Tool(
        name=name,
        kind="hosted",
        hosted=family,
        config=config,
        strict=strict,
        deferred=deferred,
        cache=cache,
        raw=item.value,
    )


def _choice(fields: Fields) -> tuple[ToolChoice | None, bool | None]:
    choice = fields.child("tool_choice")
    if choice is None:
        return None, None
    kind = choice.needed_text("type")
    single = choice.flag("disable_parallel_tool_use")
    parallel = None if single is None else not single
    if kind == "auto":
        return ToolChoice("auto"), parallel
    if kind == "any":
        return ToolChoice("required"), parallel
    if kind == "none":
        return ToolChoice("none"), parallel
    if kind == "tool":
        return ToolChoice("named", (choice.needed_text("name", allow_empty=False),)), parallel
    raise choice.wrong("type", "auto, any, tool or none")


# -- thinking and the shape of the answer ----------------------------------------------------------------------------------


def _reasoning(fields: Fields, output_config: Fields | None) -> Reasoning:
    effort = output_config.text("effort") if output_config is not None else None
    if effort is not None and effort not in _EFFORTS:
        assert output_config is not None
        raise output_config.wrong("effort", "low, medium, high, xhigh or max")
    thinking = fields.child("thinking")
    if thinking is None:
        return Reasoning(effort=effort)  # type: ignore[arg-type]  # checked against the literal's own values above
    kind = thinking.needed_text("type")
    display = thinking.text("display")
    mode = {"enabled": "on", "adaptive": "adaptive", "between_tools": "between_tools", "disabled": "off"}.get(kind)
    if mode is None:
        raise thinking.wrong("type", "enabled, adaptive, between_tools or disabled")
    budget = thinking.integer("budget_tokens")
    if kind == "enabled" and budget is None:
        path = thinking.at("budget_tokens")
        raise InvalidRequest(f"{path}: field required", path=path)
    return Reasoning(
        mode=mode,  # type: ignore[arg-type]  # the table's values are the literal's
        effort=effort,  # type: ignore[arg-type]  # checked above
        budget=budget,
        visible=None if display is None else display != "omitted",
        display=display,
    )


def _output(fields: Fields, output_config: Fields | None) -> Output:
    """`output_format` is the beta's older spelling of `output_config.format`."""
    wanted = output_config.child("format") if output_config is not None else None
    older = fields.child("output_format")
    chosen = wanted or older
    if chosen is None:
        return Output()
    kind = chosen.needed_text("type")
    if kind != "json_schema":
        raise chosen.wrong("type", "json_schema")
    schema = chosen.mapping("schema")
    if schema is None:
        raise InvalidRequest(f"{chosen.at('schema')}: field required", path=chosen.at("schema"))
    return Output(kind="schema", name=chosen.text("name"), schema=schema, strict=True)


def _metadata(fields: Fields) -> tuple[str | None, dict[str, Any] | None]:
    metadata = fields.child("metadata")
    if metadata is None:
        return None, None
    return metadata.text("user_id"), metadata.rest()


def _server(fields: Fields, output_config: Fields | None) -> dict[str, Any] | None:
    present = SERVER_FIELDS if not _SERVER_FIELDS.isdisjoint(fields.value) else ()
    server = {key: fields.any(key) for key in present if fields.has(key)}
    rest = output_config.rest() if output_config is not None else None
    if rest:
        server["output_config"] = rest
    return server or None
