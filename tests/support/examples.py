"""How many examples property tests and fuzzers draw, and which.

The gate draws the same examples in every run, on every machine: they follow from the test's own source text, and nothing is
remembered from one run to the next. New ones are drawn by `./dev fuzz`, which remembers its finds under `.hypothesis` until
they are fixed; a find becomes an `@example` of its test or a case, so that the gate has it too.
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

GATE, DEEP = "gate", "deep"
PROFILE = os.environ.get("ATHENA_HYPOTHESIS", GATE)
IS_DEEP = PROFILE == DEEP
SEED = int(os.environ.get("ATHENA_SEED") or (random.SystemRandom().randrange(1 << 32) if IS_DEEP else 1))
"""For what is drawn without Hypothesis: always the same in the gate, another one in every deep run unless it is named."""
_COUNTS = {GATE: 50, DEEP: 2000}
_slow_is_allowed = [HealthCheck.too_slow]

settings.register_profile(
    GATE,
    max_examples=_COUNTS[GATE],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=_slow_is_allowed,
)
settings.register_profile(
    DEEP,
    max_examples=_COUNTS[DEEP],
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    print_blob=True,
    deadline=None,
    suppress_health_check=_slow_is_allowed,
)


def examples(count: int) -> settings:
    """So many examples in the gate where the usual number is too few or too many, and as many times more in a deep run."""
    return settings(max_examples=max(1, count * settings().max_examples // _COUNTS[GATE]))
