"""Faults between domains: what an all-to-all, a hand-over and a cache transfer have left, as the routes say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import ExpertUse, balanced_use, expert_use
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.serving.cache_path import kv_path
from cost.step.fair_sharing import sharing, sharing_words
from cost.step.score import LayoutScorer, Score
from helpers import fabric_like, link_loads
from topology import Fault, InfeasibleError, build_cluster, resolve_cluster
from topology.cluster import Cluster
from topology.routes import Router, fair_s, pattern_traffic, traffic_matrix

ALL, HALVES = tuple(range(16)), (tuple(range(8)), tuple(range(8, 16)))


@cache
def two_pods() -> Cluster:
    """Four HGX nodes in two pods of rails."""
    spec = resolve_cluster("hgx-h100@32").spec
    return build_cluster(replace(spec, scale_out=replace(spec.scale_out, nodes_per_pod=2, spines=2)))


def nics(*gpus: int, factor: float = 0.0) -> tuple[Fault, ...]:
    return tuple(Fault(link=(f"d0.n0.g{g}", f"f.p0.l{g}"), factor=factor) for g in gpus)


def deployment(*faults: Fault, base: Cluster | None = None) -> Deployment:
    spec = (base or resolve_cluster("hgx-h100@16")).spec
    cluster = build_cluster(replace(spec, faults=faults))
    return Deployment(cluster, resolve_model("mixtral-8x7b"), Workload(4096, 8))


def stage(gpus: tuple[int, ...]) -> StageSpec:
    return StageSpec(gpus, range(32))


def scored(found: Deployment, gpus: tuple[int, ...] = ALL) -> Score:
    use = balanced_use(32, np.ones(len(gpus), dtype=np.int64), 8, 2)
    return LayoutScorer(found, Layout(((stage(gpus),),), 1), [[use]]).at(8)


@pytest.mark.parametrize(
    ("faults", "left"),
    [
        (nics(*range(7)), 1 / 8),  # one NIC carries what eight did
        (nics(0), 7 / 8),
        (nics(0, factor=0.95), 0.95),  # nobody stands in for a slow one
        (nics(0, factor=0.5), 7 / 8),  # so it is better out of service
        (nics(0, 1, factor=0.8), 0.8),
        ((*nics(0), *nics(1, factor=0.2)), 6 / 8),
        (nics(*range(8), factor=0.3), 0.3),  # nobody is left to stand in
        ((Fault(link=("f.p0.l0", "f.s0")),), 1.0),  # both nodes are on the leaf
        ((), 1.0),
    ],
)
def test_what_an_all_to_all_has_left(faults: tuple[Fault, ...], left: float) -> None:
    found = deployment(*faults)
    assert found.rates(stage(ALL)).out_bytes_per_s == pytest.approx(50e9 * left)
    assert found.rates(stage(HALVES[0])).out_bytes_per_s == 50e9  # stays in its domain


@pytest.mark.parametrize("link", [("d0.n0.g0", "d0.s1"), ("d0.n0.g0", "f.p0.l0"), ("f.p1.l3", "f.s1")])
def test_a_worse_fault_never_costs_less(link: tuple[str, str]) -> None:
    found = [deployment(Fault(link=link, factor=factor), base=two_pods()) for factor in (0.9, 0.5, 0.1, 0.0)]
    rates = [one.rates(stage(tuple(range(32)))) for one in found]
    for better, worse in pairwise(rates):
        assert worse.out_bytes_per_s <= better.out_bytes_per_s
        assert worse.alltoall_bytes_per_s <= better.alltoall_bytes_per_s
    healthy = deployment(base=two_pods()).rates(stage(tuple(range(32))))
    changed = rates[-1].out_bytes_per_s < healthy.out_bytes_per_s
    assert changed != (rates[-1].alltoall_bytes_per_s < healthy.alltoall_bytes_per_s)


def test_a_fault_moves_a_step_as_it_moves_the_traffic() -> None:
    everybody = tuple(range(32))
    pattern = pattern_traffic("all-to-all", 32, 1e9)
    whole = deployment(base=two_pods())
    before, busy = scored(whole, everybody), link_loads(whole.cluster, pattern).transfer_s
    spine, nic = ("f.p1.l3", "f.s1"), ("d0.n0.g0", "f.p0.l0")
    for link, factors in ((spine, (0.0, 0.6)), (nic, (0.0, 0.9))):
        for factor in factors:
            faulty = deployment(Fault(link=link, factor=factor), base=two_pods())
            after = scored(faulty, everybody)
            ratio = link_loads(faulty.cluster, pattern).transfer_s / busy
            assert ratio > 1
            assert after.terms_s["dispatch"] > before.terms_s["dispatch"]
            assert after.floor_s["ib-ndr400"] == pytest.approx(ratio * before.floor_s["ib-ndr400"])
            assert before.step_s < after.step_s
            assert after.lower_step_s <= after.step_s


def test_hand_overs_and_caches_take_what_is_left() -> None:
    whole, faulty = deployment(), deployment(*nics(*range(7)))
    one, other = (stage(gpus) for gpus in HALVES)
    assert faulty.hop_left(one, other) == pytest.approx(1 / 8)
    assert whole.hop_left(one, other) == 1.0
    assert kv_path(faulty, faulty).bytes_per_s == pytest.approx(kv_path(whole, whole).bytes_per_s / 8)


def test_who_cannot_be_reached_is_named() -> None:
    alone = tuple(Fault(link=("f.p0.l0", f"f.s{s}")) for s in range(2))
    with pytest.raises(InfeasibleError, match=r"d0\.n0\.g0.* over the fabric between"):
        deployment(*alone, base=two_pods()).rates(stage(tuple(range(32))))


def test_gpus_that_hand_over_by_others_are_said() -> None:
    assert deployment().fabric_note == ""
    note = deployment(*nics(0, 3)).fabric_note
    assert note.startswith("2 GPUs without a link out of their domain hand over to others")
    assert "0.75 of the full rate" in note


def uneven(gpus: int, sigma: float = 0.63) -> ExpertUse:
    """One expert a GPU, two layers, the second used evenly."""
    tokens = np.ones((1, 2, gpus))
    tokens[0, 0] = np.exp(sigma * np.random.default_rng(0).standard_normal(gpus))
    slots = np.tile(np.arange(gpus, dtype=np.int32), (2, 1))
    placed = Assignment(slots, np.arange(gpus, dtype=np.int32), gpus, gpus)
    return expert_use(placed, ExpertLoads(tokens, ("x",), synthetic=True), 2)


def oversubscribed() -> Deployment:
    spec = resolve_cluster("hgx-h100@32").spec
    out = fabric_like(spec.scale_out, "leaf-spine", nodes_per_pod=2, spines=2, oversubscription=4.0)
    return deployment(base=build_cluster(replace(spec, scale_out=out)))


def test_fair_sharing_is_what_the_routes_say_and_never_shorter() -> None:
    found, use, everybody = oversubscribed(), uneven(32), stage(tuple(range(32)))
    shared = sharing(found, everybody, use, "per-copy")
    router = Router(found.cluster)
    matrix = np.tile(use.share[0, 0], (32, 1)) * (1 - np.eye(32))
    traffic = traffic_matrix(matrix, 32)
    loads = router.loads(traffic)
    want = (fair_s(router, traffic).completion_s - loads.latency_s) / loads.transfer_s
    assert shared.fair[0] == pytest.approx(want, rel=0.01)
    assert shared.fair[0] > 1.05
    assert shared.fair[1] == 1.0
    assert (shared.bound == 1.0).all()
    layout = Layout(((StageSpec(tuple(range(32)), range(2)),),), 1)
    fair, plain = (LayoutScorer(found, layout, [[use]], fair=fair).at(8) for fair in (True, False))
    assert fair.step_s > plain.step_s
    assert fair.lower_step_s == plain.lower_step_s
    assert "max-min fair time" in sharing_words(found, [everybody])


@pytest.mark.parametrize("family", ["per-copy", "per-rank", "per-node"])
def test_a_gpu_with_a_slow_nic_counts_by_its_own_tokens(family: str) -> None:
    faulty = deployment(*nics(0, factor=0.5))
    shared = sharing(faulty, stage(ALL), uneven(16), family)
    assert shared.bound[1] == pytest.approx(1.0)  # even: as the rate of the stage has it
    assert 0.5 <= shared.bound[0] <= 1.0 + 1e-9  # other GPUs receive most
