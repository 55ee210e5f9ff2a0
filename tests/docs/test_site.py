"""The documentation site builds without a warning and without a network, holds every page with its plain twin, and shows all of
it; no page asks another host for anything. A browser sees every page's content on a laptop and one page of each kind on a phone
in the dark as well; with ATHENA_SOAK=1 it loads every page and sees it in every way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from athena.formats import all_formats
from athena.shells.agents import AGENTS
from support.code_blocks import ROOT
from support.patience import PATIENCE
from support.site_browser import chromium, served

DOCS = ROOT / "docs"
NO_NETWORK = """
import socket

def refuse(*_, **__):
    print("WARNING: the build asked for the network")
    raise OSError("there is no network for a build")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
"""
LAPTOP, PHONE = 1280, 390
Scheme = Literal["light", "dark"]
KINDS = (".", "guides/gateway", "errors", "performance", "comparison", "providers/vllm", "clients/claude", "quick-start")
"""The first page, a guide, a page of long tables, of plots, of wide tables, of a provider, of a client, and of code. The frame
of the last one shows the content of the pages that are not loaded."""
STILL = "*, *::before, *::after { transition: none !important; animation: none !important }"
MEASURE = """(width) => {
  const wrong = [];
  const name = (element) => element.tagName.toLowerCase() + " " + element.textContent.trim().slice(0, 60).replace(/\\s+/g, " ");
  const page = document.documentElement;
  const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "slate" : "default";
  if (document.body.dataset.mdColorScheme !== scheme) wrong.push(`the page is not in ${scheme}`);
  if (page.scrollWidth > page.clientWidth) wrong.push(`the page is ${page.scrollWidth} px wide`);
  const boxes = ".md-content :is(table, pre > code, p:has(> img)), .md-typeset__scrollwrap";
  for (const element of document.querySelectorAll(boxes)) {
    const hidden = element.scrollWidth - element.clientWidth;
    if (hidden <= 1 || element.clientWidth === 0) continue;
    const style = getComputedStyle(element);
    const borders = parseFloat(style.borderTopWidth) + parseFloat(style.borderBottomWidth);
    const bar = element.offsetHeight - element.clientHeight - borders;
    const seen = bar >= 1 && !/^(transparent|rgba\\(0, 0, 0, 0\\))/.test(style.scrollbarColor);
    const scrolls = ["auto", "scroll"].includes(style.overflowX) && seen;
    if (!scrolls) wrong.push(`${hidden} px are cut off of ${name(element)}`);
    else if (element.matches("table[data-stacked]")) wrong.push(`${hidden} px have to be scrolled to in ${name(element)}`);
    else if (width >= 1280) wrong.push(`${hidden} px are out of sight in ${name(element)}`);
  }
  for (const element of document.querySelectorAll(".md-content img")) {
    const box = element.getBoundingClientRect();
    if (element.complete && element.naturalWidth === 0) wrong.push(`no picture at ${element.src}`);
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(element.parentElement).overflowX);
    if (box.right > page.clientWidth + 1 && !scrolls) wrong.push(`${element.src} leaves the page`);
  }
  return wrong;
}"""
"""What a reader cannot see. On a laptop everything is to be in sight; on a phone what is wider has a visible scroll bar."""

COLOURED = "(scheme) => document.body.dataset.mdColorScheme === scheme"
SHOW = """async (address) => {
  const text = await (await fetch(address)).text();
  const other = new DOMParser().parseFromString(text, "text/html").querySelector(".md-content");
  const base = document.querySelector("base") ?? document.head.appendChild(document.createElement("base"));
  base.href = address;
  document.querySelector(".md-content").replaceWith(document.adoptNode(other));
  for (const table of other.querySelectorAll("table:not([class])")) {
    const [outer, inner] = [document.createElement("div"), document.createElement("div")];
    outer.className = "md-typeset__scrollwrap";
    inner.className = "md-typeset__table";
    table.replaceWith(outer);
    outer.append(inner);
    inner.append(table);
  }
  const images = [...other.querySelectorAll("img")];
  for (const image of images) image.loading = "eager";
  await Promise.all(images.map((image) => image.decode().catch(() => {})));
}"""
"""Puts the content of another page into the frame of this one, and its tables into boxes, as the theme does when a page
is loaded."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    ran = build(ROOT / "mkdocs.yml", target)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WARNING" not in ran.stdout + ran.stderr
    return target


