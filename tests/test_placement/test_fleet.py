"""Fleets on small clusters: never below one layout everywhere, as sizes say of the same hardware, refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import cost.serving.units
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import best_at, sweep
from cost.resolve import resolve_model
from cost.serving.lengths import Lengths, serving_workloads
from cost.serving.serving import ONE_POOL, Serving
from cost.serving.sizing import Demand, size
from helpers import few_layers
from placement.fleet.fleet import Fleet, make_fleet, verify_fleet
from placement.fleet.options import FleetOptions, Traffic
from placement.fleet.supply import FleetOnUnits
from test_placement.builders import joined
from topology import Cluster, InfeasibleError, InputError, resolve_cluster
from topology.build import build_cluster, raw_cluster_spec
from topology.spec import RawLink, RawNode, RawTopology


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


def uniform_tok_s(traffic: Traffic) -> float:
    """What one layout a pool gives everywhere; of two pools each replica of prefill waits as by itself."""
    decode, prefill = traffic.deployments[0]
    if prefill is None:
        found = sweep(decode, imbalance=1.0, cut_experts=False, speeds=[1 / traffic.tpot_s])
        return float(found.tok_s[best_at(found, (1 - 1e-9) / traffic.tpot_s)])
    serving = Serving.of(
        decode, traffic.lengths, ttft_s=traffic.ttft_s, speeds=[1 / traffic.tpot_s], cut_experts=False
    )
    return serving.bests(traffic.tpot_s)[ONE_POOL].requests_per_s * traffic.osl


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
    assert found.tok_s >= uniform_tok_s(found.traffic) * (1 - 1e-6)
    assert found.proof.gap <= 0.01
    assert found.tok_s == found.proof.objective <= found.proof.bound
    assert verify_fleet(found) == []


def test_what_is_out_of_reach_says_how_far_one_gets() -> None:
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
    return make_fleet(deployment.cluster, traffic, FleetOptions())


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
    monkeypatch.setattr(cost.serving.units, "MAX_JOINED_GPUS", 16)
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
