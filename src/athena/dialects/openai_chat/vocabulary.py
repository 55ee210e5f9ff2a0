"""Words of Chat Completions and of the servers that speak it, and the keys we understand.

Wire facts: docs/reference/wire-facts.md#openai-chat-completions.
"""

from __future__ import annotations

from athena.model.events import FinishKind

NAME = "openai_chat"

FINISH_KINDS: dict[str, FinishKind] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool",
    "tool_use": "tool",
    "function_call": "tool",
    "length": "length",
    "max_tokens": "length",
    "model_length": "context",
    "content_filter": "filter",
    "refusal": "refusal",
}
"""Other words mean stop; the words of `FINISH_ERRORS` mean that the answer failed."""

FINISH_ERRORS = frozenset({"error", "abort", "insufficient_system_resource"})

FINISH_WORDS: dict[FinishKind, str] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "tool": "tool_calls",
    "length": "length",
    "context": "length",
    "continuation": "length",
    "refusal": "stop",
    "filter": "content_filter",
    "pause": "stop",
    "malformed": "stop",
}

CUT_KINDS = frozenset({"length", "context", "continuation", "filter", "refusal"})
"""Endings that may cut a call: its unfinished arguments are then no fault of the model."""

FORMAT_OF_FAMILY = {
    "anthropic": "anthropic-claude-v1",
    "openai": "openai-responses-v1",
    "gemini": "google-gemini-v1",
    "xai": "xai-responses-v1",
}
"""How OpenRouter names the maker of an entry of `reasoning_details`."""

_FAMILY_MARKS = (
    ("anthropic", "anthropic"),
    ("claude", "anthropic"),
    ("openai", "openai"),
    ("gemini", "gemini"),
    ("xai", "xai"),
)


def family_of_format(name: object) -> str:
    """The family whose state an entry of that format holds; cloud variants (azure-..., bedrock-...) count as their maker's."""
    if isinstance(name, str):
        for mark, family in _FAMILY_MARKS:
            if mark in name:
                return family
    return "unknown"


REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields of a message that carry reasoning."""

CHUNK_KEYS = frozenset({"id", "object", "created", "model", "choices", "usage", "error", "obfuscation"})
CHOICE_KEYS = frozenset({"index", "delta", "message", "finish_reason", "usage"})
DELTA_KEYS = frozenset({
    "role", "content", "reasoning", "reasoning_content", "reasoning_details", "tool_calls", "function_call", "refusal",
    "annotations", "images", "finish_reason",
})  # fmt: skip
CALL_KEYS = frozenset({"index", "id", "type", "function", "custom", "extra_content"})

LABELS = frozenset({
    "system_fingerprint", "service_tier", "provider", "native_finish_reason", "x_groq", "timings", "prompt_filter_results",
    "content_filter_results", "stop_reason", "matched_stop", "prompt_logprobs", "prompt_token_ids", "token_ids", "audio",
})  # fmt: skip
"""Fields of answers that are read elsewhere, or that say how an answer came about and nothing of what it says."""

REASONING_MARK = "\0reasoning"
"""Key of an `Extra` that tells an encoder of the same dialect how the upstream spelled reasoning: {fields, format}."""
