"""Exchanges that are kept together: encoded in one go, and searched for secrets in one go.

To look for secrets in what is encoded anyway costs no step of Python for each piece of each exchange. Only where something was
found, or could be hidden, each exchange is masked by itself, as `PackedExchange.parted` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from athena.recording.packed import PackedExchange
from athena.recording.parted import Parted, Streams
from athena.recording.searched import LARGE, SearchedBodies, SearchedBody
from athena.recording.secrets import NO_SECRETS, Mask, masks
from athena.recording.served_by import ServedBy, SettingsMemo
from athena.serving.record import FIELDS
from athena.serving.targets import Target

Item = TypeVar("Item")
_NONE: dict[int, SearchedBody] = {}
_MOST = 64
_MOST_BYTES = 512 * 1024
"""Exchanges and bytes of their streams, up to which they are kept together: reading one of them must not take long."""


class KeptHead(msgspec.Struct, array_like=True, frozen=True):
    """The head of an exchange, and whose it is."""

    head: bytes
    whose: tuple[str, str, str, str]


class Heads(msgspec.Struct, array_like=True):
    """The heads of a group as they are kept."""

    fields: tuple[str, ...]
    """Those of a record in the version that wrote this."""
    heads: list[KeptHead | None]
    """None: it was deleted."""


class Group(msgspec.Struct, frozen=True):
    """Exchanges that are kept together, as they are encoded."""

    members: list[Parted]
    heads: bytes
    """`Heads`."""
    begin: int
    """Where in `plain` the bytes of the streams begin."""
    plain: bytes
    """What is told of the streams, and the bytes of all of them but their texts."""

    @classmethod
    def of(cls, members: list[Parted]) -> Group:
        """These recordings as one group."""
        heads = [(member.head, msgspec.structs.astuple(member.about.whose)) for member in members]
        return cls(members, _encode((FIELDS, heads)), *told_streams([member.streams for member in members]))

    def holds(self, mask: Mask) -> bool:
        """Does any part of them but large bodies hold a secret? Some may be hidden still, as `Steps.may_hide` says."""
        texts = [member.streams.texts for member in self.members]
        bodies = [body for member in self.members for body in member.bodies if len(body) < LARGE]
        return mask.finds_in((self.heads, self.plain, *texts, *bodies))


_encode = msgspec.msgpack.Encoder().encode


def told_streams(streams: Sequence[Streams | None]) -> tuple[int, bytes]:
    """What is told of the streams of a group, followed by their bytes, and where these begin."""
    told = [
        None
        if each is None
        else ((each.clock, each.places, each.reads, each.writes, b"", (), each.splices, b"", each.bursts), len(each.data))
        for each in streams
    ]
    first = _encode(told)
    return len(first), b"".join([first, *[each.data for each in streams if each is not None]])


def parts_of(items: Iterable[Item], bytes_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Those that are kept together."""
    group: list[Item] = []
    size = 0
    for item in items:
        group.append(item)
        size += bytes_of(item)
        if len(group) >= _MOST or size >= _MOST_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


class Grouping:
    """Makes groups of exchanges that were served by some settings."""

    def __init__(
        self, secrets: Iterable[str], memo: SettingsMemo, bodies: SearchedBodies, failed: Callable[[str], None]
    ) -> None:
        """`memo` and `bodies` are what is remembered of earlier groups. `failed` gets the name of each exchange that cannot be
        made, in the handler of its exception."""
        self._secrets = tuple(secrets)
        self._mask = masks(self._secrets)
        self._memo = memo
        self._bodies = bodies
        self._failed = failed
        # Of the last exchange: the next one has most of it, too.
        self._targets: tuple[Target, ...] | None = None
        self._key: str | None = None
        self._hidden: tuple[str, ...] = ()
        self._own = NO_SECRETS
        """What is to be hidden besides the secrets of all."""
        self._served_by: ServedBy | None = None
        self._settings = b""

    def groups(self, exchanges: Iterable[PackedExchange]) -> list[Group]:
        """These exchanges without secrets."""
        found = list(self._found(exchanges))
        return [self._group(part) for part in parts_of(found, lambda pair: len(pair[1].streams.data))]

    def _found(self, exchanges: Iterable[PackedExchange]) -> Iterator[tuple[PackedExchange, Parted, bool]]:
        """Each exchange with its parts as they are, and whether they are to be masked."""
        is_plain = self._mask.is_plain
        for exchange in exchanges:
            try:
                large = self._large(exchange) if max(map(len, exchange.bodies)) >= LARGE else _NONE
                parted = exchange.unmasked(self._settings_of(exchange), large.get(0))
                own = self._own
                is_suspect = (
                    not is_plain
                    or (own is not NO_SECRETS and (not own.is_plain or exchange.may_hold(own, parted)))
                    or exchange.steps.may_hide(self._mask, parted.streams.texts)
                    or (large and any(map(self._mask.finds_in_body, large.values())))
                )
                yield exchange, parted, bool(is_suspect)
            except Exception:
                # A fault of ours in one recording must not take the others with it.
                self._failed(exchange.name)

    def _large(self, exchange: PackedExchange) -> dict[int, SearchedBody]:
        """Its large bodies, by their place among all."""
        _, key, dialect, upstream, model, said = exchange.about
        return {
            place: self._bodies.searched((place, key, dialect, upstream, model, said), body)
            for place, body in enumerate(exchange.bodies)
            if len(body) >= LARGE
        }

    def _settings_of(self, exchange: PackedExchange) -> bytes:
        if exchange.targets is not self._targets or exchange.key != self._key:
            hidden = exchange.hidden(self._secrets)
            own = masks(tuple([secret for secret in hidden if secret not in self._secrets]))
            # All at once: another exchange must not find half of it.
            self._hidden, self._own = hidden, own if own.hides_anything else NO_SECRETS
            self._targets, self._key, self._served_by = exchange.targets, exchange.key, None
        if exchange.served_by != self._served_by:
            self._settings = exchange.served_by.written(self._hidden, masks(self._hidden), self._memo)
            self._served_by = exchange.served_by
        return self._settings

    def _group(self, found: list[tuple[PackedExchange, Parted, bool]]) -> Group:
        group = Group.of([parted for _, parted, _ in found])
        if not group.holds(self._mask) and not any(is_suspect for _, _, is_suspect in found):
            return group
        masked: list[Parted] = []
        for exchange, _, _ in found:
            try:
                masked.append(exchange.parted(self._secrets, self._memo))
            except Exception:
                self._failed(exchange.name)
        return Group.of(masked)
