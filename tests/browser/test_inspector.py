"""The inspector's page in a real browser: every view, live updates, ten thousand chunks, hostile words, keys, narrow windows.

The page is the gateway's; its data is made up here, so that sizes and words can be had that no model would send. Every test
counts what the page's policy refused, what it asked of other hosts and what it wrote to the console: nothing, each time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import pytest

from athena.recording.filters import Filter
from athena.serving.learning import Lesson
from athena.serving.route_health import RouteReport, RouteState
from athena.shells.inspector import shared_page
from support.inspected import AT, Telling, broken, health, hostile, leaked, long_answer, mark, row, rows, sessions, talks
from support.inspector_server import TOKEN, InspectorServer
from support.patience import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Dialog, Page

PATIENCE_MS = PATIENCE * 1000
TABS = ("lanes", "calls", "requests", "timing", "prefix", "replay")
WATCH = """() => {
  window.refused = [];
  const keep = (event) => window.refused.push(event.violatedDirective + " " + event.blockedURI);
  document.addEventListener("securitypolicyviolation", keep);
  window.alert = () => { window.ran = true; };
}"""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
WIDE = """() => [...document.querySelectorAll("body *")].filter((e) => {
  const style = getComputedStyle(e);
  return e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && style.overflowX === "visible" && style.display !== "inline"
    && !(e instanceof SVGElement);
}).map((e) => e.tagName + "." + e.className).slice(0, 5)"""
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)><svg onload=alert(1)></svg>",
    '"><iframe src="javascript:alert(1)"></iframe><a href="javascript:alert(1)">x</a>{{7*7}}${alert(1)}',
    "</script><!-- </style> <plaintext> \u202etxt.exe\u2066 \u200b\ufeff \x00\x07\x1b[31mred\x1b[0m"
    "\x1b]8;;http://a.example\x07 \x9b2J",
    "W" * 1_000_000,
)


class Watched:
    """One tab and everything it did that it should not have."""

    def __init__(self, page: Page, server: InspectorServer) -> None:
        self.page = page
        self.server = server
        self.hosts: set[str] = set()
        self.said: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(f"({WATCH})()")
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on("console", lambda message: self.said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", self.dismiss)

    def dismiss(self, dialog: Dialog) -> None:
        self.said.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def open(self, route: str = "") -> Page:
        self.page.goto(f"{self.server.page}{route}")
        self.page.wait_for_selector(".live.live")
        return self.page

    def go(self, route: str, wait: str) -> None:
        self.page.evaluate("route => { location.hash = route }", route)
        self.page.wait_for_selector(wait)

    def assert_clean(self) -> None:
        assert self.page.evaluate("window.refused") == []
        assert self.page.evaluate("window.ran") is None
        assert self.said == []
        assert self.hosts <= {urlsplit(self.server.url).netloc, ""}


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    yield context
    context.close()


@pytest.fixture
def server() -> Iterator[InspectorServer]:
    with InspectorServer() as running:
        running.rows, running.sessions, running.health = rows(), sessions(), health()
        running.views = {view.row.id: view for view in (leaked(), broken())}
        yield running


@pytest.fixture
def tab(context: BrowserContext, server: InspectorServer) -> Iterator[Watched]:
    page = context.new_page()
    yield Watched(page, server)
    page.close()


def wait_until(page: Page, condition: str) -> None:
    """Playwright's own way evaluates a text inside of the page, which the page's policy refuses."""
    deadline = time.monotonic() + PATIENCE
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


FITS = "async ([row, filters]) => (await import('/inspect/page/list.js')).fits(row, filters)"


@pytest.mark.parametrize(
    "wanted",
    [
        {"q": "kimi"}, {"q": "KIMI no-such-word"}, {"q": "error"}, {"session": "7f3a"}, {"session": "f3a"}, {"model": "sonnet"},
        {"model": "moon*"}, {"model": "*.5*"}, {"upstream": "open"}, {"upstream": "*router"}, {"program": "claude"},
        {"outcome": "ok"}, {"outcome": "repaired"}, {"outcome": "error"}, {"outcome": "200"}, {"outcome": "refused"},
        {"verdict": "error"}, {"kind": "served"}, {"repaired": "1"}, {"agent": "explore-1"}, {"since": "1794800000"},
    ],
    ids=str,
)  # fmt: skip
def test_live_rows_are_filtered_as_the_gateway_filters(tab: Watched, wanted: dict[str, str]) -> None:
    page = tab.open()
    for each in rows():
        typed = msgspec.convert(wanted, Filter, strict=False)
        assert page.evaluate(FITS, [msgspec.to_builtins(each), wanted]) == typed.holds(each), (each.id, wanted)


def texts(page: Page, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def test_every_view_shows_what_happened(tab: Watched, server: InspectorServer) -> None:
    page = tab.open()
    assert len(texts(page, ".row")) == len(server.rows)
    assert "in flight" in page.inner_text('.row[data-id="req_0031"]')
    page.click("text=Sessions")
    page.wait_for_selector(".agent")
    assert "sub-agent explore-1" in page.inner_text(".agent").replace("\n", " ")
    assert page.get_attribute('.agent ~ .row[data-id="req_0014"]', "data-depth") == "1"
    page.click("text=By time")

    # Three lanes: what was held is told two steps later, and each side finds the other.
    page.click('.row[data-id="req_0018"]')
    page.wait_for_selector(".step")
    assert texts(page, ".lane-heads span")[1:] == ["THE UPSTREAM SENT", "ATHENA UNDERSTOOD", "THE CLIENT RECEIVED"]
    assert "<|tool_call_begin|>" in texts(page, '.step[data-step="8"] .up mark')
    assert "held · kimi_k2" in page.inner_text('.step[data-step="8"] .ev')
    assert "call in text · kimi_k2" in page.inner_text('.step[data-step="9"] .ev')
    page.hover('.step[data-step="10"] .cl .box')
    linked = page.eval_on_selector_all(".lane.linked", "all => all.map(e => e.parentNode.dataset.step + e.dataset.lane)")
    assert sorted(linked) == ["10client", "10understood", "10upstream", "9understood", "9upstream"]
    page.hover('.step[data-step="9"] .ev .box >> nth=0')
    assert page.locator('.step[data-step="10"] .cl.linked').count() == 1
    assert page.locator('.step[data-step="9"] .link.held-starts').count() == 1
    page.click("text=every byte")
    assert "chat.completion.chunk" in page.inner_text('.step[data-step="8"] .up')
    page.click("text=every byte")
    page.click("text=marked 4")
    assert len(texts(page, ".step")) == 4
    page.fill(".find", "git says")
    page.wait_for_selector(".nothing:not([hidden])")
    page.click("text=all 17 steps")
    wait_until(page, "document.querySelectorAll('.step').length === 1")

    tab.go("#/x/req_0018/calls", ".call-card")
    assert texts(page, ".call-card h2") == ["Read", "Bash"]
    assert page.locator(".call-card >> nth=0 >> .verdict.good").count() == 6
    assert "made up here" in page.inner_text(".call-card >> nth=0")
    tab.go("#/x/req_0018/requests", ".sides .json")
    assert "system[0].cache_control" in page.inner_text(".pane table")
    only = texts(page, ".side .only .value")
    assert '"claude-sonnet-5"' in only
    assert '"moonshotai/kimi-k2-0905"' in only
    assert '"You are a careful engineer."' not in only
    tab.go("#/x/req_0018/timing", ".waterfall")
    assert "41.3 µs" in page.inner_text(".figures")
    assert len(texts(page, ".held li")) == 2
    tab.go("#/x/req_0018/prefix", ".prefix-bar")
    assert "byte 71,205" in page.inner_text(".differs")

    tab.go("#/x/req_0018/replay", "select[name=format]")
    page.select_option("select[name=format]", "hermes")
    page.select_option("select[name=chunks]", "7")
    page.click(".replay-form button[type=submit]")
    page.wait_for_selector(".differences .box")
    assert server.replays == [{"format": "hermes", "chunks": "7"}]
    assert "2 events differ" in page.inner_text(".replay-result .banner")
    assert "nothing" in texts(page, ".differences .box")
    page.click("text=Show the lanes of this run")
    page.wait_for_selector(".replayed-lanes .step")
    with page.expect_download() as saved:
        page.click("text=Make a case of this run")
    assert saved.value.suggested_filename == "req_0018.toml"
    assert "/inspect/api/exchanges/req_0018/case?format=hermes" in server.asked
    with page.expect_download() as saved:
        page.click("button:has-text('Export')")
    assert saved.value.suggested_filename == "req_0018.athena"

    page.click("button:has-text('Delete')")
    page.click("button:has-text('Delete for good?')")
    page.wait_for_selector('.row[data-id="req_0018"]', state="detached")
    page.wait_for_selector(".empty.start")

    tab.go("#/x/req_0009", ".banner.bad")
    assert "What to do: The upstream closes its connection" in page.inner_text(".banner.bad")
    tab.go("#/x/req_0009/calls", ".call-card.bad")
    assert "it ended before it was whole" in page.inner_text(".verdict.bad >> nth=0")
    tab.go("#/health", ".health-card svg")
    assert "81.4 %" in texts(page, ".health-card .figure.warn b")
    assert page.locator(".lessons table").count() == 0
    hostile_name = "<img src=x onerror=alert(1)>\u202e"
    assert page.locator(".routes table").count() == 0
    counts: dict[str, Any] = {"answers": 50, "judged": 40, "bad": 4, "good_canaries": 1, "first_byte_s": None}
    found = {"off_schema": 3, "leak:kimi_k2": 1}
    server.routes = [RouteReport(upstream="lab", model=hostile_name, state=RouteState.OUT, found=found, **counts)]
    server.lessons = [Lesson("lab", hostile_name, "images", 61.0), Lesson("lab", "m", "parameter:seed", 5.0)]
    tab.go("#/", ".row")
    tab.go("#/health", ".lessons tbody tr")
    assert texts(page, ".lessons tbody tr >> nth=0 >> td")[:4] == [
        "lab",
        "<img src=x onerror=alert(1)>‹U+202E›",
        "images",
        "in 2 minutes",
    ]
    assert texts(page, ".routes tbody tr >> nth=0 >> td") == [
        "lab",
        "<img src=x onerror=alert(1)>‹U+202E›",
        "left out 1 good canary",
        "50",
        "4 of 40",
        "3 off_schema, 1 leak:kimi_k2",
    ]
    page.click(".lessons tbody tr >> nth=0 >> text=Forget")
    wait_until(page, "document.querySelectorAll('.lessons tbody tr').length === 1")
    page.click(".lessons button")
    page.wait_for_selector(".lessons table", state="detached")
    page.click(".health-card >> nth=1 >> text=its exchanges")
    wait_until(page, "document.querySelectorAll('.row').length === 2")
    tab.assert_clean()


def test_the_list_follows_what_happens(tab: Watched, server: InspectorServer) -> None:
    view = leaked()
    server.rows, server.views = [], {}
    server.models = ["'; rm -rf ~; '", "$(id)", "moonshotai/kimi-k2:free", "other"]
    page = tab.open()
    assert "curl http://127.0.0.1" in page.inner_text(".empty.start")
    page.wait_for_selector('.command:has-text("moonshotai/kimi-k2:free")')
    assert "rm -rf" not in page.inner_text(".empty.start"), "what is copied into a shell holds plain names only"
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.is_visible(".command >> nth=0"), "an empty list teaches on a telephone, too"
    assert page.evaluate(OVERFLOW) <= 0
    page.set_viewport_size({"width": 1280, "height": 800})
    begun = msgspec.structs.replace(view.row, state="live", verdict="live", status=0)
    server.rows = [begun]
    server.tell("row", begun)
    page.wait_for_selector('.row:has-text("in flight")')
    page.wait_for_selector('.pill:has-text("1 in flight")')
    page.click(".row")
    page.wait_for_selector(".empty.waiting")
    server.rows, server.views = [view.row], {view.row.id: view}
    server.tell("row", view.row)
    page.wait_for_selector(".step")
    page.wait_for_selector('.row:has-text("repaired")')
    for number in range(100, 130):
        server.tell("row", row(number))
    wait_until(page, "document.querySelectorAll('.row').length === 31")
    server.tell("gone", {"id": "req_0100"})
    wait_until(page, "document.querySelectorAll('.row').length === 30")
    # A row that no longer is what the list is filtered by leaves it.
    server.rows = [row(1, verdict="live", state="live"), view.row]
    page.click("button:has-text('In flight')")
    wait_until(page, "document.querySelectorAll('.row').length === 1")
    server.tell("row", row(1))
    page.wait_for_selector(".list .empty")
    assert [text for text in tab.said if "409" not in text] == []
    tab.said.clear()
    tab.assert_clean()


def test_the_figures_are_those_of_the_list(tab: Watched, server: InspectorServer) -> None:
    """Drawn before the list's answer came, they were always those of the search before."""
    page = tab.open()

    def listed(*expected: int) -> None:
        wanted = "\\n".join(map(str, expected))
        wait_until(page, f"[...document.querySelectorAll('.overview b')].map(e => e.innerText).join('\\n') === '{wanted}'")
        assert page.locator(".row").count() == expected[0]

    listed(8, 1, 1, 1, 1)
    page.fill(".search", "zzzz")
    listed(0, 0, 0, 0, 0)
    page.fill(".search", "")
    listed(8, 1, 1, 1, 1)
    page.click("button:has-text('Repaired')")
    listed(1, 1, 0, 0, 0)
    page.click("button:has-text('Echo')")
    listed(1, 0, 1, 0, 0)
    page.click(".list button:has-text('All')")
    listed(8, 1, 1, 1, 1)
    server.tell("row", row(40, state="live", verdict="live"))
    listed(9, 1, 1, 1, 2)
    page.focus(".overview a >> nth=4")
    server.tell("row", row(40))
    listed(9, 1, 1, 1, 1)
    assert page.evaluate("document.activeElement.innerText").endswith("in flight"), "who uses the figures may go on"
    tab.assert_clean()


