"""What is remembered of stored items changes nothing: the upstream gets the same requests with and without it."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from support.gateway_process import read_number, running_gateway
from support.patience import PATIENCE
from support.remembering_upstream import UPSTREAMS, RememberingUpstream, config

from .conftest import TOOL

WORDS = "words of a turn that is long enough to be worth remembering " * 8


def _talk(url: str, name: str) -> None:
    """A loop with a tool by ids, forked, continued from its middle, compacted, and the same in a conversation; each request
    repeats what was said before it."""
    with httpx.Client(base_url=f"{url}/v1", timeout=PATIENCE, trust_env=False) as client:
        numbers = count()

        def ask(given: Any, **fields: Any) -> Any:
            # Ids of calls that an upstream left without one are made from the request's own.
            named = {"x-request-id": f"request-{next(numbers)}"}
            body = {"model": f"{name}/m", "input": given, "tools": [TOOL], **fields}
            answer = client.post("/responses", json=body, headers=named)
            assert answer.status_code == 200, answer.text
            return answer.json()

        conversation = client.post("/conversations", json={}).json()["id"]
        for by in ("previous_response_id", "conversation"):
            said: list[Any] = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": WORDS}]
            last = ask(said, **({by: conversation} if by == "conversation" else {}))
            made = []
            for turn in ("one", "use the tool two", "three", WORDS, WORDS):
                where = {by: conversation if by == "conversation" else last["id"]}
                last = ask(turn, **where)
                made.append(last["id"])
                where = {by: conversation if by == "conversation" else last["id"]}
                calls = [item for item in last["output"] if item["type"] == "function_call"]
                if calls:
                    last = ask(
                        [{"type": "function_call_output", "call_id": call["call_id"], "output": WORDS} for call in calls],
                        **where,
                    )
            if by == "previous_response_id":
                for way in ("another way", "another way", "and another"):
                    ask(way, **{by: last["id"]})
                aside = ask("from the middle", **{by: made[2]})
                ask("and on from there", **{by: aside["id"]})
                short = ask([{"type": "compaction_trigger"}], **{by: last["id"]})
                for turn in ("with less", "with less"):
                    short = ask(turn, **{by: short["id"]})
                ask([{"type": "item_reference", "id": last["output"][-1]["id"]}, {"role": "user", "content": "and on"}])


@pytest.mark.parametrize("name", UPSTREAMS)
def test_the_upstream_is_sent_the_same(name: str, tmp_path: Path) -> None:
    sent: list[list[str]] = []
    for kept in (0, 1 << 24):
        (tmp_path / str(kept)).mkdir()
        with (
            RememberingUpstream() as upstream,
            running_gateway(config(upstream, limits={"history_cache_bytes": kept}), tmp_path / str(kept)) as gateway,
        ):
            _talk(gateway.url, name)
            sent.append([json.dumps(body) for body in upstream.answered])
            assert (read_number(gateway.port, 'athena_request_parts_total{seen="before"}') > 0) is bool(kept)
    assert len(sent[0]) == 23
    assert sent[0] == sent[1]
