"""The last exchanges in memory, as they were collected: nothing is done with them before somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from athena.recording.filters import Filter, Placed, Position, page_of
from athena.recording.secrets import masks
from athena.recording.tap import RecordingTap
from athena.recording.view import ExchangeRow
from athena.serving.record import as_fields
from athena.serving.sessions import Belonging, said_by
from athena.shells.recorder.archive import named_row

_MOST_UNSERVED = 0.25
"""The share of the ring that refusals and what was passed through may have: strangers and polls make any number of them."""
_MOST_SPECIAL = 0.5
"""The share of the ring that errors and repairs may keep while others go."""


class Ring:
    """At most so many exchanges, and so many bytes."""

    def __init__(self, *, most: int, most_bytes: int, secrets: Callable[[], Iterable[str]] = tuple) -> None:
        """`secrets` gives what nobody may read."""
        self._secrets = secrets
        self._most = most
        self._most_bytes = most_bytes
        self._most_unserved = _MOST_UNSERVED * most
        self._most_special = _MOST_SPECIAL * most
        self._kept: dict[str, RecordingTap] = {}
        """The oldest first, after all that are spared."""
        self._spared: dict[str, RecordingTap] = {}
        """Errors and repairs that stayed when it was their turn to go."""
        self._rows: dict[str, ExchangeRow] = {}
        """Of those that somebody has looked at."""
        self._places = most
        """For those that are not spared."""
        self._bytes = 0
        self._special = 0
        self._unserved = 0
        self._added = 0

    def add(self, tap: RecordingTap) -> tuple[str, Sequence[str]]:
        """Keep it. Returns its name, and the names of those that made room for it."""
        record, kept = tap.record, self._kept
        name = record.request_id
        if name in kept or name in self._spared:
            name = self._another(name)
        kept[name] = tap
        self._added += 1
        tap.number = self._added
        self._bytes = size = self._bytes + tap.size
        kind = tap.kind
        if kind != "served":
            self._unserved += 1
        # Whoever is refused at the door must not push out what others went through.
        if (record.outcome != "ok" or record.echoes or record.repairs or record.text_calls) and kind != "refused":
            tap.is_special = True
            self._special += 1
        if len(kept) > self._places or size > self._most_bytes:
            return name, self._make_room()
        return name, ()

    def _another(self, name: str) -> str:
        number = 2
        while f"{name}.{number}" in self._kept or f"{name}.{number}" in self._spared:
            number += 1
        return f"{name}.{number}"

    def _make_room(self) -> list[str]:
        kept, gone = self._kept, list[str]()
        while len(kept) > self._places or (self._bytes > self._most_bytes and len(self)):
            name = next(iter(kept), "")
            if self._unserved > self._most_unserved or not name or kept[name].is_special:
                name = self._oldest()
            gone.append(name)
            self.delete(name)
        return gone

    def _oldest(self) -> str:
        """The oldest that nobody served, where such fill their share; else the oldest that went well; errors and repairs only
        where they fill theirs."""
        if self._unserved > self._most_unserved:
            return next(name for name, tap in self.exchanges() if tap.kind != "served")
        kept, spared = self._kept, self._spared
        if self._special <= self._most_special:
            while kept:
                name = next(iter(kept))
                if not kept[name].is_special:
                    return name
                spared[name] = kept.pop(name)
                self._places -= 1
        return next(iter(spared or kept))

    def delete(self, name: str) -> bool:
        """Forget an exchange; False where it was not there."""
        tap = self._kept.pop(name, None)
        if tap is None:
            tap = self._spared.pop(name, None)
            if tap is None:
                return False
            self._places += 1
        self._bytes -= tap.size
        if tap.kind != "served":
            self._unserved -= 1
        if tap.is_special:
            self._special -= 1
        if self._rows:
            self._rows.pop(name, None)
        tap.drop()
        return True

    def __len__(self) -> int:
        return len(self._kept) + len(self._spared)

    def exchanges(self) -> list[tuple[str, RecordingTap]]:
        """All of them with their names, the oldest first."""
        return [*self._spared.items(), *self._kept.items()]

    def rows(self, wanted: Filter, limit: int, after: Position | None = None) -> tuple[list[ExchangeRow], Position | None]:
        """The newest that are meant, and the position after which the next page begins, if there is one."""
        return page_of(self.placed(wanted, limit + 1, after), limit)

    def placed(self, wanted: Filter, limit: int, after: Position | None = None) -> list[Placed]:
        """The newest that are meant, each with its position, of those that stand behind `after`."""
        placed = [(Position(row.at, tap.number), row) for name, tap in self.exchanges() if wanted.holds(row := self.row(name))]
        following = [each for each in placed if after is None or each[0] < after]
        return sorted(following, key=lambda each: each[0], reverse=True)[:limit]

    def count(self, wanted: Filter) -> int:
        """How many exchanges are meant."""
        return sum(wanted.holds(self.row(name)) for name, _ in self.exchanges())

    def row(self, name: str) -> ExchangeRow:
        """The row of an exchange that is there."""
        known = self._rows.get(name)
        if known is None:
            tap = self.get(name)
            assert tap is not None
            known = msgspec.structs.replace(named_row(name, tap.parted(self._secrets())), size=tap.size)
            self._rows[name] = known
        return known

    def get(self, name: str) -> RecordingTap | None:
        """The exchange of that name."""
        return self._kept.get(name) or self._spared.get(name)

    def before(self, row: ExchangeRow) -> tuple[str, bytes] | None:
        """The request before this one in its session, by the same agent."""
        if not row.session:
            return None
        own = self.get(row.id)
        wanted = Filter(session=row.session, agent=row.agent)
        for earlier in self.rows(wanted, len(self), Position(row.at, own.number) if own is not None else None)[0]:
            tap = self.get(earlier.id)
            if tap is not None and (earlier.session, earlier.agent, earlier.dialect) == (row.session, row.agent, row.dialect):
                return earlier.id, tap.body
        return None


def live_row(tap: RecordingTap, secrets: Iterable[str]) -> ExchangeRow:
    """An exchange in a list while it is in flight, without secrets."""
    asked, record = tap.asked_as, tap.record
    mask = masks(tap.secrets(secrets))
    # Where the headers do not say whose it is, the body is not searched for it yet.
    said = said_by(asked.headers) if asked is not None else Belonging()
    whose = Belonging(*map(mask.text, msgspec.structs.astuple(said)))
    fields: dict[str, Any] = {
        name: mask.text(value) if isinstance(value, str) else value for name, value in as_fields(record).items()
    }
    known = {field: fields[field] for field in ExchangeRow.__struct_fields__ if field in fields}
    row = ExchangeRow(
        id=record.request_id,
        at=tap.at,
        program=whose.program,
        session=whose.session,
        agent=whose.agent,
        parent=whose.parent,
        response=asked.kept.id if asked is not None and asked.kept is not None else "",
        size=tap.size,
        kind=tap.kind,
        **known,
    )
    return msgspec.structs.replace(row, state="live", verdict="live", status=tap.status, outcome="")