def test_ten_thousand_chunks_are_a_few_elements(tab: Watched, server: InspectorServer) -> None:
    view = long_answer(10_000)
    server.rows, server.views = [view.row], {view.row.id: view}
    page = tab.open("#/x/req_0007/lanes/9000")
    page.wait_for_selector('.step.on[data-step="9000"]')
    assert page.locator(".step").count() < 60
    assert page.evaluate("document.querySelectorAll('*').length") < 1500
    page.eval_on_selector(".lanes", "lanes => { lanes.scrollTop = lanes.scrollHeight }")
    page.wait_for_selector('.step[data-step="10001"]')
    wait_until(page, "(e => e.scrollTop + e.clientHeight + 4 > e.scrollHeight)(document.querySelector('.lanes'))")
    # Rows touch each other: measured heights and places agree.
    gaps: list[float] = page.evaluate(
        """() => { const boxes = [...document.querySelectorAll(".step")].map(e => e.getBoundingClientRect());
        const rows = boxes.sort((a, b) => a.top - b.top);
        return rows.slice(1).map((r, i) => Math.abs(r.top - rows[i].bottom)) }"""
    )
    assert max(gaps) < 1.5
    page.eval_on_selector(".lanes", "lanes => { lanes.scrollTop = 0 }")
    page.wait_for_selector('.step[data-step="1"]')
    page.click("[aria-label='next mark']")
    page.fill(".find", "word7777")
    wait_until(page, "document.querySelectorAll('.step').length === 1")
    assert page.locator(".step").get_attribute("data-step") == "7779"
    tab.assert_clean()


