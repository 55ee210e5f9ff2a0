"""A client's Chat request as a neutral one.

Leading system and developer messages become `system`; each later message is a turn of its own, tool messages too, so that an
unchanged conversation goes back out message by message. The older `functions` and `function_call` are read as tools and calls;
their calls have no ids, so ids are made from name and position.

Wire facts: docs/reference/wire-facts.md#chat-requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter, methodcaller
from typing import Any

import msgspec

from athena.calls.arguments import arguments_text
from athena.calls.ids import hashed
from athena.dialects.openai_chat.media import cache_mark, decode_part
from athena.dialects.openai_chat.read_controls import read_controls, usual_controls
from athena.dialects.openai_chat.reasoning import call_signature, encrypted, signed
from athena.errors import InvalidRequest
from athena.model.parts import Audio, Opaque, Part, Refusal, Text, Thinking, ToolCall, ToolResult
from athena.model.request import Request, Tool, Turn
from athena.wire.fields import Fields
from athena.wire.recall import Recall

SYSTEM_ROLES = ("system", "developer")
WEB_SEARCH = "web_search_options"
"""Chat's hosted search is a field of the request, not an entry of `tools`."""


def decode_request(
    body: Mapping[str, Any],
    *,
    model: str | None = None,
    stream: bool | None = None,
    version: str | None = None,
    recall: Recall | None = None,
) -> Request:
    """A body as a Request; raises InvalidRequest naming the field."""
    raw = dict(body)
    if recall is None and model is None and stream is None:
        usual = _usual_request(raw)
        if usual is not None:
            return usual
    fields = Fields(raw, recall=recall)
    request = read_controls(fields, model=model, stream=stream)
    alone = not (fields.has("functions") or fields.has(WEB_SEARCH))
    tools = fields.whole_field("tools", decode_tools) if alone else decode_tools(fields)
    messages = fields.sequence("messages")
    if not messages:
        raise InvalidRequest("messages: at least one message is required", path="messages")
    first = leading_system(messages)
    leading = [fields.inner(message, f"messages[{index}]") for index, message in enumerate(messages[:first])]
    system = tuple(part for message in leading for part in system_parts(message))
    reader = _Turns()
    turns: list[Turn] = recall.meanings(messages, first) if recall is not None else []
    declared = [tool for message in leading for tool in _inline_tools(message)]
    for index, message in enumerate(messages[first + len(turns) :], first + len(turns)):
        turn: Turn | None = fields.recalled(message)
        if turn is None:
            before = fields.reading
            turn = _plain_turn(message)
            if turn is None:
                read = fields.inner(message, f"messages[{index}]")
                turn = reader.turn(read)
                declared += _inline_tools(read)
            if not _depends_on_others(message):
                fields.remember(message, turn, before)
        turns.append(turn)
    return msgspec.structs.replace(
        request,
        tools=tools if not declared else (*tools, *declared),
        system=system,
        system_hint=str(messages[0].get("role")) if first else None,
        turns=tuple(turns),
        raw=raw,
        extras=fields.rest(),
        unread=fields.unread(),
    )


_FEW_MESSAGES = 64
"""Up to so many it does no harm to read them twice, where one of them turns out not to be usual."""


def _usual_request(raw: dict[str, Any]) -> Request | None:
    """A request of few fields, each with a value as usual; None for any other, which is read field by field or refused."""
    request, messages, declared = usual_controls(raw), raw.get("messages"), raw.get("tools")
    if request is None or type(messages) is not list or not 0 < len(messages) <= _FEW_MESSAGES:
        return None
    if declared is not None and type(declared) is not list:
        return None
    first = leading_system(messages)
    system: list[Part] = []
    for message in messages[:first]:
        text = message.get("content")
        if type(text) is not str or message.keys() != _SAID_KEYS:
            return None
        system.append(Text(text=text))
    turns = tuple(filter(None, map(_plain_turn, messages[first:])))
    tools = _plain_tools(declared) if declared else ()
    if len(turns) < len(messages) - first or tools is None:
        return None
    return msgspec.structs.replace(
        request,
        tools=tools,
        system=tuple(system),
        system_hint=messages[0]["role"] if first else None,
        turns=turns,
        raw=raw,
    )


def _depends_on_others(message: dict[str, Any]) -> bool:
    """Does what a message means depend on the ones before it, or does it declare tools?"""
    return message.get("role") == "function" or "function_call" in message or "tools" in message


def leading_system(messages: list[Any]) -> int:
    """How many messages at the start are instructions."""
    count = 0
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in SYSTEM_ROLES:
            break
        count += 1
    return count


def system_parts(message: Fields) -> tuple[Part, ...]:
    message.text("role")
    return _content(message)


