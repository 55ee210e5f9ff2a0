"""The demo upstream on a real loopback socket, so that a newcomer's first request takes the same path as every later one.

The scripted model of `demo` answers in the Chat dialect; the models of `demo_models` answer in all four, under the same port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from athena.shells.demo import MODEL, PROMPTED_MODEL, demo_answer, demo_refusal
from athena.shells.demo_models import MODELS, PLANTED, DemoModel

_BODY_LIMIT = 32 * 1024 * 1024
_PAUSE = 0.01
"""Seconds between two pieces of a stream: fast enough to watch, slow enough to see it stream."""


_PATHS = {
    "/chat/completions": "openai_chat",
    "/responses": "openai_responses",
    "/messages": "anthropic_messages",
}


class DemoServer:
    """Serves the scripted model in the Chat dialect, and the models with planted faults in all of them."""

    def __init__(self, pause: float = _PAUSE, planted: Mapping[str, float] | None = None, seed: int = 0) -> None:
        """`planted`: what the model `demo-planted` does wrong how often, by the classes of `athena.quality`."""
        self._pause = pause
        rows = {**MODELS, PLANTED: planted} if planted is not None else MODELS
        self._models = {name: DemoModel(name, faults, seed) for name, faults in rows.items()}
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, port: int = 0) -> None:
        """Listen on a loopback port; 0 takes a free one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (item.partition(":") for item in rest) if name}
        length = int(headers.get("content-length") or 0)
        if length > _BODY_LIMIT:
            return False
        body = await reader.readexactly(length)
        method, path, *_ = [*line.split(" "), "", ""]
        if method == "GET" and path.endswith("/models"):
            data = [
                {"id": name, "object": "model", "created": 0, "owned_by": "athena"}
                for name in (MODEL, PROMPTED_MODEL, *self._models)
            ]
            await self._whole(writer, 200, {"object": "list", "data": data})
        elif method == "POST" and (asked := self._asked(path, body)) is not None:
            return await self._planted(writer, *asked)
        elif method == "POST" and path.endswith("/chat/completions"):
            await self._chat(writer, body)
        else:
            await self._whole(writer, 404, {"error": {"message": f"no such path: {path}", "type": "invalid_request_error"}})
        return True

    def _asked(self, path: str, body: bytes) -> tuple[DemoModel, str, dict[str, Any], str, bool] | None:
        """The model with planted faults that is meant, the dialect, the request, and what Gemini's path says."""
        place = path.partition("?")[0]
        try:
            request = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError:
            return None
        for ending, dialect in _PATHS.items():
            if place.endswith(ending):
                model = self._models.get(str(request.get("model")))
                return (model, dialect, request, "", False) if model is not None else None
        head, _, verb = place.rpartition(":")
        name = unquote(head.rpartition("/models/")[2])
        if verb not in ("generateContent", "streamGenerateContent") or name not in self._models:
            return None
        return self._models[name], "gemini", request, name, verb == "streamGenerateContent"

    async def _planted(
        self, writer: asyncio.StreamWriter, model: DemoModel, dialect: str, request: dict[str, Any], name: str, stream: bool
    ) -> bool:
        """Send what the model says; False: the connection ends here."""
        reply = model.answer(dialect, request, model=name, stream=stream)
        if reply.kind != "text/event-stream" and not reply.is_cut:
            await self._send(writer, reply.status, reply.kind, b"".join(reply.pieces))
            return True
        head = f"HTTP/1.1 {reply.status} X\r\ncontent-type: {reply.kind}\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for piece in reply.pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            if self._pause:
                await asyncio.sleep(self._pause)
        if reply.is_cut:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _chat(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        try:
            request = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError as error:
            await self._whole(writer, 400, {"error": {"message": str(error), "type": "invalid_request_error"}})
            return
        refusal = demo_refusal(request)
        if refusal is not None:
            await self._whole(writer, 400, refusal)
            return
        pieces = demo_answer(request)
        if not request.get("stream"):
            await self._send(writer, 200, "application/json", pieces[0])
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(self._pause)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _whole(self, writer: asyncio.StreamWriter, status: int, value: dict[str, Any]) -> None:
        await self._send(writer, status, "application/json", msgspec.json.encode(value))

    async def _send(self, writer: asyncio.StreamWriter, status: int, kind: str, body: bytes) -> None:
        writer.write(
            b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (status, kind.encode(), len(body)) + body
        )
        await writer.drain()
