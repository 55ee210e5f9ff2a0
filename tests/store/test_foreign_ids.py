"""Attempts of one owner at what others made, drawn at random: none of them succeeds.

300 in the gate on each database, 100,000 in `./dev fuzz` and with `ATHENA_SOAK`, over every endpoint of stored responses,
conversations, batches and files, and every way to refer to one in a request.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from typing import Any

import pytest

from athena.bulk.multipart import Upload
from athena.dialects import get_dialect
from athena.errors import ClientError, InvalidRequest
from athena.serving.endpoints import Endpoint, gateway_endpoint
from athena.shells.config import BatchSettings, StoreSettings
from athena.shells.gateway.batch_api import BatchApi, Lines
from athena.shells.gateway.responses_state import ResponsesState
from athena.shells.gateway.stored_api import StoredApi
from athena.shells.sealing import Sealer
from athena.shells.store import Database, Store
from athena.shells.store.batches import BatchStore
from athena.shells.store.store import StoreLimits
from athena.wire.recall import Recall
from athena.wire.response_json import response_json

ATTEMPTS = 100_000 if os.environ.get("ATHENA_HYPOTHESIS") == "deep" or os.environ.get("ATHENA_SOAK") else 300
OWNERS = ("", "ann", "bob", "Ann", "ann ", "an")
PATHS = (
    ("GET", "/v1/responses/{0}"),
    ("DELETE", "/v1/responses/{0}"),
    ("GET", "/v1/responses/{0}/input_items"),
    ("POST", "/v1/responses/{0}/cancel"),
    ("GET", "/v1/conversations/{0}"),
    ("POST", "/v1/conversations/{0}"),
    ("DELETE", "/v1/conversations/{0}"),
    ("GET", "/v1/conversations/{0}/items"),
    ("POST", "/v1/conversations/{0}/items"),
    ("GET", "/v1/conversations/{0}/items/{1}"),
    ("DELETE", "/v1/conversations/{0}/items/{1}"),
)
BATCH_PATHS = (
    ("GET", "/v1/messages/batches/{0}"),
    ("DELETE", "/v1/messages/batches/{0}"),
    ("GET", "/v1/messages/batches/{0}/results"),
    ("POST", "/v1/messages/batches/{0}/cancel"),
    ("POST", "/v1/batches"),
    ("GET", "/v1/batches/{0}"),
    ("POST", "/v1/batches/{0}/cancel"),
    ("GET", "/v1/files/{0}"),
    ("DELETE", "/v1/files/{0}"),
    ("GET", "/v1/files/{0}/content"),
)
QUESTION = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "word"}]}


def decode(body: dict[str, Any], recall: Recall | None = None) -> Any:
    return get_dialect("openai_responses").decode_request(body, recall=recall)


class World:
    """Objects of several owners in one store."""

    def __init__(self, store: Store) -> None:
        self.state = ResponsesState(store, StoreSettings(), Sealer(b"key"))
        self.api = StoredApi(self.state)
        self.names: dict[str, list[str]] = {owner: [] for owner in OWNERS}
        self.kept_batches = BatchStore(store)
        self.batches = BatchApi(self.kept_batches, BatchSettings(), 1 << 40)
        self.batch_names: dict[str, list[str]] = {owner: [] for owner in OWNERS}
        """The batch and the file of each, and the file that the results of the batch are in once it has ended."""

    async def fill(self, owner: str) -> None:
        previous = None
        for number in range(4):
            body: dict[str, Any] = {"model": "m", "input": f"the word of {owner!r} is {number}"}
            if previous is not None:
                body["previous_response_id"] = previous
            plan = self.state.plan(body, owner, decode)
            if plan.request is None:
                await self.state.load(plan)
            output: list[dict[str, Any]] = [
                {"type": "message", "id": f"msg_{plan.id.partition('_')[2]}o0", "role": "assistant", "content": []}
            ]
            response = {**plan.shown(), "status": "completed", "output": output}
            keeping = plan.keep(response, response_json(response))
            if keeping is not None:
                await keeping
            previous = plan.id
            self.names[owner] += [plan.id, f"msg_{plan.id.partition('_')[2]}i0", output[0]["id"]]
        endpoint = gateway_endpoint("POST", "/v1/conversations", "", {})
        assert endpoint is not None
        talk = await self.api.answer(endpoint, "POST", "", {"items": [{"role": "user", "content": "word"}]}, owner)
        items = gateway_endpoint("GET", f"/v1/conversations/{talk['id']}/items", "", {})
        assert items is not None
        (item,) = (await self.api.answer(items, "GET", "", {}, owner))["data"]
        self.names[owner] += [talk["id"], item["id"]]
        await self._fill_batches(owner)

    async def _fill_batches(self, owner: str) -> None:
        line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": QUESTION}).encode()
        file = await self.ask_batches("POST", "/v1/files", Upload({"purpose": "batch"}, "f.jsonl", line), owner)
        ours = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = await self.ask_batches("POST", "/v1/batches", ours, owner)
        theirs = {"requests": [{"custom_id": "a", "params": QUESTION}]}
        messages = await self.ask_batches("POST", "/v1/messages/batches", theirs, owner)
        ended = await self.ask_batches("POST", "/v1/messages/batches", theirs, owner)
        await self.ask_batches("POST", f"/v1/messages/batches/{ended['id']}/cancel", {}, owner)
        results = f"file-{batch['id'].partition('_')[2]}o"
        self.batch_names[owner] += [batch["id"], messages["id"], ended["id"], file["id"], results]

    async def ask_batches(self, method: str, path: str, body: Any, owner: str) -> Any:
        endpoint = gateway_endpoint(method, path, "", {"anthropic-version": "2023-06-01"} if "messages" in path else {})
        assert isinstance(endpoint, Endpoint), path
        answer = await self.batches.answer(endpoint, method, "", body, owner, {}, "http://127.0.0.1")
        return [piece async for piece in answer.pieces] if isinstance(answer, Lines) else answer


@pytest.mark.fuzz
def test_attempts_at_what_others_made(database: Database) -> None:
    chance = random.Random(os.environ.get("ATHENA_SEED", "17"))

    async def main() -> int:
        store = Store(database, StoreLimits(max_age_s=1e9, max_bytes=1 << 40))
        try:
            world = World(store)
            for owner in OWNERS:
                await world.fill(owner)
            refused = 0
            for _ in range(ATTEMPTS):
                attacker, victim = chance.sample(OWNERS, 2)
                refused += await _refused(world, chance, attacker, victim)
            for owner in OWNERS:
                # Nothing of theirs was changed or deleted.
                found = await store.chain(owner, world.names[owner][9])
                assert found is not None
                assert len(found) == 8
                batch, messages, *_ = world.batch_names[owner]
                listed = await world.ask_batches("GET", "/v1/batches", {}, owner)
                assert [(each["id"], each["status"]) for each in listed["data"]] == [(batch, "in_progress")]
                listed = await world.ask_batches("GET", "/v1/messages/batches", {}, owner)
                assert (messages, "in_progress") in [(each["id"], each["processing_status"]) for each in listed["data"]]
                assert len((await world.ask_batches("GET", "/v1/files", {}, owner))["data"]) == 1
            return refused
        finally:
            await store.close()

    assert asyncio.run(main()) == ATTEMPTS


async def _refused(world: World, chance: random.Random, attacker: str, victim: str) -> bool:
    if chance.random() < 0.3:
        return await _refused_batch(world, chance, attacker, victim)
    name, other = chance.choice(world.names[victim]), chance.choice(world.names[victim])
    if chance.random() < 0.2:
        # The place of another one's object in an id of one's own kind.
        name = chance.choice(("resp_", "conv_", "msg_")) + name.partition("_")[2][: chance.choice((43, 45, 50))]
    try:
        if chance.random() < 0.7:
            method, path = chance.choice(PATHS)
            endpoint = gateway_endpoint(method, path.format(name, other), "", {})
            assert isinstance(endpoint, Endpoint)
            body = {"items": [{"role": "user", "content": "x"}], "metadata": {}} if method == "POST" else {}
            await world.api.answer(endpoint, method, "", body, attacker)
        else:
            reference = chance.choice(("previous_response_id", "conversation", "item_reference", "items"))
            asked: dict[str, Any] = {"model": "m", "input": [{"type": "item_reference", "id": name}]}
            if reference == "items":
                making = gateway_endpoint("POST", "/v1/conversations", "", {})
                assert isinstance(making, Endpoint)
                await world.api.answer(making, "POST", "", {"items": asked["input"]}, attacker)
                return False
            if reference != "item_reference":
                asked = {"model": "m", "input": "x", reference: name}
            await world.state.load(world.state.plan(asked, attacker, decode))
    except ClientError as refusal:
        return refusal.status in (400, 404)
    return False


async def _refused_batch(world: World, chance: random.Random, attacker: str, victim: str) -> bool:
    method, path = chance.choice(BATCH_PATHS)
    name = chance.choice(world.batch_names[victim] + world.names[victim][:1])
    body = {"input_file_id": name, "endpoint": "/v1/chat/completions", "completion_window": "24h"} if "{" not in path else {}
    try:
        await world.ask_batches(method, path.format(name), body, attacker)
    except ClientError as refusal:
        return isinstance(refusal, InvalidRequest) or refusal.status == 404
    return False
