"""A Chat upstream whose models write their tool calls as text, for frameworks that run a tool loop.

The model name in the request decides the format (`FORMS`), and the suffix `:reasoning` that the call stands in the reasoning.
The model calls the first tool it is offered, about Tokyo, and answers with whatever the tool said. Answers come in small
pieces, cut without regard to tokens. The texts are spelled out here, not rendered with Athena's code: models write this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from support.scripted_upstream import ScriptedUpstream
from support.upstream_speech import chat_stream, chat_whole
from support.upstream_talk import Talk

CITY = "Tokyo"
ANSWER = "The tool says: "
_SAID = "I will look. "
_PIECE = 7

FORMS: Mapping[str, str] = {
    "kimi-content": "moonshotai/kimi-k2-0905",
    "kimi-reasoning": "moonshotai/kimi-k2-0905:reasoning",
    "qwen-content": "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    "qwen-reasoning": "Qwen/Qwen3-Coder-30B-A3B-Instruct:reasoning",
    "deepseek-content": "deepseek-ai/DeepSeek-V3.1",
    "deepseek-reasoning": "deepseek-ai/DeepSeek-V3.1:reasoning",
}
"""Who writes the call, and where; and the model name it goes by."""


class Turn(msgspec.Struct, frozen=True):
    """One request as the upstream saw it."""

    model: str
    stream: bool
    tools: tuple[str, ...]
    calls: tuple[tuple[str, str, str], ...]
    """(id, name, arguments) of the calls in the history."""
    results: tuple[tuple[str, str], ...]
    """(id, text) of the results in the history."""


class LeakingUpstream(ScriptedUpstream):
    """One model for all clients of a test."""

    base_path = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Turn] = []

    async def answer(self, talk: Talk) -> None:
        turn = _turn(talk.body)
        self.turns.append(turn)
        field, text = _answer(turn)
        pieces = [{field: text[start : start + _PIECE]} for start in range(0, len(text), _PIECE)]
        named = {"model": turn.model}
        await talk.say(chat_stream(pieces, "stop", **named), chat_whole({"content": None, field: text}, "stop", **named))


# -- the model -------------------------------------------------------------------------------------------------------------


def _turn(body: Mapping[str, Any]) -> Turn:
    calls = [call for message in body["messages"] for call in message.get("tool_calls") or ()]
    results = [message for message in body["messages"] if message["role"] == "tool"]
    return Turn(
        model=body["model"],
        stream=bool(body.get("stream")),
        tools=tuple(tool["function"]["name"] for tool in body.get("tools") or ()),
        calls=tuple((call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls),
        results=tuple((message["tool_call_id"], _text(message["content"])) for message in results),
    )


def _answer(turn: Turn) -> tuple[str, str]:
    """The field of the message, and its text."""
    if turn.results:
        return "content", ANSWER + turn.results[-1][1]
    _, _, channel = turn.model.partition(":")
    return "reasoning_content" if channel else "content", leaked_text(turn.model, turn.tools[0])


def leaked_text(model: str, tool: str) -> str:
    """What that model writes to call the tool about Tokyo."""
    return _SAID + _WRITTEN[model.partition(":")[0]](tool)


def _kimi(name: str) -> str:
    return (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>"
        f'{{"city": "{CITY}"}}<|tool_call_end|><|tool_calls_section_end|>'
    )


def _qwen(name: str) -> str:
    return f"<tool_call>\n<function={name}>\n<parameter=city>\n{CITY}\n</parameter>\n</function>\n</tool_call>"


def _deepseek(name: str) -> str:
    return (
        f'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{{"city": "{CITY}"}}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


_WRITTEN = {
    FORMS["kimi-content"]: _kimi,
    FORMS["qwen-content"]: _qwen,
    FORMS["deepseek-content"]: _deepseek,
}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text") or "" for part in content)
    return content or ""
