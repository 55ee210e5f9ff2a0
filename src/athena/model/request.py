"""The neutral request: what a client asked for, in no dialect's words. Data only.

`raw` and `extras` work as in `parts`. Absent and null mean the same everywhere: None.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Literal

import msgspec

from athena.model.parts import CacheMark, Part

Role = Literal["user", "assistant", "system"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Loss(msgspec.Struct, frozen=True, gc=False):
    """Something of the request or answer that did not survive as it was; nothing is lost silently."""

    path: str
    reason: str
    action: Literal["dropped", "emulated", "repaired"] = "dropped"
    minor: bool = False
    """The answer means the same without it: a label, a cache mark, state that only its maker can read."""


_SUBSTANCE = ("turns", "messages", "contents", "input", "system", "tool", "answer")
"""How paths begin of what a model reads, what it may call, and what it said; all others are settings."""


def by_weight(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """The losses with those that change the meaning first: what was dropped, what was said otherwise, what hardly matters.

    Among what was dropped, parts of the conversation and tools stand before settings.
    """
    return tuple(sorted(losses, key=lambda loss: (loss.minor, loss.action != "dropped", not loss.path.startswith(_SUBSTANCE))))


class Turn(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One message. Tool results sit in user turns whatever their dialect calls that role."""

    role: Role
    parts: tuple[Part, ...] = ()
    name: str | None = None
    hint: str | None = None
    """The dialect's own word where ours merges several: developer, tool, function, instructions."""
    phase: str | None = None
    raw: Any = None
    extras: dict[str, Any] | None = None


class Tool(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A tool the model may call. A hosted tool runs at the provider: `hosted` is its type there."""

    name: str
    kind: Literal["function", "custom", "hosted"] = "function"
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    namespace: str | None = None
    namespace_description: str | None = None
    grammar: dict[str, str] | None = None
    """Custom tools: {"syntax": "lark" | "regex", "definition": ...}; None is free text."""
    hosted: str | None = None
    config: dict[str, Any] | None = None
    """Hosted and typed tools: their own settings."""
    deferred: bool = False
    inline: bool = False
    """Declared inside the conversation and not in the request's list: at home it stands where it was declared."""
    cache: CacheMark | None = None
    raw: Any = None
    extras: dict[str, Any] | None = None


_kind_of = attrgetter("kind")


def has_kind(tools: Iterable[Tool], kind: Literal["function", "custom", "hosted"]) -> bool:
    """Is one of these tools of this kind?"""
    return kind in map(_kind_of, tools)


class ToolChoice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Which tools may or must be called. `names` is filled for named (one) and allowed (a set)."""

    mode: Literal["auto", "none", "required", "named", "allowed"] = "auto"
    names: tuple[str, ...] = ()
    kind: Literal["function", "custom", "hosted"] = "function"
    required: bool = False
    """Allowed set: must one of them be called?"""


class Reasoning(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How much the model should think, and whether the client wants to see it."""

    mode: Literal["default", "off", "on", "adaptive", "between_tools"] = "default"
    effort: Effort | None = None
    budget: int | None = None
    visible: bool | None = None
    summary: str | None = None
    """Responses: auto, concise, detailed."""
    display: str | None = None
    """Anthropic: summarized, omitted."""


class Output(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The shape the client wants its answer in: text, JSON, or JSON of a schema."""

    kind: Literal["text", "json", "schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None
    verbosity: str | None = None
    modalities: tuple[str, ...] = ()
    audio: dict[str, Any] | None = None
    prediction: Any = None


class Cache(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Prompt-cache settings of the whole request."""

    key: str | None = None
    mark: CacheMark | None = None
    options: Any = None


class Kept(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A response that is kept here, or that continues one: what its answer says of that."""

    id: str
    """The id of the response, which is ours."""
    shown: dict[str, Any] = {}
    """Fields of the response object that are decided by what is kept."""
    waits: bool = False
    """The end of the answer is held back until it is told that the response is kept."""
    leading: tuple[dict[str, Any], ...] = ()
    """Items that the answer begins with, before anything of the model."""
    compacts: Literal["", "response", "compaction"] = ""
    """The model's text is a summary that becomes a compaction: as the one item of a response, or as the answer to a request
    for a compaction."""
    retained: tuple[dict[str, Any], ...] = ()
    """Items that stand before a compaction in the answer."""

    def item_id(self, prefix: str, position: int) -> str:
        """The id of the item of the answer at a position."""
        return f"{prefix}{self.id.partition('_')[2]}o{position:x}"


class Request(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A client's request in neutral form: conversation, tools, and every setting a dialect knows."""

    dialect: str
    model: str
    stream: bool = False
    wire_version: str | None = None
    system: tuple[Part, ...] = ()
    """Leading instructions, one text part per block or message."""
    system_hint: str | None = None
    """How the dialect wrote them: system, developer, instructions."""
    turns: tuple[Turn, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel: bool | None = None
    max_output: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, Any] | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    """None is off; else how many alternatives per token."""
    reasoning: Reasoning = Reasoning()
    output: Output = Output()
    cache: Cache = Cache()
    end_user: str | None = None
    metadata: dict[str, Any] | None = None
    tier: str | None = None
    speed: str | None = None
    store: bool | None = None
    previous_id: str | None = None
    include_usage: bool | None = None
    """Chat: did the client ask for the usage chunk?"""
    include: tuple[str, ...] = ()
    server: dict[str, Any] | None = None
    """Known settings bound to the provider's own services (containers, context_management, safety settings, routing)."""
    kept: Kept | None = None
    """Responses: what is kept of the answer, by us."""
    raw: dict[str, Any] | None = None
    extras: dict[str, Any] | None = None
    unread: tuple[str, ...] = ()
    """Paths of fields inside nested objects that the decoder did not understand: at home they go along, anywhere else they are
    lost."""
    losses: tuple[Loss, ...] = ()
