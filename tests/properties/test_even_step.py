"""Steps of evenly loaded experts: many at once as one by one, as an ideal placement, drafts, prompts, overlap."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.attention import NoAttention
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import StepShape, Workload
from cost.model import DenseFfn
from cost.resolve import resolve_model
from cost.step.step import batch_cost, even_parts, even_step, overlapped
from cost.terms.registry import TERMS
from cost.terms.work import StepCost
from topology import resolve_cluster


def small_model(toy):
    return toy.model(dense=1, moe=2, precision="fp8")


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
    where = toy.deployment(toy.cluster(*sizes), small_model(toy), efficiency=ideal, **asked)
    stage = StageSpec(tuple(range(gpus)), range(3))
    use = toy.uses(where, toy.layout([(stage.gpus, stage.layers)]), slots=slots)[0][0]
    placed = batch_cost(where, stage, sequences, tp, use, last=True)
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


def test_the_last_token_of_each_prompt_passes_the_head(toy):
    machine = toy.machine(toy.cluster(toy.domain(1, chip=toy.gpu(bf16=1e6, fp8=0))), phase="prefill")
    shape = StepShape(prompt_tokens=200.0, prompt_length=100.0)
    found = even_step(toy.model(dense=1, moe=0), shape, machine)
    assert float(found.terms_s["head"]) == pytest.approx(2 * 2 * 64_000 / 1e6)


def test_drafts_add_flop_and_a_layer_each_and_no_reads_of_the_cache(toy):
    machine, model = toy.machine(toy.cluster(1)), toy.model(dense=2, moe=0)
    plain = StepShape(sequences=3.0, context=100.0)
    one, three = (even_step(model, replace(plain, queries=q), machine) for q in (1.0, 3.0))
    # two layers and head verify 3 tokens for each sequence; 2 drafts pass one layer more and the head, a token each
    layer, head = 2 * 12_288 + 2 * 20_000 + 100 * 256, 2 * 64_000
    flop = 3 * 3 * (2 * layer + head) + 2 * 3 * (layer + head)
    assert float(three.floor_s["compute"]) == pytest.approx(flop / 1e14)
    # the cache of both layers is read once as before, and once for each draft of its own layer
    cache, weights, head_bytes = 3 * 100 * 128, 2 * (12_288 + 20_000), 2 * 64_000
    read = 2 * (cache + weights) + head_bytes + 2 * (cache + weights + head_bytes)
    assert float(three.floor_s["HBM bandwidth"]) == pytest.approx(read / 1e12)
    assert float(one.floor_s["HBM bandwidth"]) == pytest.approx((2 * (cache + weights) + head_bytes) / 1e12)


@pytest.mark.parametrize(
    ("name", "layers"),
    [  # latent, with an index of their own, with compressed entries, with experts
        ("deepseek-v3", (61, 0, 0, 58)),
        ("deepseek-v3.2", (61, 61, 0, 58)),
        ("deepseek-v4-pro", (61, 30, 61, 61)),
        ("minimax-m3", (0, 57, 0, 57)),
        ("llama-3.1-70b", (0, 0, 0, 0)),
    ],
)
def test_layers_that_pay_a_delay_of_their_kind(name, layers):
    model = resolve_model(name)
    machine = Deployment(resolve_cluster("hgx-h200"), model, Workload()).machine(
        StageSpec(tuple(range(8)), range(len(model.layers)))
    )
    shape = StepShape(attention_dp=8.0, ep=8.0, sequences=1.0, context=1000.0, domain_gpus=8.0)
    parts = even_parts(model, shape, machine)
    assert parts.counts["delay.layer"] == len(model.layers)
    kinds = ("latent_layer", "index_layer", "compress_layer", "moe_layer")
    assert tuple(parts.counts[f"delay.{kind}"] for kind in kinds) == layers
    drafted = even_parts(model, replace(shape, queries=3.0), machine)
    assert drafted.counts["delay.layer"] == len(model.layers) + 2
    assert drafted.counts["delay.step"] == parts.counts["delay.step"] == 1
    assert drafted.counts["delay.moe_layer"] == layers[3] + 2 * bool(layers[3])
    assert drafted.counts["delay.index_layer"] == layers[1] + 2 * bool(
        layers[1]
    )  # the last layer of each has one


@pytest.mark.parametrize(
    "changed",
    [
        {"attention_dp": 8.0, "ep": 8.0, "slots": 16.0, "skew": 1.0, "imbalance": 1.7},
        {"tp": 8.0, "ep": 2.0, "moe_tp": 4.0, "random": 1.0},
        {"tp": 2.0, "attention_dp": 4.0, "ep": 8.0, "prompt_tokens": 64.0, "prompt_length": 1000.0},
    ],
)
def test_two_layers_of_one_part_take_as_long_as_one_of_both(toy, changed):
    model, machine = small_model(toy), toy.machine(toy.cluster(4, 4), efficiency=toy.fitted())
    shape = StepShape(sequences=3.0, context=100.0, domain_gpus=4.0, **changed)
    halves = [
        half
        for layer in model.layers
        for half in (replace(layer, ffn=DenseFfn(0), norm_params=0), replace(layer, attention=NoAttention()))
    ]
    assert [layer.parts for layer in halves] == [1] * 6
    split = replace(model, layers=tuple(halves))
    whole, apart = (even_step(one, shape, machine) for one in (model, split))
    assert float(apart.total_s) == pytest.approx(float(whole.total_s))
    assert float(apart.lower_s) == pytest.approx(float(whole.lower_s))
    assert split.total_params == model.total_params


def test_a_draft_of_one_part_layers_has_attention_and_experts():
    model = resolve_model("nemotron-3-super-120b-a12b")
    assert (model.layers[-1].parts, model.draft.parts, model.draft.attention.kind) == (1, 2, "gqa")
    assert model.draft.ffn == model.moe
    assert resolve_model("deepseek-v3").draft == resolve_model("deepseek-v3").layers[-1]


def half_batches(compute, send):
    half = StepCost()
    half.add("attention", "compute", compute)
    half.add("dispatch", "up", send / 2)
    half.add("all_reduce", "out", send / 2)
    return half


@settings(deadline=None, max_examples=30)
@given(compute=st.floats(0, 10), send=st.floats(0, 10), share=st.floats(0, 1))
def test_overlap_hides_a_share_of_the_shorter(compute, send, share):
    whole = StepCost(floor_s={"compute": 1.0})
    found = overlapped(whole, half_batches(compute, send), share)
    total = 2 * (compute + send) - share * min(2 * compute, 2 * send)
    assert float(found.total_s) == pytest.approx(total, abs=1e-12)
    assert float(found.total_s) >= max(2 * compute, 2 * send) * (1 - 1e-9)
    assert float(found.terms_s["attention"]) == 2 * compute, "what is hidden is taken off the sending"
    assert float(found.limits_s["up"]) == pytest.approx(float(found.limits_s["out"]))
    assert found.floor_s == whole.floor_s


def test_overlap_of_a_setting_is_that_of_its_halves(toy):
    where = toy.deployment(toy.cluster(8), small_model(toy), efficiency=toy.fitted(), overlap=True)
    stage = StageSpec(tuple(range(8)), range(3))
    use = toy.uses(where, toy.layout([(stage.gpus, stage.layers)]))[0][0]
    plain = toy.deployment(where.cluster, where.model, efficiency=where.efficiency)
    half = batch_cost(plain, stage, 500.0, 1, use, last=True)
    sending = sum(float(half.terms_s.get(term, 0.0)) for term in TERMS if TERMS[term].sends)
    computing = float(half.total_s) - sending
    share = where.efficiency["overlap"]
    assert share > 0
    found = batch_cost(where, stage, 1000.0, 1, use, last=True)
    expected = 2 * (computing + sending) - share * min(2 * computing, 2 * sending)
    assert float(found.total_s) == pytest.approx(expected)
    assert found.floor_s == batch_cost(plain, stage, 1000.0, 1, use, last=True).floor_s
