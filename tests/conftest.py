"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from support.loopback import Loopback

settings.register_profile("quick", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("ATHENA_HYPOTHESIS", "quick"))


@pytest.fixture(scope="session")
def loopback() -> Iterator[Loopback]:
    """One exchange server for the whole session."""
    server = Loopback()
    yield server
    server.close()
