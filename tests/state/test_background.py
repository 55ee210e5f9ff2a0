"""Responses in the background: begun, polled, followed from any event on, cancelled, and lost with their gateway."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from athena.shells.gateway import background
from athena.state.errors import StoreDown
from support.gateway_process import GatewayThread, running_gateway
from support.open_responses import JUDGES, problems
from support.patience import PATIENCE, until
from support.remembering_upstream import UPSTREAMS, RememberingUpstream, config
from support.replays import differing

from .test_continuations import client_of


def finished(client: openai.OpenAI, name: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while (found := client.responses.retrieve(name)).status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("name", UPSTREAMS)
def test_polled_and_followed(gateway: GatewayThread, name: str) -> None:
    model = f"{name}/model"
    with client_of(gateway) as client:
        first = client.responses.create(model=model, input="one", background=True)
        assert first.status == "queued"
        assert first.background is True
        assert first.output == []
        whole = finished(client, first.id)
        assert (whole.status, whole.output_text) == ("completed", "heard one; spoke 0")
        assert client.responses.cancel(first.id).status == "completed", "what is over stays as it is"
        events = list(
            client.responses.create(model=model, input="two", previous_response_id=first.id, background=True, stream=True)
        )
        numbers = [event.sequence_number for event in events]
        assert numbers == list(range(len(events)))
        last: Any = events[-1]
        assert last.type == "response.completed"
        assert last.response.output_text == "heard one | two; spoke 1"
        for after in (0, len(events) // 2, len(events) - 2):
            again = list(client.responses.retrieve(last.response.id, stream=True, starting_after=after))
            assert [event.to_dict() for event in again] == [event.to_dict() for event in events[after + 1 :]]


def test_cancelled_failed_and_deleted(gateway: GatewayThread, upstream: RememberingUpstream) -> None:
    with client_of(gateway) as client:
        upstream.broken = True
        failed = client.responses.create(model="chat/model", input="one", background=True)
        found = finished(client, failed.id)
        upstream.broken = False
        assert found.status == "failed"
        assert found.error is not None
        assert "it is broken" in found.error.message
        upstream.close_gate()
        try:
            held = client.responses.create(model="chat/model", input="one", background=True)
            gone = client.responses.create(model="chat/model", input="two", background=True)
            with pytest.raises(openai.BadRequestError) as unfinished:
                client.responses.create(model="chat/model", input="on", previous_response_id=held.id)
            assert unfinished.value.code == "previous_response_not_found"
            cancelled = client.responses.cancel(held.id)
            assert cancelled.status == "cancelled"
            client.responses.delete(gone.id)
            assert client.responses.retrieve(held.id).status == "cancelled"
            assert until(lambda: not len(gateway.gateway.jobs)), "both of them stop"
        finally:
            upstream.open_gate()
        assert client.responses.retrieve(held.id).status == "cancelled"
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(gone.id)


def test_a_gateway_that_ends(upstream: RememberingUpstream, tmp_path: Path) -> None:
    """What it was making is told to be failed, and what it had made is there for the next one."""
    with (
        running_gateway(config(upstream), tmp_path) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="x") as client,
    ):
        done = client.responses.create(model="chat/model", input="one")
        upstream.close_gate()
        held = client.responses.create(model="chat/model", input="one", background=True)
        assert until(lambda: client.responses.retrieve(held.id).status == "in_progress")
    upstream.open_gate()
    assert differing(running.gateway) == {}, "what is made in the background is recorded as the stream that it is"
    with (
        running_gateway(config(upstream), tmp_path) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="x") as client,
    ):
        assert client.responses.retrieve(held.id).status == "failed"
        after = client.responses.create(model="claude/model", input="two", previous_response_id=done.id)
        assert after.output_text == "heard one | two; spoke 1"


def test_followed_while_it_is_made(gateway: GatewayThread, upstream: RememberingUpstream) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key="alices-key-0123456789", max_retries=0, timeout=PATIENCE
        ) as client:
            upstream.close_gate()
            held = await client.responses.create(model="chat/model", input="one", background=True)

            async def follow() -> str:
                text = ""
                async for event in await client.responses.retrieve(held.id, stream=True):
                    text += event.delta if event.type == "response.output_text.delta" else ""
                return text

            following = [asyncio.create_task(follow()) for _ in range(3)]
            await asyncio.sleep(0)
            upstream.open_gate()
            assert await asyncio.gather(*following) == ["heard one; spoke 0"] * 3

    asyncio.run(main())


def statuses(events: list[Any]) -> list[str]:
    """The types of the events of the response itself, in a stream that is numbered without a gap."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    for event in events:
        for judge in JUDGES:
            assert problems(event.to_dict(), judge) == [], event.type
    return [event.type for event in events if event.type.count(".") == 1 and not event.type.startswith("response.output")]


