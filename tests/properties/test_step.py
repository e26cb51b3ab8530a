"""One micro-batch on one stage: every part by hand at data-sheet peaks, then losses, delays and limits."""

from dataclasses import replace

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import expert_use
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import StepShape, Workload
from cost.model import StageShard
from cost.resolve import resolve_model
from cost.step.step import even_step
from cost.terms.pipeline import hop_seconds
from cost.terms.work import PlacedExperts
from helpers import fabric_like
from topology import build_cluster, resolve_cluster


def shape_of(where, stage, *, tokens=3.0, tp=1):
    return StepShape(
        tp=tp,
        attention_dp=len(stage.gpus) / tp,
        ep=len(stage.gpus),
        sequences=tokens,
        context=where.workload.context,
        domain_gpus=where.smallest_part(stage),
    )


def stage_cost(where, stage, *, shape, use, last):
    """One micro-batch of ``shape`` on a stage whose experts are placed."""
    shard = StageShard(tuple(where.model.kind_counts(stage.layers)), last=float(last))
    placed = None if use is None else PlacedExperts(where, stage, use)
    return even_step(where.model, shape, where.machine(stage), shard, placed=placed)


def cost_of(toy, where, *, tokens=3.0, tp=1, slots=None, last=True):
    stage = StageSpec(tuple(range(len(where.cluster.gpus))), range(len(where.model.layers)))
    use = toy.uses(where, toy.layout([(stage.gpus, stage.layers)]), slots=slots)[0][0]
    return stage_cost(where, stage, shape=shape_of(where, stage, tokens=tokens, tp=tp), use=use, last=last)


def some(seconds):
    """Those that take any time."""
    return {name: float(value) for name, value in seconds.items() if value > 0}


def test_every_part_at_peak_by_hand(toy):
    # 1 dense and 2 MoE layers, 4 GPUs in a domain, 3 tokens each with 100 tokens of context, no latency.
    cost = cost_of(toy, toy.deployment(toy.cluster(4)))
    assert some(cost.terms_s) == pytest.approx(
        {
            # 3 layers: 12,288 weights of 2 bytes and 3 x 100 x 128 bytes of cache at 1 TB/s
            "attention": 3 * (24_576 + 38_400) / 1e12,
            # a feed-forward of 20,000; two layers with shared 1,000 and a router of 512
            "dense": 2 * (20_000 + 2 * 1_512) / 1e12,
            "head": 2 * 64_000 / 1e12,
            # two layers: 2 slots of 3,000 weights, each touched by 12 tokens with chance 1 - (1 - 2/8) ** 12
            "experts": 2 * 2 * (1 - 0.75**12) * 6_000 / 1e12,
            # two layers: 3 tokens to each of 3 others with chance 13/28, 128 bytes at 100 GB/s
            "dispatch": 2 * 3 * 3 * 13 / 28 * 128 / 1e11,
            "combine": 2 * 3 * 3 * 13 / 28 * 128 / 1e11,
        }
    )
    assert set(some(cost.limits_s)) == {"HBM bandwidth", "up"}
    assert cost.limits_s["up"] == pytest.approx(cost.terms_s["dispatch"] + cost.terms_s["combine"])
    assert cost.total_s == pytest.approx(sum(cost.limits_s.values()))


def test_floor_is_what_each_resource_is_busy(toy):
    cost = cost_of(toy, toy.deployment(toy.cluster(4)))
    flop = 3 * 3 * (2 * 12_288 + 100 * 256)  # projections and scores of three layers
    flop += 2 * 3 * (20_000 + 2 * 1_512 + 64_000)  # dense, shared, router, head
    flop += 2 * 2 * 3_000 * 6  # 6 pairs a GPU in two layers
    assert cost.floor_s["compute"] == pytest.approx(flop / 1e14)
    assert cost.floor_s["HBM bandwidth"] == pytest.approx(cost.limits_s["HBM bandwidth"])
    assert cost.floor_s["up"] == pytest.approx(cost.limits_s["up"])


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("hbm__weights", {"attention", "dense", "head"}),
        ("hbm__experts", {"experts"}),
        ("hbm__cache", {"attention"}),
        ("attention__decode__bf16", set()),
        ("gemm__bf16", set()),
        ("experts__bf16", set()),
        ("links__all_reduce", set()),
        ("links__hop", set()),
    ],
)
def test_a_fraction_stretches_its_own_terms(toy, name, terms):
    # everything here is bound by HBM or links, so a loss of flop/s costs nothing
    peak = cost_of(toy, toy.deployment(toy.cluster(4)))
    less = cost_of(toy, toy.deployment(toy.cluster(4), efficiency=toy.coefficients(**{name: 0.5})))
    changed = {term for term, seconds in peak.terms_s.items() if less.terms_s[term] != pytest.approx(seconds)}
    assert changed == terms
    assert less.floor_s == peak.floor_s
    read = {"hbm__weights": 3 * 24_576, "hbm__cache": 3 * 38_400}
    if name in read:
        assert less.terms_s["attention"] - peak.terms_s["attention"] == pytest.approx(read[name] / 1e12)


