"""Bytes in, bytes out: turn the stream of one API into the stream of another, with no IO of its own.

For your own proxy, worker or test. Here a Chat stream whose model leaked a call becomes Anthropic's events.

    python examples/15_translate_a_stream.py
"""

import json

import athena

REQUEST = {
    "model": "moonshotai/kimi-k2-0905",
    "max_tokens": 1000,
    "stream": True,
    "messages": [{"role": "user", "content": "What is the weather in Tokyo?"}],
    "tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
}
ANSWER = ("Let me look.", "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argu",
          'ment_begin|>{"city": "Tok', 'yo"}<|tool_call_end|><|tool_calls_section_end|>')  # fmt: skip


def chat_chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    """One event of an upstream's Chat stream."""
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": REQUEST["model"]}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({**chunk, "choices": [choice]}).encode() + b"\n\n"


translated = athena.translate_request(REQUEST, source="anthropic_messages", target="openai_chat")
print("sent upstream:", translated.body["tools"][0]["function"]["name"], translated.body["messages"])

translator = athena.StreamTranslator(source="openai_chat", target="anthropic_messages", request=REQUEST, format="auto")
received = b""
for piece in ANSWER:
    received += translator.feed(chat_chunk({"content": piece}))
received += translator.feed(chat_chunk({}, "stop") + b"data: [DONE]\n\n")
received += translator.close()

for line in received.decode().splitlines():
    if line.startswith("data: "):
        event = json.loads(line[6:])
        print(event["type"], event.get("content_block") or event.get("delta") or "")
