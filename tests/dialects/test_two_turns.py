"""Tool loops over several turns, through the official SDKs: every client dialect before every upstream dialect.

The SDKs replay their own answer objects, as their users do. What the upstream is then sent must hold the whole turn: calls and
results in pairs and in order, under ids the upstream takes, and the reasoning state of its own family byte for byte. After a
change of model the state is gone and everything readable is there.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from athena.dialects import dialect_names
from athena.model.profile import Profile
from athena.opaque import OpaqueStore
from athena.profiles import default_profiles
from support.loopback import Loopback, Script
from support.tool_loops import (
    CALL_IDS,
    STATE,
    TEXT,
    THOUGHT,
    ChatConversation,
    Entry,
    calling_answer,
    chat_answer,
    chat_calls,
    converse,
    final_answer,
    history,
)
from support.turn_judge import (
    SENTINEL,
    TAKES_ID,
    TURN,
    UPSTREAMS,
    check_state_came_home,
    check_state_stayed_home,
    check_turn,
    readable,
    run_loop,
    states,
)

PAIRS = [(client, upstream) for client in dialect_names() for upstream in dialect_names()]
MODES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def script_for(dialect: str, stream: bool, **fields: Any) -> Script:
    """An upstream of that dialect: calls first, then plain text."""
    name, model = UPSTREAMS[dialect]
    fields = {"body": calling_answer(dialect, stream), "later": [final_answer(dialect, stream)], **fields}
    return Script(
        dialect=dialect, stream=stream, model=model, profile=default_profiles().get(name, model), exchanges=[], **fields
    )


@MODES
@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=[f"{client}-over-{upstream}" for client, upstream in PAIRS])
def test_loop_then_another_model(client: str, upstream: str, stream: bool, loopback: Loopback) -> None:
    home = f"loop-{client}-{upstream}-{stream}"
    loopback.scripts[home] = script = script_for(upstream, stream)
    talk = converse(client, loopback.url, stream=stream)
    run_loop(talk, home)
    entries = history(upstream, script.sent()[1])
    # Between a Gemini model and a Gemini client calls need no ids, and none are made up.
    check_turn(upstream, entries, ids=(client, upstream) != ("gemini", "gemini"))
    check_state_came_home(upstream, script.sent()[1], entries)

    talk.say("And now?")
    for other in dialect_names():
        if other != upstream:
            away = f"{home}-to-{other}"
            loopback.scripts[away] = switched = script_for(other, stream, body=final_answer(other, stream))
            talk.ask_aside(away)
            check_state_stayed_home(upstream, other, switched.sent()[0])


@MODES
@pytest.mark.parametrize("upstream", dialect_names())
def test_a_client_that_drops_reasoning_is_helped_by_the_store(upstream: str, stream: bool, loopback: Loopback) -> None:
    """OpenAI's own fields and nothing else: the state comes from our memory, by call id."""
    model = f"plain-{upstream}-{stream}"
    loopback.scripts[model] = script = script_for(upstream, stream, store=OpaqueStore())
    talk = ChatConversation(loopback.url, stream=stream, plain=True)
    run_loop(talk, model)
    entries = history(upstream, script.sent()[1])
    check_turn(upstream, entries)
    check_state_came_home(upstream, script.sent()[1], entries)


@pytest.mark.parametrize("upstream", dialect_names())
def test_without_a_store_nothing_is_made_up(upstream: str, loopback: Loopback) -> None:
    model = f"plain-forgotten-{upstream}"
    loopback.scripts[model] = script = script_for(upstream, True)
    run_loop(ChatConversation(loopback.url, stream=True, plain=True), model)
    sent = script.sent()[1]
    entries = history(upstream, sent)
    check_turn(upstream, entries)
    assert set(states(entries)) <= ({SENTINEL} if upstream == "gemini" else set())
    if upstream == "gemini":
        assert [entry.state for entry in entries if entry.kind == "call"] == [SENTINEL, ""]


