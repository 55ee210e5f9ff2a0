"""How we time: CPU time, interleaved rounds, the best of them, because other work on the machine only ever adds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping


def best_ns(
    functions: Mapping[str, Callable[[], object]], *, per: int, rounds: int = 9, batch_seconds: float = 0.03
) -> dict[str, float]:
    """CPU nanoseconds per unit of each function; `per` units are done by one call."""
    repeats: dict[str, int] = {}
    for name, function in functions.items():
        start = time.process_time()
        function()
        once = max(time.process_time() - start, 1e-7)
        repeats[name] = max(1, int(batch_seconds / once))
    best = dict.fromkeys(functions, float("inf"))
    gc.disable()
    try:
        for _ in range(rounds):
            for name, function in functions.items():
                count = repeats[name]
                start = time.process_time_ns()
                for _ in range(count):
                    function()
                best[name] = min(best[name], (time.process_time_ns() - start) / (count * per))
    finally:
        gc.enable()
    return best


def table(title: str, rows: dict[str, float], unit: str, base: str) -> None:
    """Figures beside their ratio to one of them."""
    print(f"{title:<58}{unit:>10}{'ratio':>8}")
    for name, value in rows.items():
        print(f"  {name:<56}{value:>10.0f}{value / rows[base]:>8.2f}")
