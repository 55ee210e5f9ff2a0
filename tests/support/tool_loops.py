"""Tool loops of several turns: upstream answers of each family, SDK clients that replay their own objects, and what a history
says on the wire of each dialect.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from google.genai import types as genai_types

from support.sdks import SCHEMA, Place, anthropic_client, genai_client, openai_client

THOUGHT = "Two look-ups, at once. ✓"
TEXT = "Let me look."
FINAL = "Sunny, 12:00."
WEATHER = '{"city":"Zürich"}'
STATE = {
    "anthropic_messages": "EqQBCkgIBBABGAIiQL+/anthropic==",
    "openai_chat": "xai+/encrypted==",
    "openai_responses": "gAAAAABopenai-_==",
    "gemini": "Q2lRQmdlbWluaSBzaWduYXR1cmU=",
}
"""What each upstream mints: a signature, an encrypted entry, encrypted content, a thought signature."""
CALL_IDS = {
    "anthropic_messages": ("toolu_01AbCd", "toolu_01EfGh"),
    "openai_chat": ("functions.get_weather:0", "functions.get_time:1"),
    "openai_responses": ("call_" + "a" * 59, "call_" + "b" * 59),
    "gemini": ("", ""),
}
"""Each upstream's own ids, the awkward ones included: dots and colons, 64 characters, none at all."""


def sse(*records: dict[str, Any], named: bool = False, done: bool = False) -> bytes:
    """Records as server-sent events."""
    frames = [
        (f"event: {record['type']}\n" if named else "") + f"data: {json.dumps(record, ensure_ascii=False)}\n\n"
        for record in records
    ]
    return ("".join(frames) + ("data: [DONE]\n\n" if done else "")).encode()


