"""Secrets of many kinds, in many writings and in every place: none of them can be read in a redacted recording, which gives the
same events as before."""

from __future__ import annotations

import functools
import json
import random

import pytest

from athena.formats import format_names, get_format
from athena.model.parts import ToolCall
from athena.recording import file
from athena.recording.compare import difference
from athena.recording.lines import Read, Recording
from athena.recording.redact import redacted
from athena.recording.replay import replay
from athena.recording.shapes import still_reproduces
from athena.wire.surrogates import encode_json
from formats.case_files import case_files, load
from support.planted_secrets import Planter, pieces, planted_answer, planted_request, surviving
from support.recorded import DIALECTS, Recorded, cut


@functools.cache
def _world() -> Recorded:
    """One for all tests: to read every format takes seconds."""
    return Recorded(
        *({"match": f"format/{name}", "use": "openai_chat/m", "format": name} for name in format_names()),
        {"match": "prompted", "use": "openai_chat/m", "tools": "prompted"},
    )


def _told(recording: Recording) -> str:
    """All that a reader finds in the file: its text, the streams without their cuts, and what the events say together."""
    fields = [(name, getattr(event, name, None)) for event in replay(recording).events for name in ("text", "arguments")]
    said = ["".join(value or "" for name, value in fields if name == wanted) for wanted in ("text", "arguments")]
    streams = recording.upstream_bytes + b"\n" + recording.client_bytes
    return "\n".join([file.encode(recording).decode(), streams.decode("utf-8", "replace"), *said])


def _is_clean(recording: Recording, plant: Planter, seed: int) -> None:
    clean = redacted(recording, random.Random(seed).randbytes(32))
    assert surviving(_told(clean), plant.planted) == []
    assert still_reproduces(clean), clean.header.notes
    assert difference(clean, replay(clean)).differences == []
    reads = [[len(line.body.data) for line in each.happened if isinstance(line, Read)] for each in (recording, clean)]
    assert reads[0] == reads[1]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream", DIALECTS)
def test_nothing_is_left_of_secrets_in_any_place(upstream: str, stream: bool) -> None:
    """Requests with images, files, calls, results and schemas; answers with reasoning, calls and the tokens of their text."""
    world = Recorded()
    for number, client in enumerate(DIALECTS):
        plant = Planter(DIALECTS.index(upstream) * 8 + number * 2 + stream)
        answer = planted_answer(plant, stream=stream)
        if upstream != "openai_chat":
            answer = Recorded().serve(upstream, "openai_chat/m", (200, [answer]), stream=stream).client_bytes
        recording = world.serve(
            client,
            f"{upstream}/m",
            (200, cut(answer, number)),
            stream=stream,
            asked=planted_request(client, f"{upstream}/m", plant, stream=stream),
            **{
                "x-note": plant.at("header"),
                "x-session-id": plant.at("session", written=False)[:100],
                "anthropic-beta": plant.identifier("beta"),
                "content-type": f"application/{plant.identifier('type of content')}",
                "user-agent": f"{plant.identifier('program')}/1.2",
            },
        )
        assert len(plant.planted) > 60
        assert len({place for place, *_ in surviving(_told(recording), plant.planted)}) > 30, "the search finds what is there"
        _is_clean(recording, plant, number)


@pytest.mark.parametrize("number", range(4))
def test_nothing_is_left_of_secrets_in_calls_as_text(number: int) -> None:
    world = _world()
    for place, name in enumerate([*format_names(), "prompted"]):
        if place % 4 != number:
            continue
        plant = Planter(1000 + place)
        arguments = [
            {"city": plant.at("text"), "days": 3, "note": plant.at("note")},
            {"city": plant.at("second text"), "days": plant.number("days"),
             "deep": {"x": [1, 2, plant.number("listed")], "g": -3e5, "y": 1.5e-7,
                      plant.at("key", written=False): plant.at("deep")}},
        ]  # fmt: skip
        calls = [ToolCall(id=f"functions.get_weather:{at}", name="get_weather", arguments=json.dumps(each))
                 for at, each in enumerate(arguments)]  # fmt: skip
        written = get_format("hermes" if name == "prompted" else name).render_calls(calls)
        stream, client = bool(place % 2), DIALECTS[place // 2 % 4]
        answer = planted_answer(plant, stream=stream, content=f"I look {plant.at('before', written=False)}.\n{written}")
        model = name if name == "prompted" else f"format/{name}"
        recording = world.serve(client, model, (200, cut(answer, place)), stream=stream, text=plant.at("prompt"))
        assert any(type(event).__name__ == "ToolCallComplete" for event in replay(recording).events), name
        _is_clean(recording, plant, place)


DAMAGED = ("mistral_args", "ARGS missing, blanks around the name, the token's bracket missing")
"""A marker and a name without anything between them are one word, which is replaced. The recording says so."""


@pytest.mark.parametrize("number", range(4))
def test_calls_of_every_format_stay_themselves_when_redacted(number: int) -> None:
    names, world = format_names(), _world()
    unlike, tried = [], 0
    for path in case_files():
        for at, case in enumerate(load(path).case if path.stem in names else []):
            if at % 4 != number or not case.text or len(case.text) > 5000:
                continue
            records = [{"content": piece} for piece in pieces(case.text, random.Random(at))]
            chunks = [{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                       "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in records]  # fmt: skip
            body = b"".join(b"data: " + encode_json(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
            recording = world.serve(DIALECTS[tried % 4], f"format/{path.stem}", (200, cut(body, at)))
            clean = redacted(recording, random.Random(at).randbytes(32))
            tried += 1
            if not still_reproduces(clean) and (path.stem, case.name) != DAMAGED:
                unlike.append((path.stem, case.name, clean.header.notes))
    assert tried > 200
    assert unlike == []
