"""Requests that are served without sockets and recorded: of every dialect, with the answers that a test gives."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec

from athena.dialects import get_dialect
from athena.errors import UpstreamClosed
from athena.model.request import Kept
from athena.opaque import OpaqueStore
from athena.recording import file, lines
from athena.recording.room import Room
from athena.recording.tap import RecordingTap
from athena.serving.actions import Send
from athena.serving.holding import RequestMemory
from athena.serving.record import RequestRecord
from athena.serving.serving import Serving, ServingState
from support.cases import case_bytes, dialect_cases
from support.serving_values import House, next_send

KEY = b"k" * 32
"""What redaction draws its words with."""
QUERY = "alt=sse&key=sk-client-445566"
DIALECTS = ("anthropic_messages", "openai_chat", "openai_responses", "gemini")
CONFIG: dict[str, Any] = {
    "upstreams": {
        dialect: {"base_url": "http://127.0.0.1:1/v1", "dialect": dialect, "api_key": "sk-upstream-7788990011"}
        for dialect in DIALECTS
    },
    "models": [
        {"match": "either", "use": "gemini/m", "fallback": ["openai_chat/learnt"]},
        *({"match": f"{dialect}/*", "use": f"{dialect}/*"} for dialect in DIALECTS),
    ],
    "retries": {"attempts": 1, "share": 1},
}
PATHS = {"anthropic_messages": "/v1/messages", "openai_chat": "/v1/chat/completions", "openai_responses": "/v1/responses"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
PLAIN = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    b'{"content":"words "},"finish_reason":null}]}\n\n'
)
"""A stream of Chat."""


class Keeper:
    """A watcher that keeps the taps of all requests."""

    def __init__(self) -> None:
        self.taps: list[RecordingTap] = []

    def wants_bodies(self) -> bool:
        return True

    def watch(self, record: RequestRecord, request: Any, key: str | None) -> RecordingTap:
        return RecordingTap(record, key, Room(1 << 30), self.taps.append, version="test")


class Recorded:
    """A house in which every request is recorded."""

    def __init__(self, *models: dict[str, Any]) -> None:
        """`models` are rules that stand before the usual ones."""
        self.keeper = Keeper()
        self.house = House({**CONFIG, "models": [*models, *CONFIG["models"]]}, self.keeper)
        self.house.shared._store = OpaqueStore(64)
        self._numbers = itertools.count(1)

    def serve(
        self, client: str, model: str, *answers: tuple[int, list[bytes]], stream: bool = True, **more: Any
    ) -> lines.Recording:
        """Serve a request whose attempts get these answers: a status, and the reads of the body; 0: the connection broke."""
        serving, now = self.begin(client, model, stream=stream, **more), self.house.now + 0.25
        for status, reads in answers:
            action = next_send(serving, now)
            if not isinstance(action, Send):
                break
            serving.sending(now)
            if not status:
                serving.failed(UpstreamClosed("the connection broke", code="upstream_closed"), now + 0.1)
                continue
            kind = "text/event-stream" if stream and status == 200 else "application/json"
            serving.head(status, {"content-type": kind, "set-cookie": "id=sk-cookie-112233"}, now + 0.1)
            for number, data in enumerate(reads):
                if serving.state is ServingState.READING:
                    serving.data(data, now + 0.1 + number / 64)
            if serving.state is ServingState.READING:
                serving.end(None, now + 1)
        if serving.state is not ServingState.OVER and isinstance(next_send(serving, now + 5), Send):
            serving.stop("client_closed", now + 6)
        serving.close(now + 2)
        (recording,) = file.decode(file.encode(self.keeper.taps[-1].made(())))
        return recording

    def begin(
        self,
        client: str,
        model: str,
        *,
        stream: bool = True,
        text: str = "Weather?",
        query: str = QUERY,
        kept: Kept | None = None,
        asked: dict[str, Any] | None = None,
        **headers: str,
    ) -> Serving:
        """`asked` is the body of the request, where it is not the usual question."""
        dialect = get_dialect(client)
        body = asked if asked is not None else question(client, model, text, stream=stream)
        raw = json.dumps(body, ensure_ascii=False).encode()
        verb = "streamGenerateContent" if stream else "generateContent"
        path = PATHS.get(client, f"/v1beta/models/{model}:{verb}")
        request = dialect.decode_request(
            body, model=model if client == "gemini" else None, stream=stream if client == "gemini" else None, version=None
        )
        request = msgspec.structs.replace(request, kept=kept)
        return Serving(
            self.house.shared,
            request,
            self.house.targets.of(request.model),
            RequestRecord(request_id=f"req_{next(self._numbers)}", dialect=client, model=request.model, stream=request.stream),
            RequestMemory(self.house.memory),
            headers={"user-agent": "claude-cli/2.1 (x)", "authorization": "Bearer sk-client-445566", **headers},
            key="sk-client-445566",
            array=False,
            now=self.house.now,
            body=raw,
            path=path,
            query=query,
        )


def question(client: str, model: str, text: str, *, stream: bool) -> dict[str, Any]:
    tool = {"name": "get_weather", "description": f"Of {text}"}
    match client:
        case "anthropic_messages":
            return {"model": model, "max_tokens": 100, "stream": stream, "system": text,
                    "messages": [{"role": "user", "content": text}], "tools": [{**tool, "input_schema": SCHEMA}]}  # fmt: skip
        case "openai_chat":
            return {"model": model, "stream": stream,
                    "messages": [{"role": "system", "content": text}, {"role": "user", "content": text}],
                    "tools": [{"type": "function", "function": {**tool, "parameters": SCHEMA}}]}  # fmt: skip
        case "openai_responses":
            return {"model": model, "stream": stream, "instructions": text, "input": [{"role": "user", "content": text}],
                    "tools": [{"type": "function", **tool, "parameters": SCHEMA}]}  # fmt: skip
        case _:
            return {"contents": [{"role": "user", "parts": [{"text": text}]}],
                    "tools": [{"functionDeclarations": [{**tool, "parameters": SCHEMA}]}]}  # fmt: skip


def answers(dialect: str) -> Iterator[tuple[str, bytes, bytes]]:
    """The answers of a dialect's case file: name, stream, whole."""
    for case in dialect_cases(dialect).answer:
        if case.stream and case.whole:
            yield case.name, case_bytes(case, "stream"), case_bytes(case, "whole")


def cut(data: bytes, seed: int) -> list[bytes]:
    dice = random.Random(seed)
    pieces, at = [], 0
    while at < len(data):
        size = dice.choice((3, 40, 200, 900))
        pieces.append(data[at : at + size])
        at += size
    return pieces
