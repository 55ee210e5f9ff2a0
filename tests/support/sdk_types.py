"""Bodies checked against the official SDKs' own request types."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pydantic
from anthropic.types import message_create_params as anthropic_params
from google.genai import types as genai_types
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params


@cache
def _adapter(dialect: str) -> pydantic.TypeAdapter[Any]:
    kind: Any = {
        "anthropic_messages": anthropic_params.MessageCreateParamsNonStreaming,
        "openai_chat": chat_params.CompletionCreateParamsNonStreaming,
        "openai_responses": responses_params.ResponseCreateParamsNonStreaming,
    }[dialect]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pydantic.TypeAdapter(kind)


def check_body(dialect: str, body: dict[str, Any]) -> None:
    """Raise what pydantic raises where a body does not fit the SDK's type."""
    body = {key: value for key, value in body.items() if key != "stream"}
    if dialect == "gemini":
        _check_gemini(body)
        return
    _adapter(dialect).validate_python(body)


def _check_gemini(body: dict[str, Any]) -> None:
    """The Gemini SDK has no type of the wire body, but one for each of its parts; unknown keys are refused."""
    for content in body["contents"]:
        genai_types.Content.model_validate(content)
    if "systemInstruction" in body:
        genai_types.Content.model_validate(body["systemInstruction"])
    for tool in body.get("tools", ()):
        genai_types.Tool.model_validate(tool)
    if "toolConfig" in body:
        genai_types.ToolConfig.model_validate(body["toolConfig"])
    if "generationConfig" in body:
        genai_types.GenerationConfig.model_validate(body["generationConfig"])
