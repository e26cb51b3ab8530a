"""``report.html`` and its pictures: figures of the score, nothing to load, nothing a name could smuggle in."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import rackplan
from cost.config.build import model_from_config
from cost.dtypes import bytes_per_param
from cost.resolve import resolve_model
from goldens import require_doc
from helpers import planned
from page_check import EVIL, Page, require_safe
from placement.analysis.comparison import Comparison
from placement.plan import Plan
from placement.scoring import away_share, gpu_load
from rackplan.report import assets
from rackplan.report.compare import compare_doc
from rackplan.report.page import page
from rackplan.report.pictures import racks
from rackplan.report.pictures.experts import expert_map
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


def made(cluster: str, stages: int = 1) -> Plan:
    return planned("deepseek-v2-lite", cluster, stages=stages, loads="lognormal:1")


def unpacked(text: str, dtype: str) -> Any:
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.mark.parametrize(("cluster", "stages"), [("hgx-h200", 1), ("hgx-h200@16", 2)])
def test_the_map_holds_every_slot_and_load_of_the_plan(cluster: str, stages: int) -> None:
    plan = made(cluster, stages)
    picture = expert_map(plan)
    assert picture is not None
    data = picture.data
    assert unpacked(data["layers"], "<i4").tolist() == list(plan.deployment.model.moe_layers)
    assert len(data["groups"]) == len(plan.layout.replicas[0]) == stages
    for group, stage, entry in zip(data["groups"], plan.layout.replicas[0], plan.experts, strict=True):
        assert entry is not None
        assert unpacked(group["slots"], "<u2").tolist() == entry.slots_per_gpu.tolist()
        kinds = unpacked(group["experts"], "<u2").reshape(-1, entry.slots)
        rows = unpacked(group["row_of"], "<u2") if group["row_of"] else np.arange(entry.layers)
        assert (kinds[rows] == entry.slot_expert).all()
        load = unpacked(group["load"], "<u2").reshape(entry.layers, entry.gpus) * data["load_step"]
        assert load == pytest.approx(gpu_load(plan, stage, entry), abs=data["load_step"])
        # the load of a layer's fullest GPU is what its balancedness says
        for row, layer in enumerate(at for at in plan.deployment.model.moe_layers if at in stage.layers):
            assert 1 / load[row].max() == pytest.approx(plan.balancedness[layer], rel=1e-3)
    ids = [gpu.id for gpu in plan.deployment.cluster.gpus]
    assert data["gpus"] == [ids[gpu] for stage in plan.layout.replicas[0] for gpu in stage.gpus]
    for runs in ("nodes", "racks", "domains"):
        assert sum(count for _, count in data[runs]) == len(data["gpus"])


def test_scripts_write_no_markup_and_ask_for_nothing() -> None:
    text = assets.script()
    code = re.sub(r"//.*", "", text)
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch(", "XMLHttp"):
        assert word not in code
    assert "url(" not in assets.style()
    assert "@import" not in assets.style()


@pytest.fixture(scope="module")
def staged() -> Comparison:
    """Return a comparison in which one cluster is too small for a domain to hold the model."""
    return rackplan.compare(["hgx-h100@16", "gb200-nvl72@16"], "deepseek-v3", phase="decode", tok_s_user=60)


@pytest.fixture(scope="module")
def pooled() -> Comparison:
    """Return a comparison with two pools, the layout of one of which no plan has."""
    return rackplan.compare(["hgx-h100@8", "lecture-8"], "mixtral-8x7b", tok_s_user=40)


def _squares(drawn: str) -> list[str]:
    paths = re.findall(r'<path d="([^"]*)" class="gpus"', drawn)
    return [square for path in paths for square in re.findall(r"h[^M]*z", path)]


def test_every_gpu_is_drawn_once_at_one_scale(staged: Comparison, pooled: Comparison) -> None:
    for found in (staged, pooled):
        text = page(compare_doc(found))
        squares = _squares(text)
        assert len(squares) == sum(len(side.cluster.gpus) for side in found.deployments)
        assert len(set(squares)) == 1


def test_words_and_boxes_of_clusters_are_apart(staged: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of domains that is full begins another; stages that have no line are counted."""
    monkeypatch.setattr("rackplan.report.pictures.racks.MAX_STAGES", 1)
    many = rackplan.compare(["hgx-h100@256"], "mixtral-8x7b", phase="decode", tok_s_user=40)
    for comparison in (staged, many):
        drawing = racks.racks_picture(comparison.placements, "").svg
        end = float(re.findall(r'viewBox="0 0 \d+ ([\d.]+)"', drawing)[0])
        boxes = [
            (float(x), float(y), float(x) + float(wide), float(y) + float(tall))
            for x, y, wide, tall in re.findall(
                r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', drawing
            )
        ]
        for x, y, words in re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)', drawing):
            boxes.append((float(x), float(y) - 10, float(x) + 5 * len(words), float(y)))
        for a, b in combinations(boxes, 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)
        assert all(x2 <= racks.WIDTH and y2 <= end for _, _, x2, y2 in boxes)
        assert ("... 1 more stages" in drawing, "S1:" in drawing) == (comparison is staged,) * 2


def test_gpus_that_are_folded_are_counted(staged: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackplan.report.pictures.racks.MAX_SQUARES", 4)
    for placement, domains in zip(staged.placements, (2, 1), strict=True):
        drawn = racks.folded(placement)
        assert len(drawn) == domains
        rows = [(domain.more + 1) * (more + 1) * len(rack) for domain in drawn for rack, more in domain.racks]
        assert sum(rows) == 16


def test_figures_by_hand(staged: Comparison) -> None:
    doc = compare_doc(staged)
    require_doc(doc)
    (hgx, row), (one, other) = zip(staged.placements, doc.data["placements"], strict=True)
    assert (row["stages"], row["in_domain"], row["away_share"]) == (2, True, 0.0)
    model = staged.deployments[0].model
    assert row["hop_bytes_per_step"] == pytest.approx(row["batch"] * 16 * model.hidden * 2)
    assert [told["hop_bytes_per_s"] for told in (row, other)] == pytest.approx([50e9, 900e9])
    for placement, told in ((hgx, row), (one, other)):
        plan, moe = placement.plan, model.moe
        assert plan is not None
        assert moe is not None
        assert told["layout"] == placement.row.layout == plan.layout.short(moe=True)
        assert (told["gap"], told["status"]) == (plan.proof.gap, plan.proof.status)
        assert told["balancedness"] == pytest.approx(np.mean(list(plan.balancedness.values())))
        slots = [part.slots_per_gpu.max() * part.layers for part in plan.experts if part is not None]
        held = max(slots) * moe.expert_params * bytes_per_param(model.precision["experts"])
        # a step reads what its tokens use, of each micro-batch
        assert 0.1 * held < told["expert_read_bytes_per_step"] / told["stages"] <= held


def test_experts_over_domains_are_mostly_elsewhere() -> None:
    plan = rackplan.plan("deepseek-v3", "hgx-h100@32", phase="decode", ep=32, stages=1, time_limit_s=0)
    assert away_share(plan) == pytest.approx(24 / 32, abs=0.01)