def whole(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


# -- what the upstreams answer -------------------------------------------------------------------------------------------


def calling_answer(dialect: str, stream: bool) -> bytes:
    """Thinking with the family's state, text, and two calls side by side."""
    return _CALLING[dialect](stream)


def final_answer(dialect: str, stream: bool) -> bytes:
    """Plain text, the end of a loop."""
    return _FINAL[dialect](stream)


_CLAUDE_USAGE = {"input_tokens": 10, "output_tokens": 5}


def _claude(stream: bool, blocks: list[dict[str, Any]], reason: str, number: int = 1) -> bytes:
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude", "content": blocks,
               "stop_reason": reason, "stop_sequence": None, "usage": _CLAUDE_USAGE}  # fmt: skip
    if not stream:
        return whole(message)
    records: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
    for index, block in enumerate(blocks):
        kind = block["type"]
        blanks: dict[str, dict[str, Any]] = {
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
            "tool_use": {"input": {}},
        }
        deltas: list[dict[str, Any]] = []
        if kind == "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in (block["text"][:3], block["text"][3:])]
        elif kind == "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif block["input"]:
            text = json.dumps(block["input"], ensure_ascii=False, separators=(",", ":"))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in (text[:5], text[5:])]
        records.append({"type": "content_block_start", "index": index, "content_block": {**block, **blanks[kind]}})
        records += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        records.append({"type": "content_block_stop", "index": index})
    records.append({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": _CLAUDE_USAGE})
    return sse(*records, {"type": "message_stop"}, named=True)


def _claude_calls(stream: bool) -> bytes:
    first, second = CALL_IDS["anthropic_messages"]
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": THOUGHT, "signature": STATE["anthropic_messages"]},
        {"type": "text", "text": TEXT},
        {"type": "tool_use", "id": first, "name": "get_weather", "input": json.loads(WEATHER)},
        {"type": "tool_use", "id": second, "name": "get_time", "input": {}},
    ]
    return _claude(stream, blocks, "tool_use")


def chat_answer(stream: bool, message: dict[str, Any], reason: str) -> bytes:
    """A Chat answer with that message."""
    head: dict[str, Any] = {"id": "gen-1", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    if not stream:
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
        return whole({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    head["object"] = "chat.completion.chunk"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{key: value} for key, value in message.items() if key != "tool_calls" and value is not None]
    for index, call in enumerate(message.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        deltas.append({"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]})
        for piece in (arguments[:5], arguments[5:]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return sse(*chunks, {**head, "choices": [], "usage": usage}, done=True)


def chat_calls(ids: tuple[str, str]) -> list[dict[str, Any]]:
    """The two calls of every first turn."""
    return [
        {"id": ids[0], "type": "function", "function": {"name": "get_weather", "arguments": WEATHER}},
        {"id": ids[1], "type": "function", "function": {"name": "get_time", "arguments": "{}"}},
    ]


CHAT_DETAILS: list[dict[str, Any]] = [
    {"type": "reasoning.summary", "summary": THOUGHT, "format": "xai-responses-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": STATE["openai_chat"], "id": "rs_x1", "format": "xai-responses-v1", "index": 1},
]


def _chat_calls(stream: bool) -> bytes:
    message = {
        "reasoning_details": CHAT_DETAILS,
        "content": TEXT,
        "tool_calls": chat_calls(CALL_IDS["openai_chat"]),
    }
    return chat_answer(stream, message, "tool_calls")


def _responses(stream: bool, items: list[dict[str, Any]], number: int = 1) -> bytes:
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_tokens_details": {"cached_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    response: dict[str, Any] = {
        "id": f"resp_{number}", "object": "response", "created_at": 1, "model": "gpt", "status": "completed",
        "output": items, "usage": usage, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    if not stream:
        return whole(response)
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    records: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(items):
        place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            part = {"type": "output_text", "text": "", "annotations": []}
            records.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}})
            records.append({"type": "response.content_part.added", **place, "content_index": 0, "part": part})
            records.append({"type": "response.output_text.delta", **place, "content_index": 0, "delta": text, "logprobs": []})
            records.append({"type": "response.output_text.done", **place, "content_index": 0, "text": text, "logprobs": []})
            records.append({"type": "response.content_part.done", **place, "content_index": 0, "part": {**part, "text": text}})
        elif item["type"] == "reasoning":
            summary = item["summary"][0]
            bare = {**item, "summary": [], "encrypted_content": None}
            records.append({"type": "response.output_item.added", "output_index": index, "item": bare})
            place["summary_index"] = 0
            records.append({"type": "response.reasoning_summary_part.added", **place, "part": {**summary, "text": ""}})
            records.append({"type": "response.reasoning_summary_text.delta", **place, "delta": summary["text"]})
            records.append({"type": "response.reasoning_summary_text.done", **place, "text": summary["text"]})
            records.append({"type": "response.reasoning_summary_part.done", **place, "part": summary})
        else:
            records.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}})
            records.append({"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]})
            records.append({"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]})
        records.append({"type": "response.output_item.done", "output_index": index, "item": item})
    records.append({"type": "response.completed", "response": response})
    return sse(*({**record, "sequence_number": number} for number, record in enumerate(records)), named=True)


def _message_item(text: str, number: int = 1) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"msg_o{number}", "role": "assistant", "status": "completed", "content": content}


def _responses_calls(stream: bool) -> bytes:
    first, second = CALL_IDS["openai_responses"]
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": THOUGHT}],
         "encrypted_content": STATE["openai_responses"]},
        _message_item(TEXT),
        {"type": "function_call", "id": "fc_1", "call_id": first, "name": "get_weather", "arguments": WEATHER},
        {"type": "function_call", "id": "fc_2", "call_id": second, "name": "get_time", "arguments": "{}"},
    ]  # fmt: skip
    return _responses(stream, items)


def _gemini(stream: bool, parts: list[dict[str, Any]]) -> bytes:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    head = {"modelVersion": "gemini-3", "responseId": "r1"}

    def answer(shown: list[dict[str, Any]], **end: Any) -> dict[str, Any]:
        return {
            "candidates": [{"index": 0, "content": {"role": "model", "parts": shown}, **end}],
            "usageMetadata": usage,
            **head,
        }

    if not stream:
        return whole(answer(parts, finishReason="STOP"))
    chunks = [answer([part]) for part in parts[:-1]] + [answer(parts[-1:], finishReason="STOP")]
    return sse(*chunks).replace(b"\n\n", b"\r\n\r\n")


def _gemini_calls(stream: bool) -> bytes:
    parts: list[dict[str, Any]] = [
        {"text": THOUGHT, "thought": True},
        {"text": TEXT},
        {"functionCall": {"name": "get_weather", "args": json.loads(WEATHER)}, "thoughtSignature": STATE["gemini"]},
        {"functionCall": {"name": "get_time", "args": {}}},
    ]
    return _gemini(stream, parts)


_CALLING: dict[str, Callable[[bool], bytes]] = {
    "anthropic_messages": _claude_calls,
    "openai_chat": _chat_calls,
    "openai_responses": _responses_calls,
    "gemini": _gemini_calls,
}
_FINAL: dict[str, Callable[[bool], bytes]] = {
    "anthropic_messages": lambda stream: _claude(stream, [{"type": "text", "text": FINAL}], "end_turn"),
    "openai_chat": lambda stream: chat_answer(stream, {"content": FINAL}, "stop"),
    "openai_responses": lambda stream: _responses(stream, [_message_item(FINAL)]),
    "gemini": lambda stream: _gemini(stream, [{"text": FINAL}]),
}


def spoken_answer(dialect: str, stream: bool, text: str, calls: list[tuple[str, str, dict[str, Any]]], number: int) -> bytes:
    """An answer of that text and those calls (id, name, arguments); whoever calls thinks first, with the family's state.

    `number` goes into its ids: clients take two answers of one id for parts of one.
    """
    match dialect:
        case "anthropic_messages":
            thought = [{"type": "thinking", "thinking": THOUGHT, "signature": STATE[dialect]}] if calls else []
            uses = [{"type": "tool_use", "id": call_id, "name": name, "input": given} for call_id, name, given in calls]
            blocks: list[dict[str, Any]] = [*thought, {"type": "text", "text": text}, *uses]
            return _claude(stream, blocks, "tool_use" if calls else "end_turn", number)
        case "openai_chat":
            message: dict[str, Any] = {"content": text}
            if calls:
                message["reasoning_details"] = CHAT_DETAILS
                message["tool_calls"] = [
                    {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
                    for call_id, name, given in calls
                ]
            return chat_answer(stream, message, "tool_calls" if calls else "stop")
        case "openai_responses":
            summary = [{"type": "summary_text", "text": THOUGHT}]
            reasoning = {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": STATE[dialect]}
            items = [
                {
                    "type": "function_call",
                    "id": f"fc_{call_id}",
                    "call_id": call_id,
                    "name": name,
                    "arguments": json.dumps(given),
                }
                for call_id, name, given in calls
            ]
            return _responses(stream, [*([reasoning] if calls else ()), _message_item(text, number), *items], number)
        case _:
            parts: list[dict[str, Any]] = [{"text": text}]
            parts += [{"functionCall": {"name": name, "args": given}} for _, name, given in calls]
            if calls:
                parts[1]["thoughtSignature"] = STATE["gemini"]
                parts.insert(0, {"text": THOUGHT, "thought": True})
            return _gemini(stream, parts)


# -- what a history says, on the wire ---------------------------------------------------------------------------------------


class Entry(msgspec.Struct, frozen=True):
    """One thing in a history, in wire order."""

    kind: str
    """user, thinking, text, call or result."""
    text: str = ""
    id: str = ""
    name: str = ""
    state: str = ""


def history(dialect: str, body: dict[str, Any]) -> list[Entry]:
    """A request body's conversation."""
    return _HISTORY[dialect](body)


def _claude_history(body: dict[str, Any]) -> list[Entry]:
    found: list[Entry] = []
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match block["type"]:
                case "text":
                    found.append(Entry("user" if message["role"] == "user" else "text", block["text"]))
                case "thinking":
                    found.append(Entry("thinking", block["thinking"], state=block["signature"]))
                case "redacted_thinking":
                    found.append(Entry("thinking", state=block["data"]))
                case "tool_use":
                    found.append(Entry("call", _canonical(block["input"]), block["id"], block["name"]))
                case "tool_result":
                    found.append(Entry("result", _flat(block.get("content", "")), block["tool_use_id"]))
    return found


def _chat_history(body: dict[str, Any]) -> list[Entry]:
    found: list[Entry] = []
    for message in body["messages"]:
        match message["role"]:
            case "user":
                found.append(Entry("user", _flat(message["content"])))
            case "tool":
                found.append(Entry("result", _flat(message["content"]), message["tool_call_id"]))
            case "assistant":
                for entry in message.get("reasoning_details") or ():
                    text = entry.get("text") or entry.get("summary") or ""
                    found.append(Entry("thinking", text, state=entry.get("data") or entry.get("signature") or ""))
                for field in ("reasoning", "reasoning_content"):
                    if isinstance(message.get(field), str):
                        found.append(Entry("thinking", message[field]))
                if message.get("content"):
                    found.append(Entry("text", _flat(message["content"])))
                for call in message.get("tool_calls") or ():
                    function = call["function"]
                    state = call.get("extra_content", {}).get("google", {}).get("thought_signature", "")
                    found.append(
                        Entry("call", _canonical(json.loads(function["arguments"])), call["id"], function["name"], state)
                    )
    return found


def _responses_history(body: dict[str, Any]) -> list[Entry]:
    found: list[Entry] = []
    for item in [{"role": "user", "content": body["input"]}] if isinstance(body["input"], str) else body["input"]:
        match item.get("type", "message"):
            case "message" if item.get("role") is not None:  # else it only names an item
                found.append(Entry("user" if item["role"] == "user" else "text", _flat(item["content"])))
            case "reasoning":
                text = "".join(part["text"] for part in (*item["summary"], *(item.get("content") or ())))
                found.append(Entry("thinking", text, item.get("id") or "", state=item.get("encrypted_content") or ""))
            case "function_call":
                found.append(Entry("call", _canonical(json.loads(item["arguments"])), item["call_id"], item["name"]))
            case "function_call_output":
                found.append(Entry("result", _flat(item["output"]), item["call_id"]))
    return found


def _gemini_history(body: dict[str, Any]) -> list[Entry]:
    found: list[Entry] = []
    for content in body["contents"]:
        for part in content["parts"]:
            state = part.get("thoughtSignature", "")
            if "functionCall" in part:
                call = part["functionCall"]
                found.append(Entry("call", _canonical(call.get("args") or {}), call.get("id", ""), call["name"], state))
            elif "functionResponse" in part:
                answer = part["functionResponse"]
                text = answer["response"].get("output", answer["response"].get("result", answer["response"]))
                found.append(Entry("result", text, answer.get("id", ""), answer["name"]))
            else:
                kind = "user" if content["role"] == "user" else "thinking" if part.get("thought") else "text"
                found.append(Entry(kind, part.get("text", ""), state=state))
    return found


_HISTORY: dict[str, Callable[[dict[str, Any]], list[Entry]]] = {
    "anthropic_messages": _claude_history,
    "openai_chat": _chat_history,
    "openai_responses": _responses_history,
    "gemini": _gemini_history,
}


def _canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _flat(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


# -- the clients -----------------------------------------------------------------------------------------------------------


class Conversation:
    """One SDK's conversation, kept the way that SDK's users keep it: its own answer objects, appended."""

    def __init__(self, url: Place, *, stream: bool) -> None:
        self.url, self.stream = url, stream
        self.said: list[Any] = []
        self.calls: list[tuple[str, str]] = []
        """(id, name) of the last answer's calls."""

    def say(self, text: str) -> None: ...

    def ask(self, model: str) -> None: ...

    def ask_aside(self, model: str) -> None:
        """Ask, and go on as if nobody had."""
        before = len(self.said)
        self.ask(model)
        del self.said[before:]

    def give_results(self, *texts: str) -> None: ...


TOOLS = ("get_weather", "get_time")


class ClaudeConversation(Conversation):
    def say(self, text: str) -> None:
        self.said.append({"role": "user", "content": text})

    def ask(self, model: str) -> None:
        arguments: dict[str, Any] = {
            "model": model,
            "max_tokens": 4000,
            "messages": self.said,
            "tools": [{"name": name, "input_schema": SCHEMA} for name in TOOLS],
            "thinking": {"type": "enabled", "budget_tokens": 2000},
        }
        client = anthropic_client(self.url)
        if self.stream:
            with client.messages.stream(**arguments) as events:
                message: Any = events.get_final_message()
        else:
            message = client.messages.create(**arguments)
        self.said.append({"role": "assistant", "content": message.content})
        self.calls = [(block.id, block.name) for block in message.content if block.type == "tool_use"]

    def give_results(self, *texts: str) -> None:
        results = zip(self.calls, texts, strict=True)
        content = [{"type": "tool_result", "tool_use_id": call[0], "content": text} for call, text in results]
        self.said.append({"role": "user", "content": content})


class ChatConversation(Conversation):
    """`plain`: keeps only what OpenAI's own API has, as many agents do."""

    def __init__(self, url: Place, *, stream: bool, plain: bool = False) -> None:
        super().__init__(url, stream=stream)
        self.plain = plain

    def say(self, text: str) -> None:
        self.said.append({"role": "user", "content": text})

    def ask(self, model: str) -> None:
        arguments: dict[str, Any] = {
            "model": model,
            "messages": self.said,
            "tools": [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOLS],
        }
        client = openai_client(self.url)
        if self.stream:
            with client.chat.completions.stream(**arguments) as events:
                message: Any = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**arguments).choices[0].message
        calls = message.tool_calls or []
        self.calls = [(call.id, call.function.name) for call in calls]
        if self.plain:
            kept: dict[str, Any] = {"role": "assistant", "content": message.content}
            if calls:
                kept["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.function.name, "arguments": call.function.arguments},
                    }
                    for call in calls
                ]
            self.said.append(kept)
        else:
            self.said.append(message)

    def give_results(self, *texts: str) -> None:
        for (call_id, _), text in zip(self.calls, texts, strict=True):
            self.said.append({"role": "tool", "tool_call_id": call_id, "content": text})


class ResponsesConversation(Conversation):
    def say(self, text: str) -> None:
        self.said.append({"role": "user", "content": text})

    def ask(self, model: str) -> None:
        arguments: dict[str, Any] = {
            "model": model,
            "input": self.said,
            "tools": [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in TOOLS],
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "high", "summary": "auto"},
            "store": False,
        }
        client = openai_client(self.url)
        if self.stream:
            with client.responses.stream(**arguments) as events:
                for _ in events:
                    pass
                response: Any = events.get_final_response()
        else:
            response = client.responses.create(**arguments)
        self.said += response.output
        self.calls = [(item.call_id, item.name) for item in response.output if item.type == "function_call"]

    def give_results(self, *texts: str) -> None:
        for (call_id, _), text in zip(self.calls, texts, strict=True):
            self.said.append({"type": "function_call_output", "call_id": call_id, "output": text})


class GeminiConversation(Conversation):
    def say(self, text: str) -> None:
        self.said.append(genai_types.Content(role="user", parts=[genai_types.Part(text=text)]))

    def ask(self, model: str) -> None:
        declarations = [{"name": name, "parameters_json_schema": SCHEMA} for name in TOOLS]
        settings = genai_types.GenerateContentConfig.model_validate(
            {
                "automatic_function_calling": {"disable": True},
                "tools": [{"function_declarations": declarations}],
                "thinking_config": {"include_thoughts": True},
            }
        )
        models = genai_client(self.url).models
        if self.stream:
            chunks = list(models.generate_content_stream(model=model, contents=self.said, config=settings))
        else:
            chunks = [models.generate_content(model=model, contents=self.said, config=settings)]
        parts: list[Any] = []
        for chunk in chunks:
            for candidate in chunk.candidates or ():
                parts += (candidate.content.parts if candidate.content else None) or []
        self.said.append(genai_types.Content(role="model", parts=parts))
        called = [part.function_call for part in parts if part.function_call is not None]
        self.calls = [(call.id or "", call.name) for call in called]

    def give_results(self, *texts: str) -> None:
        parts = [
            genai_types.Part(function_response=genai_types.FunctionResponse(id=call_id, name=name, response={"output": text}))
            for (call_id, name), text in zip(self.calls, texts, strict=True)
        ]
        self.said.append(genai_types.Content(role="user", parts=parts))


_CONVERSATIONS: dict[str, type[Conversation]] = {
    "anthropic_messages": ClaudeConversation,
    "openai_chat": ChatConversation,
    "openai_responses": ResponsesConversation,
    "gemini": GeminiConversation,
}


def converse(dialect: str, url: Place, *, stream: bool) -> Conversation:
    """A conversation through the official SDK of that dialect."""
    return _CONVERSATIONS[dialect](url, stream=stream)
