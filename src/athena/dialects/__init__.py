"""The dialects: one package per API, found by name. The folder is the registry."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from athena.dialects.base import Dialect
from athena.errors import UsageError

__all__ = ["dialect_names", "get_dialect"]


@cache
def get_dialect(name: str) -> Dialect:
    """The dialect of that id: anthropic_messages, openai_chat, openai_responses or gemini."""
    if name not in dialect_names():
        raise UsageError(f"unknown dialect {name!r}; known: {', '.join(dialect_names())}")
    dialect: Dialect = import_module(f"athena.dialects.{name}").DIALECT
    return dialect


@cache
def dialect_names() -> tuple[str, ...]:
    """All dialect ids, sorted."""
    return tuple(sorted(module.name for module in iter_modules(__path__) if module.ispkg))
