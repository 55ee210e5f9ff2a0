"""What goes upstream for turn n + 1 begins with what went for turn n, wherever the client's own history did.

Prompt caches of every provider know a conversation by its beginning: text that moves, ids that change or tools that come in
another order make each turn cost as much as the first.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from athena.dialects import dialect_names, get_dialect
from athena.dialects.base import EncodeTarget
from athena.exchange import Exchange, Route
from athena.model.request import Request
from athena.prepare import prepare
from athena.profiles import default_profiles
from athena.prompted.options import PromptedOptions
from support.loopback import decode_http
from support.sessions import body, ends_well, prompt_of, session, shared

_RECORDED = Path(os.environ.get("ATHENA_CAPTURES") or Path(__file__).parent.parent / "recordings" / "requests")
"""`ATHENA_CAPTURES`: a folder with other recordings, `<client>-turn1.json` and `<client>-turn2.json`."""
CLIENTS = sorted(path.name.removesuffix("-turn1.json") for path in _RECORDED.glob("*-turn1.json"))
UPSTREAMS = (
    ("anthropic_messages", "anthropic", "claude-sonnet-4-5"),
    ("anthropic_messages", "anthropic", "claude-opus-5"),
    ("anthropic_messages", "anthropic_compatible", "m"),
    ("openai_chat", "openai", "gpt-4.1"),
    ("openai_chat", "generic", "m"),
    ("openai_chat", "vllm", "Qwen/Qwen3-32B"),
    ("openai_chat", "vllm", "Qwen/Qwen3.5-122B"),
    ("openai_chat", "vllm", "deepseek-ai/DeepSeek-V3.2"),
    ("openai_chat", "moonshot", "kimi-k2-thinking"),
    ("openai_chat", "moonshot", "kimi-k3"),
    ("openai_chat", "deepseek", "deepseek-v4"),
    ("openai_chat", "mistral", "mistral-large-latest"),
    ("openai_chat", "openrouter", "anthropic/claude-sonnet-4.5"),
    ("openai_chat", "ollama", "llama3"),
    ("openai_responses", "openai_responses", "gpt-5.1"),
    ("openai_responses", "responses_compatible", "m"),
    ("gemini", "gemini", "gemini-3-pro"),
    ("gemini", "gemini", "gemini-2.5-pro"),
)
_IDS = [f"{profile}-{model}" for _, profile, model in UPSTREAMS]


def sent(request: Request, dialect: str, profile: str, model: str, *, prompted: bool = False) -> str:
    """The prompt that goes upstream."""
    target = EncodeTarget(model, default_profiles().get(profile, model))
    home, abroad = get_dialect(request.dialect), get_dialect(dialect)
    options = PromptedOptions() if prompted else None
    prepared = prepare(request, target, home, abroad, prompted=options)
    return prompt_of(json.loads(json.dumps(abroad.encode_request(prepared.request, target).body)))


def _recorded(client: str, turn: int) -> tuple[dict[str, Any], Request]:
    capture = json.loads((_RECORDED / f"{client}-turn{turn}.json").read_text(encoding="utf-8"))
    return capture["body"], decode_http(capture["path"], capture["body"])


@pytest.mark.parametrize("client", CLIENTS)
def test_recorded_agents(client: str) -> None:
    (first_body, first), (second_body, second) = _recorded(client, 1), _recorded(client, 2)
    own = shared(prompt_of(first_body), prompt_of(second_body))
    for dialect, profile, model in UPSTREAMS:
        for prompted in (False, True):
            before, after = (sent(request, dialect, profile, model, prompted=prompted) for request in (first, second))
            assert shared(before, after) >= min(own, 0.999), (profile, model, prompted)


_CLOSING = 8
"""Brackets that close the last message, the conversation and the body."""


@pytest.mark.parametrize("client", CLIENTS)
def test_bytes_of_recorded_agents(client: str) -> None:
    """The conversation is the last field of a translated body, so that this holds for the bytes on the wire, too."""
    (_, first), (_, second) = _recorded(client, 1), _recorded(client, 2)
    tried = 0
    for dialect, profile, model in UPSTREAMS:
        route = Route(dialect=dialect, model=model, profile=default_profiles().get(profile, model))
        before, after = (Exchange(request, route).call.body for request in (first, second))
        marked = any(mark in before for mark in (b'"prompt_cache_breakpoint"', b'"cache_control"'))
        if first.dialect == dialect or marked or _settings(before) != _settings(after):
            # The client's own order of fields, its marks that move on with every turn, or a model that may no longer think
            # because nobody kept its thoughts.
            continue
        tried += 1
        assert after.startswith(before[:-_CLOSING]), (profile, model)
    assert tried >= 5


def _settings(body: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(body)
    return {name: value[name] for name in value if name not in ("messages", "contents", "input")}


def test_the_line_for_billing_changes_and_stays_at_home() -> None:
    """Claude Code begins its instructions with a line that is another one for every request."""
    (_, first), (_, second) = _recorded("claude-code", 1), _recorded("claude-code", 2)
    home = [sent(request, "anthropic_messages", "anthropic", "claude-sonnet-4-5") for request in (first, second)]
    assert all("x-anthropic-billing-header" in prompt for prompt in home)
    abroad = [sent(request, "openai_chat", "generic", "m") for request in (first, second)]
    assert not any("x-anthropic-billing-header" in prompt for prompt in abroad)
    assert shared(*abroad) >= 0.999


@pytest.mark.parametrize(("dialect", "profile", "model"), UPSTREAMS, ids=_IDS)
@pytest.mark.parametrize("client", dialect_names())
def test_sessions_that_grow(client: str, dialect: str, profile: str, model: str) -> None:
    for seed in range(4):
        for prompted in (False, True):
            _grow(client, dialect, profile, model, seed, prompted=prompted)


def _grow(client: str, dialect: str, profile: str, model: str, seed: int, *, prompted: bool) -> None:
    steps = session(seed)
    before = ""
    for length in range(1, len(steps) + 1):
        if not ends_well(steps[:length]):
            continue
        request = get_dialect(client).decode_request(body(client, steps[:length]), model="m", stream=False)
        after = sent(request, dialect, profile, model, prompted=prompted)
        assert after.startswith(before), (seed, length, prompted, before[int(shared(before, after) * len(before)) :][:300])
        before = after
