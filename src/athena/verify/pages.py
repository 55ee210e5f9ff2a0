"""A report as one HTML page that needs nothing else: no script, no request, light and dark, plots as inline SVG.

The page forbids itself everything but its own style, so that a report may be opened and shared without trust in who made it.
Every text of an upstream is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from athena.verify.statistics import Interval
from athena.verify.verdicts import Compared, MetricResult, MetricVerdict, VerifyReport, wrong_with

MOST_FAILURES = 200
"""Failing exchanges that a page lists, and whose views stand beside it."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #ffffff; --card: #f6f8fa;
  --raw: #8250df; --through: #0969da; --good: #1a7f37; --bad: #cf222e; --open: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #0d1117;
  --card: #151b23; --raw: #ab7df8; --through: #4493f8; --good: #3fb950; --bad: #f85149; --open: #d29922; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 74rem; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; } a { color: var(--through); } .soft { color: var(--soft); }
.cards { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .6rem .9rem; min-width: 9rem; }
.card b { display: block; font-size: 1.15rem; }
.passed { color: var(--good); } .failed { color: var(--bad); } .undecided, .not { color: var(--open); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
code { font: .9em ui-monospace, monospace; background: var(--card); padding: .05rem .3rem; border-radius: 4px;
  overflow-wrap: anywhere; }
td code { white-space: nowrap; overflow-wrap: normal; }
@media (max-width: 44rem) { body { padding: .9rem; } .wide svg { min-width: 40rem; } .wide td .soft { display: none; } }
svg { max-width: 100%; height: auto; display: block; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .soft { fill: var(--soft); } .raw { fill: var(--raw); stroke: var(--raw); } .through { fill: var(--through);
  stroke: var(--through); } .axis { stroke: var(--line); } .bar { stroke: var(--bad); stroke-dasharray: 3 3; }
.key { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin: 0 .3rem 0 .8rem; }
"""


def as_page(report: VerifyReport, compared: tuple[Compared, ...] = (), links: Mapping[str, str] | None = None) -> str:
    """The whole page. `links` are addresses at which the inspector shows failing exchanges, by the exchanges' ids."""
    head = report.run.head
    title = f"athena verify: {head.upstream}/{head.model}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(head.upstream)}/{escape(head.model)}</h1>",
        f'<p class="soft">{escape(head.dialect)} at <code>{escape(head.base_url)}</code>, {escape(head.started)}, '
        f"{len(report.run.trials)} requests, judged on the {report.judged} side</p>",
        _cards(report),
        "<h2>Rates with their intervals</h2>",
        '<p class="soft"><span class="key" style="background: var(--raw)"></span>as the upstream sent it'
        '<span class="key" style="background: var(--through)"></span>through Athena. '
        "The dashed line is the rate below which a metric fails.</p>",
        f'<div class="wide">{_rates(report.metrics)}</div>',
        _metric_table(report),
    ]
    if report.classes:
        parts += ["<h2>What was wrong</h2>", _class_table(report)]
    if report.formats:
        parts += ["<h2>Formats in which calls leaked</h2>", f'<div class="wide">{_bars(report.formats)}</div>']
    parts += [
        "<h2>Time to the first byte</h2>",
        _latency(report.first_byte.values, report.first_byte.median, report.first_byte.slow),
        "<h2>Longest silence within a stream</h2>",
        _latency(report.gaps.values, report.gaps.median, report.gaps.slow),
    ]
    if compared:
        parts += ["<h2>Against the reference</h2>", _compared(compared)]
    parts += [_failures(report, links or {}), "</body></html>\n"]
    return "\n".join(parts)


def _cards(report: VerifyReport) -> str:
    rows = [("verdict", report.verdict.value, _kind(report.verdict))]
    rows += [(name, verdict.value, _kind(verdict)) for name, verdict in report.batteries.items()]
    if any(report.trigger_f1):
        rows.append(("trigger F1, raw and through", f"{report.trigger_f1[0]:.3f} and {report.trigger_f1[1]:.3f}", ""))
    rows.append(("tokens in and out", f"{report.input_tokens:,} and {report.output_tokens:,}", ""))
    if report.cost:
        rows.append(("cost", f"{report.cost:,.4f}", ""))
    cards = [f'<div class="card">{escape(label)}<b class="{kind}">{escape(value)}</b></div>' for label, value, kind in rows]
    return f'<div class="cards">{"".join(cards)}</div>'


def _kind(verdict: MetricVerdict) -> str:
    return verdict.value.partition(" ")[0]


def _rates(metrics: Sequence[MetricResult]) -> str:
    left, width, row = 150, 900, 30
    height = row * len(metrics) + 40

    def x(rate: float) -> float:
        return left + rate * (width - left - 60)

    out = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="Rates of all metrics, raw and through Athena">']
    for tick in range(0, 101, 20):
        at = x(tick / 100)
        out.append(f'<line class="axis" x1="{at:.1f}" y1="10" x2="{at:.1f}" y2="{height - 25}"/>')
        out.append(f'<text class="soft" x="{at:.1f}" y="{height - 8}" text-anchor="middle">{tick} %</text>')
    for index, metric in enumerate(metrics):
        y = 24 + index * row
        out.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(metric.name)}</text>')
        fails = x(metric.bar.bad)
        out.append(f'<line class="bar" x1="{fails:.1f}" y1="{y - 11}" x2="{fails:.1f}" y2="{y + 13}"/>')
        out += _whisker(metric.raw, "raw", y - 4, x)
        out += _whisker(metric.through, "through", y + 6, x)
    return "".join([*out, "</svg>"])


