"""The measured part of `docs/performance.md` and its plots, written from the saved runs.

./dev bench report
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.gateway.cases import CASES
from benchmarks.gateway.plot import Bar, Group, bars
from benchmarks.gateway.results import Figure, Run, load, saved_file

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "performance.md"
PLOTS = DOCS / "performance"
START, END = "<!-- measured: written by ./dev bench report -->", "<!-- end of the measured part -->"
TURN_START, TURN_END = "<!-- turn: written by ./dev bench report -->", "<!-- end of the turn -->"
DIALECTS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")


def main(arguments: list[str]) -> int:
    """Write page and plots."""
    write_docs()
    print(f"  {PAGE.relative_to(DOCS.parent)} written")
    return 0


def write_docs() -> None:
    """What every saved run says, between the markers; the rest of the page is a person's."""
    PLOTS.mkdir(exist_ok=True)
    sections = [START]
    for suite, write in (("gateway", gateway), ("peers", peers), ("scale", scale), ("micro", micro)):
        file = saved_file(suite)
        if file.exists():
            sections.append(write(load(file)))
    page = _placed(PAGE.read_text(), START, END, sections[1:])
    if saved_file("agent").exists():
        page = _placed(page, TURN_START, TURN_END, agent(load(saved_file("agent"))))
    PAGE.write_text(page)


def _placed(page: str, start: str, end: str, sections: list[str]) -> str:
    before, _, rest = page.partition(start)
    return before + "\n\n".join([start, *sections, end]) + rest.partition(end)[2]


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(figure: Figure | None, digits: int = 2) -> str:
    """Median and range; bold when a target is missed."""
    if figure is None:
        return ""
    text = f"{figure.middle:.{digits}f}"
    if figure.at_most is not None and figure.middle > figure.at_most:
        text = f"**{text}**"
    if len(figure.values) > 1 and f"{min(figure.values):.{digits}f}" != f"{max(figure.values):.{digits}f}":
        text += f" ({min(figure.values):.{digits}f}-{max(figure.values):.{digits}f})"
    return text


def origin(run: Run) -> str:
    """Where and when it was measured."""
    return f"Measured {run.made} at `{run.commit}`: {'; '.join([run.machine, *run.notes])}."


def systems_of(run: Run, metric: str) -> list[str]:
    """Those that have such a figure, in the order of the run."""
    return list(dict.fromkeys(figure.system for figure in run.figures if figure.metric == metric))


def cases_of(run: Run) -> list[str]:
    """The load cases it has, in the usual order."""
    have = {figure.case for figure in run.figures}
    return [name for name in CASES if name in have]


TURN = "turn of 300 paced chunks"
AGENT = ("athena-msg", "athena-chat")
STEPS = ("read", "decode", "prepare", "encode", "write", "whole, nothing kept", "whole, first sight", "whole, seen before")


def agent(run: Run) -> list[str]:
    """What a turn costs, in one sentence and one plot; then each kind of request, and the steps of a request's way."""
    cases = list(dict.fromkeys(figure.case for figure in run.figures if figure.system == "nginx"))
    sections = [_turn(run)]
    groups = []
    for case in cases:
        found = [(name, run.find(case, name, "cpu ratio")) for name in (*AGENT, "athena-msg, before")]
        drawn = [_bar(figure, name, number) for number, (name, figure) in enumerate(found) if figure]
        ours = run.find(case, "athena-msg", "cpu ratio")
        groups.append(Group(case, drawn, ours.at_most if ours else None))
    if groups:
        note = "dashed: the target; seen before: every message, the tools and the instructions were sent before"
        _draw("agent", "CPU of a coding agent's request relative to nginx", groups, note=note, axis="times nginx's CPU")
        sections.append("![CPU of a coding agent's request relative to nginx](performance/agent.svg)")
        heads = ["request", "nginx, us", *(f"{name}, x nginx" for name in AGENT), "athena-msg by the checkout before"]
        rows = [
            [
                case,
                shown(run.find(case, "nginx", "cpu"), 0),
                *(shown(run.find(case, name, "cpu ratio"), 1) for name in AGENT),
                shown(run.find(case, "athena-msg", "cpu by before")),
            ]
            for case in cases
        ]
        sections.append(table(heads, rows))
    kinds = list(dict.fromkeys(figure.case for figure in run.figures if figure.system == "prepare"))
    if kinds:
        rows = [[step, *(shown(run.find(kind, step, "cpu per message"), 1) for kind in kinds)] for step in STEPS]
        sections.append("CPU microseconds per message of each step, Messages to Chat, with the processor's caches emptied:")
        sections.append(table(["step", *kinds], rows))
        pairs = [figure for figure in run.figures if " -> " in figure.case and figure.metric == "by msgspec decode"]
        rows = [[source, *(_both(run, f"{source} -> {target}") for target in DIALECTS)] for source in DIALECTS if pairs]
        sections.append("A request of 131 KB by one decoding of its JSON, nothing kept and seen before:")
        sections.append(table(["from (down) to (right)", *DIALECTS], rows))
    sections.append(origin(run))
    return sections


