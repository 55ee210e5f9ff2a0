"""The official SDKs' asynchronous clients as judges: the questions and readings of `sdks`, asked with `await`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import msgspec
import openai
from google import genai

from support.canonical import Seen
from support.sdks import question, seen_chunks, seen_completion, seen_message, seen_response


class AsyncClients(msgspec.Struct, frozen=True):
    """One of each; of `genai` the asynchronous half is used."""

    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic
    genai: genai.Client


async def ask_async(dialect: str, clients: AsyncClients, model: str, *, stream: bool, tools: bool = True) -> Seen:
    """One question through the SDK of that dialect; raises what the SDK raises."""
    return await _ASK[dialect](clients, question(dialect, model, tools=tools), stream)


async def _ask_chat(clients: AsyncClients, arguments: dict[str, Any], stream: bool) -> Seen:
    completions = clients.openai.chat.completions
    if not stream:
        return seen_completion(await completions.create(**arguments))
    async with completions.stream(**arguments, stream_options={"include_usage": True}) as events:
        try:
            async for _ in events:
                pass
            return seen_completion(await events.get_final_completion())
        except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError):
            # The helper refuses to parse tools of an answer that was cut; what it holds is still to be judged.
            return seen_completion(events.current_completion_snapshot)


async def _ask_messages(clients: AsyncClients, arguments: dict[str, Any], stream: bool) -> Seen:
    if not stream:
        return seen_message(await clients.anthropic.messages.create(**arguments))
    async with clients.anthropic.messages.stream(**arguments) as events:
        return seen_message(await events.get_final_message())


async def _ask_responses(clients: AsyncClients, arguments: dict[str, Any], stream: bool) -> Seen:
    if not stream:
        return seen_response(await clients.openai.responses.create(**arguments))
    async with clients.openai.responses.stream(**arguments) as events:
        async for _ in events:
            pass
        return seen_response(await events.get_final_response())


async def _ask_gemini(clients: AsyncClients, arguments: dict[str, Any], stream: bool) -> Seen:
    models = clients.genai.aio.models
    if not stream:
        return seen_chunks([await models.generate_content(**arguments)])
    return seen_chunks([chunk async for chunk in await models.generate_content_stream(**arguments)])


_ASK: dict[str, Callable[[AsyncClients, dict[str, Any], bool], Awaitable[Seen]]] = {
    "openai_chat": _ask_chat,
    "anthropic_messages": _ask_messages,
    "openai_responses": _ask_responses,
    "gemini": _ask_gemini,
}