@pytest.mark.parametrize("words", HOSTILE, ids=("script", "attributes", "controls", "a megabyte"))
def test_hostile_words_are_words(tab: Watched, server: InspectorServer, tmp_path: Path, words: str) -> None:
    view = hostile(words)
    server.rows, server.views = [view.row], {view.row.id: view}
    page = tab.open()
    for name in TABS:
        tab.go(f"#/x/req_0066/{name}", f".pane-{name} > *")
        assert page.evaluate(OVERFLOW) <= 0, name
        assert page.evaluate("document.body.textContent.length") < 400_000, name
    page.click("text=Sessions")
    assert_inert(page)
    tab.assert_clean()
    # The file that is shared holds the same words.
    path = tmp_path / "shared.html"
    path.write_text(shared_page([view]), "utf-8")
    page.goto(path.as_uri())
    page.wait_for_selector(".step")
    assert_inert(page)
    tab.assert_clean()


def assert_inert(page: Page) -> None:
    made = page.evaluate("[...new Set([...document.querySelectorAll('body *')].map(e => e.localName))]")
    assert not {"img", "iframe", "plaintext", "object", "embed", "base"} & set(made)
    assert page.evaluate("document.querySelectorAll('body script:not([type])').length") == 0
    hidden = page.evaluate(
        "/[\\u0000-\\u0008\\u001b\\u0080-\\u009f\\u200b\\u202a-\\u202e\\u2066-\\u2069\\ufeff]/.test(document.body.innerText)"
    )
    assert hidden is False
    assert page.evaluate("[...document.querySelectorAll('a')].every(a => a.getAttribute('href').startsWith('#'))")