@MODES
def test_claude_behind_openrouter_and_claude_itself_are_one_family(stream: bool, loopback: Loopback) -> None:
    """State minted by Claude through OpenRouter goes to Anthropic natively when the model is switched to it."""
    details = [{"type": "reasoning.text", "text": THOUGHT, "signature": "sig+/==", "format": "anthropic-claude-v1", "index": 0}]
    message = {"reasoning_details": details, "content": TEXT, "tool_calls": chat_calls(("toolu_1", "toolu_2"))}
    profile = default_profiles().get("openrouter", "anthropic/claude-sonnet-4.5")
    for client in dialect_names():
        model = f"one-family-{client}-{stream}"
        loopback.scripts[model] = script = Script(
            dialect="openai_chat",
            body=chat_answer(stream, message, "tool_calls"),
            later=[final_answer("openai_chat", stream)],
            stream=stream,
            profile=profile,
            exchanges=[],
        )
        talk = converse(client, loopback.url, stream=stream)
        run_loop(talk, model)
        assert script.sent()[1]["messages"][1]["reasoning_details"] == details
        loopback.scripts[f"{model}-direct"] = direct = script_for(
            "anthropic_messages", stream, body=final_answer("anthropic_messages", stream)
        )
        talk.say("And now?")
        talk.ask(f"{model}-direct")
        entries = history("anthropic_messages", direct.sent()[0])
        check_turn("anthropic_messages", entries)
        assert entries[1] == Entry("thinking", THOUGHT, state="sig+/==")


@MODES
def test_a_look_alike_does_not_pass_for_the_family(stream: bool, loopback: Loopback) -> None:
    """vLLM makes signatures up; the real Anthropic would refuse them after a change of model."""
    name = f"look-alike-{stream}"
    profile = default_profiles().get("vllm_anthropic", "m")
    loopback.scripts[name] = script = script_for("anthropic_messages", stream)
    script.profile = profile
    talk = converse("anthropic_messages", loopback.url, stream=stream)
    run_loop(talk, name)
    assert history("anthropic_messages", script.sent()[1])[1] == Entry("thinking", THOUGHT, state=STATE["anthropic_messages"])
    loopback.scripts[f"{name}-real"] = real = script_for(
        "anthropic_messages", stream, body=final_answer("anthropic_messages", stream)
    )
    talk.say("And now?")
    talk.ask(f"{name}-real")
    entries = history("anthropic_messages", real.sent()[0])
    check_turn("anthropic_messages", entries)
    assert states(entries) == []
    assert "gw1." not in str(real.sent()[0])


def test_a_switch_of_families_inside_one_dialect_strips_the_state(loopback: Loopback) -> None:
    """Grok's state through OpenRouter, then Claude through OpenRouter: Chat names the family in each entry."""
    loopback.scripts["grok"] = script_for("openai_chat", True)
    talk = converse("openai_chat", loopback.url, stream=True)
    run_loop(talk, "grok")
    loopback.scripts["claude"] = switched = script_for("openai_chat", True, body=final_answer("openai_chat", True))
    switched.profile = default_profiles().get("openrouter", "anthropic/claude-sonnet-4.5")
    talk.say("And now?")
    talk.ask("claude")
    entries = history("openai_chat", switched.sent()[0])
    check_turn("openai_chat", entries)
    assert states(entries) == []


KIMI_IDS = ["functions.get_weather:0", "functions.get_time:1"]


def open_model(loopback: Loopback, name: str, profile: Profile, ids: tuple[str, str], stream: bool, **message: Any) -> Script:
    """A Chat upstream whose reasoning is plain text."""
    told = {"reasoning_content": THOUGHT, "content": TEXT, "tool_calls": chat_calls(ids), **message}
    loopback.scripts[name] = script = Script(
        dialect="openai_chat",
        body=chat_answer(stream, told, "tool_calls"),
        later=[final_answer("openai_chat", stream)],
        stream=stream,
        profile=profile,
        exchanges=[],
    )
    return script


@MODES
@pytest.mark.parametrize("client", dialect_names())
def test_kimi_gets_its_own_ids_and_its_reasoning_back(client: str, stream: bool, loopback: Loopback) -> None:
    """Ids are renumbered over the conversation, reasoning on the turn that called."""
    name = f"kimi-{client}-{stream}"
    profile = default_profiles().get("moonshot", "kimi-k2-thinking")
    script = open_model(loopback, name, profile, ("call_00_x", "call_01_x"), stream)
    script.later = [script.body, *script.later]
    talk = converse(client, loopback.url, stream=stream)
    talk.say("Weather and time?")
    for _ in range(2):
        talk.ask(name)
        talk.give_results("sunny", "12:00")
    talk.ask(name)
    second, third = (history("openai_chat", body) for body in script.sent()[1:])
    assert readable(second) == TURN
    assert [entry.id for entry in second if entry.kind == "call"] == KIMI_IDS
    assert [entry.id for entry in second if entry.kind == "result"] == KIMI_IDS
    more = [*KIMI_IDS, "functions.get_weather:2", "functions.get_time:3"]
    assert [entry.id for entry in third if entry.kind == "call"] == more
    assert [entry.id for entry in third if entry.kind == "result"] == more
    for body, count in zip(script.sent()[1:], (1, 2), strict=True):
        callers = [message for message in body["messages"] if message["role"] == "assistant"]
        assert [message["reasoning_content"] for message in callers] == [THOUGHT] * count
        assert all("reasoning_details" not in message for message in callers)


