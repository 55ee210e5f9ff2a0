"""The inspector's page with 10,000 chunks: time until its lanes are painted, frames per second while they scroll.

Frames per second are those of the whole machine. What the page itself does for a frame (script, style, layout) is asked of the
browser besides, in CPU time: it hardly changes with what else runs, and 33 ms of it are what 30 frames per second leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.screenshots import chromium, inspected

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession

CHUNKS = 10_000
PAINT = """async () => {
  const started = performance.now();
  location.hash = "#/x/req_0007/lanes";
  while (!document.querySelector(".step")) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - started;
}"""
SCROLL = """async (FRAMES) => {
  const lanes = document.querySelector(".lanes");
  const took = [];
  let last = performance.now();
  for (let frame = 0; frame < FRAMES; frame++) {
    lanes.scrollTop += 700;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    took.push(now - last);
    last = now;
  }
  took.sort((a, b) => a - b);
  const count = (selector) => document.querySelectorAll(selector).length;
  const mean = took.reduce((a, b) => a + b) / took.length;
  return { mean, p95: took[Math.floor(took.length * 0.95)], rows: count(".step"), elements: count("*") };
}"""


FRAMES = 240
SPENT = ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")


def main() -> None:
    """Print what a browser without a graphics card needs."""
    with inspected() as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(server.page)
        page.wait_for_selector(".row")
        painted = page.evaluate(PAINT)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = _metrics(session)
        scrolled = page.evaluate(SCROLL, FRAMES)
        after = _metrics(session)
    print(f"{CHUNKS:,} chunks loaded and painted in {painted:.0f} ms")
    print(
        f"scrolled by 700 pixels a frame: {1000 / scrolled['mean']:.0f} frames per second, {1000 / scrolled['p95']:.0f} at the "
        f"95th percentile; {scrolled['rows']} rows and {scrolled['elements']} elements in the page"
    )
    spent = {name: (after[name] - before[name]) * 1000 / FRAMES for name in SPENT}
    parts = ", ".join(f"{name.removesuffix('Duration')} {took:.1f}" for name, took in spent.items())
    print(f"work of the page for a frame: {sum(spent.values()):.1f} ms ({parts})")


def _metrics(session: CDPSession) -> dict[str, float]:
    return {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}


if __name__ == "__main__":
    main()
