"""A real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REBOUND = "attacker.example"
"""A name that the browser is told to find at 127.0.0.1."""
FLAGS = (
    "--no-sandbox",  # tests run as root in containers; the pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: while playwright runs, its event loop counts as running in this thread, and tests of other
    modules could start none of their own."""
    executable = shutil.which("chromium")
    if executable is None:
        reason = "chromium is not installed (`apt-get install chromium`; ./dev test does that where it may)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=list(FLAGS), chromium_sandbox=False)
        yield running
        running.close()
