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


def traffic(
    cluster: Cluster, name: str, *, isl: int = 0, osl: int = 1, tpot_s: float = 0.05, ttft_s: float = 2.0
) -> Traffic:
    """The traffic of a model cut to four layers; without input decode alone."""
    whole = Deployment(cluster, few_layers(name, 4), Workload(2000))
    if not isl:
        return Traffic(((whole, None),), (1.0,), 0, osl, tpot_s, None, 1.0)
    pair = tuple(replace(whole, workload=part) for part in serving_workloads(whole.workload, isl, osl))
    return Traffic((pair,), (1.0,), isl, osl, tpot_s, ttft_s, None)


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


TPOT = 0.02
LENGTHS = Lengths.of(2000, 300)


@cache
def unlike() -> Deployment:
    """A host of eight GPUs, one of them broken, beside one of another kind."""
    cluster = joined("hgx-h100", "hgx-h200", broken=("d0.n0.g3",))
    return Deployment(cluster, resolve_model("mixtral-8x7b"), Workload())


def fleet_on(deployment: Deployment, lengths: Lengths | None = None) -> Fleet:
    """The fleet with most throughput."""
    if lengths is None:
        served = Traffic(((deployment, None),), (1.0,), 0, 1, TPOT, None, 1.0)
    else:
        decode, [(_, prefill)] = lengths.workloads(deployment.workload)
        pair = replace(deployment, workload=decode), replace(deployment, workload=prefill)
        served = Traffic((pair,), (1.0,), lengths.isl[0], lengths.osl[0], TPOT, 2.0, None)
    return make_fleet(deployment.cluster, served, FleetOptions())


def asked(tok_s: float, lengths: Lengths | None = None) -> Demand:
    return Demand(tok_s=tok_s, tpot_s=TPOT, ttft_s=None if lengths is None else 2.0, spares=1)


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


def test_a_mix_of_lengths_needs_domains_of_one_size() -> None:
    mix = Lengths((2000, 100), (300, 300), (0.5, 0.5))
    with pytest.raises(InputError, match="`lengths`: the domains of joined have 7 to 8 GPUs"):
        size(unlike(), asked(1e5, mix), lengths=mix)


def test_what_no_fleet_holds_says_the_best() -> None:
    demand = replace(asked(1e5), tpot_s=1e-5)
    with pytest.raises(InfeasibleError, match="the fastest takes"):
        size(unlike(), demand, fleet=FleetOnUnits(unlike(), demand))
