"""What is costed: workloads, rates and kernels of a stage, GPUs that differ, and faults of links between domains."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import ExpertUse, balanced_use, expert_use
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.machine import PEAK, Efficiency, stage_rates
from cost.inputs.workload import Workload
from cost.quantity import MAX_CONTEXT_TOKENS
from cost.resolve import resolve_model
from cost.serving.cache_path import kv_path
from cost.step.fair_sharing import sharing, sharing_words
from cost.step.score import LayoutScorer, Score
from helpers import fabric_like, link_loads
from topology import ClusterSpec, Fault, InfeasibleError, build_cluster, resolve_cluster
from topology.base.errors import InputError
from topology.catalog import load_gpu
from topology.cluster import Cluster
from topology.routes import Router, fair_s, pattern_traffic, traffic_matrix


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"context": 0}, "`context` 0"),
        ({"context": MAX_CONTEXT_TOKENS + 1}, "`context` 1000000001"),
        ({"context": 4096.0}, "`context` 4096.0"),
        ({"context": float("nan")}, "`context` nan"),
        ({"context": True}, "`context` True"),
        ({"batch": 10**9 + 1}, "`batch` 1000000001"),
        ({"sparse_attention": "2.5"}, "`sparse_attention` 2.5"),
        ({"sparse_attention": "0"}, "`sparse_attention` 0"),
        ({"sparse_attention": "1000000001"}, "`sparse_attention` 1000000001"),
        ({"phase": "training"}, "`phase` training: choose decode or prefill"),
        ({"draft_tokens": -1}, "`draft_tokens` -1"),
        ({"draft_tokens": 1.0}, "`draft_tokens` 1.0"),
        ({"accept_length": 1.5}, "`accept_length` 1.5: with 0 draft tokens, a step yields 1 to 1 tokens"),
        ({"draft_tokens": 2, "accept_length": 3.1}, "`accept_length` 3.1"),
        ({"draft_tokens": 2, "accept_length": float("nan")}, "`accept_length` nan"),
        ({"draft_tokens": 2, "phase": "prefill"}, "`draft_tokens`: draft tokens apply only to decode"),
    ],
)
def test_bad_values_are_named_in_one_line(given, words):
    with pytest.raises(InputError, match="^" + re.escape(words)) as error:
        Workload(**given)
    assert "\n" not in str(error.value)


def test_tokens_of_each_phase_and_a_cached_prefix_is_not_prefilled():
    decode = Workload(context=100, draft_tokens=3, accept_length=2.5)
    assert (decode.tokens_per_pass, decode.tokens_per_step, decode.token_word) == (4, 2.5, "output")
    prefill = Workload(context=1000, phase="prefill", prefix_hit=0.75)
    assert (prefill.prompt_cached, prefill.tokens_per_pass, prefill.tokens_per_step) == (750, 250, 1000)
    assert prefill.prompts_at_once() == 32  # of 250 tokens each
    assert Workload(context=50_000, phase="prefill").prompts_at_once() == 1
    # the last token of a prompt is always prefilled
    assert Workload(context=1, phase="prefill", prefix_hit=0.9).tokens_per_pass == 1
    for hit in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match="`prefix_hit`"):
            Workload(phase="prefill", prefix_hit=hit)
    with pytest.raises(InputError, match="applies only to prefill"):
        Workload(prefix_hit=0.5)


def test_hgx_h100_from_its_links():
    cluster = resolve_cluster("hgx-h100@16")
    rates = stage_rates(cluster, range(16), ["fp8", "bf16"])
    assert rates.flop_per_s == {"fp8": 1979e12, "bf16": 989.5e12}  # dense: half of what the data sheet prints
    assert rates.hbm_bytes_per_s == 3.35e12
    assert rates.up_bytes_per_s == 450e9  # 18 links of 25 GB/s, one direction
    assert rates.out_bytes_per_s == 50e9  # 400 Gb/s
    assert (rates.up_fabric, rates.out_fabric) == ("nvlink4", "ib-ndr400")
    # GPU, switch, GPU: 2 links of 0.5 us; GPU, leaf, spine, leaf, GPU: 4 of 2 us
    assert (rates.up_latency_s, rates.out_latency_s) == (1e-6, 8e-6)
    assert rates.notes == ()
    oversubscribed = replace(cluster.spec, scale_out=replace(cluster.spec.scale_out, oversubscription=4.0))
    assert stage_rates(build_cluster(oversubscribed), range(16), ["bf16"]).out_bytes_per_s == 50e9 / 4


def test_without_a_fabric_between_domains_there_is_no_rate(toy):
    rates = stage_rates(toy.cluster(4, out=0), range(4), ["bf16"])
    assert (rates.out_bytes_per_s, rates.out_fabric) == (0.0, "")
    assert stage_rates(toy.cluster(1, 1), range(2), ["bf16"]).up_bytes_per_s == math.inf, (
        "nothing is sent inside"
    )
    with pytest.raises(InputError, match="no `fabric:` connects them"):
        rates.require_scale_out()
    with pytest.raises(InputError, match="cluster none: it has no GPU"):
        Deployment(build_cluster(ClusterSpec("none", (), None)), toy.model(), Workload())
    with pytest.raises(InputError, match="`engine` nobody: measured engines are"):
        Deployment(toy.cluster(4), toy.model(), Workload(), engine="nobody")


def test_a_stage_runs_at_the_pace_of_its_slowest_chip(toy):
    domains = [toy.domain(2, chip=load_gpu(name)) for name in ("h100-sxm", "h200-sxm")]
    where = Deployment(toy.cluster(*domains), toy.model(), Workload())
    both, alone = StageSpec((0, 1, 2, 3), range(1)), StageSpec((2, 3), range(1))
    assert where.machine(both).efficiency.chip == where.kernels_reach().chip == "h100-sxm"
    assert where.machine(alone).efficiency.chip == "h200-sxm"
    given = Deployment(where.cluster, where.model, where.workload, toy.coefficients())
    assert given.machine(both).efficiency is given.kernels_reach() is given.efficiency


MODEL = resolve_model("mixtral-8x7b")
STAGE = StageSpec(tuple(range(8)), range(32))
EVEN = balanced_use(32, np.ones(8, dtype=np.int64), 8, 2)


def throttled(factors: dict[int, float], efficiency: Efficiency | None = None) -> Deployment:
    faults = tuple(Fault(gpu=f"d0.n0.g{gpu}", factor=factor) for gpu, factor in factors.items())
    spec = replace(resolve_cluster("hgx-h100").spec, faults=faults)
    return Deployment(build_cluster(spec), MODEL, Workload(batch=64), efficiency)


def share_of(parts: Sequence[float]) -> ExpertUse:
    share = np.array(parts) / sum(parts)
    return replace(EVEN, share=share[None, None], slot_share=share[None, None])


def seconds_of_experts(deployed: Deployment, use: ExpertUse) -> float:
    scorer = LayoutScorer(deployed, Layout(((STAGE,),), 1), [[use]])
    return scorer.at(64).terms_s["experts"]


@pytest.mark.parametrize("efficiency", [None, PEAK])
def test_experts_wait_for_the_gpu_that_takes_longest_at_its_own_rates(efficiency: Efficiency | None) -> None:
    whole, slow = throttled({}, efficiency), throttled({3: 0.5}, efficiency)
    rates = slow.gpu_rates(STAGE)
    for speeds in (rates.compute, rates.read, rates.peak_compute, rates.peak_read):
        assert speeds == pytest.approx([2.0, 2, 2, 1, 2, 2, 2, 2])
    uneven = share_of([1.0, 1, 1, 0.5, 1, 1, 1, 1])
    # an even share takes the slow GPU twice as long as the others
    assert seconds_of_experts(slow, EVEN) == pytest.approx(2 * seconds_of_experts(whole, EVEN))
    # at peaks its slot's weights take as long to read whatever the load
    less = seconds_of_experts(slow, uneven)
    assert less < seconds_of_experts(slow, EVEN) or efficiency is PEAK
    assert less <= seconds_of_experts(slow, EVEN)
    # and nothing given to it, the others go at their own pace
    none = share_of([1.0, 1, 1, 0, 1, 1, 1, 1])
    assert seconds_of_experts(slow, none) == pytest.approx(seconds_of_experts(whole, none))


ALL, HALVES = tuple(range(16)), (tuple(range(8)), tuple(range(8, 16)))


@cache
def two_pods() -> Cluster:
    """Four HGX nodes in two pods of rails."""
    spec = resolve_cluster("hgx-h100@32").spec
    return build_cluster(replace(spec, scale_out=replace(spec.scale_out, nodes_per_pod=2, spines=2)))


def nics(*gpus: int, factor: float = 0.0) -> tuple[Fault, ...]:
    return tuple(Fault(link=(f"d0.n0.g{g}", f"f.p0.l{g}"), factor=factor) for g in gpus)


def mixtral_on(*faults: Fault, base: Cluster | None = None) -> Deployment:
    spec = (base or resolve_cluster("hgx-h100@16")).spec
    cluster = build_cluster(replace(spec, faults=faults))
    return Deployment(cluster, resolve_model("mixtral-8x7b"), Workload(4096, 8))


def all_layers(gpus: tuple[int, ...]) -> StageSpec:
    return StageSpec(gpus, range(32))


def scored(faulty: Deployment, gpus: tuple[int, ...] = ALL) -> Score:
    use = balanced_use(32, np.ones(len(gpus), dtype=np.int64), 8, 2)
    return LayoutScorer(faulty, Layout(((all_layers(gpus),),), 1), [[use]]).at(8)


@pytest.mark.parametrize(
    ("faults", "left"),
    [
        (nics(*range(7)), 1 / 8),  # one NIC carries what eight did
        (nics(0, factor=0.95), 0.95),  # nobody stands in for a slow one
        (nics(0, factor=0.5), 7 / 8),  # so it is better out of service
        ((*nics(0), *nics(1, factor=0.2)), 6 / 8),
        (nics(*range(8), factor=0.3), 0.3),  # nobody is left to stand in
        ((Fault(link=("f.p0.l0", "f.s0")),), 1.0),  # both nodes are on the leaf
    ],
)
def test_what_an_all_to_all_has_left(faults: tuple[Fault, ...], left: float) -> None:
    faulty = mixtral_on(*faults)
    assert faulty.rates(all_layers(ALL)).out_bytes_per_s == pytest.approx(50e9 * left)
    assert faulty.rates(all_layers(HALVES[0])).out_bytes_per_s == 50e9  # stays in its domain


def test_a_fault_moves_a_step_as_it_moves_the_traffic() -> None:
    everybody = tuple(range(32))
    pattern = pattern_traffic("all-to-all", 32, 1e9)
    whole = mixtral_on(base=two_pods())
    before, busy = scored(whole, everybody), link_loads(whole.cluster, pattern).transfer_s
    spine, nic = ("f.p1.l3", "f.s1"), ("d0.n0.g0", "f.p0.l0")
    for link, factors in ((spine, (0.0, 0.6)), (nic, (0.0, 0.9))):
        for factor in factors:
            faulty = mixtral_on(Fault(link=link, factor=factor), base=two_pods())
            after = scored(faulty, everybody)
            ratio = link_loads(faulty.cluster, pattern).transfer_s / busy
            assert ratio > 1
            assert after.terms_s["dispatch"] > before.terms_s["dispatch"]
            assert after.floor_s["ib-ndr400"] == pytest.approx(ratio * before.floor_s["ib-ndr400"])
            assert before.step_s < after.step_s
            assert after.lower_step_s <= after.step_s


def test_hand_overs_and_caches_take_what_is_left() -> None:
    whole, faulty = mixtral_on(), mixtral_on(*nics(*range(7)))
    first, second = (all_layers(gpus) for gpus in HALVES)
    assert faulty.hop_left(first, second) == pytest.approx(1 / 8)
    assert whole.hop_left(first, second) == 1.0
    assert kv_path(faulty, faulty).bytes_per_s == pytest.approx(kv_path(whole, whole).bytes_per_s / 8)
    assert "7 GPUs without a link out of their domain hand over to others" in faulty.fabric_note
    assert "0.12 of the full rate" in faulty.fabric_note
    alone = tuple(Fault(link=("f.p0.l0", f"f.s{s}")) for s in range(2))
    with pytest.raises(InfeasibleError, match=r"d0\.n0\.g0.* over the fabric between"):
        mixtral_on(*alone, base=two_pods()).rates(all_layers(tuple(range(32))))


def uneven(gpus: int, sigma: float = 0.63) -> ExpertUse:
    """One expert a GPU, two layers, the second used evenly."""
    tokens = np.ones((1, 2, gpus))
    tokens[0, 0] = np.exp(sigma * np.random.default_rng(0).standard_normal(gpus))
    slots = np.tile(np.arange(gpus, dtype=np.int32), (2, 1))
    placed = Assignment(slots, np.arange(gpus, dtype=np.int32), gpus, gpus)
    return expert_use(placed, ExpertLoads(tokens, ("x",), synthetic=True), 2)


def test_fair_sharing_is_what_the_routes_say_and_never_shorter() -> None:
    spec = resolve_cluster("hgx-h100@32").spec
    out = fabric_like(spec.scale_out, "leaf-spine", nodes_per_pod=2, spines=2, oversubscription=4.0)
    oversubscribed = mixtral_on(base=build_cluster(replace(spec, scale_out=out)))
    use, everybody = uneven(32), all_layers(tuple(range(32)))
    assert sharing(mixtral_on(base=build_cluster(spec)), everybody, use, "per-copy") is None, "as by formula"
    shared = sharing(oversubscribed, everybody, use, "per-copy")
    router = Router(oversubscribed.cluster)
    matrix = np.tile(use.share[0, 0], (32, 1)) * (1 - np.eye(32))
    traffic = traffic_matrix(matrix, 32)
    loads = router.loads(traffic)
    want = (fair_s(router, traffic).completion_s - loads.latency_s) / loads.transfer_s
    assert shared.fair[0] == pytest.approx(want, rel=0.01)
    assert shared.fair[0] > 1.05
    assert shared.fair[1] == 1.0
    assert (shared.bound == 1.0).all()
    layout = Layout(((StageSpec(tuple(range(32)), range(2)),),), 1)
    fair, plain = (LayoutScorer(oversubscribed, layout, [[use]], fair=fair).at(8) for fair in (True, False))
    assert fair.step_s > plain.step_s
    assert fair.lower_step_s == plain.lower_step_s
    assert "max-min fair time" in sharing_words(oversubscribed, [everybody])


@pytest.mark.parametrize("family", ["per-copy", "per-rank", "per-node"])
def test_a_gpu_with_a_slow_nic_counts_by_its_own_tokens(family: str) -> None:
    faulty = mixtral_on(*nics(0, factor=0.5))
    shared = sharing(faulty, all_layers(ALL), uneven(16), family)
    assert shared.bound[1] == pytest.approx(1.0)  # even: as the rate of the stage has it
    assert 0.5 <= shared.bound[0] <= 1.0 + 1e-9  # other GPUs receive most
