"""Requests of the Responses dialect where the generic runners do not look: what a translated request may hold, and how one
that was changed on its way home stays itself.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from athena.dialects.base import EncodeTarget
from athena.dialects.openai_responses import DIALECT
from athena.model.parts import (
    Foreign,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    changed,
)
from athena.model.profile import Profile
from athena.model.request import Loss, Reasoning, Request, ToolChoice, Turn
from athena.translate import translate_request
from support.sdk_types import check_body

TARGET = EncodeTarget("up", Profile(dialect="openai_responses", family="openai", custom_tools=True))


def send(request: Request, **profile: Any) -> tuple[dict[str, Any], tuple[Loss, ...]]:
    row = msgspec.structs.replace(TARGET.profile, **profile)
    encoded = DIALECT.encode_request(request, EncodeTarget("up", row))
    assert encoded.path == "/responses"
    check_body("openai_responses", encoded.body)
    return encoded.body, encoded.losses


def neutral(*turns: Turn, **fields: Any) -> Request:
    return Request(
        dialect="anthropic_messages", model="m", turns=turns or (Turn(role="user", parts=(Text(text="Hi"),)),), **fields
    )


def test_profile_fields() -> None:
    body, losses = send(neutral(parallel=True), drop_fields=("parallel_tool_calls",), body={"truncation": "auto"})
    assert "parallel_tool_calls" not in body
    assert body["truncation"] == "auto"
    assert [loss.path for loss in losses] == ["parallel_tool_calls"]


# -- requests of our own clients --------------------------------------------------------------------------------------------

LOOP: dict[str, Any] = {
    "model": "m",
    "input": [
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "D"}]},
        {"role": "user", "content": "Q"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "S"}], "encrypted_content": "E"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "A"}], "new": 1},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "new": 2},
        {"type": "item_reference", "id": "msg_9"},
        {"type": "function_call_output", "call_id": "c1", "output": "R", "new": 3},
    ],
    "tools": [
        {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None, "new": 4},
        {"type": "namespace", "name": "ns", "description": "N", "tools": [{"type": "function", "name": "g", "new": 5}]},
    ],
    "tool_choice": "auto",
    "new": 6,
}


def home(request: Request) -> dict[str, Any]:
    return DIALECT.encode_request(request, EncodeTarget("m", TARGET.profile)).body


def test_what_the_items_mean() -> None:
    request = DIALECT.decode_request(LOOP)
    assert [(turn.role, len(turn.parts)) for turn in request.turns] == [("user", 1), ("assistant", 4), ("user", 1)]
    assert request.system == (Text(text="D", raw=LOOP["input"][1]["content"][0]),)
    assert request.system_hint == "developer"
    thinking, text, function, reference = request.turns[1].parts
    assert isinstance(thinking, Thinking)
    assert thinking.summary
    assert thinking.signature == Opaque(family="openai", kind="encrypted", payload="E", item_id="rs_1")
    assert isinstance(text, Text)
    assert isinstance(function, ToolCall)
    assert (function.id, function.item_id, function.extras) == ("c1", "fc_1", {"new": 2})
    assert isinstance(reference, Foreign)
    assert [(tool.namespace, tool.name, tool.kind) for tool in request.tools] == [
        (None, "f", "function"), ("ns", "g", "function"), (None, "exec", "custom"),
    ]  # fmt: skip
    assert request.tools[1].namespace_description == "N"
    assert request.extras == {"new": 6}


def test_agents_hosted_outputs_and_phases_are_turns() -> None:
    request = DIALECT.decode_request({
        "model": "m",
        "input": [
            {"type": "agent_message", "author": "/root", "recipient": "/w", "content": [{"type": "input_text", "text": "go"}]},
            {"role": "assistant", "content": "one", "phase": "commentary"},
            {"type": "local_shell_call", "call_id": "c", "action": {}},
            {"role": "assistant", "content": "two", "phase": "final_answer"},
            {"type": "local_shell_call_output", "id": "c", "output": "x"},
            {"role": "critic", "content": "hm"},
        ],
    })  # fmt: skip
    assert [(turn.role, turn.phase, turn.hint) for turn in request.turns] == [
        ("user", None, "agent_message"), ("assistant", "commentary", None), ("assistant", "final_answer", None),
        ("user", None, None), ("user", None, "critic"),
    ]  # fmt: skip


def test_nothing_of_the_clients_body_is_touched() -> None:
    before = json.dumps(LOOP)
    request = DIALECT.decode_request(LOOP)
    renamed = tuple(changed(tool, name=tool.name + "_x") for tool in request.tools)
    home(msgspec.structs.replace(request, tools=renamed))
    assert json.dumps(LOOP) == before


def test_a_changed_call_leaves_its_neighbours_alone() -> None:
    request = DIALECT.decode_request(LOOP)
    turn = request.turns[1]
    call_ = turn.parts[2]
    parts = (*turn.parts[:2], changed(call_, name="f_2"), turn.parts[3])
    turns = (request.turns[0], changed(turn, parts=parts), request.turns[2])
    body = home(msgspec.structs.replace(request, turns=turns))
    renamed = {"type": "function_call", "call_id": "c1", "name": "f_2", "arguments": "{}", "new": 2}
    assert body["input"] == [*LOOP["input"][:5], renamed, *LOOP["input"][6:]]
    assert {key: value for key, value in body.items() if key != "input"} == {k: v for k, v in LOOP.items() if k != "input"}


def test_reasoning_that_had_to_go_takes_the_ids_with_it() -> None:
    request = DIALECT.decode_request(LOOP)
    turn = request.turns[1]
    for parts in (turn.parts[1:], (changed(turn.parts[0], signature=None), *turn.parts[1:])):
        turns = (request.turns[0], changed(turn, parts=parts), request.turns[2])
        items = home(msgspec.structs.replace(request, turns=turns))["input"]
        assert [item.get("type", "message") for item in items[3:]] == [
            "message", "function_call", "item_reference", "function_call_output",
        ]  # fmt: skip
        assert "id" not in items[3]
        assert "id" not in items[4]
        assert items[3]["new"] == 1


def test_state_taken_from_an_envelope_is_sent_with_its_own_id() -> None:
    request = DIALECT.decode_request(LOOP)
    turn = request.turns[1]
    opened = Opaque(family="openai", kind="encrypted", payload="native", item_id="rs_native")
    turns = (
        request.turns[0],
        changed(turn, parts=(changed(turn.parts[0], signature=opened), *turn.parts[1:])),
        request.turns[2],
    )
    items = home(msgspec.structs.replace(request, turns=turns))["input"]
    assert items[3] == {
        "type": "reasoning",
        "id": "rs_native",
        "summary": [{"type": "summary_text", "text": "S"}],
        "encrypted_content": "native",
    }
    assert items[4] == LOOP["input"][4]


def test_changed_tools_replace_both_lists() -> None:
    request = DIALECT.decode_request(LOOP)
    tools = (request.tools[0], changed(request.tools[1], namespace=None, name="ns__g"), request.tools[2])
    body = home(msgspec.structs.replace(request, tools=tools))
    assert body["tools"] == [
        LOOP["tools"][0],
        {"type": "function", "name": "ns__g", "parameters": {"type": "object", "properties": {}}, "strict": False, "new": 5},
        {"type": "custom", "name": "exec"},
    ]
    assert body["input"] == LOOP["input"][1:]
    kept = home(msgspec.structs.replace(request, tools=(request.tools[1], changed(request.tools[2], description="E"))))
    assert kept["tools"][0] == LOOP["tools"][1]
    assert home(msgspec.structs.replace(request, tools=())).keys() == LOOP.keys() - {"tools", "tool_choice"}


def test_changed_settings_are_laid_over_the_body() -> None:
    body = {
        "model": "m", "input": "Hi", "stream": True, "temperature": 1.5, "reasoning": {"effort": "max", "context": "auto"},
        "include": ["x"], "user": "u", "tools": [{"type": "function", "name": "f"}], "tool_choice": "required", "new": 1,
        "max_output_tokens": 100, "store": True, "text": {"verbosity": "low"}, "prompt_cache_key": "k",
        "previous_response_id": "resp_1",
    }  # fmt: skip
    request = DIALECT.decode_request(body)
    sent = home(
        msgspec.structs.replace(
            request,
            stream=False,
            temperature=None,
            reasoning=Reasoning(effort="high"),
            tool_choice=ToolChoice("auto"),
            max_output=50,
            parallel=True,
            system=(Text(text="Call one of the tools."),),
            end_user="v",
            logprobs=1,
        )
    )
    assert sent == {
        **{key: value for key, value in body.items() if key != "temperature"},
        "stream": False,
        "reasoning": {"effort": "high", "context": "auto"},
        "tool_choice": "auto",
        "max_output_tokens": 50,
        "parallel_tool_calls": True,
        "instructions": "Call one of the tools.",
        "user": "v",
        "include": ["x", "message.output_text.logprobs"],
        "top_logprobs": 1,
    }


def test_a_string_input_survives_a_change_elsewhere_and_its_own() -> None:
    request = DIALECT.decode_request({"model": "m", "input": "Hi"})
    assert home(msgspec.structs.replace(request, temperature=1.0)) == {"model": "m", "input": "Hi", "temperature": 1.0}
    more = (*request.turns, Turn(role="user", parts=(Text(text="more"),)))
    assert home(msgspec.structs.replace(request, turns=more))["input"] == [
        {"role": "user", "content": "Hi"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "more"}]},
    ]


def test_model_and_stream_of_the_url_win() -> None:
    request = DIALECT.decode_request({"model": "a", "input": "Hi", "stream": True}, model="b", stream=False)
    assert (request.model, request.stream) == ("b", False)


def test_ids_that_another_server_gave_are_not_sent_to_one_that_refuses_them() -> None:
    """After a fallback the history holds items of look-alikes; the vendor takes ids of its own shape only."""
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"type": "message", "id": "gen-1", "role": "assistant", "status": "completed", "content": []},
        {"type": "function_call", "id": "call_x", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "id": "fc_y", "call_id": "call_2", "name": "g", "input": "x"},
        {"type": "function_call", "id": "fc_z", "call_id": "call_3", "name": "f", "arguments": "{}"},
    ]
    body = {"model": "gpt-5.1", "input": items}
    sent_items = translate_request(body, source="openai_responses", target="openai_responses").body["input"]
    assert [item.get("id") for item in sent_items] == [None, None, None, None, "fc_z"]
    functions = {"model": "m", "input": [item for item in items if item.get("type") != "custom_tool_call"]}
    kept = translate_request(functions, source="openai_responses", target="openai_responses", profile="vllm_responses").body
    assert kept == functions
