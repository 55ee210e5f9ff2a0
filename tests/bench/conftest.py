"""The benchmarks are a package beside `tests`, not part of what is installed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
