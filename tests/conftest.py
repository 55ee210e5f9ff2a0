"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from support.examples import PROFILE

if TYPE_CHECKING:
    from support.loopback import Loopback

settings.load_profile(PROFILE)


@pytest.fixture(scope="session")
def loopback() -> Iterator[Loopback]:
    """One exchange server for the whole session."""
    from support.loopback import Loopback

    server = Loopback()
    yield server
    server.close()
