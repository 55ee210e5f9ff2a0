"""Turns as input items of a Responses request.

At home, what kept its raw JSON goes out as it came. Reasoning items are sent only with the encrypted state of this upstream's
family and only in front of another item: a server refuses a reasoning item without its follower, and a call with its item id
without its reasoning. So where reasoning had to go, the ids of that turn's items go too.

Wire facts: docs/reference/wire-facts.md#rules-of-translation.
"""

from __future__ import annotations

from functools import partial
from typing import assert_never

import msgspec

from athena.dialects.base import EncodeTarget
from athena.dialects.losses import Losses
from athena.dialects.openai_responses.typed_tools import Item
from athena.dialects.openai_responses.vocabulary import NAME
from athena.dialects.recalled import Rewritten
from athena.errors import UnsupportedFeature
from athena.model.parts import (
    Audio,
    Base64,
    CacheMark,
    Citation,
    Document,
    FileRef,
    Foreign,
    Image,
    InlineText,
    Nested,
    Part,
    Refusal,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Video,
)
from athena.model.request import Request, Turn
from athena.wire.recall import Recall

_ERROR_PREFIX = "[tool error] "
_MARK_LIMIT = 4
_EXTENSIONS = {
    "application/pdf": "pdf",
    "text/plain": "txt",
    "text/csv": "csv",
    "text/html": "html",
    "application/json": "json",
}


