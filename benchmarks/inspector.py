"""The inspector's page with 10,000 chunks: time until its lanes are painted, frames per second while they scroll."""

from __future__ import annotations

from benchmarks.screenshots import chromium, inspected

CHUNKS = 10_000
PAINT = """async () => {
  const started = performance.now();
  location.hash = "#/x/req_0007/lanes";
  while (!document.querySelector(".step")) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - started;
}"""
SCROLL = """async () => {
  const lanes = document.querySelector(".lanes");
  const took = [];
  let last = performance.now();
  for (let frame = 0; frame < 240; frame++) {
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


def main() -> None:
    """Print what a browser without a graphics card needs."""
    with inspected() as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(server.page)
        page.wait_for_selector(".row")
        painted = page.evaluate(PAINT)
        scrolled = page.evaluate(SCROLL)
    print(f"{CHUNKS:,} chunks loaded and painted in {painted:.0f} ms")
    print(
        f"scrolled by 700 pixels a frame: {1000 / scrolled['mean']:.0f} frames per second, {1000 / scrolled['p95']:.0f} at the "
        f"95th percentile; {scrolled['rows']} rows and {scrolled['elements']} elements in the page"
    )


if __name__ == "__main__":
    main()
