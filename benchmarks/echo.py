"""The echo guard: what it costs while nothing is found, when a call is found, and at worst.

The histories are made of what agents carry around: listings, code, logs, JSON, web pages, prose that names the tools. The call
is one of the model's own, so all of the history is searched in vain. The limits that the guard keeps are 0.1 microseconds for
a chunk of plain text and 2 milliseconds for each MiB of history.

    python -m benchmarks.echo
"""

from __future__ import annotations

import html
import json
import random
import time
from collections.abc import Callable
from functools import partial

from athena.formats.machine.echo import EchoGuard, Passage
from athena.formats.machine.stage import FormatOptions, FormatStage
from athena.model.events import Event, TextDelta
from athena.model.request import Tool
from benchmarks.timing import best_ns

MIB = 1024 * 1024
NAMES = ("Bash", "Read", "search", "write_file", "get_weather")
TOOLS = tuple(
    Tool(name=name, description=f"{name} does it.", schema={"type": "object", "properties": {"path": {"type": "string"}}})
    for name in NAMES
)
SENTENCES = """
The gateway keeps its connections open until every stream has ended, because a result must never be lost or sent twice.
A reader that waits has met the end of the text. What it took is put back, and another format may have it.
Each worker counts for itself; the numbers are added when somebody asks for them, and a process that died keeps its place.
Limits are bounds of buffers. Crossing one is an error that names it, and nothing grows instead.
When the upstream says that it is busy, the answer says so too, with the time to wait, and the client decides what to do.
"""
WORDS = SENTENCES.split()
CALL = '<tool_call>\n{"name": "Read", "arguments": {"path": "src/gateway/connections.py"}}\n</tool_call>'
MARKUP, ARGUMENTS = CALL, '{"path": "src/gateway/connections.py"}'
OTHER = '<tool_call>\n{"name": "Read", "arguments": {"path": "src/other.py"}}\n</tool_call>\n'

Piece = Callable[[random.Random], str]


def prose(chance: random.Random) -> str:
    """Sentences; every second KiB of them names a tool."""
    text = " ".join(chance.choice(WORDS) for _ in range(170))
    return f"{text} and the tool {chance.choice(NAMES)} was called again.\n" if chance.randrange(2) else text + ".\n"


def code(chance: random.Random) -> str:
    """Lines of a program."""
    name = chance.choice(WORDS).strip(".,;").lower()
    text = f'    def {name}_{chance.randrange(99)}(self, path: str) -> int:\n        return self.{name}("{name}", path)[{{}}]\n'
    return text * 12 + f'    tools["{chance.choice(NAMES)}"] = {name}\n'


def listing(chance: random.Random) -> str:
    """What `ls -l` and `grep` print."""
    return "".join(
        f"-rw-r--r-- 1 u u {chance.randrange(9999)} src/{chance.choice(WORDS)}/{chance.choice(WORDS)}.py:{n}: x = {n}\n"
        for n in range(5)
    )


def records(chance: random.Random) -> str:
    """JSON of an interface, as a string in JSON."""
    rows = [
        {
            "id": chance.randrange(10**6),
            "name": chance.choice(WORDS),
            "type": "search",
            "title": f"é {chance.choice(WORDS)} <b>",
        }
        for _ in range(5)
    ]
    return json.dumps({"stdout": json.dumps(rows), "ok": True}) + "\n"


def page(chance: random.Random) -> str:
    """A web page."""
    lines = []
    for number in range(4):
        words = html.escape(" ".join(chance.choices(WORDS, k=20)))
        lines.append(f'<a class="link" href="/x?q=search&amp;n={number}">{words}</a>\n<p>{words}&#39;s</p>\n')
    return "".join(lines)


def letters(chance: random.Random) -> str:
    """Prose beyond ASCII."""
    return "Überprüfung der Verbindungen für größere Ströme – „alles in Ordnung“. 東京の天気は晴れ。 " + prose(chance)


