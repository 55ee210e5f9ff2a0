"""Input items of a Responses request as turns.

What the model said is a run of items: reasoning, messages, calls, hosted calls. Such a run is one assistant turn with its parts
in order, because every other dialect has it so; the turn's `raw` is the list of those items and each part that is an item keeps
that item. Every item from the client's side is a turn of its own with the item as `raw`. A plain string as input is a user turn
with the string as `raw`.

Leading system and developer messages are instructions. `additional_tools` items declare tools and are no turn at all.

Wire facts: docs/reference/wire-facts.md#responses-items.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from athena.calls.arguments import arguments_text
from athena.dialects.openai_responses.decode_tools import decode_tools
from athena.dialects.openai_responses.vocabulary import CACHE_SECONDS, NAME, is_input_item
from athena.model.parts import (
    Audio,
    Base64,
    CacheMark,
    Citation,
    Document,
    FileRef,
    Foreign,
    Image,
    Opaque,
    Part,
    Refusal,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
)
from athena.model.request import Role, Tool, Turn
from athena.wire.fields import Fields
from athena.wire.recall import Recall

_Read = TypeVar("_Read", bound="Turn | _Said")
_SYSTEM_ROLES = ("system", "developer")


class Input(msgspec.Struct, frozen=True):
    """The turns, tools and instructions that the input items hold."""

    system: tuple[Part, ...] = ()
    system_hint: str | None = None
    turns: tuple[Turn, ...] = ()
    tools: tuple[Tool, ...] = ()


def decode_input(body: Fields) -> Input:
    """The `input` of a request body; absent is empty."""
    value = body.any("input")
    if value is None:
        return Input()
    if isinstance(value, str):
        return Input(turns=(Turn(role="user", parts=(Text(text=value),), raw=value),))
    items: list[Any] = body.sequence("input") or []
    recall = body.recall
    reader = _Reader(recall)
    first, run = 0, None
    if recall is not None and recall.runs is not None:
        # Instructions before everything else are no turns; what follows them may have come before.
        first = next((index for index, item in enumerate(items) if type(item) is not dict or not is_instruction(item)), 0)
        run = recall.joined_meanings(items, first, _may_grow)
    known = first + len(run.values) if run is not None else first
    for index in range(first):
        _read_item(body, reader, items[index], index)
    if run is not None:
        reader.turns += run.meanings
    start, remembered = len(reader.turns), len(items)
    for index in range(known, len(items)):
        if not _read_item(body, reader, items[index], index):
            remembered = min(remembered, index)
    made = reader.input(len(items))
    if recall is not None and recall.runs is not None:
        ends = [end - known for end in reader.ends if end <= remembered]
        recall.keep_meanings(run, items[known:], ends, reader.turns[start : start + len(ends)])
    return made


def _read_item(body: Fields, reader: _Reader, item: Any, index: int) -> bool:
    """Returns whether it is remembered what the item means."""
    reader.at = index
    known: Turn | _Said | None = body.recalled(item)
    if known is not None:
        reader.add(item, known)
        return True
    before = body.reading
    meaning = reader.item(body.inner(item, f"{body.at('input')}[{index}]"))
    return meaning is not None and body.remember(item, meaning, before)


def check_items(items: list[Any], path: str) -> None:
    """Raises InvalidRequest for the first item that could not be read as one of a request's input; `path` names the items."""
    reader, body = _Reader(None), Fields({path: items})
    for index, item in enumerate(items):
        reader.item(body.inner(item, f"{path}[{index}]"))


def _may_grow(turn: Turn) -> bool:
    """Do items that follow belong to the turn as well?"""
    return turn.role == "assistant"


def is_instruction(item: dict[str, Any]) -> bool:
    """Is this item a message that counts as instructions where it stands before everything else?"""
    return item.get("role") in _SYSTEM_ROLES and item.get("type") in (None, "message")


