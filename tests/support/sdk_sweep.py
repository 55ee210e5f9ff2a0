"""Every field, value and union member of the official SDKs' types, as values: requests, answers and stream events.

A type is walked once. Each of its fields gives one variant per value it can have: the smallest valid value of the whole, with
that field set. Text that can be told apart is put wherever text goes, so that what becomes of a value can be seen.
"""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import typing_extensions
from pydantic import BaseModel

MARK = "mark"
"""Text wherever text goes."""
TRIED = "tried"
"""The same inside of what is tried, so that it can be found again."""
_LEAVES: dict[Any, Any] = {
    str: MARK,
    int: 7,
    float: 0.5,
    bool: True,
    bytes: "aGk=",
    object: {"k": MARK},
    Any: {"k": MARK},
    type(None): None,
}
_LISTS = (list, tuple, set, frozenset, collections.abc.Iterable, collections.abc.Sequence, collections.abc.MutableSequence)
_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


@dataclass(frozen=True)
class Variant:
    """One value of a type, and what in it is tried."""

    path: str
    """The field, and the value where it is one of several: `tools[].cache_control.ttl=1h`."""
    value: Any
    without: Any
    """The same without what is tried."""
    tried: Any
    """What is tried."""


class Types:
    """One SDK's types, each walked where it is met first."""

    def __init__(
        self,
        samples: Mapping[str, Any] | None = None,
        skip: frozenset[str] = frozenset(),
        last: tuple[str, ...] = (),
        needed: Mapping[str, tuple[str, ...]] | None = None,
        instead: Mapping[str, tuple[str, frozenset[str]]] | None = None,
    ) -> None:
        self._samples = dict(samples or {})
        """Values for fields, by the end of their path: where the smallest value of the type is not a sensible one."""
        self._skip = skip
        """Fields that never reach the wire."""
        self._needed = needed or {}
        """Fields that a type calls optional and that its smallest sensible value has, by the type's name."""
        self._instead = instead or {}
        """Types of which one field goes where any of some others comes: `text` of a part that is a call."""
        self._last = last
        """Fields that are walked behind the others: what they share with them is met in its own place first."""
        self._walked: set[Any] = set()

    def skip_fields_of(self, kind: Any) -> None:
        """Do not walk a type: it is tried elsewhere."""
        self._walked.add(kind)

    # -- the smallest value ----------------------------------------------------------------------------------------------------

    def sample(self, kind: Any, path: str = "", depth: int = 0) -> Any:
        """The smallest valid value of a type."""
        for end, value in self._samples.items():
            if path.endswith(end):
                return value
        kind = _bare(kind)
        if kind in _LEAVES:
            return _LEAVES[kind]
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Literal or origin is typing_extensions.Literal:
            return args[0]
        if _is_union(origin):
            return self.sample(_members(args)[0], path, depth)
        if origin in _LISTS or _is_sequence(origin or kind):
            return [self.sample(args[0] if args else str, f"{path}[]", depth + 1)]
        if origin in _MAPS or kind in _MAPS:
            return {"k": self.sample(args[1], f"{path}.*", depth + 1) if len(args) > 1 else MARK}
        if _is_enum(kind):
            return next(member.value for member in kind if "UNSPECIFIED" not in str(member.value).upper())
        fields = fields_of(kind)
        if fields is None:
            return MARK
        if depth > 12:
            return {}
        return {
            field.wire: self.sample(field.kind, f"{path}.{field.wire}", depth + 1)
            for field in fields
            if (field.required or field.wire in self._needed.get(kind.__name__, ())) and field.wire not in self._skip
        }

    # -- all values ------------------------------------------------------------------------------------------------------------

    def variants(self, kind: Any, path: str = "") -> Iterator[Variant]:
        """Every value of a type that differs from the smallest one in one thing."""
        kind = _bare(kind)
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if any(path.endswith(end) for end in self._samples) or kind in _LEAVES:
            value = tried(self.sample(kind, path))
            yield Variant(path, value, None, value)
        elif origin is typing.Literal or origin is typing_extensions.Literal:
            for value in args:
                yield Variant(f"{path}={value}", value, None, value)
        elif _is_union(origin):
            for member in _members(args):
                yield from self.variants(member, path)
        elif origin in _LISTS or _is_sequence(origin or kind):
            for inner in self.variants(args[0] if args else str, f"{path}[]"):
                yield Variant(inner.path, [inner.value], None if inner.without is None else [inner.without], inner.tried)
        elif origin in _MAPS or kind in _MAPS:
            for inner in self.variants(args[1] if len(args) > 1 else str, f"{path}.*"):
                yield Variant(
                    inner.path, {"k": inner.value}, None if inner.without is None else {"k": inner.without}, inner.tried
                )
        elif _is_enum(kind):
            for member in kind:
                if "UNSPECIFIED" not in str(member.value).upper():
                    yield Variant(f"{path}={member.value}", member.value, None, member.value)
        elif fields_of(kind) is None:
            value = tried(self.sample(kind, path))
            yield Variant(path, value, None, value)
        else:
            value = tried(self.sample(kind, path))
            place = f"{path}<{_tag(value) or kind.__name__}>"
            yield Variant(place, value, None, value)
            yield from self.fields(kind, place)

    def fields(self, kind: Any, path: str = "") -> Iterator[Variant]:
        """The variants of an object's fields; none if they were tried elsewhere."""
        found = fields_of(kind)
        if found is None or kind in self._walked:
            return
        self._walked.add(kind)
        base = self.sample(kind, path)
        for field in sorted(found, key=lambda field: field.wire in self._last):
            if field.wire in self._skip:
                continue
            for inner in self.variants(field.kind, f"{path}.{field.wire}"):
                without = {key: value for key, value in base.items() if key != field.wire}
                if inner.without is not None or field.wire in base:
                    without[field.wire] = inner.without if inner.without is not None else base[field.wire]
                value = {**base, field.wire: inner.value}
                given, others = self._instead.get(kind.__name__, ("", frozenset()))
                if field.wire in others:
                    value.pop(given, None)
                if value != without:
                    yield Variant(inner.path, value, without, inner.tried)


