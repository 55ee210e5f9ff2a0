"""Draw what `athena demo` shows as `images/demo.svg` and, for narrow screens, `images/demo-narrow.svg`.

    python docs/generate_picture.py

The texts are what the command plays: what the model writes, and what the engine makes of it, so the picture cannot promise what
the engine does not do. The picture brings its own background and names no font file.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from athena.shells.cli.demo import _parts
from athena.shells.showcase import MARKER, QUESTION, SCENES, Received, Scene, play

FOLDER = Path(__file__).parent / "images"
SHOWN = ("kimi_k2", "hermes")
SIZE, ADVANCE, LINE = 13, 7.8, 19
"""Of the monospaced letters, in pixels."""
PAD, GAP, HEAD = 16, 44, 30
STYLE = """
  text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #dfe6f3; white-space: pre }
  .page { fill: #131a2b } .box { fill: #1b2438; stroke: #33405e } .leak { stroke: #b4535f } .call { stroke: #3f9d77 }
  .label { font: 600 13px system-ui, sans-serif; fill: #9fb0d0 } .title { font: 600 15px system-ui, sans-serif; fill: #ffffff }
  .caption { font: 13px system-ui, sans-serif; fill: #c6d2ea } .marker { fill: #ff8d8d } .name { fill: #9fb0d0 }
  .good { fill: #7fe0b0; font-weight: 600 } .arrow { stroke: #f2b632; stroke-width: 3; fill: none }
"""

Run = tuple[str, str]
"""A class, and text."""


def picture(*, narrow: bool = False) -> str:
    """The picture; side by side, or one below the other."""
    width = 430 if narrow else 960
    drawn: list[str] = []
    at = 64 if narrow else 50
    for scene in SCENES:
        if scene.format in SHOWN:
            steps = list(play(scene))
            lines, at = _scene(scene, "".join(step.piece for step in steps), steps[-1].received, width, at, narrow=narrow)
            drawn += lines
    height = at + 6
    asked = [("title", "The user asks:", 28), ("caption", QUESTION, 47)]
    if not narrow:
        asked = [("title", f"The user asks: {QUESTION}", 30)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>What models write, and what an agent receives through Athena</title><style>{STYLE}</style>",
            f'<rect class="page" width="{width}" height="{height}" rx="12"/>',
            *(f'<text class="{kind}" x="{PAD + 4}" y="{y}">{escape(text)}</text>' for kind, text, y in asked),
            *drawn,
            "</svg>\n",
        ]
    )


def _scene(scene: Scene, written: str, received: Received, width: int, at: int, *, narrow: bool) -> tuple[list[str], int]:
    """One model: its caption, what it writes, an arrow, what is received; and where the next one begins."""
    box = width - 2 * PAD if narrow else (width - 2 * PAD - GAP) // 2
    columns = int((box - 2 * PAD) / ADVANCE)
    raw = list(_wrapped(_marked(written), columns))
    got = [line for part in _parts(received) for line in _wrapped(_received(*part), columns)]
    drawn = [f'<text class="caption" x="{PAD + 4}" y="{at + 14}">{escape(scene.models)}</text>']
    top = at + 26
    if narrow:
        drawn += _box("the model writes", "leak", raw, PAD, top, box, len(raw))
        below = top + HEAD + len(raw) * LINE + PAD
        middle = width // 2
        drawn.append(_arrow(f"M{middle} {below + 4} v18 m-7 -7 l7 7 l7 -7"))
        drawn += _box("your agent receives", "call", got, PAD, below + 30, box, len(got))
        return drawn, below + 30 + HEAD + len(got) * LINE + PAD + 14
    tall = max(len(raw), len(got))
    drawn += _box("the model writes", "leak", raw, PAD, top, box, tall)
    drawn += _box("your agent receives", "call", got, PAD + box + GAP, top, box, tall)
    middle = top + (HEAD + tall * LINE + PAD) // 2
    drawn.append(_arrow(f"M{PAD + box + 9} {middle} h26 m-8 -8 l8 8 l-8 8"))
    return drawn, top + HEAD + tall * LINE + PAD + 14


def _arrow(path: str) -> str:
    return f'<path class="arrow" d="{path}"/>'


def _box(label: str, kind: str, lines: list[list[Run]], x: int, y: int, width: int, tall: int) -> Iterator[str]:
    yield f'<rect class="box {kind}" x="{x}" y="{y}" width="{width}" height="{HEAD + tall * LINE + PAD - 4}" rx="8"/>'
    yield f'<text class="label" x="{x + PAD}" y="{y + 22}">{escape(label)}</text>'
    for number, line in enumerate(lines):
        column = 0
        for kind_of_run, text in line:
            place = f'x="{x + PAD + column * ADVANCE:.1f}" y="{y + HEAD + 14 + number * LINE}"'
            # The length makes the letters fit whatever font the viewer has.
            yield f'<text class="{kind_of_run}" {place} textLength="{len(text) * ADVANCE:.1f}">{escape(text)}</text>'
            column += len(text)


def _marked(written: str) -> list[Run]:
    """The model's text, its markers apart."""
    runs: list[Run] = []
    at = 0
    for found in MARKER.finditer(written):
        runs += [("plain", written[at : found.start()]), ("marker", found.group())]
        at = found.end()
    return [*runs, ("plain", written[at:])]


def _received(label: str, value: str) -> list[Run]:
    return [("name", f"{label:<9}"), ("good" if label == "tool_use" else "plain", value)]


def _wrapped(runs: list[Run], columns: int) -> Iterator[list[Run]]:
    """Lines of at most so many letters; the text's own ends of lines count. A word that fits on a line is not broken."""
    line: list[Run] = []
    used = 0
    for kind, text in runs:
        whole = kind == "marker" or not any(map(str.isspace, text))
        if whole and columns - used < len(text) <= columns:
            yield line
            line, used = [], 0
        for number, part in enumerate(text.split("\n")):
            if number:
                yield line
                line, used = [], 0
            rest = part
            while rest:
                room = columns - used
                if room == 0:
                    yield line
                    line, used = [], 0
                    continue
                # Between words where there is a space, else wherever the line ends.
                cut = rest.rfind(" ", 0, room) + 1 if len(rest) > room else 0
                line.append((kind, rest[: cut or room]))
                used += len(rest[: cut or room])
                rest = rest[cut or room :]
                if rest and used < columns:
                    yield line
                    line, used = [], 0
    if line:
        yield line


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "demo.svg").write_text(picture(), encoding="utf-8")
    (FOLDER / "demo-narrow.svg").write_text(picture(narrow=True), encoding="utf-8")