def history(size: int, *pieces: Piece, every: int = 16 * 1024) -> list[Passage]:
    """Passages of `every` characters each, `size` characters in all; each passage is of one kind, as results of tools are."""
    chance = random.Random(7)
    passages: list[Passage] = []
    for number in range(size // every):
        text: list[str] = []
        length = 0
        while length < every:
            text.append(pieces[number % len(pieces)](chance))
            length += len(text[-1])
        passages.append(Passage("".join(text)[:every]))
    return passages


def ask(passages: list[Passage]) -> bool:
    """One call of the model's own, with a guard of its own."""
    guard = EchoGuard(lambda: passages, tools=TOOLS)
    return guard.suspects("Read", MARKUP) and guard.quotes("Read", ARGUMENTS, MARKUP)


def plain_chunks(guard: EchoGuard | None, chunks: list[Event]) -> FormatStage:
    """An answer of plain text, chunk by chunk."""
    stage = FormatStage(FormatOptions("hermes"), tools=TOOLS, guard=guard)
    for chunk in chunks:
        stage.feed([chunk])
    return stage


def main() -> None:
    """Measure and print."""
    chunks: list[Event] = [TextDelta(f" {word}") for word in WORDS * 100]
    guard = EchoGuard(lambda: history(MIB, prose), tools=TOOLS)
    plain_chunks(None, chunks[:1])
    found = best_ns(
        {"without": partial(plain_chunks, None, chunks), "with": partial(plain_chunks, guard, chunks)},
        per=len(chunks),
        rounds=15,
    )
    print(f"{'a chunk of plain text':<44}{'ns':>10}")
    for name, value in found.items():
        print(f"  {name + ' a guard':<42}{value:>10.1f}")
    print(f"  {'difference':<42}{found['with'] - found['without']:>10.1f}   limit 100")

    everything = (prose, code, listing, records, page, letters)
    kinds: dict[str, tuple[Piece, ...]] = {
        "all of it": everything, "prose": (prose,), "code": (code,), "listings": (listing,), "JSON in JSON": (records,),
        "web pages": (page,), "beyond ASCII": (letters,),
    }  # fmt: skip
    print(f"\n{'a call of the model itself, 1 MiB of history':<44}{'ms':>10}")
    text = "".join(passage.text for passage in history(MIB, *everything)) + "é"
    value = best_ns({"": partial(text.find, "get_forecast")}, per=1, rounds=9)[""]
    print(f"  {'for comparison: str.find of one word':<42}{value / 1e6:>10.2f}")
    for name, pieces in kinds.items():
        passages = history(MIB, *pieces)
        value = best_ns({name: partial(ask, passages)}, per=1, rounds=9)[name]
        print(f"  {name:<42}{value / 1e6:>10.2f}   limit 2")
    print(f"\n{'the same by size, all of it':<44}{'ms':>10}{'ms per MiB':>14}")
    for mebibytes in (1, 4, 16):
        passages = history(mebibytes * MIB, *everything)
        value = best_ns({"": partial(ask, passages)}, per=1, rounds=3)[""]
        print(f"  {mebibytes:>3} MiB{'':<35}{value / 1e6:>10.2f}{value / 1e6 / mebibytes:>14.2f}")

    hostile = {
        "a quotation in 1 MiB": [*history(MIB, *everything), Passage(f"page: {CALL}")],
        "1 MiB of markup of the same tool": [Passage(OTHER * (MIB // len(OTHER)))],
        "1 MiB of markup with the same words": [Passage(CALL.replace("src", "src2") * (MIB // len(CALL)))],
        "1 MiB of prose about the tool": [Passage("we Read each of them and Read it again. " * (MIB // 40))],
        "1 MiB of the tool's name": [Passage('"name": "Read" ' * (MIB // 15))],
        "1 MiB of escaped letters": [Passage("\\u0041" * (MIB // 6))],
        "16 MiB of all of these": [
            Passage((OTHER + '"name": "Read" ' * 20 + "\\u0041" * 20 + CALL.replace("src", "src2")) * (16 * MIB // 800))
        ],
    }
    print(f"\n{'at worst':<44}{'ms':>10}")
    for name, passages in hostile.items():
        start = time.process_time()
        ask(passages)
        print(f"  {name:<42}{(time.process_time() - start) * 1e3:>10.2f}")


if __name__ == "__main__":
    main()
