"""The inspector of a real gateway in a real browser: a leaked call from the request to the case, and who is refused."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from athena.shells.config import hash_key
from support.athena_process import Serving, athena, serving
from support.held_upstream import HeldUpstream
from support.leaking_upstream import FORMS, LeakingUpstream
from support.patience import PATIENCE
from support.recording_relay import RecordingRelay

from .conftest import REBOUND

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MODEL = FORMS["kimi-content"]
FRAMED = """url => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.onload = () => done(frame.contentDocument === null ? "hidden" : "shown");
  frame.src = url;
  document.body.append(frame);
})"""
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    home = tmp_path_factory.mktemp("inspected")
    with LeakingUpstream() as upstream:
        config = {
            "upstreams": {"leaking": {"base_url": upstream.url}},
            "models": [{"match": "*", "use": f"leaking/{MODEL}"}],
            "state_dir": str(home / "state"),
        }
        with serving(home, config=config) as running:
            yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    yield page
    context.close()


def token_of(server: Serving) -> str:
    found = re.search(r"inspector: (\S+)/inspect\?token=(\S+)", server.banner)
    assert found is not None, server.banner
    assert found.group(1) == server.url
    return found.group(2)


def ask(server: Serving, request_id: str, expected: bytes = b"tool_use") -> None:
    """A request to a model that writes its call as text."""
    body = {
        "model": "claude-sonnet-5",
        "max_tokens": 99,
        "stream": True,
        "messages": [{"role": "user", "content": "Weather in Paris?"}],
        "tools": [{"name": "weather", "input_schema": TOOL}],
    }
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-request-id": request_id}
    request = urllib.request.Request(f"{server.url}/v1/messages", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert expected in answer.read()


def test_a_leaked_call_is_seen_replayed_exported_and_shared(page: Page, server: Serving, tmp_path: Path) -> None:
    token = token_of(server)
    page.goto(f"{server.url}/inspect?token={token}")
    page.wait_for_selector(".empty.start:has-text('Nothing has come through yet')")
    page.wait_for_selector(f".command:has-text('{MODEL}')")
    ask(server, "req_leak")
    page.click('.row[data-id="req_leak"]')
    page.wait_for_selector(".step .ev .mark-line")
    page.click(".chip:has-text('calls')")
    assert "call weather" in page.inner_text(".lane.ev .box.call >> nth=0")
    page.click("[data-tab=calls]")
    assert "kimi_k2" in page.inner_text(".call-card header")
    page.click("[data-tab=replay]")
    page.click(".replay-form button[type=submit]")
    page.wait_for_selector(".replay-result .banner.good")
    page.select_option("select[name=format]", "off")
    page.click(".replay-form button[type=submit]")
    page.wait_for_selector(".differences .box")
    assert "no call" in page.inner_text(".replay-result .sides")
    with page.expect_download() as saved:
        page.click("button:has-text('Export')")
    exported = tmp_path / "leak.athena"
    saved.value.save_as(exported)
    assert athena(tmp_path, "replay", str(exported)).code == 0
    with page.expect_download() as saved:
        page.click("header button:has-text('Make a case')")
    assert "weather" in saved.value.path().read_text("utf-8")
    page.click("[data-tab=requests]")
    page.wait_for_selector(".sides .json")
    page.goto(f"{server.url}/inspect#/health")
    page.wait_for_selector(".health-card:has-text('leaking')")

    done = athena(
        server.home, "record", "export", "req_leak", "--html", "-o", "leak.html", "--config", "athena.yml", "--url", server.url
    )
    assert done.code == 0, done.err
    shared = server.home / "leak.html"
    assert "Weather in Paris?" not in shared.read_text("utf-8")
    page.goto(shared.as_uri())
    page.wait_for_selector(".step .ev .mark-line")


def test_from_a_call_that_leaked_to_a_case_that_is_green(page: Page, tmp_path: Path) -> None:
    """A person's path: the configuration looks for no format, so a call reaches the client as prose. The page shows the bytes
    and a replay that finds the call; the case made of it is red with this configuration and green with the mended one."""
    with LeakingUpstream() as upstream:
        rule = {"match": "*", "use": f"leaking/{MODEL}", "format": "standard"}
        config = {
            "upstreams": {"leaking": {"base_url": upstream.url}},
            "models": [rule],
            "state_dir": str(tmp_path / "state"),
        }
        with serving(tmp_path, config=config) as server:
            ask(server, "req_prose", b"|tool_c")
            page.goto(f"{server.url}/inspect?token={token_of(server)}#/x/req_prose")
            page.wait_for_selector(".step .up .box")
            assert page.locator(".step .ev .box.call").count() == 0
            page.click("[data-tab=replay]")
            page.select_option("select[name=format]", "kimi_k2")
            page.click(".replay-form button[type=submit]")
            page.wait_for_selector(".differences .box.call")
            with page.expect_download() as saved:
                page.click("text=Make a case of this run")
            saved.value.save_as(tmp_path / "leak.toml")
        red = athena(tmp_path, "replay", "leak.toml", "--route", "--config", "athena.yml")
        assert (red.code, red.err) == (1, ""), red.out
        del rule["format"]
        (tmp_path / "athena.yml").write_text(json.dumps(config))
        green = athena(tmp_path, "replay", "leak.toml", "--route", "--config", "athena.yml")
        assert (green.code, green.err) == (0, ""), green.out


def test_only_the_token_and_the_own_page_enter(page: Page, server: Serving) -> None:
    token = token_of(server)

    def status(path: str, **headers: str) -> int:
        request = urllib.request.Request(server.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    right = {"Authorization": f"Bearer {token}"}
    own = server.url
    expected = {
        ("/inspect", ()): 401,
        ("/inspect?token=wrong", ()): 401,
        (f"/inspect?token={token}", ()): 200,
        ("/inspect/api/exchanges", ()): 401,
        ("/inspect/api/exchanges", tuple(right.items())): 200,
        ("/inspect/api/exchanges", (*right.items(), ("Origin", own))): 200,
        ("/inspect/api/exchanges", (*right.items(), ("Origin", "http://127.0.0.1:1"))): 403,
        ("/inspect/api/exchanges", (*right.items(), ("Origin", "null"))): 403,
        ("/inspect/api/exchanges", (*right.items(), ("Sec-Fetch-Site", "same-site"))): 403,
        ("/inspect/api/exchanges", (*right.items(), ("Host", "attacker.example"))): 421,
        (f"/inspect?token={token}", (("Host", "attacker.example"),)): 421,
        (f"/inspect?token={token}", (("Sec-Fetch-Site", "cross-site"),)): 403,
        ("/inspect/page/main.js", ()): 200,
        ("/inspect/page/../files.py", ()): 404,
        ("/inspect/page/%2e%2e/files.py", ()): 404,
        ("/inspect/other", ()): 404,
    }
    found = {(path, headers): status(path, **dict(headers)) for path, headers in expected}
    assert found == expected

    # The same in the browser: a page of another port, and one whose name was rebound to this machine.
    learn = "url => fetch(url).then((answer) => answer.text(), () => 'blocked')"
    with RecordingRelay(server.port, {"/": "<!doctype html><title>A page</title>"}) as relay:
        page.goto(f"http://127.0.0.1:{relay.port}/")
        assert page.evaluate(learn, f"{server.url}/inspect/api/exchanges?token={token}") == "blocked"
        page.goto(f"http://{REBOUND}:{relay.port}/")
        told = page.evaluate(learn, f"/inspect/api/exchanges?token={token}")
        assert "allow_hosts" in told
        assert page.evaluate(FRAMED, f"{server.url}/inspect?token={token}") == "hidden"


def test_a_gateway_key_opens_it_and_the_lanes_of_a_request_in_flight_grow(page: Page, tmp_path: Path) -> None:
    key = "sk-0123456789abcdef"
    with HeldUpstream() as upstream:
        config = {
            "base_url": upstream.url,
            "keys": [{"name": "ci", "hash": hash_key(key)}],
            "state_dir": str(tmp_path / "state"),
            "record": {"mode": "memory"},
        }
        with serving(tmp_path, config=config) as server:
            for shown in ("", "?token=sk-a-wrong-key-0123"):
                page.goto("about:blank")
                page.goto(f"{server.url}/inspect{shown}")
                page.wait_for_selector("input[type=password]")
                assert page.query_selector(".row") is None
            page.goto(f"{server.url}/inspect?token={key}")
            page.wait_for_selector(".live.live")
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            headers = {"content-type": "application/json", "authorization": f"Bearer {key}", "x-request-id": "req_live"}
            request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                page.click('.row[data-id="req_live"]')
                page.wait_for_selector('.lane.ev .box.text:has-text("one")')
                assert page.query_selector("[data-tab=replay]") is None, "what has not ended cannot be replayed"
                upstream.say("two")
                page.wait_for_selector('.lane.ev .box.text:has-text("two")')
                page.wait_for_selector('.lane.cl .box:has-text("two")')
                assert page.inner_text(".titles .pill") == "in flight"
                # What is known so far is told, in the list as in the head, and nothing that is not.
                page.wait_for_selector('.row[data-id="req_live"]:has-text("streaming · 2 chunks · ")')
                page.wait_for_selector('.fact:has-text("chunks"):has-text("2")')
                facts = page.inner_text(".facts")
                assert "so far" in facts
                assert "total" not in facts
                assert "tokens" not in facts
                assert " 0 ms" not in facts.replace("\n", " ")
                page.keyboard.press("r")
                page.keyboard.press("e")
                page.evaluate("location.hash = '#/x/req_live/replay'")
                page.keyboard.press("4")
                page.wait_for_selector('.pane-timing .figure:has-text("so far"):has-text("2 chunks")')
                assert page.query_selector(".replay-form") is None
                assert page.inner_text(".note-line") == ""
                page.keyboard.press("1")
                upstream.finish()
                assert b"[DONE]" in answer.read()
            page.wait_for_selector("[data-tab=replay]")
            assert "two" in page.inner_text(".lanes")
            # What was refused at the door stands in the list as well.
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{server.url}/v1/models", timeout=PATIENCE)
            refused.value.close()
            page.click(".chip:has-text('Refused')")
            page.click(".row:has-text('/v1/models')")
            page.wait_for_selector(".banner:has-text('refused before any upstream was asked')")
            page.wait_for_selector('.lane.cl .box:has-text("status 401")')
            assert page.inner_text(".lane.up") == "", "no upstream was asked, so none sent an end"
