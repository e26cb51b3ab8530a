"""Fleets on small clusters: never below one layout everywhere, as sizes say of the same hardware, refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import cost.serving.units
import placement.fleet.fleet
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.serving.lengths import Lengths, serving_workloads
from cost.serving.serving import Serving
from cost.serving.sizing import Demand, size
from helpers import few_layers
from placement.fleet import plans
from placement.fleet.fleet import Fleet, make_fleet, verify_fleet
from placement.fleet.options import FleetOptions, Traffic
from placement.fleet.pricing import Column, with_figures
from placement.fleet.supply import FleetOnUnits
from placement.fleet.uniform import best_uniform
from placement.plan import Plan
from test_placement.builders import joined, loads_for
from topology import Cluster, InfeasibleError, InputError, resolve_cluster
from topology.build import build_cluster, raw_cluster_spec
from topology.spec import Fault, RawLink, RawNode, RawTopology


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
def fleet(cluster: str, model: str, isl: int = 0, **asked: float) -> Fleet:
    where = resolve_cluster(cluster)
    served = traffic(where, model, isl=isl, osl=100 if isl else 1)
    return make_fleet(where, served, FleetOptions(**asked))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cluster", "isl"), [("hgx-h100@24", 0), ("hgx-h100@24", 1000), ("gb200-nvl72@36", 0)]
)
def test_never_below_one_layout_everywhere(cluster: str, isl: int) -> None:
    found = fleet(cluster, "mixtral-8x7b", isl)
    best = best_uniform(found.traffic)
    assert found.tok_s >= best.tok_s * (1 - 1e-6)
    assert found.proof.gap <= 0.01
    assert found.tok_s == found.proof.objective <= found.proof.bound
    assert verify_fleet(found) == []


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
    where = resolve_cluster("hgx-h100@8")
    with pytest.raises(InfeasibleError, match=r"the fastest takes .* ms a token"):
        make_fleet(where, traffic(where, "mixtral-8x7b", tpot_s=1e-6), FleetOptions())
    with pytest.raises(InfeasibleError, match=r"the fastest takes .* ms"):
        make_fleet(where, traffic(where, "mixtral-8x7b", isl=1000, osl=10, ttft_s=1e-6), FleetOptions())


def test_a_limit_that_nobody_asked_for_is_left_out_where_nothing_holds_it() -> None:
    where = resolve_cluster("hgx-h100@8")
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


def placed_fleet(where: Cluster, served: Traffic, *loads: str, **asked: object) -> Fleet:
    """A fleet whose experts are placed under these loads."""
    model = served.deployments[0][0].model
    placed = replace(served, loads=(loads_for(model, *loads),))
    return make_fleet(where, placed, FleetOptions(**asked))  # type: ignore[arg-type]


@pytest.mark.parametrize("goal", ["throughput", "gpus"])
@pytest.mark.parametrize("loads", ["lognormal:0.63", "zipf:1.0"])
def test_a_fleet_serves_what_its_plans_do(loads: str, goal: str) -> None:
    where = joined("hgx-h100@16", broken=("d0.n0.g1",))
    served = traffic(where, "mixtral-8x7b", isl=1000, osl=100)
    found = placed_fleet(where, served, loads, goal=goal)
    assert verify_fleet(found) == []
    for pool, made in zip(found.pools, found.plans, strict=True):
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


@pytest.mark.parametrize(
    ("isl", "osl", "tpot_s", "way"), [(200, 1000, 0.006, "both"), (1000, 100, 0.0018, "prefill")]
)
def test_one_pool_or_two_as_a_sweep_says(isl: int, osl: int, tpot_s: float, way: str) -> None:
    where = resolve_cluster("hgx-h100@24")
    served = traffic(where, "mixtral-8x7b", isl=isl, osl=osl, tpot_s=tpot_s)
    whole = Deployment(where, few_layers("mixtral-8x7b", 4), Workload())
    serving = Serving.of(whole, Lengths.of(isl, osl), ttft_s=2.0, speeds=[1 / tpot_s], cut_experts=False)
    row, best = serving.best(tpot_s), best_uniform(served)
    if row.one_pool:
        assert best.tok_s == pytest.approx(row.requests_per_s * osl)
    else:  # replicas that share requests wait less than each by itself
        assert 0.7 * row.requests_per_s * osl < best.tok_s < row.requests_per_s * osl * (1 + 1e-4)
    found = make_fleet(where, served, FleetOptions())
    assert found.tok_s >= best.tok_s * (1 - 1e-6)
    assert way in {pool.role for pool in found.pools}


def test_what_plans_do_not_reach_is_priced_and_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of what is chosen first give a quarter less than the fast way found."""
    where = resolve_cluster("hgx-h100@8")
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
        one = made.plan.deployment
        alone = Deployment(one.cluster, one.model, one.workload)
        for stage in made.plan.layout.replicas[0]:
            assert one.machine(stage).rates == alone.machine(stage).rates


