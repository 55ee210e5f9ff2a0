"""Prompted tools through the gateway: two-turn tool loops of the official SDKs over an upstream that refuses tools and writes
its calls as JSON, `tools: auto` that learns it, the window's timer, and asking again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest
from google.genai import types as genai_types

from athena.shells.demo import PROMPTED_MODEL, demo_answer, demo_refusal
from support.gateway_process import GatewayThread, running_gateway
from support.patience import FOR_EVER, PATIENCE, until
from support.scripted_upstream import ScriptedUpstream
from support.sdks import anthropic_client, genai_client, openai_client
from support.upstream_speech import USAGE, chat_stream, chat_whole, encode
from support.upstream_talk import Talk

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = "Please get the weather in Paris"
CALL = [{"name": "get_weather", "parameters": {"city": "Paris"}}]


class Upstream(ScriptedUpstream):
    """The scripted model without tools, and what it was sent."""

    base_path = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[str] = []
        """Answers to give instead of the script's, in turn."""
        self.hangs = False
        self.fails_on_broken_history = False
        """Takes tools, and answers a call in the history whose arguments are no JSON as a chat template does."""
        self.left = threading.Event()

    async def answer(self, talk: Talk) -> None:
        body = talk.body
        refusal = demo_refusal(body)
        if self.fails_on_broken_history:
            if _has_broken_call(body):
                failure = {"error": {"code": 500, "message": "Failed to parse tool call arguments as JSON"}}
                await talk.whole(encode(failure), "500 X")
                return
            body = {key: value for key, value in body.items() if key != "tools"}
            body["messages"] = [{"role": "user", "content": QUESTION}]
        elif refusal is not None:
            await talk.whole(encode(refusal), "400 X")
            return
        if self.replies:
            text = self.replies.pop(0)
            pieces = [chat_whole({"content": text}, "stop")]
            if talk.stream:
                pieces = list(chat_stream([{"content": text}], "stop"))
        else:
            pieces = demo_answer({**body, "model": PROMPTED_MODEL})
        await talk.head()
        if self.hangs:
            await self._hang(talk, pieces[:-3])
        await talk.send(*pieces)
        await talk.end()

    async def _hang(self, talk: Talk, pieces: list[bytes]) -> None:
        """All but the end, and then nothing more until the client leaves."""
        await talk.send(*pieces)
        try:
            while True:
                await talk.send(b": wait\n\n")
                await talk.sleep(0.01)
        except ConnectionError:
            self.left.set()
            raise


def _has_broken_call(body: dict[str, Any]) -> bool:
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            try:
                json.loads(call["function"]["arguments"])
            except ValueError:
                return True
    return False


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


def _config(upstream: Upstream, window_ms: int) -> dict[str, Any]:
    return {
        "upstreams": {"local": {"base_url": upstream.url, "dialect": "openai_chat"}},
        "models": [
            {"match": "taught", "use": f"local/{PROMPTED_MODEL}", "tools": "prompted"},
            {"match": "first", "use": f"local/{PROMPTED_MODEL}", "tools": "prompted", "policy": "stop_on_first"},
            {"match": "learnt", "use": f"local/{PROMPTED_MODEL}"},
            {"match": "silent", "use": f"local/{PROMPTED_MODEL}", "tools": "none"},
            {"match": "native", "use": f"local/{PROMPTED_MODEL}", "tools": "native"},
        ],
        "tool_adapter": {"collect_window_ms": window_ms, "reask": True},
        "retries": {"attempts": 0},
        "envelope_key": "test",
    }


@pytest.fixture
def gateway(upstream: Upstream, tmp_path: Path) -> Iterator[GatewayThread]:
    """One whose window for calls ends with the answer."""
    with running_gateway(_config(upstream, int(FOR_EVER * 1000)), tmp_path) as running:
        yield running


