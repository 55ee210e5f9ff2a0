"""The requests of the sweep: every variant of the SDKs' request types in a body that makes sense, and what became of it."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import typing_extensions
from anthropic.types.beta import message_create_params as anthropic_params
from google.genai import types as genai
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params

from athena.errors import UnsupportedFeature
from athena.model.request import Loss
from athena.translate import Translated, translate_request
from support.sdk_sweep import TRIED, Types, Variant

Fate = Literal["mapped", "told", "refused", "silent"]
MODELS = {
    "anthropic_messages": "claude-sonnet-4-5",
    "openai_chat": "m",
    "openai_responses": "gpt-5.1",
    "gemini": "gemini-3-pro",
}
"""The upstream model of each target."""

_SCHEMA = {"type": "object", "properties": {"mark": {"type": "string"}}}
_PNG = "data:image/png;base64,aGk="


class GeminiBody(typing_extensions.TypedDict, total=False):
    """The wire's body, of the types that the SDK has for its parts."""

    contents: typing_extensions.Required[list[genai.ContentDict]]
    systemInstruction: genai.ContentDict
    tools: list[genai.ToolDict]
    toolConfig: genai.ToolConfigDict
    safetySettings: list[genai.SafetySettingDict]
    cachedContent: str
    labels: dict[str, str]
    serviceTier: genai.ServiceTier
    store: bool
    generationConfig: genai.GenerationConfigDict


ROOTS: dict[str, Any] = {
    "anthropic_messages": anthropic_params.MessageCreateParamsNonStreaming,
    "openai_chat": chat_params.CompletionCreateParamsNonStreaming,
    "openai_responses": responses_params.ResponseCreateParamsNonStreaming,
    "gemini": GeminiBody,
}
_SKIPPED = frozenset({"stream", "betas", "user_profile_id", "workspace_id", "model", "stream_options"})
"""Fields of the SDKs' parameters that travel in a header or in the URL, or only in another product's requests."""
_LAST = ("fallbacks", "messages", "input", "prompt", "systemInstruction")
_SAMPLES: dict[str, Any] = {
    ".model": "m",
    ".max_tokens": 4096,
    ".budget_tokens": 2048,
    ".input_schema": _SCHEMA,
    ".schema": _SCHEMA,
    ".parameters": _SCHEMA,
    ".parameters_json_schema": _SCHEMA,
    ".response": {"output": "mark"},
    ".response_schema": _SCHEMA,
    ".response_json_schema": _SCHEMA,
    ".output_schema": _SCHEMA,
    ".tool_use_id": "call_mark",
    ".call_id": "call_mark",
    ".tool_call_id": "call_mark",
    ".media_type": "image/png",
    "<document>.source<base64>.media_type": "application/pdf",
    "<image>.source<base64>.data": "aGk=",
    ".file_data": "data:application/pdf;base64,aGk=",
    ".image_url": _PNG,
    "<ImageURL>.url": _PNG,
    ".arguments": '{"k": "mark"}',
    ".mime_type": "image/png",
    ".logit_bias": {"50256": -100},
    ".response_mime_type": "application/json",
    ".n": 2,
    ".candidate_count": 2,
    ".top_k": 7,
    ".enabled": False,
    ".allowed_tools.tools": [{"type": "function", "function": {"name": "f"}}],
    ".allowed_tools<ChatCompletionAllowedToolsParam>.tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice.tools": [{"type": "function", "name": "f"}],
    "tool_choice<allowed_tools>.tools": [{"type": "function", "name": "f"}],
}
_GEMINI_SAMPLES: dict[str, Any] = {**_SAMPLES, ".role": "user", ".file_uri": "https://www.youtube.com/mark"}
del _GEMINI_SAMPLES[".file_data"]
_NEEDED = {
    "BetaSystemMessageParam": ("content",),
    "FunctionCallOutput": ("call_id",),
    "JSONSchema": ("schema",),
    "FileFile": ("file_data",),
    "ResponseInputImageParam": ("image_url",),
    "ResponseInputImageContentParam": ("image_url",),
    "ResponseInputFileParam": ("file_data",),
    "ResponseInputFileContentParam": ("file_data",),
    "ResponseComputerToolCallOutputScreenshotParam": ("image_url",),
    "ResponseComputerToolCallParam": ("action",),
    "ChatCompletionAssistantMessageParam": ("content",),
    "ContentDict": ("parts", "role"),
    "PartDict": ("text",),
    "FunctionDeclarationDict": ("name",),
    "FunctionCallDict": ("name", "args"),
    "FunctionResponseDict": ("name", "response"),
    "FunctionResponsePartDict": ("inline_data",),
    "FunctionResponseBlobDict": ("data", "mime_type"),
    "BlobDict": ("data", "mime_type"),
    "FileDataDict": ("file_uri", "mime_type"),
    "FunctionResponseFileDataDict": ("file_uri", "mime_type"),
    "FunctionCallingConfigDict": ("mode",),
}
_INSTEAD = {
    "PartDict": ("text", frozenset({
        "code_execution_result", "executable_code", "file_data", "function_call", "function_response", "inline_data",
        "tool_call", "tool_response", "audio_transcription",
    })),
    "FileFile": ("file_data", frozenset({"file_id"})),
    "ResponseInputImageParam": ("image_url", frozenset({"file_id"})),
    "ResponseInputImageContentParam": ("image_url", frozenset({"file_id"})),
    "ResponseInputFileParam": ("file_data", frozenset({"file_id", "file_url"})),
    "ResponseInputFileContentParam": ("file_data", frozenset({"file_id", "file_url"})),
    "ResponseComputerToolCallOutputScreenshotParam": ("image_url", frozenset({"file_id"})),
}  # fmt: skip


