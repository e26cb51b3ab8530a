"""The documentation site as `make site` built it, from the disk: no errors, nothing fetched, found by searching."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OpenPage = Callable[..., Any]
SITE = Path(__file__).parents[2] / "site"
PAGES = ("index", "tutorial", "options", "reference/commands", "reference/python/functions-that-plan")

pytestmark = pytest.mark.skipif(
    not (SITE / "index.html").is_file(), reason="the site is not built here: make site"
)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1440, 390])
def test_pages_are_sound(open_page: OpenPage, width: int, dark: bool) -> None:
    for name in PAGES:
        opened = open_page(SITE / f"{name}.html", width=width, dark=dark)
        # a page in a folder has its scripts beside it
        assert [error for error in opened.errors if SITE.as_uri() not in error] == [], name
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in opened.axe()] == [], name
        wide = opened.page.evaluate("document.documentElement.scrollWidth")
        assert wide == width, name
        opened.page.close()


@pytest.mark.parametrize(("words", "page"), [("cost per token", "size"), ("NVL72", "catalog")])
def test_searching_works_without_a_server(open_page: OpenPage, words: str, page: str) -> None:
    opened = open_page(SITE / "index.html", width=1440)
    opened.page.click("input.md-search__input")
    opened.page.keyboard.type(words)
    opened.page.wait_for_selector("a.md-search-result__link")
    opened.page.click("a.md-search-result__link")
    opened.page.wait_for_url(f"**/{page}.html*")
    assert opened.errors == []