class _Said(msgspec.Struct, frozen=True):
    """What an item of the model adds to its turn."""

    parts: tuple[Part, ...]
    phase: str | None = None


class _Reader:
    def __init__(self, recall: Recall | None) -> None:
        self._recall = recall
        self._system: list[Part] = []
        self._system_hint: str | None = None
        self.turns: list[Turn] = []
        self.at = 0
        """The place of the item that is read."""
        self.ends: list[int] = []
        """The places behind the items of each turn that was read."""
        self._tools: list[Tool] = []
        self._raw: list[dict[str, Any]] = []
        self._parts: list[Part] = []
        self._phase: str | None = None

    def input(self, count: int) -> Input:
        """Of all items, which are so many."""
        self.at = count
        self._end_assistant()
        return Input(tuple(self._system), self._system_hint, tuple(self.turns), tuple(self._tools))

    def item(self, fields: Fields) -> Turn | _Said | None:
        """Read one item. Returns what it means; None where that depends on where it stands, or where it declares tools."""
        kind = fields.text("type")
        if kind is None:
            kind = "message" if fields.has("role") or not fields.has("id") else "item_reference"
        if kind == "message":
            return self._message(fields)
        if kind == "additional_tools":
            _ignored(fields, "role", "id")
            self._tools.extend(decode_tools(fields.children("tools")))
            return None
        if kind in _CLIENT_ITEMS:
            turn = Turn(role="user", parts=_CLIENT_ITEMS[kind](fields), hint=_HINTS.get(kind), raw=fields.value)
            return self.add(fields.value, turn)
        if kind in _MODEL_ITEMS:
            return self.add(fields.value, _Said((_MODEL_ITEMS[kind](fields),)))
        declares = kind == "tool_search_output"
        if declares:
            found = decode_tools(fields.children("tools"))
            self._tools.extend(msgspec.structs.replace(tool, inline=True) for tool in found)
        part = Foreign(kind=kind, dialect=NAME, raw=fields.whole())
        own = is_input_item(fields.value)
        meaning = Turn(role="user", parts=(part,), raw=fields.value) if own else _Said((part,))
        self.add(fields.value, meaning)
        return None if declares else meaning

    def _message(self, fields: Fields) -> Turn | _Said | None:
        word = fields.needed_text("role", allow_empty=False)
        _ignored(fields, "id", "status")
        content = fields.any("content")
        phase = fields.text("phase")
        if content is None:
            raise fields.wrong("content", "a string or an array of parts")
        if word == "assistant":
            return self.add(fields.value, _Said(_answer_parts(fields, content), phase))
        parts = (Text(text=content),) if isinstance(content, str) else fields.each("content", decode_part)
        if word in _SYSTEM_ROLES and not self.turns and not self._parts:
            self._system.extend(parts)
            self._system_hint = self._system_hint or word
            return None
        role: Role = "system" if word in _SYSTEM_ROLES else "user"
        hint = None if word == "user" else word
        turn = self.add(fields.value, Turn(role=role, parts=parts, hint=hint, phase=phase, raw=fields.value))
        # Instructions are no turn where nothing stands before them.
        return turn if role == "user" else None

    def add(self, item: dict[str, Any], meaning: _Read) -> _Read:
        """What the next item means: a turn of the client's, or more of the model's."""
        if isinstance(meaning, Turn):
            self._end_assistant()
            self.turns.append(meaning)
            self.ends.append(self.at + 1)
            return meaning
        phase = meaning.phase
        if self._parts and phase is not None and self._phase is not None and phase != self._phase:
            self._end_assistant()
        self._phase = phase or self._phase
        self._raw.append(item)
        self._parts.extend(meaning.parts)
        return meaning

    def _end_assistant(self) -> None:
        raw = self._raw
        if raw:
            make = partial(Turn, role="assistant", parts=tuple(self._parts), phase=self._phase, raw=raw)
            self.turns.append(make() if self._recall is None else self._recall.together(raw, make))
            self.ends.append(self.at)
        self._raw, self._parts, self._phase = [], [], None


