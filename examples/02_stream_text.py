"""Read a model's text while it streams, in pieces of any size.

Text passes at once, a call is announced as soon as its name is known, its arguments follow as they come, and only a call that
is whole completes. `tools` says which calls you declared: values get the types of their schema.

    python examples/02_stream_text.py
"""

import athena

TOOL = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
}
PIECES = (
    "I will look ", "it up. <tool", "_call>\n<function=get_", "weather>\n<parameter=city>\nNew ", "York\n</para", "meter>\n",
    "<parameter=days>\n3\n</parameter>\n</func", "tion>\n</tool_call>",
)  # fmt: skip

parser = athena.Parser(model="Qwen/Qwen3-Coder-30B-A3B-Instruct", tools=[TOOL])


def show(events: list[athena.Event]) -> None:
    for event in events:
        match event:
            case athena.TextDelta():
                print(f"  text       {event.text!r}")
            case athena.ToolCallStart():
                print(f"  call       {event.name}")
            case athena.ToolCallDelta():
                print(f"  arguments  {event.arguments}")
            case athena.ToolCallComplete():
                print(f"  complete   {event.arguments}")
            case athena.Error():
                print(f"  error      {event.message}")


for piece in PIECES:
    print(f"fed {piece!r}")
    show(parser.feed(piece))
print("closed")
show(parser.close())