@pytest.mark.parametrize(
    ("name", "term"),
    [("attention__decode__bf16", "attention"), ("gemm__bf16", "dense"), ("experts__bf16", "experts")],
)
def test_fractions_of_flop_stretch_compute_bound_terms(toy, name, term):
    slow = toy.cluster(toy.domain(4, chip=toy.gpu(bf16=1e9, fp8=0)))
    lossy = toy.coefficients(**{name: 0.5})
    peak, less = (cost_of(toy, toy.deployment(slow, efficiency=e)) for e in (toy.coefficients(), lossy))
    more = less.terms_s[term] - peak.terms_s[term]
    scores = 3 * 3 * 100 * 256 / 1e9  # of three layers; their projections are no scores
    assert more == pytest.approx(scores if term == "attention" else peak.terms_s[term])


def test_kernels_that_lose_pay_what_was_measured_of_the_all_to_all(toy):
    where = toy.deployment(toy.cluster(4), efficiency=toy.coefficients(ideal=False))
    cost, peak = cost_of(toy, where), cost_of(toy, toy.deployment(toy.cluster(4)))
    kernel = where.kernel(StageSpec((0, 1, 2, 3), range(3)))
    # 128 bytes a vector are little beside the fixed part of two MoE layers
    for term, leg in (("dispatch", kernel.dispatch), ("combine", kernel.combine)):
        assert cost.terms_s[term] >= 2 * leg.alpha_up_s.value > 10 * peak.terms_s[term]
    assert cost.floor_s == peak.floor_s


def test_both_fabrics_at_once_the_slower_binds(toy):
    # 8 GPUs over two domains, 10 tokens each: 10 pairs leave, 7.5 stay in the domain, of 128 bytes
    model = toy.model(dense=0, moe=1)
    slow_out = cost_of(toy, toy.deployment(toy.cluster(4, 4), model), tokens=10)
    assert slow_out.terms_s["dispatch"] == pytest.approx(10 * 128 / 1e10)
    assert slow_out.limits_s["out"] == pytest.approx(2 * 10 * 128 / 1e10)
    assert slow_out.floor_s["up"] == pytest.approx(2 * 7.5 * 128 / 1e11)
    slow_up = cost_of(toy, toy.deployment(toy.cluster(4, 4, out=1e12), model), tokens=10)
    assert slow_up.terms_s["dispatch"] == pytest.approx(7.5 * 128 / 1e11)
    assert slow_up.limits_s["up"] == pytest.approx(2 * 7.5 * 128 / 1e11)


def test_experts_without_shared_weights_leave_one_reduction(toy):
    model = resolve_model("mixtral-8x7b")  # no shared expert: attention's output alone is reduced
    where = Deployment(resolve_cluster("hgx-h100"), model, Workload(batch=1), toy.coefficients())
    stage = StageSpec(tuple(range(8)), range(len(model.layers)))

    def reduced(tp):
        shape = shape_of(where, stage, tokens=1.0, tp=tp)
        return stage_cost(where, stage, shape=shape, use=None, last=False).terms_s["all_reduce"]

    vectors = len(model.layers) * model.hidden * 2.0
    assert reduced(2) == pytest.approx(2 * 1 / 2 * 2 * vectors / 450e9)
    # one attention group over all GPUs: the sums of its experts are reduced as well
    assert reduced(8) == pytest.approx(2 * 2 * 7 / 8 * 8 * vectors / 450e9)


def test_only_the_last_stage_has_the_head(toy):
    assert "head" not in cost_of(toy, toy.deployment(toy.cluster(4)), last=False).terms_s


