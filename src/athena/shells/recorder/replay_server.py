"""Recorded answers on a loopback socket, with the boundaries of their reads, and their pace if wanted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from http import HTTPStatus

import msgspec

from athena.recording.playback import Played, Playlist

_BODY_LIMIT = 64 * 1024 * 1024
_HEAD_LIMIT = 64 * 1024


class ReplayServer:
    """Plays a list of recorded answers."""

    def __init__(
        self,
        playlist: Playlist,
        *,
        recorded_pace: bool,
        on_request: Callable[[str, bytes, str], None] = lambda path, body, name: None,
    ) -> None:
        """`on_request` gets the path, the body, and the id of the exchange whose answer is played; empty where none fits."""
        self._playlist = playlist
        self._recorded_pace = recorded_pace
        self._on_request = on_request
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes a free one."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_HEAD_LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and drop what is open."""
        if self._server is not None:
            self._server.close()
            for writer in tuple(self._open):
                writer.transport.abort()
            while self._open:
                await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._open.discard(writer)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (item.partition(":") for item in rest) if name}
        body = await _body(reader, headers)
        method, path, *_ = [*line.split(" "), "", ""]
        is_last = "close" in headers.get("connection", "").lower()
        if method in ("GET", "HEAD"):
            await self._tell(writer, method, path, is_last)
            return not is_last
        played = self._playlist.answer(path, body, headers)
        self._on_request(path, body, played.id if played is not None else "")
        if played is None:
            await self._whole(writer, 404, _no_recording(method, path), is_last)
            return not is_last
        return await self._play(writer, played, is_last) and not is_last

    async def _tell(self, writer: asyncio.StreamWriter, method: str, path: str, is_last: bool) -> None:
        """Answer what clients ask before they send a request: is anybody there, and which models are there?"""
        asked = path.partition("?")[0].rstrip("/")
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "recording"} for name in self._playlist.models]
        status, value = 200, dict[str, object](object="list", data=models)
        if asked and not asked.endswith("/models"):
            status, value = 404, _no_recording(method, path)
        await self._whole(writer, status, value, is_last, with_body=method == "GET")

    async def _play(self, writer: asyncio.StreamWriter, played: Played, is_last: bool) -> bool:
        """Play one answer; False where the connection broke."""
        if not played.status:
            writer.transport.abort()
            return False
        lines = [f"HTTP/1.1 {played.status} {_phrase(played.status)}", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in played.headers.items()]
        lines += ["connection: close"] * is_last
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))
        begun = asyncio.get_running_loop().time()
        for at, piece in played.pieces:
            await writer.drain()
            # Without a pause the pieces would arrive as one, and every boundary be lost.
            pause = begun + at - asyncio.get_running_loop().time() if self._recorded_pace else 0.0005
            await asyncio.sleep(max(pause, 0.0))
            if piece:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if played.is_cut:
            await writer.drain()
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _whole(
        self, writer: asyncio.StreamWriter, status: int, value: object, is_last: bool, with_body: bool = True
    ) -> None:
        body = msgspec.json.encode(value)
        lines = [f"HTTP/1.1 {status} {_phrase(status)}", "content-type: application/json", f"content-length: {len(body)}"]
        lines += ["connection: close"] * is_last
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + (body if with_body else b""))
        await writer.drain()


def _no_recording(method: str, path: str) -> dict[str, object]:
    return {"error": {"message": f"no recording answers {method} {path}", "type": "not_found", "code": "no_recording"}}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        length = int(headers.get("content-length") or 0)
        if length > _BODY_LIMIT:
            raise ValueError("too long")
        return await reader.readexactly(length)
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        if len(body) + size > _BODY_LIMIT:
            raise ValueError("too long")
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Recorded"
