"""Text formats: how models write tool calls as text. Every module of this folder is one format; the folder is the registry.

What formats share lives in the folders: `machine` reads text by a format, `bodies` holds the forms several formats are made
of, `declared` makes formats from files.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from athena.errors import UsageError
from athena.formats.machine.base import Format

__all__ = ["ALIASES", "all_formats", "format_names", "get_format"]

ALIASES = {"kimi": "kimi_k2", "qwen": "hermes", "deepseek": "deepseek_v3"}
"""The enum names of source system A, accepted wherever a format is configured."""


@cache
def get_format(name: str) -> Format:
    """The format of that id, or of A's name for it."""
    name = ALIASES.get(name, name)
    if name not in format_names():
        near = get_close_matches(name, ("auto", "standard", *ALIASES, *format_names()), 1)
        hint = f"did you mean {near[0]}?" if near else f"known: auto, standard, {', '.join(format_names())}"
        raise UsageError(f"unknown format {name!r}; {hint}")
    found: Format = import_module(f"athena.formats.{name}").FORMAT
    if found.id != name:
        raise UsageError(f"formats/{name}.py declares the id {found.id!r}")
    return found


@cache
def format_names() -> tuple[str, ...]:
    """All format ids, sorted."""
    return tuple(sorted(module.name for module in iter_modules(__path__) if not module.ispkg))


@cache
def all_formats() -> tuple[Format, ...]:
    """Every format, sorted by id."""
    return tuple(get_format(name) for name in format_names())
