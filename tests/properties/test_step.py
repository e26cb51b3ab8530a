"""One micro-batch on one stage: by hand at data-sheet peaks, losses, delays, drafts, and experts that are even."""

from dataclasses import replace

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import expert_use
from cost.inputs.layout import StageSpec
from cost.inputs.workload import StepShape
from cost.resolve import resolve_model
from cost.step.step import batch_cost, even_step
from cost.terms.pipeline import hop_seconds


def cost_of(toy, where, *, tokens=3.0, tp=1, slots=None, last=True):
    stage = StageSpec(tuple(range(len(where.cluster.gpus))), range(len(where.model.layers)))
    use = toy.uses(where, toy.layout([(stage.gpus, stage.layers)]), slots=slots)[0][0]
    return batch_cost(where, stage, tokens, use, last=last, tp=tp)


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
    flop = 3 * 3 * (2 * 12_288 + 100 * 256)  # projections and scores of three layers
    flop += 2 * 3 * (20_000 + 2 * 1_512 + 64_000)  # dense, shared, router, head
    flop += 2 * 2 * 3_000 * 6  # 6 pairs a GPU in two layers
    assert cost.floor_s["compute"] == pytest.approx(flop / 1e14)
    for resource in ("HBM bandwidth", "up"):
        assert cost.floor_s[resource] == pytest.approx(cost.limits_s[resource])
    assert "head" not in cost_of(toy, toy.deployment(toy.cluster(4)), last=False).terms_s


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("hbm__weights", "attention dense head"),
        ("hbm__experts", "experts"),
        ("hbm__cache", "attention"),
        ("gemm__bf16", ""),
        ("links__hop", ""),
    ],
)
def test_a_fraction_stretches_its_own_terms(toy, name, terms):
    # everything here is bound by HBM or links, so a loss of flop/s costs nothing
    peak = cost_of(toy, toy.deployment(toy.cluster(4)))
    less = cost_of(toy, toy.deployment(toy.cluster(4), efficiency=toy.coefficients(**{name: 0.5})))
    changed = {term for term, seconds in peak.terms_s.items() if less.terms_s[term] != pytest.approx(seconds)}
    assert changed == set(terms.split())
    assert less.floor_s == peak.floor_s
    read = {"hbm__weights": 3 * 24_576, "hbm__cache": 3 * 38_400}
    if name in read:
        assert less.terms_s["attention"] - peak.terms_s["attention"] == pytest.approx(read[name] / 1e12)


def test_scenarios_are_averaged_and_the_slowest_gpu_waits_for_nobody(toy):
    # 2 GPUs of 4 experts; compute-bound, so seconds follow the share of the busier GPU: 1/2, then 6/8
    slow = toy.cluster(toy.domain(2, chip=toy.gpu(bf16=1e6, fp8=0)))
    where = toy.deployment(slow, toy.model(dense=0, moe=1))
    stage = StageSpec((0, 1), range(1))
    assignment = Assignment(np.arange(8, dtype=np.int32)[None], np.repeat([0, 1], 4).astype(np.int32), 8, 2)
    tokens = np.array([[[1.0] * 8], [[3.0] + [1.0] * 3 + [0.5] * 4]])
    for rows, share in (([0], 0.5), ([1], 0.75), ([0, 1], 0.625)):
        use = expert_use(assignment, ExpertLoads(tokens[rows], ("s",) * len(rows), synthetic=False), 2)
        cost = batch_cost(where, stage, 50.0, use, last=False, tp=1)
        assert cost.terms_s["experts"] == pytest.approx(100 * 2 * share * 2 * 3_000 / 1e6)


