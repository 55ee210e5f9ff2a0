"""A client's body cut into its parts, where its JSON says so and before any of it is decoded.

A body of a conversation that is remembered is not even cut: it begins with the bytes of the last one up to some message, it
ends with what stood after the last message, and only what is between is new. The bytes before that message are those of a
body that was cut, so a reader has come as far in the one as in the other; what is new is read as a list of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Any

import msgspec

from athena.wire.fragments import CONVERSATIONS, Fragment, Fragments, KnownConversation
from athena.wire.recall import Recall
from athena.wire.shape import Shape, shape_at_most, shape_of

_WHOLE = frozenset({"tools", "system", "instructions", "systemInstruction", "system_instruction"})
"""Fields that are one part each."""
_LEAST = 48
"""Bytes below which a part is decoded sooner than it is found."""
_MESSAGE = 250
"""What a conversation that is remembered takes for each message, besides its body."""
_BLANKS = b" \t\r\n"
_BLANK = re.compile(r"[ \t\r\n]*+")
_BEGINNING = 64 * 1024
"""Bytes of a list of messages in which its first two are looked for."""
_value_at = json.JSONDecoder().raw_decode
"""Reads one value and says where it ends, which msgspec does not."""
_top = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_Found = tuple[tuple[Hashable, bytes], Fragment | None]
_NOTHING = Shape(0, 0, 0, 0)


class Opened:
    """A body cut into its parts, of which some are known. Nothing of it is decoded yet."""

    __slots__ = (
        "_begun", "_body", "_fragments", "_items", "_name", "_names", "_settings", "_since", "_space", "_taken", "_wholes",
        "known", "new",
    )  # fmt: skip

    def __init__(
        self,
        fragments: Fragments,
        space: Hashable,
        body: bytes,
        names: tuple[str, ...],
        name: str,
        items: list[_Found] | None,
        wholes: dict[str, _Found],
        settings: dict[str, Any],
        *,
        unkept: int = 0,
        begun: KnownConversation | None = None,
        taken: int = 0,
        since: int = 0,
    ) -> None:
        """The conversation, the field `name`, consists of the first parts of `begun`, as many as are `taken`, and of the parts
        `items`; None for a conversation that came for the first time. `settings` are the fields that are no parts: `unkept`
        parts among them are not looked up."""
        self._fragments = fragments
        self._space = space
        self._body = body
        self._names = names
        self._name = name
        self._items = items
        self._wholes = wholes
        self._settings = settings
        self._begun = begun
        self._taken = taken
        self._since = since
        self.known = taken + sum(found is not None for _, found in self._looked_up())
        self.new = unkept + taken + len(items or ()) + len(wholes) - self.known
        """How many parts are known, and how many are new."""

    def _looked_up(self) -> Iterator[_Found]:
        return chain(self._items or (), self._wholes.values())

    def unknown(self) -> list[bytes]:
        """The bytes of the parts that are not known yet."""
        parts = [key[1] for key, found in self._looked_up() if found is None]
        parts += [bytes(raw) for name, raw in self._settings.items() if name == self._name or name in _WHOLE]
        return parts

    @property
    def known_values(self) -> int:
        """Values in the parts that are known."""
        return self._sum.values + sum(found.shape.values for _, found in self._looked_up() if found is not None)

    @property
    def known_objects(self) -> int:
        """Objects in the parts that are known."""
        return self._sum.objects + sum(found.shape.objects for _, found in self._looked_up() if found is not None)

    @property
    def _sum(self) -> Shape:
        return self._begun.sums[self._taken - 1] if self._begun is not None else _NOTHING

    def read(self) -> tuple[dict[str, Any], Recall, Shape] | None:
        """The body's value, with what is remembered of it; None where it has to be read as a whole, to be read or refused."""
        recall = Recall(self._fragments, self.known, self.new)
        value: dict[str, Any] = {}
        around: dict[str, Any] = {}
        wholes: dict[str, Fragment] = {}
        shape = self._sum
        keys, values, depth, objects = shape.keys, shape.values, shape.depth + 2, shape.objects
        try:
            for name in self._names:
                if name == self._name and self._items is not None:
                    listed, added = self._conversation(recall)
                    value[name] = listed
                    keys += added.keys
                    values += added.values + len(listed)
                    objects += added.objects
                    depth = max(depth, added.depth + 2)
                elif name in self._wholes:
                    part = wholes[name] = self._part(*self._wholes[name])
                    value[name] = recall.stand_in(part)
                    keys += part.shape.keys
                    values += part.shape.values
                    objects += part.shape.objects
                    depth = max(depth, 1 + part.shape.depth)
                else:
                    value[name] = around[name] = _decode(self._settings[name])
                    if name == self._name:
                        recall.new += len(value[name])
        except (*_UNREADABLE, _TooDeep):
            return None
        rest = shape_of(around)
        if rest is None:
            return None
        if self._items is not None:
            self._remember(recall, wholes)
        held = len(value) - len(around)
        whole = Shape(keys + rest.keys + held, values + rest.values + held, max(depth, rest.depth), objects + rest.objects)
        return value, recall, whole

    def _conversation(self, recall: Recall) -> tuple[list[Any], Shape]:
        """The values of all messages, and what those hold that are not taken from the last request."""
        listed: list[Any] = []
        if self._begun is not None:
            listed = self._begun.values[: self._taken]
            recall.begin(listed, self._begun.parts[: self._taken])
        keys = values = depth = objects = 0
        items = self._items or []
        for index, (key, found) in enumerate(items):
            part = found
            if part is None:
                part = self._part(key, None)
                items[index] = (key, part)
            listed.append(recall.stand_in(part))
            shape = part.shape
            keys += shape.keys
            values += shape.values
            objects += shape.objects
            if shape.depth > depth:
                depth = shape.depth
        return listed, Shape(keys, values, depth, objects)

    def _part(self, key: tuple[Hashable, bytes], found: Fragment | None) -> Fragment:
        if found is not None:
            return found
        value = _decode(key[1])
        shape = shape_at_most(key[1], value)
        if shape is None:
            raise _TooDeep
        return self._fragments.add(key, value, shape)

    def _remember(self, recall: Recall, wholes: dict[str, Fragment]) -> None:
        """Remember the conversation as a whole, for the request that follows."""
        begun, taken, fragments = self._begun, self._taken, self._fragments
        if begun is not None and not self._items and taken == len(begun.parts):
            recall.runs = begun.runs
            fragments.keep_conversation(self._space, begun, begun)
            return
        if len(self._body) > fragments.largest:
            return
        made: KnownConversation | None
        if begun is not None:
            # Only messages differ.
            generation = self._since if begun.generation == self._since else None
            made = KnownConversation(
                generation, self._body, begun.tail, begun.name, begun.names, begun.settings, begun.wholes, begun.runs
            )
            made.ends, made.parts = begun.ends[:taken], begun.parts[:taken]
            made.values, made.sums = begun.values[:taken], begun.sums[:taken]
            place = made.ends[-1]
        else:
            place = _place_of(self._body, self._name, self._names)
            if place < 0:
                return
            settings = {name: bytes(raw) for name, raw in self._settings.items()}
            made = KnownConversation(self._since, self._body, b"", self._name, self._names, settings, wholes, {})
        place = self._add_parts(made, place)
        if not made.parts or (begun is None and not _close(made, place)):
            return
        made.size = len(self._body) + _MESSAGE * len(made.parts)
        instead = begun if begun is not None and 2 * taken >= len(begun.parts) else None
        fragments.keep_conversation(self._space, made, instead)
        recall.runs = made.runs

    def _add_parts(self, made: KnownConversation, place: int) -> int:
        """The messages that were not taken from the last request, and where they end; up to one that is no object, that stands
        there twice or that is too large to be kept."""
        body, largest = made.body, self._fragments.largest
        seen = set(map(id, made.parts))
        last = made.sums[-1] if made.sums else _NOTHING
        is_taken = True
        for _, part in self._items or ():
            assert part is not None
            raw, shape = part.raw, part.shape
            at = body.find(raw[:1], place)
            if at < 0 or not body.startswith(raw, at):
                return -1
            place = at + len(raw)
            is_taken = is_taken and raw[:1] == b"{" and id(part) not in seen and part.size <= largest
            if not is_taken:
                continue
            seen.add(id(part))
            last = Shape(
                last.keys + shape.keys, last.values + shape.values, max(last.depth, shape.depth), last.objects + shape.objects
            )
            made.ends.append(place)
            made.parts.append(part)
            made.values.append(part.value)
            made.sums.append(last)
        return place


