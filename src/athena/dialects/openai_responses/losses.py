"""What a request loses on its way into this dialect: collected, or refused where the target is strict."""

from __future__ import annotations

from typing import Any

from athena.errors import UnsupportedFeature
from athena.model.request import Loss
from athena.schemas import Growth


class Losses:
    """The losses of one request."""

    __slots__ = ("found", "growth", "strict")

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.found: list[Loss] = []
        self.growth = Growth()

    def drop(self, path: str, reason: str) -> None:
        """Something that means something is left out."""
        if self.strict:
            raise UnsupportedFeature(f"{path}: {reason}", path=path)
        self.found.append(Loss(path, reason))

    def hint(self, path: str, reason: str) -> None:
        """Something that only makes sense at home is left out: no loss of meaning."""
        self.found.append(Loss(path, reason, minor=True))

    def emulated(self, path: str, reason: str) -> None:
        """Said in another way."""
        self.found.append(Loss(path, reason, "emulated"))

    def extras(self, path: str, extras: dict[str, Any] | None) -> None:
        """Unknown fields of another dialect."""
        for key in extras or ():
            self.found.append(Loss(f"{path}.{key}" if path else key, "unknown field of another dialect"))