def _answer_parts(fields: Fields, content: Any) -> tuple[Part, ...]:
    """The parts of an assistant message. A lone part keeps the whole item, whose id then survives a change beside it."""
    if isinstance(content, str):
        return (Text(text=content, raw=fields.value),)
    parts = fields.each("content", decode_part)
    if len(parts) == 1:
        return (msgspec.structs.replace(parts[0], raw=fields.value),)
    return parts


# -- content parts ----------------------------------------------------------------------------------------------------------


def decode_part(fields: Fields) -> Part:
    """One content part of a message or of a tool's output."""
    kind = fields.needed_text("type", allow_empty=False)
    read = _PARTS.get(kind)
    if read is None:
        return Foreign(kind=kind, dialect=NAME, raw=fields.whole())
    return read(fields)


def _text(fields: Fields) -> Part:
    return Text(
        text=fields.needed_text("text"),
        citations=tuple(decode_annotation(entry) for entry in fields.sequence("annotations") or () if isinstance(entry, dict)),
        cache=_cache(fields),
        raw=fields.value,
        extras=_rest(fields, "logprobs"),
    )


def _refusal(fields: Fields) -> Part:
    return Refusal(text=fields.needed_text("refusal"), raw=fields.value, extras=fields.rest())


def _image(fields: Fields) -> Part:
    url, file_id = fields.any("image_url"), fields.text("file_id")
    if isinstance(url, dict):
        # Chat's nested form.
        url = url.get("url")
    if isinstance(url, str):
        source = source_of_url(url)
    elif file_id is not None:
        source = FileRef(id=file_id)
    else:
        raise fields.wrong("image_url", "a URL, or a file_id beside it")
    return Image(source=source, detail=fields.text("detail"), cache=_cache(fields), raw=fields.value, extras=fields.rest())


def _file(fields: Fields) -> Part:
    data, url, file_id = fields.text("file_data"), fields.text("file_url"), fields.text("file_id")
    source: Source
    if data is not None:
        source = source_of_url(data) if data.startswith("data:") else Base64(mime="application/pdf", data=data)
    elif url is not None:
        source = Url(url=url)
    elif file_id is not None:
        source = FileRef(id=file_id)
    else:
        raise fields.wrong("file_data", "file_data, file_url or file_id")
    title = fields.text("filename")
    return Document(source=source, title=title, cache=_cache(fields), raw=fields.value, extras=fields.rest())


def _audio(fields: Fields) -> Part:
    inner = fields.child("input_audio") or fields
    data, form = inner.needed_text("data"), inner.text("format")
    return Audio(source=Base64(mime=f"audio/{form or 'wav'}", data=data), format=form, raw=fields.value)


_PARTS: dict[str, Callable[[Fields], Part]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "summary_text": _text,
    "reasoning_text": _text,
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
}


def source_of_url(url: str) -> Source:
    """A data URL as its bytes, any other address as it is."""
    if not url.startswith("data:"):
        return Url(url=url)
    head, _, data = url[5:].partition(",")
    return Base64(mime=head.split(";")[0] or "application/octet-stream", data=data)


def decode_annotation(entry: dict[str, Any]) -> Citation:
    """A citation inside answer text; the kinds without an address keep their raw form only."""
    kind = str(entry.get("type", ""))
    if kind != "url_citation":
        return Citation(kind=kind, title=_str(entry.get("filename")), raw=entry)
    return Citation(
        url=_str(entry.get("url")),
        title=_str(entry.get("title")),
        start=_int(entry.get("start_index")),
        end=_int(entry.get("end_index")),
        raw=entry,
    )


