"""Pictures of the inspector's views for the documentation, made in a real browser from made-up exchanges.

`./dev screenshots [NAME...]` writes docs/inspector/NAME.png, light and dark where both are named.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser.conftest import FLAGS  # noqa: E402
from support.inspected import broken, health, leaked, long_answer, rows, sessions, talks  # noqa: E402
from support.inspector_server import InspectorServer  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FOLDER = ROOT / "docs" / "inspector"
MOST_BYTES = 200_000
LAPTOP = (1280, 720)
PHONE = (390, 780)


@contextmanager
def inspected() -> Iterator[InspectorServer]:
    """A server with one of everything."""
    with InspectorServer() as server:
        server.rows, server.sessions, server.health = rows(), sessions(), health()
        server.talks = talks()
        server.views = {view.row.id: view for view in (leaked(), broken(), long_answer(10_000))}
        yield server


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's chromium."""
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium")
    if executable is None:
        raise SystemExit("chromium is not installed (`apt-get install chromium`)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS), chromium_sandbox=False)
        yield browser
        browser.close()


def _lanes(page: Page) -> None:
    page.goto(page.url.split("#")[0] + "#/x/req_0018/lanes/9")
    page.wait_for_selector(".step.on")


def _exchange(number: str, tab: str, wait: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.goto(page.url.split("#")[0] + f"#/x/{number}/{tab}")
        page.wait_for_selector(wait)

    return act


def _replay(page: Page) -> None:
    _exchange("req_0018", "replay", "select[name=format]")(page)
    page.select_option("select[name=format]", "off")
    page.click(".replay-form button[type=submit]")
    page.wait_for_selector(".differences")


def _sessions(page: Page) -> None:
    page.wait_for_selector(".row")
    page.click("[data-mode=sessions]")
    page.wait_for_selector("details.session .agent")


def _health(page: Page) -> None:
    page.goto(page.url.split("#")[0] + "#/health")
    page.wait_for_selector(".health-card svg")


def _talk(page: Page) -> None:
    page.goto(page.url.split("#")[0] + "#/conversations/resp_ath0001")
    page.wait_for_selector(".talks .card")


def _help(page: Page) -> None:
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")


SHOTS: dict[str, tuple[Callable[[Page], None], tuple[int, int]]] = {
    "lanes": (_lanes, LAPTOP),
    "calls": (_exchange("req_0018", "calls", ".call-card"), LAPTOP),
    "requests": (_exchange("req_0018", "requests", ".json"), LAPTOP),
    "timing": (_exchange("req_0018", "timing", ".waterfall"), LAPTOP),
    "prefix": (_exchange("req_0018", "prefix", ".prefix-bar"), LAPTOP),
    "replay": (_replay, LAPTOP),
    "error": (_exchange("req_0009", "lanes", ".step"), LAPTOP),
    "many": (_exchange("req_0007", "lanes", ".step"), LAPTOP),
    "sessions": (_sessions, LAPTOP),
    "health": (_health, LAPTOP),
    "conversation": (_talk, LAPTOP),
    "help": (_help, LAPTOP),
    "phone": (_exchange("req_0018", "lanes", ".step"), PHONE),
}
DARK = ("lanes", "requests", "health")
"""Shown in the dark too."""


def take(browser: Browser, server: InspectorServer, name: str, scheme: str, folder: Path) -> Path:
    """One picture."""
    act, (width, height) = SHOTS[name]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = context.new_page()
    page.goto(server.page)
    page.wait_for_selector(".row, .empty")
    act(page)
    page.wait_for_timeout(150)
    path = folder / (f"{name}-dark.png" if scheme == "dark" else f"{name}.png")
    page.screenshot(path=str(path))
    context.close()
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path.name} has {path.stat().st_size} bytes; at most {MOST_BYTES} are wanted")
    return path


def main(arguments: list[str]) -> int:
    """Take the pictures named, or all."""
    folder = FOLDER
    if arguments[:1] == ["--into"]:
        folder, arguments = Path(arguments[1]), arguments[2:]
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(name, "light") for name in SHOTS] + [(name, "dark") for name in DARK]
    if arguments:
        wanted = [(name.removesuffix("-dark"), "dark" if name.endswith("-dark") else "light") for name in arguments]
    with inspected() as server, chromium() as browser:
        for name, scheme in wanted:
            print(take(browser, server, name, scheme, folder).name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
