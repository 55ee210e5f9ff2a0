"""One agent loop for all providers: the same code against Chat, Responses, Anthropic Messages and Gemini.

The conversation is kept in one shape, translated for the provider, and the answer comes back as the same few events whoever
gives it. `athena.events_from` also takes the streams of the official SDKs, synchronous and asynchronous.

    python examples/09_one_agent_loop_for_all_providers.py
    API_KEY=... python examples/09_... anthropic_messages https://api.anthropic.com claude-sonnet-4-5

Offline, Athena's own gateway plays all four providers.
"""

import json
import os
import sys
from typing import Any

import httpx2
from offline import gateway

import athena

KEY_HEADERS = {"anthropic_messages": "x-api-key", "gemini": "x-goog-api-key"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}}


def get_weather(city: str) -> str:
    return f"sunny, 21 °C in {city}"


def run(dialect: str, base_url: str, model: str, question: str = "What is the weather in Tokyo?") -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    key = os.environ.get("API_KEY", "unused")
    while messages[-1]["role"] != "assistant":
        body = {"model": model, "messages": messages, "tools": [TOOL], "stream": True}
        sent = athena.translate_request(body, source="openai_chat", target=dialect, model=model)
        headers = sent.headers | ({name: key} if (name := KEY_HEADERS.get(dialect)) else {"authorization": f"Bearer {key}"})
        with httpx2.stream("POST", base_url + sent.path, json=sent.body, headers=headers, timeout=60) as response:
            events = athena.events_from(response, dialect=dialect, format="auto", tools=[TOOL])
            results: list[dict[str, Any]] = []
            for event in events:
                if isinstance(event, athena.ToolCallComplete):  # never half a call
                    print(f"{dialect}: called {event.name} {event.arguments}")
                    result = get_weather(**json.loads(event.arguments))
                    results.append({"role": "tool", "tool_call_id": event.id, "content": result})
                elif isinstance(event, athena.Error) and event.fatal:
                    raise SystemExit(event.message)
        message = athena.encode_answer(events.answer(), "openai_chat")["choices"][0]["message"]
        messages += [message, *results]
    print(f"{dialect}: answer {messages[-1]['content']}")


if sys.argv[1:]:
    run(*sys.argv[1:4])
else:
    with gateway() as url:
        for dialect in ("openai_chat", "openai_responses", "anthropic_messages", "gemini"):
            run(dialect, url + ("/v1" if dialect.startswith("openai") else ""), "athena-demo")
