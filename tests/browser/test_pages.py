"""Web pages against a gateway on the same machine, in a real browser: what they can send, learn and set off.

A relay before the gateway keeps what the browser sent, so that no attack counts as repelled that was never made.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from support.athena_process import Serving, serving
from support.leaking_upstream import FORMS, LeakingUpstream
from support.patience import PATIENCE
from support.recording_relay import Passed, RecordingRelay

from .conftest import REBOUND

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MODEL = FORMS["kimi-content"]
PAGE = "<!doctype html><title>A page</title><body></body>"
ATTACK = (Path(__file__).parent / "attack.js").read_text("utf-8")
READ_STREAM = """async ([url, headers, body]) => {
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  const pieces = [];
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let step = await reader.read(); !step.done; step = await reader.read()) pieces.push(step.value);
  return { status: answer.status, id: answer.headers.get("x-request-id"), text: pieces.join("") };
}"""
NAMES = set(re.findall(r'attempt\(["`]([a-z-]+)["`],', ATTACK))
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.fixture(scope="module")
def upstream() -> Iterator[LeakingUpstream]:
    with LeakingUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def other_site() -> Iterator[RecordingRelay]:
    """A server of pages, with nothing behind it."""
    with RecordingRelay(9, {"/": PAGE}) as running:
        yield running


def settings(upstream: LeakingUpstream, **more: Any) -> dict[str, Any]:
    return {"upstreams": {"leaking": {"base_url": upstream.url}}, "models": [{"match": "*", "use": f"leaking/{MODEL}"}], **more}


@pytest.fixture(scope="module")
def server(upstream: LeakingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    config = settings(upstream)
    with serving(tmp_path_factory.mktemp("attacked"), config=config) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty tab with a profile of its own."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def attack_of(passed: Passed) -> str:
    return parse_qs(urlsplit(passed.target).query).get("attack", [""])[0]


def attacks_made(relay: RecordingRelay, learnt: dict[str, str]) -> dict[str, set[int]]:
    """The statuses that each attack met, once all that were tried have come; beacons come when the browser likes."""
    deadline = time.monotonic() + PATIENCE
    while True:
        made: dict[str, set[int]] = {}
        for passed in tuple(relay.passed):
            made.setdefault(attack_of(passed), set()).add(passed.status)
        if set(learnt) <= set(made) and not any(0 in statuses for statuses in made.values()):
            return made
        assert time.monotonic() < deadline, f"never sent or never answered: {set(learnt) - set(made)}"
        time.sleep(0.05)


def test_a_page_of_another_origin_learns_nothing_and_sets_nothing_off(
    page: Page, server: Serving, upstream: LeakingUpstream, other_site: RecordingRelay
) -> None:
    with RecordingRelay(server.port) as relay:
        page.goto(f"http://127.0.0.1:{other_site.port}/")
        learnt: dict[str, str] = page.evaluate(ATTACK, f"http://127.0.0.1:{relay.port}")
        assert set(learnt) > NAMES
        assert {name: what for name, what in learnt.items() if what != "blocked"} == {}
        made = attacks_made(relay, learnt)
    assert {name: statuses for name, statuses in made.items() if name and statuses != {403}} == {}
    sent = {passed.method for passed in relay.passed}
    assert sent == {"GET", "POST", "OPTIONS"}
    asked_first = {attack_of(passed) for passed in relay.passed if passed.method == "OPTIONS"}
    assert {"json-chat", "key-gemini", "beacon-json"} <= asked_first
    assert upstream.turns == []


def test_a_rebound_name_learns_nothing_and_sets_nothing_off(page: Page, server: Serving, upstream: LeakingUpstream) -> None:
    """To the browser the gateway is the page's own server: everything is sent and every answer can be read."""
    with RecordingRelay(server.port, {"/attack.html": PAGE}) as relay:
        own = f"http://{REBOUND}:{relay.port}"
        page.goto(f"{own}/attack.html")
        learnt: dict[str, str] = page.evaluate(ATTACK, own)
        assert set(learnt) > NAMES
        made = attacks_made(relay, learnt)
    assert {name: statuses for name, statuses in made.items() if name and statuses != {421}} == {}
    told = {name: what for name, what in learnt.items() if what != "blocked"}
    assert len(told) > 20, "the browser does not take the gateway for the page's own server"
    assert {name: what for name, what in told.items() if "allow_hosts" not in what} == {}
    assert all(passed.headers["host"].startswith(REBOUND) for passed in relay.passed)
    assert upstream.turns == []


def test_a_link_on_another_page_is_refused_and_the_address_bar_is_not(
    page: Page, server: Serving, other_site: RecordingRelay
) -> None:
    page.goto(f"http://127.0.0.1:{other_site.port}/")
    page.evaluate("url => { location.href = url }", f"{server.url}/health")
    page.wait_for_url(f"{server.url}/health")
    assert "allow_origins" in page.inner_text("body")
    page.goto(f"{server.url}/health")
    assert '"status":"ok"' in page.inner_text("body")
    assert page.evaluate("() => fetch('/v1/models').then((answer) => answer.status)") == 200


REQUESTS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        {"authorization": "Bearer x", "x-stainless-lang": "js"},
        {"stream": True, "tools": [{"type": "function", "function": {"name": "weather", "parameters": TOOL}}]},
    ),
    "anthropic": (
        "/v1/messages",
        {"x-api-key": "x", "anthropic-version": "2023-06-01", "anthropic-dangerous-direct-browser-access": "true"},
        {"stream": True, "max_tokens": 99, "tools": [{"name": "weather", "input_schema": TOOL}]},
    ),
    "responses": (
        "/v1/responses",
        {"authorization": "Bearer x", "openai-beta": "x"},
        {"stream": True, "input": "Weather?", "tools": [{"type": "function", "name": "weather", "parameters": TOOL}]},
    ),
    "gemini": (
        f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse",
        {"x-goog-api-key": "x", "x-goog-api-client": "google-genai-sdk/1"},
        {
            "contents": [{"role": "user", "parts": [{"text": "Weather?"}]}],
            "tools": [{"functionDeclarations": [{"name": "weather", "parameters": TOOL}]}],
        },
    ),
}


def test_an_allowed_page_can_stream_an_answer(
    page: Page, upstream: LeakingUpstream, other_site: RecordingRelay, tmp_path: Path
) -> None:
    origin = f"http://127.0.0.1:{other_site.port}"
    before = len(upstream.turns)
    with serving(tmp_path, config=settings(upstream, allow_origins=[origin])) as server:
        page.goto(f"{origin}/")
        for name, (path, headers, body) in REQUESTS.items():
            if name in ("chat", "anthropic"):
                body = {**body, "messages": [{"role": "user", "content": "Weather?"}]}
            asked = [server.url + path, {"content-type": "application/json", **headers}, {"model": MODEL, **body}]
            answer = page.evaluate(READ_STREAM, asked if name != "gemini" else [*asked[:2], body])
            assert answer["status"] == 200, answer
            assert answer["id"].startswith("req_")
            assert "weather" in answer["text"]
            assert "tool_call_begin" not in answer["text"]
        assert page.evaluate("url => fetch(url).then((answer) => answer.json())", f"{server.url}/v1/models")["data"]
        page.goto(f"http://localhost:{other_site.port}/")
        refused = "url => fetch(url).then(() => 'read', () => 'blocked')"
        assert page.evaluate(refused, f"{server.url}/v1/models") == "blocked"
    assert len(upstream.turns) == before + 4
