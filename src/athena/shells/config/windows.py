"""How much a model takes: its context window and its longest answer, in tokens.

Three sources, the first that knows counts: the rule in the configuration, the upstream's own list of models, and
`windows.toml` by the model's name. Servers spell the two numbers in many ways; `read_models` knows them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from athena.profiles import ModelPattern
from athena.typed_values import reader

_MOST_MODELS = 5000
_MOST_CHARS = 300
_MOST_TOKENS = 1 << 40
_CONTEXT = (
    ("loaded_context_length",),
    ("context_length",),
    ("max_model_len",),
    ("context_window",),
    ("max_context_length",),
    ("max_input_tokens",),
    ("inputTokenLimit",),
    ("top_provider", "context_length"),
    ("capabilities", "limits", "max_context_window_tokens"),
    ("limits", "max_context_length"),
    ("metadata", "context_length"),
    ("meta", "n_ctx"),
    ("meta", "n_ctx_train"),
)
"""Where lists of models say how much a model takes: vLLM, OpenRouter, Groq, Mistral, Anthropic, Gemini, llama.cpp, others."""
_OUTPUT = (
    ("max_completion_tokens",),
    ("max_output_tokens",),
    ("max_output_length",),
    ("outputTokenLimit",),
    ("max_tokens",),
    ("top_provider", "max_completion_tokens"),
    ("capabilities", "limits", "max_output_tokens"),
    ("limits", "max_completion_tokens"),
    ("metadata", "max_tokens"),
)


class Window(msgspec.Struct, frozen=True):
    """Tokens of a whole conversation and of one answer; None: not known."""

    context: int | None = None
    output: int | None = None

    def or_else(self, other: Window) -> Window:
        """This window, with what it does not know taken from another."""
        context = self.context if self.context is not None else other.context
        output = self.output if self.output is not None else other.output
        if context is not None and output is not None:
            output = min(context, output)
        return Window(context, output)


class OfferedModel(msgspec.Struct, frozen=True):
    """One entry of an upstream's list of models."""

    id: str
    window: Window = Window()


def read_models(value: Any) -> tuple[OfferedModel, ...]:
    """The models of a list in any server's shape. What is no model is passed over; nothing is raised."""
    entries = value
    if isinstance(value, Mapping):
        entries = value.get("data") if isinstance(value.get("data"), list) else value.get("models")
    if not isinstance(entries, list):
        return ()
    found: dict[str, OfferedModel] = {}
    for entry in entries[:_MOST_MODELS]:
        model = _read_model(entry)
        if model is not None:
            found.setdefault(model.id, model)
    return tuple(found.values())


def _read_model(entry: Any) -> OfferedModel | None:
    if not isinstance(entry, Mapping):
        return None
    name = entry.get("id", entry.get("name", entry.get("model")))
    if not isinstance(name, str):
        return None
    name = name.removeprefix("models/")
    methods = entry.get("supportedGenerationMethods")
    can_answer = not isinstance(methods, list) or "generateContent" in methods
    if not name or len(name) > _MOST_CHARS or not name.isprintable() or not can_answer:
        return None
    return OfferedModel(name, Window(_number(entry, _CONTEXT), _number(entry, _OUTPUT)))


def _number(entry: Mapping[str, Any], places: Iterable[tuple[str, ...]]) -> int | None:
    for place in places:
        value: Any = entry
        for name in place:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST_TOKENS:
            return value
    return None


def published_window(model: str) -> Window:
    """What a model's maker says, by the name that the upstream has for it."""
    lowered = model.lower()
    for pattern, window in _table():
        if pattern.matches(lowered):
            return window
    return Window()


_read_rows = reader(dict[str, Window])


@cache
def _table() -> tuple[tuple[ModelPattern, Window], ...]:
    """Patterns and windows, the longest pattern first, so that the first match counts."""
    text = resources.files("athena.shells.config").joinpath("windows.toml").read_text("utf-8")
    rows = _read_rows(tomllib.loads(text)["models"])
    return tuple((ModelPattern(name), rows[name]) for name in sorted(rows, key=len, reverse=True))
