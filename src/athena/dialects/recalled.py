"""What a turn or the tools became for a target when they were written before: the same again, with the same losses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from athena.dialects.base import EncodeTarget
from athena.dialects.losses import Losses
from athena.model.request import Loss, Request, Tool, Turn, has_kind
from athena.wire.fragments import Written
from athena.wire.recall import Recall, same_objects


class TurnRun:
    """What the turns of a request become for a target, all values in a row. Turns that stood at the same place in the last
    request become what they were there."""

    __slots__ = ("_before", "_profile", "_report", "ends", "losses", "state", "states", "turns", "values")

    def __init__(self, turns: tuple[Turn, ...], before: TurnRun | None, target: EncodeTarget, report: Losses) -> None:
        self.turns: tuple[Turn, ...] = turns
        count = same_objects(before.turns, turns) if before is not None else 0
        self.ends: list[int] = []
        """Behind how many of the values each turn ends."""
        self.values: list[Any] = []
        self.states: list[bool] = []
        """What the writer knew after each turn."""
        self.losses: dict[int, list[Loss]] = {}
        """What was lost of turns, by their places."""
        self.state = False
        self._before = before
        self._report = report
        # A run's key names it by its identity: it lives as long as the run.
        self._profile = target.profile
        if before is not None and count:
            self.ends, self.states = before.ends[:count], before.states[:count]
            self.values, self.state = before.values[: self.ends[-1]], self.states[-1]
            for position, losses in before.losses.items():
                if position < count:
                    self.losses[position] = losses
                    report.found.extend(losses)

    def missing(self) -> Iterator[tuple[int, Turn]]:
        """The turns that have to be written, with their places. Each is handed to `add` before the next one is asked for."""
        before, first = self._before, len(self.ends)
        known = len(before.turns) if before is not None else 0
        for position, turn in enumerate(self.turns[first:], first):
            if before is not None and position < known and before.turns[position] is turn:
                state = before.states[position - 1] if position else False
                if state == self.state:
                    start = before.ends[position - 1] if position else 0
                    losses = before.losses.get(position, [])
                    self._report.found.extend(losses)
                    self.add(before.values[start : before.ends[position]], before.states[position], losses)
                    continue
            yield position, turn

    def add(self, values: list[Any], state: bool, losses: list[Loss]) -> None:
        """The next turn became these values, its losses were reported, and the writer knows this after it."""
        if losses:
            self.losses[len(self.ends)] = losses
        self.values += values
        self.ends.append(len(self.values))
        self.states.append(state)
        self.state = state

    def end(self) -> None:
        """All turns are there: what was before is not needed any more."""
        self._before = None


class Rewritten:
    """Writes for one target, and remembers it. What is written depends on the turn, on the target's profile, on whether it is
    strict, on whether the client speaks the dialect, and on what `context` names; and on nothing else.
    """

    __slots__ = ("_key", "_profile", "_recall", "_report", "_target")

    def __init__(self, recall: Recall | None, target: EncodeTarget, report: Losses, *context: Hashable) -> None:
        self._recall = recall
        self._profile = target.profile
        self._target = target
        self._report = report
        self._key = (id(target.profile), target.strict, *context)

    def turn(
        self,
        turn: Turn,
        path: str,
        write: Callable[[], list[Any]],
        *context: Hashable,
        unless: Callable[[list[Any]], object] | None = None,
    ) -> list[Any]:
        """The values that `write` makes of a turn; nobody may change them, `unless` says that somebody will. Every loss that it
        reports lies below `path`."""
        recall = self._recall
        fragment = recall.of(turn) if recall is not None else None
        if recall is None or fragment is None:
            return write()
        key = (*self._key, *context)
        found = self._report.found
        written = fragment.forms.get(key)
        if written is not None:
            for behind, loss in written.losses:
                found.append(Loss(path + behind, loss.reason, loss.action, loss.minor))
            recall.put_out(fragment, written)
            return list(written.values)
        before = len(found)
        values = write()
        losses = found[before:]
        if all(loss.path.startswith(path) for loss in losses) and not (unless is not None and unless(values)):
            ends = tuple((loss.path[len(path) :], loss) for loss in losses)
            recall.keep_written(fragment, key, Written(list(values), ends, self._profile))
        return values

    @property
    def has_runs(self) -> bool:
        """Is the conversation remembered as a whole? Then its turns are written in a run and not one by one."""
        return self._recall is not None and self._recall.runs is not None

    def run(self, turns: tuple[Turn, ...]) -> TurnRun:
        """What these turns become, as far as it is known. The caller adds what is missing, and hands it to `keep`."""
        assert self._recall is not None
        assert self._recall.runs is not None
        return TurnRun(turns, self._recall.runs.get(self._key), self._target, self._report)

    def keep(self, run: TurnRun) -> None:
        """Remember a run for the next request."""
        assert self._recall is not None
        assert self._recall.runs is not None
        run.end()
        before: TurnRun | None = self._recall.runs.get(self._key)
        more = len(run.ends) - (len(before.ends) if before is not None else 0)
        self._recall.keep_run(self._key, run, run.values[0] if run.values else None, more)

    def tools(
        self,
        request: Request,
        tools: Sequence[Tool],
        write: Callable[[], list[Any]],
        *,
        unless: Callable[[list[Any]], object] | None = None,
    ) -> list[Any]:
        """The values that `write` makes of these tools of a request; nobody may change them, `unless` says that somebody will.
        What else `write` does is that it reports losses and lets schemas grow. Only for tools that run at a provider it may
        look at the rest of the request."""
        recall = self._recall
        fragment = recall.of((request.raw or {}).get("tools")) if recall is not None else None
        if recall is None or fragment is None or has_kind(tools, "hosted"):
            return write()
        report = self._report
        left = report.growth.left
        key = (*self._key, "tools", left, *map(id, tools))
        written = fragment.forms.get(key)
        if written is not None:
            growth, _, _ = written.kept
            report.found.extend(written.losses)
            report.growth.left = growth
            recall.put_out(fragment, written)
            values: list[Any] = written.values[0]
            return values
        before = len(report.found)
        values = write()
        if unless is not None and unless(values):
            return values
        kept = (report.growth.left, tuple(tools), self._profile)
        recall.keep_written(fragment, key, Written([values], tuple(report.found[before:]), kept))
        return values
