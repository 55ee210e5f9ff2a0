"""Batches over real connections, with the official SDKs as judges: both dialects over every upstream, cancelling, expiry,
whose they are, and a process that is killed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from athena.shells.config import hash_key
from athena.shells.gateway import batch_runner
from support.gateway_process import GatewayProcess, GatewayThread, running_gateway
from support.patience import FOR_EVER, PATIENCE
from support.scripted_upstream import ScriptedUpstream
from support.tool_loops import final_answer
from support.upstream_talk import Talk

DIALECTS = {"chat": "openai_chat", "anthropic": "anthropic_messages", "responses": "openai_responses", "gemini": "gemini"}
BUSY = ["chat/busy"] if os.environ.get("ATHENA_SOAK") else []
"""A request that is put off for ten seconds in all; where the gateway is in this process, such pauses are short."""
KEYS = {"one": "ath_one-of-these-tests", "two": "ath_two-of-these-tests"}


class Answering(ScriptedUpstream):
    """Answers by the model's name: `held` waits for the test, `busy` refuses twice, `bad` refuses for ever."""

    async def answer(self, talk: Talk) -> None:
        if talk.model == "held":
            await talk.until_told()
        if talk.model == "bad" or (talk.model == "busy" and talk.number < 2):
            status = "400 X" if talk.model == "bad" else "503 X"
            await talk.whole(b'{"error": {"message": "no", "type": "invalid_request_error", "code": "no"}}', status)
            return
        await talk.whole(final_answer(talk.dialect, talk.stream), kind=talk.kind)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Answering]:
    with Answering() as running:
        yield running


def config(upstream: Answering, **more: Any) -> dict[str, Any]:
    return {
        "upstreams": {
            name: {"base_url": upstream.url if name == "gemini" else f"{upstream.url}/v1", "dialect": dialect}
            for name, dialect in DIALECTS.items()
        },
        "models": [{"match": f"{name}/*", "use": f"{name}/*"} for name in DIALECTS],
        "retries": {"attempts": 0},
        "health": {"failures": 1000},
        "timeouts": dict.fromkeys(("first_byte_s", "idle_s", "total_s"), FOR_EVER),
        "envelope_key": "test",
        "keys": [{"name": name, "hash": hash_key(key)} for name, key in KEYS.items()],
        "batches": {"poll_s": 0.05, "lease_s": 1.0, "concurrency": 4},
        **more,
    }


@pytest.fixture(scope="module")
def gateway(upstream: Answering, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    with (
        pytest.MonkeyPatch.context() as patch,
        running_gateway(config(upstream), tmp_path_factory.mktemp("gateway")) as running,
    ):
        patch.setattr(batch_runner, "_FIRST_PAUSE_S", 0.05)
        yield running


def claude(port: int, key: str = "one") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{port}", api_key=KEYS[key], max_retries=0, timeout=PATIENCE)


def gpt(port: int, key: str = "one") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEYS[key], max_retries=0, timeout=PATIENCE)


