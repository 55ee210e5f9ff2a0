"""Fixtures for tests of the ways in: a scripted upstream, and a home with no configuration but what a test gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.faulty_upstream import FaultyUpstream


@pytest.fixture(scope="session")
def upstream() -> Iterator[FaultyUpstream]:
    """One for all tests."""
    with FaultyUpstream() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither a developer's athena.yml nor the machine's kept keys."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("HOME", str(home))
        for name in ("ATHENA_CONFIG", "OPENROUTER_API_KEY"):
            patch.delenv(name, raising=False)
        yield
