"""The data of pictures: they hold what the plan holds, add up, and stay small."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cost.assignment import Assignment
from cost.deployment import Deployment
from cost.loads import ExpertLoads
from cost.resolve import resolve_model
from cost.terms.work import RESOURCES
from cost.workload import Workload
from placement.findings import Losses
from placement.migrate.steps import Step, Transfers
from placement.options import PlanOptions
from placement.planner import make_plan
from placement.scoring import score_placement
from rackplan.options import model_loads
from rackplan.render import pictures
from rackplan.views.blocks import Picture
from rackplan.views.pictures import experts
from rackplan.views.pictures.experts import expert_map, expert_map_blocks, gpu_load, map_table
from rackplan.views.pictures.failures import failure_strips
from rackplan.views.pictures.links import link_bars
from rackplan.views.pictures.memory import memory_picture
from rackplan.views.pictures.moves import moves_pictures
from rackplan.views.pictures.step import hidden_s
from topology import resolve_cluster

if TYPE_CHECKING:
    from placement.plan import Plan


@cache
def made(model: str, cluster: str, stages: int = 1) -> Plan:
    deployment = Deployment(resolve_cluster(cluster), resolve_model(model), Workload())
    options = PlanOptions(time_limit_s=0.0, stages=stages)
    loads = model_loads(deployment.model, ["lognormal:1"] if deployment.model.moe else [], 0)
    return make_plan(deployment, loads, options)


def unpacked(text: str, dtype: str) -> Any:
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.mark.parametrize(("cluster", "stages"), [("hgx-h200", 1), ("hgx-h200@16", 2)])
def test_the_map_holds_every_slot_and_load_of_the_plan(cluster: str, stages: int) -> None:
    plan = made("deepseek-v2-lite", cluster, stages)
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
    table = map_table(plan)
    assert [row[0] for row in table.rows] == [str(layer) for layer in plan.deployment.model.moe_layers]


def big(rows: int, gpus: int, experts: int, seed: int = 0) -> Plan:
    """A plan with the experts of many layers on many GPUs, as no planner has made them."""
    plan = made("deepseek-v2-lite", "hgx-h200")
    rng = np.random.default_rng(seed)
    deployment = plan.deployment
    model = replace(deployment.model, layers=(deployment.model.layers[-1],) * rows)
    cluster = resolve_cluster(f"hgx-h200@{gpus}")
    slots = np.array([rng.permutation(experts) for _ in range(rows)], dtype=np.int32)
    entry = Assignment(slots, np.sort(np.arange(experts) % gpus).astype(np.int32), experts, gpus)
    loads = ExpertLoads(rng.lognormal(size=(1, rows, experts)), ("many",), synthetic=True)
    stage = replace(plan.layout.replicas[0][0], layers=range(rows), gpus=tuple(range(gpus)))
    layout = replace(plan.layout, replicas=((stage,),))
    where = replace(deployment, model=model, cluster=cluster)
    return replace(plan, deployment=where, layout=layout, experts=(entry,), loads=loads)


def test_a_map_of_58_layers_on_576_gpus_is_small() -> None:
    picture = expert_map(big(58, 576, 576))
    assert picture is not None
    assert picture.data["groups"]
    assert len(json.dumps(picture.data)) < 300_000


def test_a_map_beyond_its_room_is_blocks_with_the_largest_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts, "MOST_BYTES", 900)
    plan = big(60, 24, 48)
    picture = expert_map(plan)
    assert picture is not None
    data = picture.data
    high, wide = data["block"]
    assert high * wide > 1
    assert len(data["load"]) <= 900
    load = unpacked(data["load"], "u1").reshape(-(-60 // high), -(-24 // wide)) * data["load_step"]
    entry = plan.experts[0]
    assert entry is not None
    exact = gpu_load(plan, plan.layout.replicas[0][0], entry)
    for row in range(load.shape[0]):
        for column in range(load.shape[1]):
            block = exact[row * high : (row + 1) * high, column * wide : (column + 1) * wide]
            assert load[row, column] == pytest.approx(min(block.max(), 255 / 64), abs=1 / 64)


def test_layers_alike_are_sent_once() -> None:
    plan = made("deepseek-v2-lite", "hgx-h200")
    entry = plan.experts[0]
    assert entry is not None
    same = replace(entry, slot_expert=np.tile(entry.slot_expert[:1], (entry.layers, 1)))
    picture = expert_map(replace(plan, experts=(same,)))
    assert picture is not None
    (group,) = picture.data["groups"]
    assert len(unpacked(group["experts"], "<u2")) == entry.slots


def test_no_map_without_experts() -> None:
    assert expert_map_blocks(made("llama-3.1-8b", "hgx-h200")) == []


@pytest.mark.parametrize(("model", "experts"), [("deepseek-v2-lite", True), ("llama-3.1-8b", False)])
def test_hbm_is_filled_by_its_uses(model: str, experts: bool) -> None:
    plan = made(model, "hgx-h200")
    data = memory_picture(plan).data
    assert data["total"] == pytest.approx(sum(plan.score.hbm_bytes.values()))
    assert sum(use["bytes"] for use in data["uses"]) == pytest.approx(data["total"])
    assert [use["name"] for use in data["uses"] if use["name"] == "experts"] == ["experts"] * experts
    held = {use["name"]: use["bytes"] for use in data["uses"]}
    assert held.get("experts", 0.0) + held["weights"] == pytest.approx(plan.score.hbm_bytes["weights"])


def test_strips_hold_what_each_loss_leaves() -> None:
    plan = made("deepseek-v2-lite", "hgx-h200@16", 1)
    assert plan.failures is not None
    picture = failure_strips(plan.failures, plan.score.tok_s_per_gpu)
    assert picture is not None
    for strip, row in zip(picture.data["strips"], plan.failures.what_if, strict=True):
        assert len(strip["left"]) == len(strip["names"]) == row.tried
        assert min(strip["tok_s_per_gpu"]) == pytest.approx(row.tok_s_per_gpu_worst, abs=0.01)
        assert strip["names"][strip["tok_s_per_gpu"].index(min(strip["tok_s_per_gpu"]))] == row.worst
        assert max(strip["tokens_lost"]) == pytest.approx(row.tokens_lost_most, abs=1e-6)
        assert sum(strip["tokens_lost"]) / row.tried == pytest.approx(row.tokens_lost_mean, abs=1e-6)
    before = replace(
        plan.failures, what_if=tuple(replace(row, each=Losses()) for row in plan.failures.what_if)
    )
    assert failure_strips(before, plan.score.tok_s_per_gpu) is None  # a plan of an earlier version


def test_links_are_busy_as_the_score_says() -> None:
    plan = made("deepseek-v2-lite", "hgx-h200@16")
    links = {link["name"].split()[0]: link for link in link_bars(plan).data["links"]}
    fabrics = {name for name in plan.score.floor_s if name not in RESOURCES}
    assert fabrics <= set(links)
    for name, link in links.items():
        assert link["seconds"] == plan.score.floor_s.get(name, 0.0)
        assert link["waited_s"] == plan.score.limits_s.get(name, 0.0)
        assert all(tier["seconds"] <= link["seconds"] * (1 + 1e-9) for tier in link["tiers"])


def test_the_moves_of_a_replan_arrive_where_it_says() -> None:
    plan = made("deepseek-v2-lite", "hgx-h200@16", 2)
    first, second = plan.layout.replicas[0]
    layers = list(plan.deployment.model.moe_layers)
    late = next(layer for layer in layers if layer in second.layers)
    moved = [(layers[0], first.gpus[3]), (late, second.gpus[1]), (late, second.gpus[1])]
    steps = [Step(layer, gpu, slot, 5, 6) for slot, (layer, gpu) in enumerate(moved)]
    amounts = {"node": 2e9, "domain": 0.0, "rack": 0.0, "across": 1e9, "storage": 0.0}
    transfer = Transfers(None, amounts, "")
    found: Any = SimpleNamespace(plan=plan, moves=3, steps=steps, transfer=transfer)
    bar, picture = moves_pictures(found)
    assert isinstance(bar, Picture)
    assert isinstance(picture, Picture)
    assert [(use["name"], use["bytes"]) for use in bar.data["uses"]] == [("node", 2e9), ("across", 1e9)]
    arrived = unpacked(picture.data["arrived"], "u1").reshape(picture.data["rows"], -1)
    ids, gpus = picture.data["gpus"], plan.deployment.cluster.gpus
    for step in steps:
        assert arrived[layers.index(step.layer), ids.index(gpus[step.gpu].id)] == (
            1 if step is steps[0] else 2
        )
    assert arrived.sum() == 3


def test_what_computing_hides_is_what_two_half_batches_send() -> None:
    deployment = Deployment(
        resolve_cluster("hgx-h200@16"), resolve_model("deepseek-v2-lite"), Workload(overlap=True, batch=64)
    )
    loads = model_loads(deployment.model, [], 0)
    plan = make_plan(deployment, loads, PlanOptions(time_limit_s=0.0, ep=16))
    share = deployment.machine(plan.layout.replicas[0][0]).efficiency["overlap"]
    alone = replace(plan.deployment, workload=replace(plan.deployment.workload, overlap=False))
    half = score_placement(alone.with_batch(plan.score.batch // 2), plan.layout, plan.experts, loads)[0]
    found = hidden_s(plan.score, share)
    assert plan.score.batch % 2 == 0
    assert found
    for name, seconds in found.items():
        assert plan.score.terms_s[name] + seconds == pytest.approx(2 * half.terms_s[name], rel=1e-6)
    assert hidden_s(half, 0.0) == {}


def test_scripts_write_no_markup_and_ask_for_nothing() -> None:
    text = pictures.script()
    code = re.sub(r"//.*", "", text)
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch(", "XMLHttp"):
        assert word not in code
    assert "url(" not in pictures.style()
    assert "@import" not in pictures.style()
