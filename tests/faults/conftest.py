"""One faulty upstream and one gateway for all fault tests that need no special configuration."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from support.faulty_upstream import FaultyUpstream
from support.gateway_process import DIALECTS, UPSTREAM_KEY, GatewayProcess, fault_config
from support.sdks import ask


@pytest.fixture(scope="session")
def upstream() -> Iterator[FaultyUpstream]:
    with FaultyUpstream() as server:
        yield server


@pytest.fixture(scope="session")
def gateway(upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """In a process of its own, so that the clients' work does not eat into its short time limits."""
    running = GatewayProcess(fault_config(upstream.url), tmp_path_factory.mktemp("gateway"))
    deadline = time.monotonic() + 60
    for dialect in DIALECTS.values():
        for stream in (True, False):
            # The first requests pay for imports and tables, on both sides: the limits of these tests are too short for that.
            while True:
                try:
                    ask(dialect, running.url, "chat/control", stream=stream)
                    break
                except Exception:
                    if time.monotonic() > deadline:
                        raise
    yield running
    log = running.log()
    running.stop()
    # Whatever the upstream and the clients did, the gateway itself never fell over it, and no line gives the key away.
    assert '"outcome"' in log, "nothing was logged at all"
    for sign in ("failed inside", "Traceback", "ASGI callable", "never retrieved", UPSTREAM_KEY):
        assert sign not in log, log[max(0, log.index(sign) - 1000) :][:4000]