def test_a_stream_that_fails_says_so(gateway: GatewayThread, upstream: RememberingUpstream) -> None:
    with client_of(gateway) as client:
        upstream.broken = True
        try:
            events: list[Any] = list(client.responses.create(model="chat/model", input="one", background=True, stream=True))
        finally:
            upstream.broken = False
        assert statuses(events) == ["response.created", "response.queued", "response.failed"]
        assert events[0].response.status == events[1].response.status == "queued"
        last = events[-1].response
        assert last.status == "failed"
        assert "it is broken" in last.error.message
        assert finished(client, last.id).to_dict() == last.to_dict()
        for after in range(len(events)):
            again = list(client.responses.retrieve(last.id, stream=True, starting_after=after))
            assert [event.to_dict() for event in again] == [event.to_dict() for event in events[after + 1 :]]


def test_a_stream_that_is_cancelled_says_so(gateway: GatewayThread, upstream: RememberingUpstream) -> None:
    """A client has the id before the model says anything, and a follower sees the end."""
    with client_of(gateway) as client:
        upstream.close_gate()
        try:
            stream = iter(client.responses.create(model="chat/model", input="one", background=True, stream=True))
            events: list[Any] = [next(stream), next(stream)]
            name = events[0].response.id
            assert client.responses.cancel(name).status == "cancelled"
            events += stream
        finally:
            upstream.open_gate()
        assert statuses(events) == ["response.created", "response.queued", "response.failed"]
        assert events[-1].response.status == "cancelled"
        again = list(client.responses.retrieve(name, stream=True))
        assert [event.to_dict() for event in again] == [event.to_dict() for event in events]


def test_a_stream_whose_response_is_deleted_ends_with_an_error(gateway: GatewayThread, upstream: RememberingUpstream) -> None:
    with client_of(gateway) as client:
        upstream.close_gate()
        try:
            stream: Any = iter(client.responses.create(model="chat/model", input="one", background=True, stream=True))
            client.responses.delete(next(stream).response.id)
            with pytest.raises(openai.APIError, match="not there any more"):
                list(stream)
        finally:
            upstream.open_gate()


class Away:
    """A method of the store that fails a number of times, then works again."""

    def __init__(self, gateway: GatewayThread, method: str, error: Exception, times: int) -> None:
        responses = gateway.gateway.configured.responses
        assert responses is not None
        self.store, self.method, self.error, self.times = responses.store, method, error, times
        self._works = getattr(self.store, method)

    async def __call__(self, *given: Any, **named: Any) -> Any:
        if self.times:
            self.times -= 1
            raise self.error
        return await self._works(*given, **named)


@pytest.mark.parametrize(
    ("method", "error"),
    [("finish_response", StoreDown("the store is away")), ("add_events", RuntimeError("nobody thought of this"))],
)
def test_a_store_that_is_away_at_the_end(
    upstream: RememberingUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception
) -> None:
    """What the model said is kept when the store is there again."""
    monkeypatch.setattr(background, "_AGAIN_S", 0.01)
    monkeypatch.setattr(background, "_WRITE_EVERY_S", 0.01)
    with (
        running_gateway(config(upstream), tmp_path) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="x") as client,
    ):
        away = Away(running, method, error, 2)
        monkeypatch.setattr(away.store, method, away)
        upstream.close_gate()
        held = client.responses.create(model="chat/model", input="one", background=True)
        if method == "add_events":
            # It is the keeper that fails, while there is something to write.
            monkeypatch.setattr(background.Job, "_write_events", lambda job: away(job.plan.id, job.events))
            assert until(lambda: not away.times)
        upstream.open_gate()
        found = finished(client, held.id)
        assert not away.times
        assert (found.status, found.output_text) == ("completed", "heard one; spoke 0")


def test_a_store_that_is_away_at_the_beginning(
    upstream: RememberingUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The response says why it failed, and the log has a line for it and no traceback."""
    with (
        running_gateway(config(upstream), tmp_path) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="x") as client,
    ):
        away = Away(running, "begin_response", StoreDown("the store is away"), 1)
        monkeypatch.setattr(away.store, "begin_response", away)
        found = finished(client, client.responses.create(model="chat/model", input="one", background=True).id)
        assert found.status == "failed"
        assert found.error is not None
        assert found.error.message == "the store is away"
    assert not [record for record in caplog.records if record.exc_info]
