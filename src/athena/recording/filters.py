"""Which exchanges of a list are meant."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple, Self, TypeAlias

import msgspec

from athena.recording.view import ExchangeRow, HealthHistory, HealthPoint, Session, SessionAgent

MOST_ROWS = 500
_SLICES = 30
_LARGEST = (1 << 63) - 1
"""The largest number that a database compares."""


class Position(NamedTuple):
    """Where an exchange stands in a list that begins with the newest. Times alone would not do: two may be equal."""

    at: float
    number: int
    """Grows from one exchange to the next."""

    @property
    def cursor(self) -> str:
        """What a client names to get those that follow; it is not meant to be read."""
        return f"{self.at!r}_{self.number}"

    @classmethod
    def of(cls, cursor: str) -> Self:
        """The position that a cursor names. Raises ValueError for what is none."""
        at, _, number = cursor.partition("_")
        found = cls(float(at), int(number))
        if not math.isfinite(found.at) or abs(found.number) > _LARGEST:
            raise ValueError(f"no cursor: {cursor}")
        return found


Placed: TypeAlias = tuple[Position, ExchangeRow]
"""An exchange in a list, and where it stands there."""


def page_of(placed: list[Placed], limit: int) -> tuple[list[ExchangeRow], Position | None]:
    """The first of these exchanges, and the position after which the others follow, where there are any."""
    return [row for _, row in placed[:limit]], placed[limit - 1][0] if len(placed) > limit else None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """All that is set must hold."""

    q: str = ""
    """Words, each of which stands somewhere in the row."""
    id: str = ""
    """The beginning of the id."""
    name: str = ""
    """The whole id."""
    session: str = ""
    """The beginning of its name."""
    agent: str = ""
    response: str = ""
    program: str = ""
    """A part of its name; patterns with `*`."""
    model: str = ""
    """A part of the client's or the upstream's name of it; patterns with `*`."""
    upstream: str = ""
    """A part of its name; patterns with `*`."""
    outcome: str = ""
    """How it ended, in any of the words that a list shows of it: the outcome, the verdict, the kind, the error, the status."""
    kind: str = ""
    verdict: str = ""
    repaired: bool = False
    since: float = 0.0
    until: float = 0.0

    def holds(self, row: ExchangeRow) -> bool:
        """Does the filter let this exchange through?"""
        return (
            (not self.id or row.id.startswith(self.id))
            and (not self.name or row.id == self.name)
            and (not self.session or row.session.startswith(self.session))
            and (not self.agent or row.agent == self.agent)
            and (not self.response or row.response == self.response)
            and (not self.program or _is_like(self.program, row.program))
            and (not self.model or _is_like(self.model, row.model) or _is_like(self.model, row.upstream_model))
            and (not self.upstream or _is_like(self.upstream, row.upstream))
            and (not self.outcome or self.outcome in _results(row))
            and (not self.kind or row.kind == self.kind)
            and (not self.verdict or row.verdict == self.verdict)
            and (not self.repaired or bool(row.repairs or row.text_calls or row.echoes))
            and (not self.since or row.at >= self.since)
            and (not self.until or row.at <= self.until)
            and (not self.q or _has_words(self.q, row))
        )


def _is_like(pattern: str, name: str) -> bool:
    return fnmatchcase(name.lower(), pattern.lower() if "*" in pattern else f"*{pattern.lower()}*")


def _results(row: ExchangeRow) -> tuple[str, ...]:
    """The words that say how it ended."""
    kind = row.kind if row.kind != "served" else ""
    return row.outcome, row.verdict, kind, row.error, str(row.status)


def _has_words(words: str, row: ExchangeRow) -> bool:
    text = " ".join(
        (row.id, row.model, row.upstream, row.upstream_model, row.session, row.program, row.error, row.outcome, row.format)
    ).lower()
    return all(word in text for word in words.lower().split())


def sessions_of(rows: Iterable[ExchangeRow]) -> list[Session]:
    """The sessions that these exchanges belong to, the newest first."""
    found: dict[str, list[ExchangeRow]] = {}
    for row in rows:
        if row.session:
            found.setdefault(row.session, []).append(row)
    sessions = [_session(name, members) for name, members in found.items()]
    return sorted(sessions, key=lambda session: session.last, reverse=True)


def _session(name: str, rows: list[ExchangeRow]) -> Session:
    agents: dict[str, list[ExchangeRow]] = {}
    for row in rows:
        agents.setdefault(row.agent, []).append(row)
    return Session(
        id=name,
        program=next((row.program for row in rows if row.program), ""),
        first=min(row.at for row in rows),
        last=max(row.at for row in rows),
        exchanges=len(rows),
        errors=sum(row.verdict == "error" for row in rows),
        repaired=sum(row.verdict == "repaired" for row in rows),
        agents=[
            SessionAgent(
                id=agent,
                parent=next((row.parent for row in members if row.parent), ""),
                exchanges=len(members),
                last=max(row.at for row in members),
            )
            for agent, members in agents.items()
        ],
    )


def health_of(rows: Iterable[ExchangeRow], up: dict[str, bool], now: float, since: float) -> list[HealthHistory]:
    """What upstreams and models did since then, in slices of time: one for each, also where nothing was asked."""
    width = max((now - since) / _SLICES, 1.0)
    last = max(int((now - since) / width) - 1, 0)
    found: dict[tuple[str, str], dict[int, list[ExchangeRow]]] = {}
    for row in rows:
        if row.state == "done" and row.at >= since and row.upstream:
            slices = found.setdefault((row.upstream, row.upstream_model), {})
            slices.setdefault(min(int((row.at - since) / width), last), []).append(row)
    starts = [since + number * width for number in range(last + 1)]
    return [_health(name, slices, up=up.get(name[0], True), starts=starts) for name, slices in sorted(found.items())]


def _health(name: tuple[str, str], slices: dict[int, list[ExchangeRow]], *, up: bool, starts: list[float]) -> HealthHistory:
    rows = [row for members in slices.values() for row in members]
    calls = sum(row.calls for row in rows)
    return HealthHistory(
        upstream=name[0],
        model=name[1],
        up=up,
        requests=len(rows),
        errors=sum(row.verdict == "error" for row in rows),
        calls=calls,
        good_calls=max(calls - sum(row.bad_calls for row in rows), 0),
        leaks=sum(bool(row.text_calls) for row in rows),
        points=[_point(at, slices.get(number, [])) for number, at in enumerate(starts)],
    )


def _point(at: float, rows: list[ExchangeRow]) -> HealthPoint:
    waits = [row.first_byte_ms for row in rows if row.first_byte_ms]
    return HealthPoint(
        at=at,
        requests=len(rows),
        errors=sum(row.verdict == "error" for row in rows),
        calls=sum(row.calls for row in rows),
        text_calls=sum(row.text_calls for row in rows),
        bad_calls=sum(row.bad_calls for row in rows),
        repairs=sum(row.repairs for row in rows),
        first_byte_ms=sum(waits) / len(waits) if waits else 0.0,
    )
