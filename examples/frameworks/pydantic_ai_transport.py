"""pydantic-ai on any upstream, in process: the transport goes into the provider's `http_client`.

All three of pydantic-ai's model classes below end at the same upstream; take the one your program has.

    pip install athena-gateway 'pydantic-ai-slim[openai,anthropic]'
    athena demo    # in another terminal; or set ATHENA_BASE_URL, ATHENA_MODEL, ATHENA_API_KEY
    python examples/frameworks/pydantic_ai_transport.py
"""

import asyncio
import os

import httpx2
from pydantic_ai import Agent, AgentRunResultEvent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from athena.transport import AsyncTransport

BASE_URL = os.environ.get("ATHENA_BASE_URL", "http://127.0.0.1:12378/v1")
MODEL = os.environ.get("ATHENA_MODEL", "athena-demo")
QUESTION = "What is the weather in Tokyo?"


async def main() -> None:
    http_client = httpx2.AsyncClient(transport=AsyncTransport(base_url=BASE_URL))
    openai = OpenAIProvider(api_key="unused", http_client=http_client)
    models = {
        "chat": OpenAIChatModel(MODEL, provider=openai),
        "responses": OpenAIResponsesModel(MODEL, provider=openai),
        "messages": AnthropicModel(MODEL, provider=AnthropicProvider(api_key="unused", http_client=http_client)),
    }
    for api, model in models.items():
        agent = Agent(model)
        label = ""

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """The weather in a city."""
            print(f"{label}: called get_weather {{'city': {city!r}}}")  # noqa: B023 - the label of the run that calls
            return f"sunny, 21 °C in {city}"

        label = f"{api} whole"
        print(f"{label}: answer {(await agent.run(QUESTION)).output}")
        label = f"{api} streamed"
        async with agent.run_stream_events(QUESTION) as events:
            async for event in events:  # text, thinking and calls as they come, and the result at the end
                if isinstance(event, AgentRunResultEvent):
                    print(f"{label}: answer {event.result.output}")


asyncio.run(main())
