"""Requests of the Responses dialect where the generic runners do not look: what a translated request may hold, and how one
that was changed on its way home stays itself.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from athena.dialects.base import Target
from athena.dialects.openai_responses import DIALECT
from athena.errors import UnsupportedFeature
from athena.model.parts import (
    Audio,
    Base64,
    CacheMark,
    Citation,
    Document,
    FileRef,
    Foreign,
    Image,
    InlineText,
    Opaque,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    changed,
)
from athena.model.profile import Profile
from athena.model.request import Loss, Output, Reasoning, Request, Tool, ToolChoice, Turn
from athena.translate import translate_request
from support.sdk_types import check_body

STATE = Opaque(family="openai", kind="encrypted", payload="gAAAA")

TARGET = Target("up", Profile(dialect="openai_responses", family="openai", custom_tools=True))


def send(request: Request, **profile: Any) -> tuple[dict[str, Any], tuple[Loss, ...]]:
    row = msgspec.structs.replace(TARGET.profile, **profile)
    encoded = DIALECT.encode_request(request, Target("up", row))
    assert encoded.path == "/responses"
    check_body("openai_responses", encoded.body)
    return encoded.body, encoded.losses


def neutral(*turns: Turn, **fields: Any) -> Request:
    return Request(
        dialect="anthropic_messages", model="m", turns=turns or (Turn(role="user", parts=(Text(text="Hi"),)),), **fields
    )


def test_a_translated_request() -> None:
    body, losses = send(neutral(system=(Text(text="S"),), stream=True, max_output=3, temperature=0.1, parallel=False))
    assert body == {
        "model": "up",
        "instructions": "S",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "stream": True,
        "max_output_tokens": 16,
        "temperature": 0.1,
        "parallel_tool_calls": False,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    assert [loss.path for loss in losses] == ["max_output"]


def test_several_instructions_lead_as_a_developer_message() -> None:
    marked = Text(text="B", cache=CacheMark(43200))
    body, _ = send(neutral(system=(Text(text="A"), marked)), cache_marks="breakpoint")
    assert "instructions" not in body
    assert body["input"][0] == {
        "type": "message",
        "role": "developer",
        "content": [
            {"type": "input_text", "text": "A"},
            {"type": "input_text", "text": "B", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}},
        ],
    }
    later = Turn(role="system", parts=(Text(text="L"),))
    assert send(neutral(Turn(role="user", parts=(Text(text="Q"),)), later))[0]["input"][1]["role"] == "developer"


def test_only_the_last_four_marks_are_sent() -> None:
    parts = tuple(Text(text=str(number), cache=CacheMark()) for number in range(6))
    body, _ = send(neutral(Turn(role="user", parts=parts)), cache_marks="breakpoint")
    assert [("prompt_cache_breakpoint" in part) for part in body["input"][0]["content"]] == [False, False, *[True] * 4]
    assert "prompt_cache_breakpoint" not in json.dumps(send(neutral(Turn(role="user", parts=parts)))[0])


def test_tools_always_say_strict() -> None:
    schema = {"type": "object", "properties": {"p": {"type": "integer"}}}
    tools = (
        Tool(name="loose", schema=schema, description="D", deferred=True),
        Tool(name="tight", schema=schema, strict=True),
        Tool(name="none"),
        Tool(name="free", kind="custom", grammar={"syntax": "lark", "definition": "start: /x/"}),
        Tool(name="text", kind="custom"),
    )
    body, _ = send(neutral(tools=tools))
    loose, tight, none, free, text = body["tools"]
    assert loose == {"type": "function", "name": "loose", "description": "D", "parameters": schema, "strict": False}
    assert tight["strict"] is True
    assert tight["parameters"]["additionalProperties"] is False
    assert none["parameters"] == {"type": "object", "properties": {}}
    assert free["format"] == {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}
    assert text["format"] == {"type": "text"}
    assert send(neutral(tools=tools), strict_tools=False)[0]["tools"][1]["strict"] is False


def test_hosted_tools_of_others() -> None:
    search = Tool(
        name="web_search",
        kind="hosted",
        hosted="web_search_20250305",
        config={"allowed_domains": ["e.org"], "max_uses": 3, "user_location": {"type": "approximate", "country": "FR"}},
    )
    code = Tool(name="code", kind="hosted", hosted="code_execution")
    body, losses = send(neutral(tools=(search, code)), hosted_tools=True)
    assert body["tools"] == [
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["e.org"]},
            "user_location": {"type": "approximate", "country": "FR"},
        }
    ]
    assert [loss.path for loss in losses] == ["tools[0].max_uses", "tools[1]"]
    assert "tools" not in send(neutral(tools=(code,), tool_choice=ToolChoice("auto")))[0]
    with pytest.raises(UnsupportedFeature):
        send(neutral(tools=(code,), tool_choice=ToolChoice("named", ("code",), "hosted")))


def test_calls_results_and_reasoning() -> None:
    signed = Thinking(text="T", summary=True, signature=msgspec.structs.replace(STATE, item_id="rs_1"))
    assistant = Turn(
        role="assistant",
        parts=(
            signed,
            Text(text="Look"),
            Text(text="ing"),
            ToolCall(id="c1", name="a", arguments="{}", item_id="toolu_1"),
            ToolCall(id="c2", name="p", arguments="x", kind="custom"),
        ),
    )
    results = Turn(
        role="user",
        parts=(
            ToolResult(call_id="c1", is_error=True, parts=(Text(text="boom"),)),
            ToolResult(call_id="c2", kind="custom", is_error=True, parts=(Image(source=Url("https://e.org/a.png")),)),
            ToolResult(call_id="c3"),
            ToolResult(call_id="c4", structured={"x": 1}),
            Text(text="Go on"),
        ),
    )
    body, _ = send(neutral(assistant, results))
    assert body["input"] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "T"}],
            "encrypted_content": "gAAAA",
        },
        {"type": "message", "role": "assistant", "content": "Looking"},
        {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "x"},
        {"type": "function_call_output", "call_id": "c1", "output": "[tool error] boom"},
        {
            "type": "custom_tool_call_output",
            "call_id": "c2",
            "output": [
                {"type": "input_text", "text": "[tool error]"},
                {"type": "input_image", "detail": "auto", "image_url": "https://e.org/a.png"},
            ],
        },
        {"type": "function_call_output", "call_id": "c3", "output": ""},
        {"type": "function_call_output", "call_id": "c4", "output": '{"x":1}'},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on"}]},
    ]


def test_citations_and_refusals_of_the_history() -> None:
    cited = Text(text="A", citations=(Citation(url="https://e.org"), Citation(kind="page")))
    encoded = DIALECT.encode_request(
        neutral(Turn(role="assistant", parts=(cited, Refusal(text="no")), phase="final_answer")), TARGET
    )
    assert encoded.body["input"] == [
        {
            "type": "message",
            "role": "assistant",
            "phase": "final_answer",
            "content": [
                {
                    "type": "output_text",
                    "text": "A",
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url": "https://e.org",
                            "title": "https://e.org",
                            "start_index": 0,
                            "end_index": 0,
                        }
                    ],
                },
                {"type": "refusal", "refusal": "no"},
            ],
        }
    ]
    # The last entry: a conversation that ends with the assistant may be answered anew.
    assert [loss.path for loss in encoded.losses] == ["turns[0].parts[0].citations", "turns[0]"]


def test_reasoning_without_state_or_follower_is_left_out() -> None:
    unsigned = Turn(role="assistant", parts=(Thinking(text="T"), Text(text="A")))
    last = Turn(role="assistant", parts=(Text(text="A"), Thinking(text="T", signature=STATE)))
    body, losses = send(neutral(unsigned, last))
    assert [item["type"] for item in body["input"]] == ["message", "message"]
    assert [loss.path for loss in losses] == ["turns[0].parts[0]", "turns[1].parts[1]", "turns[1]"]


def test_media() -> None:
    parts = (
        Image(source=Base64("image/png", "AA=="), detail="low"),
        Document(source=Base64("application/pdf", "JV=="), title="a.pdf"),
        Document(source=Base64("application/pdf", "JV==")),
        Document(source=Url("https://e.org/a.pdf")),
        Document(source=InlineText("body"), title="Title"),
    )
    body, _ = send(neutral(Turn(role="user", parts=parts)))
    assert body["input"][0]["content"] == [
        {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JV=="},
        {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,JV=="},
        {"type": "input_file", "file_url": "https://e.org/a.pdf"},
        {"type": "input_text", "text": "Title\n\nbody"},
    ]


@pytest.mark.parametrize(
    "request_",
    [
        neutral(Turn(role="user", parts=(Audio(source=Base64("audio/wav", "UklG")),))),
        neutral(Turn(role="user", parts=(Image(source=FileRef("file_1")),))),
        neutral(Turn(role="user", parts=(Document(source=FileRef("file_1")),))),
        neutral(n=2),
        neutral(previous_id="resp_1"),
        neutral(output=Output(modalities=("text", "audio"))),
    ],
)
def test_what_cannot_be_said_is_refused(request_: Request) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        send(request_)
    assert caught.value.path


def test_what_is_dropped_is_reported_and_refused_when_strict() -> None:
    foreign = Turn(role="assistant", parts=(Foreign(kind="server_tool_use", dialect="anthropic_messages", raw={}),))
    request = neutral(
        foreign,
        stop=("X",),
        seed=1,
        top_k=4,
        logit_bias={"1": 1},
        speed="fast",
        end_user="u",
        metadata={"a": "b"},
        server={"container": "c"},
        extras={"mystery": 1, "passed": 2},
        output=Output(verbosity="low"),
    )
    body, losses = send(request, tier=False, pass_fields=("passed",))
    paths = {loss.path for loss in losses}
    assert paths == {
        "turns[0]", "turns[0].parts[0]",
        "stop", "seed", "top_k", "logit_bias", "speed", "end_user", "metadata", "container", "mystery",
        "verbosity",
    }  # fmt: skip
    assert body["passed"] == 2
    for field in ({"stop": ("X",)}, {"seed": 1}, {"server": {"container": "c"}}):
        with pytest.raises(UnsupportedFeature):
            DIALECT.encode_request(neutral(**field), Target("up", TARGET.profile, strict=True))


def test_reasoning_controls_of_smaller_models() -> None:
    assert send(neutral(reasoning=Reasoning(mode="off")), efforts=("minimal", "low"))[0]["reasoning"] == {"effort": "minimal"}
    assert send(neutral(reasoning=Reasoning(budget=64000)), efforts=("low", "high"))[0]["reasoning"] == {"effort": "high"}
    body, losses = send(neutral(reasoning=Reasoning(effort="low")), reasoning_control="none")
    assert "reasoning" not in body
    assert "include" not in body
    assert [loss.path for loss in losses] == ["reasoning"]


def test_output_and_services() -> None:
    output = Output(kind="schema", name="n", schema={"type": "object", "properties": {}}, strict=True, description="d")
    body, _ = send(
        neutral(output=output, end_user="u" * 200, metadata={"a": "b"}, tier="flex", logprobs=2, store=True),
        user_field="safety_identifier",
        metadata=True,
        store=True,
    )
    assert body["text"]["format"]["type"] == "json_schema"
    assert body["text"]["format"]["strict"] is True
    assert len(body["safety_identifier"]) == 40
    assert (body["metadata"], body["service_tier"], body["store"], body["top_logprobs"]) == ({"a": "b"}, "flex", True, 2)
    assert body["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert send(neutral(output=Output(kind="json")))[0]["text"] == {"format": {"type": "json_object"}}
    less, losses = send(neutral(output=output), json_schema=False)
    assert less["text"] == {"format": {"type": "json_object"}}
    assert [loss.path for loss in losses] == ["output.schema"]


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
    return DIALECT.encode_request(request, Target("m", TARGET.profile)).body


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