def _whisker(interval: Interval, side: str, y: float, x: object) -> list[str]:
    if not interval.count:
        return []
    assert callable(x)
    words = f"{side}: {interval.rate:.1%}, {interval.low:.1%} to {interval.high:.1%} of {interval.count}"
    line = f'<line class="{side}" stroke-width="2" x1="{x(interval.low):.1f}" y1="{y}" x2="{x(interval.high):.1f}" y2="{y}"/>'
    return [
        f"<g><title>{escape(words)}</title>{line}",
        f'<circle class="{side}" cx="{x(interval.rate):.1f}" cy="{y}" r="4"/></g>',
    ]


def _rate(interval: Interval) -> str:
    if not interval.count:
        return '<td class="number soft">-</td>'
    spread = f'<span class="soft">{interval.low:.1%} to {interval.high:.1%} of {interval.count}</span>'
    return f'<td class="number">{interval.rate:.1%}<br>{spread}</td>'


def _metric_table(report: VerifyReport) -> str:
    rows = []
    for metric in report.metrics:
        lift = f"{metric.lift:+.1f}" if metric.raw.count and metric.through.count else ""
        rows.append(
            f"<tr><td><b>{escape(metric.name)}</b><br><span class='soft'>{escape(metric.meaning)}</span></td>"
            f"<td>{metric.battery}</td>{_rate(metric.raw)}{_rate(metric.through)}<td class='number'>{lift}</td>"
            f"<td class='{_kind(metric.verdict)}'>{metric.verdict.value}</td></tr>"
        )
    head = "<tr><th>metric</th><th>battery</th><th>raw</th><th>through Athena</th><th>lift, points</th><th>verdict</th></tr>"
    return f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'


def _class_table(report: VerifyReport) -> str:
    rows = [f"<tr><td><code>{escape(row.label)}</code></td>{_rate(row.raw)}{_rate(row.through)}</tr>" for row in report.classes]
    return f'<div class="wide"><table><tr><th>class</th><th>raw</th><th>through Athena</th></tr>{"".join(rows)}</table></div>'