def test_nothing_is_wider_than_the_window(tab: Watched, server: InspectorServer) -> None:
    page = tab.open()
    server.talks = talks()
    routes = [
        "#/",
        "#/health",
        "#/conversations",
        "#/conversations/resp_ath0001",
        *(f"#/x/req_0018/{name}" for name in TABS),
        "#/x/req_0009/lanes",
    ]
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        for route in routes:
            wait = (
                ".health-card"
                if "health" in route
                else ".talks .card"
                if "conv" in route
                else ".pane > *"
                if "/x/" in route
                else ".row"
            )
            tab.go(route, wait)
            assert page.evaluate(OVERFLOW) <= 0, (width, route)
            assert page.evaluate(WIDE) == [], (width, route)
    tab.assert_clean()


def test_a_long_name_of_a_model_stays_beside_its_state(tab: Watched, server: InspectorServer) -> None:
    long = "accounts/an-organisation/deployments/" + "qwen3-coder-480b-a35b-instruct-" * 4
    server.health = [msgspec.structs.replace(health()[0], model=long)]
    counts: dict[str, Any] = {"answers": 1, "judged": 1, "bad": 0, "good_canaries": 0, "first_byte_s": None}
    server.routes = [RouteReport(upstream="acmecorp", model=long, state=RouteState.IN, found={}, **counts)]
    page = tab.open("#/health")
    page.wait_for_selector(".health-card")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        names = page.locator(".health-card header div").bounding_box()
        assert names is not None
        for beside in (".dot", ".pill", ".jump"):
            box = page.locator(f".health-card header {beside}").bounding_box()
            assert box is not None
            assert names["y"] <= box["y"] <= names["y"] + names["height"], (width, beside)
        assert page.evaluate(OVERFLOW) <= 0
    page.set_viewport_size({"width": 1280, "height": 800})
    short, long_one = (page.locator(f".routes tbody td >> nth={place}").bounding_box() for place in (0, 1))
    assert short is not None
    assert long_one is not None
    assert short["width"] >= 60, "a short name stands on one line"
    assert long_one["width"] > 3 * short["width"]
    tab.assert_clean()