def _both(run: Run, case: str) -> str:
    found = [run.find(case, f"whole, {how}", "by msgspec decode") for how in ("nothing kept", "seen before")]
    return ", ".join(f"{figure.middle:.1f}" for figure in found if figure)


def _turn(run: Run) -> str:
    cost, ratio = run.find(TURN, "athena-msg", "cpu"), run.find(TURN, "athena-msg", "cpu ratio")
    first = run.find("131 KB", "athena-msg", "first byte added")
    if cost is None or ratio is None:
        return ""
    waits = f", and adds {first.middle:.1f} ms to its first byte" if first else ""
    return (
        f"**One turn of a coding agent** (131 KB, 24 tools, an answer of 300 chunks at a model's pace) takes "
        f"{cost.middle / 1000:.0f} ms of CPU, {ratio.middle:.1f} times what nginx takes to pass the same bytes on{waits}."
    )


def gateway(run: Run) -> str:
    """Ratios, figures, delays, start."""
    cases = cases_of(run)
    ratios = systems_of(run, "cpu ratio")
    _plot_ratios(run, cases, [name for name in ratios if name.startswith("athena") or name == "relay"])
    targets = ["target: translated"] + [_target(run, case, "athena-msg") for case in cases]
    passing = ["target: same dialect"] + [_target(run, case, "athena-pass") for case in cases]
    return "\n\n".join(
        [
            "## Beside nginx",
            origin(run),
            "CPU per request (`n`) or chunk (`s`, `p`) divided by nginx's in the same repetition: median (range). "
            "Bold: target missed.",
            table(
                ["system", *cases],
                [[name, *(shown(run.find(case, name, "cpu ratio")) for case in cases)] for name in ratios] + [targets, passing],
            ),
            "![CPU relative to nginx](performance/gateway.svg)",
            "CPU microseconds per request or chunk:",
            table(
                ["system", *cases],
                [[name, *(shown(run.find(case, name, "cpu"), 1) for case in cases)] for name in systems_of(run, "cpu")],
            ),
            "Milliseconds added to the first byte (p50, over asking the upstream directly; target 1), and the delay of a "
            "chunk from the upstream's write to the client's read, in microseconds:",
            table(
                ["system", "first byte n1", "first byte p16", "chunk p16, p50", "chunk p16, p99", "chunk p128, p50"],
                [
                    [
                        name,
                        shown(run.find("n1", name, "first byte added")),
                        shown(run.find("p16", name, "first byte added")),
                        shown(run.find("p16", name, "delay p50"), 0),
                        shown(run.find("p16", name, "delay p99"), 0),
                        shown(run.find("p128", name, "delay p50"), 0),
                    ]
                    for name in systems_of(run, "delay p50")
                ],
            ),
            "Start and memory (share of all mapped memory, MiB):",
            table(
                ["system", "first answer after, s", "idle", "after the run"],
                [
                    [
                        name,
                        *(shown(run.find("start", name, metric), 2 if metric == "startup" else 0) for metric in START_METRICS),
                    ]
                    for name in systems_of(run, "startup")
                ],
            ),
        ]
    )


START_METRICS = ("startup", "memory idle", "memory after")


def _target(run: Run, case: str, system: str) -> str:
    figure = run.find(case, system, "cpu ratio")
    return f"{figure.at_most:g}" if figure and figure.at_most else ""


def _bar(figure: Figure, label: str, color: int) -> Bar:
    return Bar(label, figure.middle, min(figure.values), max(figure.values), color)


def _plot_ratios(run: Run, cases: list[str], systems: list[str]) -> None:
    groups = []
    for case in cases:
        found = [(name, run.find(case, name, "cpu ratio")) for name in systems]
        drawn = [_bar(figure, name, systems.index(name)) for name, figure in found if figure]
        translated = run.find(case, "athena-msg", "cpu ratio")
        if drawn:
            groups.append(Group(CASES[case].words, drawn, translated.at_most if translated else None))
    title, note = "CPU relative to nginx, per request or chunk", "dashed: the target for translated traffic"
    _draw("gateway", title, groups, note=note, axis="times nginx's CPU")


