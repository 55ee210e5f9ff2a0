"""The OpenAI SDK, Chat and Responses, on an upstream that speaks Anthropic Messages: in process, without a server.

Only `http_client` differs from any other program; streams, errors, retries and timeouts are the SDK's own.

    python examples/04_openai_sdk_on_an_anthropic_upstream.py
    ATHENA_BASE_URL=https://api.anthropic.com ATHENA_API_KEY=... ATHENA_MODEL=claude-sonnet-4-5 python examples/04_...

Offline, Athena's own gateway plays the upstream: it speaks Anthropic Messages in front of the demo model.
"""

import contextlib
import os

import httpx2
import openai
from offline import gateway

from athena.transport import Transport

SCHEMA: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = "What is the weather in Tokyo?"


def ask(url: str) -> None:
    transport = Transport(base_url=url, dialect="anthropic_messages")
    client = openai.OpenAI(api_key="unused", http_client=httpx2.Client(transport=transport))

    with client.chat.completions.stream(
        model="any-model",
        messages=[{"role": "user", "content": QUESTION}],
        tools=[{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}],
    ) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.done":
                print(f"chat completions: {event.name} {event.arguments}")

    response = client.responses.create(
        model="any-model",
        input=QUESTION,
        tools=[{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}],
    )
    for item in response.output:
        if item.type == "function_call":
            print(f"responses: {item.name} {item.arguments}")


with contextlib.ExitStack() as stack:
    ask(os.environ.get("ATHENA_BASE_URL") or stack.enter_context(gateway("--demo")))
