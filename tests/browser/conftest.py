"""A real headless browser: pages opened at a width, light or dark, and what it makes of them.

Chromium is the system's (``RACKPLAN_CHROMIUM`` names another one); nothing is downloaded. Playwright's Python package
and axe-core come with the extra ``browser``. Where one of them is absent these tests skip, and say so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

OpenPage = Callable[..., "Opened"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = {1440: 900, 390: 844}
"""Heights of the windows by their widths: a desk's and a phone's."""

# Elements with text that reach over the page's edge, or whose text their own box cuts off; what stands in a box that
# scrolls can be reached
_CLIPPED = """() => {
  const scrolls = (node) => {
    for (let one = node; one && one !== document.body; one = one.parentElement) {
      const how = getComputedStyle(one).overflowX;
      if ((how === "auto" || how === "scroll") && one.clientWidth > 0) { return true; }
    }
    return false;
  };
  const found = [], wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) { found.push("page scrolls sideways"); }
  for (const node of document.querySelectorAll("body *")) {
    if (node.closest("svg, .js-plotly-plot, .unseen") || !node.textContent.trim()) { continue; }
    if (!node.checkVisibility()) { continue; }
    const box = node.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) { continue; }
    const cut = getComputedStyle(node).overflowX === "hidden" && node.scrollWidth > node.clientWidth + 1;
    if ((box.right > wide + 1 || cut) && !scrolls(node)) {
      found.push(`${node.tagName.toLowerCase()}.${node.className}: ${node.textContent.trim().slice(0, 60)}`);
    }
  }
  return found;
}"""


@dataclass
class Opened:
    """A page that a browser has open (Playwright's), and what was wrong.

    ``errors``: what the console said, what no script caught, and requests to anywhere but the page's own address.
    """

    page: Any
    errors: list[str] = field(default_factory=list)

    def axe(self) -> list[dict[str, Any]]:
        """Return what axe-core calls serious or critical; skip where it is absent."""
        if find_spec("axe_playwright_python") is None:
            pytest.skip("axe-core is absent: pip install -e '.[browser]'")
        source = files("axe_playwright_python").joinpath("axe.min.js")
        self.page.evaluate(source.read_text(encoding="utf-8"))
        run = "axe.run(document, {resultTypes: ['violations']}).then(result => result.violations)"
        return [rule for rule in self.page.evaluate(run) if rule["impact"] in ("serious", "critical")]

    def clipped(self) -> list[str]:
        """Return elements whose text is cut off and cannot be scrolled to."""
        return list(self.page.evaluate(_CLIPPED))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here: ``make browser`` runs it."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests; skips where it or Playwright is absent."""
    path = os.environ.get("RACKPLAN_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the PATH (RACKPLAN_CHROMIUM names one)")
    api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is absent: pip install -e '.[browser]'"
    )
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Open a file or an address: ``open_page(path, width=390, dark=True)`` returns an :class:`Opened`."""
    contexts = []

    def opened(where: Path | str, *, width: int = 1440, dark: bool = False, **more: Any) -> Opened:
        address = where.resolve().as_uri() if isinstance(where, Path) else where
        scheme = "dark" if dark else "light"
        size = {"width": width, "height": WIDTHS.get(width, 900)}
        context = browser.new_context(viewport=size, color_scheme=scheme, **more)
        contexts.append(context)
        found = Opened(context.new_page())

        def told(message: Any) -> None:
            if message.type in ("error", "warning"):
                found.errors.append(f"console {message.type}: {message.text}")

        def asked(request: Any) -> None:
            own = request.url.startswith(
                (address.split("?")[0].rsplit("/", 1)[0], "data:", "blob:", "about:")
            )
            if not own:
                found.errors.append(f"outside request: {request.url}")

        found.page.on("console", told)
        found.page.on("pageerror", lambda error: found.errors.append(f"uncaught: {error}"))
        found.page.on("request", asked)
        found.page.goto(address, wait_until="load")
        return found

    yield opened
    for context in contexts:
        context.close()
