"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from support.examples import PROFILE

if TYPE_CHECKING:
    from support.loopback import Loopback

settings.load_profile(PROFILE)
# Each client of an SDK reads the file of public authorities, which takes longer than all else it does. No test needs one.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support" / "no_authority.pem")
gc.disable()  # until everything is imported; see below


def pytest_collection_finish() -> None:
    """The SDKs' classes and 15,000 tests stay to the end: the collector, a tenth of all work, need not look at them again."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


def pytest_sessionfinish() -> None:
    if os.environ.get("REPLAY_ALL"):
        from support.replays import check_collected

        check_collected()


@pytest.fixture(scope="session")
def loopback() -> Iterator[Loopback]:
    """One exchange server for the whole session."""
    from support.loopback import Loopback

    server = Loopback()
    yield server
    server.close()
