"""How long tests wait for what must happen.

No test depends on how fast the machine is. What must happen is waited for with `PATIENCE`, which only ends a test that hangs;
limits of the product that are not a test's subject are longer than that (`FOR_EVER`), so that nothing but the subject can end
what is waited for; and where a limit is the subject, the test either needs nothing to happen before it, or moves the clock by
hand (`support.hand_clock`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 120.0
FOR_EVER = 100 * PATIENCE


def until(condition: Callable[[], bool]) -> bool:
    """Wait for a condition that becomes true; False: it did not."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
