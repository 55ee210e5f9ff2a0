"""Anthropic's SDK on an OpenAI-compatible upstream whose model leaks its calls as raw Kimi tokens.

First what the upstream really says, then what Anthropic's SDK sees through Athena's transport: thinking and a tool call.

    python examples/05_anthropic_sdk_on_a_leaking_model.py
    ATHENA_BASE_URL=http://127.0.0.1:8000/v1 ATHENA_MODEL=moonshotai/Kimi-K2-Instruct python examples/05_...
"""

import os

import anthropic
import httpx2
from offline import upstream

from athena.transport import Transport

SCHEMA: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = "What is the weather in Tokyo?"


def show_raw_answer(url: str) -> None:
    """The upstream as it is, asked directly in its own dialect."""
    body = {
        "model": os.environ.get("ATHENA_MODEL", "athena-demo"),
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}],
    }
    key = os.environ.get("ATHENA_API_KEY", "none")
    answer = httpx2.post(f"{url}/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}, timeout=60)
    print("upstream:", answer.json()["choices"][0])


with upstream() as url:
    show_raw_answer(url)
    client = anthropic.Anthropic(api_key="unused", http_client=httpx2.Client(transport=Transport(base_url=url)))
    with client.messages.stream(
        model="athena-demo",
        max_tokens=1000,
        messages=[{"role": "user", "content": QUESTION}],
        tools=[{"name": "get_weather", "input_schema": SCHEMA}],
    ) as stream:
        message = stream.get_final_message()
    for block in message.content:
        print(f"anthropic: {block.to_dict()}")
    print(f"anthropic: stop_reason {message.stop_reason}")
