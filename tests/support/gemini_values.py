"""Values that the tests of Gemini's requests and of its answers share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest
from google import genai
from google.genai import types as genai_types

from athena.dialects.base import EncodeContext
from athena.dialects.gemini import DIALECT
from athena.model.events import (
    Event,
)
from athena.model.parts import (
    Part,
)
from athena.model.request import Request, Turn
from support.scripted_upstream import ScriptedUpstream
from support.upstream_talk import Talk


class Stage(ScriptedUpstream):
    """One scripted answer after another; the requests are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[int, str, bytes]] = []

    @cached_property
    def client(self) -> genai.Client:
        return genai.Client(api_key="test", http_options=genai_types.HttpOptions(base_url=self.url))

    def will_say(self, body: bytes, *, status: int = 200, kind: str = "text/event-stream") -> None:
        self.answers.append((status, kind, body))

    def stream(self) -> list[genai_types.GenerateContentResponse]:
        return list(self.client.models.generate_content_stream(model="m", contents="Hi"))

    async def answer(self, talk: Talk) -> None:
        status, kind, body = self.answers.pop(0)
        await talk.whole(body, f"{status} X", kind=kind)

    answer_elsewhere = answer


@pytest.fixture(scope="module")
def served() -> Iterator[Stage]:
    with Stage() as running:
        yield running


@pytest.fixture
def stage(served: Stage) -> Stage:
    served.answers.clear()
    served.forget()
    return served


REQUEST = Request(dialect="gemini", model="gemini-x", stream=True)


def encoded(events: list[Event], *, stream: bool = True, **context: Any) -> bytes:
    encoder = DIALECT.encoder(EncodeContext(request=REQUEST, seed="seed", **context), stream=stream)
    return b"".join(encoder.feed([event]) for event in events)


def decode(body: dict[str, Any], **options: Any) -> Request:
    return DIALECT.decode_request(body, model=options.pop("model", "m"), **options)


def said(role: Any, *parts: Part) -> Turn:
    return Turn(role=role, parts=parts)
