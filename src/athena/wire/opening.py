"""A client's body cut into its parts, where its JSON says so and before any of it is decoded.

A body of a conversation that is remembered is not even cut: it begins with the bytes of the last one up to some message, it
ends with what stood after the last message, and only what is between is new. The bytes before that message are those of a
body that was cut, so a reader has come as far in the one as in the other; what is new is read as a list of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from functools import reduce
from itertools import accumulate, compress, repeat
from operator import add, attrgetter, is_, itemgetter
from typing import Any, NamedTuple, TypeAlias

import msgspec

from athena.wire.fragments import CONVERSATIONS, PART, VALUE, Fragment, Fragments, KnownConversation, Surroundings
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
_raw_in = itemgetter(1)
_shape_in = attrgetter("shape")


class CutMessages(NamedTuple):
    """Messages in a row: the keys of their parts, and the parts that are known."""

    keys: list[tuple[Hashable, bytes]]
    found: list[Fragment | None]


class CutBody:
    """A body cut into its parts, of which some are known. Nothing of it is decoded yet."""

    __slots__ = (
        "_body", "_fragments", "_messages", "_name", "_names", "_settings", "_since", "_space", "_wholes", "known", "new",
    )  # fmt: skip

    def __init__(
        self,
        fragments: Fragments,
        space: Hashable,
        body: bytes,
        names: tuple[str, ...],
        name: str,
        messages: CutMessages | None,
        wholes: dict[str, _Found],
        settings: dict[str, Any],
        *,
        unkept: int,
        since: int,
    ) -> None:
        """The conversation, the field `name`, consists of `messages`; None for one that came for the first time. `settings`
        are the fields that are no parts: `unkept` parts among them are not looked up."""
        self._fragments = fragments
        self._space = space
        self._body = body
        self._names = names
        self._name = name
        self._messages = messages
        self._wholes = wholes
        self._settings = settings
        self._since = since
        looked_up = self._looked_up()
        self.known = sum(found is not None for _, found in looked_up)
        self.new = unkept + len(looked_up) - self.known
        """How many parts are known, and how many are new."""

    def _looked_up(self) -> list[_Found]:
        messages = self._messages
        return [*(zip(*messages, strict=True) if messages is not None else ()), *self._wholes.values()]

    def unknown(self) -> list[bytes]:
        """The bytes of the parts that are not known yet."""
        return [key[1] for key, found in self._looked_up() if found is None] + self._unkept()

    def _unkept(self) -> list[bytes]:
        return [bytes(raw) for name, raw in self._settings.items() if name == self._name or name in _WHOLE]

    @property
    def known_values(self) -> int:
        """Values in the parts that are known."""
        return sum(found.shape.values for _, found in self._looked_up() if found is not None)

    @property
    def known_objects(self) -> int:
        """Objects in the parts that are known."""
        return sum(found.shape.objects for _, found in self._looked_up() if found is not None)

    def read(self) -> tuple[dict[str, Any], Recall, Shape] | None:
        """The body's value, with what is remembered of it; None where it has to be read as a whole, to be read or refused."""
        recall = Recall(self._fragments, self.known, self.new)
        value: dict[str, Any] = dict.fromkeys(self._names)
        settings: dict[str, Any] = {}
        wholes: dict[str, Fragment] = {}
        try:
            for name, (key, found) in self._wholes.items():
                part = wholes[name] = found if found is not None else _new_part(key, self._fragments)
                value[name] = recall.stand_in(part)
            for name, raw in self._settings.items():
                value[name] = settings[name] = _decode(raw)
            rest = shape_of(settings)
            if rest is None:
                return None
            known = reduce(_together, (part.shape for part in wholes.values()), _NOTHING)
            held = len(value) - len(settings)
            around = Shape(
                known.keys + rest.keys + held,
                known.values + rest.values + held,
                max(2, rest.depth, 1 + known.depth),
                known.objects + rest.objects,
            )
            if self._messages is None:
                recall.new += len(value[self._name])
                return value, recall, around
            frame = Surroundings(self._name, self._names, self._settled(), wholes, self._unkept(), around, known)
            values, shape = self._conversation(self._messages, recall, frame)
        except (*_UNREADABLE, _TooDeep):
            return None
        value[self._name] = values
        return value, recall, _with_messages(around, shape, len(values))

    def _settled(self) -> bytes:
        """The settings as one object."""
        fields = [b"%s:%s" % (json.dumps(name).encode(), bytes(raw)) for name, raw in self._settings.items()]
        return b"{%s}" % b",".join(fields)

    def _conversation(self, messages: CutMessages, recall: Recall, frame: Surroundings) -> tuple[list[Any], Shape]:
        """The values of all messages, and what they hold. The conversation is remembered as a whole for the next request."""
        fragments = self._fragments
        made = KnownConversation(self._since, self._body, frame)
        place = _place_of(self._body, self._name, self._names) if len(self._body) <= fragments.largest else -1
        values, shape, place = _add_messages(made, place, messages, recall, fragments)
        if made.parts and _close(frame, self._body, place):
            _keep(made, None, fragments, self._space)
            recall.runs = frame.runs
        return values, shape


