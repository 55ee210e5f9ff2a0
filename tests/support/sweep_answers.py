"""The answers of the sweep: every variant of the SDKs' answer and event types in an answer that ends well, and what a client of
each dialect got of it.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from anthropic.types.beta import BetaMessage, BetaRawMessageStartEvent, BetaRawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from athena.errors import UpstreamError
from athena.model.request import Loss
from athena.translate import StreamTranslator, translate_response
from support.sdk_sweep import TRIED, Types, Variant, union_members
from support.sweep_requests import Outcome, _camel

WHOLE: dict[str, Any] = {
    "anthropic_messages": BetaMessage,
    "openai_chat": ChatCompletion,
    "openai_responses": Response,
    "gemini": GenerateContentResponse,
}
STREAMED: dict[str, Any] = {
    "anthropic_messages": BetaRawMessageStreamEvent,
    "openai_chat": ChatCompletionChunk,
    "openai_responses": ResponseStreamEvent,
    "gemini": GenerateContentResponse,
}
PROFILES = {
    "anthropic_messages": "anthropic_compatible",
    "openai_chat": "generic",
    "openai_responses": "responses_compatible",
    "gemini": "gemini_compatible",
}
"""Servers whose answers are read and written anew for clients of their own dialect, too."""

_SAMPLES: dict[str, Any] = {
    ".input": {"k": "mark"},
    ".arguments": '{"k": "mark"}',
    ".args": {"k": "mark"},
    ".finish_reason": "stop",
    ".finishReason": "STOP",
    ".stop_reason": "end_turn",
    ".output": [],
    ".data": "aGk=",
    ".mimeType": "image/png",
    ".url": "https://x.test/mark",
    ".uri": "https://x.test/mark",
    ".thoughtSignature": "c2ln",
    ".incomplete_details": None,
    ".error": None,
    ".status": "completed",
    ".blockReason": "SAFETY",
    ".index": 0,
    ".output_index": 0,
    ".content_index": 0,
    ".summary_index": 0,
    ".annotation_index": 0,
    ".sequence_number": 0,
    ".instructions": "mark",
    ".created_at": 1,
    ".partialArgs": [],
    ".annotation": {"type": "url_citation", "url": "https://x.test/mark", "title": "mark", "start_index": 0, "end_index": 0},
}
_SKIPPED = frozenset({
    "model", "error", "incomplete_details", "sdkHttpResponse", "automaticFunctionCallingHistory", "parsed", "partialArgs",
    "willContinue",
})  # fmt: skip
"""Errors and endings are tried by cases of their own; the rest never stands on the wire."""
_NEEDED = {
    "GenerateContentResponse": ("candidates",),
    "Candidate": ("content", "finishReason"),
    "Content": ("parts", "role"),
    "Part": ("text",),
    "FunctionCall": ("name", "args"),
    "Blob": ("data", "mimeType"),
    "FileData": ("fileUri", "mimeType"),
    "Response": ("status",),
    "ResponseOutputTextAnnotationAddedEvent": ("annotation",),
    "ChoiceDelta": ("content",),
    "ChatCompletionMessage": ("content",),
    "ChoiceDeltaToolCall": ("id", "function"),
    "ChoiceDeltaToolCallFunction": ("name", "arguments"),
    "ChoiceDeltaFunctionCall": ("name", "arguments"),
}
_INSTEAD = {
    "Part": ("text", frozenset({
        "codeExecutionResult", "executableCode", "fileData", "functionCall", "functionResponse", "inlineData", "toolCall",
        "toolResponse", "audioTranscription",
    })),
}  # fmt: skip


def _types(dialect: str) -> Types:
    samples = dict(_SAMPLES)
    if dialect == "openai_responses":
        del samples[".output"]
    if dialect != "anthropic_messages":
        del samples[".input"]
    return Types(samples, _SKIPPED, needed=_NEEDED, instead=_INSTEAD)


@functools.cache
def whole_variants(dialect: str) -> tuple[Variant, ...]:
    """Every variant of a whole answer of that dialect."""
    return tuple(
        Variant(variant.path.lstrip("."), _whole(dialect, variant.value), _whole(dialect, variant.without or {}), variant.tried)
        for variant in _types(dialect).fields(WHOLE[dialect])
    )


def _whole(dialect: str, answer: dict[str, Any]) -> dict[str, Any]:
    if dialect == "anthropic_messages":
        calls = any(block.get("type") == "tool_use" for block in answer.get("content") or () if isinstance(block, dict))
        reason = "tool_use" if calls else "refusal" if "stop_details" in answer else "end_turn"
        return {**answer, "stop_reason": reason}
    if dialect == "openai_responses":
        return {**answer, "object": "response", "status": "completed"}
    return answer


def outcome(variant: Variant, source: str, target: str) -> Outcome:
    """Translate with and without what is tried, and see what it changed."""
    try:
        got, told = _translated(json.dumps(variant.value), source, target)
    except UpstreamError as error:
        return Outcome("refused", message=error.message)
    try:
        plain, before = _translated(json.dumps(variant.without), source, target)
    except UpstreamError:
        plain, before = "", ()
    return judged(variant, got, plain, tuple(loss for loss in told if loss not in before), told)


def judged(variant: Variant, got: str, plain: str, told: tuple[Loss, ...], everything: tuple[Loss, ...] = ()) -> Outcome:
    """What became of a variant, by what the client got with and without it."""
    if told:
        return Outcome("told", told)
    if everything and TRIED in json.dumps(variant.tried) and TRIED not in got:
        return Outcome("told", everything)  # the smallest value of its kind is left out with the same words
    if variant.tried in ({}, [], "", None):
        return Outcome("mapped")
    if TRIED in json.dumps(variant.tried):
        return Outcome("mapped" if TRIED in got else "silent")
    return Outcome("mapped" if got != plain else "silent")


@functools.cache
def _translated(answer: str, source: str, target: str) -> tuple[str, tuple[Loss, ...]]:
    translated = translate_response(answer, source=source, target=target, profile=PROFILES[source], envelope_key=b"k")
    return json.dumps(translated.body), translated.warnings


def whole_outcomes(source: str, target: str) -> Iterator[tuple[Variant, Outcome]]:
    """All variants of whole answers for clients of another dialect; what is inside of what is left out is told with it."""
    gone: tuple[str, ...] = ()
    for variant in whole_variants(source):
        if gone and variant.path.startswith(gone):
            continue
        result = outcome(variant, source, target)
        if any(loss.action == "dropped" for loss in result.losses) and variant.path.endswith(">"):
            gone += tuple(f"{variant.path}{mark}" for mark in ".[<")
        yield variant, result


# -- streams -------------------------------------------------------------------------------------------------------------------

_USAGE = {"input_tokens": 1, "output_tokens": 1}
_MESSAGE: dict[str, Any] = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
    "stop_sequence": None, "usage": _USAGE,
}  # fmt: skip
_MESSAGE_START: dict[str, Any] = {"type": "message_start", "message": _MESSAGE}
_MESSAGE_END: list[dict[str, Any]] = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": _USAGE},
    {"type": "message_stop"},
]
_BLOCK_OF_DELTA: dict[str, dict[str, Any]] = {
    "text_delta": {"type": "text", "text": ""},
    "citations_delta": {"type": "text", "text": ""},
    "input_json_delta": {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
    "thinking_delta": {"type": "thinking", "thinking": "", "signature": ""},
    "signature_delta": {"type": "thinking", "thinking": "", "signature": ""},
    "compaction_delta": {"type": "compaction", "content": ""},
}
_ENDS = ("error", "response.failed", "response.incomplete", "response.cancelled")


@functools.cache
def stream_variants(dialect: str) -> tuple[Variant, ...]:
    """Every variant of an event of that dialect, in a stream that ends well.

    What the response object of an event says beside its items is tried with whole answers.
    """
    types = _types(dialect)
    if dialect in ("gemini", "openai_chat"):
        found = types.fields(STREAMED[dialect])
    else:
        types.skip_fields_of(Response)
        # A message starts without content: blocks are tried where they are announced.
        events = sorted(union_members(STREAMED[dialect]), key=lambda event: event is BetaRawMessageStartEvent)
        found = itertools.chain.from_iterable(types.variants(event) for event in events)
    return tuple(
        Variant(
            variant.path.lstrip("."),
            _stream(dialect, variant.value),
            _stream(dialect, variant.without if isinstance(variant.without, dict) else None),
            variant.tried,
        )
        for variant in found
        if not (isinstance(variant.value, dict) and variant.value.get("type") in _ENDS)
        and ".message<message>.content[" not in variant.path
    )


def _stream(dialect: str, event: dict[str, Any] | None) -> bytes:
    """The bytes of a stream around one event; without an event, of a stream that says nothing."""
    if dialect == "gemini":
        return _frames([_camel(event or {}), {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}])
    if dialect == "openai_chat":
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        return _frames([*([event] if event else []), end]) + b"data: [DONE]\n\n"
    if dialect == "anthropic_messages":
        return _frames(_messages_stream(event))
    return _frames(_responses_stream(event))


def _frames(events: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def _messages_stream(event: dict[str, Any] | None) -> list[dict[str, Any]]:
    if event is None:
        return [_MESSAGE_START, *_MESSAGE_END]
    kind = event["type"]
    if kind == "message_start":
        return [{**event, "message": {**_MESSAGE, **event["message"]}}, *_MESSAGE_END]
    if kind == "message_delta":
        delta = {**event["delta"], "stop_reason": "refusal" if event["delta"].get("stop_details") else "end_turn"}
        return [_MESSAGE_START, {**event, "delta": delta}, _MESSAGE_END[1]]
    if kind == "content_block_start":
        called = event["content_block"].get("type") == "tool_use"
        end = [{**_MESSAGE_END[0], "delta": {"stop_reason": "tool_use" if called else "end_turn"}}, _MESSAGE_END[1]]
        return [_MESSAGE_START, event, {"type": "content_block_stop", "index": 0}, *end]
    if kind == "message_stop":
        return [_MESSAGE_START, _MESSAGE_END[0], event]
    if kind == "content_block_delta":
        if event["delta"]["type"] == "input_json_delta":
            event = {**event, "delta": {**event["delta"], "partial_json": json.dumps({"k": event["delta"]["partial_json"]})}}
        block = _BLOCK_OF_DELTA.get(event["delta"]["type"], {"type": "text", "text": ""})
        start = {"type": "content_block_start", "index": 0, "content_block": block}
        return [_MESSAGE_START, start, event, {"type": "content_block_stop", "index": 0}, *_MESSAGE_END]
    return [_MESSAGE_START, event, *_MESSAGE_END]


_ITEM_OF_EVENT: dict[str, dict[str, Any]] = {
    "function_call_arguments": {"type": "function_call", "call_id": "call_x", "name": "f"},
    "custom_tool_call_input": {"type": "custom_tool_call", "call_id": "call_x", "name": "f"},
    "web_search_call": {"type": "web_search_call", "action": {"type": "search", "query": "x"}},
    "file_search_call": {"type": "file_search_call", "queries": ["x"]},
    "code_interpreter_call": {"type": "code_interpreter_call", "code": "x", "container_id": "c"},
    "image_generation_call": {"type": "image_generation_call", "result": "aGk="},
    "mcp_call": {"type": "mcp_call", "name": "f", "arguments": "{}", "server_label": "s"},
    "mcp_list_tools": {"type": "mcp_list_tools", "server_label": "s", "tools": []},
    "shell_call": {"type": "shell_call_output", "call_id": "call_x", "output": []},
    "apply_patch_call": {"type": "apply_patch_call", "call_id": "call_x", "operation": {"type": "delete_file", "path": "x"}},
    "compaction": {"type": "compaction", "encrypted_content": "x"},
    "reasoning": {"type": "reasoning", "summary": []},
    "output_text": {"type": "message", "role": "assistant", "content": []},
    "refusal": {"type": "message", "role": "assistant", "content": []},
}
"""The item that an event speaks of, by the beginning of the event's name."""


