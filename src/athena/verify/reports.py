"""A report as JSON, JUnit and Markdown. Texts come out; whoever asked writes them somewhere."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec

from athena.verify.statistics import Interval
from athena.verify.vendors import VendorFigures
from athena.verify.verdicts import Compared, MetricVerdict, VerifyReport

_COLOURS = {
    MetricVerdict.PASSED: "2e7d32",
    MetricVerdict.FAILED: "c62828",
    MetricVerdict.UNDECIDED: "b26a00",
    MetricVerdict.NOT_SEEN: "6b7280",
}


def shown_rate(interval: Interval) -> str:
    """A rate with its interval and the number of answers: `97.3 % (93.1 to 99.0), 110`."""
    if not interval.count:
        return "-"
    return f"{interval.rate * 100:.1f} % ({interval.low * 100:.1f} to {interval.high * 100:.1f}), {interval.count}"


def as_value(report: VerifyReport, compared: tuple[Compared, ...] = (), figures: VendorFigures | None = None) -> dict[str, Any]:
    """The report as plain data. `schema` changes when the meaning of a field does. `figures`: where K2VV's cases were asked."""
    head = msgspec.to_builtins(report.run.head)
    return {
        "schema": 1,
        **({"k2vv": msgspec.to_builtins(figures)} if figures is not None else {}),
        "verdict": report.verdict.value,
        "judged": report.judged,
        "subject": head,
        "requests": len(report.run.trials),
        "batteries": {name: verdict.value for name, verdict in report.batteries.items()},
        "metrics": [
            {
                "name": metric.name,
                "battery": metric.battery,
                "verdict": metric.verdict.value,
                "bar": msgspec.to_builtins(metric.bar),
                "raw": _interval(metric.raw),
                "through": _interval(metric.through),
                "lift_points": round(metric.lift, 2),
            }
            for metric in report.metrics
        ],
        "classes": [
            {"class": row.label, "raw": _interval(row.raw), "through": _interval(row.through)} for row in report.classes
        ],
        "leaked_formats": report.formats,
        "trigger_f1": {"raw": round(report.trigger_f1[0], 4), "through": round(report.trigger_f1[1], 4)},
        "first_byte_ms": {"median": report.first_byte.median, "p90": report.first_byte.slow},
        "gap_ms": {"median": report.gaps.median, "p90": report.gaps.slow},
        "tokens": {"input": report.input_tokens, "output": report.output_tokens},
        "cost": round(report.cost, 6),
        "failures": [msgspec.to_builtins(trial) for trial in report.failures],
        "compared": [
            {"metric": row.name, "points": round(row.gap * 100, 2), "low": round(row.low * 100, 2),
             "high": round(row.high * 100, 2), "says": row.says}
            for row in compared
        ],
    }  # fmt: skip


def as_json(report: VerifyReport, compared: tuple[Compared, ...] = (), figures: VendorFigures | None = None) -> str:
    return msgspec.json.format(msgspec.json.encode(as_value(report, compared, figures))).decode() + "\n"


def _interval(interval: Interval) -> dict[str, Any]:
    return {
        "rate": round(interval.rate, 4), "low": round(interval.low, 4), "high": round(interval.high, 4),
        "passed": interval.passed, "count": interval.count,
    }  # fmt: skip


def as_junit(report: VerifyReport) -> str:
    """One test case per metric, a test suite per battery: undecided metrics are skipped ones."""
    suites = []
    for battery, _ in report.batteries.items():
        rows = [metric for metric in report.metrics if metric.battery == battery]
        cases = []
        for metric in rows:
            seen = metric.through if report.judged == "through" and metric.through.count else metric.raw
            text = f"{shown_rate(seen)}; a sound upstream reaches {metric.bar.good:.0%}, below {metric.bar.bad:.0%} it fails"
            inner = ""
            if metric.verdict is MetricVerdict.FAILED:
                inner = f"<failure message={quoteattr(text)}>{escape(metric.meaning)}</failure>"
            elif metric.verdict is not MetricVerdict.PASSED:
                inner = f"<skipped message={quoteattr(f'undecided: {text}')}/>"
            name = quoteattr(metric.name)
            cases.append(f'    <testcase classname="athena.verify.{battery}" name={name}>{inner}</testcase>')
        failed = sum(metric.verdict is MetricVerdict.FAILED for metric in rows)
        skipped = sum(metric.verdict in (MetricVerdict.UNDECIDED, MetricVerdict.NOT_SEEN) for metric in rows)
        counts = f'tests="{len(rows)}" failures="{failed}" skipped="{skipped}"'
        suites.append(f'  <testsuite name="{battery}" {counts}>\n' + "\n".join(cases) + "\n  </testsuite>")
    return '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n' + "\n".join(suites) + "\n</testsuites>\n"


def badge(report: VerifyReport) -> str:
    """A badge as inline SVG in Markdown: no server is asked for it."""
    words = f"tool calls: {report.verdict.value}"
    width = 20 + 7 * len(words)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{words}">'
        f'<rect width="{width}" height="20" rx="3" fill="#{_COLOURS[report.verdict]}"/>'
        f'<text x="{width / 2}" y="14" fill="#fff" text-anchor="middle" font-family="Verdana,sans-serif" font-size="11">{words}'
        "</text></svg>"
    )
    data = "".join(f"%{byte:02X}" if chr(byte) in '<>#"% ' else chr(byte) for byte in svg.encode())
    return f"![{words}](data:image/svg+xml,{data})"


def as_markdown(report: VerifyReport, compared: tuple[Compared, ...] = ()) -> str:
    """A badge and tables, for a README or a comment of CI."""
    head = report.run.head
    lines = [
        badge(report),
        "",
        f"**{head.upstream}/{head.model}** ({head.dialect}), {len(report.run.trials)} requests, judged {report.judged}",
        "",
        "| metric | raw | through Athena | lift | verdict |",
        "|---|---|---|---|---|",
    ]
    for metric in report.metrics:
        lift = f"{metric.lift:+.1f}" if metric.raw.count and metric.through.count else ""
        lines.append(
            f"| {metric.name} | {shown_rate(metric.raw)} | {shown_rate(metric.through)} | {lift} | {metric.verdict.value} |"
        )
    if report.classes:
        lines += ["", "| class | raw | through Athena |", "|---|---|---|"]
        lines += [f"| {row.label} | {shown_rate(row.raw)} | {shown_rate(row.through)} |" for row in report.classes]
    if compared:
        lines += ["", "| metric | points against the reference | says |", "|---|---|---|"]
        lines += [
            f"| {row.name} | {row.gap * 100:+.1f} ({row.low * 100:+.1f} to {row.high * 100:+.1f}) | {row.says} |"
            for row in compared
        ]
    return "\n".join(lines) + "\n"