# --- sizes and fleets

TPOT = 0.02
LENGTHS = Lengths.of(2000, 300)


@cache
def unlike() -> Deployment:
    """A host of eight GPUs, one of them broken, beside one of another kind."""
    cluster = joined("hgx-h100", "hgx-h200", broken=("d0.n0.g3",))
    return Deployment(cluster, resolve_model("mixtral-8x7b"), Workload())


def fleet_on(deployment: Deployment, lengths: Lengths | None = None) -> Fleet:
    """The fleet with most throughput."""
    decode, prefill = deployment, None
    if lengths is not None:
        decoding, [(_, prefilling)] = lengths.workloads(deployment.workload)
        decode, prefill = (replace(deployment, workload=one) for one in (decoding, prefilling))
    isl, osl = (0, 1) if lengths is None else (lengths.isl[0], lengths.osl[0])
    limits = None if lengths is None else 2.0
    imbalance = 1.0 if lengths is None else None
    traffic = Traffic(((decode, prefill),), (1.0,), isl, osl, TPOT, limits, imbalance)
    return make_fleet(deployment.cluster, traffic, FleetOptions(goal="throughput", time_limit_s=2.5))


def asked(tok_s: float, lengths: Lengths | None = None) -> Demand:
    return Demand(tok_s=tok_s, tpot_s=TPOT, ttft_s=None if lengths is None else 2.0, spares=1)


@pytest.mark.wide
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_a_unit_of_unlike_domains_is_a_fleet(lengths: Lengths | None) -> None:
    fleet = fleet_on(unlike(), lengths)
    demand = asked(2.5 * fleet.tok_s, lengths)
    found = size(unlike(), demand, lengths=lengths, fleet=FleetOnUnits(unlike(), demand, lengths))
    assert found.served.units == 3
    assert found.served.tok_s == pytest.approx(3 * fleet.tok_s, rel=0.01)
    assert found.served.tok_s_per_user >= 1 / TPOT * (1 - 1e-6)
    assert found.gpus == 3 * 15 + 8
    assert found.domains == 7
    assert found.served.gpus_used == pytest.approx(3 * fleet.gpus_used, rel=0.05)
    assert found.fewer[0].tok_s < found.peak_tok_s


def test_a_fleet_that_saves_a_unit_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost.serving.units, "MOST_JOINED_GPUS", 16)
    unit = replace(unlike(), cluster=resolve_cluster("hgx-h100"))
    two = replace(unit, cluster=resolve_cluster("hgx-h100@16"))
    one_shape = size(unit, asked(1.0))
    best = fleet_on(two).tok_s
    assert best >= one_shape.joined[2] * (1 - 1e-3)
    demand = asked(best * 0.999)
    found = size(unit, demand, fleet=FleetOnUnits(unit, demand))
    assert found.served.units == 2


def test_what_no_fleet_holds_says_the_best() -> None:
    demand = replace(asked(1e5), tpot_s=1e-5)
    with pytest.raises(InfeasibleError, match="the fastest takes"):
        size(unlike(), demand, fleet=FleetOnUnits(unlike(), demand))


def test_a_graph_of_its_own_stands_alone() -> None:
    spec = resolve_cluster("hgx-h100").spec
    gpu, fabric = spec.domains[0].gpu, spec.domains[0].fabric
    nodes = tuple(RawNode(f"g{number}", "gpu", domain="a", gpu=gpu) for number in range(2))
    raw = raw_cluster_spec("two", RawTopology(nodes, (RawLink(("g0", "g1"), fabric, 18),)))
    unit = replace(unlike(), cluster=build_cluster(raw))
    demand = replace(asked(1e5), tpot_s=0.1)
    found = size(unit, demand, fleet=FleetOnUnits(unit, demand))
    assert found.served.tok_s >= 1e5
    assert found.racks.count is None
    large = replace(unit, model=resolve_model("deepseek-v3"))
    with pytest.raises(InfeasibleError, match="HBM capacity binds"):
        size(large, demand, fleet=FleetOnUnits(large, demand))


def test_a_mix_of_lengths_needs_domains_of_one_size() -> None:
    mix = Lengths((2000, 100), (300, 300), (0.5, 0.5))
    with pytest.raises(InputError, match="`lengths`: the domains of joined have 7 to 8 GPUs"):
        size(unlike(), asked(1e5, mix), lengths=mix)
