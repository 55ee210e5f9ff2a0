"""What a script of an upstream can do to answer one request, wherever its bytes go: over a socket, or straight into a test."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from copy import copy
from typing import Any
from urllib.parse import unquote

from support.upstream_speech import CONTROL, Speech


class Asked:
    """A request as an upstream sees it. Dialect and model are empty where the path is none of those that answer."""

    def __init__(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> None:
        self.method, self.path, self.headers, self.raw = method, path, headers, raw
        self.body: Any = json.loads(raw) if raw else None
        self.dialect, self.model, self.stream = _addressed(path, self.body)

    def without_content(self, model: str) -> Asked:
        """The request as one sees it who knows of the model no more than this, and nothing of what the client says."""
        bare = copy(self)
        bare.model, bare.path, bare.raw, bare.body = model, "", b"", None
        return bare


def _addressed(path: str, body: Any) -> tuple[str, str, bool]:
    bare = path.partition("?")[0]
    for suffix, dialect in (
        ("/v1/chat/completions", "openai_chat"),
        ("/v1/messages", "anthropic_messages"),
        ("/v1/responses", "openai_responses"),
    ):
        if bare == suffix:
            return dialect, str(body["model"]), bool(body.get("stream"))
    found = re.fullmatch(r"/v1(?:beta)?/models/(.+):(generateContent|streamGenerateContent)", bare)
    return ("gemini", unquote(found[1]), found[2].startswith("stream")) if found else ("", "", False)


class Talk(ABC):
    """One request and the connection to answer it on. When a script returns, its connection ends unless `keep` is set."""

    def __init__(self, asked: Asked, number: int) -> None:
        self.method, self.path, self.raw_body = asked.method, asked.path, asked.raw
        self.model, self.dialect, self.stream = asked.model, asked.dialect, asked.stream
        self.headers, self.body = asked.headers, asked.body
        self.number = number
        """How many requests for this very model came before."""
        self.keep = False
        self._chunked = False

    # -- what depends on where the bytes go --------------------------------------------------------------------------------

    @abstractmethod
    async def raw(self, data: bytes) -> None:
        """Bytes as they are."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Say nothing for a while."""

    @abstractmethod
    def reset(self) -> None:
        """Break the connection; the script returns next."""

    @abstractmethod
    def wait_for_test(self) -> None:
        """Let the test know that nothing more comes by itself."""

    @abstractmethod
    async def until_told(self) -> None:
        """Wait for the test."""

    @abstractmethod
    async def hold(self) -> None:
        """Keep the connection open until the client ends it."""

    # -- HTTP ----------------------------------------------------------------------------------------------------------------

    @property
    def speech(self) -> Speech:
        """The control answer."""
        return CONTROL[self.dialect]

    @property
    def kind(self) -> str:
        return "text/event-stream" if self.stream else "application/json"

    def head_bytes(self, status: str = "200 OK", *headers: str, kind: str | None = None, chunked: bool = True) -> bytes:
        """A status line and headers; a chunked body follows unless told otherwise."""
        lines = [f"HTTP/1.1 {status}"]
        if kind != "":
            lines.append(f"content-type: {kind or self.kind}")
        if chunked:
            lines.append("transfer-encoding: chunked")
        self._chunked = chunked
        return "\r\n".join([*lines, *headers]).encode("latin-1") + b"\r\n\r\n"

    def body_bytes(self, piece: bytes) -> bytes:
        """A piece of the body, as a chunk where the body is chunked."""
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece

    async def head(self, status: str = "200 OK", *headers: str, kind: str | None = None, chunked: bool = True) -> None:
        """A status line and headers, written."""
        await self.raw(self.head_bytes(status, *headers, kind=kind, chunked=chunked))

    async def send(self, *pieces: bytes) -> None:
        """Body bytes, each piece a chunk and a write of its own."""
        for piece in pieces:
            await self.raw(self.body_bytes(piece))

    async def at_once(self, *pieces: bytes, head: bool = True, end: bool = False) -> None:
        """A head, body bytes and perhaps the end in a single write: no limit can end between them, however slow the machine."""
        data = (self.head_bytes() if head else b"") + b"".join(map(self.body_bytes, pieces))
        if end:
            data += b"0\r\n\r\n"
            self.keep = True
        await self.raw(data)

    async def begin(self, frames: int) -> None:
        """The head and the first frames of the control answer's stream; of a whole answer its first half."""
        speech = self.speech
        await self.at_once(*(speech.frames[:frames] if self.stream else [speech.whole[: len(speech.whole) // 2]]))

    async def end(self) -> None:
        """The body ends well, the connection can be used again."""
        if self._chunked:
            await self.raw(b"0\r\n\r\n")
            self.keep = True

    async def whole(self, body: bytes, status: str = "200 OK", *headers: str, kind: str = "application/json") -> None:
        """A complete answer with its length."""
        await self.head(status, f"content-length: {len(body)}", *headers, kind=kind, chunked=False)
        await self.raw(body)
        self.keep = True

    async def control(self, *headers: str) -> None:
        """The healthy answer."""
        await self.say(self.speech.frames, self.speech.whole, *headers)

    async def say(self, frames: tuple[bytes, ...] | list[bytes], whole: bytes, *headers: str) -> None:
        """A healthy answer with these frames, or this body."""
        if self.stream:
            await self.head("200 OK", *headers)
            await self.send(*frames)
            await self.end()
        else:
            await self.whole(whole, "200 OK", *headers)
