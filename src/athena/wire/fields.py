"""Typed reading of JSON objects: a wrong field is an `InvalidRequest` that names its path, an unknown one is kept.

Null means absent, as every dialect's clients use it. `rest()` returns the fields that no getter asked for, so unknown fields
survive; `unread()` names what is left over in nested objects, so that nothing is lost silently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeAlias, TypeVar

import msgspec

from athena.errors import InvalidRequest
from athena.wire.recall import Recall

Made = TypeVar("Made")
Body: TypeAlias = Mapping[str, Any] | bytes | str
"""The body of a request or an answer as callers of the library have it: as a value, or as JSON text."""
_ALL = "\0all"
"""Among the read keys of an object: whatever was left of it has been handed out."""


class Fields:
    """A JSON object being read. Every getter marks its key as understood."""

    __slots__ = ("_below", "_nested", "_read", "path", "recall", "value")

    def __init__(self, value: object, path: str = "", recall: Recall | None = None) -> None:
        if not isinstance(value, dict):
            raise _wrong(path or "body", "an object", value)
        self.value: dict[str, Any] = value
        self.path = path
        self.recall = recall
        """What is remembered of the parts of this object."""
        self._read: set[str] = set()
        self._nested: list[tuple[str, dict[str, Any], set[str]]] = []
        """Path, value and read keys of every object below the outermost one, each after the one it stands in."""
        self._below = 0
        """Where in that list the objects below this one begin."""

    def inner(self, value: object, path: str) -> Self:
        """An object that stands inside this one, read the same way."""
        nested = type(self)(value, path)
        nested._nested = self._nested
        self._nested.append((path, nested.value, nested._read))
        nested._below = len(self._nested)
        return nested

    def at(self, key: str) -> str:
        """The path of a key, as errors spell it: messages[2].content."""
        return f"{self.path}.{key}" if self.path else key

    def any(self, key: str) -> Any:
        """The value as it is; None when absent."""
        value = self.value.get(key)
        if value is not None:  # most keys of most requests are absent
            self._read.add(key)
        return value

    def has(self, key: str) -> bool:
        """Is the key present and not null?"""
        return self.value.get(key) is not None

    def text(self, key: str) -> str | None:
        value = self.any(key)
        if value is None or isinstance(value, str):
            return value
        raise _wrong(self.at(key), "a string", value)

    def needed_text(self, key: str, *, allow_empty: bool = True) -> str:
        value = self.text(key)
        if value is None or (not value and not allow_empty):
            raise InvalidRequest(f"{self.at(key)}: field required", path=self.at(key))
        return value

    def integer(self, key: str) -> int | None:
        value = self.any(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        raise _wrong(self.at(key), "an integer", value)

    def number(self, key: str) -> float | None:
        value = self.any(key)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise _wrong(self.at(key), "a number", value)

    def flag(self, key: str) -> bool | None:
        value = self.any(key)
        if value is None or isinstance(value, bool):
            return value
        raise _wrong(self.at(key), "true or false", value)

    def mapping(self, key: str) -> dict[str, Any] | None:
        value = self.any(key)
        if value is None or isinstance(value, dict):
            return value
        raise _wrong(self.at(key), "an object", value)

    def sequence(self, key: str) -> list[Any] | None:
        value = self.any(key)
        if value is None or isinstance(value, list):
            return value
        raise _wrong(self.at(key), "an array", value)

    def texts(self, key: str) -> tuple[str, ...]:
        """An array of strings, or one string standing for an array of one."""
        value = self.any(key)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise _wrong(self.at(key), "a string or an array of strings", value)

    def child(self, key: str) -> Self | None:
        """A nested object, to be read the same way."""
        value = self.mapping(key)
        return None if value is None else self.inner(value, self.at(key))

    def children(self, key: str) -> Iterator[Self]:
        for index, item in enumerate(self.sequence(key) or ()):
            yield self.inner(item, f"{self.at(key)}[{index}]")

    def each(
        self, key: str, read: Callable[[Self], Made], *, plain: Callable[[Any], Made | None] | None = None
    ) -> tuple[Made, ...]:
        """What `read` makes of each object of an array. `plain` makes the same of an object whose every field it understands,
        and None of any other: it saves the notes of what was read."""
        if plain is None:
            return tuple(read(item) for item in self.children(key))
        place = self.at(key)
        recall = self.recall
        items = self.sequence(key) or []
        if recall is None or recall.is_empty:
            return tuple([
                one if one is not None else read(self.inner(items[index], f"{place}[{index}]"))
                for index, one in enumerate(map(plain, items))
            ])  # fmt: skip
        made: list[Made] = recall.meanings(items)
        for index in range(len(made), len(items)):
            item = items[index]
            fragment = recall.of(item)
            one = recall.meaning(fragment) if fragment is not None else None
            if one is None:
                before = len(self._nested)
                one = plain(item)
                if one is None:
                    one = read(self.inner(item, f"{place}[{index}]"))
                if fragment is not None and not self._left_unread(before):
                    recall.meant(fragment, one)
            made.append(one)
        return tuple(made)

    def recalled(self, item: object) -> Any:
        """What was made of a part before, from the same JSON; None where nothing is known of it."""
        recall = self.recall
        fragment = recall.of(item) if recall is not None else None
        if recall is None or fragment is None:
            return None
        return recall.meaning(fragment)

    def remember(self, item: object, made: object, before: int) -> bool:
        """Remember what was made of a part, unless something of it was left unread; nothing else went into it. `before` is
        `reading` as it was before the part was read. Returns whether it is remembered."""
        recall = self.recall
        fragment = recall.of(item) if recall is not None else None
        if recall is None or fragment is None or self._left_unread(before):
            return False
        recall.meant(fragment, made)
        return True

    def _left_unread(self, before: int) -> bool:
        return len(self._nested) > before and bool(_unread(self._nested[before:]))

    @property
    def reading(self) -> int:
        """How far the reading has come: what is noted after this belongs to what is read next."""
        return len(self._nested)

    def whole_field(self, key: str, read: Callable[[Self], Made]) -> Made:
        """What `read` makes of one field, which is all that it looks at, or made of it when it had the same JSON."""
        value = self.value.get(key)
        known: Made | None = self.recalled(value)
        if known is not None:
            self._read.add(key)
            return known
        before = len(self._nested)
        made = read(self)
        self.remember(value, made, before)
        return made

    def rest(self) -> dict[str, Any] | None:
        """What no getter asked for, nulls left out; None when nothing is left."""
        left = {key: value for key, value in self.value.items() if key not in self._read and value is not None}
        self._read.add(_ALL)
        return left or None

    def whole(self) -> dict[str, Any]:
        """The object itself, for a reader that understands none of it: all that is in it goes where the object goes."""
        self._read.add(_ALL)
        del self._nested[self._below :]
        return self.value

    def forget(self, key: str) -> None:
        """Count a key as unknown after all: its value is unknown."""
        self._read.discard(key)
        place = self.at(key)
        inside = (f"{place}.", f"{place}[")
        self._nested[:] = [entry for entry in self._nested if entry[0] != place and not entry[0].startswith(inside)]

    def unread(self) -> tuple[str, ...]:
        """Paths of the fields of nested objects that no getter asked for and that `rest` did not return."""
        return _unread(self._nested)

    def wrong(self, key: str, expected: str) -> InvalidRequest:
        """The error to raise when a value is of the right type but illegal."""
        return _wrong(self.at(key), expected, self.value.get(key))


def _unread(entries: list[tuple[str, dict[str, Any], set[str]]]) -> tuple[str, ...]:
    return tuple(
        f"{path}.{key}"
        for path, nested, read in entries
        if _ALL not in read
        for key, value in nested.items()
        if value is not None and key not in read
    )


def _wrong(path: str, expected: str, value: object) -> InvalidRequest:
    if isinstance(value, str):
        shown = json.dumps(value[:60], ensure_ascii=False).encode("utf-8", "replace").decode()
    else:
        shown = json.dumps(value) if isinstance(value, int | float | bool) else _KINDS[type(value)]
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return InvalidRequest(f"{path}: expected {expected}, got {shown}", path=path)


class _Kinds(dict[type, str]):
    def __missing__(self, key: type) -> str:
        return key.__name__


_KINDS = _Kinds({dict: "an object", list: "an array", type(None): "null"})


def decode_json_object(body: bytes) -> dict[str, Any]:
    """A request body as a dict, or an InvalidRequest that says where it stops being JSON."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_json")
    return value


def as_bytes(body: Body) -> bytes:
    """A body as its JSON text."""
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)


def as_object(body: Body) -> Mapping[str, Any]:
    """A body as its value. Raises InvalidRequest where the text is not a JSON object."""
    if not isinstance(body, bytes | str | Mapping):
        raise TypeError(f"a body must be a mapping, or JSON as bytes or str, not {type(body).__name__}")
    return decode_json_object(as_bytes(body)) if isinstance(body, bytes | str) else body
