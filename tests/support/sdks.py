"""The official SDKs as judges: each reads our bytes from a real socket and hands over what it understood."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import anthropic
import msgspec
import openai
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from support.canonical import Piece, Seen, merge

SDK_ERRORS: dict[str, tuple[type[Exception], ...]] = {
    "anthropic_messages": (anthropic.AnthropicError,),
    "openai_chat": (openai.OpenAIError,),
    # The stream helper reports an answer without response.completed by a RuntimeError of its own.
    "openai_responses": (openai.OpenAIError, RuntimeError),
    "gemini": (genai_errors.APIError,),
}


def is_sdk_error(dialect: str, error: Exception) -> bool:
    """Did the SDK itself refuse the answer?

    Anthropic's accumulator reads arguments as they come and raises a ValueError of its own on what is not JSON; whether
    that or our error frame is seen first depends on how the bytes are cut.
    """
    if dialect == "anthropic_messages" and isinstance(error, ValueError) and "tool parameter JSON" in str(error):
        return True
    return isinstance(error, SDK_ERRORS[dialect])


class Clients(msgspec.Struct, frozen=True):
    """The SDKs' clients, however they reach what they talk to."""

    openai: openai.OpenAI
    anthropic: anthropic.Anthropic
    genai: genai.Client


Place = str | Clients
"""A server's address, or clients that know their way."""


_MAKING = threading.Lock()


def clients_at(url: str) -> Clients:
    """One of each per server. Threads that ask at once get the same: a client that is dropped leaves its sockets open."""
    with _MAKING:
        return _made_clients(url)


@cache
def _made_clients(url: str) -> Clients:
    return Clients(
        openai=openai.OpenAI(base_url=f"{url}/v1", api_key="test", max_retries=0),
        anthropic=anthropic.Anthropic(base_url=url, api_key="test", max_retries=0),
        genai=genai.Client(api_key="test", http_options=genai_types.HttpOptions(base_url=url)),
    )


def openai_client(place: Place) -> openai.OpenAI:
    """OpenAI's client."""
    return (clients_at(place) if isinstance(place, str) else place).openai


def anthropic_client(place: Place) -> anthropic.Anthropic:
    """Anthropic's client."""
    return (clients_at(place) if isinstance(place, str) else place).anthropic


def genai_client(place: Place) -> genai.Client:
    """Google's client."""
    return (clients_at(place) if isinstance(place, str) else place).genai


SCHEMA = {"type": "object", "properties": {"p": {"type": "integer"}, "city": {"type": "string"}}}
TOOL_NAMES = ("a", "b", "c", "get_weather", "get_time")


def ask(dialect: str, place: Place, model: str, *, stream: bool, tools: bool = True) -> Seen:
    """One question through the SDK of that dialect; raises what the SDK raises."""
    return _ASK[dialect](place, question(dialect, model, tools=tools), stream)


def question(dialect: str, model: str, *, tools: bool = True) -> dict[str, Any]:
    """The arguments of the SDK's own method for that question."""
    functions: list[dict[str, Any]]
    if dialect == "openai_chat":
        functions = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOL_NAMES]
        return {"model": model, "messages": [{"role": "user", "content": "Hi"}], **({"tools": functions} if tools else {})}
    if dialect == "anthropic_messages":
        functions = [{"name": name, "input_schema": SCHEMA} for name in TOOL_NAMES]
        asked = {"model": model, "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}]}
        return {**asked, **({"tools": functions} if tools else {})}
    if dialect == "openai_responses":
        functions = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in TOOL_NAMES]
        return {"model": model, "input": "Hi", **({"tools": functions} if tools else {})}
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    if tools:
        config["tools"] = [{"function_declarations": [{"name": name, "parameters_json_schema": SCHEMA} for name in TOOL_NAMES]}]
    return {"model": model, "contents": "Hi", "config": genai_types.GenerateContentConfig(**config)}


def _ask_chat(place: Place, arguments: dict[str, Any], stream: bool) -> Seen:
    client = openai_client(place)
    if stream:
        with client.chat.completions.stream(**arguments, stream_options={"include_usage": True}) as events:
            try:
                for _ in events:
                    pass
                completion: Any = events.get_final_completion()
            except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError):
                # The helper refuses to parse tools of an answer that was cut; what it holds is still to be judged.
                completion = events.current_completion_snapshot
    else:
        completion = client.chat.completions.create(**arguments)
    return seen_completion(completion)


