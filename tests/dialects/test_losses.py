"""Warnings name real losses only, the most important first, and nothing is sent that says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from athena import translate_request
from athena.dialects import dialect_names, get_dialect
from athena.exchange import Exchange, Options, Route, warnings_header
from athena.model.parts import Opaque
from athena.model.profile import Profile
from athena.model.request import Loss
from athena.opaque import Envelope
from athena.profiles import default_profiles
from athena.restore import UNSIGNED

KEY = b"k"


def test_the_header_begins_with_what_matters_and_tells_each_kind_once() -> None:
    losses = (
        *(Loss(f"turns[{number}]", "state of another provider", minor=True) for number in range(30)),
        Loss("tools[0]", "sent in other words", "emulated"),
        Loss("tools[3]", "runs at another provider"),
    )
    assert warnings_header(losses) == (
        "tools[3] dropped: runs at another provider; tools[0] emulated: sent in other words; "
        "turns[0], turns[1], turns[2] and 27 more dropped: state of another provider"
    )


def test_what_the_model_can_not_call_stands_before_settings() -> None:
    losses = [Loss("verbosity", "no such setting"), Loss("tools[3]", "runs elsewhere"), Loss("turns[1].parts[0]", "not read")]
    assert warnings_header(losses).split("; ") == [
        "tools[3] dropped: runs elsewhere",
        "turns[1].parts[0] dropped: not read",
        "verbosity dropped: no such setting",
    ]


def test_the_header_holds_twenty_kinds() -> None:
    text = warnings_header([Loss(f"f{number}", f"reason {number}") for number in range(25)])
    assert "f19 dropped: reason 19; and 5 more" in text


def thinking(state: Opaque) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": "Hm", "signature": Envelope(KEY).seal(state)}
    return {
        "model": "m",
        "max_tokens": 10,
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [block, {"type": "text", "text": "Yo"}]},
            {"role": "user", "content": "Go"},
        ],
    }


def test_our_own_empty_envelope_is_no_loss() -> None:
    """A client that replays thinking only with a signature holds our mark for "unsigned"."""
    options: dict[str, Any] = {"source": "anthropic_messages", "target": "openai_chat", "envelope_key": KEY}
    profile = Profile(reasoning_replay="always")
    assert translate_request(thinking(UNSIGNED), profile=profile, **options).warnings == ()
    signed = Opaque(family="openai", kind="encrypted", payload="e")
    (loss,) = translate_request(thinking(signed), profile=profile, **options).warnings
    assert (loss.reason, loss.minor) == ("reasoning state of another provider", True)


def test_an_effort_that_the_model_does_not_know_is_told_at_home_too() -> None:
    body = {"model": "o3", "messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "xhigh"}
    translated = translate_request(body, source="openai_chat", target="openai_chat", profile="openai")
    assert translated.body["reasoning_effort"] == "high"
    assert [(loss.path, loss.action) for loss in translated.warnings] == [("reasoning.effort", "repaired")]


# -- nothing empty -----------------------------------------------------------------------------------------------------------

SIGNED = {"type": "thinking", "thinking": "Hm", "signature": "s"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "gemini"])
@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([{"role": "assistant", "content": [SIGNED]}, {"role": "user", "content": "Go"}], id="thinking"),
        pytest.param([{"role": "assistant", "content": [SEARCH]}, {"role": "user", "content": "Go"}], id="server_tool"),
        pytest.param([{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}], id="upload"),
        pytest.param([{"role": "system", "content": [{"type": "new_thing"}]}, {"role": "user", "content": "Go"}], id="system"),
        pytest.param(
            [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "new_thing"}]}
                ]},
            ],
            id="result",
        ),
    ],
)  # fmt: skip
def test_a_turn_of_which_nothing_is_left_is_never_sent_empty(target: str, messages: list[dict[str, Any]]) -> None:
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}, *messages]}
    translated = translate_request(body, source="anthropic_messages", target=target, model="m")
    sent = translated.body.get("messages") or translated.body.get("input") or translated.body["contents"]
    for message in sent:
        said = message.get("content") or message.get("tool_calls") or message.get("parts") or message.get("output")
        assert said or message.get("type") == "function_call", message
    assert translated.warnings, "what was left out is told"


@pytest.mark.parametrize("dialect", dialect_names())
def test_a_model_that_the_path_names_is_no_loss(dialect: str) -> None:
    """Deployments are named in the path, and SDKs write the name into the body, too."""
    bodies: dict[str, dict[str, Any]] = {
        "anthropic_messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
        "openai_chat": {"messages": [{"role": "user", "content": "Hi"}]},
        "openai_responses": {"input": "Hi"},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    }
    request = get_dialect(dialect).decode_request({"model": "m", **bodies[dialect]}, model="m", stream=False)
    for target in dialect_names():
        if target != dialect:
            route = Route(dialect=target, model="x", profile=default_profiles().for_dialect(target, "x"))
            assert [loss.path for loss in Exchange(request, route, Options()).losses if "model" in loss.path] == []
