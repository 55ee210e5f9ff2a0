"""The fault catalogue put to `Serving` without a socket: every client dialect, streamed and whole.

The same scripts and the same expectations as over sockets (tests/faults/test_catalogue.py). What the network does to an
answer is said as the upstream client says it: its framing and its decoder are pure and read the scripts' bytes here too.
"""

from __future__ import annotations

import pytest

from support.fault_config import DIALECTS, UPSTREAM_KEY, fault_config
from support.fault_expectations import CATALOGUE, Fault, upstreams_of, what_is_wrong
from support.fault_judge import judge
from support.serving_driver import FaultDriver
from support.serving_values import House

NEEDS_A_SOCKET = {
    "flaky-reset": "the upstream client sends a request once more over a new connection, before Serving hears of it",
    "stale-keepalive": "the pool of the upstream client decides whether a connection is used again",
}
"""Faults whose outcome is decided below `Serving`, each with who decides it."""

_CASES = [pytest.param(fault, name, id=f"{fault.row}-{name}") for fault in CATALOGUE for name in fault.names]


@pytest.fixture(scope="module")
def driver() -> FaultDriver:
    """One for all, as a gateway is: what it learns and holds of one request must not reach another."""
    return FaultDriver(House(fault_config("http://127.0.0.1:1")))


def test_only_faults_of_the_catalogue_are_left_to_sockets() -> None:
    assert set(NEEDS_A_SOCKET) <= {name for fault in CATALOGUE for name in fault.names}


@pytest.mark.parametrize(("fault", "name"), [case for case in _CASES if case.values[1] not in NEEDS_A_SOCKET])
def test_fault(fault: Fault, name: str, driver: FaultDriver) -> None:
    problems = []
    for upstream in upstreams_of(fault):
        for client in DIALECTS.values():
            for stream in (True, False):
                wrong = _wrong(fault, name, upstream, client, stream, driver)
                if wrong:
                    problems.append(f"{upstream} {client} {'stream' if stream else 'whole'}: {wrong}")
    assert not problems, "\n".join(problems)


def _wrong(fault: Fault, name: str, upstream: str, client: str, stream: bool, driver: FaultDriver) -> str:
    model = f"{upstream}/{name}.{client}-{stream}" + (f"~{fault.short}" if fault.short else "")
    answer = driver.ask(client, model, stream=stream)
    assert UPSTREAM_KEY.encode() not in answer.raw, "the upstream's key leaked"
    assert b"SECRET" not in answer.raw, "something of the upstream's page or headers leaked"
    assert driver.house.memory.used == 0, "memory of the request was not given back"
    return what_is_wrong(fault, client, stream, judge(client, answer, stream=stream))
