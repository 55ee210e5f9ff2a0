"""A conversation that is too long: however the upstream says it, clients read what makes their agents compact the history."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from athena.dialects import dialect_names
from athena.exchange import Exchange, Options, Route
from athena.profiles import default_profiles
from support.loopback import decode_http

# What servers answer, by who they are.
WORDINGS = {
    "anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "openai": "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
    "responses": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "gemini": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "bedrock": "Input is too long for requested model.",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "groq": "Please reduce the length of the messages or completion.",
    "mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "kimi": "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
    "copilot": "prompt token count of 140000 exceeds the limit of 128000",
    "together": "The input (300 tokens) is longer than the model's context length (200 tokens).",
    "dashscope": "Range of input length should be [1, 30000]",
    "minimax": "invalid params, context window exceeds limit",
    "vllm": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "lm studio": "The number of tokens to keep from the initial prompt is greater than the context length",
    "ollama": "prompt too long; exceeded max context length by 4 tokens",
    "sglang": "Requested token count exceeds the model's maximum context length of 131072 tokens",
}
OTHER_FAULTS = (
    "max_tokens: must be at least 1",
    "messages.0: text content blocks must be non-empty",
    "tools.0.name: String should have at most 64 characters",
    "Invalid value for 'temperature'",
    "image exceeds 5 MB maximum",
)

# What agents look for (opencode, pi and others share the longer list).
SHARED = re.compile(
    r"prompt is too long|input is too long for requested model|exceeds the context window"
    r"|input token count.*exceeds the maximum|maximum prompt length is \d+"
    r"|reduce the length of the messages|maximum context length is \d+ tokens"
    r"|exceeds the limit of \d+|exceeds the available context size|greater than the context length|context window exceeds limit"
    r"|exceeded model token limit|context[_ ]length[_ ]exceeded",
    re.IGNORECASE,
)
CLAUDE_CODE = re.compile(r"prompt is too long|maximum context length is", re.IGNORECASE)
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic_messages": ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}),
    "openai_chat": ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}),
    "openai_responses": ("/v1/responses", {"model": "m", "input": "Hi"}),
    "gemini": ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
}
PROFILES = {
    "anthropic_messages": "anthropic_compatible",
    "openai_chat": "generic",
    "openai_responses": "responses_compatible",
    "gemini": "gemini_compatible",
}


def answered(client: str, upstream: str, message: str) -> dict[str, object]:
    """What the client gets when the upstream refuses with that message."""
    request = decode_http(*REQUESTS[client])
    route = Route(dialect=upstream, model="m", profile=default_profiles().get(PROFILES[upstream], "m"))
    exchange = Exchange(request, route, Options())
    exchange.upstream_head(400, {"content-type": "application/json"})
    bodies = {
        "anthropic_messages": {"type": "error", "error": {"type": "invalid_request_error", "message": message}},
        "gemini": {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": message}},
    }
    body = bodies.get(upstream, {"error": {"type": "invalid_request_error", "message": message, "code": None}})
    output = exchange.upstream_data(json.dumps(body).encode(), 0.0).output
    step = exchange.upstream_end(None)
    error: dict[str, object] = json.loads(output + step.output)["error"]
    return error


@pytest.mark.parametrize("server", WORDINGS)
@pytest.mark.parametrize("upstream", dialect_names())
@pytest.mark.parametrize("client", dialect_names())
def test_agents_compact(client: str, upstream: str, server: str) -> None:
    error = answered(client, upstream, WORDINGS[server])
    message = str(error["message"])
    assert message.endswith(WORDINGS[server]), "the upstream's own words stay, numbers and all"
    assert SHARED.search(f"{message} {error.get('code')}")
    if client == "anthropic_messages":
        assert CLAUDE_CODE.search(message)
    elif client in ("openai_chat", "openai_responses"):
        assert error["code"] == "context_length_exceeded"
    else:
        assert SHARED.search(message)


@pytest.mark.parametrize("message", OTHER_FAULTS)
@pytest.mark.parametrize("client", dialect_names())
def test_other_faults_are_not_taken_for_it(client: str, message: str) -> None:
    error = answered(client, "openai_chat", message)
    assert error["message"] == message
    assert error.get("code") != "context_length_exceeded"


def test_in_a_stream_that_has_begun() -> None:
    """Codex reads the code of the failed response."""
    request = decode_http("/v1/responses", {"model": "m", "input": "Hi", "stream": True})
    route = Route(dialect="openai_chat", model="m", profile=default_profiles().get("generic", "m"))
    exchange = Exchange(request, route, Options())
    exchange.upstream_head(200, {"content-type": "text/event-stream"})
    shown = exchange.upstream_data(b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n', 0.0).output
    failed = {"error": {"message": WORDINGS["kimi"]}}
    shown += exchange.upstream_data(b"data: " + json.dumps(failed).encode() + b"\n\n", 0.0).output
    shown += exchange.upstream_end(None).output
    last = json.loads(shown.decode().split("event: response.failed\ndata: ")[1].split("\n")[0])
    assert last["response"]["error"]["code"] == "context_length_exceeded"
