"""Scenarios, failures, copies and options of placement in a plan file: kept when read, refused when broken."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cost.experts.loads import read_loads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from helpers import few_layers
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.plans.findings import CurveLayout, RedundancyCurve, RedundancyPoint
from placement.plans.reading import read_plan
from placement.plans.writing import plan_to_dict, plan_to_json
from topology import resolve_cluster
from topology.base.errors import InputError


@cache
def found() -> Plan:
    """Four layers on two nodes of four GPUs, everything asked for."""
    model = few_layers("mixtral-8x7b", 4)
    deployment = Deployment(resolve_cluster("gb200-nvl72@8"), model, Workload(batch=3))
    loads = read_loads(["zipf:1", "uniform"], moe_layers=model.moe_layers, layers=4, experts=8, seed=0)
    options = PlanOptions(
        4, time_limit_s=0.0, ep=8, tp=1, stages=1, spread="node", objective="worst", split="source"
    )
    few = RedundancyPoint(0, 1, 0.5, 3, 90, 100.0, 0.02, 2e9)
    more = replace(few, redundant=8, slots_per_gpu=2, tok_s_per_gpu=140.0)
    curve = RedundancyCurve(layout=CurveLayout(8, 1, 1), points=(few, more))
    return replace(make_plan(deployment, loads, options), redundancy=curve)


@cache
def text_of_plan() -> str:
    return plan_to_json(plan_to_dict(found()))


def read(data: object, folder: Path) -> Plan:
    path = folder / "plan.json"
    path.write_text(json.dumps(data))
    return read_plan(path)


@pytest.mark.wide
def test_everything_reads_back(tmp_path: Path) -> None:
    plan = found()
    assert plan.scenarios is not None
    assert plan.failures is not None
    assert plan.redundancy is not None
    data = json.loads(text_of_plan())
    again = read(data, tmp_path)
    assert again.scenarios == plan.scenarios
    assert again.failures == plan.failures
    assert again.redundancy == plan.redundancy
    assert (again.split, again.spread, again.objective) == ("source", "node", "worst")
    assert (data["redundancy"]["chosen"], data["redundancy"]["knee"]) == (8, 8)
    assert again.score.step_s == pytest.approx(plan.score.step_s, rel=1e-12)
    assert again.balancedness == plan.balancedness
    assert plan_to_dict(again)["failures"] == data["failures"]
    assert "worst scenario, split source" in " ".join(data["proof"]["of"].replace(",", ", ").split())


def test_the_split_is_what_is_scored(tmp_path: Path) -> None:
    data = json.loads(text_of_plan())
    source = read(data, tmp_path).balancedness
    data["request"]["split"] = "lp"
    best = read(data, tmp_path).balancedness
    assert all(best[layer] >= source[layer] - 1e-6 for layer in source)
    assert best != source


def test_a_plan_that_breaks_its_failure_domains_is_not_legal(tmp_path: Path) -> None:
    data = json.loads(text_of_plan())
    rows = data["experts"]["layers"]["0"]
    copies = Counter(expert for row in rows for expert in row)
    for row in rows[1:3]:  # two more of the first, instead of what has copies to spare
        slot = max(range(len(row)), key=lambda slot: copies[row[slot]])
        copies[row[slot]] -= 1
        row[slot] = rows[0][0]
    with pytest.raises(InputError, match=r"of one failure domain, hold expert .: . of its . copies at most"):
        read(data, tmp_path)
    data["request"]["spread"] = "gpu"
    data["failures"] = None
    read(data, tmp_path)


BREAKS: list[tuple[tuple[str | int, ...], object, str]] = [
    (("request", "spread"), "pod", "request: spread: 'pod' must be"),
    (("scenarios", "rows", 0, "name"), "other", "scenarios: rows: of other"),
    (("failures", "layers", 0, "layer"), 9, "failures: layers[0]: layer"),
    (("failures", "experts"), [], "failures: experts: it lists 0"),
    (("failures", "what_if", 0, "worst"), "d9.n0.g0", "failures: what_if[0]: worst: 'd9.n0.g0' is not a gpu"),
    (("redundancy", "points", 0, "redundant"), 10_000, "redundancy: points"),
    (("redundancy", "layout", "ep"), "8", "redundancy: layout: ep"),
]


@pytest.mark.parametrize(("where", "value", "words"), BREAKS, ids=[words for _, _, words in BREAKS])
def test_broken_values_are_refused_by_place(
    tmp_path: Path, where: tuple[str | int, ...], value: object, words: str
) -> None:
    data: Any = json.loads(text_of_plan())
    inner = data
    for step in where[:-1]:
        inner = inner[step]
    assert inner[where[-1]] != value
    inner[where[-1]] = value
    with pytest.raises(InputError) as refused:
        read(data, tmp_path)
    text = str(refused.value)
    assert words in text
    assert "\n" not in text
