"""The faulty upstream: the model's name selects a fault (docs/reference/faults.md). It speaks all four dialects.

A model is `<fault>` or `<fault>.<tag>`: the tag keeps the counts of one test apart from those of others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from support.fault_scripts import FAULTS
from support.scripted_upstream import ScriptedUpstream, Visit
from support.upstream_talk import Talk


class FaultyUpstream(ScriptedUpstream):
    """Answers every request with the fault that its model names."""

    def __init__(self) -> None:
        super().__init__()
        self.canary = 0
        """Requests for paths that no dialect has: somebody followed a redirect."""
        self.scripts: dict[str, Callable[[Talk], Awaitable[None]]] = {}
        """What a test adds to the faults, by the whole name of a model."""

    def of(self, model: str) -> list[Visit]:
        """The visits for one model, in order."""
        return list(self._by_model.get(model, ()))

    def waits(self, model: str) -> bool:
        """Has the last request for the model got all that comes by itself? Waited for."""
        return self.wait_for(lambda: bool(self.of(model)) and self.of(model)[-1].waits)

    async def answer(self, talk: Talk) -> None:
        await (self.scripts.get(talk.model) or FAULTS[talk.model.partition(".")[0]])(talk)

    async def answer_elsewhere(self, talk: Talk) -> None:
        self.canary += 1
        await super().answer_elsewhere(talk)