class NextBody:
    """The next request of a conversation: it begins with messages of the last one, and all its other fields are the same."""

    __slots__ = ("_begun", "_body", "_fragments", "_messages", "_since", "_space", "_taken", "known", "new")

    def __init__(
        self,
        fragments: Fragments,
        space: Hashable,
        body: bytes,
        begun: KnownConversation,
        taken: int,
        messages: CutMessages,
        since: int,
    ) -> None:
        """The conversation consists of the first parts of `begun`, as many as are `taken`, and of `messages`."""
        self._fragments = fragments
        self._space = space
        self._body = body
        self._begun = begun
        self._taken = taken
        self._messages = messages
        self._since = since
        self.new = messages.found.count(None)
        self.known = taken + len(messages.found) + len(begun.frame.wholes) - self.new
        """How many parts are known, and how many are new."""

    def unknown(self) -> list[bytes]:
        """The bytes of the parts that are not known yet."""
        keys, found = self._messages
        return [*compress(map(_raw_in, keys), map(is_, found, repeat(None))), *self._begun.frame.unkept]

    @property
    def known_values(self) -> int:
        """Values in the parts that are known."""
        begun = self._begun
        values = begun.sums[self._taken - 1].values + begun.frame.known.values
        return values if self._is_all_new else values + sum(part.shape.values for part in filter(None, self._messages.found))

    @property
    def known_objects(self) -> int:
        """Objects in the parts that are known."""
        begun = self._begun
        objects = begun.sums[self._taken - 1].objects + begun.frame.known.objects
        return objects if self._is_all_new else objects + sum(part.shape.objects for part in filter(None, self._messages.found))

    @property
    def _is_all_new(self) -> bool:
        """Are all messages new that are not of the last request? Nearly always they are."""
        return self.new == len(self._messages.found)

    def read(self) -> tuple[dict[str, Any], Recall, Shape] | None:
        """The body's value, with what is remembered of it; None where it has to be read as a whole, to be read or refused."""
        begun, taken, fragments, messages = self._begun, self._taken, self._fragments, self._messages
        frame = begun.frame
        recall = Recall(fragments, self.known, self.new)
        value: dict[str, Any] = dict.fromkeys(frame.names)
        generation = self._since if begun.generation == self._since else None
        made = KnownConversation(
            generation, self._body, frame, begun.ends[:taken], begun.parts[:taken], begun.values[:taken], begun.sums[:taken]
        )
        values = value[frame.name] = made.values.copy()
        for name, part in frame.wholes.items():
            value[name] = recall.stand_in(part)
        recall.begin(values, made.parts)
        try:
            added, shape, _ = _add_messages(made, made.ends[-1], messages, recall, fragments)
            value.update(_decode(frame.settings))
        except (*_UNREADABLE, _TooDeep):
            return None
        values += added
        if not added and taken == len(begun.parts):
            fragments.keep_conversation(self._space, begun, begun)
            recall.runs = frame.runs
        elif len(self._body) <= fragments.largest:
            _keep(made, begun if 2 * taken >= len(begun.parts) else None, fragments, self._space)
            recall.runs = frame.runs
        recall.frame(frame, value)
        return value, recall, _with_messages(frame.shape, shape, len(values))


Opened: TypeAlias = CutBody | NextBody


def _add_messages(
    made: KnownConversation, place: int, messages: CutMessages, recall: Recall, fragments: Fragments
) -> tuple[list[Any], Shape, int]:
    """Add messages that follow at this place of the body; -1 where their places are not plain to see. Returns their values,
    what all messages hold together, and where they end.

    They are remembered up to one that is no object, that stands in the body twice or that is too large to be kept.
    """
    parts = [
        found if found is not None else _new_part(key, fragments)
        for key, found in zip(messages.keys, messages.found, strict=True)
    ]
    is_new = messages.found.count(None) == len(parts)
    values = recall.stand_in_new(parts) if is_new else list(map(recall.stand_in, parts))
    sums = list(accumulate(map(_shape_in, parts), _together, initial=made.sums[-1] if made.sums else _NOTHING))
    ends = _ends(made.body, place, list(map(_raw_in, messages.keys))) if place >= 0 else []
    count = 0
    for value, part, _ in zip(values, parts, ends, strict=False):
        # Where a part stands in the body for the second time its value is a copy.
        if value is not part.value or type(value) is not dict or part.size > fragments.largest:
            break
        count += 1
    made.ends += ends[:count]
    made.parts += parts[:count]
    made.values += values[:count]
    made.sums += sums[1 : count + 1]
    return values, sums[-1], place if not parts else ends[-1] if len(ends) == len(parts) else -1


