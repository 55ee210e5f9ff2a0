"""Compaction over every upstream dialect: the model's own summary, sealed, and read again when it comes back."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from athena.shells.sealing import Sealer
from athena.state.compaction import PREFIX, retained_messages, unfinished_tail
from support.gateway_process import GatewayThread
from support.remembering_upstream import SUMMARY, UPSTREAMS, RememberingUpstream

from .conftest import TOOL
from .test_continuations import ask, client_of

CALL: Any = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": '{"word": "b"}'}
RESULT: Any = {"type": "function_call_output", "call_id": "c", "output": "found"}


def user(text: str) -> Any:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


@pytest.mark.parametrize("name", UPSTREAMS)
def test_the_door_and_the_trigger(gateway: GatewayThread, upstream: RememberingUpstream, name: str) -> None:
    model = f"{name}/model"
    history = [user("a"), CALL, RESULT, {"role": "assistant", "content": "so it is"}, user("b")]
    with client_of(gateway) as client:
        raw = client.responses.with_raw_response.compact(model=model, input=history, instructions="Be brief.")
        compacted = raw.parse()
        assert compacted.object == "response.compaction"
        assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
        (item,) = [item for item in compacted.output if item.type == "compaction"]
        assert item.encrypted_content.startswith(PREFIX)
        assert SUMMARY not in item.encrypted_content
        assert compacted.usage.total_tokens > 0
        # It comes back with the next question, and the model reads the summary.
        output: Any = json.loads(raw.content)["output"]
        after = client.responses.create(model=model, input=[*output, user("c")], store=False)
        assert f"{SUMMARY} 2." in after.output_text
        assert after.output_text.endswith("| c; spoke 0")
        # A sealed text that was changed is not read.
        output[-1]["encrypted_content"] = item.encrypted_content[:-4] + "AAAA"
        with pytest.raises(openai.BadRequestError) if name != "responses" else _nothing():
            client.responses.create(model=model, input=[*output, user("c")], store=False)
        # Codex: an item in the input asks for it, and the answer is exactly one compaction.
        trigger: Any = {"type": "compaction_trigger"}
        for stream in (False, True):
            first = ask(client, stream=stream, model=model, input="one")
            shorter = ask(client, stream=stream, model=model, input=[trigger], previous_response_id=first.id, tools=[TOOL])
            assert [each.type for each in shorter.output] == ["compaction"]
            third = ask(client, stream=stream, model=model, input="two", previous_response_id=shorter.id)
            assert third.output_text.endswith(f"{SUMMARY} 1. | two; spoke 0"), "the summary stands for what was before it"


class _nothing:  # noqa: N801
    """A server that speaks Responses judges by itself what it gets."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


@pytest.mark.parametrize("name", UPSTREAMS)
def test_a_threshold(gateway: GatewayThread, name: str) -> None:
    """Above it the conversation is compacted first, and the answer says so with one item before the model's own."""
    model = f"{name}/model"
    manage: Any = [{"type": "compaction", "compact_threshold": 200}]
    with client_of(gateway) as client:
        for stream in (False, True):
            first = ask(client, stream=stream, model=model, input="one " * 300, tools=[TOOL])
            second = ask(
                client, stream=stream, model=model, input="two", previous_response_id=first.id, context_management=manage
            )
            assert [item.type for item in second.output] == ["compaction", "message"]
            assert second.output_text.endswith(f"{SUMMARY} 2. | two; spoke 0")
            third = ask(client, stream=stream, model=model, input="three", previous_response_id=second.id)
            assert third.output_text.endswith(f"{SUMMARY} 2. | three; spoke 1")
            short = ask(client, stream=stream, model=model, input="x", context_management=manage)
            assert [item.type for item in short.output] == ["message"]


def test_truncation(gateway: GatewayThread, upstream: RememberingUpstream) -> None:
    long = [user("a" * 40_000), CALL, RESULT, user("b" * 40_000), {"role": "assistant", "content": "yes"}, user("c")]
    with client_of(gateway) as client:
        kept = client.responses.create(model="small/model", input=long, truncation="auto", tools=[TOOL])
        assert kept.truncation == "auto"
        sent = json.dumps(upstream.answered[-1])
        assert "aaa" not in sent
        assert "look_up" in sent, "tools stay"
        assert '"c"' in sent
        client.responses.create(model="small/model", input=long, truncation="disabled", tools=[TOOL])
        assert "aaa" in json.dumps(upstream.answered[-1])


def test_what_stays_beside_a_summary() -> None:
    items = [user("a"), {"type": "reasoning", "id": "r"}, CALL, RESULT]
    assert unfinished_tail(items, 1) == items[1:], "a result keeps its call, and the call its reasoning"
    assert unfinished_tail([user("a"), user("b")], 1) == [user("b")]
    assert retained_messages([user("x" * 90_000), user("b"), CALL, user("c")]) == (user("b"), user("c"))


def test_the_seal() -> None:
    one, other = Sealer(b"one"), Sealer(b"other")
    sealed = one.seal("half a character: \ud800")
    assert one.open(sealed) == "half a character: \ud800"
    assert one.seal("same") != one.seal("same")
    assert other.open(sealed) is None
    changed = sealed[:20] + ("B" if sealed[20] == "A" else "A") + sealed[21:]
    for text in ("", PREFIX, PREFIX + "x", PREFIX + "é", sealed[:-1], changed, "gw1.a.b"):
        assert one.open(text) is None, text


def test_a_model_that_gives_no_summary(gateway: GatewayThread, upstream: RememberingUpstream) -> None:
    upstream.broken = True
    try:
        with client_of(gateway) as client, pytest.raises(openai.InternalServerError):
            client.responses.compact(model="chat/model", input=[user("a")])
    finally:
        upstream.broken = False
    with client_of(gateway) as client, pytest.raises(openai.BadRequestError):
        client.post("/responses/compact", body={"input": "x"}, cast_to=object)