class _TooDeep(Exception):
    """A part is nested too deep to be kept."""


def _place_of(body: bytes, name: str, names: tuple[str, ...]) -> int:
    """Where the list of messages begins; -1 where that is not plain to see. What stands before it must be an object's fields
    up to this one: the word also stands in other places."""
    before = names[: names.index(name) + 1]
    at = body.find(b'"%s"' % name.encode())
    if at < 0:
        return -1
    at = body.find(b"[", at)
    try:
        return at + 1 if at > 0 and tuple(_top(body[:at] + b"0}")) == before else -1
    except _UNREADABLE:
        return -1


def _close(made: KnownConversation, place: int) -> bool:
    """Note what stands after the last message; False where that is not the end of the list and of the body."""
    at = made.body.find(b"]", place) if place > 0 else -1
    if at < 0 or made.body[place:at].strip(_BLANKS):
        return False
    made.tail = made.body[at:]
    behind = made.names[made.names.index(made.name) + 1 :]
    try:
        return tuple(_top(b'{"":0' + made.tail[1:])) == ("", *behind)
    except _UNREADABLE:
        return False


def open_body(body: bytes, fragments: Fragments, space: Hashable) -> Opened | None:
    """The body cut into parts; None for one that is no request of the usual kind. `space` names the caller and the dialect:
    parts of different spaces do not meet.
    """
    since = fragments.turned_over
    try:
        for begun in fragments.conversations(space):
            opened = _open_again(begun, body, fragments, space, since)
            if opened is not None:
                return opened
        top = _top(body)
        name = next((name for name in CONVERSATIONS if name in top), None)
        if name is None:
            return None
        settings: dict[str, Any] = dict(top)
        items: list[_Found] | None = None
        unkept = 0
        if _has_begun(top[name], fragments, space):
            items = _look_up(_list(top[name]), fragments, space)
            del settings[name]
        wholes: dict[str, _Found] = {}
        for field in _WHOLE & top.keys():
            raw = bytes(top[field])
            if len(raw) >= _LEAST:
                key = (space, raw)
                whole = fragments.find(key)
                if whole is not None or fragments.came_before(key):
                    wholes[field] = (key, whole)
                    del settings[field]
                else:
                    unkept += 1
    except _UNREADABLE:
        return None
    return Opened(fragments, space, body, tuple(top), name, items, wholes, settings, unkept=unkept, since=since)


