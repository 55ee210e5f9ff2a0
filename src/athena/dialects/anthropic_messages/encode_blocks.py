"""Parts as content blocks, and turns as messages, for a Messages upstream.

A turn that came in this dialect and was not changed goes out as it stood. Everything else is written anew: turns of one role in
a row become one message, tool results come first in a user message, calls last in each stretch of an assistant message.

Wire facts: docs/reference/wire-facts.md#rules-of-translation.
"""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Any, assert_never

import msgspec

from athena.calls.arguments import arguments_object
from athena.dialects.anthropic_messages.vocabulary import BILLING, FAMILY, NAME
from athena.dialects.base import EncodeTarget
from athena.dialects.losses import Losses
from athena.dialects.recalled import Rewritten
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
from athena.model.request import Turn
from athena.wire.recall import Recall

Block = dict[str, Any]

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
EMPTY_TURN = "(empty)"
FIRST_TURN = "."
_WRAPPED_RESULTS = ("output", "result", "content")
_THINKING = ("thinking", "redacted_thinking")


class MessageDraft:
    """A message being written. `raw` stands for a client's own message that must not be touched."""

    __slots__ = ("blocks", "extras", "raw", "role")

    def __init__(self, role: str, blocks: list[Block], raw: Any = None, extras: dict[str, Any] | None = None) -> None:
        self.role = role
        self.blocks = blocks
        self.raw = raw
        self.extras = extras

    def value(self) -> Any:
        if self.raw is not None:
            return self.raw
        return {**(self.extras or {}), "role": self.role, "content": self.blocks}

    @property
    def first_type(self) -> str:
        """The type of its first block; empty for plain text."""
        content = self.raw.get("content") if self.raw is not None else self.blocks
        first = content[0] if isinstance(content, list) and content else None
        return str(first.get("type", "")) if isinstance(first, dict) else ""


