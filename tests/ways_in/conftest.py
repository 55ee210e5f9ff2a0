"""Both ways in: the transport inside the SDKs' own process, and a running `athena serve`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from athena.transport import Transport
from support.gateway_process import GatewayProcess
from support.sdks import Clients, clients_at
from support.transport_clients import sdk_clients
from support.way_fixtures import own_home, upstream

__all__ = ["own_home", "upstream", "way"]

Way = Callable[[dict[str, Any]], AbstractContextManager[Clients]]
"""Clients whose requests go that way, under that configuration."""


@contextmanager
def _over_the_transport(settings: dict[str, Any]) -> Iterator[Clients]:
    with sdk_clients(Transport(**settings)) as clients:
        yield clients


@pytest.fixture(scope="session", params=["transport", "gateway"])
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Way:
    """How the clients reach the upstream."""

    @contextmanager
    def through_the_gateway(settings: dict[str, Any]) -> Iterator[Clients]:
        home: Path = tmp_path_factory.mktemp("gateway")
        gateway = GatewayProcess(settings, home, log_level="warning")
        try:
            yield clients_at(gateway.url)
        finally:
            gateway.stop()

    return _over_the_transport if request.param == "transport" else through_the_gateway
