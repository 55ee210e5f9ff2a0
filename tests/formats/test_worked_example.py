"""The worked example of the requirements: Kimi tokens in reasoning, through the exchange, to all four client dialects.

Upstream sends the tokens cut in pieces inside `reasoning`; every official SDK must hold thinking and one native call, and no
client ever sees a token. The next request goes upstream with Kimi's own ids and the reasoning cleaned of tokens.
"""

from __future__ import annotations

import json
import random

import pytest

from athena.dialects import dialect_names, get_dialect
from athena.exchange import Exchange, Options, Route
from athena.formats.machine.stage import FormatOptions
from athena.profiles import default_profiles
from support.canonical import FINISH_WORDS, Piece
from support.loopback import ENVELOPE, Loopback, Script
from support.sdks import ask

REASONING = (
    "Need weather. ",
    " <|tool_calls_section_begin|>",
    " <|tool_call_begin|>",
    " functions",
    ".get_weather",
    ":",
    "3",
    " <|tool_call_argument_begin|>",
    ' {"',
    "city",
    '": "Tokyo"}',
    " <|tool_call_end|>",
    " <|tool_calls_section_end|>",
)
PROFILE = default_profiles().get("openrouter", "moonshotai/kimi-k2-0905")
FORMAT = FormatOptions("kimi_k2")


def upstream(pieces: tuple[str, ...], fields: tuple[str, ...] = ("reasoning",)) -> bytes:
    """The upstream's stream; identical text in every field given."""
    head = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "moonshotai/kimi-k2-0905"}

    def record(**rest: object) -> str:
        return f"data: {json.dumps({**head, **rest})}\n\n"

    body = record(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
    for piece in pieces:
        body += record(choices=[{"index": 0, "delta": dict.fromkeys(fields, piece), "finish_reason": None}])
    body += record(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    body += record(choices=[], usage={"prompt_tokens": 43, "completion_tokens": 12, "total_tokens": 55})
    return (body + "data: [DONE]\n\n").encode()


def cuts() -> list[tuple[str, ...]]:
    whole = "".join(REASONING)
    dice = random.Random(3)
    places = sorted(dice.sample(range(1, len(whole)), 9))
    ends = [*places, len(whole)]
    return [REASONING, (whole,), tuple(whole), tuple(whole[a:b] for a, b in zip([0, *places], ends, strict=True))]


@pytest.mark.parametrize("fields", [("reasoning",), ("reasoning_content",), ("reasoning", "reasoning_content")])
@pytest.mark.parametrize("cut", range(4))
@pytest.mark.parametrize("client", dialect_names())
def test_every_client_holds_a_native_call(client: str, cut: int, fields: tuple[str, ...], loopback: Loopback) -> None:
    model = f"worked-{client}-{cut}-{'-'.join(fields)}"
    body = upstream(cuts()[cut], fields)
    loopback.scripts[model] = Script(dialect="openai_chat", body=body, profile=PROFILE, route={"format": FORMAT}, exchanges=[])
    seen = ask(client, loopback.url, model, stream=True)
    assert seen.calls() == [Piece("call", "get_weather", {"city": "Tokyo"})]
    assert seen.joined("thinking").rstrip() == "Need weather."
    assert seen.joined("text") == ""
    assert seen.finish in FINISH_WORDS[client]["tool"]
    assert seen.usage is not None
    assert (seen.usage["input_total"], seen.usage["output_total"]) == (43, 12)


@pytest.mark.parametrize("client", dialect_names())
def test_no_client_sees_a_token(client: str) -> None:
    request = get_dialect(client).decode_request(
        json.loads(_BODIES[client]), model="m" if client == "gemini" else None, stream=True
    )
    for cut in cuts():
        route = Route(dialect="openai_chat", model="k", profile=PROFILE, format=FORMAT)
        exchange = Exchange(request, route, Options(envelope=ENVELOPE))
        exchange.upstream_head(200, {"content-type": "text/event-stream"})
        data = upstream(cut, ("reasoning", "reasoning_content"))
        output = b"".join(exchange.upstream_data(data[start : start + 11]).output for start in range(0, len(data), 11))
        output += exchange.upstream_end().output
        assert exchange.outcome == "ok"
        assert b"<|" not in output
        assert b"\\u003c|" not in output


def test_the_next_request_speaks_kimis_own_ids() -> None:
    history = {
        "model": "m",
        "max_tokens": 100,
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Need weather. ", "signature": ""},
                    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Tokyo"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain"}]},
        ],
        "tools": [{"name": "get_weather", "input_schema": {"type": "object"}}],
    }
    request = get_dialect("anthropic_messages").decode_request(history)
    profile = default_profiles().get("generic", "moonshotai/kimi-k2-0905")
    route = Route(dialect="openai_chat", model="moonshotai/kimi-k2-0905", profile=profile)
    body = json.loads(Exchange(request, route).call.body)
    assistant, result = body["messages"][1:3]
    assert assistant["tool_calls"][0]["id"] == result["tool_call_id"] == "functions.get_weather:0"
    assert assistant["reasoning_content"] == "Need weather. "


_BODIES = {
    "anthropic_messages": '{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}],'
    '"tools":[{"name":"get_weather","input_schema":{"type":"object"}}]}',
    "openai_chat": '{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}],'
    '"tools":[{"type":"function","function":{"name":"get_weather"}}]}',
    "openai_responses": '{"model":"m","stream":true,"input":"Hi","tools":[{"type":"function","name":"get_weather",'
    '"parameters":{"type":"object"},"strict":false}]}',
    "gemini": '{"contents":[{"parts":[{"text":"Hi"}]}],"tools":[{"functionDeclarations":[{"name":"get_weather"}]}]}',
}
