"""Rows 3 to 46 of the fault catalogue: every client dialect, streamed and whole, checked with its SDK and by its raw bytes.

0 silent wrong answers: what counts as an answer must equal the expected one in both judges' eyes. 0 hangs: everything is
bounded. The expectations are data: tests/cases/faults.toml.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.fault_config import UPSTREAM_KEY
from support.fault_expectations import CATALOGUE, Fault, Refused, Result, clients_of, upstreams_of, what_is_wrong
from support.fault_judge import ask_raw, judge
from support.fault_scripts import FAULTS
from support.faulty_upstream import FaultyUpstream
from support.gateway_process import GatewayProcess
from support.patience import PATIENCE
from support.sdks import ask, is_sdk_error

_TESTED_ELSEWHERE = {
    "flaky-midstream",
    "flaky-500",
    "flaky-500-twice",
    "always-500",
    "flaky-429",
    "flood",
    "echo",
    "echo-slowly",
}


_CASES = [
    pytest.param(fault, name, upstream, id=f"{fault.row}-{name}-{upstream}")
    for fault in CATALOGUE
    for name in fault.names
    for upstream in upstreams_of(fault)
]


def test_every_fault_has_a_row() -> None:
    known = {name for fault in CATALOGUE for name in fault.names}
    assert known | _TESTED_ELSEWHERE == set(FAULTS)


@pytest.mark.parametrize(("fault", "name", "upstream_name"), _CASES)
def test_fault(fault: Fault, name: str, upstream_name: str, gateway: GatewayProcess, upstream: FaultyUpstream) -> None:
    clients = clients_of(upstream_name, name)
    with ThreadPoolExecutor(8) as pool:
        waiting = {
            (client, stream, judged): pool.submit(_ask, judged, gateway, client, f"{upstream_name}/{name}", stream, fault.short)
            for client in clients
            for stream in (True, False)
            for judged in ("raw", "sdk")
        }
        seen = {key: future.result(2 * PATIENCE) for key, future in waiting.items()}
    problems = []
    for (client, stream, judged), result in seen.items():
        wrong = what_is_wrong(fault, client, stream, result)
        if wrong:
            problems.append(f"{client} {'stream' if stream else 'whole'} {judged}: {wrong}")
    assert not problems, "\n".join(problems)


def _ask(judged: str, gateway: GatewayProcess, client: str, model: str, stream: bool, short: str) -> Result:
    model = f"{model}.{client}-{stream}-{judged}" + (f"~{short}" if short else "")
    try:
        if judged == "raw":
            answer = ask_raw(gateway.port, client, model, stream=stream)
            assert UPSTREAM_KEY.encode() not in answer.raw, "the upstream's key leaked"
            assert b"SECRET" not in answer.raw, "something of the upstream's page or headers leaked"
            return judge(client, answer, stream=stream)
        return ask(client, gateway.url, model, stream=stream)
    except Exception as error:
        return Refused(error) if judged == "sdk" and is_sdk_error(client, error) else error
