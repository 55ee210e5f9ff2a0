"""Which format a model writes, from its id.

Patterns are data, each with its source (`formats/models.toml`). The order: an override, the vendor in `vendor/model` (which
limits the patterns to its own formats), the longest pattern, keywords in the order Kimi, Qwen, DeepSeek, else `standard`:
native structured calls.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources

import msgspec

from athena.formats import ALIASES
from athena.typed_values import reader

_VENDORS = {"moonshotai": "kimi", "moonshot": "kimi", "qwen": "qwen", "deepseek": "deepseek"}
_KEYWORDS = ("kimi", "qwen", "deepseek")
_NOT_KIMI = "llm360"
_LONGEST = 512
_SEGMENTS = re.compile(r"[/\-_.: ]")


def detect_format(model: str, overrides: Mapping[str, str] | None = None) -> str:
    """The id of the format that `model` writes, by its name; `standard` (native structured calls) when nothing says otherwise.

    `overrides` maps names of models to ids of formats and wins.

    Examples:
        >>> detect_format("moonshotai/kimi-k2-0905")
        'kimi_k2'
        >>> detect_format("gpt-4")
        'standard'
    """
    if not isinstance(model, str):
        raise TypeError(f"model must be a str such as 'moonshotai/kimi-k2-0905', not {type(model).__name__}")
    for name in (model, model.lower(), _bare(model)):
        if overrides and name in overrides:
            return ALIASES.get(overrides[name], overrides[name])
    return _detected(_bare(model))


def _bare(model: str) -> str:
    """Lower case, without a `:free`-style suffix. No model has a longer name than is looked at."""
    return model.strip()[:_LONGEST].lower().split(":")[0]


@lru_cache(maxsize=1024)
def _detected(model: str) -> str:
    parts = model.split("/")
    family = _VENDORS.get(parts[0]) if len(parts) == 2 else None
    best = best_family = ""
    length = -1
    for needle, pattern, weight, format_id, pattern_family in _patterns():
        if needle not in model or weight <= length or (family is not None and pattern_family != family):
            continue
        if pattern.search(model):
            best, best_family, length = format_id, pattern_family, weight
    if best and not (best_family == "kimi" and parts[0] == _NOT_KIMI):
        return best
    if family is None:
        family = _by_keyword(model)
    return ALIASES.get(family, "standard") if family else "standard"


def _by_keyword(model: str) -> str | None:
    segments = _SEGMENTS.split(model)
    if "k2" in segments and _NOT_KIMI not in segments:
        return "kimi"
    return next((word for word in _KEYWORDS if word in model), None)


class ModelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file `formats/models.toml`."""

    sources: dict[str, str]
    """The public lists, by the words that stand before the colon of a source."""
    families: dict[str, tuple[str, ...]]
    """The formats of a family, by the enum names of source system A; the first is that of a name without a version."""
    formats: dict[str, dict[str, str]]
    """By format: patterns, each with its source."""


_read_table = reader(ModelTable)


@cache
def model_table() -> ModelTable:
    """What is known about names of models."""
    text = resources.files("athena.formats").joinpath("models.toml").read_text("utf-8")
    return _read_table(tomllib.loads(text))


def models_of(format_id: str) -> tuple[str, ...]:
    """The patterns of the models that write this format; none where only a prompt asks for it."""
    return tuple(model_table().formats.get(format_id, ()))


def family_of(format_id: str) -> str:
    """kimi, qwen, deepseek, or empty for all others."""
    return next((family for family, formats in model_table().families.items() if format_id in formats), "")


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str], int, str, str], ...]:
    """(a text without which it does not match, pattern, how much of an id it spells out, format, family)."""
    return tuple(
        (
            max(pattern.split("*"), key=len),
            re.compile(r"(?:^|[/\-_ .])" + re.escape(pattern.rstrip("*")).replace(r"\*", "[^/]*")),
            len(pattern.replace("*", "")),
            format_id,
            family_of(format_id),
        )
        for format_id, patterns in model_table().formats.items()
        for pattern in patterns
    )