def test_a_conversation_leads_to_its_exchanges(tab: Watched, server: InspectorServer) -> None:
    page = tab.open("#/conversations")
    page.wait_for_selector(".empty:has-text('Nothing is stored')")
    server.talks = talks()
    page.keyboard.press("l")
    wait_until(page, "document.body.dataset.view !== 'conversations'")
    page.keyboard.press("c")
    page.click("a:has-text('resp_ath0001')")
    page.wait_for_selector("[data-response=resp_ath0002]")
    assert "src/main.py" in page.inner_text("[data-response=resp_ath0001] .box.call")
    assert "not recorded" in page.inner_text("[data-response=resp_ath0001]")
    assert "Yes: nothing would change." in page.inner_text("[data-response=resp_ath0002] .box.said")
    page.click("[data-response=resp_ath0002] a:has-text('the exchange')")
    page.wait_for_selector(".step")
    assert page.evaluate("location.hash").startswith("#/x/req_0018/lanes")
    tab.assert_clean()


def test_the_keys_reach_everything(tab: Watched, server: InspectorServer) -> None:
    page = tab.open()
    press = page.keyboard.press
    press("j")
    press("j")
    press("j")
    press("k")
    press("j")
    assert page.get_attribute(".row.on", "data-id") == "req_0018"
    press("Enter")
    page.wait_for_selector(".step")
    press("Enter")
    press("n")
    page.wait_for_selector('.step.on[data-step="8"]')
    press("j")
    page.wait_for_selector('.step.on[data-step="9"]')
    assert page.evaluate("location.hash") == "#/x/req_0018/lanes/9"
    press("b")
    assert "chat.completion.chunk" in page.inner_text('.step[data-step="9"] .up')
    press("f")
    page.keyboard.type("zzz")
    press("Escape")
    for number, name in enumerate(TABS, 1):
        press(str(number))
        page.wait_for_selector(f".pane-{name}")
        assert page.get_attribute('[role=tab][aria-selected="true"]', "data-tab") == name
    press("?")
    page.wait_for_selector("dialog[open]")
    press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    press("Escape")
    page.wait_for_selector(".empty.start")
    press("/")
    page.keyboard.type("verdict:error")
    wait_until(page, "document.querySelectorAll('.row').length === 1")
    press("Enter")
    press("j")
    press("Enter")
    page.wait_for_selector(".banner.bad")
    assert page.evaluate("location.hash").endswith("?q=verdict%3Aerror")
    press("h")
    page.wait_for_selector(".health-card")
    for theme in ("light", "dark", "auto"):
        press("t")
        assert page.get_attribute("html", "data-theme") == theme
    dark = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    night = page.evaluate(dark)
    page.emulate_media(color_scheme="light")
    assert night != page.evaluate(dark)
    tab.assert_clean()


def test_arrows_move_in_the_list(tab: Watched) -> None:
    page = tab.open()
    page.focus(".rows")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert page.get_attribute(".row.on", "data-id") == "req_0022"
    assert page.get_attribute(".rows", "aria-activedescendant") == page.get_attribute(".row.on", "id")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".step")
    tab.assert_clean()


CONTRAST = """() => {
  const paper = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const colour = (text) => {
    paper.clearRect(0, 0, 1, 1);
    paper.fillStyle = text;
    paper.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = paper.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = (rgb) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
    const value = rgb[i] / 255;
    return sum + weight * (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  }, 0);
  const poor = {};
  for (const element of document.querySelectorAll("body *")) {
    const has_words = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!has_words || !element.checkVisibility()) continue;
    const layers = [];
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) {
      layers.unshift(colour(getComputedStyle(at).backgroundColor));
      opacity *= Number(getComputedStyle(at).opacity);
    }
    if (!opacity) continue;
    const ground = layers.reduce((below, top) => over(top, below), [255, 255, 255, 1]);
    const ink = colour(getComputedStyle(element).color);
    const pair = [light(over([...ink.slice(0, 3), ink[3] * opacity], ground)), light(ground)].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) poor[element.tagName + "." + element.className] = ratio;
  }
  return poor;
}"""


