"""Tool names that fit the target and come back as the client wrote them.

Stateless: the map is computed from the request's own names, so every turn of a conversation gets the same spelling. The valid
names of declared tools are reserved first, then each invalid one is cleaned, cut and given eight hex digits of its own hash.
Names that only the history calls follow in its order: what a later turn calls changes no name of an earlier one.

Wire facts: docs/reference/wire-facts.md#tool-names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, compress, repeat
from operator import attrgetter, itemgetter
from urllib.parse import quote

import msgspec

from athena.errors import InvalidRequest
from athena.model.parts import Part, ToolCall, ToolResult, changed
from athena.model.request import Request, Tool, Turn, has_kind

NAMESPACE_SEPARATOR = "__"
MODEL_CHARS = 512
"""The longest model name that is looked up."""
TOOL_NAME_CHARS = 512
CALL_ID_CHARS = 256 * 1024
"""Some gateways carry a model's reasoning state in the ids of its calls."""


class NameRule(msgspec.Struct, frozen=True):
    """What tool names a target takes."""

    legal: str
    """A character class: what may stand in a name."""
    length: int
    first: str = ""
    """A character class for the first character, when it is narrower."""


OPENAI_NAMES = NameRule("[a-zA-Z0-9_-]", 64)
ANTHROPIC_NAMES = NameRule("[a-zA-Z0-9_-]", 128)
GEMINI_NAMES = NameRule("[a-zA-Z0-9_.:-]", 128, first="[a-zA-Z_]")


class NameMap:
    """Client names to target names and back. `namespace` and `name` make one flat target name."""

    __slots__ = ("_back", "_forth")

    def __init__(
        self, names: Iterable[tuple[str | None, str]], rule: NameRule, called: Iterable[tuple[str | None, str]] = ()
    ) -> None:
        keys = list(names)
        fitting = list(compress(keys, map(_fits, keys, repeat(rule))))
        self._forth: dict[tuple[str | None, str], str] = dict(zip(fitting, map(_name_in, fitting), strict=True))
        self._back: dict[str, tuple[str | None, str]] = {}
        late = dict.fromkeys(called) if len(fitting) == len(keys) else dict.fromkeys([*keys, *called])
        if late.keys() <= self._forth.keys():
            return
        taken = set(self._forth.values())
        for key in late:
            if key in self._forth:
                continue
            namespace, name = key
            flat = name if namespace is None else f"{namespace}{NAMESPACE_SEPARATOR}{name}"
            target, salt = flat, ""
            while not _fits((None, target), rule) or target in taken:
                target = _cleaned(flat, rule, salt)
                salt += "\0"
            taken.add(target)
            self._forth[key] = target
        self._back = {target: key for key, target in self._forth.items() if key != (None, target)}

    def __bool__(self) -> bool:
        return bool(self._back)

    def target(self, name: str, namespace: str | None = None) -> str:
        """The name to send; names never seen before are sent as they are."""
        return self._forth.get((namespace, name), name)

    def holds(self, name: str, namespace: str | None) -> bool:
        """Was this name among those to be fitted? Namespaces of any other stay as they are."""
        return (namespace, name) in self._forth

    def client(self, name: str) -> tuple[str | None, str]:
        """(namespace, name) as the client wrote it; only what was rewritten is mapped back."""
        return self._back.get(name, (None, name))


_name_in = itemgetter(1)


@lru_cache(maxsize=4096)
def _fits(key: tuple[str | None, str], rule: NameRule) -> bool:
    """Remembered: the same tools come again with every request of a conversation."""
    namespace, name = key
    if namespace is not None or not 0 < len(name) <= rule.length or re.fullmatch(rule.legal + "+", name) is None:
        return False
    return not rule.first or re.match(rule.first, name) is not None


