"""The last exchanges in memory, as they were collected: nothing is done with them before somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from athena.recording.filters import Filter
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

    def add(self, tap: RecordingTap) -> tuple[str, Sequence[str]]:
        """Keep it. Returns its name, and the names of those that made room for it."""
        record, kept = tap.record, self._kept
        name = record.request_id
        if name in kept or name in self._spared:
            name = self._another(name)
        kept[name] = tap
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

    def rows(self, wanted: Filter, limit: int, cursor: float | None = None) -> tuple[list[ExchangeRow], float | None]:
        """The newest that are meant, and the cursor of the next page when there may be more."""
        found = [row for name, _ in reversed(self.exchanges()) if wanted.holds(row := self.row(name))]
        found = [row for row in found if cursor is None or row.at < cursor]
        found.sort(key=lambda row: row.at, reverse=True)
        return found[:limit], found[limit - 1].at if len(found) > limit else None

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
        wanted = Filter(session=row.session, agent=row.agent, until=row.at)
        for earlier in self.rows(wanted, len(self))[0]:
            tap = self.get(earlier.id)
            if tap is not None and earlier.id != row.id and earlier.dialect == row.dialect and earlier.agent == row.agent:
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
    return msgspec.structs.replace(row, state="live", verdict="live", status=tap.status, outcome="")