def chat_loop(url: str, model: str, stream: bool) -> tuple[dict[str, Any], str]:
    client = openai_client(url)
    tools: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]

    def ask() -> Any:
        if not stream:
            return client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0]
        with client.chat.completions.stream(model=model, messages=messages, tools=tools) as events:
            for _ in events:
                pass
            return events.get_final_completion().choices[0]

    first = ask()
    assert first.finish_reason == "tool_calls"
    call = first.message.tool_calls[0]
    messages.append(first.message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
    if stream:
        function = {"name": call.function.name, "arguments": call.function.arguments}
        messages[-1]["tool_calls"] = [{"id": call.id, "type": "function", "function": function}]
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny, 20°"})
    return json.loads(call.function.arguments), ask().message.content


def responses_loop(url: str, model: str, stream: bool) -> tuple[dict[str, Any], str]:
    client = openai_client(url)
    tools: Any = [{"type": "function", "name": "get_weather", "parameters": SCHEMA}]
    items: list[Any] = [{"role": "user", "content": QUESTION}]

    def ask() -> Any:
        if not stream:
            return client.responses.create(model=model, input=items, tools=tools)
        with client.responses.stream(model=model, input=items, tools=tools) as events:
            for _ in events:
                pass
            return events.get_final_response()

    call = next(item for item in ask().output if item.type == "function_call")
    items.append({"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments})
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 20°"})
    return json.loads(call.arguments), ask().output_text


def messages_loop(url: str, model: str, stream: bool) -> tuple[dict[str, Any], str]:
    client = anthropic_client(url)
    tools: Any = [{"name": "get_weather", "input_schema": SCHEMA}]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]

    def ask() -> Any:
        if not stream:
            return client.messages.create(model=model, max_tokens=100, messages=messages, tools=tools)
        with client.messages.stream(model=model, max_tokens=100, messages=messages, tools=tools) as events:
            return events.get_final_message()

    first = ask()
    assert first.stop_reason == "tool_use"
    call = next(block for block in first.content if block.type == "tool_use")
    messages.append({"role": "assistant", "content": [block.model_dump() for block in first.content]})
    messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny, 20°"}]})
    return call.input, ask().content[0].text


def gemini_loop(url: str, model: str, stream: bool) -> tuple[dict[str, Any], str]:
    client = genai_client(url)
    declaration = genai_types.FunctionDeclaration(name="get_weather", parameters_json_schema=SCHEMA)
    settings = genai_types.GenerateContentConfig(
        tools=[genai_types.Tool(function_declarations=[declaration])],
        automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
    )
    contents: list[Any] = [genai_types.Content(role="user", parts=[genai_types.Part(text=QUESTION)])]

    def ask() -> list[Any]:
        if not stream:
            answers = [client.models.generate_content(model=model, contents=contents, config=settings)]
        else:
            answers = list(client.models.generate_content_stream(model=model, contents=contents, config=settings))
        return [part for answer in answers for part in (answer.candidates[0].content.parts or ())]  # type: ignore[index, union-attr]  # an SDK's optional fields

    call = next(part.function_call for part in ask() if part.function_call)
    contents.append(genai_types.Content(role="model", parts=[genai_types.Part(function_call=call)]))
    response = genai_types.FunctionResponse(name="get_weather", response={"result": "sunny, 20°"})
    contents.append(genai_types.Content(role="user", parts=[genai_types.Part(function_response=response)]))
    return dict(call.args), "".join(part.text or "" for part in ask())


LOOPS = {"chat": chat_loop, "responses": responses_loop, "messages": messages_loop, "gemini": gemini_loop}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("sdk", LOOPS)
def test_two_turns_over_an_upstream_without_tools(sdk: str, stream: bool, upstream: Upstream, gateway: GatewayThread) -> None:
    for model in ("taught", "learnt"):
        arguments, answer = LOOPS[sdk](gateway.url, model, stream)
        assert arguments == {"city": "Paris"}
        assert "sunny, 20°" in answer
    refused = [body for body in upstream.bodies if body.get("tools")]
    assert len(refused) == 2, "a second refusal confirms the first; then tools are not tried again"
    last = upstream.bodies[-1]["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "user"]
    assert json.loads(last[1]["content"])[0]["name"] == "get_weather"
    # It is learnt behind the answer, which the client may have by then.
    assert until(lambda: any("refuses tools" in line for line in gateway.logs.lines))
    assert any("'tool_mode': 'prompted'" in line for line in gateway.logs.lines)
    metrics = httpx.get(f"{gateway.url}/metrics", timeout=PATIENCE).text
    assert 'athena_tool_mode_switches_total{upstream="local"} 1.0' in metrics
    assert 'athena_prompted_requests_total{style="json",upstream="local"}' in metrics
    assert 'athena_format_detections_total{format="prompted_json"}' in metrics


def body(model: str, **fields: Any) -> dict[str, Any]:
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
    return {"model": model, "messages": [{"role": "user", "content": QUESTION}], "tools": [tool], **fields}


def test_a_clients_broken_history_changes_nothing_for_others(upstream: Upstream, gateway: GatewayThread) -> None:
    """Servers that fill a chat template fail on a call in the history whose arguments are no JSON."""
    cut = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Par'}}
    history = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [cut]},
        {"role": "tool", "tool_call_id": "c1", "content": "error: not JSON"},
    ]
    upstream.fails_on_broken_history = True
    for _ in range(3):
        answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body("learnt", messages=history))
        assert answer.status_code == 200
        assert "repaired: the arguments of a call in the history" in answer.headers["x-athena-warnings"]
    sent = [call for one in upstream.bodies for message in one["messages"] for call in message.get("tool_calls") or ()]
    assert sent
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in sent)
    httpx.post(f"{gateway.url}/v1/chat/completions", json=body("learnt"))
    assert upstream.bodies[-1].get("tools"), "everybody else's tools are native still"