class ItemEncoder:
    """Writes the conversation of one request."""

    def __init__(self, request: Request, target: EncodeTarget, losses: Losses, recall: Recall | None = None) -> None:
        self._home = request.dialect == NAME
        self._losses = losses
        self._request = request
        self._marks = target.profile.cache_marks == "breakpoint"
        self._typed_ids = target.profile.typed_item_ids
        # Which marks are written depends on the whole conversation.
        pure = not self._home and not self._marks
        self._rewritten = Rewritten(recall if pure else None, target, losses, NAME)
        # Only the last few breakpoints count; the earlier ones are dropped silently.
        self._skip_marks = max(0, _count_marks(request) - _MARK_LIMIT)

    def system(self) -> list[Item]:
        """The instructions as a leading developer message."""
        content = self._content(self._request.system, "system")
        return [{"type": "message", "role": "developer", "content": content}] if content else []

    def turns(self) -> list[Item]:
        items: list[Item] = []
        for index, turn in enumerate(self._request.turns):
            path = f"turns[{index}]"
            items.extend(self._rewritten.turn(turn, path, partial(self._turn, turn, path)))
        if not self._home and self._request.turns and self._request.turns[-1].role == "assistant":
            last = f"turns[{len(self._request.turns) - 1}]"
            self._losses.hint(last, "the upstream may answer anew instead of continuing the last message")
        return items

    def _turn(self, turn: Turn, path: str) -> list[Item]:
        if self._home and turn.raw is not None:
            if isinstance(turn.raw, list):
                return [_with_typed_id(item) for item in turn.raw] if self._typed_ids else turn.raw
            return [{"role": "user", "content": turn.raw} if isinstance(turn.raw, str) else turn.raw]
        if not self._home:
            self._losses.extras(path, turn.extras)
        if turn.name is not None:
            self._losses.hint(f"{path}.name", "messages have no names here")
        return self._assistant(turn, path) if turn.role == "assistant" else self._given(turn, path)

    # -- what the client said ----------------------------------------------------------------------------------------------

    def _given(self, turn: Turn, path: str) -> list[Item]:
        items: list[Item] = []
        waiting: list[Part] = []
        role = "user"
        if turn.role == "system":
            role = turn.hint if turn.hint in ("system", "developer") else "developer"
        for index, part in enumerate(turn.parts):
            inside = f"{path}.parts[{index}]"
            if isinstance(part, ToolResult):
                self._flush(items, waiting, role, path)
                items.append(self._result(part, inside))
            elif isinstance(part, Foreign) and _is_item(part):
                self._flush(items, waiting, role, path)
                items.extend(self._foreign(part, inside))
            else:
                waiting.append(part)
        self._flush(items, waiting, role, path)
        return items

    def _flush(self, items: list[Item], waiting: list[Part], role: str, path: str) -> None:
        content = self._content(waiting, path)
        if content:
            items.append({"type": "message", "role": role, "content": content})
        waiting.clear()

    def _content(self, parts: list[Part] | tuple[Part, ...], path: str) -> list[Item]:
        content: list[Item] = []
        for index, part in enumerate(parts):
            content.extend(self._part(part, f"{path}.parts[{index}]"))
        return content

    def _part(self, part: Part, path: str) -> list[Item]:
        """One part of input; several when it holds others, none when it says nothing."""
        if self._home and isinstance(part.raw, dict) and "type" in part.raw:
            return [part.raw]
        if not self._home:
            self._losses.extras(path, part.extras)
        match part:
            case Text():
                return [self._marked({"type": "input_text", "text": part.text}, part.cache)] if part.text else []
            case Refusal():
                return [{"type": "input_text", "text": part.text}] if part.text else []
            case Image():
                image = {"type": "input_image", "detail": part.detail or "auto", **self._image(part.source, path)}
                return [self._marked(image, part.cache)]
            case Document():
                return self._document(part, path)
            case Audio() | Video():
                word = "audio" if isinstance(part, Audio) else "video"
                raise UnsupportedFeature(f"{path}: this upstream takes no {word}", path=path)
            case Foreign():
                return self._foreign(part, path)
            case Citation():
                self._losses.hint(path, "a user's message has no citations here")
            case Thinking() | ToolCall() | ToolResult():
                self._losses.drop(path, f"{type(part).__name__} has no place in a user's message")
            case _:
                assert_never(part)
        return []

    def _image(self, source: Source, path: str) -> Item:
        if isinstance(source, Base64):
            return {"image_url": f"data:{source.mime};base64,{source.data}"}
        if isinstance(source, Url):
            return {"image_url": source.url}
        return {"file_id": self._file_id(source, path)}

    def _document(self, part: Document, path: str) -> list[Item]:
        source = part.source
        if isinstance(source, Nested):
            return self._content(source.parts, path)
        if isinstance(source, InlineText):
            heading = "\n\n".join(line for line in (part.title, part.context) if line)
            text = f"{heading}\n\n{source.text}" if heading else source.text
            return [self._marked({"type": "input_text", "text": text}, part.cache)] if text else []
        if part.context:
            self._losses.drop(f"{path}.context", "documents have no context here")
        item: Item = {"type": "input_file"}
        if isinstance(source, Base64):
            item["filename"] = part.title or f"document.{_EXTENSIONS.get(source.mime, 'bin')}"
            item["file_data"] = f"data:{source.mime};base64,{source.data}"
        elif isinstance(source, Url):
            item["file_url"] = source.url
        else:
            item["file_id"] = self._file_id(source, path)
        return [self._marked(item, part.cache)]

    def _file_id(self, source: Source, path: str) -> str:
        if not isinstance(source, FileRef) or not self._home:
            raise UnsupportedFeature(f"{path}: a file stored at another provider cannot be read here", path=path)
        return source.id

    def _marked(self, item: Item, mark: CacheMark | None) -> Item:
        if mark is None or not self._marks:
            return item
        if self._skip_marks:
            self._skip_marks -= 1
            return item
        item["prompt_cache_breakpoint"] = {"mode": "explicit", "ttl": "12h" if mark.ttl_seconds >= 43200 else "30m"}
        return item

    def _foreign(self, part: Foreign, path: str) -> list[Item]:
        if part.dialect == NAME and isinstance(part.raw, dict):
            return [part.raw]
        self._losses.drop(path, f"{part.kind} means something only in its own dialect")
        return []

    def _result(self, result: ToolResult, path: str) -> Item:
        if self._home and isinstance(result.raw, dict):
            return result.raw
        if not self._home:
            self._losses.extras(path, result.extras)
        parts = result.parts
        if not parts and result.structured is not None:
            parts = (Text(text=msgspec.json.encode(result.structured).decode()),)
        output: str | list[Item]
        if len(parts) == 1 and isinstance(parts[0], Text) and parts[0].cache is None:
            output = parts[0].text
        else:
            output = self._content(parts, path)
        if result.is_error:
            # There is no flag for it, and the model has to know.
            self._losses.emulate(path, "is_error is told by a prefix of the text")
            output = _ERROR_PREFIX + output if isinstance(output, str) else _prefixed(output)
        item: Item = {
            "type": "custom_tool_call_output" if result.kind == "custom" else "function_call_output",
            "call_id": result.call_id,
            "output": output or "",
        }
        return {**item, **(result.extras or {})} if self._home else item

    # -- what the model said -----------------------------------------------------------------------------------------------

    def _assistant(self, turn: Turn, path: str) -> list[Item]:
        items: list[Item] = []
        texts: list[Item] = []
        reasoning, dropped = False, False
        for index, part in enumerate(turn.parts):
            inside = f"{path}.parts[{index}]"
            if isinstance(part, Text | Refusal) and not (self._home and _is_message(part.raw)):
                texts.extend(self._said(part, inside))
                continue
            self._flush_said(items, texts, turn)
            if isinstance(part, Thinking):
                item = self._reasoning(part, inside) if index + 1 < len(turn.parts) else None
                dropped, reasoning = dropped or item is None, reasoning or item is not None
                if item is not None:
                    items.append(item)
                elif index + 1 == len(turn.parts):
                    self._losses.hint(inside, "reasoning with nothing after it is refused")
            else:
                items.extend(self._model_item(part, inside))
        self._flush_said(items, texts, turn)
        return items if reasoning and not dropped else [_without_id(item) for item in items]

    def _flush_said(self, items: list[Item], texts: list[Item], turn: Turn) -> None:
        if not texts:
            return
        content: str | list[Item] = texts.copy()
        if all(text.keys() == {"type", "text", "annotations"} and not text["annotations"] for text in texts):
            # Parts of output are typed as items with an id, and ids are not ours to make up: plain text goes as a string.
            content = "".join(text["text"] for text in texts)
        item: Item = {"type": "message", "role": "assistant", "content": content}
        if turn.phase is not None:
            item["phase"] = turn.phase
        items.append(item)
        texts.clear()

    def _said(self, part: Text | Refusal, path: str) -> list[Item]:
        if self._home and isinstance(part.raw, dict):
            return [part.raw]
        if not self._home:
            self._losses.extras(path, part.extras)
        if not part.text:
            return []
        if isinstance(part, Refusal):
            return [{"type": "refusal", "refusal": part.text}]
        annotations = [annotation for citation in part.citations if (annotation := encode_citation(citation)) is not None]
        if len(annotations) < len(part.citations):
            self._losses.hint(f"{path}.citations", "only citations of web addresses travel")
        return [{"type": "output_text", "text": part.text, "annotations": annotations}]

    def _model_item(self, part: Part, path: str) -> list[Item]:
        if self._home and isinstance(part.raw, dict):
            return [part.raw]
        match part:
            case ToolCall():
                return [self._call(part, path)]
            case Foreign():
                return self._foreign(part, path)
            case Text() | Refusal():
                return self._said(part, path)
            case Citation():
                self._losses.hint(path, "history has no citations here")
            case Thinking() | Image() | Document() | Audio() | Video() | ToolResult():
                self._losses.drop(path, f"{type(part).__name__} has no place in an answer's history")
            case _:
                assert_never(part)
        return []

    def _call(self, call: ToolCall, path: str) -> Item:
        custom = call.kind == "custom"
        item: Item = {
            "type": "custom_tool_call" if custom else "function_call",
            "call_id": call.id,
            "name": call.name,
            "input" if custom else "arguments": call.arguments,
        }
        if call.namespace is not None:
            item["namespace"] = call.namespace
        if self._home:
            return {**item, **(call.extras or {})}
        self._losses.extras(path, call.extras)
        return item

    def _reasoning(self, part: Thinking, path: str) -> Item | None:
        if self._home and isinstance(part.raw, dict):
            return part.raw
        state = part.signature
        if state is None or not state.payload:
            self._losses.hint(path, "reasoning travels only with the encrypted state of this upstream")
            return None
        item: Item = {"type": "reasoning"}
        if state.item_id is not None:
            item["id"] = state.item_id
        # What is readable beside encrypted state is its summary, whatever the client's dialect called it.
        item["summary"] = [{"type": "summary_text", "text": part.text}] if part.text else []
        item["encrypted_content"] = state.payload
        return item


