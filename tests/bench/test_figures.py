"""The bench's own judgement: what a run is compared by, kept as, and shown as."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from benchmarks.gateway.compare import judge, report
from benchmarks.gateway.plot import Bar, Group, bars
from benchmarks.gateway.report import shown, table
from benchmarks.gateway.results import Figure, Run, load, new_run, save


def run_of(*figures: Figure) -> Run:
    return Run("gateway", "2026-01-01", "abc", "machine", [], list(figures))


def ratio(*values: float, judged: bool = True, at_most: float | None = None) -> Figure:
    return Figure("n16", "athena-msg", "cpu ratio", "x", list(values), judged, at_most)


@pytest.mark.parametrize(
    ("before", "after", "slower", "faster"),
    [
        ((2.0, 2.1, 1.9), (2.0, 2.05, 1.95), 0, 0),
        ((2.0, 2.1, 1.9), (2.8, 2.9, 2.7), 1, 0),
        ((2.8, 2.9, 2.7), (2.0, 2.1, 1.9), 0, 1),
        ((2.0, 3.0, 1.5), (2.8, 3.5, 2.0), 0, 0),  # within what the repetitions differ by
        ((2.0, 2.0, 2.0), (2.15, 2.15, 2.15), 0, 0),  # quiet, but below a tenth
        ((2.0,), (2.3,), 1, 0),
    ],
)
def test_slower_means_beyond_the_noise_of_both_runs(
    before: tuple[float, ...], after: tuple[float, ...], slower: int, faster: int
) -> None:
    worse, better, compared = judge(run_of(ratio(*before)), run_of(ratio(*after)))
    assert (len(worse), len(better), compared) == (slower, faster, 1)


def test_only_judged_figures_of_both_runs_are_compared() -> None:
    old = run_of(ratio(2.0, judged=False), Figure("s16", "relay", "cpu ratio", "x", [1.0], judged=True))
    new = run_of(ratio(9.0), Figure("p16", "relay", "cpu ratio", "x", [9.0], judged=True))
    assert judge(old, new) == ([], [], 0)


def test_a_small_figure_with_a_large_target_does_not_alarm() -> None:
    assert judge(run_of(ratio(0.1, at_most=8)), run_of(ratio(0.5, at_most=8)))[0] == []


def test_the_exit_code_says_that_something_got_slower(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(run_of(ratio(2.0)), run_of(ratio(4.0))) == 1
    assert "slower: n16 athena-msg cpu ratio: 2 -> 4 x (2.00x)" in capsys.readouterr().out
    assert report(run_of(ratio(2.0)), run_of(ratio(2.0))) == 0


def test_a_saved_run_is_read_back_with_four_digits(tmp_path: Path) -> None:
    run = new_run("gateway")
    run.figures += [ratio(1.23456789, 2.0, at_most=3.0), Figure("start", "nginx", "startup", "s", [0.05])]
    save(run, tmp_path / "deep" / "run.json")
    found = load(tmp_path / "deep" / "run.json")
    assert found.figures[0].values == [1.235, 2.0]
    assert found.figures[1] == run.figures[1]
    assert (found.suite, found.commit, found.machine) == (run.suite, run.commit, run.machine)
    assert found.find("start", "nginx", "startup") == run.figures[1]
    assert found.find("start", "nginx", "cpu") is None


def test_a_missed_target_is_bold_and_a_range_is_shown() -> None:
    assert shown(ratio(2.0, 2.5, 1.5, at_most=3)) == "2.00 (1.50-2.50)"
    assert shown(ratio(4.0, at_most=3)) == "**4.00**"
    assert shown(None) == ""
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"


def test_a_plot_is_well_formed_and_as_long_as_its_values() -> None:
    groups = [Group("n16 <&>", [Bar("one", 1, 1, 1, 0), Bar("two", 2, 1.5, 2, 1)], target=2.0)]
    root = ElementTree.fromstring(bars("Title <&>", groups, note="note", axis="times <&>"))
    name = "{http://www.w3.org/2000/svg}"
    widths = [float(found.attrib["width"]) for found in root.findall(f"{name}rect") if "fill" in found.attrib]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)
    target = next(found for found in root.findall(f"{name}line") if found.attrib["class"] == "target")
    assert float(target.attrib["x1"]) == pytest.approx(190 + widths[1], abs=0.2)
    assert next(found.text for found in root.findall(f"{name}text")) == "Title <&>"
    words = [found.text for found in root.findall(f"{name}text")]
    assert "times <&>" in words
    assert [word for word in words if word in ("0", "0.5", "1", "1.5", "2")][:5] == ["0", "0.5", "1", "1.5", "2"]


def test_a_plot_for_a_phone_keeps_inside_of_it() -> None:
    title = "A title that is wider than a phone is and goes on below itself"
    groups = [Group("g", [Bar("a-long-label", value, value, value, 0) for value in (1.234, 10, 1000)])]
    for logarithmic in (False, True):
        root = ElementTree.fromstring(bars(title, groups, note=title, axis="axis", logarithmic=logarithmic, narrow=True))
        width = float(root.attrib["width"])
        assert width <= 390
        for found in root.findall("{http://www.w3.org/2000/svg}text"):
            length, x = len(found.text or "") * 6, float(found.attrib["x"])
            left = {"end": x - length, "middle": x - length / 2}.get(found.attrib.get("text-anchor", ""), x)
            assert left >= 0
            assert left + length <= width, found.text


def test_a_logarithmic_plot_keeps_its_order() -> None:
    groups = [Group("g", [Bar(str(value), value, value, value, 0) for value in (1, 10, 1000)])]
    root = ElementTree.fromstring(bars("t", groups, note="", axis="", logarithmic=True))
    found = [float(one.attrib["width"]) for one in root.findall("{http://www.w3.org/2000/svg}rect") if "fill" in one.attrib]
    assert found == sorted(found)
    assert found[2] - found[1] == pytest.approx(2 * (found[1] - found[0]), rel=0.01)
