"""Whose words the texts of a request are: the model's own, from its earlier turns, or somebody else's.

Everything that is not the model's own can have come from anywhere: users paste, tools fetch, documents and descriptions of
tools are written by strangers. The order is that of the conversation, so that it can be told who wrote something first.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from athena.calls.names import NAMESPACE_SEPARATOR, NameMap
from athena.formats.machine.base import Format
from athena.formats.machine.echo import EchoGuard, Passage
from athena.formats.machine.policies import RepairLevel
from athena.model.parts import (
    Audio,
    Base64,
    Citation,
    Document,
    Foreign,
    Image,
    InlineText,
    Nested,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Video,
)
from athena.model.request import Request, Tool, Turn
from athena.prepare.tools import INPUT_KEY

_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/javascript")


def echo_guard(
    request: Request,
    *,
    tools: Sequence[Tool],
    names: NameMap | None = None,
    repair: RepairLevel = "syntax",
    formats: Sequence[Format] = (),
) -> EchoGuard:
    """The guard for the answer to a request; `tools` as the model knows them, `names` from the client's names to those.

    Making one costs nothing: the request is looked at when a call is found in the answer's text.
    """
    return EchoGuard(
        partial(passages, request),
        tools=tools,
        calls=partial(own_calls, request, names),
        spellings=partial(_spellings, names),
        repair=repair,
        formats=formats,
    )


def _spellings(names: NameMap | None, name: str) -> tuple[str, ...]:
    """How the client writes the name of a tool."""
    if names is None:
        return ()
    namespace, own = names.client(name)
    return (own,) if namespace is None else (own, f"{namespace}{NAMESPACE_SEPARATOR}{own}", f"{namespace}.{own}")


def passages(request: Request) -> Iterator[Passage]:
    """Every text of the request, in its order, with who wrote it."""
    for tool in request.tools:
        yield Passage(_tool_text(tool))
    for text in _texts(request.system):
        yield Passage(text)
    for turn in request.turns:
        yield from _turn_passages(turn)
    if request.output.prediction is not None:
        yield Passage(_json(request.output.prediction))


def own_calls(request: Request, names: NameMap | None = None) -> Iterator[tuple[str, str]]:
    """Name and arguments of the calls that the model made in earlier turns, under the names that the model knows.

    The calls of a free-form tool count as they are and as a function's.
    """
    for turn in request.turns:
        if turn.role != "assistant":
            continue
        for part in turn.parts:
            if isinstance(part, ToolCall):
                name = part.name if names is None else names.target(part.name, part.namespace)
                yield name, part.arguments
                if part.kind == "custom":
                    yield name, _json({INPUT_KEY: part.arguments})


def _turn_passages(turn: Turn) -> Iterator[Passage]:
    if turn.role != "assistant":
        for text in _texts(turn.parts):
            yield Passage(text)
        if turn.extras:
            yield Passage(_json(turn.extras))
        return
    for part in turn.parts:
        if isinstance(part, Text | Refusal | Thinking):
            yield Passage(part.text, own=True)
        elif isinstance(part, Foreign | ToolResult):
            # What a provider's own tools brought stands in the model's turn and is not the model's.
            for text in _texts((part,)):
                yield Passage(text)


def _texts(parts: Iterable[Part]) -> Iterator[str]:
    """The texts of these parts; text in several pieces is one text, because the model reads it as one."""
    pieces: list[str] = []
    others: list[str] = []
    for part in parts:
        match part:
            case Text() | Refusal() | Thinking():
                pieces.append(part.text)
            case ToolResult():
                inner = list(_texts(part.parts))
                others.extend(inner)
                if part.structured is not None and not inner:
                    others.append(_json(part.structured))
            case Document():
                others.extend(_document_texts(part))
            case Audio():
                others.append(part.transcript or "")
            case Citation():
                others.append(part.quote or "")
            case Foreign():
                others.append(_json(part.raw))
            case Image() | Video() | ToolCall():
                pass
        if part.extras:
            others.append(_json(part.extras))
    if pieces:
        yield pieces[0] if len(pieces) == 1 else "".join(pieces)
    yield from others


def _document_texts(document: Document) -> Iterator[str]:
    yield document.title or ""
    yield document.context or ""
    match document.source:
        case InlineText(text=text):
            yield text
        case Nested(parts=parts):
            yield from _texts(parts)
        case Base64(mime=mime, data=data) if mime.startswith(_TEXT_TYPES):
            try:
                yield base64.b64decode(data).decode("utf-8", "replace")
            except (binascii.Error, ValueError):
                return
        case _:
            return


def _tool_text(tool: Tool) -> str:
    """What a tool says about itself. Its schema is data, but the descriptions in it are words."""
    pieces = [tool.description or "", tool.namespace_description or ""]
    if tool.schema:
        pieces.append(_json(tool.schema))
    if tool.config:
        pieces.append(_json(tool.config))
    return "\n".join(filter(None, pieces))


def _json(value: Any) -> str:
    """A value as JSON text: what stands in its strings can be read behind the escapes."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError):
        return json.dumps(value, default=str)
