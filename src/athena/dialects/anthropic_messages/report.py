"""What a request lost on its way, and the two fates of a loss: reported, or refused by a strict target.

Wire facts: docs/reference/wire-facts.md#losses.
"""

from __future__ import annotations

from typing import NoReturn

from athena.errors import UnsupportedFeature
from athena.model.request import Loss
from athena.schemas import Growth


class Report:
    """Collects the losses of one encoded request."""

    __slots__ = ("growth", "losses", "strict")

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.losses: list[Loss] = []
        self.growth = Growth()

    def drop(self, path: str, reason: str) -> None:
        """Something the client meant is left out; a strict target refuses instead."""
        if self.strict:
            self.refuse(path, reason)
        self.losses.append(Loss(path, reason))

    def hint(self, path: str, reason: str) -> None:
        """Something that only matters at home (a cache hint, a label) is left out."""
        self.losses.append(Loss(path, reason, minor=True))

    def repair(self, path: str, reason: str) -> None:
        """Something was put right."""
        self.losses.append(Loss(path, reason, "repaired"))

    def emulate(self, path: str, reason: str) -> None:
        """Something is said in another way."""
        self.losses.append(Loss(path, reason, "emulated"))

    def refuse(self, path: str, reason: str) -> NoReturn:
        """Leaving it out would change what the request means."""
        raise UnsupportedFeature(f"{path}: {reason}", path=path)
