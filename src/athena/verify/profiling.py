"""What a run says about the settings of a model at an upstream, each with the evidence for it."""

from __future__ import annotations

from typing import Any

import msgspec

from athena.serving.refusals import TOOLS, known_refusals
from athena.verify.verdicts import VerifyReport

_LEAST = 2
"""Answers that must show the same: a single one may be an accident."""
_SLOW_MS = 60_000


class Proposal(msgspec.Struct, frozen=True):
    """One setting of the model's rule."""

    path: tuple[str, ...]
    """Below the rule: `("format",)`, `("quirks", "system_turns")`."""
    value: Any
    because: str

    @property
    def key(self) -> str:
        return ".".join(self.path)


def propose(report: VerifyReport) -> tuple[Proposal, ...]:
    """What to write down. Nothing is proposed that a single odd answer could suggest."""
    head = report.run.head
    rates = {metric.name: metric for metric in report.metrics}
    corrected = _corrected(report)
    found = [_tools(report, corrected.get(TOOLS, 0))]
    leaks = list(report.formats.items())
    if len(leaks) == 1 and leaks[0][1] >= _LEAST and leaks[0][0] != head.format:
        name, count = leaks[0]
        found.append(Proposal(("format",), name, f"{count} calls stood in the text in this format, and none in another"))
    elif not leaks and "no_leak" in rates and rates["no_leak"].raw.count >= 30 and head.format not in ("", "standard"):
        because = f"no call stood in the text of {rates['no_leak'].raw.count} answers"
        found.append(Proposal(("format",), "standard", because))
    found += _quirks(corrected)
    for position, name in enumerate(("context", "output")):
        if head.window[position]:
            found.append(Proposal((name,), head.window[position], "the upstream's own list of models says so"))
    if report.first_byte.slow > _SLOW_MS:
        because = f"a tenth of the answers began only after {report.first_byte.slow / 1000:.0f} seconds"
        found.append(Proposal(("timeouts", "first_byte_s"), int(report.first_byte.slow / 250), because))
    return tuple(one for one in found if one is not None)


def _tools(report: VerifyReport, refused: int) -> Proposal | None:
    if refused >= _LEAST:
        return Proposal(("tools",), "prompted", f"{refused} requests were refused for their tools and answered without them")
    schema = next((metric for metric in report.metrics if metric.name == "schema"), None)
    if schema is None or schema.raw.count < 10 or report.run.head.tools == "native":
        return None
    return Proposal(("tools",), "native", f"{schema.raw.count} answers made calls by the API's own means")


def _quirks(corrected: dict[str, int]) -> list[Proposal]:
    found = []
    dropped = sorted(name.partition(":")[2] for name, count in corrected.items() if ":" in name and count >= _LEAST)
    if dropped:
        because = "requests were refused for these fields, and answered without them"
        found.append(Proposal(("quirks", "drop_fields"), dropped, because))
    for feature, count in corrected.items():
        rule = known_refusals().get(feature)
        if rule is None or count < _LEAST:
            continue
        for field, value in rule.profile.items():
            because = f"{count} requests were refused without it ({feature}), and answered with it"
            found.append(Proposal(("quirks", field), value, because))
    return found


def _corrected(report: VerifyReport) -> dict[str, int]:
    """What was refused, and how often the request was answered without it."""
    counts: dict[str, int] = {}
    for trial in report.run.trials:
        for name in filter(None, trial.facts.get("corrected", "").split(",")):
            counts[name] = counts.get(name, 0) + 1
    return counts


def profile_row(report: VerifyReport, proposals: tuple[Proposal, ...]) -> str:
    """The same as a row of `profiles.toml`, for whoever adds the upstream to Athena."""
    head = report.run.head
    name = "".join(letter if letter.isalnum() else "_" for letter in head.upstream)
    lines = [f"[{name}]", f'dialect = "{head.dialect}"']
    for one in proposals:
        if one.path[0] == "quirks":
            lines.append(f"{one.path[1]} = {msgspec.json.encode(one.value).decode()}")
    return "\n".join(lines) + "\n"