def _cleaned(name: str, rule: NameRule, salt: str) -> str:
    legal = re.compile(rule.legal)
    clean = "".join(character if legal.fullmatch(character) else "_" for character in name)
    if rule.first and re.match(rule.first, clean) is None:
        clean = "_" + clean
    digest = hashlib.sha256((name + salt).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{clean[: rule.length - 9]}_{digest}"


def check_model_name(model: str) -> None:
    """Raises InvalidRequest for a name longer than any model's: names are matched against patterns and remembered."""
    if len(model) > MODEL_CHARS:
        raise _too_long("model", len(model), MODEL_CHARS)


def model_in_path(model: str) -> str:
    """A model's name as a part of a path. It may be a client's, so it can name a model there and nothing else.

    Raises InvalidRequest for a name with an empty segment, `.` or `..`, which servers and proxies would resolve.
    """
    if any(segment in ("", ".", "..") for segment in model.split("/")):
        raise InvalidRequest("model: the name of a model cannot hold empty segments, '.' or '..'", path="model")
    return quote(model, safe="/@", errors="replace")


def check_names(request: Request, checked: int = 0) -> None:
    """Raises InvalidRequest where the model, a tool or a call has a name or an id that is longer than any real one. The first
    turns, as many as were `checked` before, are not looked at again."""
    check_model_name(request.model)
    names: Iterable[str] = filter(None, chain.from_iterable(map(_key_of, request.tools)))
    for index, tool in enumerate(request.tools if max(map(len, names), default=0) > TOOL_NAME_CHARS else ()):
        if len(tool.name) > TOOL_NAME_CHARS:
            raise _too_long(f"tools[{index}].name", len(tool.name), TOOL_NAME_CHARS)
        if tool.namespace is not None and len(tool.namespace) > TOOL_NAME_CHARS:
            raise _too_long(f"tools[{index}].name", len(tool.namespace), TOOL_NAME_CHARS)
    told: list[Part] = list(chain.from_iterable(map(_parts_of, request.turns[checked:])))
    calls = list(compress(told, map(_is_call, map(type, told))))
    results = list(compress(told, map(_is_result, map(type, told))))
    names = chain(map(_name_of, calls), filter(None, map(_name_of, results)))
    ids = chain(map(_id_of, calls), map(_call_id_of, results))
    if max(map(len, names), default=0) > TOOL_NAME_CHARS or max(map(len, ids), default=0) > CALL_ID_CHARS:
        _refuse_long_names(request.turns)
    for name in request.tool_choice.names if request.tool_choice is not None else ():
        if len(name) > TOOL_NAME_CHARS:
            raise _too_long("tool_choice", len(name), TOOL_NAME_CHARS)


_key_of = attrgetter("namespace", "name")
_parts_of = attrgetter("parts")
_name_of = attrgetter("name")
_id_of = attrgetter("id")
_call_id_of = attrgetter("call_id")
_is_call = frozenset((ToolCall,)).__contains__
_is_result = frozenset((ToolResult,)).__contains__


def _refuse_long_names(turns: tuple[Turn, ...]) -> None:
    for position, turn in enumerate(turns):
        for part in turn.parts:
            if isinstance(part, ToolCall):
                if len(part.name) > TOOL_NAME_CHARS:
                    raise _too_long(f"turns[{position}]: name of a tool call", len(part.name), TOOL_NAME_CHARS)
                if len(part.id) > CALL_ID_CHARS:
                    raise _too_long(f"turns[{position}]: id of a tool call", len(part.id), CALL_ID_CHARS)
            elif isinstance(part, ToolResult):
                if len(part.call_id) > CALL_ID_CHARS:
                    raise _too_long(f"turns[{position}]: call id of a tool result", len(part.call_id), CALL_ID_CHARS)
                if len(part.name or "") > TOOL_NAME_CHARS:
                    raise _too_long(f"turns[{position}]: name of a tool result", len(part.name or ""), TOOL_NAME_CHARS)


def _too_long(path: str, length: int, most: int) -> InvalidRequest:
    message = f"{path}: {length} characters; at most {most} are allowed"
    return InvalidRequest(message, path=path.partition(":")[0], code="name_too_long")


def fitted_names(request: Request, rule: NameRule, *, flat: bool = True, calls: Iterable[ToolCall] | None = None) -> NameMap:
    """The map for every tool name a request holds: of its tools, and of the calls of its history.

    Without `flat`, names inside a namespace are left out: the target knows namespaces. `calls` are those of the history, where
    they are known.
    """
    tools: Iterable[Tool] = request.tools
    if has_kind(tools, "hosted"):
        tools = [tool for tool in tools if tool.kind != "hosted"]
    declared: list[tuple[str | None, str]] = list(map(_key_of, tools))
    if calls is None:
        calls = (part for turn in request.turns for part in turn.parts if isinstance(part, ToolCall))
    called: list[tuple[str | None, str]] = list(map(_key_of, calls))
    if not flat:
        declared = [key for key in declared if key[0] is None]
        called = [key for key in called if key[0] is None]
    return NameMap(declared, rule, called)


def rename(request: Request, names: NameMap) -> Request:
    """The request with every tool name in the target's spelling and namespaces flattened."""
    if not names:
        return request
    tools = tuple(_renamed_tool(tool, names) for tool in request.tools)
    called: dict[str, str] = {}
    turns = tuple(_renamed_turn(turn, names, called) for turn in request.turns)
    choice = request.tool_choice
    if choice is not None and choice.names:
        spaces = {tool.name: tool.namespace for tool in request.tools}
        choice = msgspec.structs.replace(choice, names=tuple(names.target(name, spaces.get(name)) for name in choice.names))
    return msgspec.structs.replace(request, tools=tools, turns=turns, tool_choice=choice)


def _renamed_tool(tool: Tool, names: NameMap) -> Tool:
    if tool.kind == "hosted" or (tool.namespace is not None and not names.holds(tool.name, tool.namespace)):
        return tool
    target = names.target(tool.name, tool.namespace)
    if target == tool.name and tool.namespace is None:
        return tool
    return changed(tool, name=target, namespace=None)


def _renamed_turn(turn: Turn, names: NameMap, called: dict[str, str]) -> Turn:
    """`called` collects the target name of every call, because a result's own name does not say its namespace."""
    parts: list[Part] = []
    for part in turn.parts:
        if isinstance(part, ToolCall):
            target = called[part.id] = names.target(part.name, part.namespace)
            if target != part.name or (part.namespace is not None and names.holds(part.name, part.namespace)):
                part = changed(part, name=target, namespace=None)
        elif isinstance(part, ToolResult) and part.name is not None:
            target = called.get(part.call_id) or names.target(part.name)
            if target != part.name:
                part = changed(part, name=target)
        parts.append(part)
    if all(new is old for new, old in zip(parts, turn.parts, strict=True)):
        return turn
    return changed(turn, parts=tuple(parts))