def build(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Not `--quiet`: it hides warnings from the count that `--strict` goes by. The theme's notice about its own future is
    turned off by its own switch. Sockets are out of reach."""
    offline = target.parent / "offline"
    offline.mkdir(exist_ok=True)
    (offline / "sitecustomize.py").write_text(NO_NETWORK, "utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(target)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(offline)}
    return subprocess.run(
        command, capture_output=True, text=True, env=variables, cwd=config.parent, timeout=5 * PATIENCE, check=False
    )


def test_a_warning_fails_the_build(tmp_path: Path) -> None:
    """With our own rules for links, and pages that break them."""
    rules = (ROOT / "mkdocs.yml").read_text("utf-8")
    validation = rules[rules.index("validation:") : rules.index("nav:\n  -")]
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"site_name: A\nstrict: true\n{validation}", "utf-8")
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "index.md"
    page.write_text("# A\n\n[there](#a)\n", "utf-8")
    assert build(config, tmp_path / "good").returncode == 0
    page.write_text("# A\n\n[nowhere](b.md), [nowhere](#b)\n", "utf-8")
    ran = build(config, tmp_path / "bad")
    assert ran.returncode == 1
    assert "2 warnings" in ran.stdout + ran.stderr


def test_a_build_that_asks_the_network_fails(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n", "utf-8")
    (tmp_path / "hook.py").write_text(
        "import urllib.request\ndef on_pre_build(config): urllib.request.urlopen('http://127.0.0.1:9')\n", "utf-8"
    )
    (tmp_path / "mkdocs.yml").write_text("site_name: A\nhooks: [hook.py]\n", "utf-8")
    ran = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert ran.returncode == 1
    assert "asked for the network" in ran.stdout


def test_every_page_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    navigation = home[home.index("md-nav--primary") :]
    for page in DOCS.rglob("*.md"):
        address = str(page.relative_to(DOCS).with_suffix("")).removesuffix("index").rstrip("/")
        assert f'href="{address}/"' in navigation or address == "", page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^\s\">]+")
    for page in site.rglob("*.html"):
        assert loaded.findall(page.read_text("utf-8")) == [], page


def test_public_names_are_documented(site: Path) -> None:
    page = (site / "api" / "index.html").read_text("utf-8")
    names = (ROOT / "tests" / "architecture" / "public_surface.txt").read_text("utf-8").split()
    documented = set(re.findall(r'id="athena\.([\w.]+)"', page))
    assert [name for name in names if name != "errors" and name not in documented] == []
    assert {"errors.AthenaError", "transport.Transport", "transport.AsyncTransport", "asgi.create_app"} <= documented


def test_sources_of_generated_pages_stay_out(site: Path) -> None:
    assert [path.name for path in site.rglob("*") if path.suffix in (".py", ".toml")] == []


def test_every_page_has_a_plain_twin(site: Path) -> None:
    listed = (site / "llms.txt").read_text("utf-8")
    whole = (site / "llms-full.txt").read_text("utf-8")
    for page in DOCS.rglob("*.md"):
        name = str(page.relative_to(DOCS))
        twin = (site / name).read_text("utf-8")
        assert f"]({name}): " in listed, name
        assert twin in whole, name
        assert "--8<--" not in twin, name
        assert "\n::: " not in twin, name
    assert "def get_weather" in (site / "clients" / "langchain.md").read_text("utf-8")
    assert "### `athena.parse(" in (site / "api.md").read_text("utf-8")


def test_the_numbers_of_the_first_page() -> None:
    shown = dict(re.findall(r"<li><b>(\d+)</b> (\w+)", (DOCS / "index.md").read_text("utf-8")))
    requirements = (ROOT / "requirements" / "run.txt").read_text("utf-8")
    packages = re.findall(r"^[a-z][\w.-]*==", requirements, re.MULTILINE | re.IGNORECASE)
    expected = {"formats": len(all_formats()), "pairs": 16, "coding": len(AGENTS), "packages": len(packages)}
    assert {word: int(number) for number, word in shown.items()} == expected


def pages_of(site: Path) -> list[str]:
    return sorted(str(page.parent.relative_to(site)) for page in site.rglob("index.html"))


def test_everything_is_in_sight_and_nothing_is_asked_of_other_hosts(site: Path) -> None:
    """In a real browser: one page of each kind loaded, on a laptop and on a phone; the content of all others, on a laptop."""
    wrong: list[str] = []
    names = pages_of(site)
    assert set(KINDS) <= set(names)
    everything = os.environ.get("ATHENA_SOAK") == "1"
    loaded = names if everything else KINDS
    ways: tuple[tuple[int, Scheme], ...] = ((LAPTOP, "light"), (PHONE, "dark"))
    # The search is started on every page, takes longer than the page, and changes nothing that is seen. Answering in its place
    # from here would switch the browser's cache off.
    for worker in site.glob("assets/javascripts/workers/search.*.js"):
        worker.write_text("", "utf-8")
    with served(site) as url, chromium() as browser:
        page = browser.new_page()
        page.on(
            "request", lambda request: None if request.url.startswith((url, "data:", "blob:")) else wrong.append(request.url)
        )
        page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))

        def see(name: str, width: int, scheme: Scheme) -> None:
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 400})
            # The theme's own script changes the colours, when it comes to it.
            page.wait_for_function(COLOURED, arg="slate" if scheme == "dark" else "default", timeout=PATIENCE * 1000)
            found: list[str] = page.evaluate(MEASURE, width)
            wrong.extend(f"{name} at {width} px, {scheme}: {what}" for what in found)

        for name in loaded:
            page.goto(f"{url}/{name}/", wait_until="load")
            page.add_style_tag(content=STILL)
            for width, scheme in [*ways, (LAPTOP, "dark"), (PHONE, "light")] if everything else ways:
                see(name, width, scheme)
        see(KINDS[-1], LAPTOP, "light")
        for name in names:
            if name not in loaded:
                page.evaluate(SHOW, f"{url}/{name}/")
                wrong += [f"{name} at {LAPTOP} px: {what}" for what in page.evaluate(MEASURE, LAPTOP)]
    assert wrong == [], "\n".join(wrong)


def test_what_is_out_of_sight_is_found(tmp_path: Path) -> None:
    """The measurement itself, on a page that hides things."""
    wide = "x" * 900
    (tmp_path / "index.html").write_text(
        "<!doctype html><body><div class='md-content'>"
        f"<pre style='width: 200px'><code style='display: block; overflow: hidden'>{wide}</code></pre>"
        f"<pre style='width: 200px'><code style='display: block; overflow: auto; scrollbar-color: red blue'>{wide}</code></pre>"
        "<div style='width: 2000px'>wide</div></div>",
        "utf-8",
    )
    with served(tmp_path) as url, chromium() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.goto(f"{url}/")
        found = page.evaluate(MEASURE, 390)
    shown = [re.sub(r"\d+", "N", what).split(" of ")[0] for what in found]
    assert shown == ["the page is not in default", "the page is N px wide", "N px are cut off"]