def test_words_can_be_read_in_light_and_dark(tab: Watched) -> None:
    """At least the contrast that the Web Content Accessibility Guidelines ask for (AA)."""
    page = tab.open()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
        for route, wait in (
            ("#/", ".overview"),
            ("#/health", ".health-card"),
            ("#/x/req_0018/lanes/9", '.step.on[data-step="9"]'),
            *((f"#/x/req_0018/{name}", f".pane-{name} > *") for name in TABS[1:]),
            ("#/x/req_0009/calls", ".call-card.bad"),
        ):
            tab.go(route, wait)
            assert page.evaluate(CONTRAST) == {}, (scheme, route)
    tab.assert_clean()


def test_enter_opens_what_was_chosen_after_a_click_on_a_filter(tab: Watched) -> None:
    page = tab.open()
    page.click(".list button:has-text('Errors')")
    wait_until(page, "document.querySelectorAll('.row').length === 1")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".banner.bad")
    tab.assert_clean()


def test_the_address_holds_search_and_grouping_wherever_a_link_leads(tab: Watched) -> None:
    shown = "?q=verdict%3Arepaired&by=sessions"
    page = tab.open(f"#/{shown}")
    page.wait_for_selector(".session")
    page.click('.row[data-id="req_0018"]')
    page.wait_for_selector(".step")
    page.keyboard.press("2")
    page.click(".pane-calls a.jump >> nth=0")
    page.wait_for_selector(".step.on")
    assert page.evaluate("location.hash").startswith("#/x/req_0018/lanes/")
    assert page.evaluate("location.hash").endswith(shown)
    page.click("text=Health")
    page.wait_for_selector(".health-card")
    assert page.evaluate("location.hash") == f"#/health{shown}"
    tab.open(f"#/health{shown}")
    page.wait_for_selector(".session")
    page.keyboard.press("s")
    page.wait_for_selector(".session", state="detached")
    assert page.evaluate("location.hash") == "#/health?q=verdict%3Arepaired"
    page.keyboard.press("s")
    page.wait_for_selector(".session")
    page.click("a.brand")
    wait_until(page, "location.hash === '#/?by=sessions'")
    assert page.input_value("input.search") == ""
    tab.assert_clean()


def test_a_click_opens_the_row_on_which_it_began(tab: Watched, server: InspectorServer) -> None:
    """A busy gateway's list moves all the time: neither a click nor the focus may get lost by that."""
    server.rows = [*rows(), *(row(number, at=AT - number) for number in range(60, 90))]
    page = tab.open()
    page.wait_for_selector('.pill:has-text("1 in flight")')
    page.focus('.row[data-id="req_0009"]')
    box = page.locator('.row[data-id="req_0018"]').bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + 10)
    for number in range(100, 110):
        server.tell("row", row(number))
    wait_until(page, "document.querySelectorAll('.row').length === 48")
    now = page.locator('.row[data-id="req_0018"]').bounding_box()
    assert now is not None
    assert abs(now["y"] - box["y"]) < 2, "it stays under the pointer"
    assert page.evaluate("document.activeElement.dataset.id") == "req_0009"
    page.mouse.down()
    server.tell("row", row(110, state="live", verdict="live"))
    page.wait_for_selector('.pill:has-text("2 in flight")')
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.locator(".row").count() == 48, "nothing moves between the halves of a click"
    page.mouse.up()
    wait_until(page, "location.hash.startsWith('#/x/req_0018/')")
    wait_until(page, "document.querySelectorAll('.row').length === 49")
    tab.assert_clean()


