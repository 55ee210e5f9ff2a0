"""Compaction over every upstream dialect: the model's own summary, sealed, and read again when it comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from athena.shells.sealing import Sealer
from athena.state.compaction import PREFIX, compaction_item, covering, opened_items, retained_messages, with_summary
from support.gateway_process import GatewayThread, running_gateway
from support.remembering_upstream import SUMMARY, UPSTREAMS, RememberingUpstream, config

from .conftest import TOOL, keys
from .test_background import finished
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
        asked = len(upstream.answered)
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(model=model, input=[*output, user("c")], store=False)
        assert refused.value.code == "invalid_encrypted_content"
        assert len(upstream.answered) == asked
        # Codex: an item in the input asks for it, and the answer is exactly one compaction.
        trigger: Any = {"type": "compaction_trigger"}
        for stream in (False, True):
            first = ask(client, stream=stream, model=model, input="one")
            shorter = ask(client, stream=stream, model=model, input=[trigger], previous_response_id=first.id, tools=[TOOL])
            assert [each.type for each in shorter.output] == ["compaction"]
            third = ask(client, stream=stream, model=model, input="two", previous_response_id=shorter.id)
            assert third.output_text.endswith(f"{SUMMARY} 1. | two; spoke 0"), "the summary stands for what was before it"


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


@pytest.mark.parametrize("name", UPSTREAMS)
def test_a_threshold_for_a_history_that_the_client_sends(
    gateway: GatewayThread, upstream: RememberingUpstream, name: str
) -> None:
    """The model gets the summary and what is not answered yet; later turns go on from the compaction in their input."""
    manage: Any = [{"type": "compaction", "compact_threshold": 300}]
    said: list[Any] = [{"role": "developer", "content": "Be brief."}]
    for turn in range(12):
        said += [user(f"turn {turn} " + "word " * 40), {"role": "assistant", "content": "ok"}]
    said.append(user("q0"))
    with client_of(gateway) as client:
        for turn, expected in enumerate((["compaction", "message"], ["message"], ["message"])):
            before = len(upstream.answered)
            raw = client.responses.with_raw_response.create(
                model=f"{name}/model", input=said, store=False, context_management=manage
            )
            output: Any = json.loads(raw.content)["output"]
            assert [item["type"] for item in output] == expected
            assert len(upstream.answered) - before == len(expected)
            sent = json.dumps(upstream.answered[-1])
            assert "word" not in sent
            assert "Be brief." in sent, "a summary stands for what was said, not for instructions"
            heard = output[-1]["content"][0]["text"].partition(";")[0]
            assert heard.endswith(" | ".join((f"{SUMMARY} 13.", *(f"q{each}" for each in range(turn > 0, turn + 1)))))
            said += [*output, user(f"q{turn + 1}")]


@pytest.mark.parametrize("name", UPSTREAMS)
def test_a_threshold_amid_the_calls_of_a_history_that_the_client_sends(
    gateway: GatewayThread, upstream: RememberingUpstream, name: str
) -> None:
    manage: Any = [{"type": "compaction", "compact_threshold": 300}]
    said: list[Any] = [user("alpha " * 400), CALL, RESULT]
    with client_of(gateway) as client:
        after = client.responses.create(model=f"{name}/model", input=said, store=False, context_management=manage, tools=[TOOL])
        assert [item.type for item in after.output] == ["compaction", "message"]
        assert after.output_text.endswith(f"{SUMMARY} 1. | found; spoke 0")
        assert "alpha" not in json.dumps(upstream.answered[-1])


def test_what_a_compaction_in_an_input_stands_for() -> None:
    def unseal(sealed: str) -> str | None:
        return sealed.removeprefix(PREFIX) if sealed.startswith(PREFIX) else None

    def opened(*items: Any) -> list[Any]:
        return opened_items([*items], unseal)

    def texts(items: list[Any]) -> list[str]:
        return [item["content"][0]["text"].splitlines()[-1] if "content" in item else item["type"] for item in items]

    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}
    rules = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]}
    reasoning = {"type": "reasoning", "id": "r"}
    asked_for = compaction_item("cmp_1", PREFIX + "one")
    by_itself = compaction_item("cmp_2", PREFIX + covering("two"))
    foreign = compaction_item("cmp_3", "theirs")
    # What a client asked for stands beside the messages that the client retained.
    assert texts(opened(rules, user("a"), asked_for, said, user("b"))) == ["rules", "a", "one", "yes", "b"]
    # It stands for a history that was not left out.
    assert texts(opened(rules, user("a"), said, asked_for, user("b"))) == ["rules", "one", "b"]
    # What is made without being asked for stands behind the whole history, however short that is.
    assert texts(opened(rules, user("a"), by_itself, said, user("b"))) == ["rules", "two", "yes", "b"]
    assert texts(opened(user("a"), by_itself, said, user("b"), by_itself, user("c"))) == ["two", "c"]
    # A result that comes later keeps its call, and the call its reasoning.
    later = opened(user("a"), said, reasoning, CALL, asked_for, RESULT)
    assert texts(later) == ["reasoning", "function_call", "one", "function_call_output"]
    overlapping = [{**CALL, "call_id": "d"}, CALL, {**RESULT, "call_id": "d"}]
    assert len(opened(user("a"), said, *overlapping, asked_for, RESULT)) == 5, "nor do others lose theirs"
    for odd in ("nobody's", ["c"], None, 5):
        orphan = {**RESULT, "call_id": odd}
        assert texts(opened(user("a"), said, CALL, asked_for, orphan)) == ["one", "function_call_output"], odd
    # Nobody here knows what a foreign one stands for.
    assert texts(opened(user("a"), said, foreign, user("b"))) == ["a", "yes", "compaction", "b"]


@pytest.mark.parametrize("kind", ["chain", "conversation"])
@pytest.mark.parametrize("cache", [0, 64 * 1024 * 1024])
def test_what_is_compacted_in_time_is_never_too_large(
    upstream: RememberingUpstream, tmp_path: Path, kind: str, cache: int
) -> None:
    """Only what stands from the last compaction on counts against the limit of a history."""
    limits = {"body_bytes": 200_000, "history_cache_bytes": cache}
    trigger: Any = {"type": "compaction_trigger"}
    with running_gateway(config(upstream, keys=keys(), limits=limits), tmp_path) as gateway, client_of(gateway) as client:
        place: dict[str, Any] = {"conversation": client.conversations.create().id} if kind == "conversation" else {}
        for turn in range(5):
            told = client.responses.create(model="chat/model", input=f"{turn} " + "x" * 70_000, **place)
            if kind == "chain":
                place = {"previous_response_id": told.id}
            shorter = client.responses.create(model="chat/model", input=[trigger], **place)
            assert [item.type for item in shorter.output] == ["compaction"]
            if kind == "chain":
                place = {"previous_response_id": shorter.id}
        last = client.responses.create(model="chat/model", input="now", **place)
        assert last.output_text.endswith(f"{SUMMARY} 2. | now; spoke 0")


def test_what_a_compaction_covers_of_its_own_request_does_not_count(upstream: RememberingUpstream, tmp_path: Path) -> None:
    manage: Any = [{"type": "compaction", "compact_threshold": 1000}]
    limits = {"body_bytes": 200_000}
    long = [user("x" * 150_000), {"role": "assistant", "content": "ok"}, user("q")]
    with running_gateway(config(upstream, keys=keys(), limits=limits), tmp_path) as gateway, client_of(gateway) as client:
        first = client.responses.create(model="chat/model", input=long, context_management=manage)
        for _ in range(2):
            second = client.responses.create(model="chat/model", input="y" * 80_000, previous_response_id=first.id)
            assert second.output_text.count("y") > 80_000 - 1
            third = client.responses.create(model="chat/model", input="z", previous_response_id=second.id)
            assert third.output_text.endswith("| z; spoke 2")


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


@pytest.mark.parametrize("stream", [False, True])
def test_in_the_background(gateway: GatewayThread, upstream: RememberingUpstream, stream: bool) -> None:
    """A response that is made in the background is asked for as short as one that a client waits for."""
    manage: Any = [{"type": "compaction", "compact_threshold": 200}]

    def ask_aside(client: openai.OpenAI, **asked: Any) -> Any:
        made: Any = client.responses.create(background=True, stream=stream, **asked)
        return list(made)[-1].response if stream else finished(client, made.id)

    with client_of(gateway) as client:
        first = client.responses.create(model="chat/model", input="one " * 300)
        second = ask_aside(
            client, model="chat/model", input="two", previous_response_id=first.id, context_management=manage, tools=[TOOL]
        )
        assert [item.type for item in second.output] == ["compaction", "message"]
        assert second.output_text.endswith(f"{SUMMARY} 2. | two; spoke 0")
        long = [user("a" * 40_000), user("b" * 40_000), {"role": "assistant", "content": "yes"}, user("c")]
        cut = ask_aside(client, model="small/model", input=long, truncation="auto")
        assert (cut.status, cut.truncation) == ("completed", "auto")
        sent = json.dumps(upstream.answered[-1])
        assert "aaa" not in sent
        assert '"c"' in sent


def test_what_stays_beside_a_summary() -> None:
    items = [user("a"), {"type": "reasoning", "id": "r"}, CALL, RESULT]
    assert with_summary(items, 1, []) == items[1:], "a result keeps its call, and the call its reasoning"
    assert with_summary([user("a"), user("b")], 1, []) == [user("b")]
    said = {"role": "assistant", "content": "yes"}
    rules = {"role": "developer", "content": "rules"}
    assert with_summary([rules, user("a"), said, user("b"), user("c")], 5, [user("sum")]) == [
        rules,
        user("sum"),
        user("b"),
        user("c"),
    ]
    assert with_summary([rules, user("a"), said, user("b")], 1, []) == [user("b")]
    assert with_summary([user("a"), said, user("b"), {"type": "reasoning", "id": "r"}, CALL, RESULT], 6, []) == [
        {"type": "reasoning", "id": "r"}, CALL, RESULT,
    ]  # fmt: skip
    assert with_summary([user("a"), said, user("b"), said], 4, []) == [user("b"), said], "an answer that was only begun"
    opened = opened_items([compaction_item("cmp_1", PREFIX + "one")], lambda sealed: "one")
    assert with_summary([*opened, user("b")], 2, []) == [user("b")], "the new summary stands for the last one"
    assert retained_messages([user("x" * 90_000), user("b"), CALL, user("c")]) == (user("b"), user("c"))


def test_a_compaction_belongs_to_the_key_that_asked_for_it(gateway: GatewayThread) -> None:
    threshold: Any = [{"type": "compaction", "compact_threshold": 1}]
    trigger: Any = [user("alice's"), {"type": "compaction_trigger"}]
    with client_of(gateway) as alice, client_of(gateway, "mallory") as mallory:
        door = alice.responses.compact(model="chat/model", input=[user("alice's")]).output
        asked = alice.responses.create(model="chat/model", input=trigger).output
        first = alice.responses.create(model="chat/model", input="alice's", context_management=threshold).output
        for output in (door, asked, first):
            given: Any = [item.model_dump(mode="json", exclude_none=True) for item in output if item.type == "compaction"]
            assert len(given) == 1
            assert SUMMARY in alice.responses.create(model="chat/model", input=[*given, user("c")]).output_text
            for model in ("chat/model", "responses/model"):
                with pytest.raises(openai.BadRequestError) as refused:
                    mallory.responses.create(model=model, input=[*given, user("c")])
                assert refused.value.code == "invalid_encrypted_content"
        made = mallory.conversations.create(items=given)
        with pytest.raises(openai.BadRequestError):
            mallory.responses.create(model="chat/model", input="c", conversation=made.id)


def test_the_seal() -> None:
    one, other = Sealer(b"one"), Sealer(b"other")
    sealed = one.seal("ann", "half a character: \ud800")
    assert one.open("ann", sealed) == "half a character: \ud800"
    assert one.seal("ann", "same") != one.seal("ann", "same")
    assert other.open("ann", sealed) is None
    assert one.open("bob", sealed) is None
    assert one.open("", sealed) is None
    changed = sealed[:20] + ("B" if sealed[20] == "A" else "A") + sealed[21:]
    for text in ("", PREFIX, PREFIX + "x", PREFIX + "é", sealed[:-1], changed, "gw1.a.b"):
        assert one.open("ann", text) is None, text


def test_a_model_that_gives_no_summary(gateway: GatewayThread, upstream: RememberingUpstream) -> None:
    upstream.broken = True
    try:
        with client_of(gateway) as client, pytest.raises(openai.InternalServerError):
            client.responses.compact(model="chat/model", input=[user("a")])
    finally:
        upstream.broken = False
    with client_of(gateway) as client, pytest.raises(openai.BadRequestError):
        client.post("/responses/compact", body={"input": "x"}, cast_to=object)
