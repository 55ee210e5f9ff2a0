"""A client's Messages body as a neutral request.

Strict where the API is strict about structure (roles, blocks, tool definitions), patient with everything else: both wire
versions are served, and an unknown field, block, tool or value is kept for the API itself and never a 400.

Wire facts: docs/reference/wire-facts.md#anthropic-requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from operator import itemgetter, methodcaller
from typing import Any, get_args

import msgspec

from athena.dialects.anthropic_messages.decode_blocks import plain_content, plain_text, read_block, read_cache, read_content
from athena.dialects.anthropic_messages.portable import added_tools
from athena.dialects.anthropic_messages.typed_tools import default_name, family_of
from athena.dialects.anthropic_messages.vocabulary import BILLING, NAME
from athena.errors import InvalidRequest
from athena.model.parts import Foreign, Part, Text
from athena.model.request import Cache, Effort, Output, Reasoning, Request, Role, Tool, ToolChoice, Turn
from athena.wire.fields import Fields
from athena.wire.recall import Recall

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_BILLING_BEGINS = f"{BILLING}:"
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
    recall: Recall | None = None,
) -> Request:
    """The request, or an InvalidRequest that names the field at fault. `counting`: a token count needs no `max_tokens`."""
    value = dict(body)
    if recall is None and model is None and _FEW_FIELDS.issuperset(value):
        usual = _usual_request(value, stream, version)
        if usual is not None:
            return usual
    fields = Fields(value, recall=recall)
    asked = (model, stream, version, counting)
    around: Request | None = recall.meaning_around(body, asked) if recall is not None else None
    if around is not None:
        following = _next_request(around, fields)
        if following is not None:
            return following
        fields = Fields(value, recall=recall)
    name = fields.text("model") or model
    if not name:
        raise InvalidRequest("model: field required", path="model")
    if not counting and not fields.has("max_tokens"):
        raise InvalidRequest("max_tokens: field required", path="max_tokens")
    if not fields.has("messages"):
        raise InvalidRequest("messages: field required", path="messages")
    turns = fields.each("messages", _turn, plain=_plain_turn)
    if not turns:
        raise InvalidRequest("messages: at least one message is required", path="messages")
    streamed = fields.flag("stream")
    tools = fields.whole_field("tools", _tools)
    inline = _inline_tools(fields, turns)
    request = Request(
        dialect=NAME,
        model=name,
        stream=bool(streamed if stream is None else stream),
        wire_version=version,
        system=fields.whole_field("system", _system),
        system_hint="system" if fields.has("system") else None,
        turns=turns,
        tools=tools if not inline else tools + inline,
        raw=value,
        **_asked_settings(fields),
        unread=fields.unread(),
    )
    if recall is not None and not inline and not request.unread:
        recall.keep_meaning_around(body, asked, msgspec.structs.replace(request, turns=(), raw=None))
    return request


def _next_request(around: Request, fields: Fields) -> Request | None:
    """A request that differs from another in nothing but its messages; None where these say more than what was said."""
    turns = fields.each("messages", _turn, plain=_plain_turn)
    if added_tools(turns) or fields.unread():
        return None
    return msgspec.structs.replace(around, turns=turns, raw=fields.value)


_FEW_FIELDS = frozenset({"model", "messages", "max_tokens", "system", "tools", "stream", "temperature"})
_USUAL_FIELDS = _FEW_FIELDS | {"metadata"}
_FEW_MESSAGES = 64
"""Up to so many it does no harm to read them twice, where one of them turns out not to be usual."""
_ABSENT = type(None)
_USUAL_TYPES: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "max_tokens": (int,),
    "messages": (list,),
    "system": (str, _ABSENT),
    "tools": (list, _ABSENT),
    "stream": (bool, _ABSENT),
    "temperature": (int, float, _ABSENT),
}
_USUAL_VALUES = frozenset(product(*_USUAL_TYPES.values()))
"""The types of all values together that a usual request may have."""


def _usual_request(value: dict[str, Any], stream: bool | None, version: str | None) -> Request | None:
    """A request of few fields, each with a value as usual; None for any other, which is read field by field or refused."""
    values: tuple[Any, ...] = tuple(map(value.get, _USUAL_TYPES))
    if tuple(map(type, values)) not in _USUAL_VALUES:
        return None
    model, limit, messages, system, tools, streamed, temperature = values
    if not model or limit < 0 or not 0 < len(messages) <= _FEW_MESSAGES:
        return None
    turns = tuple(filter(None, map(_plain_turn, messages)))
    functions = _plain_tools(tools) if tools else ()
    if len(turns) < len(messages) or functions is None:
        return None
    return Request(
        dialect=NAME,
        model=model,
        stream=bool(streamed if stream is None else stream),
        wire_version=version,
        system=(Text(text=system, raw=system),) if system else (),
        system_hint="system" if system is not None else None,
        turns=turns,
        tools=functions,
        raw=value,
        max_output=limit,
        temperature=temperature,
    )


def _asked_settings(fields: Fields) -> dict[str, Any]:
    """The same as `read_settings`, without those that are as usual where the request has hardly any."""
    if not _USUAL_FIELDS.issuperset(fields.value):
        return read_settings(fields)
    user, metadata = _metadata(fields)
    limit = _limit(fields)
    return {"max_output": limit, "temperature": fields.number("temperature"), "end_user": user, "metadata": metadata}


def read_settings(fields: Fields) -> dict[str, Any]:
    """Everything beside model, messages, system and tools, as fields of `Request`."""
    choice, parallel = _choice(fields)
    output_config = fields.child("output_config")
    user, metadata = _metadata(fields)
    limit = _limit(fields)
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


def _limit(fields: Fields) -> int | None:
    limit = fields.integer("max_tokens")
    if limit is not None and limit < 0:
        raise fields.wrong("max_tokens", "a number of tokens")
    return limit


_message_fields = itemgetter("role", "content")


def _plain_turn(message: Any) -> Turn | None:
    """A message of the usual parts and no other fields; None for any other, which `_turn` reads or refuses."""
    if type(message) is not dict or len(message) != 2:
        return None
    try:
        word, content = _message_fields(message)
        role = _ROLES[word]
    except (KeyError, TypeError):
        return None
    parts = plain_content(content)
    return Turn(role=role, parts=parts, raw=message) if parts is not None else None


def _turn(message: Fields) -> Turn:
    role = _ROLES.get(message.needed_text("role"))
    if role is None:
        raise message.wrong("role", "user, assistant or system")
    if not message.has("content") and not (role == "system" and message.has("output_config")):
        raise InvalidRequest(f"{message.at('content')}: field required", path=message.at("content"))
    parts = read_content(message, "content")
    untouched = all(part.raw is not None for part in parts)
    return Turn(role=role, parts=parts, raw=message.value if untouched else None, extras=message.rest())


def _system(fields: Fields) -> tuple[Part, ...]:
    value = fields.any("system")
    if isinstance(value, str):
        return (Text(text=value, raw=value),) if value else ()
    return fields.each("system", _system_block, plain=_plain_system_block)


def _plain_system_block(block: Any) -> Part | None:
    """A text with its usual fields; None for any other block, which `_system_block` reads or refuses."""
    if type(block) is not dict or block.get("type") != "text":
        return None
    try:
        part = plain_text(block)
    except (KeyError, TypeError):
        return None
    return part if not part.text.startswith(_BILLING_BEGINS) else Foreign(kind=BILLING, dialect=NAME, raw=block)


def _system_block(block: Fields) -> Part:
    text = block.value.get("text")
    if isinstance(text, str) and text.startswith(_BILLING_BEGINS):
        return Foreign(kind=BILLING, dialect=NAME, raw=block.whole())
    return read_block(block)


# -- tools ----------------------------------------------------------------------------------------------------------------


def _inline_tools(fields: Fields, turns: tuple[Turn, ...]) -> tuple[Tool, ...]:
    """Tools that the conversation itself defines."""
    definitions = added_tools(turns)
    return tuple(
        msgspec.structs.replace(_tool(fields.inner(definition, "messages[].tool.definition")), inline=True)
        for definition in definitions
    )


def _tool(item: Fields) -> Tool:
    kind = item.text("type")
    return _function_tool(item) if kind in (None, "custom") else _typed_tool(item, str(kind))


def _tools(fields: Fields) -> tuple[Tool, ...]:
    declarations = fields.sequence("tools") or []
    plain = _plain_tools(declarations)
    if plain is not None:
        return plain
    tools: list[Tool] = []
    seen: set[str] = set()
    for index, declared in enumerate(declarations):
        plain = _plain_tools([declared])
        if plain is not None and plain[0].name not in seen:
            seen.add(plain[0].name)
            tools += plain
            continue
        item = fields.inner(declared, f"tools[{index}]")
        tool = _tool(item)
        if item.has("name"):
            # A toolset has no name of its own and collides with nothing.
            if tool.name in seen:
                raise InvalidRequest(f"{item.at('name')}: {tool.name!r} is declared twice", path=item.at("name"))
            seen.add(tool.name)
        tools.append(tool)
    return tuple(tools)


_tool_fields = itemgetter("name", "description", "input_schema")
_kind_of = methodcaller("get", "type")
_DICTS, _TEXTS, _THREE = {dict}, {str}, {3}


def _plain_tools(declared: list[Any]) -> tuple[Tool, ...] | None:
    """Functions of different names, each with its usual fields and no others; None for a list with any other tool, which
    `_tool` reads or refuses. All are looked at together, with hardly a step of Python's for each.
    """
    try:
        names, descriptions, schemas = zip(*map(_tool_fields, declared), strict=True)
    except (KeyError, TypeError, ValueError):  # a field is missing, one is no object, or there are none
        return None
    if set(map(type, names + descriptions)) != _TEXTS or set(map(type, (*declared, *schemas))) != _DICTS:
        return None
    if set(map(len, declared)) != _THREE:
        return None
    if len(set(names)) < len(names) or list(map(_kind_of, schemas)).count("object") < len(schemas):
        return None
    if not all(map(_TOOL_NAME.fullmatch, names)):
        return None
    return tuple([
        Tool(name=name, description=description, schema=schema, raw=value)
        for name, description, schema, value in zip(names, descriptions, schemas, declared, strict=True)
    ])  # fmt: skip


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
    fields.forget("tool_choice")
    return None, None


# -- thinking and the shape of the answer ----------------------------------------------------------------------------------


def _reasoning(fields: Fields, output_config: Fields | None) -> Reasoning:
    effort = output_config.text("effort") if output_config is not None else None
    if output_config is not None and effort is not None and effort not in _EFFORTS:
        output_config.forget("effort")
        effort = None
    thinking = fields.child("thinking")
    if thinking is None:
        return Reasoning(effort=effort)  # type: ignore[arg-type]  # checked against the literal's own values above
    kind = thinking.needed_text("type")
    display = thinking.text("display")
    mode = {"enabled": "on", "adaptive": "adaptive", "between_tools": "between_tools", "disabled": "off"}.get(kind)
    if mode is None:
        fields.forget("thinking")
        return Reasoning(effort=effort)  # type: ignore[arg-type]  # checked above
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
    if chosen.needed_text("type") != "json_schema":
        if output_config is not None and wanted is not None:
            output_config.forget("format")
        else:
            fields.forget("output_format")
        return Output()
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
