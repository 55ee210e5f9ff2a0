"""Bad input, row by row: the documented error of each, and that nothing that was kept is lost by it.

Each row meets one gateway that holds a conversation of two responses; afterwards that conversation goes on as if nothing had
happened.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2 as httpx
import msgspec
import pytest

from athena.shells.store.opening import FILE
from support.gateway_process import GatewayThread, running_gateway
from support.patience import PATIENCE
from support.remembering_upstream import RememberingUpstream, config
from support.socket_client import CLOSE, TEXT, SocketClient, frame

from .conftest import KEYS, keys

LIMIT = 40_000
"""Bytes of a body, and so of a history."""
GONE = "resp_ath" + "0" * 40


class Place(msgspec.Struct):
    """A gateway with something in its store."""

    gateway: GatewayThread
    client: httpx.Client
    value: dict[str, Any]
    """Its configuration."""
    store: Path
    first: str
    last: str

    def ask(self, who: str = "alice", **body: Any) -> tuple[int, Any]:
        asked = {"model": "chat/model", "input": "x", **body}
        answer = self.client.post("/v1/responses", json=asked, headers={"authorization": f"Bearer {KEYS[who]}"})
        return answer.status_code, answer.json()

    def kept(self, **body: Any) -> str:
        status, answer = self.ask(**body)
        assert status == 200, answer
        return str(answer["id"])

    def socket(self, port: int = 0) -> SocketClient:
        return SocketClient(port or self.gateway.port, "/v1/responses", f"authorization: Bearer {KEYS['alice']}")


@pytest.fixture(scope="module")
def place(upstream: RememberingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("gateway")
    value = config(
        upstream,
        keys=keys(),
        state_dir=str(directory / "state"),
        limits={"body_bytes": LIMIT},
        record=False,
    )
    with (
        running_gateway(value, directory) as gateway,
        httpx.Client(base_url=gateway.url, timeout=PATIENCE, trust_env=False) as client,
    ):
        found = Place(gateway, client, value, directory / "state" / FILE, "", "")
        found.first = found.kept(input="one")
        found.last = found.kept(input="two", previous_response_id=found.first)
        yield found


def _code(answer: tuple[int, Any]) -> tuple[int, Any]:
    return answer[0], answer[1]["error"]["code"]


def _deleted(place: Place) -> tuple[int, Any]:
    name = place.kept(input="gone soon")
    path, key = f"/v1/responses/{name}", {"authorization": f"Bearer {KEYS['alice']}"}
    assert place.client.delete(path, headers=key).status_code == 200
    return _code(place.ask(previous_response_id=name))


def _cycle(place: Place) -> tuple[int, Any]:
    """No client can make one: somebody wrote it into the file."""
    one = place.kept(input="a")
    two = place.kept(input="b", previous_response_id=one)
    key = {"authorization": f"Bearer {KEYS['alice']}"}
    assert place.client.get(f"/v1/responses/{one}", headers=key).status_code == 200, "who reads it has it written"
    with closing(sqlite3.connect(place.store, timeout=PATIENCE)) as file:
        assert file.execute("UPDATE responses SET parent = ? WHERE id = ?", (two, one)).rowcount == 1
        file.commit()
    listed = place.client.get(f"/v1/responses/{two}/input_items?limit=1", headers=key)
    assert listed.status_code == 200, "whoever lists it is not kept waiting for its end"
    return _code(place.ask(previous_response_id=two))


def _too_much(place: Place, fields: dict[str, Any]) -> tuple[int, Any]:
    """Requests that are small enough each, and together are not."""
    answer: tuple[int, Any] = (0, None)
    for _ in range(3):
        answer = place.ask(input="w" * (LIMIT // 2), **fields)
        if answer[0] == 200 and "conversation" not in fields:
            fields = {"previous_response_id": answer[1]["id"]}
    return _code(answer)


def _conversation(place: Place, items: int = 0) -> dict[str, Any]:
    key = {"authorization": f"Bearer {KEYS['alice']}"}
    name = place.client.post("/v1/conversations", json={}, headers=key).json()["id"]
    for _ in range(items):
        item = {"role": "user", "content": "w" * (LIMIT // 10)}
        answer = place.client.post(f"/v1/conversations/{name}/items", json={"items": [item]}, headers=key)
        assert answer.status_code == 200
    return {"conversation": name}


def _broken_frame(place: Place) -> int:
    with place.socket() as client:
        client.send(frame(TEXT, b'{"type":"\xff"}'))
        code = client.closed()
        client.send(frame(CLOSE, b"\x03\xe8"))
        return code


def _half_open(place: Place) -> int:
    """A client that is silent, also to pings, is cut off; here by a second gateway of the store, which waits less long."""
    directory = place.store.parent.parent / "second"
    directory.mkdir()
    impatient = {**place.value, "websocket": {"ping_s": 0.05, "silence_s": 0.5}}
    with running_gateway(impatient, directory) as gateway, place.socket(gateway.port) as client:
        return client.closed()


def _unknown_over_socket(place: Place) -> tuple[int, Any]:
    with place.socket() as client:
        body = {"type": "response.create", "model": "chat/model", "input": "x", "previous_response_id": GONE}
        client.send(frame(TEXT, json.dumps(body).encode()))
        event = client.event()
        return event["status"], event["error"]["code"]


def _two_continuations(place: Place) -> tuple[int, ...]:
    ways = [place.kept(input="way", previous_response_id=place.last) for _ in range(2)]
    return tuple(place.ask(input="on", previous_response_id=way)[0] for way in ways)


ROWS: dict[str, tuple[Callable[[Place], Any], Any]] = {
    "unknown id": (lambda place: _code(place.ask(previous_response_id=GONE)), (400, "previous_response_not_found")),
    "an id of another server": (
        lambda place: _code(place.ask(previous_response_id="resp_68af4030baa4")),
        (400, "previous_response_not_found"),
    ),
    "foreign id": (
        lambda place: _code(place.ask("mallory", previous_response_id=place.last)),
        (400, "previous_response_not_found"),
    ),
    "deleted id": (_deleted, (400, "previous_response_not_found")),
    "cycle": (_cycle, (400, "previous_response_not_found")),
    "oversized history of responses": (lambda place: _too_much(place, {}), (413, "request_too_large")),
    "oversized history of a conversation": (lambda place: _too_much(place, _conversation(place)), (413, "request_too_large")),
    "oversized conversation that was written item by item": (
        lambda place: _code(place.ask(**_conversation(place, 40))),
        (413, "request_too_large"),
    ),
    "broken frame": (_broken_frame, 1007),
    "half-open socket": (_half_open, 0),
    "unknown id over a socket": (_unknown_over_socket, (400, "previous_response_not_found")),
    "two continuations of one response": (_two_continuations, (200, 200)),
    "an unknown truncation": (lambda place: place.ask(truncation="foo")[0], 400),
    "a truncation that is no text": (lambda place: place.ask(truncation=5)[0], 400),
    "too many pairs of metadata": (lambda place: place.ask(metadata={str(n): "x" for n in range(17)})[0], 400),
    "a long key of metadata": (lambda place: place.ask(metadata={"k" * 65: "x"})[0], 400),
    "a long value of metadata": (lambda place: place.ask(metadata={"k": "x" * 513})[0], 400),
    "metadata that is no text": (lambda place: place.ask(metadata={"k": 5})[0], 400),
    "as much metadata as there may be": (
        lambda place: place.ask(truncation="disabled", metadata={f"{n:064}": "x" * 512 for n in range(16)})[0],
        200,
    ),
    "an unknown include of a list": (
        lambda place: (
            place.client.get(
                f"/v1/responses/{place.last}/input_items?include[]=nothing",
                headers={"authorization": f"Bearer {KEYS['alice']}"},
            ).status_code
        ),
        400,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_documented_error_and_nothing_lost(place: Place, name: str) -> None:
    make, expected = ROWS[name]
    assert make(place) == expected
    status, answer = place.ask(input="three", previous_response_id=place.last)
    assert status == 200, answer
    assert answer["output"][0]["content"][0]["text"] == "heard one | two | three; spoke 2"
