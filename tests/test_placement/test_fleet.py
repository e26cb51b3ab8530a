"""Fleets on small clusters: never below one layout everywhere, within the service level, and said why where not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import pytest

import placement.fleet.fleet
from cost.experts.loads import read_loads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.serving.lengths import Lengths, serving_workloads
from cost.serving.serving import Serving
from helpers import few_layers
from placement.fleet import plans
from placement.fleet.fleet import Fleet, make_fleet, verify_fleet
from placement.fleet.options import DECODE, PREFILL, FleetOptions, Traffic
from placement.fleet.pricing import Column, with_figures
from placement.fleet.uniform import best_uniform
from placement.plan import Plan
from topology import Cluster, InfeasibleError, InputError, resolve_cluster
from topology.build import build_cluster
from topology.spec import Fault


@cache
def broken(name: str, *gpus: str) -> Cluster:
    """A cluster without some GPUs."""
    return build_cluster(replace(resolve_cluster(name).spec, faults=tuple(Fault(gpu=gpu) for gpu in gpus)))


def traffic(
    cluster: Cluster,
    *names: str,
    isl: int = 0,
    osl: int = 1,
    tpot_s: float | None = 0.05,
    **more: float | None,
) -> Traffic:
    """The traffic of some models, cut to four layers, in equal shares."""
    pairs = []
    for name in names:
        whole = Deployment(cluster, few_layers(name, 4), Workload(2000))
        if not isl:
            pairs.append((whole, None))
            continue
        decode, prefill = serving_workloads(whole.workload, isl, osl)
        pairs.append((replace(whole, workload=decode), replace(whole, workload=prefill)))
    limit = more.get("ttft_s", 2.0) if isl else None
    return Traffic(
        tuple(pairs), (1 / len(names),) * len(names), isl, osl, tpot_s, limit, None if isl else 1.0
    )


@cache
def fleet(cluster: str, model: str, isl: int = 0, *gone: str, **asked: float) -> Fleet:
    where = broken(cluster, *gone)
    served = traffic(where, model, isl=isl, osl=100 if isl else 1)
    return make_fleet(where, served, FleetOptions(**asked))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cluster", "isl"), [("hgx-h100@24", 0), ("hgx-h100@24", 1000), ("gb200-nvl72@36", 0)]
)
def test_never_below_one_layout_everywhere(cluster: str, isl: int) -> None:
    found = fleet(cluster, "mixtral-8x7b", isl)
    best = best_uniform(found.traffic)
    assert best is not None
    assert found.tok_s >= best.tok_s * (1 - 1e-6)
    assert found.proof.gap <= 0.01
    assert found.tok_s == found.proof.objective <= found.proof.bound
    assert verify_fleet(found) == []


def test_every_gpu_that_works_stands_once_or_is_idle() -> None:
    found = fleet("hgx-h100@24", "mixtral-8x7b", 1000, "d1.n0.g3", "d1.n0.g4")
    ids = {found.cluster.gpus[gpu].id for gpu in found.used()}
    assert not ids & {"d1.n0.g3", "d1.n0.g4"}
    idle = [gpu for one in found.idle for gpu in one.gpus]
    assert len(found.used()) + len(idle) == 22
    assert len({*found.used(), *idle}) == 22
    for phase in (DECODE, PREFILL):
        assert sum(pool.share for pool in found.pools if phase in pool.column.phases) == pytest.approx(1)


def test_fewest_gpus_for_so_many_tokens() -> None:
    whole = fleet("hgx-h100@24", "mixtral-8x7b", 1000)
    asked = fleet("hgx-h100@24", "mixtral-8x7b", 1000, tok_s=whole.tok_s / 4)
    assert asked.options.wanted == "gpus"
    assert asked.tok_s >= whole.tok_s / 4 * (1 - 1e-6)
    assert asked.proof.status == "OPTIMAL"
    assert asked.gpus_used == asked.proof.objective
    assert asked.gpus_used <= 8
    half = fleet("hgx-h100@24", "mixtral-8x7b", 1000, tok_s=whole.tok_s / 4, utilization=0.5)
    assert half.tok_s >= whole.tok_s / 2 * (1 - 1e-6)
    assert any("without them" in one.reason for one in asked.idle)


def test_what_is_out_of_reach_says_how_far_one_gets() -> None:
    whole = fleet("hgx-h100@24", "mixtral-8x7b", 1000)
    with pytest.raises(InfeasibleError, match="is out of reach: the available GPUs serve at most"):
        fleet("hgx-h100@24", "mixtral-8x7b", 1000, tok_s=whole.tok_s * 1.1)
    where = broken("hgx-h100@8")
    with pytest.raises(InfeasibleError, match=r"the fastest takes .* ms a token"):
        make_fleet(where, traffic(where, "mixtral-8x7b", tpot_s=1e-6), FleetOptions())
    with pytest.raises(InfeasibleError, match=r"the fastest takes .* ms"):
        make_fleet(where, traffic(where, "mixtral-8x7b", isl=1000, osl=10, ttft_s=1e-6), FleetOptions())


def test_a_limit_that_nobody_asked_for_is_left_out_where_nothing_holds_it() -> None:
    where = broken("hgx-h100@8")
    served = replace(traffic(where, "mixtral-8x7b", tpot_s=1e-6), usual=frozenset({"tpot_s"}))
    found = make_fleet(where, served, FleetOptions())
    assert found.traffic.tpot_s is None
    assert "default limit is left out" in found.notes[0]


def test_least_per_token_where_no_number_of_tokens_is_asked_for() -> None:
    best = fleet("hgx-h100@24", "mixtral-8x7b", 1000, goal="gpus")
    whole = fleet("hgx-h100@24", "mixtral-8x7b", 1000)
    assert best.tok_s / best.gpus_used >= whole.tok_s / whole.gpus_used * (1 - 2e-3)


def test_spares_are_kept_out() -> None:
    found = fleet("hgx-h100@24", "mixtral-8x7b", 0, spares=1)
    (spare,) = [one for one in found.idle if one.spare]
    assert [found.cluster.gpus[gpu].domain for gpu in spare.gpus] == [2] * 8
    with pytest.raises(InputError, match="3 domains"):
        fleet("hgx-h100@24", "mixtral-8x7b", 0, spares=3)


def test_two_models_share_a_cluster() -> None:
    where = broken("hgx-h100@16")
    served = traffic(where, "mixtral-8x7b", "qwen3-235b-a22b", isl=1000, osl=100)
    found = make_fleet(where, served, FleetOptions())
    for model, phase in product((0, 1), (DECODE, PREFILL)):
        mine = [one for one in found.pools if one.model == model and phase in one.column.phases]
        assert sum(pool.requests_per_s for pool in mine) >= found.requests_per_s / 2 * (1 - 1e-6)


def placed_fleet(where: Cluster, served: Traffic, *loads: str, **asked: object) -> Fleet:
    """A fleet whose experts are placed under these loads."""
    model = served.deployments[0][0].model
    assert model.moe is not None
    size = {"moe_layers": model.moe_layers, "layers": len(model.layers), "experts": model.moe.experts}
    tokens = read_loads(list(loads), seed=0, **size)  # type: ignore[arg-type]
    return make_fleet(where, replace(served, loads=(tokens,)), FleetOptions(**asked))  # type: ignore[arg-type]


@pytest.mark.parametrize("goal", ["throughput", "gpus"])
@pytest.mark.parametrize("loads", ["lognormal:0.63", "zipf:1.0"])
def test_a_fleet_serves_what_its_plans_do(loads: str, goal: str) -> None:
    where = broken("hgx-h100@16", "d0.n0.g1")
    served = traffic(where, "mixtral-8x7b", isl=1000, osl=100)
    found = placed_fleet(where, served, loads, goal=goal)
    assert verify_fleet(found) == []
    for pool, made in zip(found.pools, found.plans, strict=True):
        assert made.plan is not None
        plan = made.plan
        ours = [plan.deployment.cluster.gpus[g].id for stage in plan.layout.replicas[0] for g in stage.gpus]
        assert ours == [found.cluster.gpus[gpu].id for gpu in pool.replicas[0].gpus]
        assert (plan.layout.tp, plan.layout.stages) == (pool.column.tp, pool.column.shape.stages)
        assert pool.column.step_s <= pool.column.limit_s
        assert plan.score.batch == pool.column.batch
        assert plan.score.tok_s_per_gpu * len(ours) == pytest.approx(pool.column.tok_s)
        # what the search counted on
        assert pool.column.tok_s >= 0.99 * pool.replicas[0].column.tok_s
    assert "with experts placed" in found.unit
    figure = found.tok_s if goal == "throughput" else found.gpus_used / found.tok_s
    assert found.proof.objective == pytest.approx(figure, rel=1e-4)
    assert found.notes == ()


@pytest.mark.parametrize(("tpot_s", "way"), [(0.05, "both"), (0.0018, "prefill")])
def test_one_pool_or_two_as_a_sweep_says(tpot_s: float, way: str) -> None:
    where = broken("hgx-h100@24")
    served = traffic(where, "mixtral-8x7b", isl=1000, osl=100, tpot_s=tpot_s)
    whole = Deployment(where, few_layers("mixtral-8x7b", 4), Workload())
    serving = Serving.of(whole, Lengths.of(1000, 100), ttft_s=2.0, speeds=[1 / tpot_s], cut_experts=False)
    row, best = serving.best(tpot_s), best_uniform(served)
    assert row is not None
    assert best is not None
    assert best.tok_s == pytest.approx(row.requests_per_s * 100)
    found = make_fleet(where, served, FleetOptions())
    assert found.tok_s >= best.tok_s * (1 - 1e-6)
    assert way in {pool.role for pool in found.pools}


def test_what_plans_do_not_reach_is_priced_and_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of what is chosen first give a quarter less than the fast way found."""
    where = broken("hgx-h100@8")
    served = traffic(where, "mixtral-8x7b")
    first = placed_fleet(where, served, "zipf:1.0").pools[0].column
    rate = plans.as_planned

    def less(column: Column, plan: Plan) -> Column:
        made = rate(column, plan)
        worse = (column.shape, column.tp) == (first.shape, first.tp)
        return with_figures(made, made.tok_s * 0.75, made.batch, made.step_s) if worse else made

    monkeypatch.setattr(placement.fleet.fleet, "as_planned", less)
    again = placed_fleet(where, served, "zipf:1.0")
    assert (first.shape, first.tp) not in {(pool.column.shape, pool.column.tp) for pool in again.pools}
    assert again.tok_s > 0.75 * first.tok_s * 8 / first.shape.gpus
    assert again.notes == ()