def test_a_gateway_that_comes_back_is_asked_again(tab: Watched, server: InspectorServer) -> None:
    """What the page knew of a gateway that ended is not what the next one has."""
    page = tab.open()
    page.wait_for_selector('.pill:has-text("1 in flight")')
    page.click('.row[data-id="req_0018"]')
    page.wait_for_selector(".step")
    server.rows, server.views = [row(50)], {}
    server.hang_up()
    wait_until(page, "[...document.querySelectorAll('.row')].map(e => e.dataset.id).join() === 'req_0050'")
    page.wait_for_selector('.pill:has-text("1 in flight")', state="hidden")
    page.wait_for_selector(".note-line:has-text('no longer has this exchange')")
    assert page.locator(".step").count() > 3, "what was read stays to be read"
    assert page.locator(".actions, [data-tab=replay]").count() == 0
    # So is one in flight that went with the gateway.
    begun = msgspec.structs.replace(leaked(), row=row(51, state="live", verdict="live", own_us_per_chunk=0.0), calls=[])
    server.rows, server.views = [begun.row], {begun.row.id: begun}
    server.hang_up()
    page.click('.row[data-id="req_0051"]')
    page.wait_for_selector('.titles .pill:has-text("in flight")')
    page.keyboard.press("2")
    page.wait_for_selector(".empty:has-text('No call so far')")
    server.rows, server.views = [], {}
    page.wait_for_selector(".note-line:has-text('no longer has this exchange')")
    assert page.inner_text(".titles .pill") == "lost"
    # While it is away a view says so, and comes by itself when the gateway does.
    page.context.set_offline(True)
    try:
        server.hang_up()
        page.wait_for_selector('.live:has-text("reconnecting")')
        page.keyboard.press("h")
        page.wait_for_selector(".empty:has-text('The gateway does not answer')")
    finally:
        page.context.set_offline(False)
    page.wait_for_selector(".health-card")
    assert all("net::ERR" in text or "404" in text for text in tab.said)
    tab.said.clear()
    tab.assert_clean()


def test_an_exchange_that_is_deleted_while_somebody_looks_says_so(tab: Watched, server: InspectorServer) -> None:
    page = tab.open("#/x/req_0018")
    page.wait_for_selector(".step")
    server.tell("gone", {"id": "req_0018"})
    page.wait_for_selector(".note-line:has-text('no longer has this exchange')")
    assert page.locator(".step").count() > 3
    page.keyboard.press("r")
    page.keyboard.press("e")
    page.keyboard.press("2")
    page.wait_for_selector(".call-card")
    assert not any("export" in path for path in server.asked)
    tab.assert_clean()


def test_health_and_sessions_follow_what_happens(tab: Watched, server: InspectorServer) -> None:
    page = tab.open("#/health")
    page.wait_for_selector(".health-card")
    page.click("text=Sessions")
    page.wait_for_selector(".session:has-text('14 requests')")
    server.health = [msgspec.structs.replace(server.health[0], requests=4711)]
    server.sessions = [msgspec.structs.replace(server.sessions[0], exchanges=15), server.sessions[1]]
    server.tell("row", row(41))
    page.wait_for_selector(".session:has-text('15 requests')")
    page.wait_for_selector(".health-card:has-text('4,711')")
    tab.assert_clean()


def test_an_agent_of_which_nobody_says_who_started_it_is_the_main_ones(tab: Watched, server: InspectorServer) -> None:
    """Claude Code names neither its main agent nor, of those that the main one starts, who started them."""
    server.rows = [row(9, agent="deep", parent="first"), row(8, agent="first", parent=""), row(7, agent="", parent="")]
    server.sessions = []
    page = tab.open()
    page.click("text=Sessions")
    page.wait_for_selector(".agent")
    shown = page.eval_on_selector_all(".session > .row", "all => all.map(e => e.dataset.id + ' ' + e.dataset.depth)")
    assert shown == ["req_0007 0", "req_0008 1", "req_0009 2"]
    assert [text.split("\n")[1] for text in texts(page, ".agent")] == ["first", "deep"]
    # Codex names its main agent as well.
    server.rows = [row(9, agent="second", parent="main"), row(7, agent="main", parent="")]
    server.hang_up()
    page.wait_for_selector('.row[data-id="req_0008"]', state="detached")
    shown = page.eval_on_selector_all(".session > .row", "all => all.map(e => e.dataset.id + ' ' + e.dataset.depth)")
    assert shown == ["req_0007 0", "req_0009 1"]
    tab.assert_clean()


def test_names_of_what_happened_are_not_misleading(tab: Watched, server: InspectorServer) -> None:
    """An error after a good status is no 200, an upstream that fails is not "up", and times stand beside their names."""
    server.rows = [row(9, verdict="error", status=200, error="upstream_closed"), row(8, verdict="error", status=502)]
    server.views = {"req_0018": leaked()}
    page = tab.open()
    assert texts(page, ".row .pill") == ["error", "502"]
    server.health = [msgspec.structs.replace(health()[1], requests=3, errors=3)]
    tab.go("#/health", ".health-card.bad")
    assert "in use" in page.inner_text(".health-card header")
    page.set_viewport_size({"width": 390, "height": 800})
    tab.go("#/x/req_0018/timing", ".waterfall")
    rows_of = """() => [...document.querySelectorAll(".waterfall .name")].map((name) => {
      const took = name.nextElementSibling.getBoundingClientRect();
      const own = name.getBoundingClientRect();
      return own.top < took.bottom && took.top < own.bottom && took.left >= own.right - 1;
    })"""
    assert set(page.evaluate(rows_of)) == {True}
    tab.assert_clean()


