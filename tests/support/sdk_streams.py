"""The official SDKs' own streams, opened with `stream=True`: what a program reads that shows text as it comes."""

from __future__ import annotations

from typing import Any

from support.async_sdks import AsyncClients
from support.sdks import Clients, question


def open_stream(dialect: str, clients: Clients, model: str) -> Any:
    """The SDK's stream of one answer, to be iterated and closed."""
    arguments = question(dialect, model)
    match dialect:
        case "openai_chat":
            return clients.openai.chat.completions.create(**arguments, stream=True)
        case "openai_responses":
            return clients.openai.responses.create(**arguments, stream=True)
        case "anthropic_messages":
            return clients.anthropic.messages.create(**arguments, stream=True)
        case _:
            return clients.genai.models.generate_content_stream(**arguments)


async def open_async_stream(dialect: str, clients: AsyncClients, model: str) -> Any:
    """The same of the asynchronous client, to be iterated by `async for`."""
    arguments = question(dialect, model)
    match dialect:
        case "openai_chat":
            return await clients.openai.chat.completions.create(**arguments, stream=True)
        case "openai_responses":
            return await clients.openai.responses.create(**arguments, stream=True)
        case "anthropic_messages":
            return await clients.anthropic.messages.create(**arguments, stream=True)
        case _:
            return await clients.genai.aio.models.generate_content_stream(**arguments)


def text_in(dialect: str, event: Any) -> str:
    """The text that one event of such a stream adds."""
    if dialect == "openai_chat":
        return (event.choices[0].delta.content or "") if event.choices else ""
    if dialect == "openai_responses":
        return str(event.delta) if event.type == "response.output_text.delta" else ""
    if dialect == "anthropic_messages":
        return str(event.delta.text) if event.type == "content_block_delta" and event.delta.type == "text_delta" else ""
    parts = event.candidates[0].content.parts if event.candidates and event.candidates[0].content else None
    return "".join(part.text or "" for part in parts or () if not part.thought)
