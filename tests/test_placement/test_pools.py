"""Plans of several pools: one file, one account of what they serve, and every command that reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import rackplan
from placement.plan import Plan
from placement.plans.reading import read_plan
from placement.plans.writing import plan_to_dict, plan_to_json
from placement.pools import named_pools, one_pool, served_together
from test_placement.builders import joined
from topology.base.errors import InputError

MODEL = "mixtral-8x7b"


@cache
def unlike() -> Plan:
    """Pools of unlike replicas: a host of eight, one of seven and one of another chip."""
    cluster = joined("hgx-h100@16", "hgx-h200", broken=("d1.n0.g3",))
    return rackplan.plan(MODEL, cluster, isl=4000, osl=500, time_limit_s=0, tolerance=0)


@cache
def two_models() -> Plan:
    models = {MODEL: 0.25, "olmoe-1b-7b": 0.75}
    return rackplan.plan(models, "hgx-h100@16", isl=1000, osl=200, time_limit_s=0)


def saved(plan: Plan, folder: Path, change: Callable[[dict[str, Any]], object] = lambda _: None) -> Path:
    data = plan_to_dict(plan)
    data = json.loads(plan_to_json(data))
    change(data)
    path = folder / "plan.json"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize("made", [unlike, two_models])
def test_a_file_reads_back_with_all_pools(made: Callable[[], Plan], tmp_path: Path) -> None:
    plan = made()
    assert len(plan.pools) >= 3
    read = read_plan(saved(plan, tmp_path))
    assert not read.differences
    assert [pool.layout for pool in read.pools] == [pool.layout for pool in plan.pools]
    assert [pool.role for pool in read.pools] == [pool.role for pool in plan.pools]
    assert read.totals.tok_s == pytest.approx(plan.totals.tok_s)
    assert read.requests.ttft_s == pytest.approx(plan.requests.ttft_s)
    assert (read.decision, read.requests.shares) == (plan.decision, plan.requests.shares)
    for before, after in zip(plan_to_dict(plan)["pools"], plan_to_dict(read)["pools"], strict=True):
        for key in (
            "role",
            "model",
            "layout",
            "stages",
            "experts",
            "replicas",
            "gpus",
            "workload",
            "request",
        ):
            assert after[key] == before[key]


def test_the_root_is_the_first_pool_and_each_pool_has_gpus_of_its_own() -> None:
    data = plan_to_dict(unlike())
    for key in ("model", "layout", "stages", "experts"):
        assert data["pools"][0][key] == data[key]
    assert data["pools"][0]["role"] in ("decode", "both")
    ids = [gpu for pool in data["pools"] for stage in pool["stages"] for gpu in stage["gpus"]]
    assert len(ids) == len(set(ids))
    assert "d1.n0.g3" not in ids
    idle = {gpu for one in unlike().decision.idle for gpu in one.gpu_ids}
    assert not idle & set(ids)
    assert len(ids) + len(idle) == 23


def test_a_root_that_differs_from_the_first_pool_is_refused(tmp_path: Path) -> None:
    def other(data: dict[str, Any]) -> None:
        data["pools"][0]["stages"][0]["last_layer"] = 2

    with pytest.raises(InputError, match=r"pools\[0\]: stages: not as at the root"):
        read_plan(saved(unlike(), tmp_path, other))


def test_what_is_wrong_in_a_pool_is_named_with_the_pool(tmp_path: Path) -> None:
    def strange(data: dict[str, Any]) -> None:
        data["pools"][1]["model"] = "no-such-model"

    with pytest.raises(InputError, match=r"pools\[1\]: model: 'no-such-model' is not in inputs"):
        read_plan(saved(unlike(), tmp_path, strange))

    def edited(data: dict[str, Any]) -> None:
        data["pools"][1]["score"]["step_s"] = 1e-9

    assert "pools[1]: stored figures differ" in read_plan(saved(unlike(), tmp_path, edited)).differences


@pytest.mark.parametrize("made", [unlike, two_models])
def test_work_is_rate_times_time(made: Callable[[], Plan]) -> None:
    """Each pool does its part of the requests: decode pools by Little's law, none more than it can."""
    plan, found = made(), made().requests
    rate = plan.totals.tok_s / found.osl
    for pool, served, part in zip(plan.pools, found.pools, found.parts, strict=True):
        if served.role == "prefill":
            most = served.batch * served.gpus / served.step_s
            assert rate * part <= most * (1 + 1e-9)
            continue
        held = served.batch * served.gpus
        first_s = pool.score.step_s + pool.score.prefill_s if served.role == "both" else 0.0
        assert held == pytest.approx(rate * part * (found.osl * served.step_s + first_s), rel=0.02)
        assert served.step_s <= pool.score.step_s * (1 + 1e-9)
    models = [pool.deployment.model.name for pool in plan.pools]
    for name in set(models):
        parts = [
            part
            for part, own, pool in zip(found.parts, models, found.pools, strict=True)
            if own == name and pool.role != "prefill"
        ]
        assert sum(parts) == pytest.approx(found.shares.get(name, 1.0))


