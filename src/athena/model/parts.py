"""Content of messages: what a turn or an answer is made of. Data only.

Every node that comes from a client's JSON has two fields for what we do not model:

- `raw`: the untouched JSON value. An encoder of the same dialect emits it as it stands. Code that changes a node must drop it
  (`changed` does), because the value no longer says what the node says.
- `extras`: the keys the decoder did not understand. They survive a change, are laid over the encoded node in the same
  dialect, and are reported as losses in every other.

`Opaque` is reasoning state that only its maker can read (a signature, encrypted reasoning). It goes back to the family that
minted it and to no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

CallKind = Literal["function", "custom"]
OpaqueKind = Literal["signature", "redacted", "encrypted", "thought_signature"]


class Opaque(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Reasoning state of one provider family: anthropic, openai, gemini, xai, mistral, ..."""

    family: str
    kind: OpaqueKind
    payload: str
    item_id: str | None = None
    format: str | None = None
    """Where it travelled in an OpenRouter `reasoning_details` entry: the entry's own format name."""


class _Node(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="part", tag=True):
    raw: Any = None
    extras: dict[str, Any] | None = None


Node = TypeVar("Node", bound=msgspec.Struct)


def changed(node: Node, **fields: Any) -> Node:
    """A copy with other fields and without the raw JSON that no longer fits."""
    return msgspec.structs.replace(node, raw=None, **fields)


class CacheMark(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A prompt-cache breakpoint after the part that carries it."""

    ttl_seconds: int = 300
    raw: Any = None


# -- where binary or referenced content comes from -----------------------------------------------------------------------


class _Source(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="source", tag=True):
    pass


class Base64(_Source, frozen=True):
    mime: str
    data: str


class Url(_Source, frozen=True):
    """A web address; never a data URL (decoders turn those into `Base64`)."""

    url: str
    mime: str | None = None


class FileRef(_Source, frozen=True):
    """A file stored at a provider: never portable to another one."""

    id: str


class InlineText(_Source, frozen=True):
    """A document that is given as plain text."""

    text: str


class Nested(_Source, frozen=True):
    """A document made of other parts."""

    parts: tuple[Part, ...]


Source: TypeAlias = Base64 | Url | FileRef | InlineText | Nested


# -- parts ----------------------------------------------------------------------------------------------------------------


class Text(_Node, frozen=True):
    text: str
    citations: tuple[Citation, ...] = ()
    cache: CacheMark | None = None
    signature: Opaque | None = None


class Refusal(_Node, frozen=True):
    text: str


class Thinking(_Node, frozen=True):
    """Reasoning. Readable text, opaque state, or both; redacted when only the state exists."""

    text: str = ""
    signature: Opaque | None = None
    summary: bool = False


class Image(_Node, frozen=True):
    source: Source
    detail: str | None = None
    cache: CacheMark | None = None


class Document(_Node, frozen=True):
    source: Source
    title: str | None = None
    context: str | None = None
    citations: bool = False
    cache: CacheMark | None = None


class Audio(_Node, frozen=True):
    source: Source | None = None
    format: str | None = None
    transcript: str | None = None
    id: str | None = None
    expires_at: int | None = None


class Video(_Node, frozen=True):
    source: Source


class ToolCall(_Node, frozen=True):
    """A call the model made; `arguments` is JSON text, or free text for a custom tool."""

    id: str
    name: str
    arguments: str
    kind: CallKind = "function"
    namespace: str | None = None
    item_id: str | None = None
    signature: Opaque | None = None
    cache: CacheMark | None = None


class ToolResult(_Node, frozen=True):
    """What a tool answered. `structured` keeps a result that was an object in its dialect (Gemini)."""

    call_id: str
    parts: tuple[Part, ...] = ()
    name: str | None = None
    is_error: bool = False
    kind: CallKind = "function"
    structured: Any = None
    cache: CacheMark | None = None


class Citation(_Node, frozen=True):
    """A reference from answer text to its source. The kinds that name a url travel; others stay in their dialect."""

    kind: str = "url"
    url: str | None = None
    title: str | None = None
    quote: str | None = None
    start: int | None = None
    end: int | None = None


class Foreign(_Node, frozen=True):
    """A part only its own dialect understands (server-tool blocks, compaction, code execution, unknown types)."""

    kind: str
    dialect: str


Part: TypeAlias = Text | Refusal | Thinking | Image | Document | Audio | Video | ToolCall | ToolResult | Citation | Foreign


def joined_text(parts: Iterable[Part], separator: str = "") -> str:
    """The text of all `Text` and `Refusal` parts."""
    return separator.join(part.text for part in parts if isinstance(part, Text | Refusal))
