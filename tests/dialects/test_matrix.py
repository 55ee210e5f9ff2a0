"""The promise, checked from outside: every upstream answer of every dialect, read by every official SDK.

Each case of each upstream dialect goes through the exchange to a client of each dialect over a real socket. The SDK must hold
exactly what the case says, or raise an error of its own. Nothing in between.
"""

from __future__ import annotations

import msgspec
import pytest

from athena.dialects import dialect_names
from athena.model.profile import Profile
from support.case_judge import check_case
from support.cases import AnswerCase, Mode, answer_modes, case_bytes
from support.loopback import Loopback, Script
from support.sdks import ask

PAIRS = [
    pytest.param(upstream, case, mode, client, id=f"{upstream}-to-{client}-{case.name}-{mode}")
    for upstream in dialect_names()
    for case, mode in answer_modes(upstream)
    for client in dialect_names()
]


@pytest.mark.parametrize(("upstream", "case", "mode", "client"), PAIRS)
def test_sdk_holds_the_answer_or_raises(upstream: str, case: AnswerCase, mode: Mode, client: str, loopback: Loopback) -> None:
    model = f"{upstream}-{case.name}-{mode}-{client}"
    profile = msgspec.convert({"dialect": upstream, **case.profile}, Profile)
    script = Script(dialect=upstream, body=case_bytes(case, mode), stream=mode == "stream", profile=profile, exchanges=[])
    loopback.scripts[model] = script
    check_case(case, mode, client, lambda: ask(client, loopback.url, model, stream=mode == "stream"))