def eventually(look: Callable[[], Any], *wanted: str) -> Any:
    """What `look` gives once its status is one of these."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = look()
        if getattr(found, "processing_status", None) in wanted or getattr(found, "status", None) in wanted:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def messages(models: list[str]) -> list[Any]:
    return [
        {
            "custom_id": f"request-{number}",
            "params": {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": "Hello."}]},
        }
        for number, model in enumerate(models)
    ]


def lines(models: list[str], endpoint: str) -> bytes:
    bodies: dict[str, Callable[[str], dict[str, Any]]] = {
        "/v1/chat/completions": lambda model: {"model": model, "messages": [{"role": "user", "content": "Hello."}]},
        "/v1/responses": lambda model: {"model": model, "input": "Hello."},
    }
    return b"\n".join(
        json.dumps(
            {"custom_id": f"request-{number}", "method": "POST", "url": endpoint, "body": bodies[endpoint](model)}
        ).encode()
        for number, model in enumerate(models)
    )


def test_message_batches_over_every_upstream(gateway: GatewayThread) -> None:
    with claude(gateway.port) as client:
        batch = client.messages.batches.create(
            requests=messages([*(f"{name}/m" for name in DIALECTS), "chat/bad", "nobody/m", "chat/busy"])
        )
        assert batch.processing_status == "in_progress"
        assert batch.request_counts.processing == 7
        ended = eventually(lambda: client.messages.batches.retrieve(batch.id), "ended")
        assert (ended.request_counts.succeeded, ended.request_counts.errored) == (5, 2)
        results = {result.custom_id: result.result for result in client.messages.batches.results(batch.id)}
        for number in (0, 1, 2, 3, 6):
            result: Any = results[f"request-{number}"]
            assert result.type == "succeeded"
            assert result.message.content[0].text
        assert {results[f"request-{number}"].type for number in (4, 5)} == {"errored"}
        failed: Any = results["request-4"]
        assert failed.error.error.type == "invalid_request_error"
        assert next(each.id for each in client.messages.batches.list(limit=1)) == batch.id
        client.messages.batches.delete(batch.id)
        with pytest.raises(anthropic.NotFoundError):
            client.messages.batches.retrieve(batch.id)


@pytest.mark.parametrize("endpoint", ["/v1/chat/completions", "/v1/responses"])
def test_batches_of_files_over_every_upstream(gateway: GatewayThread, endpoint: Any) -> None:
    with gpt(gateway.port) as client:
        content = lines([*(f"{name}/m" for name in DIALECTS), "chat/bad"], endpoint)
        file = client.files.create(file=("in.jsonl", content), purpose="batch")
        assert (file.bytes, file.filename, file.purpose) == (len(content), "in.jsonl", "batch")
        assert client.files.content(file.id).read() == content
        batch = client.batches.create(
            input_file_id=file.id, endpoint=endpoint, completion_window="24h", metadata={"for": "tests"}
        )
        assert batch.status == "in_progress"
        done = eventually(lambda: client.batches.retrieve(batch.id), "completed")
        assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (5, 4, 1)
        assert done.metadata == {"for": "tests"}
        output = [json.loads(line) for line in client.files.content(done.output_file_id).text.splitlines()]
        assert [line["custom_id"] for line in output] == [f"request-{number}" for number in range(4)]
        assert {line["response"]["status_code"] for line in output} == {200}
        told = json.dumps([line["response"]["body"] for line in output])
        assert told.count("Sunny") >= 4
        (error,) = [json.loads(line) for line in client.files.content(done.error_file_id).text.splitlines()]
        assert (error["custom_id"], error["response"]["status_code"]) == ("request-4", 400)
        assert client.files.retrieve(done.output_file_id).purpose == "batch_output"
        assert batch.id in [each.id for each in client.batches.list()]
        assert file.id in [each.id for each in client.files.list()]
        client.files.delete(file.id)
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(file.id)


def test_nobody_sees_another_keys_batches(gateway: GatewayThread) -> None:
    with (
        claude(gateway.port) as mine,
        claude(gateway.port, "two") as theirs,
        gpt(gateway.port) as own,
        gpt(gateway.port, "two") as other,
    ):
        batch = mine.messages.batches.create(requests=messages(["chat/m"]))
        file = own.files.create(file=("in.jsonl", lines(["chat/m"], "/v1/responses")), purpose="batch")
        job = own.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
        done = eventually(lambda: own.batches.retrieve(job.id), "completed")
        eventually(lambda: mine.messages.batches.retrieve(batch.id), "ended")
        for look in (theirs.messages.batches.retrieve, theirs.messages.batches.cancel, theirs.messages.batches.delete):
            with pytest.raises(anthropic.NotFoundError) as unseen:
                look(batch.id)
            assert unseen.value.type == "not_found_error"
        for read in (other.batches.retrieve, other.batches.cancel):
            with pytest.raises(openai.NotFoundError) as refused:
                read(job.id)
            assert refused.value.code == "batch_not_found"
        for name in (file.id, done.output_file_id):
            for find in (other.files.retrieve, other.files.content, other.files.delete):
                with pytest.raises(openai.NotFoundError) as refused:
                    find(name)
                assert refused.value.code == "file_not_found"
        with pytest.raises(openai.BadRequestError):
            other.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
        assert list(theirs.messages.batches.list()) == []
        assert list(other.batches.list()) == []
        assert list(other.files.list()) == []


def test_a_batch_that_is_cancelled(gateway: GatewayThread, upstream: Answering) -> None:
    with claude(gateway.port) as client:
        upstream.forget()
        batch = client.messages.batches.create(requests=messages(["chat/held"] * 10))
        assert upstream.wait_for(lambda: len(upstream.visits) == 4)
        assert client.messages.batches.cancel(batch.id).processing_status == "canceling"
        with pytest.raises(anthropic.BadRequestError):
            client.messages.batches.delete(batch.id)
        for visit in tuple(upstream.visits):
            upstream.tell(visit)
        ended = eventually(lambda: client.messages.batches.retrieve(batch.id), "ended")
        assert (ended.request_counts.succeeded, ended.request_counts.canceled) == (4, 6)
        assert len(upstream.visits) == 4
        kinds = [result.result.type for result in client.messages.batches.results(batch.id)]
        assert sorted(kinds) == ["canceled"] * 6 + ["succeeded"] * 4


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"\n", "empty_file"),
    "no JSON": (b"hello", "invalid_json_line"),
    "no id": (b'{"method": "POST", "url": "/v1/responses", "body": {}}', "missing_required_parameter"),
    "an id twice": (lines(["a"], "/v1/responses") + b"\n" + lines(["a"], "/v1/responses"), "duplicate_custom_id"),
    "another path": (lines(["a"], "/v1/chat/completions"), "invalid_url"),
    "another method": (b'{"custom_id": "a", "method": "GET", "url": "/v1/responses", "body": {}}', "invalid_method"),
    "no body": (b'{"custom_id": "a", "method": "POST", "url": "/v1/responses"}', "missing_required_parameter"),
    "a stream": (b'{"custom_id": "a", "url": "/v1/responses", "body": {"stream": true}}', "unsupported_value"),
}


def test_what_is_no_batch(gateway: GatewayThread) -> None:
    with gpt(gateway.port) as client, claude(gateway.port) as other:
        for name, (content, code) in BAD_FILES.items():
            file = client.files.create(file=("in.jsonl", content), purpose="batch")
            batch = client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
            assert batch.status == "failed", name
            assert batch.errors is not None
            assert batch.errors.data is not None
            assert batch.errors.data[0].code == code
        for body in ({"endpoint": "/v1/nothing"}, {"completion_window": "1h"}, {"input_file_id": "file-none"}):
            asked: Any = {"input_file_id": file.id, "endpoint": "/v1/responses", "completion_window": "24h", **body}
            with pytest.raises(openai.BadRequestError):
                client.batches.create(**asked)
        wrong: list[Any] = [
            [],
            [{"custom_id": "a b", "params": {}}],
            [{"custom_id": "a"}],
            [{"custom_id": "a", "params": {"stream": True}}],
            [{"custom_id": "a", "params": {}}, {"custom_id": "a", "params": {}}],
        ]
        for requests in wrong:
            with pytest.raises(anthropic.BadRequestError):
                other.messages.batches.create(requests=requests)
        with pytest.raises(openai.BadRequestError):
            client.post("/files", body={"purpose": "batch"}, cast_to=object)


def test_results_are_files_that_their_client_deletes(gateway: GatewayThread) -> None:
    with gpt(gateway.port) as client, gpt(gateway.port, "two") as other:
        file = client.files.create(file=lines(["chat/x", "chat/bad"], "/v1/responses"), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
        done = eventually(lambda: client.batches.retrieve(batch.id), "completed")
        made = {done.output_file_id, done.error_file_id}
        assert made <= {each.id for each in client.files.list()}
        assert made <= {each.id for each in client.files.list(purpose="batch_output", limit=1)}
        assert not made & {each.id for each in client.files.list(purpose="batch")}
        assert not made & {each.id for each in other.files.list()}
        for name in made:
            shown = client.files.retrieve(name)
            assert shown.bytes == len(client.files.content(name).content) > 0
            with pytest.raises(openai.NotFoundError):
                other.files.delete(name)
            assert client.files.delete(name).deleted
            for way in (client.files.retrieve, client.files.content, client.files.delete):
                with pytest.raises(openai.NotFoundError):
                    way(name)
        assert not made & {each.id for each in client.files.list()}
        assert client.batches.retrieve(batch.id) == done


def test_a_list_does_not_end_at_what_is_not_there(gateway: GatewayThread) -> None:
    """Whoever deletes what is listed while going on from page to page is told, and so is whoever names another key's."""
    with gpt(gateway.port) as client, gpt(gateway.port, "two") as other, claude(gateway.port) as batches:
        mine = [client.files.create(file=("x.jsonl", b"{}"), purpose="user_data").id for _ in range(3)]
        shown = iter(client.files.list(limit=1, purpose="user_data"))
        assert next(shown).id == mine[2]
        assert next(shown).id == mine[1]
        client.files.delete(mine[1])
        with pytest.raises(openai.BadRequestError) as gone:
            next(shown)
        with pytest.raises(openai.BadRequestError) as foreign:
            other.files.list(after=mine[0])
        for told, name in ((gone, mine[1]), (foreign, mine[0])):
            assert told.value.param == "after"
            assert f"after: nothing with id '{name}'" in told.value.message
        with pytest.raises(openai.BadRequestError):
            client.batches.list(after="batch_none")
        with pytest.raises(anthropic.BadRequestError):
            batches.messages.batches.list(after_id="msgbatch_none")
        with pytest.raises(anthropic.BadRequestError):
            batches.messages.batches.list(before_id="msgbatch_none")