def test_native_tools_stay_native(gateway: GatewayThread) -> None:
    with pytest.raises(openai.BadRequestError, match="does not support tools"):
        openai_client(gateway.url).chat.completions.create(**body("native"))


def test_tools_may_be_left_out(upstream: Upstream, gateway: GatewayThread) -> None:
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body("silent"), timeout=PATIENCE)
    assert "without tools" in answer.json()["choices"][0]["message"]["content"]
    assert "get_weather" not in json.dumps(upstream.bodies)
    assert "tools dropped: " in answer.headers["x-athena-warnings"]


def test_warnings_say_what_was_done(gateway: GatewayThread) -> None:
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body("taught"), timeout=PATIENCE)
    assert "tools emulated: taught in the prompt" in answer.headers["x-athena-warnings"]


def test_too_many_tools_name_the_number(gateway: GatewayThread) -> None:
    tools = [{"type": "function", "function": {"name": f"t{index}"}} for index in range(1001)]
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body("taught", tools=tools), timeout=PATIENCE)
    assert answer.status_code == 400
    assert "1000" in answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_call_is_asked_for_again(stream: bool, upstream: Upstream, gateway: GatewayThread) -> None:
    upstream.replies = [json.dumps([{"name": "get_weather", "parameters": {"town": "x"}}]), json.dumps(CALL)]
    asked = body("taught", stream=stream, stream_options={"include_usage": True}) if stream else body("taught")
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=asked, timeout=PATIENCE)
    assert answer.status_code == 200
    assert "Paris" in answer.text
    assert "town" not in answer.text
    assert len(upstream.bodies) == 2
    assert "could not be used" in upstream.bodies[1]["messages"][-1]["content"]
    if not stream:
        assert answer.json()["usage"]["prompt_tokens"] == 2 * USAGE["prompt_tokens"], "both are paid for"


def test_the_window_ends_an_answer_and_leaves_the_upstream(upstream: Upstream, tmp_path: Path) -> None:
    upstream.hangs = True
    upstream.replies = [json.dumps(CALL[0])]
    with running_gateway(_config(upstream, 50), tmp_path) as gateway:
        answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body("taught", stream=True), timeout=PATIENCE)
        assert upstream.left.wait(PATIENCE), "the upstream was left"
    assert answer.text.endswith("data: [DONE]\n\n")
    assert '"finish_reason":"tool_calls"' in answer.text


def test_stopping_leaves_the_upstream(upstream: Upstream, gateway: GatewayThread) -> None:
    upstream.hangs = True
    upstream.replies = [json.dumps(CALL)]
    answer = httpx.post(f"{gateway.url}/v1/messages", timeout=PATIENCE, json={
        "model": "first", "max_tokens": 50, "stream": True, "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"name": "get_weather", "input_schema": SCHEMA}]})  # fmt: skip
    assert '"stop_reason":"tool_use"' in answer.text
    assert upstream.left.wait(PATIENCE), "the upstream was left"
