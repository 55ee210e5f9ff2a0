"""What a client runs itself is a function to every model, and what only one dialect has is said in plain words elsewhere."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from anthropic.types import beta as anthropic_beta
from openai.types.responses import Response

from athena import translate_request, translate_response
from athena.dialects.anthropic_messages.toolsets import members_of
from athena.model.request import Tool

OTHERS = ["openai_chat", "openai_responses", "gemini"]


def sent(body: dict[str, Any], source: str, target: str = "openai_chat", **options: Any) -> dict[str, Any]:
    base: dict[str, dict[str, Any]] = {
        "anthropic_messages": {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]},
        "openai_responses": {"model": "m", "input": [{"role": "user", "content": "Hi"}]},
        "openai_chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    }
    return translate_request({**base[source], **body}, source=source, target=target, model="m", **options).body


def functions(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The declared functions of a Chat body by name."""
    return {tool["function"]["name"]: tool["function"] for tool in body.get("tools", ())}


def answered(tools: list[dict[str, Any]], name: str, arguments: dict[str, Any] | str, target: str) -> dict[str, Any]:
    """What a client that declared these tools gets when a Chat model calls one of the functions."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = {"id": "call_7Kx2", "type": "function", "function": {"name": name, "arguments": text}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
    }
    requests: dict[str, dict[str, Any]] = {
        "openai_responses": {"model": "m", "input": "Hi", "tools": tools},
        "anthropic_messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": tools},
    }
    return translate_response(answer, source="openai_chat", target=target, request=requests[target]).body


# -- Responses ---------------------------------------------------------------------------------------------------------------

TYPED: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        {"type": "local_shell"},
        {"command": ["ls", "-l"], "working_directory": "/w"},
        {
            "type": "local_shell_call",
            "action": {"type": "exec", "command": ["ls", "-l"], "env": {}, "working_directory": "/w"},
        },
    ),
    (
        {"type": "shell", "environment": {"type": "local"}},
        {"commands": ["ls"], "timeout_ms": 5},
        {
            "type": "shell_call",
            "action": {"commands": ["ls"], "timeout_ms": 5, "max_output_length": None},
            "environment": {"type": "local"},
        },
    ),
    (
        {"type": "apply_patch"},
        {"type": "update_file", "path": "a.py", "diff": "@@"},
        {"type": "apply_patch_call", "operation": {"type": "update_file", "path": "a.py", "diff": "@@"}},
    ),
    (
        {"type": "computer"},
        {"actions": [{"type": "click", "x": 1, "y": 2, "button": "left"}]},
        {
            "type": "computer_call",
            "actions": [{"type": "click", "x": 1, "y": 2, "button": "left"}],
            "pending_safety_checks": [],
        },
    ),
    (
        {"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "linux"},
        {"action": {"type": "screenshot"}},
        {"type": "computer_call", "action": {"type": "screenshot"}, "pending_safety_checks": []},
    ),
    (
        {"type": "tool_search", "execution": "client", "parameters": {"type": "object", "properties": {"q": {}}}},
        {"q": "mail"},
        {"type": "tool_search_call", "execution": "client", "arguments": {"q": "mail"}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments", "expected"), TYPED, ids=lambda value: str(value.get("type", "")))
def test_typed_tools_of_responses_are_functions_abroad_and_items_at_home(
    tool: dict[str, Any], arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    for target in ("openai_chat", "gemini", "anthropic_messages"):
        translated = translate_request(
            {"model": "m", "input": "Hi", "tools": [tool]}, source="openai_responses", target=target, model="m"
        )
        assert "tools" in translated.body, target
        assert not [loss for loss in translated.warnings if loss.path.startswith("tools")]
    body = answered([tool], tool["type"], arguments, "openai_responses")
    parsed = Response.model_validate(body)
    assert parsed.output[0].type == expected["type"]
    (item,) = body["output"]
    assert item.pop("id").split("_")[0] in ("lsh", "sh", "apc", "cu", "tsc")
    assert item == {**expected, "status": "completed", "call_id": "call_7Kx2"}
    assert translate_request(
        {"model": "m", "input": "Hi", "tools": [tool]}, source="openai_responses", target="openai_responses"
    ).body["tools"] == [tool], "at home the upstream knows the type"


@pytest.mark.parametrize(("tool", "arguments", "expected"), TYPED, ids=lambda value: str(value.get("type", "")))
def test_items_of_typed_tools_come_back_as_calls_and_results(
    tool: dict[str, Any], arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    call = {**expected, "id": "x_1", "call_id": "call_1", "status": "completed"}
    outputs: dict[str, Any] = {
        "local_shell_call": {"type": "local_shell_call_output", "id": "x_1", "output": "a.py"},
        "shell_call": {
            "type": "shell_call_output",
            "call_id": "call_1",
            "output": [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
        "apply_patch_call": {"type": "apply_patch_call_output", "call_id": "call_1", "status": "failed", "output": "a.py: no"},
        "computer_call": {
            "type": "computer_call_output",
            "call_id": "call_1",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,aGk="},
        },
        "tool_search_call": {
            "type": "tool_search_output",
            "call_id": "call_1",
            "execution": "client",
            "tools": [{"type": "function", "name": "send_a.py", "parameters": {}, "defer_loading": True}],
        },
    }
    items = [{"role": "user", "content": "Hi"}, call, outputs[expected["type"]]]
    body = sent({"input": items, "tools": [tool]}, "openai_responses")
    said = body["messages"]
    assert [message["role"] for message in said][:3] == ["user", "assistant", "tool"]
    (made,) = said[1]["tool_calls"]
    assert (made["id"], made["function"]["name"]) == ("call_1", tool["type"])
    given = json.loads(made["function"]["arguments"])
    assert {key: given[key] for key in arguments} == arguments
    assert said[2]["tool_call_id"] == "call_1"
    shown = json.dumps(said[2:])
    assert "a.py" in shown or "data:image/png;base64,aGk=" in shown


@pytest.mark.parametrize("named", ["x_1", "call_1"])
def test_the_output_of_a_local_shell_names_its_call_by_either_id(named: str) -> None:
    """The API's types say the item's id, OpenAI's own agent library sends the call's."""
    action = {"type": "exec", "command": ["ls"], "env": {}}
    call = {"type": "local_shell_call", "id": "x_1", "call_id": "call_1", "action": action, "status": "completed"}
    items = [{"role": "user", "content": "Hi"}, call, {"type": "local_shell_call_output", "id": named, "output": "a.py"}]
    body = sent({"input": items, "tools": [{"type": "local_shell"}]}, "openai_responses")
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "call_1", "content": "a.py"}


def test_a_failed_patch_is_an_error_and_tools_that_a_search_found_are_declared() -> None:
    found = {"type": "function", "name": "send_mail", "description": "Send.", "parameters": {"type": "object"}}
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"type": "tool_search_call", "call_id": "call_1", "execution": "client", "arguments": {"q": "x"}},
        {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "tools": [
            found, {"type": "namespace", "name": "mail", "description": "", "tools": [found]},
        ]},
        {"type": "apply_patch_call", "call_id": "call_2", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "call_id": "call_2", "status": "failed", "output": "no such file"},
    ]  # fmt: skip
    body = {"input": items, "tools": [{"type": "tool_search", "execution": "client"}, {"type": "apply_patch"}]}
    translated = sent(body, "openai_responses")
    assert set(functions(translated)) == {"tool_search", "apply_patch", "send_mail", "mail__send_mail"}
    results = [message["content"] for message in translated["messages"] if message["role"] == "tool"]
    assert results == ["Tools found: send_mail, mail.send_mail.", "[tool error] no such file"]
    home = translate_request({"model": "m", **body}, source="openai_responses", target="openai_responses")
    assert (home.body["input"], home.body["tools"], home.warnings) == (items, body["tools"], ())


def test_provider_run_variants_stay_hosted() -> None:
    hosted: list[dict[str, Any]] = [
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "tool_search"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
    ]
    for tool in hosted:
        translated = translate_request(
            {"model": "m", "input": "Hi", "tools": [tool]}, source="openai_responses", target="openai_chat", model="m"
        )
        assert "tools" not in translated.body
        assert [loss.path for loss in translated.warnings] == ["tools[0]"]


def test_a_choice_of_a_typed_tool_chooses_its_function() -> None:
    tools: list[dict[str, Any]] = [{"type": "shell"}, {"type": "function", "name": "shell", "parameters": {}}]
    body = sent({"tools": tools, "tool_choice": {"type": "shell"}}, "openai_responses")
    assert set(functions(body)) == {"shell", "shell_tool"}, "a client's own function keeps its name"
    assert body["tool_choice"] == {"type": "function", "function": {"name": "shell_tool"}}
    (item,) = answered(tools, "shell_tool", {"commands": ["ls"]}, "openai_responses")["output"]
    assert item["type"] == "shell_call"
    (item,) = answered(tools, "shell", {"x": 1}, "openai_responses")["output"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "shell", '{"x": 1}')


def test_arguments_that_fill_no_item_reach_the_client_as_they_are() -> None:
    (item,) = answered([{"type": "shell"}], "shell", {"comand": "ls"}, "openai_responses")["output"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "shell", '{"comand": "ls"}')


def test_a_result_that_names_no_call_is_text_abroad_and_itself_at_home() -> None:
    items = [{"role": "user", "content": "Hi"}, {"type": "function_call_output", "name": "f", "output": "12:00"}]
    body = {"model": "m", "input": items}
    assert translate_request(body, source="openai_responses", target="openai_responses").body["input"] == items
    translated = translate_request(body, source="openai_responses", target="openai_chat")
    assert translated.body["messages"][1] == {"role": "user", "content": "[result of the tool f]\n12:00"}
    assert [(loss.path, loss.action) for loss in translated.warnings] == [("input", "emulated")]


# -- Messages ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toolset", "union"),
    [("computer", anthropic_beta.BetaComputerMemberInput), ("browser", anthropic_beta.BetaBrowserMemberInput)],
)
def test_toolsets_have_the_members_and_fields_of_the_sdk(toolset: str, union: Any) -> None:
    members = members_of(Tool(name=toolset, kind="hosted", hosted=f"{toolset}_toolset"))
    assert members is not None
    fields: dict[str, set[str]] = {}
    for model in get_args(union):
        words = model.__name__.removeprefix(f"Beta{toolset.title()}").removesuffix("Input")
        name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).lstrip("_")
        fields[name] = {field.alias or key for key, field in model.model_fields.items()}
    assert {tool.name: set((tool.schema or {})["properties"]) for tool in members} == fields


def test_a_toolset_is_its_members_and_their_calls_name_it() -> None:
    tools: list[dict[str, Any]] = [{"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}}}]
    declared = functions(sent({"tools": tools}, "anthropic_messages"))
    assert "computer__left_click" in declared
    assert "computer__zoom" not in declared
    (block,) = answered(tools, "computer__left_click", {"coordinate": [1, 2]}, "anthropic_messages")["content"]
    assert (block["name"], block["toolset_name"], block["input"]) == ("left_click", "computer", {"coordinate": [1, 2]})
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{**block, "caller": {"type": "direct"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": block["id"], "toolset_name": "computer", "content": [
                {"type": "browser_state", "tabs": [{"tab_id": "t", "title": "T", "url": "https://x.test", "active": True}]},
            ]},
        ]},
    ]  # fmt: skip
    translated = translate_request(
        {"model": "m", "max_tokens": 9, "messages": history, "tools": tools},
        source="anthropic_messages",
        target="openai_chat",
    )
    said = translated.body["messages"]
    assert said[1]["tool_calls"][0]["function"]["name"] == "computer__left_click"
    assert said[2]["content"] == "Open tabs:\n- t: T https://x.test (active)"
    assert translated.warnings == ()


@pytest.mark.parametrize("target", OTHERS)
def test_tool_references_say_which_tools_were_loaded(target: str) -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {"q": "mail"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "tool_reference", "tool_name": "SendMail"}, {"type": "tool_reference", "tool_name": "ReadMail"},
            ]},
        ]},
    ]  # fmt: skip
    body = json.dumps(sent({"messages": messages}, "anthropic_messages", target))
    assert "The tool SendMail is loaded and can be called." in body
    assert "The tool ReadMail is loaded and can be called." in body


def test_tools_change_in_the_middle_of_a_conversation() -> None:
    definition = {"name": "late", "description": "D", "input_schema": {"type": "object"}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": [
            {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}},
            {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "early"}},
        ]},
        {"role": "user", "content": "Go"},
    ]  # fmt: skip
    early = {"name": "early", "input_schema": {"type": "object"}}
    body: dict[str, Any] = {"model": "claude-opus-4-8", "max_tokens": 9, "messages": messages, "tools": [early]}
    translated = sent(body, "anthropic_messages")
    assert set(functions(translated)) == {"late"}
    system = translated["messages"][1]
    assert system["role"] == "system"
    assert "the tool late can be called" in json.dumps(system)
    assert "the tool early can no longer be called" in json.dumps(system)
    home = translate_request(body, source="anthropic_messages", target="anthropic_messages")
    assert (home.body["messages"], home.body["tools"], home.warnings) == (messages, [early], ())


def test_system_messages_that_end_or_only_set_the_effort() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "Only now.", "clear_at": "next_user_message"},
        {"role": "assistant", "content": "Yo"},
        {"role": "user", "content": "Go"},
        {"role": "system", "content": "From now on.", "clear_at": "next_user_message"},
        {"role": "system", "output_config": {"effort": "low"}},
    ]
    body: dict[str, Any] = {"model": "claude-opus-4-8", "max_tokens": 9, "messages": messages}
    home = translate_request(body, source="anthropic_messages", target="anthropic_messages")
    assert (home.body, home.warnings) == (body, ())
    translated = translate_request(body, source="anthropic_messages", target="openai_chat", model="m")
    assert [message["content"] for message in translated.body["messages"]] == ["Hi", "Yo", "Go", "From now on."]
    assert translated.body["reasoning_effort"] == "low"
    assert translated.warnings == ()


def test_the_billing_line_goes_to_its_provider_only() -> None:
    line = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325.93b; cc_entrypoint=sdk-cli;"}
    system = [line, {"type": "text", "text": "Be brief."}]
    body: dict[str, Any] = {
        "model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": [{"role": "user", "content": "Hi"}],
    }  # fmt: skip
    home = translate_request(body, source="anthropic_messages", target="anthropic_messages")
    assert (home.body["system"], home.warnings) == (system, ())
    for target, profile in (
        ("openai_chat", None), ("openai_responses", None), ("gemini", None), ("anthropic_messages", "vllm_anthropic"),
    ):  # fmt: skip
        translated = translate_request(body, source="anthropic_messages", target=target, model="m", profile=profile)
        assert "billing" not in json.dumps(translated.body)
        assert "Be brief." in json.dumps(translated.body)
        assert any("billing" in loss.reason for loss in translated.warnings)


# -- web search --------------------------------------------------------------------------------------------------------------

SEARCHES: list[tuple[str, dict[str, Any]]] = [
    ("anthropic_messages", {"type": "web_search_20260318", "name": "web_search"}),
    ("openai_responses", {"type": "web_search"}),
    ("openai_responses", {"type": "web_search_preview"}),
    ("openai_responses", {"type": "web_search_2025_08_26"}),
    ("gemini", {"googleSearch": {}}),
    ("gemini", {"google_search": {}}),
]


@pytest.mark.parametrize(("source", "tool"), SEARCHES)
@pytest.mark.parametrize(
    ("target", "model", "expected"),
    [
        ("anthropic_messages", "claude-sonnet-4-5", {"type": "web_search_20250305", "name": "web_search"}),
        ("openai_responses", "gpt-5.1", {"type": "web_search"}),
        ("gemini", "gemini-3-pro", {"googleSearch": {}}),
    ],
)
def test_a_web_search_is_one_everywhere(
    source: str, tool: dict[str, Any], target: str, model: str, expected: dict[str, Any]
) -> None:
    base: dict[str, dict[str, Any]] = {
        "anthropic_messages": {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]},
        "openai_responses": {"model": "m", "input": "Hi"},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    }
    sent_body = translate_request({**base[source], "tools": [tool]}, source=source, target=target, model=model).body
    assert sent_body["tools"] == [tool if source == target else expected]


# -- Chat --------------------------------------------------------------------------------------------------------------------


def test_tools_that_a_system_message_declares() -> None:
    """Kimi K3 takes tools in system messages; every other model gets them in the list."""
    late = {"type": "function", "function": {"name": "late", "parameters": {"type": "object"}}}
    body: dict[str, Any] = {
        "model": "kimi-k3",
        "messages": [
            {"role": "system", "content": "Hm", "tools": [late]},
            {"role": "user", "content": "Hi"},
            {"role": "system", "content": "More", "tools": [{**late, "function": {"name": "later"}}]},
        ],
    }
    home = translate_request(body, source="openai_chat", target="openai_chat")
    assert (home.body, home.warnings) == (body, ())
    for target, key in (("openai_responses", "name"), ("anthropic_messages", "name")):
        translated = translate_request(body, source="openai_chat", target=target, model="m")
        assert [tool[key] for tool in translated.body["tools"]] == ["late", "later"]
        assert not [loss for loss in translated.warnings if "tools" in loss.path]


# -- Gemini ------------------------------------------------------------------------------------------------------------------


def test_the_choice_of_a_value_is_told_in_words() -> None:
    config = {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["red", "green"]}}
    for target in ("openai_chat", "anthropic_messages", "openai_responses"):
        body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": config}
        translated = translate_request(body, source="gemini", target=target, model="m")
        assert "exactly one of these values and nothing else: red, green" in json.dumps(translated.body)
        assert [(loss.path, loss.action) for loss in translated.warnings] == [("responseSchema", "emulated")]


def test_geminis_computer_is_the_functions_its_client_runs() -> None:
    tools = [{"computerUse": {"environment": "ENVIRONMENT_BROWSER", "excluded_predefined_functions": ["drag_and_drop"]}}]
    declared = functions(sent({"tools": tools}, "gemini"))
    assert {"click_at", "type_text_at", "navigate"} <= set(declared)
    assert "drag_and_drop" not in declared
    assert declared["click_at"]["parameters"]["required"] == ["x", "y"]
    assert "navigate" not in functions(sent({"tools": [{"computerUse": {"environment": "ENVIRONMENT_MOBILE"}}]}, "gemini"))