def _responses_stream(event: dict[str, Any] | None) -> list[dict[str, Any]]:
    base = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    created = {"type": "response.created", "sequence_number": 0, "response": base}
    completed = {"type": "response.completed", "sequence_number": 9, "response": {**base, "status": "completed"}}
    if event is None:
        return [created, completed]
    name = event["type"].removeprefix("response.")
    if name == "completed":
        return [created, {**event, "response": {**event["response"], "status": "completed"}}]
    if name == "function_call_arguments.delta":
        event = {**event, "delta": json.dumps({"k": event["delta"]})}
    item = _item_of(name, event)
    if item is None:
        return [created, event, completed]
    added = event if name == "output_item.added" else {"type": "response.output_item.added", "output_index": 0, "item": item}
    done = event if name == "output_item.done" else {"type": "response.output_item.done", "output_index": 0, "item": item}
    between = [] if name.startswith("output_item.") else [event]
    return [created, added, *between, done, completed]


def _item_of(name: str, event: dict[str, Any]) -> dict[str, Any] | None:
    """The finished item that an event speaks of."""
    if name.startswith("output_item."):
        return dict(event["item"])
    own = {"id": event["item_id"], "status": "completed"} if "item_id" in event else {}
    part = event.get("part")
    if isinstance(part, dict):
        if name.startswith("content_part.") and part["type"] != "reasoning_text":
            return {**own, "type": "message", "role": "assistant", "content": [part]}
        place = "content" if name.startswith("content_part.") else "summary"
        return {**own, "type": "reasoning", "summary": [], place: [part]}
    item = next((item for word, item in _ITEM_OF_EVENT.items() if name.startswith(word)), None)
    if item is None:
        return None
    if "logprobs" in event:
        said = event.get("delta") or event.get("text")
        item = {**item, "content": [{"type": "output_text", "text": said, "logprobs": event["logprobs"]}]}
    field = {"function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
    return {**own, **item, **({field: event.get("delta") or event[field]} if field else {})}


def stream_outcomes(source: str, target: str) -> Iterator[tuple[Variant, Outcome]]:
    """All variants of one dialect's events for clients of another; what is inside of what is left out is told with it."""
    gone: tuple[str, ...] = ()
    for variant in stream_variants(source):
        if gone and variant.path.startswith(gone):
            continue
        result = stream_outcome(variant, source, target)
        if any(loss.action == "dropped" for loss in result.losses) and variant.path.endswith(">"):
            gone += tuple(f"{variant.path}{mark}" for mark in ".[<")
        yield variant, result


def stream_outcome(variant: Variant, source: str, target: str) -> Outcome:
    """Translate the stream with and without what is tried, and see what it changed."""
    got, told, failed = _streamed(variant.value, source, target)
    if failed:
        return Outcome("refused", message=failed)
    plain, before, _ = _streamed(variant.without, source, target)
    return judged(variant, got, plain, tuple(loss for loss in told if loss not in before), told)


@functools.cache
def _streamed(data: bytes, source: str, target: str) -> tuple[str, tuple[Loss, ...], str]:
    stream = StreamTranslator(source=source, target=target, profile=PROFILES[source], envelope_key=b"k")
    shown = stream.feed(data) + stream.close()
    failed = stream.error.message if stream.error is not None else "" if stream.done is not None else "no end"
    return shown.decode(), stream.warnings, failed


FREE: tuple[tuple[str, str], ...] = (
    (r"(^|\.)(usage|usageMetadata)<", "details of the bill; the counts themselves are kept"),
    (
        r"^(id|created|created_at|completed_at|object|createTime|responseId|modelVersion|system_fingerprint)$",
        "labels of the answer",
    ),
    (
        r"^(service_tier|billing|role|type)(=|<|$)|\.(role|type|index|tokenCount|avgLogprobs|logprobs|displayName)(=|$)",
        "labels",
    ),
    (r"^<response\.(created|in_progress|queued)>", "said again at the end of the response"),
    (r"(^|\.)obfuscation$", "padding that hides the length of the text"),
    (
        r"^(instructions|metadata|temperature|tool_choice|tools|top_p|background|max_output_tokens|max_tool_calls|moderation|prompt"
        r"|previous_response_id|prompt_cache_.*|reasoning|safety_identifier|store|text|top_logprobs|truncation|user|conversation"
        r"|parallel_tool_calls|access_programs|context_management|personality|image)(\[|\.|<|=|$)",
        "the client's own settings, which it gets back from its own request",
    ),
    (r"\.(id|status|created_by|expires_at|item_id|format)(=|$)", "labels that the provider put on a part"),
    (r"\.namespace$", "a client without namespaces has declared none"),
    (r"\.caller<direct>|toolset_name$", "says what the call says already"),
    (r"\.safetyRatings\[\]<", "what the provider thought of the answer"),
    (
        r"\.continuationToken$|\.blockReason$|(^|\.)(stop_details<refusal>|stop_sequence|stop_reason|finish_reason)$",
        "counts only with the ending it belongs to",
    ),
    (r"^<message_start>(\.message<message>)?$|^<content_block_stop>$|^<message_stop>$", "where something begins and ends"),
    (r"\.estimated_tokens$", "an estimate that the count at the end replaces"),
    (r"signature|thoughtSignature|encrypted_content$", "state travels sealed"),
    (r"itations?\[\]<.*\.(cited_text|encrypted_index|start|end|.*_index|.*Index)", "a citation's address and title travel"),
)


def is_free(path: str) -> bool:
    """May this be left out without a word?"""
    return any(re.search(pattern, path) for pattern, _ in FREE)
