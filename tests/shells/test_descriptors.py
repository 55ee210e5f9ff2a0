"""How the file descriptors of a process are divided."""

from __future__ import annotations

import pytest

from athena.shells.config import Config, LimitSettings
from athena.shells.server.descriptors import divide


@pytest.mark.parametrize("descriptors", [32, 64, 256, 1024, 20_000, 1 << 20])
def test_clients_upstreams_and_files_never_need_more_than_there_is(descriptors: int) -> None:
    in_use = 14
    division = divide(Config(), descriptors, in_use)
    places = division.places
    assert places.connections >= 1
    assert places.refused >= 8
    for_files = 8 if descriptors > 32 else 0
    most = in_use + places.connections + division.upstreams + places.refused + for_files
    assert most <= max(descriptors, 32)
    assert division.upstreams >= places.connections
    if descriptors >= 256:
        assert places.connections > descriptors // 4


def test_what_is_configured_holds_as_far_as_there_are_descriptors() -> None:
    config = Config(limits=LimitSettings(connections=50, connections_per_address=5))
    division = divide(config, 1024, 14)
    assert (division.places.connections, division.places.per_address) == (50, 5)
    assert division.shares_loopback
    assert not division.short
    division = divide(Config(limits=LimitSettings(connections=5000)), 1024, 14)
    assert division.places.connections < 512
    assert division.places.per_address == division.places.connections // 2
    assert not division.shares_loopback
    assert division.short


def test_without_a_limit_there_is_plenty() -> None:
    assert divide(Config(), 0, 14).places.connections > 500_000
