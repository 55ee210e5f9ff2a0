"""The OpenAI Agents SDK on any upstream, in process: the transport goes into the OpenAI client that it is given.

Run it:

    pip install athena-gateway openai-agents
    athena demo    # in another terminal; or set ATHENA_BASE_URL, ATHENA_MODEL, ATHENA_API_KEY
    python examples/frameworks/openai_agents_transport.py
"""

import asyncio
import os

import httpx2
import openai

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from athena.transport import AsyncTransport

BASE_URL = os.environ.get("ATHENA_BASE_URL", "http://127.0.0.1:12378/v1")
MODEL = os.environ.get("ATHENA_MODEL", "athena-demo")
QUESTION = "What is the weather in Tokyo?"


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny, 21 °C in {city}"


def show(label: str, result) -> None:
    for item in result.new_items:
        if item.type == "tool_call_item":
            print(f"{label}: called {item.raw_item.name} {item.raw_item.arguments}")
    print(f"{label}: answer {result.final_output}")


async def main() -> None:
    set_tracing_disabled(True)  # traces would go to OpenAI
    http_client = httpx2.AsyncClient(transport=AsyncTransport(base_url=BASE_URL))
    client = openai.AsyncOpenAI(api_key="unused", http_client=http_client)
    for api, kind in (("chat", OpenAIChatCompletionsModel), ("responses", OpenAIResponsesModel)):
        agent = Agent(name="weather", model=kind(model=MODEL, openai_client=client), tools=[get_weather])
        show(f"{api} whole", await Runner.run(agent, QUESTION))
        streamed = Runner.run_streamed(agent, QUESTION)
        async for _ in streamed.stream_events():
            pass
        show(f"{api} streamed", streamed)


asyncio.run(main())