def _inline_tools(message: Fields) -> tuple[Tool, ...]:
    """Tools that a system message declares, as Kimi K3 takes them."""
    if message.value.get("role") not in SYSTEM_ROLES or not isinstance(message.value.get("tools"), list):
        return ()
    return tuple(msgspec.structs.replace(_tool(entry), inline=True) for entry in message.children("tools"))


def _content(fields: Fields) -> tuple[Part, ...]:
    value = fields.any("content")
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(text=value),)
    if not isinstance(value, list):
        raise fields.wrong("content", "a string or an array of content parts")
    parts: list[Part] = []
    for index, item in enumerate(value):
        if isinstance(item, str):
            parts.append(Text(text=item))
        else:
            parts.append(decode_part(fields.inner(item, f"{fields.at('content')}[{index}]")))
    return tuple(parts)


# -- the usual messages -----------------------------------------------------------------------------------------------------

_SAID_KEYS = frozenset({"role", "content"})
_CALLING_KEYS = frozenset({"role", "content", "tool_calls"})
_CALLING_KEYS_ONLY = frozenset({"role", "tool_calls"})
_RESULT_KEYS = frozenset({"role", "tool_call_id", "content"})
_CALL_KEYS = frozenset({"id", "type", "function"})
_FUNCTION_KEYS = frozenset({"name", "arguments"})


def _plain_turn(message: Any) -> Turn | None:
    """A message of plain text, with calls of functions or as the result of one, and no other fields; None for any other, which
    `_Turns` reads or refuses. Both read the same out of what both can read.
    """
    if type(message) is not dict:
        return None
    role, content, keys = message.get("role"), message.get("content"), message.keys()
    if role == "tool":
        call_id = message.get("tool_call_id")
        if type(call_id) is not str or not call_id or type(content) is not str or keys != _RESULT_KEYS:
            return None
        result = ToolResult(call_id=call_id, parts=(Text(text=content),), raw=message)
        return Turn(role="user", parts=(result,), hint="tool", raw=message)
    if role == "assistant":
        if keys == _SAID_KEYS:
            return Turn(role="assistant", parts=(Text(text=content),), raw=message) if type(content) is str else None
        if keys != _CALLING_KEYS and keys != _CALLING_KEYS_ONLY:
            return None
        entries = message["tool_calls"]
        calls = list(map(_plain_call, entries)) if type(entries) is list and entries else [None]
        if None in calls or (content is not None and type(content) is not str):
            return None
        return Turn(role="assistant", parts=(*((Text(text=content),) if content is not None else ()), *calls), raw=message)
    if role == "user" and keys == _SAID_KEYS and type(content) is str:
        return Turn(role="user", parts=(Text(text=content),), raw=message)
    return None


def _plain_call(entry: Any) -> ToolCall | None:
    if type(entry) is not dict or entry.keys() != _CALL_KEYS or entry["type"] != "function":
        return None
    call_id, function = entry["id"], entry["function"]
    if type(call_id) is not str or not call_id or type(function) is not dict or function.keys() != _FUNCTION_KEYS:
        return None
    name, arguments = function["name"], function["arguments"]
    if type(name) is not str or not name or type(arguments) is not str:
        return None
    return ToolCall(id=call_id, name=name, arguments=arguments if arguments.strip() else "{}", raw=entry)


# -- turns ------------------------------------------------------------------------------------------------------------------


