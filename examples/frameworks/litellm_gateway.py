"""LiteLLM's own SDK as a client of a running gateway, in two of the dialects it speaks.

Run it:

    pip install litellm
    athena serve    # in another terminal, on any upstream
    ATHENA_MODEL=... python examples/frameworks/litellm_gateway.py
"""

import json
import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches its price list at import

import litellm

litellm.suppress_debug_info = True  # else it prints a list of providers for every model it does not know

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:12377")
MODEL = os.environ.get("ATHENA_MODEL", "athena-demo")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}}]


def get_weather(city: str) -> str:
    return f"sunny, 21 °C in {city}"


def run(model: str, api_base: str, label: str, streamed: bool) -> None:
    messages: list = [{"role": "user", "content": "What is the weather in Tokyo?"}]
    while True:
        answer = litellm.completion(
            model=model, messages=messages, tools=TOOLS, api_base=api_base, api_key="unused", stream=streamed
        )
        if streamed:
            answer = litellm.stream_chunk_builder(list(answer), messages=messages)
        message = answer.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            print(f"{label}: answer {message.content}")
            return
        for call in message.tool_calls:
            print(f"{label}: called {call.function.name} {call.function.arguments}")
            result = get_weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


for provider, api_base in (("openai", f"{GATEWAY}/v1"), ("anthropic", GATEWAY)):
    run(f"{provider}/{MODEL}", api_base, f"{provider} whole", streamed=False)
    run(f"{provider}/{MODEL}", api_base, f"{provider} streamed", streamed=True)
