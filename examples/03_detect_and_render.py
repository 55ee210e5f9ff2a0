"""Which format does a model write, and how does a call, a tool or a result look in it?

For prompts, training data and tests: what is rendered is what `athena.parse` reads back.

    python examples/03_detect_and_render.py [MODEL ...]
"""

import sys

import athena

MODELS = sys.argv[1:] or ["moonshotai/kimi-k2-0905", "Qwen/Qwen3-Coder-30B", "deepseek-ai/DeepSeek-V3.1", "gpt-5"]
TOOL = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = {"id": "call_1", "name": "get_weather", "arguments": '{"city": "Tokyo"}'}
RESULT = {"id": "call_1", "name": "get_weather", "content": "sunny, 21 °C"}

for model in MODELS:
    format_id = athena.detect_format(model)
    print(f"== {model}: {format_id}")
    if format_id == "standard":
        print("native structured calls, nothing to render")
        continue
    text = athena.render_calls([CALL], format=format_id)
    print(text)
    print(athena.render_result(RESULT, format=format_id))
    (call,) = athena.parse(text, format=format_id, tools=[TOOL]).calls
    print(f"read back: {call.name} {call.arguments}")

print("== the head of a system prompt for Qwen3-Coder")
print(athena.render_tools([TOOL], format="qwen_xml")[:120], "...")
