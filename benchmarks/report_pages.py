"""Pages in the system's Chromium: bytes, first paint, when all charts are drawn, height and what axe finds.

``python benchmarks/report_pages.py PAGE.html ... [--repeat 3]``; needs the extra ``browser``. Times are medians
of fresh contexts, in milliseconds from navigation; run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from importlib.resources import files
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

LOOKS = ((1440, 900, "light"), (390, 844, "dark"))
PAINT, CHARTS = "first-contentful-paint", "rackplan-charts"
TIMES = """async (names) => {
  const missing = () => names.some(name => !performance.getEntriesByName(name).length);
  while (missing()) { await new Promise(again => setTimeout(again, 20)); }
  const entries = [...performance.getEntriesByType("paint"), ...performance.getEntriesByType("mark")];
  return Object.fromEntries(entries.map(entry => [entry.name, entry.startTime]));
}"""
"""Waits for what it is given; the page's policy forbids the text that Playwright's own wait evaluates."""


def look(browser: Browser, path: Path, size: tuple[int, int, str], repeat: int) -> str:
    """Return one line: medians of times, height, serious findings, errors."""
    width, height, scheme = size
    paints, charts, tall, serious, errors = [], [], 0, 0, 0
    for _ in range(repeat):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error, wrong=wrong: wrong.append(str(error)))
        page.on("console", lambda one, wrong=wrong: one.type == "error" and wrong.append(one.text))
        page.goto(path.resolve().as_uri())
        times = page.evaluate(TIMES, [PAINT, CHARTS])
        paints.append(times[PAINT])
        charts.append(times[CHARTS])
        tall = page.evaluate("document.documentElement.scrollHeight")
        page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
        found = page.evaluate("axe.run(document).then(found => found.violations.map(one => one.impact))")
        serious = sum(impact in ("serious", "critical") for impact in found)
        errors = len(wrong)
        context.close()
    return (
        f"{path.name:20} {width:5} {scheme:5} {path.stat().st_size / 1e6:5.2f} MB  paint "
        f"{statistics.median(paints):5.0f} ms  charts {statistics.median(charts):5.0f} ms  {tall:5} px  "
        f"axe {serious}  errors {errors}"
    )


def main() -> None:
    """Print a line for each page and look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for page in given.pages:
            for size in LOOKS:
                print(look(browser, page, size, given.repeat))
        browser.close()


if __name__ == "__main__":
    main()