def test_what_another_key_encrypted_is_an_error_of_its_own(upstream: Answering, tmp_path: Path) -> None:
    def seen(call: Callable[[], Any]) -> tuple[int, Any]:
        with pytest.raises(openai.APIStatusError) as caught:
            call()
        return caught.value.status_code, caught.value.code

    with (
        running_gateway(config(upstream, store={"encryption_key": "one"}), tmp_path) as gateway,
        gpt(gateway.port) as client,
    ):
        file = client.files.create(file=lines(["chat/held"], "/v1/responses"), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
        response = client.responses.create(model="chat/x", input="Hello.")
        conversation = client.conversations.create(metadata={"a": "b"})
    with (
        running_gateway(config(upstream, store={"encryption_key": "two"}), tmp_path) as gateway,
        gpt(gateway.port) as client,
    ):
        ways: list[Callable[[], Any]] = [
            lambda: client.files.retrieve(file.id),
            lambda: client.files.content(file.id),
            lambda: client.batches.retrieve(batch.id),
            lambda: client.responses.retrieve(response.id),
            lambda: client.responses.create(model="chat/x", input="And?", previous_response_id=response.id),
            lambda: client.conversations.retrieve(conversation.id),
        ]
        assert [seen(way) for way in ways] == [(500, "store_unreadable")] * len(ways)
        assert [*client.files.list(), *client.batches.list()] == []


def test_a_process_that_is_killed_loses_nothing(upstream: Answering, tmp_path: Path) -> None:
    upstream.forget()
    gateway = GatewayProcess(config(upstream), tmp_path)
    try:
        with claude(gateway.port) as client:
            batch = client.messages.batches.create(requests=messages(["chat/m"] * 6 + ["chat/held"] * 4 + BUSY))
            assert upstream.wait_for(lambda: sum(visit.model == "held" for visit in upstream.visits) >= 4)
        gateway.process.kill()
        gateway.wait()
    finally:
        gateway.end()
    again = GatewayProcess(config(upstream), tmp_path)
    try:
        with claude(again.port) as client:
            assert upstream.wait_for(lambda: sum(visit.model == "held" for visit in upstream.visits) >= 8)
            for visit in tuple(upstream.visits):
                upstream.tell(visit)
            ended = eventually(lambda: client.messages.batches.retrieve(batch.id), "ended")
            assert ended.request_counts.succeeded == 10 + len(BUSY)
            results = [result.custom_id for result in client.messages.batches.results(batch.id)]
            assert sorted(results) == sorted(f"request-{number}" for number in range(10 + len(BUSY)))
            assert sum(visit.model == "m" for visit in upstream.visits) == 6, "an answered request was asked again"
    finally:
        again.stop()
