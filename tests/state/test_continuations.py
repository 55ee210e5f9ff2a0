"""Conversations that the gateway keeps, through the official SDK, over every upstream dialect, streamed and whole."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE, until
from support.remembering_upstream import UPSTREAMS, RememberingUpstream, config
from support.tool_loops import STATE

from .conftest import KEYS, TOOL, keys


def ask(client: openai.OpenAI, *, stream: bool, **fields: Any) -> Any:
    """A response, streamed by the SDK's own helper or whole."""
    if not stream:
        return client.responses.create(**fields)
    with client.responses.stream(**fields) as events:
        for _ in events:
            pass
        return events.get_final_response()


def client_of(gateway: GatewayThread, name: str = "alice") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=KEYS[name], max_retries=0)


@pytest.mark.parametrize("cache", [0, 64 * 1024 * 1024])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_continued_may_be_deleted_meanwhile(
    upstream: RememberingUpstream, tmp_path: Path, stream: bool, cache: int
) -> None:
    """The continuation has the items of what it continues, whenever that is deleted."""
    limits = {"history_cache_bytes": cache}
    with running_gateway(config(upstream, keys=keys(), limits=limits), tmp_path) as gateway, client_of(gateway) as client:
        first = client.responses.create(model="chat/model", input="one")
        second = client.responses.create(model="chat/model", input="two", previous_response_id=first.id)
        client.responses.delete(first.id)
        before = len(upstream.answered)
        upstream.close_gate()
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(ask, client, stream=stream, model="chat/model", input="three", previous_response_id=second.id)
            try:
                assert until(lambda: len(upstream.answered) > before)
                client.responses.delete(second.id)
            finally:
                upstream.open_gate()
            third = asked.result(PATIENCE)
        assert third.output_text == "heard one | two | three; spoke 2"
        for _ in range(2):
            fourth = client.responses.create(model="chat/model", input="four", previous_response_id=third.id)
            assert fourth.output_text == "heard one | two | three | four; spoke 3"
        listed: Any = client.responses.input_items.list(third.id, order="asc").data
        assert [item.role for item in listed] == ["user", "assistant", "user", "assistant", "user"]
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(second.id)


@pytest.mark.parametrize("name", UPSTREAMS)
def test_a_loop_with_tools(gateway: GatewayThread, upstream: RememberingUpstream, name: str) -> None:
    model = f"{name}/model"
    with client_of(gateway) as client:
        for stream in (False, True):
            first = ask(client, stream=stream, model=model, input="one", instructions="Be brief.", tools=[TOOL])
            assert first.output_text == "heard one; spoke 0"
            assert first.store is True
            second = ask(
                client, stream=stream, model=model, input="use the tool two", previous_response_id=first.id, tools=[TOOL]
            )
            assert second.previous_response_id == first.id
            (call,) = [item for item in second.output if item.type == "function_call"]
            assert json.loads(call.arguments) == {"word": "two"}
            result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "found"}
            third = ask(client, stream=stream, model=model, input=[result], previous_response_id=second.id, tools=[TOOL])
            assert third.output_text == "heard one | use the tool two | found; spoke 2"
            # The state of the model's reasoning went back to it, though no client carried it.
            assert name == "chat" or STATE[UPSTREAMS[name]] in json.dumps(upstream.answered[-1])
            # Instructions are not inherited.
            assert "Be brief." not in json.dumps(upstream.answered[-1])
            # Another way on from the first: a conversation may fork.
            fork = ask(client, stream=stream, model=model, input="three", previous_response_id=first.id)
            assert fork.output_text == "heard one | three; spoke 1"
            again = client.responses.retrieve(third.id)
            assert again.output_text == third.output_text
            assert again.usage == third.usage
            assert again.model_dump(exclude={"output"}) == third.model_dump(exclude={"output", "output_parsed"})


@pytest.mark.parametrize("name", UPSTREAMS)
def test_conversations(gateway: GatewayThread, name: str) -> None:
    model = f"{name}/model"
    with client_of(gateway) as client:
        said: Any = [{"type": "message", "role": "user", "content": "zero"}]
        talk = client.conversations.create(items=said, metadata={"topic": "numbers"})
        first = ask(client, stream=False, model=model, input="one", conversation=talk.id)
        assert first.output_text == "heard zero | one; spoke 0"
        assert first.conversation is not None
        assert first.conversation.id == talk.id
        second = ask(client, stream=True, model=model, input="use the tool two", conversation={"id": talk.id}, tools=[TOOL])
        (call,) = [item for item in second.output if item.type == "function_call"]
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "found"}
        third = ask(client, stream=False, model=model, input=[result], conversation=talk.id, tools=[TOOL], store=False)
        assert third.output_text == "heard zero | one | use the tool two | found; spoke 2"
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(third.id)
        items = list(client.conversations.items.list(talk.id, order="asc", limit=3))
        kinds = [item.type for item in items]
        assert kinds.count("message") == 6
        assert kinds.count("function_call") == kinds.count("function_call_output") == 1
        newest = list(client.conversations.items.list(talk.id, limit=2))
        assert [item.id for item in newest] == [item.id for item in reversed(items)]
        last: Any = items[-1]
        assert client.conversations.items.retrieve(last.id, conversation_id=talk.id).to_dict() == last.to_dict()
        client.conversations.items.delete(last.id, conversation_id=talk.id)
        added = client.conversations.items.create(talk.id, items=[{"role": "user", "content": "four", "type": "message"}])
        assert len(added.data) == 1
        fourth = ask(client, stream=True, model=model, input="five", conversation=talk.id)
        assert fourth.output_text.endswith("found | four | five; spoke 2")
        assert client.conversations.retrieve(talk.id).metadata == {"topic": "numbers"}
        assert client.conversations.update(talk.id, metadata={"topic": "words"}).metadata == {"topic": "words"}
        assert client.conversations.delete(talk.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve(talk.id)


def test_references_to_items_and_their_lists(gateway: GatewayThread) -> None:
    with client_of(gateway) as client:
        first = client.responses.create(model="chat/model", input="one")
        second = client.responses.create(model="claude/model", input="two", previous_response_id=first.id)
        shown = list(client.responses.input_items.list(second.id, order="asc", limit=1))
        assert [item.type for item in shown] == ["message"] * 3
        reference: Any = [
            {"type": "item_reference", "id": shown[2].id},
            {"id": second.output[0].id},
            {"role": "user", "content": "x"},
        ]
        third = client.responses.create(model="gemini/model", input=reference, store=False)
        assert third.output_text == "heard two | x; spoke 1"
        assert third.to_dict()["store"] is False
        talk = client.conversations.create(items=[{"type": "message", "role": "user", "content": "seven"}])
        (item,) = client.conversations.items.list(talk.id)
        referring: Any = [{"type": "item_reference", "id": item.id}]
        assert client.responses.create(model="chat/model", input=referring).output_text == "heard seven; spoke 0"


def test_the_async_sdk_and_many_at_once(gateway: GatewayThread) -> None:
    async def loop(client: openai.AsyncOpenAI, name: str, number: int) -> None:
        first = await client.responses.create(model=f"{name}/model", input=f"a{number}")
        async with client.responses.stream(model=f"{name}/model", input=f"b{number}", previous_response_id=first.id) as stream:
            async for _ in stream:
                pass
            second = await stream.get_final_response()
        assert second.output_text == f"heard a{number} | b{number}; spoke 1"

    async def main() -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=KEYS["alice"], max_retries=0, timeout=PATIENCE
        ) as client:
            await asyncio.gather(*(loop(client, name, number) for name in UPSTREAMS for number in range(4)))

    asyncio.run(main())
