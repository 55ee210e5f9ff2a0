"""Stored responses in the inspector: chains and conversations with the exchanges that made them, for the operator alone."""

from __future__ import annotations

from pathlib import Path

import httpx2 as httpx

from athena.shells.recorder.token import inspector_token
from athena.shells.store.queries import ResponseFacts
from support.gateway_process import running_gateway
from support.patience import PATIENCE
from support.remembering_upstream import RememberingUpstream, config

from .conftest import KEYS, keys


def test_the_operator_sees_what_continues_what(upstream: RememberingUpstream, tmp_path: Path) -> None:
    settings = config(upstream, keys=keys()) | {"record": {"mode": "memory"}, "state_dir": str(tmp_path / "state")}
    with (
        running_gateway(settings, tmp_path) as gateway,
        httpx.Client(base_url=gateway.url, timeout=PATIENCE, trust_env=False) as client,
    ):

        def create(**body: object) -> dict[str, str]:
            headers = {"authorization": f"Bearer {KEYS['alice']}"}
            answer = client.post("/v1/responses", json={"model": "chat/model", **body}, headers=headers)
            assert answer.status_code == 200, answer.text
            made: dict[str, str] = answer.json()
            return made

        def look(path: str, shown: str) -> httpx.Response:
            return client.get(f"/inspect/api{path}", headers={"authorization": f"Bearer {shown}"})

        token = inspector_token(tmp_path / "state")
        assert look("/conversations", token).json() == {"talks": [], "keeps": True}
        first = create(input="one")
        second = create(input="two", previous_response_id=first["id"])
        other = create(input="alone")
        (alone, chain) = look("/conversations", token).json()["talks"]
        assert alone["responses"] == [other["id"]]
        assert chain["responses"] == [first["id"], second["id"]]
        assert (chain["owner"], chain["kind"], chain["status"]) == ("alice", "chain", "completed")

        told = look(f"/conversations/{second['id']}", token).json()
        assert told["is_whole"] is True
        assert [each["id"] for each in told["told"]] == chain["responses"]
        assert "two" in str(told["told"][1]["input"])
        assert told["told"][1]["output"][0]["type"] == "message"
        assert told["told"][1]["parent"] == first["id"]
        rows = look("/exchanges", token).json()["rows"]
        made = {row["response"]: row["id"] for row in rows if row.get("response")}
        assert [each["exchange"] for each in told["told"]] == [made[first["id"]], made[second["id"]]]

        assert look("/conversations", KEYS["alice"]).status_code == 403, "a key does not open what others made"
        assert look("/conversations", "wrong").status_code == 401
        assert look("/conversations/resp_unknown", token).status_code == 404


def test_responses_are_grouped_by_conversation_and_by_what_they_continue() -> None:
    from athena.shells.gateway.inspect_stored import talks_of

    facts = [
        ResponseFacts("r1", "a", 1.0, None, None, "completed"),
        ResponseFacts("r2", "a", 2.0, "r1", None, "completed"),
        ResponseFacts("r3", "a", 3.0, "r1", None, "failed"),
        ResponseFacts("r4", "a", 4.0, "gone", None, "completed"),
        ResponseFacts("c1", "a", 5.0, None, "conv_1", "completed"),
        ResponseFacts("c2", "a", 6.0, None, "conv_1", "in_progress"),
    ]
    found = [(talk.kind, talk.id, talk.responses, talk.status) for talk in talks_of(facts)]
    assert found == [
        ("conversation", "conv_1", ["c1", "c2"], "in_progress"),
        ("chain", "r4", ["r4"], "completed"),
        ("chain", "r1", ["r1", "r2", "r3"], "failed"),
    ]
