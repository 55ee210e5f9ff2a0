"""The streams of background responses as another gateway shows them, from the store alone: each of them has an end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from athena.shells.gateway.background import follow
from athena.shells.store import Database, Store
from athena.shells.store.store import StoreLimits
from athena.state.values import StoredEvent, StoredResponse
from support.patience import FOR_EVER


def open_response(database: Database, work: Callable[[Store], Awaitable[None]], now: float) -> None:
    """With a store that holds the response `resp_a`, of which `created` is written, whose maker was last heard of at 5000."""

    async def main() -> None:
        store = Store(database, StoreLimits(max_age_s=FOR_EVER, max_bytes=1_000_000), clock=lambda: now)
        try:
            made = StoredResponse(
                id="resp_a", owner="ann", created=5000.0, status="in_progress", background=True,
                body=b'{"id":"resp_a","status":"in_progress"}',
            )  # fmt: skip
            created = StoredEvent(0, b'{"type":"response.created","sequence_number":0,"response":{"id":"resp_a"}}')
            await store.put_response(made, events=[created], lease=5000.0)
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())


async def followed(store: Store, after: int = -1) -> list[dict[str, Any]]:
    """What a client gets on a gateway that does not make the response."""
    frames = [frame async for frame in follow(store, None, "ann", "resp_a", after, FOR_EVER)]
    return [json.loads(frame.partition(b"\ndata: ")[2]) for frame in frames]


def test_a_stream_whose_maker_died_says_so(database: Database) -> None:
    async def work(store: Store) -> None:
        events = await followed(store)
        assert [event["type"] for event in events] == ["response.created", "response.failed"]
        assert events[1]["sequence_number"] == 1
        assert events[1]["response"]["status"] == "failed"
        assert "made this response ended" in events[1]["response"]["error"]["message"]
        assert await followed(store, 0) == events[1:], "it is the same for whoever comes later"
        assert await followed(store, 1) == []
        assert (await followed(store, 7))[0]["sequence_number"] == 8, "who saw events that were never stored sees the end, too"
        assert not await store.add_events("resp_a", [StoredEvent(2, b"{}")]), "nothing follows the end"

    open_response(database, work, 5001.0)


def test_a_stream_is_followed_without_reading_its_response_again_and_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: Store) -> None:
        async def whole(owner: str, name: str) -> None:
            raise AssertionError("its input and output may be large")

        found = await store.response("ann", "resp_a")
        assert found is not None
        monkeypatch.setattr(store, "response", whole)
        frames = follow(store, None, "ann", "resp_a", -1, FOR_EVER)
        assert b"response.created" in await anext(frames)
        assert await store.finish_response(msgspec.structs.replace(found, status="completed"))
        assert [b"response.completed" in frame async for frame in frames] == [True]

    open_response(database, work, 4999.0)


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
def test_a_response_that_is_over_has_the_end_of_its_stream(database: Database, status: Any) -> None:
    """They are written together: a follower elsewhere never sees one without the other."""

    async def work(store: Store) -> None:
        following = asyncio.create_task(followed(store))
        body = b'{"id":"resp_a","status":"%b"}' % status.encode()
        over = StoredResponse(id="resp_a", owner="ann", created=5000.0, status=status, background=True, body=body)
        delta = StoredEvent(1, b'{"type":"response.output_text.delta","sequence_number":1,"delta":"x"}')
        assert await store.finish_response(over, events=[delta])
        events = await following
        assert [event["sequence_number"] for event in events] == [0, 1, 2]
        assert events[2]["type"] == ("response.failed" if status == "cancelled" else f"response.{status}")
        assert events[2]["response"] == {"id": "resp_a", "status": status, "output": []}
        assert await followed(store) == events

    open_response(database, work, 4000.0)
