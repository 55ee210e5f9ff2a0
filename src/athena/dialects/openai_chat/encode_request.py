"""A neutral request as a Chat body for one upstream. Quirks come from the profile.

Wire facts: docs/reference/wire-facts.md#pass-through.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import and_, attrgetter, eq, is_not
from typing import Any

from athena.dialects.base import Encoded, EncodeTarget, searches_web
from athena.dialects.openai_chat.decode_request import WEB_SEARCH, leading_system, system_parts
from athena.dialects.openai_chat.read_controls import read_controls, usual_controls
from athena.dialects.openai_chat.vocabulary import NAME
from athena.dialects.openai_chat.write_controls import ControlWriter, asked_controls, mark_fields, said_controls
from athena.dialects.openai_chat.write_messages import ChatMessageWriter
from athena.dialects.recalled import Rewritten
from athena.errors import UnsupportedFeature
from athena.model.parts import Part, Text
from athena.model.profile import Profile
from athena.model.request import Request, Tool
from athena.schemas import for_openai, kept_by_openai
from athena.wire.fields import Fields
from athena.wire.recall import Recall

PATH = "/chat/completions"
_CACHE_MARKS = 4


def encode_request(request: Request, target: EncodeTarget, recall: Recall | None = None) -> Encoded:
    """The body, and what it could not say."""
    writer = ControlWriter(target)
    home = request.dialect == NAME and request.raw is not None
    body = _home_body(request, writer) if home else _foreign_body(request, writer)
    body["model"] = target.model
    _put_tools(body, request, writer, home=home, recall=recall)
    _put_messages(body, request, writer, home=home, recall=recall)
    _put_stream(body, request, writer)
    for key, value in target.profile.body.items():
        body.setdefault(key, value)
    if target.profile.drop_fields:
        body = _without(body, target.profile, writer)
    if target.profile.cache_marks != "none":
        body = _fewer_marks(body)
    return Encoded(body=body, path=PATH, headers=dict(target.profile.headers), losses=tuple(writer.found))


def _home_body(request: Request, writer: ControlWriter) -> dict[str, Any]:
    """The client's own body; only controls that changed, or that the upstream spells otherwise, are written anew."""
    assert request.raw is not None
    body = dict(request.raw)
    controls = said_controls(request, body)
    before = (usual_controls(body) or read_controls(Fields(body), model=request.model)) if controls else request
    for control in controls:
        refused = any(key in writer.profile.drop_fields for key in control.keys if body.get(key) is not None)
        same = getattr(before, control.field) == getattr(request, control.field)
        if same and not refused and (control.field != "max_output" or _spelled_well(body, writer.profile)):
            continue
        for key in control.keys:
            body.pop(key, None)
        body.update(_merge_template(request, control.write(request, writer)))
    if request.tool_choice is not None and not request.tools:
        body.pop("tool_choice", None)
    return body


def _spelled_well(body: dict[str, Any], profile: Profile) -> bool:
    """`max_tokens` is refused where the newer name is wanted; the newer name is understood nearly everywhere."""
    return profile.max_tokens_field == "max_tokens" or body.get("max_tokens") is None