def test_scenarios_are_averaged_and_the_slowest_gpu_waits_for_nobody(toy):
    # 2 GPUs of 4 experts; compute-bound, so seconds follow the share of the busier GPU: 1/2, then 6/8
    slow = toy.cluster(toy.domain(2, chip=toy.gpu(bf16=1e6, fp8=0)))
    where = toy.deployment(slow, toy.model(dense=0, moe=1))
    stage = StageSpec((0, 1), range(1))
    assignment = Assignment(np.arange(8, dtype=np.int32)[None], np.repeat([0, 1], 4).astype(np.int32), 8, 2)
    tokens = np.array([[[1.0] * 8], [[3.0] + [1.0] * 3 + [0.5] * 4]])
    for rows, share in (([0], 0.5), ([1], 0.75), ([0, 1], 0.625)):
        use = expert_use(assignment, ExpertLoads(tokens[rows], ("s",) * len(rows), synthetic=False), 2)
        shape = shape_of(where, stage, tokens=50)
        cost = stage_cost(where, stage, shape=shape, use=use, last=False)
        assert cost.terms_s["experts"] == pytest.approx(100 * 2 * share * 2 * 3_000 / 1e6)


def test_hops_stay_on_the_fabric_they_can(toy):
    where = toy.deployment(toy.cluster(toy.domain(4, latency=1e-6), 4, latency=1e-5))
    a, b, c = (StageSpec(gpus, range(1)) for gpus in ((0, 1), (2, 3), (4, 5)))
    assert hop_seconds(where, a, b, moved=1e6) == ("up", pytest.approx(1.2e-5), pytest.approx(1e-5))
    assert hop_seconds(where, a, c, moved=1e6) == ("out", pytest.approx(1.2e-4), pytest.approx(1e-4))
    where = toy.deployment(toy.cluster(4, 4), efficiency=toy.coefficients(links__hop=0.5))
    assert hop_seconds(where, a, b, moved=1e6)[1:] == pytest.approx((2e-5, 1e-5))
    assert hop_seconds(where, a, c, moved=1e6)[1:] == pytest.approx((2e-4, 1e-4))


def test_a_hop_between_neighbours_shares_no_uplink(toy):
    """Two hosts a leaf, two leaves a pod: 2 links and the rate of the NIC to the neighbour, else less."""
    spec = toy.cluster(2, 2, 2, 2, 2, latency=1e-5).spec
    assert spec.scale_out is not None
    stages = [StageSpec((2 * host, 2 * host + 1), range(1)) for host in range(5)]

    def seconds(kind: str = "rail", **sizes: object) -> list[float]:
        out = fabric_like(spec.scale_out, kind, **sizes)
        where = toy.deployment(build_cluster(replace(spec, scale_out=out)))
        return [hop_seconds(where, stages[0], other, moved=1e6)[1] for other in stages[1:]]

    leaf_spine = seconds(kind="leaf-spine", nodes_per_pod=2, oversubscription=2.0)
    assert leaf_spine == pytest.approx([1.2e-4, 2.4e-4, 2.4e-4, 2.4e-4])
    rail = seconds(nodes_per_pod=4, oversubscription=2.0)
    assert rail == pytest.approx([1.2e-4, 1.2e-4, 1.2e-4, 2.4e-4])
    tree = {"nodes_per_pod": 4, "leaves_per_pod": 2, "oversubscription": 2.0, "core_oversubscription": 2.0}
    assert seconds(kind="fat-tree", cores=1, spines=2, **tree) == pytest.approx(
        [1.2e-4, 2.4e-4, 2.4e-4, 4.4e-4]
    )


@pytest.mark.parametrize(
    ("part", "terms"),
    [
        ("attention", {"attention"}),
        ("shared", {"dense"}),
        ("dense", {"dense"}),
        ("router", {"dense"}),
        ("experts", {"experts", "dispatch"}),
        ("head", {"head"}),
        ("embedding", set()),
        ("norm", set()),
    ],
)
def test_each_class_of_weights_weighs_in_its_own_term(toy, part, terms):
    model = toy.model()
    eight = replace(model, precision={**model.precision, part: "fp8"})
    before, after = (cost_of(toy, toy.deployment(toy.cluster(4), what)) for what in (model, eight))
    changed = {term for term in before.terms_s if after.terms_s[term] != before.terms_s[term]}
    assert changed == terms
    assert after.total_s <= before.total_s