def test_a_pool_more_never_serves_less() -> None:
    plan = unlike()
    whole = served_together(plan.pools, plan.requests).totals.tok_s
    for left_out in range(1, len(plan.pools)):
        fewer = [pool for number, pool in enumerate(plan.pools) if number != left_out]
        roles = {pool.role for pool in fewer}
        if "both" in roles or {"decode", "prefill"} <= roles:
            assert served_together(fewer, plan.requests).totals.tok_s <= whole * (1 + 1e-9)


def test_scores_and_prices_are_of_all_pools(tmp_path: Path) -> None:
    plan = unlike()
    path = saved(plan, tmp_path)
    slower = rackplan.score(path, loads="zipf:1.5")
    assert len(slower.pools) == len(plan.pools)
    assert slower.totals.tok_s < plan.totals.tok_s
    dear = rackplan.score(path, prices={"h200": 50.0})
    assert dear.totals.usd_per_hour > plan.totals.usd_per_hour


def test_a_re_plan_is_of_one_pool_and_the_others_stay() -> None:
    plan = unlike()
    number = next(n for n, pool in enumerate(plan.pools) if len(pool.layout.replicas) > 1)
    lost = plan.pools[number].deployment.cluster.gpus[plan.pools[number].layout.gpus_in_use[0]].id
    found = rackplan.replan(plan, lost=[lost])
    assert found.lost_gpus == 1
    assert found.moved.role == plan.pools[number].role
    assert len(found.plan.pools) == len(plan.pools)
    assert found.plan.totals.tok_s <= plan.totals.tok_s
    for at, (before, after) in enumerate(zip(plan.pools, found.plan.pools, strict=True)):
        if at != number:
            assert after.layout == before.layout
    other = plan.deployment.cluster.gpus[plan.layout.gpus_in_use[0]].id
    with pytest.raises(InputError, match="one pool is re-planned at a time"):
        rackplan.replan(plan, lost=[lost, other])
    with pytest.raises(InputError, match="no such pool; it has 0 decode"):
        rackplan.replan(plan, pool=9)


def test_levers_are_of_one_pool() -> None:
    plan = unlike()
    names = named_pools(plan)
    assert len(set(names)) == len(names)
    alone = one_pool(plan, 1)
    assert alone.role == names[1].split()[0]
    assert rackplan.what_if(plan, pool=1).plan.layout == plan.pools[1].layout


def test_a_simulation_is_of_one_model() -> None:
    with pytest.raises(InputError, match="a simulation is of one model"):
        rackplan.simulate(two_models(), req_s=1)


def test_a_plan_of_unlike_pools_keeps_its_promise_in_the_simulator() -> None:
    plan = unlike()
    found = plan.requests
    in_flight = found.totals.requests_per_s * (found.tpot_s * found.osl + found.ttft_s)
    under = rackplan.simulate(plan, concurrency=max(1, round(in_flight))).found
    assert under.requests_per_s / found.totals.requests_per_s == pytest.approx(1, abs=0.07)


def test_pools_do_not_change_what_they_are_made_of() -> None:
    plan = unlike()
    alone = [replace(pool, requests=None, beside=()) for pool in plan.pools]
    assert served_together(alone, plan.requests).totals.tok_s == pytest.approx(plan.totals.tok_s)