def encode_citation(citation: Citation) -> Item | None:
    """An annotation of answer text; None for kinds that have no form here."""
    raw = citation.raw
    kinds = ("url_citation", "file_citation", "container_file_citation", "file_path")
    # Chat has the same types and puts their fields into an object of that name.
    if isinstance(raw, dict) and raw.get("type") in kinds and raw["type"] not in raw:
        return raw
    if citation.url is None:
        return None
    return {
        "type": "url_citation",
        "url": citation.url,
        "title": citation.title or citation.url,
        "start_index": citation.start or 0,
        "end_index": citation.end or 0,
    }


def _is_message(raw: object) -> bool:
    return isinstance(raw, dict) and "role" in raw


def _is_item(part: Foreign) -> bool:
    """Input items of other kinds stand for themselves; parts of a message have these types only."""
    return part.dialect == NAME and not part.kind.startswith("input_") and part.kind != "encrypted_content"


def _without_id(item: Item) -> Item:
    if "id" not in item or item.get("type") not in ("function_call", "custom_tool_call", "message", None):
        return item
    return {key: value for key, value in item.items() if key != "id"}


_ID_BEGINNINGS = {"function_call": "fc", "custom_tool_call": "ctc", "message": "msg"}


def _with_typed_id(item: Item) -> Item:
    """The item, without an id that another server gave it and that this one would refuse."""
    beginning = _ID_BEGINNINGS.get(item.get("type") or ("message" if "role" in item else ""))
    if beginning is None or "id" not in item or str(item["id"]).startswith(beginning):
        return item
    return {key: value for key, value in item.items() if key != "id"}


def _prefixed(content: list[Item]) -> list[Item]:
    for index, item in enumerate(content):
        if item.get("type") == "input_text":
            return [*content[:index], {**item, "text": _ERROR_PREFIX + item["text"]}, *content[index + 1 :]]
    return [{"type": "input_text", "text": _ERROR_PREFIX.strip()}, *content]


def _count_marks(request: Request) -> int:
    parts = [*request.system, *(part for turn in request.turns for part in turn.parts)]
    return sum(1 for part in parts if isinstance(part, Text | Image | Document) and part.cache is not None)
