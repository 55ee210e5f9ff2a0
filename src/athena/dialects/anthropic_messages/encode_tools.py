"""Tool definitions and tool choice for a Messages upstream.

Wire facts: docs/reference/wire-facts.md#rules-of-translation.
"""

from __future__ import annotations

from typing import Any

from athena.dialects.anthropic_messages.encode_blocks import MessageDraft, cache_control, marked
from athena.dialects.anthropic_messages.vocabulary import NAME
from athena.dialects.base import EncodeTarget, searches_web
from athena.dialects.losses import Losses
from athena.dialects.recalled import Rewritten
from athena.model.profile import Profile
from athena.model.request import Request, Tool, ToolChoice
from athena.schemas import for_anthropic
from athena.wire.recall import Recall

WEB_SEARCH = "web_search_20250305"
"""The oldest dated search tool: every model that searches at all knows it."""


def write_tools(
    request: Request, target: EncodeTarget, report: Losses, *, same: bool, recall: Recall | None = None
) -> list[dict[str, Any]]:
    """The definitions; what came in this dialect and was not changed goes out as it stood."""
    profile = target.profile

    def write() -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for index, tool in enumerate(request.tools):
            path = f"tools[{index}]"
            if same and tool.inline:
                continue
            value = tool.raw if same and tool.raw is not None else _write_tool(tool, request, profile, report, path, same=same)
            if value is not None:
                made.append(value)
        return made

    rewritten = Rewritten(recall if not same else None, target, report, NAME)
    written = rewritten.tools(request, request.tools, write, unless=marked)
    if profile.tools_limit is not None and len(written) > profile.tools_limit:
        report.refuse("tools", f"this upstream takes at most {profile.tools_limit} tools, not {len(written)}")
    return written


def tools_of_history(messages: list[MessageDraft]) -> list[dict[str, Any]]:
    """Minimal definitions for the calls of a history whose request declares none: without them it is refused."""
    names: dict[str, None] = {}
    for message in messages:
        for block in message.blocks:
            if block.get("type") == "tool_use":
                names[block["name"]] = None
    return [
        {
            "name": name,
            "description": "Used earlier in this conversation.",
            "input_schema": {"type": "object", "properties": {}},
        }
        for name in names
    ]


def write_choice(choice: ToolChoice | None, parallel: bool | None) -> dict[str, Any] | None:
    """`prepare` has reduced the choice to what the model takes; None leaves the API's default, auto."""
    mode = choice.mode if choice is not None else "auto"
    if mode == "none":
        return {"type": "none"}
    value: dict[str, Any] = {"type": "auto"}
    if mode == "required" or (mode == "allowed" and choice is not None and choice.required):
        value = {"type": "any"}
    elif mode == "named" and choice is not None:
        value = {"type": "tool", "name": choice.names[0]}
    elif choice is None and parallel is not False:
        return None
    if parallel is False:
        value["disable_parallel_tool_use"] = True
    return value


def _write_tool(
    tool: Tool, request: Request, profile: Profile, report: Losses, path: str, *, same: bool
) -> dict[str, Any] | None:
    if tool.kind == "hosted":
        value = _hosted(tool, request, profile, report, path, same=same)
    else:
        value = _function(tool, profile, report, path, same=same)
    if value is None:
        return None
    if tool.cache is not None and (same or profile.cache_marks == "cache_control"):
        value["cache_control"] = cache_control(tool.cache, same=same)
    if tool.extras:
        if same:
            value.update(tool.extras)
        else:
            for key in tool.extras:
                report.hint(f"{path}.{key}", "unknown to this dialect")
    return value


def _function(tool: Tool, profile: Profile, report: Losses, path: str, *, same: bool) -> dict[str, Any]:
    strict = bool(tool.strict) and profile.strict_tools
    if tool.strict and not profile.strict_tools:
        report.hint(f"{path}.strict", "this upstream does not enforce schemas")
    where = f"{path}.input_schema"
    schema = for_anthropic(tool.schema, strict=strict, losses=report.found, path=where, growth=report.growth)
    value: dict[str, Any] = {"name": tool.name}
    if tool.description:
        value["description"] = tool.description
    value["input_schema"] = schema
    if strict:
        value["strict"] = True
    if tool.deferred:
        if same:
            value["defer_loading"] = True
        else:
            report.emulate(f"{path}.defer_loading", "the tool is loaded at once")
    return value


def _hosted(tool: Tool, request: Request, profile: Profile, report: Losses, path: str, *, same: bool) -> dict[str, Any] | None:
    """A tool the provider runs: its own at home, a web search from anywhere, else nothing."""
    if same:
        config = dict(tool.config or {})
        value: dict[str, Any] = {"type": config.pop("type", tool.hosted), **config}
        if not str(value["type"]).startswith(("computer_toolset", "browser_toolset", "mcp_toolset")):
            value["name"] = tool.name
        if tool.strict is not None:
            value["strict"] = tool.strict
        if tool.deferred:
            value["defer_loading"] = True
        return value
    if searches_web(tool) and profile.hosted_tools:
        return _web_search(tool, report, path)
    choice = request.tool_choice
    if choice is not None and choice.mode == "named" and tool.name in choice.names:
        report.refuse("tool_choice", f"{tool.name} runs at another provider and cannot be forced here")
    report.drop(path, f"{tool.hosted or tool.name} runs at another provider")
    return None


def _web_search(tool: Tool, report: Losses, path: str) -> dict[str, Any]:
    """Other families nest the domain filter and the place; what has no counterpart is reported."""
    config = dict(tool.config or {})
    value: dict[str, Any] = {"type": WEB_SEARCH, "name": "web_search"}
    filters = config.pop("filters", None)
    for source in (config, filters if isinstance(filters, dict) else {}):
        for key in ("allowed_domains", "blocked_domains"):
            domains = source.pop(key, None) if source is config else source.get(key)
            if domains:
                value[key] = domains
    place = config.pop("user_location", None)
    if isinstance(place, dict):
        inner = place.get("approximate")
        value["user_location"] = {**(inner if isinstance(inner, dict) else place), "type": "approximate"}
    config.pop("type", None)
    for key in config:
        report.hint(f"{path}.{key}", "web search here has no such setting")
    return value
