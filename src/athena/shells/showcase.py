"""What the demo shows: a model that writes its call as text, and the same answer as a client receives it, piece by piece.

Nothing here is drawn by hand: the model's text is what the format's renderer writes, and it goes through the engine that the
gateway runs, from the Chat API of an open model's server to the Messages API that Claude Code speaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from athena.formats import get_format
from athena.formats.machine.detect import models_of
from athena.parsing import render_calls
from athena.translate import StreamTranslator

QUESTION = "What is the weather in Tokyo for the next 3 days?"
CALL = {"name": "get_weather", "arguments": {"city": "Tokyo", "days": 3}}
_REQUEST = {
    "model": "open-model",
    "max_tokens": 500,
    "stream": True,
    "messages": [{"role": "user", "content": QUESTION}],
    "tools": [
        {
            "name": "get_weather",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        }
    ],
}
_PIECE = re.compile(r"<[^<>\s]{1,40}>|\s?[^\s<\"':,=(){}\[\]]+|\s+|.", re.DOTALL)
"""Roughly what a tokenizer makes of it: control tokens and tags come whole, words with the space before them."""

MARKER = re.compile(r"<[^<>\s]{1,60}>")
"""Control tokens and tags: what a reader should notice in a model's text."""

LeakChannel = Literal["content", "reasoning_content"]


class Scene(msgspec.Struct, frozen=True):
    """One model that leaks its calls."""

    format: str
    models: str
    """Who writes like this."""
    channel: LeakChannel = "content"
    before: str = "Let me look that up.\n"


SCENES = (
    Scene("kimi_k2", "Kimi K2, inside its reasoning", "reasoning_content"),
    Scene("qwen_xml", "Qwen3-Coder"),
    Scene("hermes", "Hermes, Qwen 2.5 and 3, many fine-tunes"),
    Scene("deepseek_v31", "DeepSeek V3.1"),
    Scene("pythonic", "Llama 4 and many small models"),
)


def scene_of(format_id: str) -> Scene:
    """A scene for any format. A few formats begin with the answer itself: there the model says nothing before its call."""
    found = get_format(format_id)
    scene = Scene(found.id, ", ".join(models_of(found.id)[:4]) or "models without a name of their own")
    *_, last = play(scene)
    return scene if last.received.name else msgspec.structs.replace(scene, before="")


class Received(msgspec.Struct):
    """What the client has received so far."""

    thinking: str = ""
    text: str = ""
    name: str = ""
    arguments: str = ""
    stop_reason: str = ""


class DemoStep(msgspec.Struct, frozen=True):
    """The next piece of the model's text, and what the client has once it has passed the engine."""

    piece: str
    received: Received


def play(scene: Scene) -> Iterator[DemoStep]:
    """The answer of a scene's model, piece by piece. The last step has an empty piece: the end of the stream."""
    translator = StreamTranslator(
        source="openai_chat", target="anthropic_messages", request=_REQUEST, format=scene.format, seed="demo"
    )
    received = Received()
    for piece in _PIECE.findall(scene.before + render_calls([CALL], format=scene.format)):
        _take(received, translator.feed(_chunk({scene.channel: piece}, None)))
        yield DemoStep(piece, received)
    _take(received, translator.feed(_chunk({}, "stop") + b"data: [DONE]\n\n"))
    _take(received, translator.close())
    yield DemoStep("", received)


def _chunk(delta: dict[str, Any], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": 0, "model": "open-model"}
    return b"data: " + msgspec.json.encode({**head, "choices": [choice]}) + b"\n\n"


def _take(received: Received, stream: bytes) -> None:
    """Read the events of a Messages stream as its clients do."""
    for line in stream.split(b"\n"):
        if not line.startswith(b"data: "):
            continue
        event = msgspec.json.decode(line[6:])
        block, delta = event.get("content_block") or {}, event.get("delta") or {}
        received.name = block.get("name") or received.name
        received.thinking += delta.get("thinking", "")
        received.text += delta.get("text", "")
        received.arguments += delta.get("partial_json", "")
        received.stop_reason = delta.get("stop_reason") or received.stop_reason
