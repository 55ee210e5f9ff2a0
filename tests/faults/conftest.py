"""One faulty upstream and one gateway for all fault tests that need no special configuration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fault_config import UPSTREAM_KEY, fault_config
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayProcess


@pytest.fixture(scope="session")
def upstream() -> Iterator[FaultyUpstream]:
    with FaultyUpstream() as server:
        yield server


@pytest.fixture(scope="session")
def gateway(upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """As users run it."""
    running = GatewayProcess(fault_config(upstream.url), tmp_path_factory.mktemp("gateway"))
    yield running
    log = running.log()
    running.stop()
    # Whatever the upstream and the clients did, the gateway itself never fell over it, and no line gives the key away.
    assert '"outcome"' in log, "nothing was logged at all"
    for sign in ("failed inside", "Traceback", "ASGI callable", "never retrieved", UPSTREAM_KEY):
        assert sign not in log, log[max(0, log.index(sign) - 1000) :][:4000]
