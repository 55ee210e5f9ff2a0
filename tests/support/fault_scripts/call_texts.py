"""Calls in text that are none (rows 45, 46)."""

from __future__ import annotations

from support.fault_scripts.registry import fault
from support.upstream_speech import chat_stream, chat_whole
from support.upstream_talk import Talk

MARKUP = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
_IN_LINE = MARKUP.replace("\n", "")
QUOTED = f"Models write this:\n```xml\n{MARKUP}\n```\nand `{_IN_LINE}`"
PYTHON = '[get_weather(city=__import__("os").system("touch /tmp/athena-was-here"))]'
REDOS = "<tool_cal" * 40_000 + "<tool_call" + " " * 100_000 + "{" * 20_000


def _text(name: str, text: str, field: str = "content", finish: str = "stop") -> None:
    @fault(name)
    async def script(talk: Talk) -> None:
        size = max(7, len(text) // 50)
        deltas = [{field: text[start : start + size]} for start in range(0, len(text), size)]
        message = {"content": None, field: text}
        if field != "content":
            deltas.append({"content": "so"})
            message["content"] = "so"
        await talk.say(chat_stream(deltas, finish), chat_whole(message, finish))


_text("text-call", "Let me see. " + MARKUP)
_text("text-quoted", QUOTED)
_text("text-in-think", MARKUP, "reasoning_content")
_text("text-unclosed", 'I call <tool_call>\n{"name": "get_weather", "arguments": {"city": "Par')
_text("text-unclosed-length", 'I call <tool_call>\n{"name": "get_weather", "arguments": {"city": "Par', finish="length")
_text("text-python", PYTHON)
_text("text-redos", REDOS)
_text("text-nested-open", "<tool_call>" * 20_000)