def _merge_template(request: Request, written: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the chat template that are not ours to drop stay beside the switch we set."""
    ours = written.get("chat_template_kwargs")
    own = (request.raw or {}).get("chat_template_kwargs")
    if isinstance(ours, dict) and isinstance(own, dict):
        return {**written, "chat_template_kwargs": {**own, **ours}}
    return written


def _foreign_body(request: Request, writer: ControlWriter) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "", "messages": []}
    for control in asked_controls(request):
        for key, value in control.write(request, writer).items():
            if isinstance(value, dict) and isinstance(body.get(key), dict):
                value = {**body[key], **value}
            body[key] = value
    if request.extras:
        for key, value in request.extras.items():
            if key in writer.profile.pass_fields:
                body[key] = value
            else:
                writer.drop(key, "unknown to this upstream")
    if request.server:
        for key in request.server:
            writer.hint(key, "a setting of the client's own provider")
    if request.speed is not None:
        writer.hint("speed", "not taken by this upstream")
    return body


# -- tools --------------------------------------------------------------------------------------------------------------------


_hosted_of = attrgetter("hosted")
_schema_of = attrgetter("schema")
_description_of = attrgetter("description")


def _put_tools(body: dict[str, Any], request: Request, writer: ControlWriter, *, home: bool, recall: Recall | None) -> None:
    tools: Sequence[Tool] = request.tools
    if home or any(map(_hosted_of, tools)):
        tools = [tool for tool in tools if tool.hosted != WEB_SEARCH and not (home and tool.inline)]
    limit = writer.profile.tools_limit
    if limit is not None and len(tools) > limit:
        raise UnsupportedFeature(f"tools: this upstream takes at most {limit} tools", path="tools")
    if home and _unchanged(body, tools, writer.profile):
        return
    body.pop("functions", None)
    body.pop("tools", None)

    def write() -> list[dict[str, Any]]:
        made = [
            {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema}}
            if plain
            else _tool(body, tool, index, writer, home=home)
            for index, (tool, plain) in enumerate(zip(tools, _are_plain(tools, writer.profile, home=home), strict=True))
        ]
        return list(filter(None, made))

    rewritten = Rewritten(recall, writer.target, writer, NAME) if recall is not None and not home else None
    written = rewritten.tools(request, tools, write) if rewritten is not None else write()
    if written:
        body["tools"] = written
    else:
        for key in ("tool_choice", "parallel_tool_calls"):
            body.pop(key, None)


def _unchanged(body: dict[str, Any], tools: Sequence[Tool], profile: Profile) -> bool:
    own = body.get("tools") if body.get("tools") else body.get("functions")
    own = own if isinstance(own, list) else []
    if len(own) != len(tools) or any(tool.raw is not entry for tool, entry in zip(tools, own, strict=True)):
        return False
    if not profile.strict_tools and any(tool.strict is not None for tool in tools):
        return False
    return not profile.schema_drops


_TRANSLATED_DROPS = ("format:uri",)
"""Keywords that models behind this dialect refuse and other dialects' clients send as a habit."""


_about = attrgetter("kind", "strict", "deferred", "cache", "extras")
_PLAIN = _about(Tool(name=""))


def _are_plain(tools: Sequence[Tool], profile: Profile, *, home: bool) -> list[bool]:
    """Which of these are functions of another dialect with a name, a description and a schema that stays as it is, and with
    nothing else about them? All are looked at together: `_tool` writes the same of them."""
    if home:
        return [False] * len(tools)
    kept = kept_by_openai(list(map(_schema_of, tools)), (*profile.schema_drops, *_TRANSLATED_DROPS))
    described = map(is_not, map(_description_of, tools), repeat(None))
    plain = map(eq, map(_about, tools), repeat(_PLAIN))
    return list(map(and_, kept, map(and_, described, plain)))


def _tool(body: dict[str, Any], tool: Tool, index: int, writer: ControlWriter, *, home: bool) -> dict[str, Any] | None:
    profile, path = writer.profile, f"tools[{index}]"
    if tool.kind == "hosted":
        return _hosted(body, tool, path, writer, home=home)
    if tool.kind == "custom":
        if home and tool.raw is not None:
            return dict(tool.raw)
        inner: dict[str, Any] = {"name": tool.name}
        if tool.description is not None:
            inner["description"] = tool.description
        if tool.grammar is not None:
            inner["format"] = {"type": "grammar", "grammar": tool.grammar}
        return {"type": "custom", "custom": inner}
    untouched = home and isinstance(tool.raw, dict) and isinstance(tool.raw.get("function"), dict)
    if untouched and not profile.schema_drops and (profile.strict_tools or tool.strict is None):
        return dict(tool.raw)
    inner = dict(tool.raw["function"]) if untouched else {"name": tool.name}
    if tool.description is not None:
        inner["description"] = tool.description
    if tool.schema is not None or not home:
        strict = bool(tool.strict) and profile.strict_tools and not home
        where = f"{path}.function.parameters"
        drops = profile.schema_drops if home else (*profile.schema_drops, *_TRANSLATED_DROPS)
        inner["parameters"] = for_openai(
            tool.schema, strict=strict, drops=drops, losses=writer.found, path=where, growth=writer.growth
        )
    if tool.strict is not None and profile.strict_tools:
        inner["strict"] = tool.strict
    else:
        inner.pop("strict", None)
        if tool.strict:
            writer.hint(f"{path}.function.strict", "this upstream does not enforce schemas")
    if tool.deferred and not home:
        writer.emulate(f"{path}.defer_loading", "the tool is loaded at once")
    entry: dict[str, Any] = {"type": "function", "function": inner}
    if tool.cache is not None and profile.cache_marks == "cache_control":
        entry.update(mark_fields(tool.cache.ttl_seconds, profile))
    for key, value in (tool.extras or {}).items():
        if home:
            entry[key] = value
        else:
            writer.hint(f"{path}.{key}", "unknown to this upstream")
    return entry


def _hosted(body: dict[str, Any], tool: Tool, path: str, writer: ControlWriter, *, home: bool) -> dict[str, Any] | None:
    """A tool that runs at the provider: the client's own goes through, a web search has a counterpart, others have none."""
    if home and tool.raw is not None:
        return dict(tool.raw)
    if WEB_SEARCH in writer.profile.pass_fields and searches_web(tool):
        body[WEB_SEARCH] = _search_options(tool.config or {})
        writer.emulate(path, "the hosted web search of this upstream is used")
        for key in tool.config or {}:
            if key not in _SEARCH_SETTINGS:
                writer.hint(f"{path}.{key}", "web search here has no such setting")
        return None
    writer.drop(path, f"{tool.hosted or tool.name} runs only at its own provider")
    return None


_SEARCH_SETTINGS = frozenset({"type", "search_context_size", "user_location"})


def _search_options(config: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    size = config.get("search_context_size")
    if isinstance(size, str):
        options["search_context_size"] = size
    place = config.get("user_location")
    if isinstance(place, dict):
        inner = {key: value for key, value in place.items() if key in ("city", "country", "region", "timezone")}
        options["user_location"] = {"type": "approximate", "approximate": inner}
    return options


# -- messages and the rest ----------------------------------------------------------------------------------------------


def _put_messages(body: dict[str, Any], request: Request, writer: ControlWriter, *, home: bool, recall: Recall | None) -> None:
    messages = ChatMessageWriter(writer, home=home, recall=recall)
    instructions = tuple([Text(text=line) for line in writer.instructions]) if writer.instructions else ()
    written, left = _kept_system(request, writer.profile) if home else ([], request.system)
    if writer.profile.system_turns == "first_only" and len(written) + bool(left or instructions) > 1:
        # There is one place for instructions: all of them go there.
        written, left = [], request.system
    leading = messages.system(_marked_for_tools((*left, *instructions), request, writer.profile))
    if leading is not None:
        written.append(leading)
    turns = messages.turns(request.turns)
    _prefill(body, turns, request, writer, home=home)
    body["messages"] = [*written, *turns]


def _kept_system(request: Request, profile: Profile) -> tuple[list[dict[str, Any]], tuple[Part, ...]]:
    """The client's own leading messages as far as they still say what `system` says, and what is left to write."""
    assert request.raw is not None
    own: list[dict[str, Any]] = request.raw["messages"]
    left = request.system
    kept: list[dict[str, Any]] = []
    if profile.text_content:
        return kept, left
    for message in own[: leading_system(own)]:
        parts = system_parts(Fields(message, "messages"))
        if left[: len(parts)] != parts:
            break
        kept.append(message)
        left = left[len(parts) :]
    return kept, left


def _marked_for_tools(system: tuple[Part, ...], request: Request, profile: Profile) -> tuple[Part, ...]:
    """A cache mark on a tool moves to the first instruction where tools take none."""
    if profile.cache_marks != "breakpoint" or not system:
        return system
    mark = next((tool.cache for tool in request.tools if tool.cache is not None), None)
    first = system[0]
    if mark is None or not isinstance(first, Text) or first.cache is not None:
        return system
    return (Text(text=first.text, cache=mark), *system[1:])


def _prefill(
    body: dict[str, Any], messages: list[dict[str, Any]], request: Request, writer: ControlWriter, *, home: bool
) -> None:
    """An answer already begun by the client: continued where the upstream can, refused where it cannot."""
    if home or not request.turns or request.turns[-1].role != "assistant" or not messages:
        return
    profile = writer.profile
    if not profile.prefill:
        raise UnsupportedFeature("messages: this upstream does not continue an assistant message", path="messages")
    if profile.prefill_flag is not None:
        messages[-1] = {**messages[-1], profile.prefill_flag: True}
    elif profile.prefill_body:
        body.update(profile.prefill_body)
    else:
        writer.hint("messages", "the upstream may answer anew instead of continuing the last message")


def _put_stream(body: dict[str, Any], request: Request, writer: ControlWriter) -> None:
    if not request.stream:
        if body.get("stream"):
            body["stream"] = False
        body.pop("stream_options", None)
        return
    body["stream"] = True
    if writer.profile.stream_usage:
        own = body.get("stream_options")
        options = own if isinstance(own, dict) else {}
        if options.get("include_usage") is not True:
            # Always asked for: the client sees the usage chunk only if it asked itself.
            body["stream_options"] = {**options, "include_usage": True}
    else:
        body.pop("stream_options", None)


def _without(body: dict[str, Any], profile: Profile, writer: ControlWriter) -> dict[str, Any]:
    """The body without the fields the upstream refuses: at top level, in messages, content parts and tools."""
    plain = {name for name in profile.drop_fields if "." not in name}
    nested = [(outer, inner) for outer, _, inner in (name.partition(".") for name in profile.drop_fields) if inner]
    top = {key for key in body if key in plain and key not in ("model", "messages")}
    for key in sorted(top):
        writer.hint(key, "refused by this upstream")

    def cleaned(value: dict[str, Any]) -> dict[str, Any]:
        fresh = {key: item for key, item in value.items() if key not in plain}
        for outer, inner in nested:
            if isinstance(fresh.get(outer), dict) and inner in fresh[outer]:
                fresh[outer] = {key: item for key, item in fresh[outer].items() if key != inner}
        if isinstance(fresh.get("content"), list):
            fresh["content"] = [cleaned(item) if isinstance(item, dict) else item for item in fresh["content"]]
        return fresh

    result = cleaned({key: value for key, value in body.items() if key != "content"})
    for key in ("messages", "tools"):
        if isinstance(result.get(key), list):
            result[key] = [cleaned(item) if isinstance(item, dict) else item for item in result[key]]
    return result


def _fewer_marks(body: dict[str, Any]) -> dict[str, Any]:
    """At most four cache breakpoints: the last ones, which cover the most."""
    places: list[dict[str, Any]] = []
    for message in body["messages"]:
        content = message.get("content")
        for item in content if isinstance(content, list) else ():
            if isinstance(item, dict) and ("cache_control" in item or "prompt_cache_breakpoint" in item):
                places.append(item)
    spare = {id(item) for item in places[: max(0, len(places) - _CACHE_MARKS)]}
    if not spare:
        return body
    messages = []
    for message in body["messages"]:
        content = message.get("content")
        if isinstance(content, list) and any(id(item) in spare for item in content):
            content = [_unmarked(item) if id(item) in spare else item for item in content]
            message = {**message, "content": content}
        messages.append(message)
    return {**body, "messages": messages}


def _unmarked(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("cache_control", "prompt_cache_breakpoint")}
