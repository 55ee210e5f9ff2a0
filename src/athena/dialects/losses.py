"""What a request loses on its way to an upstream: one vocabulary for all dialects.

Each verb says what becomes of something the client sent. Only `drop` asks whether the target is strict: a strict target refuses
a request rather than change what it means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from athena.errors import UnsupportedFeature
from athena.model.request import Loss
from athena.schemas import Growth


class Losses:
    """The losses of one encoded request."""

    __slots__ = ("found", "growth", "strict")

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.found: list[Loss] = []
        self.growth = Growth()
        """How much larger the request's schemas became, over all of them."""

    def drop(self, path: str, reason: str) -> None:
        """Something the client meant is left out; a strict target refuses the request instead."""
        if self.strict:
            self.refuse(path, reason)
        self.found.append(Loss(path, reason))

    def omit(self, path: str, reason: str) -> None:
        """A setting is left out that no target insists on, strict or not."""
        self.found.append(Loss(path, reason))

    def hint(self, path: str, reason: str) -> None:
        """Something is left out without which the answer means the same: a cache mark, a label."""
        self.found.append(Loss(path, reason, minor=True))

    def repair(self, path: str, reason: str) -> None:
        """Note that something in the request was corrected."""
        self.found.append(Loss(path, reason, "repaired"))

    def emulate(self, path: str, reason: str) -> None:
        """Something is said in another way."""
        self.found.append(Loss(path, reason, "emulated"))

    def extras(self, path: str, extras: Iterable[str] | None, reason: str = "unknown field of another dialect") -> None:
        """Fields that only the client's dialect knows are left out."""
        for key in extras or ():
            self.omit(f"{path}.{key}" if path else key, reason)

    def refuse(self, path: str, reason: str) -> NoReturn:
        """Leaving it out would change what the request means."""
        raise UnsupportedFeature(f"{path}: {reason}", path=path)