def _draw(name: str, title: str, groups: list[Group], *, note: str, axis: str, logarithmic: bool = False) -> None:
    """Write a plot for laptops, and one for phones beside it, which the site shows there."""
    for narrow in (False, True):
        picture = bars(title, groups, note=note, axis=axis, logarithmic=logarithmic, narrow=narrow)
        (PLOTS / f"{name}{'-narrow' if narrow else ''}.svg").write_text(picture)


def peers(run: Run) -> str:
    """Their CPU by ours."""
    cases = cases_of(run)
    names = systems_of(run, "by athena")
    groups = []
    for case in cases:
        drawn = [_bar(f, name, names.index(name)) for name in names if (f := run.find(case, name, "by athena"))]
        if drawn:
            groups.append(Group(CASES[case].words, drawn))
    title, note = "CPU of other gateways, relative to Athena's", "logarithmic; more is better for Athena"
    _draw("peers", title, groups, note=note, axis="times Athena's CPU", logarithmic=True)
    return "\n\n".join(
        [
            "## Beside other gateways",
            origin(run),
            "CPU of each by that of athena for the same client dialect, in the same repetition. They do unequal work: some "
            "check keys, count costs and log. Targets: LiteLLM 50 / 50 / 10 (n16, s16, p16), the others 10 / 3 / 2.",
            table(
                ["peer", *cases],
                [[name, *(shown(run.find(case, name, "by athena"), 1) for case in cases)] for name in names],
            ),
            "![CPU of other gateways, relative to Athena's](performance/peers.svg)",
            "CPU microseconds per request or chunk, start and memory:",
            table(
                ["system", *cases, "first answer after, s", "MiB idle", "MiB after"],
                [
                    [
                        name,
                        *(shown(run.find(case, name, "cpu"), 1) for case in cases),
                        *(shown(run.find("start", name, metric), 1) for metric in START_METRICS),
                    ]
                    for name in systems_of(run, "cpu")
                ],
            ),
        ]
    )


def scale(run: Run) -> str:
    """Every figure with a target, and the others beside it."""
    rows = []
    for figure in run.figures:
        target = "" if figure.at_most is None else f"{figure.at_most:g}"
        rows.append([f"{figure.case}, {figure.system}", figure.metric, f"{shown(figure)} {figure.unit}".strip(), target])
    return "\n\n".join(
        [
            "## Scale",
            f"{run.machine}. Each part when and at what commit: {'; '.join(sorted(run.notes))}.",
            "Median (range); bold: target missed.",
            table(["what", "figure", "measured", "at most"], rows),
        ]
    )


def micro(run: Run) -> str:
    """Stages, pairs and formats."""
    parts = ["## Inside", origin(run)]
    parts.append(
        "CPU nanoseconds per chunk of the best rounds, by decoding the same chunk with msgspec, and bytecode instructions "
        "(steps)."
    )
    stages = [figure for figure in run.figures if figure.case == "stages" and figure.metric == "cpu"]
    if stages:
        rows = [
            [
                figure.system,
                shown(figure, 0),
                shown(run.find("stages", figure.system, "by msgspec decode"), 1),
                shown(run.find("stages", figure.system, "steps"), 0),
            ]
            for figure in stages
        ]
        parts.append(table(["stage", "ns", "by msgspec", "steps"], rows))
    for case, title in (("pairs", "Text, nanoseconds per chunk"), ("calls", "Call arguments, nanoseconds per piece")):
        if any(figure.case == case for figure in run.figures):
            rows = [
                [source, *(shown(run.find(case, f"{source} -> {target}", "cpu"), 0) for target in DIALECTS)]
                for source in DIALECTS
            ]
            parts.append(table([f"{title}: from (down) to (right)", *DIALECTS], rows))
    if formats := [figure for figure in run.figures if figure.case == "formats" and figure.metric == "prose"]:
        drawn = [Bar(f.system, 1e6 / f.middle, 1e6 / max(f.values), 1e6 / min(f.values), 0) for f in formats]
        groups = [Group("megabytes per second", drawn, 50.0)]
        _draw("formats", "Prose through each text format's parser", groups, note="dashed: the target", axis="MB per second")
        parts.append("![Prose through each text format's parser](performance/formats.svg)")
    return "\n\n".join(parts)
