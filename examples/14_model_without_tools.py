"""Tools for a model that has none: taught in its prompt, read from its text.

The gateway and the transport do this with `tools: prompted`; here the library class alone, with any HTTP client.

    python examples/14_model_without_tools.py
    ATHENA_BASE_URL=http://127.0.0.1:8000/v1 ATHENA_API_KEY=... ATHENA_MODEL=google/gemma-3-27b-it python examples/14_...
"""

import os
from typing import Any

import httpx2
from offline import upstream

import athena

REQUEST: dict[str, Any] = {
    "model": os.environ.get("ATHENA_MODEL", "athena-demo-prompted"),
    "messages": [{"role": "user", "content": "What is the weather in Tokyo?"}],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "The weather in a city.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            },
        }
    ],
}


def ask(url: str, request: dict[str, Any]) -> Any:
    key = os.environ.get("ATHENA_API_KEY", "none")
    return httpx2.post(f"{url}/chat/completions", json=request, headers={"authorization": f"Bearer {key}"}, timeout=60).json()


adapter = athena.ToolAdapter()
with upstream() as url:
    print("the model, asked with tools:", ask(url, REQUEST).get("error"))
    adapted = adapter.transform_request(REQUEST)
    print("the request, adapted: tools" if "tools" in adapted.body else "the request, adapted: no tools, a longer prompt")
    reply = ask(url, adapted.body)
    print("the model says:", reply["choices"][0]["message"]["content"])
    message = adapter.transform_response(reply, adapted)["choices"][0]["message"]
    print("you get:", message["tool_calls"])