def seen_completion(completion: Any) -> Seen:
    """What a Chat answer says."""
    choice = completion.choices[0]
    message = choice.message
    extra = message.model_extra or {}
    pieces = [
        Piece("thinking", extra.get("reasoning_content") or extra.get("reasoning") or ""),
        Piece("text", message.content or ""),
    ]
    pieces.append(Piece("text", message.refusal or ""))
    ids = []
    for call in message.tool_calls or ():
        ids.append(call.id)
        if call.type == "custom":
            pieces.append(Piece("call", call.custom.name, call.custom.input))
        else:
            pieces.append(Piece("call", call.function.name, _value(call.function.arguments)))
    usage = completion.usage
    counted = None
    if usage is not None:
        prompt, output = usage.prompt_tokens_details, usage.completion_tokens_details
        counted = {
            "input_total": usage.prompt_tokens,
            "output_total": usage.completion_tokens,
            "cache_read": (prompt.cached_tokens or 0) if prompt else 0,
            "reasoning": (output.reasoning_tokens or 0) if output else 0,
        }
    return Seen(merge(pieces), choice.finish_reason, counted, ids)


def _ask_messages(place: Place, arguments: dict[str, Any], stream: bool) -> Seen:
    client = anthropic_client(place)
    if stream:
        with client.messages.stream(**arguments) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**arguments)
    return seen_message(message)


def seen_message(message: Any) -> Seen:
    """What an Anthropic answer says."""
    pieces, ids = [], []
    for block in message.content:
        if block.type == "text":
            pieces.append(Piece("text", block.text))
        elif block.type == "thinking":
            pieces.append(Piece("thinking", block.thinking))
        elif block.type == "tool_use":
            ids.append(block.id)
            pieces.append(Piece("call", block.name, block.input))
    usage = message.usage
    read, write = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    details = usage.output_tokens_details
    counted = {
        "input_total": usage.input_tokens + read + write,
        "output_total": usage.output_tokens,
        "cache_read": read,
        "reasoning": (details.thinking_tokens or 0) if details else 0,
    }
    return Seen(merge(pieces), str(message.stop_reason), counted, ids)


def _ask_responses(place: Place, arguments: dict[str, Any], stream: bool) -> Seen:
    client = openai_client(place)
    if stream:
        with client.responses.stream(**arguments) as events:
            for _ in events:
                pass
            response: Any = events.get_final_response()
    else:
        response = client.responses.create(**arguments)
    return seen_response(response)


def seen_response(response: Any) -> Seen:
    """What a Responses answer says; one that failed is an error of the SDK's user."""
    if response.status == "failed":
        raise openai.OpenAIError(str(response.error))
    pieces, ids = [], []
    for item in response.output:
        if item.type == "message":
            pieces += [Piece("text", part.text if part.type == "output_text" else part.refusal) for part in item.content]
        elif item.type == "reasoning":
            pieces += [Piece("thinking", part.text) for part in (*item.summary, *(item.content or ()))]
        elif item.type == "function_call":
            ids.append(item.call_id)
            pieces.append(Piece("call", item.name, _value(item.arguments)))
        elif item.type == "custom_tool_call":
            ids.append(item.call_id)
            pieces.append(Piece("call", item.name, item.input))
    usage = response.usage
    counted = None
    if usage is not None:
        counted = {
            "input_total": usage.input_tokens,
            "output_total": usage.output_tokens,
            "cache_read": usage.input_tokens_details.cached_tokens,
            "reasoning": usage.output_tokens_details.reasoning_tokens,
        }
    details = response.incomplete_details
    finish = response.status if details is None else f"{response.status}/{details.reason}"
    return Seen(merge(pieces), str(finish), counted, ids)


def _ask_gemini(place: Place, arguments: dict[str, Any], stream: bool) -> Seen:
    client = genai_client(place)
    if stream:
        return seen_chunks(list(client.models.generate_content_stream(**arguments)))
    return seen_chunks([client.models.generate_content(**arguments)])


def seen_chunks(chunks: list[Any]) -> Seen:
    """What a Gemini answer says, whole or in chunks."""
    pieces, ids, finish, usage = [], [], "", None
    for chunk in chunks:
        usage = chunk.usage_metadata or usage
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason is not None:
            finish = chunk.prompt_feedback.block_reason.value
        for candidate in chunk.candidates or ():
            if candidate.finish_reason is not None:
                finish = candidate.finish_reason.value
            for part in (candidate.content.parts if candidate.content else None) or ():
                if part.function_call is not None:
                    ids.append(part.function_call.id or "")
                    pieces.append(Piece("call", part.function_call.name or "", part.function_call.args or {}))
                elif part.text:
                    pieces.append(Piece("thinking" if part.thought else "text", part.text))
    counted = None
    if usage is not None:
        thoughts = usage.thoughts_token_count or 0
        counted = {
            "input_total": (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
            "output_total": (usage.candidates_token_count or 0) + thoughts,
            "cache_read": usage.cached_content_token_count or 0,
            "reasoning": thoughts,
        }
    return Seen(merge(pieces), finish, counted, ids)


def _value(arguments: str) -> Any:
    """Arguments as a value; those of a call that was cut stay text."""
    try:
        return json.loads(arguments)
    except json.JSONDecodeError:
        return arguments


_ASK: dict[str, Callable[[Place, dict[str, Any], bool], Seen]] = {
    "openai_chat": _ask_chat,
    "anthropic_messages": _ask_messages,
    "openai_responses": _ask_responses,
    "gemini": _ask_gemini,
}
