"""What a turn or the tools became for a target when they were written before: the same again, with the same losses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from athena.dialects.base import EncodeTarget
from athena.dialects.losses import Losses
from athena.model.request import Loss, Request, Tool, Turn
from athena.wire.fragments import Recall, Written


class Rewritten:
    """Writes for one target, and remembers it. What is written depends on the turn, on the target's profile, on whether it is
    strict, on whether the client speaks the dialect, and on what `context` names; and on nothing else.
    """

    __slots__ = ("_key", "_profile", "_recall", "_report")

    def __init__(self, recall: Recall | None, target: EncodeTarget, report: Losses, *context: Hashable) -> None:
        self._recall = recall
        self._profile = target.profile
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
        if recall is None or fragment is None or any(tool.kind == "hosted" for tool in tools):
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