def _ends(body: bytes, place: int, raws: list[bytes]) -> list[int]:
    """Where these messages end that follow at this place of the body; fewer where one of them does not."""
    start = place + body.startswith(b",", place)
    if body.startswith(b",".join(raws), start):
        # As most clients write it: without blanks.
        return list(accumulate(map(add, map(len, raws), repeat(1)), initial=start - 1))[1:]
    ends: list[int] = []
    for raw in raws:
        at = body.find(raw[:1], place)
        if at < 0 or not body.startswith(raw, at):
            break
        place = at + len(raw)
        ends.append(place)
    return ends


def _together(one: Shape, other: Shape) -> Shape:
    """What two values hold that stand side by side."""
    depth = one.depth if one.depth > other.depth else other.depth
    return Shape(one.keys + other.keys, one.values + other.values, depth, one.objects + other.objects)


def _with_messages(around: Shape, shape: Shape, count: int) -> Shape:
    """What a body holds with so many messages."""
    return Shape(
        around.keys + shape.keys,
        around.values + shape.values + count,
        max(around.depth, shape.depth + 2),
        around.objects + shape.objects,
    )


def _new_part(key: tuple[Hashable, bytes], fragments: Fragments) -> Fragment:
    value = _decode(key[1])
    shape = shape_at_most(key[1], value)
    if shape is None:
        raise _TooDeep
    return fragments.add(key, value, shape)


def _keep(made: KnownConversation, instead: KnownConversation | None, fragments: Fragments, space: Hashable) -> None:
    made.size = len(made.body) + _MESSAGE * len(made.parts) + made.frame.size
    fragments.keep_conversation(space, made, instead)


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


def _close(frame: Surroundings, body: bytes, place: int) -> bool:
    """Note what stands after the last message; False where that is not the end of the list and of the body."""
    at = body.find(b"]", place) if place > 0 else -1
    if at < 0 or body[place:at].strip(_BLANKS):
        return False
    frame.tail = body[at:]
    texts = len(frame.tail) + 6 * len(frame.settings) + sum(map(len, frame.unkept))
    frame.size = PART + texts + VALUE * (frame.shape.values - frame.known.values)
    behind = frame.names[frame.names.index(frame.name) + 1 :]
    try:
        return tuple(_top(b'{"":0' + frame.tail[1:])) == ("", *behind)
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
        messages: CutMessages | None = None
        unkept = 0
        if _has_begun(top[name], fragments, space):
            messages = _look_up(_list(top[name]), fragments, space)
            del settings[name]
        wholes: dict[str, _Found] = {}
        for field in _WHOLE & top.keys():
            raw = bytes(top[field])
            if len(raw) >= _LEAST:
                key = ((space, field), raw)
                whole = fragments.find(key)
                if whole is not None or fragments.came_before(key):
                    wholes[field] = (key, whole)
                    del settings[field]
                else:
                    unkept += 1
    except _UNREADABLE:
        return None
    return CutBody(fragments, space, body, tuple(top), name, messages, wholes, settings, unkept=unkept, since=since)


def _open_again(begun: KnownConversation, body: bytes, fragments: Fragments, space: Hashable, since: int) -> NextBody | None:
    """The next request of a conversation; None for a body that is none, or of which that cannot be said."""
    taken, tail = begun.begins(body), begun.frame.tail
    if not taken:
        return None
    start, end = begun.ends[taken - 1], len(body) - len(tail)
    if end < start or not body.endswith(tail):
        return None
    added = body[start:end].strip(_BLANKS)
    if added[:1] not in (b"", b","):
        return None
    messages = _look_up(_list(b"[%s]" % added[1:]), fragments, space)
    if added and not messages.keys:
        return None
    return NextBody(fragments, space, body, begun, taken, messages, since)


def _look_up(parts: list[msgspec.Raw], fragments: Fragments, space: Hashable) -> CutMessages:
    keys = list(zip(repeat(space), map(bytes, parts), strict=False))
    return CutMessages(keys, fragments.find_each(keys))


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
