"""The report of `athena verify` in a real browser: light and dark, narrow and wide, without a script and without a request."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from athena.verify.cases import shipped_cases
from athena.verify.pages import as_page
from athena.verify.planning import Planner
from athena.verify.runs import RunHead, VerifyRun
from athena.verify.verdicts import compare, report_of
from support.simulated_answers import run_plan
from support.verified_demo import demo, verify

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

HOSTILE = '<script>window.owned = 1</script><img src=x onerror="window.owned = 1">"\'&'


def page_text() -> str:
    planner, clean = Planner(shipped_cases(), seed=1), Planner(shipped_cases(), seed=2)
    run_plan(planner, {"leak": 0.2, "cut": 0.05, "off_schema": 0.1}, 1)
    run_plan(clean, {}, 2)
    head = RunHead(upstream="demo", model=HOSTILE, dialect="openai_chat", base_url="http://127.0.0.1:1/v1", price_in=1.0)
    trials = [
        msgspec.structs.replace(trial, error=HOSTILE, first_byte_ms=20.0 + number, gap_ms=5.0 + number)
        for number, trial in enumerate(planner.tally.trials)
    ]
    report = report_of(VerifyRun(head, tuple(trials)), shipped_cases())
    return as_page(report, compare(report, report_of(VerifyRun(head, tuple(clean.tally.trials)), shipped_cases())))


def _watched(context: BrowserContext) -> tuple[Page, list[str], list[str]]:
    """A new page, what it says to the console, and what it asks for."""
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    return page, said, asked


def test_the_report_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page_text(), encoding="utf-8")
    colours = set()
    views: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1200), ("dark", 1200), ("light", 420))
    for scheme, width in views:
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        page, said, asked = _watched(context)
        page.goto(file.as_uri())
        assert page.evaluate("window.owned") is None
        assert [url for url in asked if url != file.as_uri()] == []
        assert said == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("svg").count() >= 4
        assert page.locator("h1").inner_text() == f"demo/{HOSTILE}"
        box = page.locator("svg").first.bounding_box()
        assert box is not None
        assert box["height"] > 100
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        context.close()
    assert len(colours) == 2


def _measure(place: Path) -> None:
    with demo({"leak": 0.5}) as url:
        base = ("--base-url", url, "--model", "demo-planted", "--battery", "engineering")
        verify(place, *base, "--budget", "30", "--html", "out.html")


def test_each_failing_exchange_is_one_click_away(browser: Browser, tmp_path: Path) -> None:
    """From the report into the lanes of an exchange, back, and on to another, from files alone."""
    with ThreadPoolExecutor(1) as beside:  # the browser's driver has an event loop in this thread
        beside.submit(_measure, tmp_path).result()
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page, said, asked = _watched(context)
    page.goto((tmp_path / "out.html").as_uri())
    links = page.locator('a[href*="#/x/"]')
    number = links.count()
    assert number >= 3
    for position in (0, number - 1):
        case = links.nth(position).inner_text()
        links.nth(position).click()
        page.wait_for_selector(".step")
        shown = page.locator("select.choice")
        assert case in shown.locator("option:checked").inner_text()
        page.click("[data-tab=calls]")
        page.wait_for_selector(".pane-calls > *")
        page.goto((tmp_path / "out.html").as_uri())
    links.nth(0).click()
    page.wait_for_selector(".step")
    page.locator("select.choice").select_option(index=1)
    page.wait_for_function("location.hash.includes(document.querySelector('select.choice').value)")
    page.wait_for_selector(".step")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200
    assert said == []
    assert {address.split("#")[0] for address in asked} == {
        (tmp_path / name).as_uri() for name in ("out.html", "out.exchanges.html")
    }
    context.close()
