"""How much of everything a run of the scale suite does."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gateway.systems import System, system_named


@dataclass(frozen=True)
class Effort:
    """The full measure, or a quick look."""

    repeats: int = 3
    idle_streams: int = 5_000
    soak_requests: int = 100_000
    suffix: str = ""
    """Of the athena rows measured, as in `-2w`."""

    def athena(self, speaks: str = "msg") -> System:
        """The row of the table that is measured."""
        return system_named(f"athena-{speaks}{self.suffix}")


QUICK = Effort(repeats=1, idle_streams=500, soak_requests=5_000)