class _Turns:
    """Messages to turns; remembers calls of the older form, which have no ids."""

    def __init__(self) -> None:
        self._made = 0
        self._open: dict[str, str] = {}

    def turn(self, fields: Fields) -> Turn:
        role = fields.text("role")
        if role in SYSTEM_ROLES:
            return self._finished(fields, Turn(role="system", hint=role, parts=_content(fields)))
        if role == "user":
            if not fields.has("content"):
                raise InvalidRequest(f"{fields.at('content')}: field required", path=fields.at("content"))
            return self._finished(fields, Turn(role="user", parts=_content(fields)))
        if role == "assistant":
            return self._finished(fields, Turn(role="assistant", parts=self._assistant(fields)))
        if role == "tool":
            return self._result(fields, fields.needed_text("tool_call_id", allow_empty=False), "tool")
        if role == "function":
            name = fields.needed_text("name", allow_empty=False)
            return self._result(fields, self._open.pop(name, "") or self._fresh_id(name), "function")
        raise fields.wrong("role", "system, developer, user, assistant or tool")

    def _finished(self, fields: Fields, turn: Turn) -> Turn:
        name = fields.text("name")
        if turn.role == "system" and isinstance(fields.value.get("tools"), list):
            fields.any("tools")  # they are declared, wherever the request goes
        return msgspec.structs.replace(turn, name=name, raw=fields.value, extras=fields.rest())

    def _result(self, fields: Fields, call_id: str, hint: str) -> Turn:
        parts = _content(fields)
        name, extras = fields.text("name"), fields.rest()
        raw = fields.value if hint == "tool" else None
        result = ToolResult(call_id=call_id, parts=parts, name=name, raw=raw, extras=extras)
        return Turn(role="user", parts=(result,), hint=hint, raw=fields.value)

    def _assistant(self, fields: Fields) -> tuple[Part, ...]:
        parts: list[Part] = []
        calls = self._calls(fields)
        states = _thinking(fields, parts)
        parts.extend(_content(fields))
        refusal = fields.text("refusal")
        if refusal:
            parts.append(Refusal(text=refusal))
        audio = fields.child("audio")
        if audio is not None:
            parts.append(Audio(id=audio.text("id")))
        for call in calls:
            state = states.pop(call.id, None)
            if state is not None and call.signature is None:
                call = msgspec.structs.replace(call, signature=state)
            parts.append(call)
        for position, state in enumerate(states.values()):
            parts.insert(position, Thinking(signature=state))
        return tuple(parts)

    def _calls(self, fields: Fields) -> list[ToolCall]:
        calls = [self._call(entry) for entry in fields.children("tool_calls")]
        older = fields.child("function_call")
        if older is not None and not calls:
            name = older.needed_text("name", allow_empty=False)
            call_id = self._open[name] = self._fresh_id(name)
            calls.append(ToolCall(id=call_id, name=name, arguments=_arguments(older)))
        return calls

    def _call(self, entry: Fields) -> ToolCall:
        entry.any("index")
        kind = entry.text("type") or ("custom" if entry.has("custom") else "function")
        call_id = entry.needed_text("id", allow_empty=False)
        signature = call_signature(entry.any("extra_content"))
        if kind == "custom":
            inner = entry.child("custom")
            if inner is None:
                raise entry.wrong("custom", "an object with name and input")
            arguments = inner.needed_text("input")
        elif kind != "function" and not entry.has("function"):
            return _unknown_call(entry, kind, call_id)
        else:
            inner = entry.child("function")
            if inner is None:
                raise entry.wrong("function", "an object with name and arguments")
            arguments = _arguments(inner)
        return ToolCall(
            id=call_id,
            name=inner.needed_text("name", allow_empty=False),
            arguments=arguments,
            kind="custom" if kind == "custom" else "function",
            signature=signature,
            raw=entry.value,
            extras=entry.rest(),
        )

    def _fresh_id(self, name: str) -> str:
        self._made += 1
        return "call_" + hashed(f"{name}\0{self._made}")


def _unknown_call(entry: Fields, kind: str, call_id: str) -> ToolCall:
    """A call of an unknown kind: its client ran it, so to every other dialect it was a function of that name."""
    said = entry.any(kind)
    told = said if isinstance(said, dict) else {"input": said} if said is not None else {}
    return ToolCall(id=call_id, name=kind, arguments=arguments_text(told), raw=entry.value, extras=entry.rest())


def _arguments(fields: Fields) -> str:
    value = fields.any("arguments")
    if value is None or isinstance(value, dict):
        return arguments_text(value)
    if not isinstance(value, str):
        raise fields.wrong("arguments", "a string of JSON")
    return value if value.strip() else "{}"


def _thinking(fields: Fields, parts: list[Part]) -> dict[str, Opaque]:
    """Reasoning a client sends back, written to `parts`; the state that belongs to calls is returned by call id."""
    states: dict[str, Opaque] = {}
    told = False
    details = fields.any("reasoning_details")
    for entry in details if isinstance(details, list) else ():
        if not isinstance(entry, dict):
            continue
        if entry.get("type") == "reasoning.encrypted":
            state = encrypted(entry)
            if state is not None and state.kind == "thought_signature" and state.item_id:
                states[state.item_id] = state
            elif state is not None:
                parts.append(Thinking(signature=state, raw=entry))
            continue
        summary = entry.get("type") == "reasoning.summary"
        text = entry.get("summary" if summary else "text")
        text = text if isinstance(text, str) else ""
        sealed = signed(entry) if isinstance(entry.get("signature"), str) and entry["signature"] else None
        if text or sealed is not None:
            parts.append(Thinking(text=text, signature=sealed, summary=summary, raw=entry))
            told = told or bool(text)
    for key in ("reasoning_content", "reasoning"):
        text = fields.any(key)
        if isinstance(text, str) and text and not told:
            _tell(text, parts)
            told = True
    return states