def test_kimi_ids_hold_the_name_the_model_knows(loopback: Loopback) -> None:
    """A name the upstream does not take is rewritten; the id must say the same name as the call."""
    from athena.dialects import get_dialect
    from athena.exchange import Exchange, Route

    body = {
        "model": "m",
        "max_tokens": 10,
        "tools": [{"name": "a" * 100, "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "a" * 100, "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]},
        ],
    }
    profile = default_profiles().get("moonshot", "kimi-k2-0905")
    exchange = Exchange(
        get_dialect("anthropic_messages").decode_request(body), Route(dialect="openai_chat", model="k", profile=profile)
    )
    sent = msgspec.json.decode(exchange.call.body)
    call = sent["messages"][1]["tool_calls"][0]
    assert call["function"]["name"] == sent["tools"][0]["function"]["name"]
    assert len(call["function"]["name"]) <= 64
    assert call["id"] == f"functions.{call['function']['name']}:0" == sent["messages"][2]["tool_call_id"]


@pytest.mark.parametrize("client", dialect_names())
def test_a_lost_thought_is_filled_where_the_upstream_demands_one(client: str, loopback: Loopback) -> None:
    """Moonshot wants something on turns that call (a space), DeepSeek V4 on every assistant turn (an empty string)."""
    for profile_name, model, filler, final in (
        ("moonshot", "kimi-k2-thinking", " ", None),
        ("deepseek", "deepseek-v4", "", ""),
    ):
        name = f"lost-{client}-{profile_name}"
        profile = default_profiles().get(profile_name, model)
        script = open_model(loopback, name, profile, ("call_1", "call_2"), True, reasoning_content=None)
        talk = converse(client, loopback.url, stream=True)
        run_loop(talk, name)
        talk.say("And now?")
        talk.ask(name)
        caller, speaker = (message for message in script.sent()[2]["messages"] if message["role"] == "assistant")
        assert caller["reasoning_content"] == filler
        assert speaker.get("reasoning_content") == final


@pytest.mark.parametrize("client", dialect_names())
def test_a_reasoner_never_gets_its_reasoning_back(client: str, loopback: Loopback) -> None:
    """DeepSeek R1 refuses it."""
    name = f"reasoner-{client}"
    script = open_model(loopback, name, default_profiles().get("deepseek", "deepseek-reasoner"), ("call_1", "call_2"), True)
    run_loop(converse(client, loopback.url, stream=True), name)
    entries = history("openai_chat", script.sent()[1])
    check_turn("openai_chat", entries)
    assert [entry for entry in entries if entry.kind == "thinking"] == []


@pytest.mark.parametrize("client", dialect_names())
def test_once_one_turn_thinks_all_carry_the_field(client: str, loopback: Loopback) -> None:
    """For an upstream that takes reasoning on all turns: empty on those without any."""
    name = f"thinks-{client}"
    script = open_model(loopback, name, default_profiles().get("vllm", "Qwen/Qwen3-32B"), ("call_1", "call_2"), True)
    talk = converse(client, loopback.url, stream=True)
    run_loop(talk, name)
    talk.say("And now?")
    talk.ask(name)
    said = [message for message in script.sent()[2]["messages"] if message["role"] == "assistant"]
    # A Chat client's own messages go to a Chat upstream as they are.
    silent = None if client == "openai_chat" else ""
    assert [message.get("reasoning", message.get("reasoning_content")) for message in said] == [THOUGHT, silent]


def test_upstream_ids_that_a_client_takes_are_kept(loopback: Loopback) -> None:
    """The upstream's id is kept where the client's dialect allows it."""
    for client in dialect_names():
        for upstream in dialect_names():
            name = f"kept-{client}-{upstream}"
            loopback.scripts[name] = script_for(upstream, True)
            talk = converse(client, loopback.url, stream=True)
            talk.say("Weather and time?")
            talk.ask(name)
            given = [call_id for call_id, _ in talk.calls]
            assert len(set(given)) == 2 or (client, upstream) == ("gemini", "gemini")
            if all(CALL_IDS[upstream]) and all(TAKES_ID[client](call_id) for call_id in CALL_IDS[upstream]):
                assert tuple(given) == CALL_IDS[upstream]
            assert all(TAKES_ID[client](call_id) for call_id in given)
