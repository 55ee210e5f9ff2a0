"""The official SDKs over the in-process transport, against a demo upstream on a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types as genai_types

from athena.shells.demo_server import DemoServer
from athena.transport import AsyncTransport, Transport
from support.patience import PATIENCE

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = "What is the weather in Paris?"


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    loop = asyncio.new_event_loop()
    server = DemoServer(pause=0.0)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(PATIENCE)
    yield server.url
    asyncio.run_coroutine_threadsafe(server.close(), loop).result(PATIENCE)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE)
    loop.close()


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_over_a_chat_upstream(demo: str, stream: bool) -> None:
    with anthropic.Anthropic(api_key="x", http_client=httpx2.Client(transport=Transport(base_url=demo))) as client:
        arguments: dict[str, Any] = {
            "model": "athena-demo",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": QUESTION}],
            "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
        }
        if stream:
            with client.messages.stream(**arguments) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**arguments)
        call = message.content[-1]
        assert call.type == "tool_use"
        assert (call.name, call.input, message.stop_reason) == ("get_weather", {"city": "Paris"}, "tool_use")
        arguments["messages"] += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "It rains."}]},
        ]
        answer = client.messages.create(**arguments)
        assert [block.text for block in answer.content if block.type == "text"] == ["The tool says: It rains."]
        counted = client.messages.count_tokens(model="athena-demo", messages=arguments["messages"][:1])
        assert counted.input_tokens > 0


def test_responses_over_a_chat_upstream(demo: str) -> None:
    with openai.OpenAI(api_key="x", http_client=httpx2.Client(transport=Transport(base_url=demo))) as client:
        tool: Any = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}
        with client.responses.stream(model="athena-demo", input=QUESTION, tools=[tool]) as events:
            for _ in events:
                pass
            response = events.get_final_response()
        call = response.output[-1]
        assert call.type == "function_call"
        assert (call.name, call.arguments) == ("get_weather", '{"city":"Paris"}')


def test_gemini_over_a_chat_upstream(demo: str) -> None:
    declaration: Any = {"name": "get_weather", "parameters_json_schema": SCHEMA}
    config = genai_types.GenerateContentConfig(
        tools=[genai_types.Tool(function_declarations=[declaration])],
        automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
    )
    with httpx2.Client(transport=Transport(base_url=demo)) as http:
        client = genai.Client(api_key="x", http_options=genai_types.HttpOptions(httpx_client=http))
        chunks = list(client.models.generate_content_stream(model="athena-demo", contents=QUESTION, config=config))
    calls = [call for chunk in chunks for call in chunk.function_calls or ()]
    assert [(call.name, call.args) for call in calls] == [("get_weather", {"city": "Paris"})]


def test_async_chat_repairs_leaked_calls_on_its_own_dialect(demo: str) -> None:
    async def ask() -> list[Any]:
        transport = AsyncTransport(base_url=demo)
        async with openai.AsyncOpenAI(
            api_key="x", http_client=httpx2.AsyncClient(transport=transport), timeout=PATIENCE
        ) as client:
            tool: Any = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
            stream = await client.chat.completions.create(
                model="athena-demo", messages=[{"role": "user", "content": QUESTION}], tools=[tool], stream=True
            )
            return [chunk async for chunk in stream]

    chunks = asyncio.run(ask())
    deltas = [call for chunk in chunks if chunk.choices for call in chunk.choices[0].delta.tool_calls or ()]
    assert deltas[0].function.name == "get_weather"
    assert "".join(delta.function.arguments or "" for delta in deltas) == '{"city":"Paris"}'
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"


def test_errors_are_the_sdks_own() -> None:
    transport = Transport(base_url="http://127.0.0.1:9/v1")
    with anthropic.Anthropic(api_key="x", max_retries=0, http_client=httpx2.Client(transport=transport)) as client:
        with pytest.raises(anthropic.APIConnectionError):
            client.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "Hi"}])
        nobody: Any = {"role": "nobody", "content": "Hi"}
        with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.role"):
            client.messages.create(model="m", max_tokens=5, messages=[nobody])
        with pytest.raises(anthropic.NotFoundError):
            client.beta.files.list()
