"""Prompted tools: teaching and reading, beside the figures source system C publishes for its Go library.

Its figures are absolute and from another machine; they stand here for the order of magnitude. Ours are CPU time of this run.

    python -m benchmarks.prompted
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial

from athena.formats.machine.value_types import ToolBook
from athena.model.events import Done, Event, Finish, TextDelta
from athena.model.parts import Text
from athena.model.request import Request, Tool, Turn
from athena.prompted import Plan, PromptedOptions, PromptedStage, render_request
from athena.prompted.scanner import JsonReader
from benchmarks.timing import best_ns

CALL = '{"name": "tool_0", "parameters": {"city": "Paris", "days": 3, "units": "metric"}}'
PLAIN = "The weather in Paris is sunny today, with light winds from the west and a high of twenty degrees. " * 5
MIXED = f"Let me look that up for you.\n\n```json\n[{CALL}, {CALL}]\n```\n\nOne moment, please [1] {{ok}}."
PUBLISHED = {
    "request, 1 tool": 1.75,
    "request, 50 tools": 81.6,
    "answer, plain text": 0.24,
    "answer, mixed": 21.6,
}
"""Microseconds, as its documents claim (`requirements.md` 1.3)."""


def tools(count: int) -> tuple[Tool, ...]:
    """Tools of the usual size."""
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city to look up"},
            "days": {"type": "integer", "description": "How many days ahead"},
            "units": {"type": "string", "enum": ["metric", "imperial"]},
        },
        "required": ["city"],
    }
    return tuple(Tool(name=f"tool_{index}", description="Get the weather for a city", schema=schema) for index in range(count))


def read(pieces: list[str], plan: Plan, options: PromptedOptions) -> list[Event]:
    """One answer, from its first piece to its end."""
    stage = PromptedStage(options, plan, seed="s")
    events: list[Event] = []
    for piece in pieces:
        events += stage.feed([TextDelta(piece)])
    return events + stage.feed([Done(Finish())])


def main() -> None:
    """Measure and print."""
    options = PromptedOptions(policy="allow_mixed")
    plan = Plan(tools(10))
    user = Turn(role="user", parts=(Text(text="What is the weather in Paris?"),))
    requests = {
        f"request, {count} tool{'s' if count > 1 else ''}": Request(
            dialect="openai_chat", model="m", tools=tools(count), turns=(user,)
        )
        for count in (1, 10, 50)
    }
    work: dict[str, Callable[[], object]] = {
        name: partial(render_request, request, options) for name, request in requests.items()
    }
    answers = {"answer, plain text": PLAIN, "answer, one call": f"[{CALL}]", "answer, mixed": MIXED}
    work |= {name: partial(read, [text], plan, options) for name, text in answers.items()}
    print(f"{'per request or answer':<34}{'us':>10}{'published':>12}")
    for name, value in best_ns(work, per=1, rounds=5).items():
        print(f"  {name:<32}{value / 1000:>10.2f}{PUBLISHED.get(name, float('nan')):>12.2f}")

    words = [word + " " for word in (PLAIN * 20).split(" ")]
    letters = list(f"[{CALL}]" * 20)
    streams: dict[str, Callable[[], object]] = {
        "chunk of plain text": partial(read, words, plan, options),
        "chunk of one character of JSON": partial(read, letters, plan, options),
    }
    counts = {"chunk of plain text": len(words), "chunk of one character of JSON": len(letters)}
    print(f"\n{'per streamed chunk':<34}{'us':>10}")
    for name, function in streams.items():
        value = best_ns({name: function}, per=counts[name], rounds=5)[name]
        print(f"  {name:<32}{value / 1000:>10.2f}")

    print(f"\n{'growth, one call with a long string':<38}{'ms':>10}{'ns per byte':>14}")
    for megabytes in (1, 2, 5, 10):
        text = json.dumps([{"name": "tool_0", "parameters": {"city": "x\n" * (megabytes * 500_000)}}])
        best = float("inf")
        for _ in range(3):
            reader = JsonReader(ToolBook(plan.tools))
            start = time.process_time()
            for at in range(0, len(text), 4096):
                reader.feed(text[at : at + 4096])
            reader.close(ended_well=True)
            best = min(best, time.process_time() - start)
        print(f"  {megabytes:>3} MB{'':<29}{best * 1000:>10.1f}{best * 1e9 / len(text):>14.2f}")


if __name__ == "__main__":
    main()