def _open_again(begun: KnownConversation, body: bytes, fragments: Fragments, space: Hashable, since: int) -> Opened | None:
    """The next request of a conversation; None for a body that is none, or of which that cannot be said."""
    taken = begun.begins(body)
    end = len(body) - len(begun.tail)
    if not taken or end < begun.ends[taken - 1] or not body.endswith(begun.tail):
        return None
    items: list[_Found] = []
    added = body[begun.ends[taken - 1] : end].strip(_BLANKS)
    if added:
        if added[:1] != b",":
            return None
        items = _look_up(_list(b"[" + added[1:] + b"]"), fragments, space)
        if not items:
            return None
    wholes: dict[str, _Found] = {name: ((space, part.raw), part) for name, part in begun.wholes.items()}
    return Opened(
        fragments, space, body, begun.names, begun.name, items, wholes, begun.settings, begun=begun, taken=taken, since=since
    )  # fmt: skip


def _look_up(parts: list[msgspec.Raw], fragments: Fragments, space: Hashable) -> list[_Found]:
    items: list[_Found] = []
    find = fragments.find
    for part in parts:
        key = (space, bytes(part))
        items.append((key, find(key)))
    return items


def _has_begun(listed: msgspec.Raw, fragments: Fragments, space: Hashable) -> bool:
    """Is this a conversation that came before? Its first two messages tell; its first request may have had but one."""
    first = _first_two(memoryview(listed)) or tuple(map(bytes, _list(listed)[:2]))
    if not first:
        return False
    return fragments.came_before((space, first[:1]), (space, first))


def _first_two(listed: memoryview) -> tuple[bytes, ...]:
    """The first two messages of a list that is long, without reading the others; none where these two are long themselves."""
    if len(listed) <= _BEGINNING or bytes(listed[:1]) != b"[":
        return ()
    text = str(listed[:_BEGINNING], "utf-8", "surrogateescape")
    first: list[bytes] = []
    try:
        end = 0
        while len(first) < 2:
            at = _BLANK.match(text, end + 1).end()  # type: ignore[union-attr]  # it matches anywhere
            _, end = _value_at(text, at)
            first.append(text[at:end].encode("utf-8", "surrogateescape"))
            end = _BLANK.match(text, end).end()  # type: ignore[union-attr]
            if text[end] != ",":
                return ()
    except (IndexError, ValueError, RecursionError):
        return ()
    return tuple(first)