def test_a_truth_value_is_the_same_only_under_its_own_name(tab: Watched, server: InspectorServer) -> None:
    view = leaked()
    asked = msgspec.structs.replace(
        view.requests,
        body='{"model": "m", "stream": true, "max_tokens": 9, "stop": []}',
        upstream=[
            msgspec.structs.replace(
                view.requests.upstream[0],
                body='{"model": "m", "stream": true, "max_completion_tokens": 9, "stream_options": {"include_usage": true}}',
            )
        ],
    )
    server.views = {view.row.id: msgspec.structs.replace(view, requests=asked)}
    page = tab.open("#/x/req_0018/requests")
    page.wait_for_selector(".sides .json")
    assert [text.replace("\n", " ") for text in texts(page, ".side .only")] == ["include_usagetrue"]
    tab.assert_clean()


def test_a_repaired_call_shows_its_arguments_once(tab: Watched, server: InspectorServer) -> None:
    told = Telling(row(70, verdict="repaired", repairs=1))
    arguments = '{"path": "a.py"}'
    events = [
        {"event": "ToolCallStart", "call": 0, "id": "call_1", "name": "Read"},
        {"event": "ToolCallDelta", "call": 0, "arguments": arguments},
        {"event": "ToolCallComplete", "call": 0, "id": "call_1", "name": "Read", "arguments": arguments, "repaired": True},
    ]
    told.step(0.1, "{'path': 'a.py'}", events, arguments, mark("repair", "repair", "the arguments were repaired", 2, 0))
    view = told.view()
    server.rows, server.views = [view.row], {view.row.id: view}
    page = tab.open("#/x/req_0070")
    page.wait_for_selector(".ev .box.call")
    assert page.inner_text(".ev .box.call").count(arguments) == 1
    tab.assert_clean()


def test_the_token_is_asked_for_and_kept_by_the_tab(browser: Browser, server: InspectorServer) -> None:
    context = browser.new_context()
    first, second = context.new_page(), context.new_page()
    for page in (first, second):
        page.set_default_timeout(PATIENCE_MS)
    answer = first.goto(f"{server.url}/inspect")
    assert answer is not None
    assert answer.status == 401
    first.wait_for_selector(".sign-in")
    assert not any("/inspect/api" in path for path in server.asked)
    first.fill("input[name=token]", "a wrong one")
    first.press("input[name=token]", "Enter")
    first.wait_for_selector(".sign-in .bad:has-text('does not take this token')")
    first.fill("input[name=token]", TOKEN)
    first.press("input[name=token]", "Enter")
    first.wait_for_selector(".row")
    # Another tab of the same page is handed the token; the address has it no longer; no cookie has it.
    second.goto(f"{server.url}/inspect#/x/req_0018")
    second.wait_for_selector(".step")
    first.goto(f"{server.page}#/health")
    first.wait_for_selector(".health-card")
    assert TOKEN not in first.url
    first.reload()
    first.wait_for_selector(".health-card")
    assert context.cookies() == []
    context.close()


def test_a_shared_page_needs_nothing_but_itself(tab: Watched, tmp_path: Path) -> None:
    path = tmp_path / "leak.html"
    path.write_text(shared_page([leaked()]), "utf-8")
    page = tab.page
    page.goto(path.as_uri())
    page.wait_for_selector(".step")
    assert texts(page, "[role=tab]")[0] == "Lanes"
    assert "Replay" not in page.inner_text("body")
    page.keyboard.press("n")
    page.wait_for_selector('.step.on[data-step="8"]')
    for name in ("calls", "requests", "timing", "prefix"):
        page.click(f"[data-tab={name}]")
        page.wait_for_selector(f".pane-{name} > *")
        assert page.evaluate(OVERFLOW) <= 0
    page.click("a:has-text('req_0009')")
    page.wait_for_selector(".pane")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    assert not {"/", "r", "e", "h", "l", "s"} & set(texts(page, "dialog kbd")), "there is no gateway behind it"
    tab.assert_clean()
    assert tab.hosts == {""}


def policy_of(page: str) -> Any:
    return page.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]


def test_the_policy_of_a_shared_page_names_hashes_only() -> None:
    policy = policy_of(shared_page([leaked()], "a </title> <b>"))
    assert "unsafe" not in policy
    assert "http" not in policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "<title>a &lt;/title&gt; &lt;b&gt;</title>" in shared_page([leaked()], "a </title> <b>")
