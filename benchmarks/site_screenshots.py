"""Pictures of the documentation site, to be looked at: light and dark, on a laptop and on a phone.

`./dev screenshots site [NAME...]` builds the site and writes .screenshots/NAME-WIDTH-SCHEME.png, which git ignores.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.site_browser import chromium, served  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = ROOT / ".screenshots"
VIEWS = {"laptop": (1280, 800), "phone": (390, 800)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
README = "readme.html"
"""A page of nothing but the README's picture, as wide as the window lets it."""
PAGES: dict[str, tuple[str, str]] = {
    "picture": (README, ""),
    "home": ("", ""),
    "home-start": ("", "#start"),
    "guide": ("guides/gateway/", ""),
    "tutorial": ("tutorial/", ""),
    "errors": ("errors/", "#by-code"),
    "plots": ("performance/", "img[src$='gateway.svg']"),
    "plots-peers": ("performance/", "img[src$='peers.svg']"),
    "provider": ("providers/vllm/", ""),
    "client": ("clients/claude/", ""),
    "comparison": ("comparison/", ""),
    "configuration": ("configuration/", "#top-level"),
}
"""Where each is, and what is scrolled to."""


def main(arguments: list[str]) -> int:
    """Take the pictures named, or all."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="athena-site-") as site:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site]
        subprocess.run(command, cwd=ROOT, check=True)
        picture = re.search(r"<picture>.*?</picture>", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
        assert picture is not None, "README.md has no picture"
        shown = picture[0].replace("docs/", "").replace("<img", '<img style="max-width: 100%"')
        look = (
            "<!doctype html><meta name=viewport content='width=device-width'><style>:root { color-scheme: light dark }</style>"
        )
        Path(site, README).write_text(look + shown, "utf-8")
        with served(Path(site)) as url, chromium() as browser:
            for name in arguments or PAGES:
                for path in take(browser, url, name):
                    print(path.relative_to(ROOT), flush=True)
    return 0


def take(browser: Browser, url: str, name: str) -> list[Path]:
    """All pictures of one page."""
    address, target = PAGES[name]
    taken = []
    for view, (width, height) in VIEWS.items():
        for scheme in SCHEMES:
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.goto(f"{url}/{address}")
            if target:
                page.locator(target).first.scroll_into_view_if_needed()
                page.locator(target).first.evaluate("element => element.scrollIntoView({block: 'start'})")
                page.evaluate("scrollBy(0, -120)")
            page.wait_for_timeout(300)
            path = FOLDER / f"{name}-{view}-{scheme}.png"
            page.screenshot(path=str(path))
            context.close()
            taken.append(path)
    return taken


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
