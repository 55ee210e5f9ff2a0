"""An upstream that answers each path as a table says and keeps every request it got.

For what is not about a model's answer: lists of models, embeddings, refusals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from support.scripted_upstream import ScriptedUpstream, Visit
from support.upstream_talk import Talk


class Reply(msgspec.Struct, frozen=True):
    """What a path answers. Pieces are sent one by one; `cut` ends the connection before the body is whole."""

    body: Any = {}
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] = {}
    pieces: tuple[bytes, ...] = ()
    cut: bool = False


class PlainUpstream(ScriptedUpstream):
    """`table` maps a path, without its query, to its reply, and can be changed at any time."""

    def __init__(self, table: dict[str, Reply] | None = None) -> None:
        super().__init__()
        self.table = table if table is not None else {}

    def of(self, path: str) -> list[Visit]:
        """The requests to one path."""
        return [visit for visit in self.visits if visit.path.partition("?")[0] == path]

    async def answer(self, talk: Talk) -> None:
        reply = self.table.get(talk.path.partition("?")[0])
        if reply is None:
            await super().answer_elsewhere(talk)
            return
        pieces = reply.pieces or (reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode(),)
        length = sum(map(len, pieces)) + (100 if reply.cut else 0)
        headers = {"content-type": reply.kind, "content-length": str(length), **reply.headers}
        await talk.head(f"{reply.status} X", *(f"{name}: {value}" for name, value in headers.items()), kind="", chunked=False)
        await talk.send(*pieces)
        talk.keep = not reply.cut

    answer_elsewhere = answer