@functools.cache
def request_variants(dialect: str) -> tuple[Variant, ...]:
    """Every variant of a request of that dialect, as bodies."""
    found = []
    samples = _GEMINI_SAMPLES if dialect == "gemini" else _SAMPLES
    for variant in Types(samples, _SKIPPED, _LAST, _NEEDED, _INSTEAD).fields(ROOTS[dialect]):
        value, without = (_body(dialect, body) for body in (variant.value, variant.without or {}))
        found.append(Variant(variant.path.lstrip("."), value, without, variant.tried))
    return tuple(found)


_TOOLS: dict[str, dict[str, Any]] = {
    "anthropic_messages": {"name": "f", "input_schema": {"type": "object"}},
    "openai_chat": {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    "openai_responses": {"type": "function", "name": "f", "parameters": {"type": "object"}},
    "gemini": {"functionDeclarations": [{"name": "f"}]},
}


def _body(dialect: str, body: dict[str, Any]) -> dict[str, Any]:
    """A body with what every request needs: a model, a message, a tool, and to every call its result."""
    if dialect == "gemini":
        body = _camel(body)
    if "tools" not in body and "functions" not in body:
        choice = body.get("tool_choice")
        typed = choice if isinstance(choice, dict) and choice.get("type") in ("shell", "apply_patch") else _TOOLS[dialect]
        body = {**body, "tools": [typed]}
    if dialect == "gemini":
        said = _paired_contents(body.get("contents") or [{"role": "user", "parts": [{"text": "Hi"}]}])
        return {**body, "contents": _ended(said, {"role": "user", "parts": [{"text": "Go"}]})}
    if "model" not in body:
        body = {**body, "model": "m"}
    if dialect == "openai_responses":
        given = body.get("input", "Hi")
        items = _ended(_paired_items(given), {"role": "user", "content": "Go"}) if isinstance(given, list) else given
        return {**body, "input": items}
    messages = body.get("messages") or [{"role": "user", "content": "Hi"}]
    if dialect == "openai_chat":
        if "top_logprobs" in body:
            body = {**body, "logprobs": True}
        return {**body, "messages": _ended(_paired_messages(messages), {"role": "user", "content": "Go"})}
    return {"max_tokens": 4096, **body, "messages": _ended(_paired_blocks(messages), {"role": "user", "content": "Go"})}


def _ended(said: list[Any], last: dict[str, Any]) -> list[Any]:
    """A conversation in which the user has the last word."""
    if not isinstance(said[-1], dict):
        return said
    role = said[-1].get("role") if said[-1].get("type", "message") == "message" else None
    return said if role not in (None, "assistant", "model") else [*said, last]


def _paired_blocks(messages: list[Any]) -> list[Any]:
    """Messages of Anthropic's API in which every call has its result and every result its call."""
    paired: list[Any] = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        answered = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
        called = [block["id"] for block in blocks if block.get("type") == "tool_use"]
        if answered:
            calls = [{"type": "tool_use", "id": call_id, "name": "f", "input": {}} for call_id in answered]
            paired.append({"role": "assistant", "content": calls})
        # The types know no difference between what a user and what a model may say; the API does.
        thought = any(block.get("type") in ("thinking", "redacted_thinking") for block in blocks)
        paired.append({**message, "role": "assistant"} if called or thought else message)
        if called:
            results = [{"type": "tool_result", "tool_use_id": call_id, "content": "x"} for call_id in called]
            paired.append({"role": "user", "content": results})
    return paired


def _paired_messages(messages: list[Any]) -> list[Any]:
    """The same for Chat."""
    paired: list[Any] = []
    for message in messages:
        if message.get("role") == "tool":
            call = {"id": message["tool_call_id"], "type": "function", "function": {"name": "f", "arguments": "{}"}}
            paired.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif message.get("role") == "function":
            call = {"name": message["name"], "arguments": "{}"}
            paired.append({"role": "assistant", "content": None, "function_call": call})
        paired.append(message)
        for call in message.get("tool_calls") or ():
            paired.append({"role": "tool", "tool_call_id": call["id"], "content": "x"})
        if message.get("function_call"):
            paired.append({"role": "function", "name": message["function_call"]["name"], "content": "x"})
    return paired


_ITEMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "function_call": ({"name": "f", "arguments": "{}"}, {"output": "x"}),
    "custom_tool_call": ({"name": "f", "input": "x"}, {"output": "x"}),
    "computer_call": (
        {"id": "cu_1", "action": {"type": "wait"}, "pending_safety_checks": [], "status": "completed"},
        {"output": {"type": "computer_screenshot", "image_url": _PNG}},
    ),
    "shell_call": ({"action": {"commands": ["x"]}}, {"output": []}),
    "local_shell_call": (
        {"id": "mark", "action": {"type": "exec", "command": ["x"], "env": {}}, "status": "completed"},
        {"id": "mark", "output": "x"},
    ),
    "apply_patch_call": ({"operation": {"type": "delete_file", "path": "x"}, "status": "completed"}, {"status": "completed"}),
    "tool_search_call": ({"arguments": {}, "execution": "client"}, {"tools": [], "execution": "client"}),
}
"""Items that call and, with `_output` behind their type, answer: what they need beside the call's id."""


