"""Where every script of the faulty upstream is found by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from support.upstream_talk import Talk

SHORT_IDLE = 0.3
"""The shortest idle limit of the tests, in seconds."""

Fault = Callable[[Talk], Awaitable[None]]
FAULTS: dict[str, Fault] = {}


def fault(*names: str) -> Callable[[Fault], Fault]:
    """Register a script under its names."""

    def register(script: Fault) -> Fault:
        for name in names:
            assert name not in FAULTS, name
            FAULTS[name] = script
        return script

    return register
