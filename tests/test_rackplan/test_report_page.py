"""``report.html``: figures equal to the score's, nothing to load, nothing a name could smuggle in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import rackplan
from cost.config.build import model_from_config
from cost.resolve import resolve_model
from helpers import Run, plan_of, planned
from page_check import EVIL, Page, require_safe
from rackplan.report.page import page
from rackplan.report.plan import plan_doc
from topology import build_cluster, resolve_cluster
from topology.base.units import format_quantity


def check_safe(text: str) -> Page:
    """The page is safe, and the only scripts are the charts, the map, the library and ours; return what is in it."""
    page = require_safe(text)
    assert sum(tag == "script" for tag, _ in page.tags) == len(page.charts) + 3
    return page


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_page_holds_the_score_and_loads_nothing(phase: str) -> None:
    plan = planned("mixtral-8x7b", "hgx-h100", phase=phase)
    text = page(plan_doc(plan))
    found, score = check_safe(text), plan.score
    for name, seconds in score.terms_s.items():
        assert seconds == 0 or f"{name.replace('_', ' ')}: " in found.text
    for use in ("free", "reserved"):
        assert f"{use}: {format_quantity(score.hbm_bytes[use], 'byte', 3)}, " in found.text
    lines = found.charts["chart-throughput-against-speed-per-user"]["data"]
    assert lines[-1]["name"] == "this plan"
    place = [*lines[-1]["x"], *lines[-1]["y"]]
    assert place == pytest.approx([score.tok_s_per_user, score.tok_s_per_gpu], rel=1e-5)
    assert len(text) < 3e6
    assert text == page(plan_doc(plan))


def test_names_cannot_smuggle_anything_in() -> None:
    cluster = build_cluster(replace(resolve_cluster("hgx-h100").spec, name=EVIL))
    config = {**resolve_model("mixtral-8x7b").config, "num_hidden_layers": 2}
    plan = rackplan.plan(
        model_from_config(config, name=EVIL), cluster, phase="decode", batch=4, time_limit_s=0
    )
    text = page(plan_doc(plan))
    found = check_safe(text)
    assert found.text.count(EVIL) >= 3
    charts = json.dumps(found.charts)
    assert "<script" not in charts
    assert "<img" not in charts


def test_a_written_page_has_the_command_and_digests(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        json.dumps({"name": "<b onclick=x>", "domains": [{"part": "hgx-h100"}]}), encoding="utf-8"
    )
    result = run(*plan_of("mixtral-8x7b", "c.yaml", to="out"))
    assert (result.code, result.err) == (0, "")
    text = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    found = check_safe(text)
    assert "rackplan plan --phase decode --model mixtral-8x7b" in found.text
    assert "# SHA-256 of c.yaml: " in found.text
