"""Every part that an answer can hold reaches every client, or is noted as a loss: streamed and whole alike."""

from __future__ import annotations

from typing import get_args

import pytest

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import AnswerLosses, EncodeContext
from athena.model.events import Done, Event, Finish, KeepAlive, Start, WholePart
from athena.model.events import Event as AnyEvent
from athena.model.parts import (
    Audio,
    Base64,
    Citation,
    Document,
    FileRef,
    Foreign,
    Image,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Video,
)
from athena.model.request import Request

MARK = "bm90aGluZw"
"""Stands in everything that a part says."""
PARTS: tuple[Part, ...] = (
    Text(text=MARK),
    Refusal(text=MARK),
    Thinking(text=MARK),
    Image(source=Base64("image/png", MARK)),
    Image(source=Url(f"https://e.org/{MARK}")),
    Image(source=FileRef(MARK)),
    Document(source=Base64("application/pdf", MARK)),
    Audio(source=Base64("audio/wav", MARK)),
    Audio(transcript=MARK),
    Audio(source=Url(f"https://e.org/{MARK}")),
    Video(source=Base64("video/mp4", MARK)),
    ToolCall(id="call_1", name="look", arguments=f'{{"x":"{MARK}"}}'),
    ToolResult(call_id="call_1", parts=(Text(text=MARK),)),
    Citation(url=f"https://e.org/{MARK}"),
    Citation(kind="page", quote=MARK),
    Foreign(kind="server_tool", dialect="nobody", raw={"x": MARK}),
)


def test_the_list_of_parts_is_whole() -> None:
    assert {type(part) for part in PARTS} == set(get_args(Part))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", dialect_names())
def test_a_part_is_shown_or_its_loss_is_noted(dialect: str, stream: bool) -> None:
    for part in PARTS:
        losses = AnswerLosses()
        request = Request(dialect=dialect, model="m", stream=stream)
        encoder = get_dialect(dialect).encoder(EncodeContext(request=request, losses=losses), stream=stream)
        events: list[Event] = [Start(), WholePart(part), Done(Finish())]
        shown = encoder.feed(events)
        assert MARK.encode() in shown or losses.found, f"{part} vanished"


@pytest.mark.parametrize("dialect", dialect_names())
def test_every_kind_of_event_is_taken(dialect: str) -> None:
    """`match` is closed by types; this is closed by the program itself."""
    assert KeepAlive in get_args(AnyEvent)
    request = Request(dialect=dialect, model="m", stream=True)
    encoder = get_dialect(dialect).encoder(EncodeContext(request=request), stream=True)
    encoder.feed([KeepAlive(), Start(), KeepAlive(), Done(Finish())])
