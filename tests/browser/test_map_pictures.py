"""The pictures in a real browser: what they show on hover, by keys and by touch, at both widths, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from placement.migrate.replan import ReplanOptions, replan_plan
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from rackplan.inputs import loads_of
from rackplan.report.results import page_of
from topology import resolve_cluster

OpenPage = Callable[..., Any]

MAP = "#picture-experts"


@pytest.fixture(scope="module")
def plan() -> Plan:
    deployment = Deployment(resolve_cluster("gb200-nvl72"), resolve_model("deepseek-v3"), Workload())
    return make_plan(deployment, loads_of(deployment.model, ["lognormal:1"]), PlanOptions(time_limit_s=0.0))


@pytest.fixture(scope="module")
def report(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "report.html"
    path.write_text(page_of(plan), encoding="utf-8")
    return path


def pixels(page: Any) -> list[int]:
    """Return how often each colour is on the map, the most frequent first."""
    return list(
        page.evaluate(
            """selector => {
              const canvas = document.querySelector(selector + " canvas"), counts = new Map();
              const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
              const words = new Uint32Array(data.buffer);
              words.forEach(word => counts.set(word, (counts.get(word) || 0) + 1));
              return [...counts.values()].sort((a, b) => b - a);
            }""",
            MAP,
        )
    )


def test_all_are_drawn(open_page: OpenPage, report: Path) -> None:
    page = open_page(report, width=390).page
    drawn = page.locator("figure.picture")
    for index in range(drawn.count()):
        figure = drawn.nth(index)
        assert figure.locator(".rp-box > *").count() >= 1, figure.get_attribute("id")
        assert figure.get_attribute("aria-label")
    assert len(pixels(page)) > 5
    assert page.locator(".drawing").evaluate("one => one.scrollHeight - one.clientHeight") == 0


def test_the_parts_of_the_step_add_up_on_the_screen(open_page: OpenPage, report: Path, plan: Plan) -> None:
    page = open_page(report).page
    words = page.locator("#picture-step text").all_text_contents()
    shown = [name.replace("_", " ") for name, seconds in plan.score.terms_s.items() if seconds > 0]
    assert {text.partition(":")[0] for text in words} >= {*shown, "step"}
    width = "one => one.getBoundingClientRect().width"
    bars = page.locator("#picture-step .term")
    wide = [bars.nth(at).evaluate(width) for at in range(bars.count())]
    assert sum(wide) == pytest.approx(page.locator("#picture-step svg").evaluate(width), rel=0.02)


def test_the_map_answers_to_keys_search_and_zoom(open_page: OpenPage, report: Path, plan: Plan) -> None:
    page = open_page(report).page
    canvas, told = page.locator(f"{MAP} canvas"), page.locator(f"{MAP} .rp-at")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    entry = plan.experts[0]
    assert entry is not None
    said = told.last.inner_text()
    assert said.startswith(
        f"layer {plan.deployment.model.moe_layers[1]}, d0.n0.g1; node d0.n0, rack d0.r0; load "
    )
    held = sorted(entry.slot_expert[1, entry.slot_gpu == 1].tolist())
    assert [int(number) for number in re.findall(r"expert (\d+):", said)] == held[:12]  # and how many more
    before = pixels(page)
    for _ in range(8):
        page.keyboard.press("+")
    page.wait_for_timeout(100)
    assert pixels(page) != before
    page.keyboard.press("0")
    page.get_by_label("find expert or GPU").fill("17")
    copies = int((entry.slot_expert == 17).sum())
    assert f"expert 17: {copies} copies in {entry.layers} layers" in told.first.inner_text()
    for gpu in entry.slot_gpu[entry.slot_expert[1] == 17]:
        assert plan.deployment.cluster.gpus[int(gpu)].id in told.first.inner_text()


def test_a_replan_shows_where_copies_arrive(open_page: OpenPage, plan: Plan, tmp_path: Path) -> None:
    found = replan_plan(plan, None, ReplanOptions(lost=("d0.n2",)))
    path = tmp_path / "report.html"
    path.write_text(page_of(found), encoding="utf-8")
    opened = open_page(path)
    modes = opened.page.locator("#picture-moves select option").all_inner_texts()
    assert modes[0] == "copies arriving"
    assert opened.errors == []
