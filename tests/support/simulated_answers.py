"""Answers of an upstream with planted faults, without a wire: what each case comes to is judged once, then drawn.

Thousands of runs of a plan are possible in this way. That the wire gives the same marks is another test's subject.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

from athena.dialects import get_dialect
from athena.dialects.base import EncodeTarget
from athena.errors import UpstreamClosed
from athena.exchange import UpstreamCall
from athena.quality import Finding
from athena.shells.config import Config, ModelRule, Router, Upstream
from athena.shells.config.ready import ready_targets
from athena.shells.demo_models import DemoModel
from athena.shells.verify.asking import raw_side
from athena.shells.verify.watching import BothSides, WatchedAttempt
from athena.verify.cases import AnswerMode, VerifyCase, shipped_cases
from athena.verify.judging import judge
from athena.verify.metrics import can_show
from athena.verify.planning import Planner
from athena.verify.runs import SideResult, VerifyTrial

CASES = {case.id: case for case in shipped_cases()}


@cache
def result(case_id: str, mode: AnswerMode, planted: str, dialect: str = "openai_chat") -> SideResult:
    """What the raw answer of a demo model with that fault, or with none, comes to."""
    case = CASES[case_id]
    config = Config(
        upstreams={"demo": Upstream(base_url="http://127.0.0.1:1", dialect=dialect)},
        models=(ModelRule(match="*", use="demo/m"),),
    )
    target = ready_targets(Router(config), "m")[0]
    request = get_dialect("openai_chat").decode_request({"model": "m", **case.body, "stream": mode == "stream"})
    encoded = get_dialect(dialect).encode_request(request, EncodeTarget(target.model, target.profile))
    model = DemoModel("m", {planted: 1.0} if planted else {})
    reply = model.answer(dialect, encoded.body, model="m" if dialect == "gemini" else "", stream=mode == "stream")
    attempt = WatchedAttempt(
        target, UpstreamCall(encoded.path, {}, b"{}"), status=reply.status, headers={"content-type": reply.kind}
    )
    attempt.pieces = [(0.0, piece) for piece in reply.pieces]
    attempt.is_over = True
    attempt.failure = UpstreamClosed("the connection broke") if reply.is_cut else None
    side = raw_side(BothSides(request), attempt, mode)
    return SideResult(
        classes=tuple(found.label for found in side.found),
        marks=judge(case, mode, side, dialect=dialect),
        calls="same" if side.calls else "",
    )


def drawn(
    case: VerifyCase, mode: AnswerMode, rates: Mapping[str, float], rng: random.Random, dialect: str = "openai_chat"
) -> VerifyTrial:
    """One answer: at most one of the planted classes, each at its rate among those that the case can show."""
    number, before, planted = rng.random(), 0.0, ""
    for label, rate in rates.items():
        if can_show(case, Finding(label)):
            before += rate
            if number < before:
                planted = label
                break
    side = result(case.id, mode, planted, dialect)
    return VerifyTrial(case=case.id, mode=mode, raw=side, through=side, input_tokens=10, output_tokens=5)


def run_plan(planner: Planner, rates: Mapping[str, float], seed: int, dialect: str = "openai_chat") -> None:
    """A whole run of a plan."""
    rng = random.Random(seed)
    while (question := planner.next()) is not None:
        planner.done(drawn(*question, rates, rng, dialect))