def test_hops_stay_on_the_fabric_they_can(toy):
    where = toy.deployment(toy.cluster(toy.domain(4, latency=1e-6), 4, latency=1e-5))
    a, b, c = (StageSpec(gpus, range(1)) for gpus in ((0, 1), (2, 3), (4, 5)))
    assert hop_seconds(where, a, b, moved=1e6) == ("up", pytest.approx(1.2e-5), pytest.approx(1e-5))
    assert hop_seconds(where, a, c, moved=1e6) == ("out", pytest.approx(1.2e-4), pytest.approx(1e-4))
    where = toy.deployment(toy.cluster(4, 4), efficiency=toy.coefficients(links__hop=0.5))
    assert hop_seconds(where, a, b, moved=1e6)[1:] == pytest.approx((2e-5, 1e-5))
    assert hop_seconds(where, a, c, moved=1e6)[1:] == pytest.approx((2e-4, 1e-4))


@pytest.mark.parametrize("efficiency", ["coefficients", "fitted"])
@pytest.mark.parametrize(
    ("sizes", "tp", "sequences", "slots", "asked"),
    [
        ((4,), 4, 7.5, 8, {}),
        ((4, 4), 2, 400.0, 16, {"draft_tokens": 2}),
        ((2, 2), 1, 7.5, 8, {"phase": "prefill"}),
    ],
)
def test_even_experts_cost_what_an_ideal_placement_costs(toy, efficiency, sizes, tp, sequences, slots, asked):
    gpus, prefill = sum(sizes), "phase" in asked
    ideal = getattr(toy, efficiency)()
    where = toy.deployment(
        toy.cluster(*sizes), toy.model(dense=1, moe=2, precision="fp8"), efficiency=ideal, **asked
    )
    stage = StageSpec(tuple(range(gpus)), range(3))
    use = toy.uses(where, toy.layout([(stage.gpus, stage.layers)]), slots=slots)[0][0]
    placed = batch_cost(where, stage, sequences, use, last=True, tp=tp)
    shape = StepShape(
        tp=tp, attention_dp=gpus / tp, ep=gpus, slots=slots, context=100.0, domain_gpus=min(sizes)
    )
    decoding = {"sequences": sequences, "queries": 1.0 + asked.get("draft_tokens", 0)}
    prompts = {"prompt_tokens": 100 * sequences, "prompt_length": 100.0}
    even = even_step(where.model, replace(shape, **(prompts if prefill else decoding)), where.machine(stage))
    assert float(even.total_s) == pytest.approx(float(placed.total_s))
    assert float(even.lower_s) == pytest.approx(float(placed.lower_s))
    for name, seconds in even.parts_s.items():
        assert float(placed.parts_s.get(name, 0.0)) == pytest.approx(float(seconds), rel=1e-9, abs=1e-30)


def test_drafts_add_flop_and_a_layer_each_and_no_reads_of_the_cache(toy):
    machine, model = toy.machine(toy.cluster(1)), toy.model(dense=2, moe=0)
    plain = StepShape(sequences=3.0, context=100.0)
    one, three = (even_step(model, replace(plain, queries=q), machine) for q in (1.0, 3.0))
    one_part = resolve_model("nemotron-3-super-120b-a12b")
    assert (one_part.draft.attention.kind, one_part.draft.ffn) == ("gqa", one_part.moe)
    # two layers and head verify 3 tokens for each sequence; 2 drafts pass one layer more and the head, a token each
    layer, head = 2 * 12_288 + 2 * 20_000 + 100 * 256, 2 * 64_000
    flop = 3 * 3 * (2 * layer + head) + 2 * 3 * (layer + head)
    assert float(three.floor_s["compute"]) == pytest.approx(flop / 1e14)
    # the cache of both layers is read once as before, and once for each draft of its own layer
    cache, weights, head_bytes = 3 * 100 * 128, 2 * (12_288 + 20_000), 2 * 64_000
    read = 2 * (cache + weights) + head_bytes + 2 * (cache + weights + head_bytes)
    assert float(three.floor_s["HBM bandwidth"]) == pytest.approx(read / 1e12)
    assert float(one.floor_s["HBM bandwidth"]) == pytest.approx((2 * (cache + weights) + head_bytes) / 1e12)
