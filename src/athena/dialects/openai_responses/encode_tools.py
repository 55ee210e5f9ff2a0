"""Tools, tool choice and the answer's shape for a Responses upstream.

Wire facts: docs/reference/wire-facts.md#tool-schemas.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from athena.dialects.base import EncodeTarget, searches_web
from athena.dialects.losses import Losses
from athena.dialects.openai_responses.vocabulary import NAME
from athena.dialects.recalled import Rewritten
from athena.errors import UnsupportedFeature
from athena.model.request import Output, Request, Tool, ToolChoice
from athena.schemas import for_openai
from athena.wire.recall import Recall


def encode_tools(request: Request, target: EncodeTarget, losses: Losses, recall: Recall | None = None) -> list[dict[str, Any]]:
    """The tool list; members of one namespace that stand together go out as that namespace."""
    rewritten = Rewritten(recall if request.dialect != NAME else None, target, losses, NAME)
    return rewritten.tools(request, request.tools, partial(_encoded, request, target, losses))


def _encoded(request: Request, target: EncodeTarget, losses: Losses) -> list[dict[str, Any]]:
    home = request.dialect == NAME
    encoded: list[dict[str, Any]] = []
    space: str | None = None
    for index, tool in enumerate(request.tools):
        if home and tool.inline:
            continue
        entry = _tool(tool, f"tools[{index}]", request, target, losses, home=home)
        if entry is None:
            continue
        if tool.namespace is None:
            encoded.append(entry)
        elif tool.namespace == space and encoded:
            encoded[-1]["tools"].append(entry)
        else:
            encoded.append({
                "type": "namespace", "name": tool.namespace, "description": tool.namespace_description or "", "tools": [entry]
            })  # fmt: skip
        space = tool.namespace
    return encoded


def _tool(
    tool: Tool, path: str, request: Request, target: EncodeTarget, losses: Losses, *, home: bool
) -> dict[str, Any] | None:
    if home and isinstance(tool.raw, dict):
        return tool.raw
    if not home:
        losses.extras(path, tool.extras)
    if tool.kind == "hosted":
        return _hosted(tool, path, request, target, losses, home=home)
    entry: dict[str, Any] = {"type": tool.kind, "name": tool.name}
    if tool.description is not None:
        entry["description"] = tool.description
    if tool.kind == "custom":
        entry["format"] = {"type": "grammar", **tool.grammar} if tool.grammar is not None else {"type": "text"}
    else:
        strict = bool(tool.strict) and target.profile.strict_tools
        if tool.strict and not strict:
            losses.hint(f"{path}.strict", "this upstream does not enforce schemas")
        entry["parameters"] = for_openai(
            tool.schema,
            strict=strict,
            drops=target.profile.schema_drops,
            losses=losses.found,
            path=f"{path}.parameters",
            growth=losses.growth,
        )
        entry["strict"] = strict
    if tool.deferred:
        if home:
            entry["defer_loading"] = True
        else:
            losses.hint(f"{path}.defer_loading", "the tool is loaded at once: its search tool stays in another dialect")
    return {**entry, **(tool.extras or {})} if home else entry


def _hosted(
    tool: Tool, path: str, request: Request, target: EncodeTarget, losses: Losses, *, home: bool
) -> dict[str, Any] | None:
    if home:
        return {"type": tool.hosted or tool.name, **(tool.config or {})}
    if target.profile.hosted_tools and searches_web(tool):
        return _web_search(tool, path, losses)
    choice = request.tool_choice
    if choice is not None and choice.mode == "named" and tool.name in choice.names:
        raise UnsupportedFeature(f"{path}: a forced tool of another provider cannot run here", path=path)
    losses.drop(path, f"{tool.hosted or tool.name} runs at another provider")
    return None


_COMMON_SETTINGS = frozenset({"type", "allowed_domains", "blocked_domains", "user_location", "search_context_size"})


def _web_search(tool: Tool, path: str, losses: Losses) -> dict[str, Any]:
    """The settings that every web search has in common; all others are reported."""
    config = tool.config or {}
    for key, value in config.items():
        if key not in _COMMON_SETTINGS and value is not None:
            losses.hint(f"{path}.{key}", "web search here has no such setting")
    if tool.strict is not None or tool.deferred:
        losses.hint(path, "web search here is neither strict nor loaded late")
    entry: dict[str, Any] = {"type": "web_search"}
    filters = {key: config[key] for key in ("allowed_domains", "blocked_domains") if config.get(key)}
    if filters:
        entry["filters"] = filters
    location = config.get("user_location")
    if isinstance(location, dict):
        inner = location.get("approximate")
        entry["user_location"] = {"type": "approximate", **(inner if isinstance(inner, dict) else location)}
    if isinstance(config.get("search_context_size"), str):
        entry["search_context_size"] = config["search_context_size"]
    return entry


def encode_tool_choice(choice: ToolChoice, tools: Iterable[Tool]) -> str | dict[str, Any]:
    """The choice in this dialect's words."""
    if choice.mode == "named" and choice.names:
        name = choice.names[0]
        return {"type": name} if choice.kind == "hosted" else {"type": choice.kind, "name": name}
    if choice.mode == "allowed":
        kinds = {tool.name: tool for tool in tools}
        return {
            "type": "allowed_tools",
            "mode": "required" if choice.required else "auto",
            "tools": [_allowed(name, kinds.get(name)) for name in choice.names],
        }
    return choice.mode


def _allowed(name: str, tool: Tool | None) -> dict[str, Any]:
    if tool is not None and tool.kind == "hosted":
        return {"type": tool.hosted or name}
    return {"type": tool.kind if tool is not None else "function", "name": name}


def encode_output(output: Output, target: EncodeTarget, losses: Losses) -> dict[str, Any]:
    """The `text` object; empty when nothing is asked for."""
    profile = target.profile
    text: dict[str, Any] = {}
    if output.kind == "schema" and profile.json_schema:
        form: dict[str, Any] = {
            "type": "json_schema",
            "name": output.name or "answer",
            "schema": for_openai(
                output.schema, strict=bool(output.strict), losses=losses.found, path="output.schema", growth=losses.growth
            ),
            "strict": bool(output.strict),
        }
        if output.description is not None:
            form["description"] = output.description
        text["format"] = form
    elif output.kind != "text" and profile.json_object:
        if output.kind == "schema":
            losses.drop("output.schema", "this upstream takes no schema; JSON is asked for")
        text["format"] = {"type": "json_object"}
    elif output.kind != "text":
        losses.drop("output", "this upstream cannot be asked for JSON")
    if output.verbosity is not None:
        if profile.verbosity:
            text["verbosity"] = output.verbosity
        else:
            losses.hint("verbosity", "not taken by this upstream")
    return text