def _paired_items(items: list[Any]) -> list[Any]:
    """The same for Responses."""
    paired: list[Any] = []
    for item in items:
        kind = str(item.get("type", ""))
        base = kind.removesuffix("_output") if kind.endswith("_output") else kind
        base = "tool_search_call" if base == "tool_search" else base
        if base not in _ITEMS:
            paired.append(item)
            continue
        call_id = item.get("call_id") or "call_1"
        call, output = _ITEMS[base]
        if kind == base:
            answer = base.removesuffix("_call") if base == "tool_search_call" else base
            own = {"id": item["id"]} if base == "local_shell_call" and "id" in item else {}
            paired += [item, {"type": f"{answer}_output", "call_id": call_id, **output, **own}]
        else:
            own = {"id": item["id"]} if base == "local_shell_call" else {}
            paired += [{"type": base, "call_id": call_id, **call, **own}, item]
    return paired


def _paired_contents(contents: Any) -> list[Any]:
    """The same for Gemini, which pairs by name."""
    paired: list[Any] = []
    for content in contents if isinstance(contents, list) else [contents]:
        parts = [part for part in content.get("parts") or () if isinstance(part, dict)] if isinstance(content, dict) else []
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if answers:
            made = [{"functionCall": {"name": each["name"], "args": {}, **_id(each)}} for each in answers]
            paired.append({"role": "model", "parts": made})
        thought = any("thought" in part or "thoughtSignature" in part for part in parts)
        paired.append({**content, "role": "model"} if calls or thought else content)
        if calls:
            told = [{"functionResponse": {"name": call["name"], "response": {"output": "x"}, **_id(call)}} for call in calls]
            paired.append({"role": "user", "parts": told})
    return paired


def _id(entry: dict[str, Any]) -> dict[str, Any]:
    return {"id": entry["id"]} if "id" in entry else {}