class AnthropicMessageWriter:
    """Writes the turns of one request. `same`: the client speaks this dialect too."""

    def __init__(self, target: EncodeTarget, report: Losses, *, same: bool, recall: Recall | None = None) -> None:
        self._profile = target.profile
        self._rewritten = Rewritten(recall if not same else None, target, report, NAME)
        self._report = report
        self._same = same

    def messages(self, turns: tuple[Turn, ...]) -> list[MessageDraft]:
        """All messages, in the order and shape the API takes."""
        written: list[MessageDraft] = []
        for index, turn in enumerate(turns):
            path = f"turns[{index}]"
            if self._same and turn.raw is not None and not self._must_rewrite(turn):
                written.append(MessageDraft(turn.role, [], raw=turn.raw))
                continue
            blocks = self._rewritten.turn(turn, path, partial(self._turn, turn, path), unless=marked)
            if not blocks and turn.role != "user":
                self._report.repair(path, f"the {turn.role} turn has no content this upstream takes")
                continue
            blocks = blocks or [{"type": "text", "text": EMPTY_TURN}]
            extras = turn.extras if self._same else None
            last = written[-1] if written else None
            if last is not None and last.raw is None and last.role == turn.role:
                last.blocks.extend(blocks)
                last.extras = {**(last.extras or {}), **extras} if extras else last.extras
            else:
                written.append(MessageDraft(turn.role, blocks, extras=extras))
        for message in written:
            if message.raw is None:
                message.blocks = _ordered(message)
        self._check_ends(written)
        return written

    def system(self, parts: tuple[Part, ...]) -> list[Block]:
        """System text as blocks, boundaries and order kept: prompt caches depend on them."""
        blocks: list[Block] = []
        for index, part in enumerate(parts):
            if isinstance(part, Foreign) and part.kind == BILLING and self._profile.family != FAMILY:
                self._report.hint(f"system[{index}]", "the line for the provider's billing is not for others")
            elif self._same and isinstance(part.raw, dict):
                blocks.append(part.raw)
            elif isinstance(part, Text | Refusal):
                if part.text:
                    blocks.append(self._finish({"type": "text", "text": part.text}, part, f"system[{index}]"))
            else:
                self._report.drop(f"system[{index}]", "instructions hold text only")
        return blocks

    # -- turns ---------------------------------------------------------------------------------------------------------------

    def _must_rewrite(self, turn: Turn) -> bool:
        return any(self._is_refused(part) for part in turn.parts)

    def _is_refused(self, part: Part) -> bool:
        """An unsigned thinking block, such as a foreign model's without an envelope, is refused by the providers that sign."""
        return isinstance(part, Thinking) and part.signature is None and self._profile.reasoning_replay == "never"

    def _turn(self, turn: Turn, path: str) -> list[Block]:
        if turn.name is not None:
            self._report.hint(f"{path}.name", "messages have no names here")
        if turn.extras and not self._same:
            for key in turn.extras:
                self._report.hint(f"{path}.{key}", "unknown to this dialect")
        blocks: list[Block] = []
        for index, part in enumerate(turn.parts):
            block = self._block(part, turn.role, f"{path}.parts[{index}]")
            if block is not None:
                blocks.append(block)
        return blocks

    def _check_ends(self, written: list[MessageDraft]) -> None:
        first = written[0] if written else None
        if first is None or (first.raw is None and first.role != "user"):
            written.insert(0, MessageDraft("user", [{"type": "text", "text": FIRST_TURN}]))
            self._report.repair("turns[0]", "a conversation must begin with a user turn; a placeholder was put before it")
        last = written[-1]
        if last.raw is not None or last.role != "assistant":
            return
        if not self._profile.prefill:
            self._report.refuse("turns", "this model does not continue a trailing assistant message")
        block = last.blocks[-1]
        if block.get("type") != "text" or block["text"] == block["text"].rstrip():
            return
        self._report.repair("turns", "a message to be continued must not end in whitespace")
        last.blocks[-1] = {**block, "text": block["text"].rstrip()}

    # -- parts ---------------------------------------------------------------------------------------------------------------

    def _block(self, part: Part, role: str, path: str) -> Block | None:
        if self._same and isinstance(part.raw, dict) and not self._is_refused(part):
            return part.raw
        match part:
            case Text():
                return self._text(part, role, path)
            case ToolCall():
                return self._call(part, path)
            case ToolResult():
                return self._result(part, path)
            case Thinking():
                return self._thinking(part, path)
            case Refusal():
                return {"type": "text", "text": part.text} if part.text.strip() else None
            case Image() | Document():
                return self._media(part, role, path)
            case Audio():
                return self._audio(part, role, path)
            case Video():
                self._report.refuse(path, "video is not taken")
            case Citation():
                self._report.hint(path, "citations of another provider")
            case Foreign():
                return self._foreign(part, path)
            case _:
                assert_never(part)
        return None

    def _text(self, part: Text, role: str, path: str) -> Block | None:
        if not part.text.strip():
            # The API refuses a text block without visible text; it says nothing anyway.
            return None
        block: Block = {"type": "text", "text": part.text}
        if part.citations:
            known = [citation.raw for citation in part.citations if citation.raw is not None] if self._same else []
            if known and role == "assistant":
                block["citations"] = known
            else:
                self._report.hint(f"{path}.citations", "citations of another provider")
        return self._finish(block, part, path)

    def _thinking(self, part: Thinking, path: str) -> Block | None:
        state = part.signature
        if state is not None and state.kind == "redacted":
            return {"type": "redacted_thinking", "data": state.payload}
        if state is not None and state.kind == "signature":
            return {"type": "thinking", "thinking": part.text, "signature": state.payload}
        if part.text and self._profile.reasoning_replay != "never":
            return {"type": "thinking", "thinking": part.text, "signature": ""}
        self._report.hint(path, "reasoning that this upstream did not sign")
        return None

    def _call(self, part: ToolCall, path: str) -> Block:
        value = {"input": part.arguments} if part.kind == "custom" else arguments_object(part.arguments)
        block: Block = {"type": "tool_use", "id": part.id, "name": part.name, "input": value}
        if part.namespace is not None and self._same:
            block["toolset_name"] = part.namespace
        return self._finish(block, part, path)

    def _result(self, part: ToolResult, path: str) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": part.call_id}
        content = self._result_content(part, path)
        if content:
            block["content"] = content
        if part.is_error:
            block["is_error"] = True
        return self._finish(block, part, path)

    def _result_content(self, part: ToolResult, path: str) -> str | list[Block]:
        if not part.parts and part.structured is not None:
            return _structured_text(part.structured)
        only = part.parts[0] if len(part.parts) == 1 else None
        if isinstance(only, Text) and only.cache is None and not isinstance(only.raw, dict):
            return only.text
        blocks = [self._block(inner, "user", f"{path}.parts[{index}]") for index, inner in enumerate(part.parts)]
        return [block for block in blocks if block is not None]

    def _media(self, part: Image | Document, role: str, path: str) -> Block | None:
        if role == "assistant":
            # Only the old wire version tolerates a document there, and none an image.
            self._report.drop(path, "an assistant message holds no images or documents here")
            return None
        if isinstance(part, Image):
            if part.detail is not None:
                self._report.hint(f"{path}.detail", "image detail cannot be chosen")
            return self._finish({"type": "image", "source": self._image_source(part.source, path)}, part, path)
        block: Block = {"type": "document", "source": self._document_source(part.source, path)}
        if part.title is not None:
            block["title"] = part.title
        if part.context is not None:
            block["context"] = part.context
        if part.citations:
            block["citations"] = {"enabled": True}
        return self._finish(block, part, path)

    def _image_source(self, source: Source, path: str) -> Block:
        if isinstance(source, Base64):
            if source.mime not in IMAGE_TYPES:
                self._report.refuse(path, f"images of type {source.mime} are not taken; {', '.join(IMAGE_TYPES)} are")
            return {"type": "base64", "media_type": source.mime, "data": source.data}
        if isinstance(source, Url):
            return {"type": "url", "url": source.url}
        return self._file_source(source, path)

    def _document_source(self, source: Source, path: str) -> Block:
        if isinstance(source, Base64):
            if source.mime == "application/pdf":
                return {"type": "base64", "media_type": source.mime, "data": source.data}
            if source.mime.startswith("text/") or source.mime == "application/json":
                return {"type": "text", "media_type": "text/plain", "data": self._plain_text(source, path)}
            self._report.refuse(path, f"documents of type {source.mime} are not taken; PDF and text are")
        if isinstance(source, InlineText):
            return {"type": "text", "media_type": "text/plain", "data": source.text}
        if isinstance(source, Url):
            return {"type": "url", "url": source.url}
        if isinstance(source, Nested):
            blocks = [self._block(inner, "user", f"{path}.source[{index}]") for index, inner in enumerate(source.parts)]
            return {"type": "content", "content": [block for block in blocks if block is not None]}
        return self._file_source(source, path)

    def _plain_text(self, source: Base64, path: str) -> str:
        try:
            return base64.b64decode(source.data, validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            self._report.refuse(path, "the text document is not UTF-8 in base64")

    def _file_source(self, source: Source, path: str) -> Block:
        if not isinstance(source, FileRef) or not self._same:
            self._report.refuse(path, "a file stored at one provider cannot be read by another")
        return {"type": "file", "file_id": source.id}

    def _audio(self, part: Audio, role: str, path: str) -> Block | None:
        if role != "assistant":
            self._report.refuse(path, "audio is not taken")
        if part.transcript:
            self._report.emulate(path, "audio of an earlier answer is sent as its transcript")
            return {"type": "text", "text": part.transcript}
        self._report.drop(path, "audio of an earlier answer cannot be sent")
        return None

    def _foreign(self, part: Foreign, path: str) -> Block | None:
        if part.dialect == NAME and isinstance(part.raw, dict):
            return part.raw
        if part.kind == "compaction":
            self._report.refuse(path, "a compacted history can only be read by the provider that made it")
        self._report.drop(path, f"{part.kind} means nothing to this provider")
        return None

    def _finish(self, block: Block, part: Part, path: str) -> Block:
        """Lay cache mark and unknown fields over a block."""
        mark: CacheMark | None = getattr(part, "cache", None)
        if mark is not None and (self._same or self._profile.cache_marks == "cache_control"):
            block["cache_control"] = cache_control(mark, same=self._same)
        if part.extras:
            if self._same:
                block.update(part.extras)
            else:
                for key in part.extras:
                    self._report.hint(f"{path}.{key}", "unknown to this dialect")
        return block


def cache_control(mark: CacheMark, *, same: bool) -> dict[str, Any]:
    """A breakpoint; lifetimes of other providers become the nearer of five minutes and one hour."""
    if same and isinstance(mark.raw, dict):
        return mark.raw
    return {"type": "ephemeral", "ttl": "1h"} if mark.ttl_seconds >= 3600 else {"type": "ephemeral"}


def marked(nodes: list[Block]) -> list[Block]:
    """The blocks or tools that carry a cache mark, those inside of results included."""
    found: list[Block] = []
    for node in nodes:
        content = node.get("content")
        if isinstance(content, list):
            found.extend(marked(content))
        if "cache_control" in node:
            found.append(node)
    return found


def _ordered(message: MessageDraft) -> list[Block]:
    if message.role == "user":
        results = [block for block in message.blocks if block.get("type") == "tool_result"]
        return (
            results + [block for block in message.blocks if block.get("type") != "tool_result"] if results else message.blocks
        )
    ordered: list[Block] = []
    calls: list[Block] = []
    for block in message.blocks:
        if block.get("type") in _THINKING and calls:
            ordered += calls
            calls = []
        (calls if block.get("type") == "tool_use" else ordered).append(block)
    return ordered + calls


def _structured_text(value: Any) -> str:
    """A result that was an object: its one text if that is all it holds, else compact JSON."""
    if isinstance(value, dict) and len(value) == 1:
        key, inner = next(iter(value.items()))
        if key in _WRAPPED_RESULTS and isinstance(inner, str):
            return inner
    return msgspec.json.encode(value).decode()
