"""A tool loop in two turns: the model asks for a tool, you run it, the model answers with its result.

This is Anthropic's SDK as its own documentation has it; Athena is the one line with the transport. Signatures of thinking
blocks, ids of calls and the order of results survive the way to another dialect and back.

    python examples/08_tool_loop.py
    ATHENA_BASE_URL=http://127.0.0.1:8000/v1 ATHENA_MODEL=Qwen/Qwen3-Coder-30B python examples/08_... "Weather in Rome?"
"""

import sys

import anthropic
import httpx2
from offline import upstream

from athena.transport import Transport

TOOLS: list[anthropic.types.ToolParam] = [
    {
        "name": "get_weather",
        "description": "The weather in a city.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]


def get_weather(city: str) -> str:
    return f"sunny, 21 °C in {city}"


def run(client: anthropic.Anthropic, question: str) -> str:
    messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": question}]
    while True:
        with client.messages.stream(model="athena-demo", max_tokens=1000, messages=messages, tools=TOOLS) as stream:
            for text in stream.text_stream:
                print(text, end="", flush=True)
            answer = stream.get_final_message()
        messages.append({"role": "assistant", "content": answer.content})
        results: list[anthropic.types.ToolResultBlockParam] = []
        for block in answer.content:
            if block.type == "tool_use":
                result = get_weather(str(block.input["city"]))
                print(f"[{block.name} {block.input} -> {result}]")
                results.append({"type": "tool_result", "tool_use_id": block.id, "content": result})
        if not results:
            return "".join(block.text for block in answer.content if block.type == "text")
        messages.append({"role": "user", "content": results})


with upstream() as url:
    http_client = httpx2.Client(transport=Transport(base_url=url))
    answer = run(anthropic.Anthropic(api_key="unused", http_client=http_client), *(sys.argv[1:] or ["The weather in Tokyo?"]))
    print(f"\nanswer: {answer}")