def _bars(counts: dict[str, int]) -> str:
    most, row = max(counts.values()), 26
    height = row * len(counts) + 10
    out = [f'<svg viewBox="0 0 900 {height}" role="img" aria-label="Formats in which calls leaked">']
    for index, (name, count) in enumerate(counts.items()):
        y = 6 + index * row
        wide = 600 * count / most
        out.append(f'<text x="170" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        out.append(f'<rect class="raw" x="180" y="{y}" width="{wide:.1f}" height="18" rx="3"/>')
        out.append(f'<text x="{190 + wide:.1f}" y="{y + 14}">{count}</text>')
    return "".join([*out, "</svg>"])


def _latency(values: Sequence[float], median: float, slow: float) -> str:
    """The share of answers that had come after so many milliseconds."""
    if not values:
        return '<p class="soft">Nothing was measured.</p>'
    width, height, left = 900, 190, 60
    most = max(values[-1], 1e-9)
    points = [f"{left},{height - 30}"]
    for index, value in enumerate(values, 1):
        at = left + (width - left - 40) * value / most
        points.append(f"{at:.1f},{height - 30 - (height - 50) * index / len(values):.1f}")
    ticks = []
    for share in (0.0, 0.5, 1.0):
        y = height - 30 - (height - 50) * share
        ticks.append(f'<line class="axis" x1="{left}" y1="{y:.1f}" x2="{width - 40}" y2="{y:.1f}"/>')
        ticks.append(f'<text class="soft" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for share in (0.0, 0.5, 1.0):
        at = left + (width - left - 40) * share
        ticks.append(f'<text class="soft" x="{at:.1f}" y="{height - 10}" text-anchor="middle">{most * share:,.0f} ms</text>')
    line = f'<polyline class="through" style="fill: none" stroke-width="2" points="{" ".join(points)}"/>'
    words = f"<p>Half of the answers within {median:,.0f} ms, nine of ten within {slow:,.0f} ms.</p>"
    label = f"{len(values)} answers by time"
    svg = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(ticks)}{line}</svg>'
    return f'{words}<div class="wide">{svg}</div>'


def _compared(rows: Sequence[Compared]) -> str:
    lines = [
        f"<tr><td>{escape(row.name)}</td>{_rate(row.ours)}{_rate(row.theirs)}"
        f"<td class='number'>{row.gap * 100:+.1f}<br>"
        f"<span class='soft'>{row.low * 100:+.1f} to {row.high * 100:+.1f}</span></td>"
        f"<td>{escape(row.says)}</td></tr>"
        for row in rows
    ]
    head = "<tr><th>metric</th><th>this run</th><th>reference</th><th>points</th><th>says</th></tr>"
    return f'<div class="wide"><table>{head}{"".join(lines)}</table></div>'


def _failures(report: VerifyReport, links: Mapping[str, str]) -> str:
    if not report.failures:
        return "<h2>Failing exchanges</h2><p>There is none.</p>"
    rows = []
    for trial in report.failures[:MOST_FAILURES]:
        label = escape(f"{trial.case}, {trial.mode}")
        if trial.recording in links:
            label = f'<a href="{escape(links[trial.recording])}">{label}</a>'
        command = f"<code>athena record show {escape(trial.recording)}</code>" if trial.recording else "not kept"
        rows.append(
            f"<tr><td>{label}</td><td>{escape(', '.join(wrong_with(trial, 'raw')))}</td>"
            f"<td>{escape(', '.join(wrong_with(trial, 'through'))) or 'repaired'}</td><td>{escape(trial.error)}</td>"
            f"<td>{command}</td></tr>"
        )
    head = "<tr><th>case</th><th>raw</th><th>through Athena</th><th>said</th><th>in a terminal</th></tr>"
    more = len(report.failures) - MOST_FAILURES
    rest = f'<p class="soft">and {more} more</p>' if more > 0 else ""
    note = (
        '<p class="soft">A case leads to what the upstream sent, what was made of it and what the client got. '
        "The file with these exchanges has to lie beside this page.</p>"
    )
    return (
        f'<h2>Failing exchanges</h2>{note if links else ""}<div class="wide"><table>{head}{"".join(rows)}</table></div>{rest}'
    )
