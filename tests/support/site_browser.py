"""A folder as a web site on loopback, and a browser that shows its scroll bars."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser.conftest import FLAGS

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Tests say what failed."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of the folder's pages."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's chromium; without it the test is skipped, and fails in CI."""
    executable = shutil.which("chromium")
    if executable is None:
        reason = "chromium is not installed (`apt-get install chromium`; ./dev test does that where it may)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=list(FLAGS), chromium_sandbox=False, ignore_default_args=["--hide-scrollbars"]
        )
        yield browser
        browser.close()