_FREE_FORM = frozenset({"args", "response", "labels", "parametersJsonSchema", "responseJsonSchema", "partMetadata"})


def _camel(value: Any) -> Any:
    """The SDK's spelling as the wire's; the keys of data are nobody's to spell."""
    if isinstance(value, list):
        return [_camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    spelled: dict[str, Any] = {}
    for key, item in value.items():
        head, *rest = key.split("_")
        wire = head + "".join(word.title() for word in rest)
        spelled[wire] = item if wire in _FREE_FORM else _camel(item)
    return spelled


# -- what became of it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of one variant on its way to one target."""

    fate: Fate
    losses: tuple[Loss, ...] = ()
    message: str = ""


@functools.cache
def _translated(body: str, source: str, target: str) -> Translated:
    return translate_request(body, source=source, target=target, model=MODELS[target])


def outcome(variant: Variant, source: str, target: str) -> Outcome:
    """Translate with and without what is tried, and see what it changed."""
    try:
        sent = translate_request(variant.value, source=source, target=target, model=MODELS[target])
    except UnsupportedFeature as error:
        return Outcome("refused", message=error.message)
    try:
        plain = _translated(json.dumps(variant.without), source, target)
    except UnsupportedFeature:
        plain = Translated(body={})
    told = tuple(loss for loss in sent.warnings if loss not in plain.warnings)
    if told:
        return Outcome("told", told)
    if variant.tried in ({}, [], ""):
        return Outcome("mapped")  # it says nothing
    if TRIED in json.dumps(variant.tried):
        return Outcome("mapped" if TRIED in json.dumps(sent.body) else "silent")
    return Outcome("mapped" if sent.body != plain.body else "silent")


def outcomes(source: str, target: str) -> Iterator[tuple[Variant, Outcome]]:
    """All variants of one dialect's requests on their way to another.

    What stands inside of something that is left out or refused as a whole is told with it.
    """
    gone: tuple[str, ...] = ()
    for variant in request_variants(source):
        if variant.path.startswith(gone) and gone:
            continue
        result = outcome(variant, source, target)
        left_out = result.fate == "refused" or any(loss.action == "dropped" for loss in result.losses)
        if left_out and variant.path.endswith(">") and source != target:
            gone += tuple(f"{variant.path}{mark}" for mark in ".[<")
        yield variant, result


# -- what need not be told ---------------------------------------------------------------------------------------------------

FREE: tuple[tuple[str, str], ...] = (
    (r"(cache_control|cache_breakpoint)<", "a cache mark: the answer is the same without it"),
    (r"\.(id|status)(=|$)", "a label that the provider itself put on an item"),
    (r"\.(caller|namespace|toolset_name|type)(=|<|$)", "says what the call, the tool or the message says already"),
    (r"function_call_output>\.name$", "says what the call says already"),
    (r"\.clear_at=", "kept: a message that is cleared is left out, any other stays"),
    (r"\.display=summarized$|\.(generate_)?summary=|\.include_thoughts$", "reasoning is shown wherever there is some"),
    (r"^thinking<adaptive>$", "what the model does anyway"),
    (r"\.detail=auto$|^parallel_tool_calls$|modalities\[\]=(text|TEXT)$|format<text>$", "the default"),
    (r"\.json_schema<JSONSchema>(\.name)?$|format<json_schema>(\.name)?$", "the name is a label; the schema is kept"),
    (r"json_schema.*\.strict$", "a schema is always kept to there"),
    (r"^include\[\]=reasoning\.encrypted_content$", "kept: state travels sealed"),
    (r"_safety_checks", "checks of the provider's own"),
    (r"environment<(local|container_reference)>$|\.max_output_length$", "where a command ran, and how much was kept of it"),
    (r"computer_use<.*(=ENVIRONMENT_BROWSER|excluded_predefined_functions\[\])$", "the default, and a function nobody has"),
    (r"^generationConfig<GenerationConfigDict>\.logprobs$", "counts only where log probabilities are asked for"),
)
"""Paths of what says nothing to another provider, or what it does anyway, and why. Nothing else may be lost without a word."""


def is_free(path: str) -> bool:
    """May this be left out without a word?"""
    return any(re.search(pattern, path) for pattern, _ in FREE)
