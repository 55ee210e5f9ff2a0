"""The cases: how the load generator asks.

`n` plain requests, `s` streams as fast as they are read, `p` streams paced like a model's; the number is how many at once.
A stream has 200 text chunks and a small tool call. In `s` cases chunks coalesce while the system is busy; in `p` cases each
chunk costs a wake-up, a read and a write.
"""

from __future__ import annotations

from dataclasses import dataclass

CHUNKS = 200


@dataclass(frozen=True)
class Case:
    """One kind of load."""

    name: str
    streamed: bool
    concurrent: int
    requests: int
    requests_when_slow: int
    """For systems that would need minutes for the full number."""
    pace_us: int = 0

    @property
    def words(self) -> str:
        """What it is, for a plot."""
        if not self.streamed:
            return f"{self.name}: " + (
                "one plain request after another" if self.concurrent == 1 else f"{self.concurrent} plain requests at once"
            )
        return f"{self.name}: {self.concurrent} streams, " + (
            "paced like a model's" if self.pace_us else "as fast as they are read"
        )

    @property
    def model(self) -> str:
        """The model name that makes the upstream answer so."""
        return f"fake-p{self.pace_us}"

    def count(self, *, slow: bool, share: float) -> int:
        """How many requests to send; never fewer than run at once."""
        return max(self.concurrent, int((self.requests_when_slow if slow else self.requests) * share))


CASES = {
    case.name: case
    for case in (
        Case("n1", False, 1, 1000, 200),
        Case("n16", False, 16, 4000, 500),
        Case("s16", True, 16, 320, 48),
        Case("s128", True, 128, 512, 128),
        Case("p16", True, 16, 32, 32, pace_us=5000),
        Case("p128", True, 128, 128, 128, pace_us=20000),
    )
}
