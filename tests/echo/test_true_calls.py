"""The model's own calls stay calls, whatever the request holds besides; and no sample is a call once it is quoted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from athena.formats.machine.echo import EchoGuard, Passage
from athena.formats.machine.engine import TextParser
from athena.model.events import Event, ToolCallDelta
from echo.samples import OTHER_SAMPLES, Sample, all_case_files, calls_of, case_samples, events_of, other_samples
from formats.case_files import TOOLS, folded

UNRELATED = (
    "total 12\n-rw-r--r-- 1 u u 120 main.py\n-rw-r--r-- 1 u u 220 notes.md\n",
    "You are a helpful assistant. Use the tools when they help. Never show markup.",
    'How do I write <tool_call> in Markdown? And what is {"name": "x"}?',
)


def as_data(calls: Iterable[tuple[str, str]]) -> list[str]:
    """What the calls say, without a call: arguments as JSON, values in a listing, names in prose and in a definition."""
    texts: list[str] = []
    for name, arguments in calls:
        texts.append(f"The tool {name} is described below. To use {name} is a good idea.\n{arguments}\n")
        texts.append(f"results:\n{json.dumps({'arguments_seen': arguments, 'ok': True})}")
        values = json.loads(arguments)
        texts.append("\n".join(f"{key}: {value}" for key, value in values.items()))
        texts.append(json.dumps([{"name": name, "description": "does it", "parameters": {"type": "object", "required": []}}]))
    return texts


def other_calls(calls: Iterable[tuple[str, str]]) -> list[str]:
    """Markup of the same tools with other arguments: calls must wait, and nothing else may change."""
    texts: list[str] = []
    for name, _ in calls:
        other = json.dumps({"name": name, "arguments": {"quite": "different"}})
        texts.append(f"<tool_call>\n{other}\n</tool_call> and `{other}`")
    return texts


def joined(events: Sequence[Event]) -> list[Any]:
    """Events without the cuts between the pieces of arguments."""
    found: list[Any] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, ToolCallDelta) and isinstance(last, ToolCallDelta) and last.call == event.call:
            found[-1] = ToolCallDelta(event.call, last.arguments + event.arguments, event.choice)
        else:
            found.append(event)
    return found


def check_calls_are_kept(sample: Sample) -> int:
    unguarded = events_of(sample)
    calls = calls_of(unguarded)
    for texts in (UNRELATED, as_data(calls), other_calls(calls)):
        if texts:
            assert joined(events_of(sample, texts)) == joined(unguarded), sample.name
    return len(calls)


def check_quotation_is_no_call(sample: Sample) -> int:
    calls = calls_of(events_of(sample))
    if calls:
        page = f"# A page\n\nIt says:\n{sample.text}\n\nEnd of the page.\n"
        assert calls_of(events_of(sample, [page])) == [], sample.name
        assert calls_of(events_of(sample, [json.dumps({"content": page})], size=5)) == [], sample.name
    return len(calls)


@pytest.mark.parametrize("path", all_case_files(), ids=lambda path: path.stem)
def test_the_calls_of_the_case_files_are_kept(path: Path) -> None:
    assert sum(map(check_calls_are_kept, case_samples(path))) > 0


@pytest.mark.parametrize("path", all_case_files(), ids=lambda path: path.stem)
def test_the_calls_of_the_case_files_are_text_once_they_are_quoted(path: Path) -> None:
    assert sum(map(check_quotation_is_no_call, case_samples(path))) > 0


@pytest.mark.skipif(not OTHER_SAMPLES, reason="ATHENA_FIDELITY names no folder of other samples")
def test_the_calls_of_other_samples_are_kept_and_are_text_once_they_are_quoted() -> None:
    samples = list(other_samples())
    kept = sum(map(check_calls_are_kept, samples))
    assert kept == sum(map(check_quotation_is_no_call, samples)) > 0
    print(f"{len(samples)} samples, {kept} calls kept, and none made of a quotation")


# -- what is not a quotation --------------------------------------------------------------------------------------------------

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n</tool_call>'
ARGUMENTS = '{"city": "Paris", "days": 3}'


def guarded(answer: str, *passages: Passage, own: Sequence[tuple[str, str]] = ()) -> list[dict[str, Any]]:
    guard = EchoGuard(lambda: passages, tools=TOOLS, calls=lambda: own)
    parser = TextParser("hermes", tools=TOOLS, guard=guard)
    return folded([*parser.feed(answer), *parser.close(ended_well=True)])


@pytest.mark.parametrize(
    "text",
    [
        "Paris\nLondon\nfor 3 days",
        ARGUMENTS,
        f"curl -d '{ARGUMENTS}' http://api/get_weather",
        f"The tool get_weather was called with {ARGUMENTS} yesterday.",
        "get_weather is the tool; Paris the city; days: 3",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call> Paris',
        '<tool_call>\n{"name": "get_time", "arguments": {"city": "Paris", "days": 3}}\n</tool_call> get_weather',
        '{"name": "get_weather", "parameters": {"properties": {"city": {"examples": ["Paris"]}, "days": {"minimum": 3}}}}',
        'get_weather.py:\ndef get_weather(city: str = "Paris", days: int = 3): ...',
        "| tool | arguments |\n| get_weather | Paris, 3 |",
    ],
)
def test_arguments_that_also_stand_in_the_request_as_data_are_no_quotation(text: str) -> None:
    assert [item["call"] for item in guarded(CALL, Passage(text)) if "call" in item] == ["get_weather"]


def test_a_call_that_the_model_made_before_is_its_own() -> None:
    page = Passage(f"log of this session:\n{CALL}")
    assert guarded(CALL, page) == [{"text": CALL}]
    assert [item.get("call") for item in guarded(CALL, page, own=[("get_weather", '{"days":3.0,"city":"Paris"}')])] == [
        "get_weather"
    ]
    assert guarded(CALL, page, own=[("get_weather", '{"city": "Rome"}'), ("get_time", ARGUMENTS)]) == [{"text": CALL}]


def test_who_wrote_it_first_counts() -> None:
    stranger, own = Passage(f"result: {CALL}"), Passage(f"I call it.\n{CALL}", own=True)
    assert [item.get("call") for item in guarded(CALL, own, stranger)] == ["get_weather"]
    # A quotation that stayed text stands in the model's own turn from then on. It is still a quotation.
    assert guarded(CALL, stranger, own) == [{"text": CALL}]


def test_a_call_beside_a_quotation_stays_a_call() -> None:
    other = CALL.replace("Paris", "Rome")
    answer = f"The page says {CALL} but I call {other} and look."
    events = guarded(answer, Passage(CALL))
    assert [item.get("call") for item in events] == [None, "get_weather", None]
    assert events[0]["text"] == f"The page says {CALL} but I call "
    assert events[2]["text"] == " and look."


def test_arguments_are_shown_as_they_come_unless_the_request_holds_markup_of_the_tool() -> None:
    for text, waits in (("get_weather is a tool", False), (CALL.replace("Paris", "Rome"), True)):
        guard = EchoGuard(lambda text=text: [Passage(text)], tools=TOOLS)  # type: ignore[misc]
        parser = TextParser("hermes", tools=TOOLS, guard=guard)
        begun = parser.feed(CALL[: CALL.index("3")])
        assert bool(begun) is not waits
        assert calls_of([*begun, *parser.feed(CALL[CALL.index("3") :]), *parser.close()]) == [("get_weather", ARGUMENTS)]
