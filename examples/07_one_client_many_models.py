"""One client, many models: a configuration file says which name goes where, and how.

`small` goes to an OpenAI-compatible upstream, `no-tools` to a model that knows no tools and gets them taught in its prompt,
every other name to an upstream that speaks Anthropic Messages. The same file serves `athena serve --config`.

    python examples/07_one_client_many_models.py
    KIMI_URL=... KIMI_KEY=... KIMI_MODEL=... CLAUDE_URL=... CLAUDE_KEY=... CLAUDE_MODEL=... python examples/07_...
"""

import contextlib
import os
from pathlib import Path

import httpx2
import openai
from offline import gateway, upstream

from athena.transport import Transport

SCHEMA: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

with contextlib.ExitStack() as stack:
    if "KIMI_URL" not in os.environ:
        os.environ["KIMI_URL"] = stack.enter_context(upstream())
    if "CLAUDE_URL" not in os.environ:
        os.environ["CLAUDE_URL"] = stack.enter_context(gateway("--demo"))

    transport = Transport(Path(__file__).with_suffix(".yml"))
    client = openai.OpenAI(api_key="unused", http_client=httpx2.Client(transport=transport))
    print("listed:", [model.id for model in client.models.list()])
    for model in ("small", "no-tools", "claude-sonnet-4-5"):
        answer = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "What is the weather in Tokyo?"}],
            tools=[{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}],
        )
        for call in answer.choices[0].message.tool_calls or ():
            if call.type == "function":
                print(f"{model}: {call.function.name} {call.function.arguments}")
