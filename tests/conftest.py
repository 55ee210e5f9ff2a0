"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from support.loopback import Loopback

settings.register_profile("quick", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("ATHENA_HYPOTHESIS", "quick"))


@pytest.fixture(scope="session")
def loopback() -> Iterator[Loopback]:
    """One exchange server for the whole session."""
    from support.loopback import Loopback

    server = Loopback()
    yield server
    server.close()
