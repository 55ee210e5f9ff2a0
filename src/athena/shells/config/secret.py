"""A text that must not be shown: no repr, log line, encoder, pickle or traceback of a struct that holds one gives it away."""

from __future__ import annotations

import hmac
from typing import NoReturn

MASK = "***"


class Secret:
    """A key or password. Only `reveal()` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """The text itself; call it where it is sent, nowhere else."""
        value: str = self._value  # type: ignore[attr-defined]  # set through object, so that no other code can
        return value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret does not change")

    def __bool__(self) -> bool:
        return bool(self.reveal())

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.reveal().encode(), other.reveal().encode())

    def __hash__(self) -> int:
        return hash((Secret, self.reveal()))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not to be stored or sent")
