"""Find the tool calls in a model's text.

Models write their calls in formats of their own, and servers often hand that text on as it is. `athena.parse` reads all of
these formats, says what was text, what was reasoning and what was a call, and never makes a call of half of one.

    python examples/01_parse_text.py
"""

import athena

ANSWERS = {
    "Kimi": "Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "Tokyo"}<|tool_call_end|><|tool_calls_section_end|>',
    "Hermes": '<think>The user wants the weather.</think><tool_call>\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n'
    "</tool_call>",
    "Qwen3-Coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nTokyo\n</parameter>\n</function>\n</tool_call>",
    "DeepSeek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
    '{"city": "Tokyo"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "cut off": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "To',
    "only prose": "Models of Hermes write `<tool_call>` before a call.",
}

for who, answer in ANSWERS.items():
    parsed = athena.parse(answer)
    print(f"{who}: format {parsed.format}")
    if parsed.thinking:
        print(f"  thinking  {parsed.thinking}")
    if parsed.text:
        print(f"  text      {parsed.text}")
    for call in parsed.calls:
        print(f"  call      {call.name} {call.arguments}")
    for error in parsed.errors:
        print(f"  no call   {error.code}: {error.message}")
