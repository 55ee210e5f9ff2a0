"""Bars as SVG, written by hand: readable on light and dark pages alike, because the picture brings its own background."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

WIDTH, NARROW, ROW, MARGIN = 760, 370, 22, 12
LETTER, TITLE_LETTER = 6.6, 8.2
"""Pixels of a usual letter, in text and in titles."""
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#b8a800")
"""Told apart by all eyes (Okabe and Ito), and on both backgrounds."""
STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  text { font: 12px system-ui, sans-serif; fill: #1f2328; stroke: #ffffff; stroke-width: 3px; paint-order: stroke }
  .title { font-weight: 600; font-size: 14px } .group { font-weight: 600 } .grid { stroke: #d0d7de }
  .axis { stroke: #59636e }
  .target { stroke: #cf222e; stroke-width: 2; stroke-dasharray: 4 3 } .spread { stroke: #1f2328 } .note { fill: #59636e }
  @media (prefers-color-scheme: dark) {
    .page { fill: #161b22; stroke: #3d444d } text { fill: #e6edf3; stroke: #161b22 } .grid { stroke: #3d444d }
    .axis { stroke: #9198a1 } .target { stroke: #ff7b72 } .spread { stroke: #e6edf3 } .note { fill: #9198a1 }
  }
"""


Scale = Callable[[float], float]


@dataclass(frozen=True)
class Bar:
    """One value with its range."""

    label: str
    value: float
    low: float
    high: float
    color: int


@dataclass(frozen=True)
class Group:
    """Bars that are compared, perhaps with a target."""

    title: str
    bars: list[Bar]
    target: float | None = None


@dataclass(frozen=True)
class _Room:
    """How wide the picture is, and its margins for the bars' labels and figures."""

    width: int
    labels: int
    values: int

    @property
    def end(self) -> int:
        return self.width - self.values

    def lines(self, text: str, letter: float) -> list[str]:
        return textwrap.wrap(text, int((self.width - 2 * MARGIN) / letter)) or [""]


def bars(title: str, groups: list[Group], *, note: str, axis: str, logarithmic: bool = False, narrow: bool = False) -> str:
    """The picture, for a laptop or for a phone. `axis` says what is counted, and in what."""
    values = [edge for group in groups for bar in group.bars for edge in (bar.value, bar.high)]
    values += [group.target for group in groups if group.target]
    longest = max((len(bar.label) for group in groups for bar in group.bars), default=0)
    room = _Room(NARROW, int(longest * LETTER) + MARGIN + 8, 112) if narrow else _Room(WIDTH, 190, 130)
    scale = _scale(room, max(values, default=1.0), min(values, default=1.0), logarithmic=logarithmic)
    titles, notes = room.lines(title, TITLE_LETTER), room.lines(note, LETTER)
    top = 28 + 18 * len(titles)
    rows, at = [], top
    for group in groups:
        at += ROW + 4
        rows.append(f'<text class="group" x="{MARGIN}" y="{at - 9}">{escape(group.title)}</text>')
        drawn = [part for number, bar in enumerate(group.bars) for part in _bar(bar, at + number * ROW, scale, room)]
        end = at + len(group.bars) * ROW
        if group.target:
            x = room.labels + scale(group.target)
            # Over the bars and under the figures.
            drawn.sort(key=lambda part: part.startswith("<text"))
            line = f'<line class="target" x1="{x:.1f}" y1="{at - 3}" x2="{x:.1f}" y2="{end - 3}"/>'
            drawn.insert(sum(not part.startswith("<text") for part in drawn), line)
        rows += drawn
        at = end + 4
    height = at + 48 + 16 * len(notes)
    ticks = _ticks(max(values, default=1.0), min(values, default=1.0), logarithmic=logarithmic)
    if narrow:
        ticks = _apart(ticks, scale)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {room.width} {height}" '
            f'width="{room.width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            f'<rect class="page" x="0.5" y="0.5" width="{room.width - 1}" height="{height - 1}" rx="6"/>',
            *(_line("title", line, 26 + 18 * number) for number, line in enumerate(titles)),
            *(line for tick in ticks for line in _tick(tick, room.labels + scale(tick), top, at)),
            f'<line class="axis" x1="{room.labels}" y1="{at}" x2="{room.end}" y2="{at}"/>',
            f'<text class="note" x="{room.end}" y="{at + 34}" text-anchor="end">{escape(axis)}</text>',
            *rows,
            *(_line("note", line, at + 52 + 16 * number) for number, line in enumerate(notes)),
            "</svg>\n",
        ]
    )


def _line(kind: str, text: str, y: int) -> str:
    return f'<text class="{kind}" x="{MARGIN}" y="{y}">{escape(text)}</text>'


def _scale(room: _Room, highest: float, lowest: float, *, logarithmic: bool) -> Scale:
    """Values to pixels."""
    width = room.end - room.labels

    def linear(value: float) -> float:
        return max(0.0, min(1.0, value / (highest or 1.0))) * width

    def by_digits(value: float) -> float:
        first, last = math.log10(max(lowest, 1e-9)) - 0.3, math.log10(max(highest, 1e-9))
        return max(0.0, min(1.0, (math.log10(max(value, 1e-9)) - first) / (last - first))) * width

    return by_digits if logarithmic else linear


def _ticks(highest: float, lowest: float, *, logarithmic: bool) -> list[float]:
    """Round numbers along the axis: 1, 2 or 5 times a power of ten; on a logarithmic one the powers and their 2 and 5."""
    if logarithmic:
        powers = range(math.floor(math.log10(max(lowest, 1e-9))), math.ceil(math.log10(max(highest, 1e-9))) + 1)
        found = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        return [tick for tick in found if lowest / 2 <= tick <= highest]
    power = 10.0 ** math.floor(math.log10((highest or 1.0) / 4))
    step = min((digit * power for digit in (1, 2, 5, 10)), key=lambda width: abs((highest or 1.0) / width - 5))
    return [number * step for number in range(int((highest or 1.0) / step) + 1)]


def _apart(ticks: list[float], scale: Scale) -> list[float]:
    """Those whose numbers do not run into the one before."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or scale(tick) - scale(kept[-1]) >= len(f"{tick:g}") * LETTER + 6:
            kept.append(tick)
    return kept


def _tick(value: float, x: float, top: int, at: int) -> list[str]:
    return [
        f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{at}"/>',
        f'<text class="note" x="{x:.1f}" y="{at + 16}" text-anchor="middle">{value:g}</text>',
    ]


def _bar(bar: Bar, at: int, scale: Scale, room: _Room) -> list[str]:
    middle = at + ROW / 2 - 3
    low, high = room.labels + scale(bar.low), room.labels + scale(bar.high)
    found = [
        f'<text x="{room.labels - 8}" y="{at + 12}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect x="{room.labels}" y="{at}" width="{max(1.0, scale(bar.value)):.1f}" height="{ROW - 6}" rx="2" '
        f'fill="{COLORS[bar.color % len(COLORS)]}"/>',
    ]
    if bar.high > bar.low:
        found.append(f'<line class="spread" x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}"/>')
    end = max(high, room.labels + scale(bar.value)) + 8
    spread = f" ({bar.low:.3g}-{bar.high:.3g})" if bar.high > bar.low else ""
    found.append(f'<text x="{end:.1f}" y="{at + 12}">{bar.value:.3g}{spread}</text>')
    return found