def test_options_that_cannot_be_are_refused() -> None:
    for asked, word in (
        ({"goal": "speed"}, "expected throughput, gpus, usd or power"),
        ({"tok_s": float("nan")}, "above 0"),
        ({"tok_s": -1.0}, "above 0"),
        ({"utilization": 0.0, "tok_s": 1.0}, "above 0 and at most 1"),
        ({"utilization": 0.5}, "only with `tok_s`"),
        ({"spares": -1}, "0 or more"),
        ({"time_limit_s": 0.0}, "seconds above 0"),
    ):
        with pytest.raises(InputError, match=word):
            FleetOptions(**asked)  # type: ignore[arg-type]


def test_a_replica_is_as_fast_alone_as_in_the_cluster() -> None:
    spec = resolve_cluster("hgx-h100@16").spec
    where = build_cluster(replace(spec, faults=(Fault(link=("d1.n0.g2", "d1.s1"), factor=0.5),)))
    found = placed_fleet(where, traffic(where, "mixtral-8x7b"), "zipf:1.0")
    assert any(where.gpus[gpu].id == "d1.n0.g2" for gpu in found.used())
    for made in found.plans:
        assert made.plan is not None
        one = made.plan.deployment
        alone = Deployment(one.cluster, one.model, one.workload)
        for stage in made.plan.layout.replicas[0]:
            assert one.machine(stage).rates == alone.machine(stage).rates
