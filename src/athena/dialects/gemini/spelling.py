"""Protobuf's JSON: every field may be camelCase or snake_case, at every level and mixed in one body.

Wire facts: docs/reference/wire-facts.md#gemini-spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Self

from athena.wire.fields import Fields

_UPPER = re.compile(r"[A-Z]")
_LOWER_AFTER_BAR = re.compile(r"_([a-z0-9])")
_REMEMBERED_CHARS = 64


@lru_cache(maxsize=1024)
def snake(name: str) -> str:
    """thinkingConfig to thinking_config. Only for our own spellings: what is asked is remembered."""
    return _UPPER.sub(lambda found: "_" + found.group().lower(), name)


def camel(name: str) -> str:
    """thinking_config to thinkingConfig. Keys are the client's: long ones are not remembered."""
    return _camel(name) if len(name) <= _REMEMBERED_CHARS else _in_camel_case(name)


def _in_camel_case(name: str) -> str:
    return _LOWER_AFTER_BAR.sub(lambda found: found.group(1).upper(), name)


_camel = lru_cache(maxsize=1024)(_in_camel_case)


def spelled(value: dict[str, Any], key: str) -> str:
    """The spelling of a camelCase `key` that an object uses; `key` itself when it has neither."""
    if value.get(key) is not None:
        return key
    other = snake(key)
    return other if other != key and other in value else key


def put(value: dict[str, Any], key: str, new: Any) -> None:
    """Set or remove (None) a field whichever way it was spelled."""
    found = spelled(value, key)
    if new is None:
        value.pop(key, None)
        value.pop(found, None)
    else:
        value[found] = new


class EitherCase(Fields):
    """A JSON object whose keys are asked for in camelCase and found in either spelling; numbers may be strings."""

    __slots__ = ()

    def at(self, key: str) -> str:
        """The path of a key as the client spelled it."""
        return super().at(spelled(self.value, key))

    def any(self, key: str) -> Any:
        """The value as it is; None when absent."""
        self._read.add(key)
        self._read.add(snake(key))
        return self.value.get(spelled(self.value, key))

    def has(self, key: str) -> bool:
        """Is the key present, in either spelling, and not null?"""
        return self.value.get(spelled(self.value, key)) is not None

    def integer(self, key: str) -> int | None:
        value = self.any(key)
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,20}", value):
            return int(value)
        return super().integer(key)

    def number(self, key: str) -> float | None:
        value = self.any(key)
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,20}(\.\d{1,20})?", value):
            return float(value)
        return super().number(key)

    def word(self, key: str) -> str | None:
        """An enum value in upper case; `..._UNSPECIFIED` counts as absent."""
        value = self.text(key)
        if value is None or not value or value.upper().endswith("UNSPECIFIED"):
            return None
        return value.upper()

    def forget(self, key: str) -> None:
        super().forget(key)
        self._read.discard(snake(key))

    def children(self, key: str) -> Iterator[Self]:
        """The objects of an array, or the one object that stands for an array of one."""
        value = self.any(key)
        if isinstance(value, dict):
            yield self.inner(value, self.at(key))
            return
        for index, item in enumerate(self.sequence(key) or ()):
            yield self.inner(item, f"{self.at(key)}[{index}]")
