"""What the examples talk to when you give them nothing: the built-in demo model, started for as long as an example runs.

The demo model behaves like an open model that is served badly: asked with tools, it writes its call as raw Kimi tokens into its
reasoning. For a real upstream set `ATHENA_BASE_URL`, and as needed `ATHENA_API_KEY`, `ATHENA_MODEL`, `ATHENA_DIALECT`: the
transport and the gateway read these themselves (every key of `athena.yml` has such a variable).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def upstream() -> Iterator[str]:
    """The base URL of your upstream, else of the demo model (`athena demo`)."""
    if yours := os.environ.get("ATHENA_BASE_URL"):
        yield yours
        return
    with _started("demo") as url:
        yield url


@contextmanager
def gateway(*options: str) -> Iterator[str]:
    """The root URL of a gateway (`athena serve`) on your upstream, else on the demo model."""
    with _started("serve", "--log-level", "error", *options) as url:
        yield url


@contextmanager
def _started(command: str, *options: str) -> Iterator[str]:
    """A command of athena on a free port, until the example is done with it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "athena", command, "--port", "0", *options], stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            yield next(found.group() for line in process.stdout if (found := re.search(r"http://\S+", line)))
        finally:
            process.terminate()
