"""Sizes and fleets say the same of the same hardware."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import cost.serving.units
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.serving.lengths import Lengths
from cost.serving.sizing import Demand, size
from placement.fleet.fleet import Fleet, make_fleet
from placement.fleet.options import FleetOptions, Traffic
from placement.fleet.supply import FleetOnUnits
from topology import InfeasibleError, InputError, resolve_cluster
from topology.build import build_cluster, raw_cluster_spec
from topology.cluster import ClusterSpec
from topology.spec import Fault, RawLink, RawNode, RawTopology

TPOT = 0.02
LENGTHS = Lengths.of(2000, 300)


@cache
def unlike() -> Deployment:
    """A host of eight GPUs, one of them broken, beside one of another kind."""
    parts = [resolve_cluster(name).spec for name in ("hgx-h100", "hgx-h200")]
    domains = tuple(domain for spec in parts for domain in spec.domains)
    spec = ClusterSpec("unlike", domains, parts[0].scale_out, (Fault(gpu="d0.n0.g3"),))
    return Deployment(build_cluster(spec), resolve_model("mixtral-8x7b"), Workload())


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
    with pytest.raises(InputError, match="`lengths`: the domains of unlike have 7 to 8 GPUs"):
        size(unlike(), asked(1e5, mix), lengths=mix)
