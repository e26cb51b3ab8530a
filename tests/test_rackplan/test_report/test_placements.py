"""Placements of compared clusters: figures by hand, and every GPU of each plan drawn or counted."""

from __future__ import annotations

import re

import numpy as np
import pytest

import rackplan
from cost.dtypes import bytes_per_param
from goldens import require_doc
from placement.analysis.comparison import Comparison
from placement.scoring import away_share
from rackplan.report.compare import compare_doc
from rackplan.report.page import page
from rackplan.report.pictures import racks


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


def test_gpus_that_are_folded_are_counted(staged: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racks, "MAX_SQUARES", 4)
    # two nodes, a stage each; one domain, which has both; and a single stage in two nodes that look alike
    alike = rackplan.compare(["hgx-h100@16"], "deepseek-v3", phase="decode", tok_s_user=20)
    for placement, domains in zip((*staged.placements, *alike.placements), (2, 1, 1), strict=True):
        drawn = racks.folded(placement)
        assert len(drawn) == domains
        gpus = sum(
            (domain.more + 1) * sum((more + 1) * len(rack) for rack, more in domain.racks) for domain in drawn
        )
        assert gpus == 16


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