def tried(value: Any) -> Any:
    """A value whose text can be told from all other text."""
    if isinstance(value, str):
        return value.replace(MARK, TRIED)
    if isinstance(value, dict):
        return {key: inner if key == "type" else tried(inner) for key, inner in value.items()}
    return [tried(inner) for inner in value] if isinstance(value, list) else value


# -- what a type is made of ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """A field of a typed dict or of a model."""

    wire: str
    kind: Any
    required: bool


@cache
def fields_of(kind: Any) -> tuple[Field, ...] | None:
    """The fields of a type; None for what is no object."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return tuple(Field(info.alias or name, info.annotation, info.is_required()) for name, info in kind.model_fields.items())
    if not (isinstance(kind, type) and hasattr(kind, "__total__")):
        return None
    hints = typing_extensions.get_type_hints(kind, include_extras=True)
    total = bool(kind.__total__)
    return tuple(_typed_dict_field(name, hint, total) for name, hint in hints.items())


def _typed_dict_field(name: str, hint: Any, total: bool) -> Field:
    required = total
    while typing.get_origin(hint) in _WRAPPERS:
        origin = typing.get_origin(hint)
        if origin in (typing_extensions.Required, typing_extensions.NotRequired):
            required = origin is typing_extensions.Required
        hint = typing.get_args(hint)[0]
    return Field(_alias(hint) or name, hint, required)


_WRAPPERS = (typing_extensions.Required, typing_extensions.NotRequired, typing_extensions.ReadOnly)


def _alias(hint: Any) -> str | None:
    """The wire's name of a field that Python cannot call so."""
    for note in getattr(hint, "__metadata__", ()):
        found = getattr(note, "alias", None)
        if isinstance(found, str):
            return found
    return None


def _bare(kind: Any) -> Any:
    while True:
        if typing.get_origin(kind) in (typing.Annotated, *_WRAPPERS):
            kind = typing.get_args(kind)[0]
        elif isinstance(kind, typing_extensions.TypeAliasType):
            kind = kind.__value__
        else:
            return kind


def _is_union(origin: Any) -> bool:
    return origin is typing.Union or origin is types.UnionType


def union_members(kind: Any) -> list[Any]:
    """The members of a union."""
    return _members(typing.get_args(_bare(kind)))


def _members(args: tuple[Any, ...]) -> list[Any]:
    """The members of a union but None; SDK classes that only stand for their own dict form are passed over."""
    members = [member for member in args if member is not type(None)]
    dicts = [member for member in members if not (isinstance(_bare(member), type) and issubclass(_bare(member), BaseModel))]
    kinds = {hasattr(_bare(member), "__total__") for member in members}
    return dicts if True in kinds and dicts else members


def _is_sequence(kind: Any) -> bool:
    return getattr(kind, "__name__", "") == "SequenceNotStr"


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _tag(value: Any) -> str:
    return str(value.get("type") or value.get("role") or "") if isinstance(value, dict) else ""