def _tell(text: str, parts: list[Part]) -> None:
    """Plain reasoning text joins the one signature that came without text, else it stands alone, first."""
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, Thinking) and only.signature is not None and only.signature.kind == "signature":
        parts[0] = msgspec.structs.replace(only, text=text)
        return
    parts.insert(0, Thinking(text=text))


# -- tools --------------------------------------------------------------------------------------------------------------------


def decode_tools(fields: Fields) -> tuple[Tool, ...]:
    """The tools of `tools`, of the older `functions`, and the hosted search."""
    plain = _plain_tools(fields.sequence("tools") or []) if not fields.has("functions") and not fields.has(WEB_SEARCH) else None
    if plain is not None:
        return plain
    tools = list(fields.each("tools", _tool, plain=_plain_tool))
    for entry in fields.children("functions"):
        if not fields.has("tools"):
            tools.append(_function(entry, raw=entry.value, outer=None))
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.kind != "hosted" and tool.name in seen:
            path = f"tools[{index}].function.name"
            raise InvalidRequest(f"{path}: {tool.name!r} is declared twice", path=path)
        seen.add(tool.name)
    search = fields.mapping(WEB_SEARCH)
    if search is not None:
        tools.append(Tool(name="web_search", kind="hosted", hosted=WEB_SEARCH, config=search, raw=search))
    return tuple(tools)


_tool_fields = itemgetter("type", "function")
_function_fields = itemgetter("name", "description", "parameters")
_type_of = methodcaller("get", "type")
_DICTS, _TEXTS, _TWO, _THREE = {dict}, {str}, {2}, {3}


def _plain_tools(declared: list[Any]) -> tuple[Tool, ...] | None:
    """Functions of different names, each with its usual fields and no others; None for a list with any other tool, which
    `_tool` reads or refuses. All are looked at together, with hardly a step of Python's for each.
    """
    try:
        kinds, functions = zip(*map(_tool_fields, declared), strict=True)
        names, descriptions, schemas = zip(*map(_function_fields, functions), strict=True)
    except (KeyError, TypeError, ValueError):  # a field is missing, one is no object, or there are none
        return None
    if set(map(type, names + descriptions)) != _TEXTS or set(map(type, (*declared, *functions, *schemas))) != _DICTS:
        return None
    if set(map(len, declared)) != _TWO or set(map(len, functions)) != _THREE or kinds.count("function") < len(kinds):
        return None
    if len(set(names)) < len(names) or not all(names) or list(map(_type_of, schemas)).count("object") < len(schemas):
        return None
    return tuple([
        Tool(name=name, description=description, schema=schema, raw=value)
        for name, description, schema, value in zip(names, descriptions, schemas, declared, strict=True)
    ])  # fmt: skip


def _plain_tool(value: Any) -> Tool | None:
    """The same of one tool."""
    plain = _plain_tools([value])
    return plain[0] if plain is not None else None


def _tool(entry: Fields) -> Tool:
    kind = entry.text("type") or "function"
    if kind == "function":
        inner = entry.child("function")
        return _function(entry if inner is None else inner, raw=entry.value, outer=entry)
    if kind == "custom":
        return _custom(entry)
    settings = {key: value for key, value in entry.value.items() if key != "type"}
    name = entry.text("name") or kind
    return Tool(name=name, kind="hosted", hosted=kind, config=settings or None, raw=entry.value)


def _function(inner: Fields, *, raw: dict[str, Any], outer: Fields | None) -> Tool:
    schema = inner.mapping("parameters")
    if schema is not None:
        kind = schema.get("type", "object")
        if kind != "object" and not (isinstance(kind, list) and "object" in kind):
            path = f"{inner.at('parameters')}.type"
            raise InvalidRequest(f"{path}: the parameters of a tool must be an object", path=path)
    mark = cache_mark(outer) if outer is not None else None
    tool = Tool(
        name=inner.needed_text("name", allow_empty=False),
        description=inner.text("description"),
        schema=schema,
        strict=inner.flag("strict"),
        cache=mark,
        raw=raw,
    )
    left = dict(inner.rest() or {})
    if outer is not None and outer is not inner:
        left.update(outer.rest() or {})
    return msgspec.structs.replace(tool, extras=left or None)


def _custom(entry: Fields) -> Tool:
    inner = entry.child("custom")
    if inner is None:
        raise entry.wrong("custom", "an object with a name")
    form = inner.child("format")
    grammar: dict[str, str] | None = None
    if form is not None and form.text("type") == "grammar":
        rules = form.child("grammar") or form
        grammar = {"syntax": rules.needed_text("syntax"), "definition": rules.needed_text("definition")}
    return Tool(
        name=inner.needed_text("name", allow_empty=False),
        kind="custom",
        description=inner.text("description"),
        grammar=grammar,
        raw=entry.value,
        extras=entry.rest(),
    )
