"""The terminal that a gateway was started on. SIGHUP means two things: a person wants a reload, or the terminal was closed."""

from __future__ import annotations

import os

_STANDARD = (0, 1, 2)


class StartTerminal:
    """The terminal of this process, if it has one."""

    def __init__(self) -> None:
        self._descriptors = tuple(number for number in _STANDARD if os.isatty(number))

    def is_closed(self) -> bool:
        """Was there a terminal, and is there none any more? A descriptor of a closed one is none."""
        return bool(self._descriptors) and not any(map(os.isatty, self._descriptors))
