"""The last exchanges in memory, as they were collected: nothing is done with them before somebody looks."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from athena.recording.filters import Filter
from athena.recording.show import is_special, verdict_of
from athena.recording.tap import RecordingTap
from athena.recording.view import ExchangeRow
from athena.serving.record import as_fields
from athena.serving.sessions import Belonging, belonging

_MOST_UNSERVED = 0.25
"""The share of the ring that refusals and what was passed through may have: strangers and polls make any number of them."""
_MOST_SPECIAL = 0.5
"""The share of the ring that errors and repairs may keep while others go."""


class _Kept:
    """One exchange of the ring."""

    __slots__ = ("_row", "name", "special", "tap")

    def __init__(self, name: str, tap: RecordingTap) -> None:
        self.name = name
        self.tap = tap
        # Whoever is refused at the door must not push out what others went through.
        self.special = tap.kind != "refused" and is_special(tap.record)
        self._row: ExchangeRow | None = None

    def row(self) -> ExchangeRow:
        if self._row is None:
            self._row = row_of_tap(self.tap, self.name, live=False)
        return self._row


class Ring:
    """At most so many exchanges, and so many bytes."""

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0
        self._special = 0
        self._unserved = 0

    def add(self, tap: RecordingTap) -> tuple[str, list[str]]:
        """Keep it. Returns its name, and the names of those that made room for it."""
        name = tap.record.request_id
        if name in self._kept:
            number = 2
            while f"{name}.{number}" in self._kept:
                number += 1
            name = f"{name}.{number}"
        kept = self._kept[name] = _Kept(name, tap)
        self._bytes += tap.size
        self._special += kept.special
        self._unserved += tap.kind != "served"
        gone: list[str] = []
        while len(self._kept) > self._most or (self._bytes > self._most_bytes and self._kept):
            gone.append(self._oldest())
            self.delete(gone[-1])
        return name, gone

    def _oldest(self) -> str:
        """The oldest that nobody served, where such fill their share; else the oldest that went well; errors and repairs only
        where they fill theirs."""
        if self._unserved > _MOST_UNSERVED * self._most:
            return next(name for name, kept in self._kept.items() if kept.tap.kind != "served")
        if self._special <= _MOST_SPECIAL * self._most:
            for name, kept in self._kept.items():
                if not kept.special:
                    return name
        return next(iter(self._kept))

    def delete(self, name: str) -> bool:
        """Forget an exchange; False where it was not there."""
        kept = self._kept.pop(name, None)
        if kept is None:
            return False
        self._bytes -= kept.tap.size
        self._special -= kept.special
        self._unserved -= kept.tap.kind != "served"
        kept.tap.drop()
        return True

    def __len__(self) -> int:
        return len(self._kept)

    def rows(self, wanted: Filter, limit: int, cursor: float | None = None) -> tuple[list[ExchangeRow], float | None]:
        """The newest that are meant, and the cursor of the next page when there may be more."""
        found = [row for kept in reversed(self._kept.values()) if wanted.holds(row := kept.row())]
        found = [row for row in found if cursor is None or row.at < cursor]
        found.sort(key=lambda row: row.at, reverse=True)
        return found[:limit], found[limit - 1].at if len(found) > limit else None

    def row(self, name: str) -> ExchangeRow:
        """The row of an exchange that is there."""
        return self._kept[name].row()

    def tap(self, name: str) -> RecordingTap | None:
        """The exchange of that name, as it was collected."""
        kept = self._kept.get(name)
        return kept.tap if kept is not None else None

    def before(self, row: ExchangeRow) -> tuple[str, bytes] | None:
        """The request before this one in its session, by the same agent."""
        if not row.session:
            return None
        wanted = Filter(session=row.session, agent=row.agent, until=row.at)
        for earlier in self.rows(wanted, len(self._kept))[0]:
            if earlier.id != row.id and earlier.dialect == row.dialect and earlier.agent == row.agent:
                return earlier.id, self._kept[earlier.id].tap.body
        return None


def row_of_tap(tap: RecordingTap, name: str, *, live: bool) -> ExchangeRow:
    """An exchange in a list, before it is a recording."""
    asked, record = tap.asked_as, tap.record
    # A body is searched for the session's name only where its headers do not say it; while it is in flight, not at all.
    whose = belonging(asked.headers, b"" if live else tap.body) if asked is not None else Belonging()
    fields = as_fields(record)
    known = {field: fields[field] for field in ExchangeRow.__struct_fields__ if field in fields}
    row = ExchangeRow(
        id=name,
        at=asked.wall if asked is not None else 0.0,
        program=whose.program,
        session=whose.session,
        agent=whose.agent,
        parent=whose.parent,
        response=asked.kept.id if asked is not None and asked.kept is not None else "",
        size=tap.size,
        kind=tap.kind,
        **known,
    )
    if live:
        return msgspec.structs.replace(row, state="live", verdict="live", status=tap.status, outcome="")
    return msgspec.structs.replace(row, verdict=verdict_of(fields))
