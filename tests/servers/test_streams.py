"""What the server's model writes, read by us in several chunkings and by the server itself, whole and streamed.

The server hands over the raw text beside its own parse (`verbose`); the same seed makes it write the same stream. Where the
two readings differ, the template decides; `judged.toml` keeps what was decided.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from athena.parsing import parse_pieces
from servers.conftest import Scores
from servers.llama_server import CHAT_TOOLS, TEMPLATES, USER, Family, LlamaServer, Refused, opens_thought
from servers.upstream_tap import chat_parts

pytestmark = pytest.mark.servers

SEEDS = (1, 2, 3)


@pytest.mark.parametrize("name", TEMPLATES)
def test_streams_read_as_the_server_reads_them(
    name: str, family: Callable[[str], Family], judged: list[dict[str, Any]], scores: Scores
) -> None:
    reasons = {
        stream: row["reason"]
        for row in judged
        if row["test"] == "streams" and row["template"] == name
        for stream in row["streams"]
    }
    wrong = []
    with family(name).served() as server:
        for choice in ("auto", "required"):
            for seed in SEEDS:
                outcome, remark = compared(server, name, choice, seed)
                if outcome == "DIFFERENT":
                    reason = reasons.pop(f"{choice} {seed}", None)
                    if reason is None:
                        wrong.append((choice, seed))
                    else:
                        outcome, remark = "judged", f"{remark}: {reason}"
                scores.count("streams", outcome, remark and f"{name}, {choice}, seed {seed}: {remark}")
    assert not wrong
    assert not reasons, "judged, and not different any more"


def compared(server: LlamaServer, name: str, choice: str, seed: int) -> tuple[str, str]:
    """What came of one stream, and what there is to say about it."""
    body = {"messages": [USER], "tools": CHAT_TOOLS, "tool_choice": choice, "seed": seed, "verbose": True}
    try:
        whole = server.post("/v1/chat/completions", body)
        calls, _, _ = chat_parts(server.stream("/v1/chat/completions", body))
    except Refused as error:
        return "refused by the server", str(error)[:200]
    said = whole["__verbose"]
    raw, prompt = said["content"], said["prompt"]
    if said["stop_type"] == "limit":
        return "cut at the limit", ""
    if (other := chat_parts([whole])[0]) != calls:
        return "DIFFERENT", f"the server's whole answer {other!r} and its stream {calls!r}, from {raw!r}"
    for pieces in ([raw], list(raw), [raw[at : at + 4] for at in range(0, len(raw), 4)]):
        parsed = parse_pieces(pieces, model=name, tools=CHAT_TOOLS, starts_in_thinking=opens_thought(prompt))
        ours = [(call.name, json.loads(call.arguments)) for call in parsed.calls]
        if ours != calls:
            return "DIFFERENT", f"ours {ours!r}, the server's {calls!r}, from {raw!r} ({parsed.format}; {prompt[-40:]!r})"
    return ("equal calls" if calls else "no call in either"), ""
