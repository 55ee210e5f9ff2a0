"""What the readers of other gateways' configurations share.

Nothing is left out silently: a `Reader` remembers which values were used, and names the others in the end. `litellm` and
`claude_code_router` hold what each of them says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import msgspec

from athena.shells.config import hash_key

_ENVIRONMENT = re.compile(r"(?:os\.environ/|\$\{?)([A-Za-z_][A-Za-z0-9_]*)\}?")
_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_STEP = re.compile(r"\[\d+\]|\.")


class Unmapped(msgspec.Struct, frozen=True):
    """A value that has no place here. The remedy says what to do instead."""

    field: str
    remedy: str


class Imported(msgspec.Struct, frozen=True):
    """What becomes of another gateway's configuration."""

    settings: dict[str, Any]
    """The values of an `athena.yml`."""
    mapped: tuple[tuple[str, str], ...]
    """Fields of the other file, and what they became."""
    unmapped: tuple[Unmapped, ...]


class Reader:
    """A tree of values that knows which of them were used."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._leaves = dict(_leaves(value, ""))
        self._used: set[str] = set()
        self._mapped: dict[tuple[str, str], None] = {}
        self._unmapped: list[Unmapped] = []

    def use(self, field: str, became: str) -> None:
        """The value at this place, and all below it, has become something here."""
        self._take(field)
        self._mapped[field, became] = None

    def leave(self, field: str, remedy: str) -> None:
        """What is at this place, and was not used, has no place here."""
        if self._take(field):
            self._unmapped.append(Unmapped(field, remedy))

    def _take(self, field: str) -> bool:
        below = {leaf for leaf in self._leaves if leaf == field or leaf.startswith((f"{field}.", f"{field}["))}
        found = not below <= self._used
        self._used |= below
        return found

    def finish(self, settings: dict[str, Any], remedies: Mapping[str, str]) -> Imported:
        """Everything that was not used is unmapped. `remedies` are found by the last word of a field, or by one before it."""
        for leaf in self._leaves:
            if leaf not in self._used:
                words = reversed([word for word in _STEP.split(leaf) if word])
                remedy = next((remedies[word] for word in words if word in remedies), "Athena has nothing like it")
                self._unmapped.append(Unmapped(leaf, remedy))
        return Imported(settings, tuple(self._mapped), tuple(self._unmapped))


def _leaves(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{at}.{name}" if at else str(name))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{at}[{number}]")
    else:
        yield at, value


def with_variables(value: Any) -> str:
    """A value of theirs that may name a variable, as ours."""
    found = _ENVIRONMENT.fullmatch(str(value))
    return f"${{{found.group(1)}}}" if found else str(value).replace("${", "$${")


def is_variable(value: Any) -> bool:
    return _ENVIRONMENT.fullmatch(str(value)) is not None


def is_number(value: Any) -> TypeGuard[int | float]:
    """A number above zero; `true` is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


class Upstreams:
    """The upstreams of the new configuration: one for each address, key and set of headers."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def name_of(self, wanted: str, row: dict[str, Any]) -> str:
        base = name = _NAME.sub("-", wanted).strip("-").lower() or "upstream"
        number = 1
        while name in self.rows and self.rows[name] != row:
            number += 1
            name = f"{base}-{number}"
        self.rows[name] = row
        return name


def take_api_key(value: Any, field: str, row: dict[str, Any], reader: Reader) -> None:
    """The key of an upstream. What is no variable is not shown."""
    row["api_key"] = with_variables(value)
    reader.use(field, f"upstreams.*.api_key: {row['api_key'] if is_variable(value) else '***'}")


def take_gateway_key(value: Any, field: str, name: str, reader: Reader, settings: dict[str, Any]) -> None:
    """The key that clients present: its hash is kept."""
    if not isinstance(value, str) or not value or is_variable(value):
        reader.leave(field, "gateway keys are kept as hashes: athena config hash-key makes one of the key in your variable")
        return
    settings["keys"] = [{"name": name, "hash": hash_key(value)}]
    reader.use(field, "keys: its hash")
