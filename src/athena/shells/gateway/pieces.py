"""Answers that are written as their pieces come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from athena.shells.gateway.client import Client


async def write_pieces(pieces: AsyncIterator[bytes], client: Client, limit_s: float) -> None:
    """Pieces of an answer as they come, as fast as the client takes them, until it leaves or takes none for `limit_s`."""
    gone = asyncio.Event()
    client.on_gone = gone.set
    try:
        async for piece in pieces:
            if gone.is_set():
                return
            client.write(piece)
            if client.blocked:
                await _taken(client, gone, limit_s)
        client.finish()
    finally:
        client.on_gone = client.on_drained = None


async def _taken(client: Client, gone: asyncio.Event, limit_s: float) -> None:
    """Wait until the client takes its bytes, but not for ever."""
    drained = asyncio.Event()
    client.on_drained = drained.set
    waits = [asyncio.create_task(event.wait()) for event in (drained, gone)]
    try:
        done, _ = await asyncio.wait(waits, timeout=limit_s, return_when="FIRST_COMPLETED")
        if not done:
            client.cut_off()
            gone.set()
    finally:
        for wait in waits:
            wait.cancel()
        client.on_drained = None
