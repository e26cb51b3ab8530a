"""The data of pictures: they hold what the plan holds, add up, and stay small."""

from __future__ import annotations

import base64
import re
from typing import Any

import numpy as np
import pytest

from helpers import planned
from placement.plan import Plan
from placement.scoring import gpu_load
from rackplan.report import assets
from rackplan.report.pictures.experts import expert_map
from rackplan.report.pictures.overlay import plan_overlay


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


def test_the_drawing_shows_the_layer_that_waits_longest() -> None:
    plan = made("hgx-h200")
    overlay = plan_overlay(plan)
    layer = min(plan.balancedness, key=lambda one: plan.balancedness[one])
    assert overlay.values is not None
    assert 1 / max(overlay.values) == pytest.approx(plan.balancedness[layer], rel=1e-3)
    assert f"layer {layer}, the least balanced" in overlay.cells[-1]
    entry = plan.experts[0]
    assert entry is not None
    row = plan.deployment.model.moe_layers.index(layer)
    held = [sorted(map(int, text.removeprefix("e").split())) for text in overlay.details[1]]
    placed = [sorted(entry.slot_expert[row, entry.slot_gpu == gpu]) for gpu in range(entry.gpus)]
    assert held == placed * len(plan.layout.replicas)


def test_scripts_write_no_markup_and_ask_for_nothing() -> None:
    text = assets.script()
    code = re.sub(r"//.*", "", text)
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch(", "XMLHttp"):
        assert word not in code
    assert "url(" not in assets.style()
    assert "@import" not in assets.style()
