"""The requests sent: an agent's small question with one tool, in the two dialects the fake upstream answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

Dialect = Literal["chat", "messages"]

PATHS: dict[Dialect, str] = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
END_STRINGS: dict[Dialect, str] = {"chat": "[DONE]", "messages": "message_stop"}
SYSTEM = "You are a helpful coding assistant. " * 20
QUESTION = "What is the weather in Paris?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather", "parameters": SCHEMA}}
MESSAGES_TOOL = {"name": "get_weather", "description": "Get the weather", "input_schema": SCHEMA}


def request(dialect: Dialect, model: str, *, streamed: bool, image: str = "") -> dict[str, Any]:
    """One request; `image` is base64 of a PNG that goes beside the question."""
    body: dict[str, Any] = {"model": model, "stream": streamed, "max_tokens": 1024}
    content: Any = QUESTION
    if dialect == "chat":
        if image:
            picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
            content = [{"type": "text", "text": QUESTION}, picture]
        body["messages"] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}]
        body["tools"] = [CHAT_TOOL]
        if streamed:
            body["stream_options"] = {"include_usage": True}
        return body
    if image:
        source = {"type": "base64", "media_type": "image/png", "data": image}
        content = [{"type": "text", "text": QUESTION}, {"type": "image", "source": source}]
    return body | {"system": SYSTEM, "messages": [{"role": "user", "content": content}], "tools": [MESSAGES_TOOL]}


def write(folder: Path, name: str, body: dict[str, Any]) -> Path:
    """The file the generator sends."""
    file = folder / f"{name}.json"
    file.write_bytes(msgspec.json.encode(body))
    return file
