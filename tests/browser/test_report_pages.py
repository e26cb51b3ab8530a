"""Reports in a real browser: accessible, whole on a phone, light and dark, small, and nothing breaks them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rackplan
from cost.config.build import model_from_config
from cost.resolve import resolve_model
from placement.plan import Plan
from rackplan.report.results import page_of
from topology import build_cluster, resolve_cluster

OpenPage = Callable[..., Any]

MOST_BYTES = 1_500_000
TALLEST = 6_000
"""Pixels of a page on a phone."""
EVIL = '</script><script>document.title="taken"</script><img src=x onerror="document.title=1"><b id=evil>x'
LOOKS = [(1440, False), (1440, True), (390, False), (390, True)]


@cache
def plan() -> Plan:
    return rackplan.plan("deepseek-v3", "gb200-nvl72", phase="decode", time_limit_s=0)


PAGES: dict[str, Callable[[], object]] = {
    "plan": plan,
    "compare": lambda: rackplan.compare(["gb200-nvl72", "hgx-h100", "hgx-b200", "mi300x"], "deepseek-v3"),
    "sweep": lambda: rackplan.sweep("deepseek-v3", "gb200-nvl72"),
    "several": lambda: rackplan.plan(
        {"mixtral-8x7b": 0.5, "olmoe-1b-7b": 0.5}, "hgx-h100@16", isl=1000, osl=100, time_limit_s=0
    ),
    "size": lambda: rackplan.size("deepseek-v3", "gb200-nvl72", tok_s=1e6),
    "replan": lambda: rackplan.replan(plan(), lost="d0.n3"),
    "replay": lambda: rackplan.replay(
        model="mixtral-8x7b",
        cluster="hgx-h100",
        loads=np.random.default_rng(0).lognormal(sigma=0.4, size=(4, 32, 8)),
    ),
    "large": lambda: rackplan.plan("deepseek-v3", "rubin-576", phase="decode", time_limit_s=0),
}


@cache
def written(name: str, folder: Path) -> Path:
    path = folder / f"{name}.html"
    path.write_text(page_of(PAGES[name]()), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


# Playwright's own wait evaluates text in the page from its second look on, which the page's policy forbids
DRAWN = """async () => {
  for (let look = 0; look < 600; look += 1) {
    if (performance.getEntriesByName("rackplan-charts").length > 0) { return true; }
    await new Promise((again) => setTimeout(again, 50));
  }
  return false;
}"""


def drawn(opened: Any) -> None:
    assert opened.page.evaluate(DRAWN), "no charts after 30 s"


@pytest.mark.parametrize("name", [name for name in PAGES if name != "large"])
def test_a_page_is_whole_in_every_look(name: str, pages: Path, open_page: OpenPage) -> None:
    path = written(name, pages)
    assert path.stat().st_size < MOST_BYTES
    for width, dark in LOOKS:
        opened = open_page(path, width=width, dark=dark)
        drawn(opened)
        assert opened.errors == []
        assert opened.axe() == []
        assert opened.clipped() == []
        if width == 390:
            assert opened.page.evaluate("document.documentElement.scrollHeight") <= TALLEST
        # each chart that is not folded is drawn
        undrawn = "figure.chart:not([data-drawn])"
        hidden = opened.page.eval_on_selector_all(
            undrawn, "all => all.filter(one => !one.closest('details:not([open])')).length"
        )
        assert hidden == 0
        answer = opened.page.locator("p.forward, p.answer")
        assert 1 <= answer.count() <= 3
        assert answer.last.bounding_box()["y"] < 500, "on the first screen"
        opened.page.context.close()


def test_the_page_of_a_large_plan_stays_small(pages: Path, open_page: OpenPage) -> None:
    """58 layers with experts on 576 GPUs."""
    path = written("large", pages)
    assert path.stat().st_size < MOST_BYTES
    opened = open_page(path, width=390)
    drawn(opened)
    assert opened.errors == []
    assert opened.page.evaluate("document.documentElement.scrollHeight") <= TALLEST


def test_the_keyboard_reaches_everything_that_answers(pages: Path, open_page: OpenPage) -> None:
    opened = open_page(written("plan", pages))
    drawn(opened)
    reached: dict[str, set[int]] = {}
    for _ in range(400):
        opened.page.keyboard.press("Tab")
        active = "document.activeElement"
        kind = opened.page.evaluate(f"{active}.tagName")
        if kind == "BODY":
            break
        place = opened.page.evaluate(f"[...document.querySelectorAll('*')].indexOf({active})")
        reached.setdefault(kind, set()).add(place)
    shown = "all => all.filter(node => node.checkVisibility()).length"
    assert len(reached["SUMMARY"]) == opened.page.eval_on_selector_all("summary", shown)
    assert reached["CANVAS"]


@pytest.mark.parametrize("name", ["compare", "plan"])
def test_paper_has_charts_and_no_folds(name: str, pages: Path, open_page: OpenPage) -> None:
    opened = open_page(written(name, pages))
    drawn(opened)
    pdf = opened.page.pdf(prefer_css_page_size=True)
    # a comparison has a drawing of each cluster with its cables
    assert len(re.findall(rb"/Type /Page\b", pdf)) <= {"plan": 8, "compare": 9}[name]
    opened.page.emulate_media(media="print")
    opened.page.set_viewport_size({"width": 688, "height": 1000})
    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 700
    assert not opened.page.locator("details:not([open])").first.is_visible()
    assert 600 < opened.page.locator(".plot .main-svg").first.bounding_box()["width"] <= 700
    opened.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    opened.page.emulate_media(media="screen")
    assert opened.page.locator("details:not([open])").first.is_visible()


def test_names_with_html_in_them_stay_names(pages: Path, open_page: OpenPage) -> None:
    spec = resolve_cluster("hgx-h100").spec
    cluster = build_cluster(replace(spec, name=EVIL))
    config = {**resolve_model("mixtral-8x7b").config, "num_hidden_layers": 2}
    model = model_from_config(config, name=EVIL)
    made: dict[str, object] = {
        "evil-plan": rackplan.plan(model, cluster, phase="decode", time_limit_s=0),
        "evil-sweep": rackplan.sweep(model, cluster),
    }
    for name, result in made.items():
        path = pages / f"{name}.html"
        path.write_text(page_of(result, f"rackplan {EVIL}"), encoding="utf-8")
        opened = open_page(path)
        drawn(opened)
        assert opened.errors == []
        assert opened.page.locator("#evil, img").count() == 0
        assert EVIL[:10] in opened.page.title()
        assert EVIL in opened.page.locator("h1").inner_text()
