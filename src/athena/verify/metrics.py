"""What is counted, and what each count is held against. A metric is a share of answers that pass; the table is all of them."""

from __future__ import annotations

import msgspec

from athena.quality import Finding
from athena.verify.cases import Battery, VerifyCase
from athena.verify.statistics import Bar

_RATE = Bar()
_ABLE = Bar(0.95, 0.6)
_CHOICE = Bar(0.9, 0.75)


class Metric(msgspec.Struct, frozen=True):
    """A property of answers that is counted, and the bar for it."""

    name: str
    battery: Battery
    meaning: str
    """What share it is."""
    bar: Bar = _RATE
    least: int = 30
    """Answers before its verdict may be final."""


_TABLE = (
    Metric("answered", "wire", "requests that got an answer and no error"),
    Metric("complete", "wire", "answers that reach their end and do not stop in a call"),
    Metric("ids", "wire", "answers with calls in which every call has an id of its own"),
    Metric("finish", "wire", "answers whose finish reason fits what is in them"),
    Metric("usage", "wire", "answers that say how many tokens they took"),
    Metric("form", "wire", "answers with the right content type and without stray records"),
    Metric("error_form", "wire", "bad requests that are refused with a 4xx and a message", _ABLE, 4),
    Metric("streams_alike", "wire", "pairs of a streamed and a whole answer that make the same call", _ABLE, 4),
    Metric("history", "wire", "answers that use a tool's result from the conversation", _ABLE, 4),
    Metric("text", "wire", "plain questions that are answered with text", _ABLE, 4),
    Metric("valid_json", "engineering", "answers with calls whose arguments are JSON"),
    Metric("known_names", "engineering", "answers with calls of declared tools only"),
    Metric("schema", "engineering", "answers with calls whose arguments fit their schemas"),
    Metric("no_leak", "engineering", "answers without a call in their text"),
    Metric("not_empty", "engineering", "answers that hold something"),
    Metric("not_reasoning_only", "engineering", "answers that hold more than reasoning"),
    Metric("token_drift", "engineering", "repeated requests that are counted as as many tokens as before"),
    Metric("tool_choice", "engineering", "answers that call what is forced and nothing where calls are forbidden"),
    Metric("parameters", "engineering", "common parameters that are not refused", _ABLE, 4),
    Metric("late_system", "engineering", "system messages in the middle that are not refused", _ABLE, 4),
    Metric("echo", "engineering", "quoted calls that stay text", _ABLE, 4),
    Metric("trigger", "behaviour", "questions for a tool that lead to the right call", _CHOICE, 12),
    Metric("restraint", "behaviour", "questions without need of a tool that lead to none", _CHOICE, 12),
    Metric("values", "behaviour", "forced calls whose arguments hold what was asked for", _CHOICE, 12),
    Metric("parallel", "behaviour", "requests for several calls that get them all", _CHOICE, 8),
    Metric("text_checks", "behaviour", "answers whose text passes the check of its case", _CHOICE, 12),
    Metric("multi_turn", "behaviour", "conversations that go on with the right call", _CHOICE, 8),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}

_OF_CALLS = (Finding.INVALID_JSON, Finding.UNKNOWN_NAME, Finding.OFF_SCHEMA, Finding.LEAK, Finding.REPAIRED)


def can_show(case: VerifyCase, finding: Finding) -> bool:
    """Can an answer to this case belong to that class? Only such answers count in its rate."""
    if finding in _OF_CALLS:
        return case.expects == "call" or (case.expects == "any" and bool(case.body.get("tools")))
    if finding is Finding.ECHO:
        return case.metric == "echo"
    return case.expects != "refusal"