def _str(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _cache(fields: Fields) -> CacheMark | None:
    mark = fields.child("prompt_cache_breakpoint")
    if mark is None:
        return None
    _ignored(mark, "mode")
    return CacheMark(ttl_seconds=CACHE_SECONDS.get(mark.text("ttl") or "", 1800), raw=mark.value)


def _rest(fields: Fields, *known: str) -> dict[str, Any] | None:
    """Unknown keys; `known` ones are understood and mean nothing elsewhere."""
    _ignored(fields, *known)
    return fields.rest()


def _ignored(fields: Fields, *known: str) -> None:
    """Count fields as understood that mean nothing elsewhere."""
    for key in known:
        fields.any(key)


# -- items ------------------------------------------------------------------------------------------------------------------


def _reasoning(fields: Fields) -> Part:
    summary = _texts(fields, "summary")
    content = _texts(fields, "content")
    payload, item_id = fields.text("encrypted_content"), fields.text("id")
    return Thinking(
        # The raw chain of thought says more than its summary, where a server hands it out at all.
        text=content or summary,
        summary=not content and bool(summary),
        signature=None if not payload else Opaque(family="openai", kind="encrypted", payload=payload, item_id=item_id),
        raw=fields.value,
        extras=_rest(fields, "status"),
    )


def _texts(fields: Fields, key: str) -> str:
    texts: list[str] = []
    for entry in fields.children(key):
        entry.any("type")
        texts.append(entry.text("text") or "")
    return "\n\n".join(texts)


def _function_call(fields: Fields) -> Part:
    arguments = fields.any("arguments")
    if arguments is not None and not isinstance(arguments, str | dict):
        raise fields.wrong("arguments", "a string of JSON")
    return ToolCall(
        id=fields.needed_text("call_id", allow_empty=False),
        name=fields.needed_text("name", allow_empty=False),
        arguments=arguments_text(arguments),
        namespace=fields.text("namespace"),
        item_id=fields.text("id"),
        raw=fields.value,
        extras=_rest(fields, "status", "caller"),
    )


def _custom_call(fields: Fields) -> Part:
    return ToolCall(
        id=fields.needed_text("call_id", allow_empty=False),
        name=fields.needed_text("name", allow_empty=False),
        arguments=fields.needed_text("input"),
        kind="custom",
        namespace=fields.text("namespace"),
        item_id=fields.text("id"),
        raw=fields.value,
        extras=_rest(fields, "status", "caller"),
    )


def _function_output(fields: Fields) -> tuple[Part, ...]:
    return (_result(fields, custom=False),)


def _custom_output(fields: Fields) -> tuple[Part, ...]:
    return (_result(fields, custom=True),)


def _result(fields: Fields, *, custom: bool) -> ToolResult:
    output = fields.any("output")
    if isinstance(output, str):
        parts: tuple[Part, ...] = (Text(text=output),) if output else ()
    elif isinstance(output, list):
        parts = fields.each("output", decode_part)
    elif isinstance(output, dict):
        parts = (Text(text=msgspec.json.encode(output).decode()),)
    else:
        raise fields.wrong("output", "a string or an array of parts")
    return ToolResult(
        # The API takes a result without a call, too.
        call_id=fields.text("call_id") or "",
        parts=parts,
        name=fields.text("name"),
        kind="custom" if custom else "function",
        raw=fields.value,
        extras=_rest(fields, "id", "status", "namespace", "caller"),
    )


def _agent_message(fields: Fields) -> tuple[Part, ...]:
    """A message of another agent: input like a user's message, some of it perhaps encrypted."""
    content = fields.any("content")
    if isinstance(content, str):
        return (Text(text=content),)
    return fields.each("content", decode_part)


_MODEL_ITEMS: dict[str, Callable[[Fields], Part]] = {
    "reasoning": _reasoning,
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
}
_CLIENT_ITEMS: dict[str, Callable[[Fields], tuple[Part, ...]]] = {
    "function_call_output": _function_output,
    "custom_tool_call_output": _custom_output,
    "agent_message": _agent_message,
}
_HINTS = {"function_call_output": "tool", "custom_tool_call_output": "tool", "agent_message": "agent_message"}
