"""Context parallelism: bytes by hand, order and identity, the search against every width, published runs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.workload import StepShape, Workload
from cost.layouts import Sweep, best_at, sweep
from cost.layouts.contexts import cache_copies, context_widths, copies_words
from cost.memory.sizes import layer_cache_bytes
from cost.resolve import resolve_model
from cost.step.step import even_parts
from cost.terms.context import decode_bytes, gathered, prompt_bytes
from helpers import planned
from placement.engines.export import export_plan
from placement.engines.registry import ENGINES
from placement.plans.reading import plan_of_text
from placement.plans.writing import plan_to_dict, plan_to_json
from topology import resolve_cluster
from topology.base.errors import InfeasibleError, InputError

TOKENS = 100_000


@cache
def deployment(model: str, cluster: str, context: int = 65_536, **asked: int) -> Deployment:
    work = Workload(context=context, kv_dtype="fp8")
    return Deployment(resolve_cluster(cluster), resolve_model(model), work, **asked)


def held(model: str, tp: int, dcp: int, kind: int = 0) -> float:
    """Cache bytes of a token on one GPU of a layer of a kind."""
    where = deployment(model, "hgx-h200@8")
    layer = where.model.kinds[kind]
    return float(layer_cache_bytes(layer, where.workload, tp, TOKENS, dcp)) / tp / TOKENS


@pytest.mark.parametrize(
    ("model", "tp", "dcp", "each"),
    [
        ("deepseek-v3", 8, 1, 512 + 64),  # a latent and its positions, on every GPU
        ("deepseek-v3", 8, 8, (512 + 64) / 8),
        ("qwen3-235b-a22b", 8, 1, 2 * 128),  # 4 heads of keys and values on 8 GPUs: one each, twice
        ("qwen3-235b-a22b", 8, 2, 2 * 128 / 2),
        # FP8 with scales and BF16 positions, split; the index's keys are on every GPU
        ("deepseek-v3.2", 8, 2, (512 + 16 + 128) / 2 + 128 + 4),
    ],
)
def test_bytes_of_a_cached_token_by_hand(model: str, tp: int, dcp: int, each: float) -> None:
    assert held(model, tp, dcp) == pytest.approx(each)


def test_windows_and_states_stay_whole() -> None:
    gpt, qwen = resolve_model("gpt-oss-120b"), resolve_model("qwen3.5-397b-a17b")
    windows = [number for number, layer in enumerate(gpt.kinds) if layer.attention.kind == "swa"]
    states = [number for number, layer in enumerate(qwen.kinds) if layer.attention.kind == "linear"]
    for name, kind in (("gpt-oss-120b", windows[0]), ("qwen3.5-397b-a17b", states[0])):
        assert held(name, 16, 4, kind) == held(name, 16, 1, kind)
    assert (cache_copies(gpt, 8), cache_copies(gpt, 16), cache_copies(qwen, 16)) == (1, 2, 8)


@pytest.mark.parametrize(("inside", "up", "out"), [(8, 7, 0), (4, 3 * 2, 1), (1, 0, 7)])
def test_each_rank_receives_what_the_others_have(inside: int, up: int, out: int) -> None:
    """8 GPUs in one domain, in two, in one each: parts over scale-out links, then parts over scale-up links."""
    where = deployment("deepseek-v3", "hgx-h200@16")
    rates = where.rates(sweep(where).layout_of(0).replicas[0][0])
    shape = StepShape(tp=8.0, dcp=8.0, domain_gpus=inside)
    part = gathered(np.float64(1e6), 8.0, shape, rates, calls=3.0, layers=2)
    assert part.up_s == pytest.approx(up * 1e6 / rates.up_bytes_per_s)
    assert part.out_s == pytest.approx(out * 1e6 / rates.out_bytes_per_s)
    assert (part.calls, part.crossing) == (3, 3 * np.log2(8 / inside))


def test_bytes_on_the_way_by_hand() -> None:
    attention = resolve_model("deepseek-v3").kinds[0].attention
    assert attention.by_token is not None
    shape = StepShape(tp=8.0, dcp=4.0, sequences=2.0, queries=2.0)
    # 32 tokens of a group: 16 heads of 576 and 512 BF16 elements, a float for each of the 64 heads of 4 GPUs
    sent = decode_bytes(128, attention.by_token, shape)
    assert sent == pytest.approx(32 * (16 * (576 + 512) * 2 + 64 * 4))
    prompts = StepShape(tp=8.0, pcp=4.0, prompt_tokens=100.0, prompt_length=800.0, dcp=8.0)
    new, prefix = prompt_bytes(attention, "fp8", prompts)
    assert (new, prefix) == (pytest.approx(100 * 2 * 576 * 2), 0)  # 800 tokens, a quarter each
    cached = replace(prompts, pcp=1.0, prompt_cached=400.0)  # two prompts, half of each in the cache
    assert prompt_bytes(attention, "fp8", cached)[1] == pytest.approx(2 * 400 * 576 / 8)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 64), st.sampled_from([1.0, 1.5, 4.0]))
def test_a_faster_link_never_slows_and_without_it_nothing_is_sent(
    dcp: int, batch: int, faster: float
) -> None:
    where = deployment("deepseek-v3", "hgx-h200@8")
    machine = where.machine(sweep(where).layout_of(0).replicas[0][0])
    quick = replace(machine.rates, up_bytes_per_s=faster * machine.rates.up_bytes_per_s)
    group = StepShape(tp=8.0, ep=8.0, domain_gpus=8.0, dcp=float(dcp)).under(where.workload, batch / 8)
    slow, fast = (
        even_parts(where.model, group, replace(machine, rates=rates)).reduces
        for rates in (machine.rates, quick)
    )
    assert sum(float(part.up_s) for part in fast) <= sum(float(part.up_s) for part in slow) * (1 + 1e-12)
    assert any(part.term == "context" for part in slow) == (dcp > 1)


def most_tokens(swept: Sweep, tp: int) -> float:
    rows = np.flatnonzero((swept.tp == tp) & (swept.stages == 1) & (swept.moe_tp == 1) & (swept.gpus == 8))
    return float(max((swept.cache(int(row)).tokens for row in rows[:1]), default=0.0))


@pytest.mark.parametrize("model", ["deepseek-v3", "deepseek-v3.2", "qwen3-235b-a22b", "qwen3.5-397b-a17b"])
def test_more_of_it_never_holds_fewer_tokens(model: str) -> None:
    widths = [dcp for dcp in (1, 2, 4, 8) if cache_copies(resolve_model(model), 8) % dcp == 0]
    tokens = [most_tokens(sweep(deployment(model, "hgx-h200@8", dcp=dcp)), 8) for dcp in widths]
    assert all(few < many for few, many in pairwise(tokens)), tokens


@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3.5-397b-a17b"])
@pytest.mark.parametrize("context", [32_768, 131_072])
def test_the_search_finds_what_trying_every_width_finds(model: str, context: int) -> None:
    found = sweep(deployment(model, "hgx-h200@16", context))
    widths = [dcp for dcp in (1, 2, 4, 8, 16) if cache_copies(found.deployment.model, 16) % dcp == 0]
    every = [sweep(deployment(model, "hgx-h200@16", context, dcp=dcp)) for dcp in widths]
    for speed in (5, 20, 40, 80):
        rates = [float(swept.tok_s[row]) for swept in every if (row := best_at(swept, speed)) is not None]
        row = best_at(found, speed)
        assert (0.0 if row is None else float(found.tok_s[row])) >= 0.995 * max(rates, default=0.0)


def test_short_contexts_are_as_without_it() -> None:
    plain, default = (
        sweep(deployment("deepseek-v3", "hgx-h200@8", 8_192, **asked)) for asked in ({"dcp": 1}, {})
    )
    assert np.array_equal(plain.step_s, default.step_s)
    assert set(default.dcp.tolist()) == {1}


def test_plan_sweep_and_score_agree_and_a_plan_is_read_as_it_was_written() -> None:
    made = planned("qwen3-235b-a22b", "hgx-h200@8", context=32_768, tp=8, dcp=2, loads="uniform")
    where = made.deployment
    swept = sweep(where, redundant=0, batches=[made.score.batch])
    rows = np.flatnonzero((swept.tp == 8) & (swept.moe_tp == 1) & (swept.batch == made.score.batch))
    assert made.score.step_s == pytest.approx(float(swept.step_s[rows].min()), rel=1e-6)
    assert sum(made.score.parts_s.values()) == pytest.approx(made.score.step_s)
    assert made.score.terms_s["context"] > 0
    assert made.layout.short(moe=True) == "EP8 TP8 DCP2 PP1 x1"
    again = plan_of_text(plan_to_json(plan_to_dict(made)), "a plan")
    assert (again.layout, again.deployment.dcp) == (made.layout, 2)
    flags = " ".join(export_plan(made, ENGINES["sglang"], "x.json", role="decode").flags)
    assert "--tp-size 8 --ep-size 8 --dcp-size 2" in flags
    with pytest.raises(InputError, match="no dcp beside a map of experts"):
        export_plan(made, ENGINES["trtllm"], "x.yaml")


def test_prompts_split_over_a_group_copy_its_weights() -> None:
    """A rank of TP 8 and PCP 8 has all weights of attention; a single prompt is sooner done than on TP 8 alone."""
    prompts = Workload(context=131_072, phase="prefill")
    plain, split = (
        sweep(replace(deployment("deepseek-v3", "hgx-h200@8"), workload=prompts, pcp=pcp)) for pcp in (1, 8)
    )
    assert [context_widths(split.deployment, tp) for tp in (4, 8)] == [[], [(1, 8)]]
    seconds = [float(swept.step_s[swept.tp == 8].min()) for swept in (plain, split)]
    assert seconds[1] < seconds[0]
    assert most_tokens(split, 8) < most_tokens(plain, 8)


def test_who_copies_is_told_and_what_cannot_be_is_refused() -> None:
    words = copies_words(resolve_model("qwen3-235b-a22b"), 8, 1)
    assert words == "TP 8 over 4 KV heads keeps the cache 2 times: `dcp` 2 keeps it once"
    assert copies_words(resolve_model("qwen3-235b-a22b"), 8, 2) == ""
    with pytest.raises(InfeasibleError, match="keeps the cache of deepseek-v3 4 times; expected a divisor"):
        planned("deepseek-v3", "hgx-h200@8", tp=4, dcp=8)
    with pytest.raises(InputError, match="keeps the cache of gpt-oss-120b once"):
        planned("gpt-oss-120b", "hgx-h200@8", dcp=2)
    for width in (0, -1):
        with pytest.raises(InputError, match=f"{width}: expected greater than or equal to 1"):
            planned("deepseek-v3", "hgx-h200@8", dcp=width)


@pytest.mark.parametrize(("context", "low", "high"), [(32_768, 8, 16), (65_536, 4, 8), (131_072, 2, 4)])
def test_it_pays_from_the_concurrency_that_was_measured(context: int, low: int, high: int) -> None:
    """SGLang pull request 33926, TP 8 on Blackwell: DCP 8 overtakes between so many requests; ours within 2x."""
    model = resolve_model("deepseek-r1", weights="nvfp4")
    work = Workload(context=context, kv_dtype="fp8")
    where = Deployment(resolve_cluster("hgx-b200@8"), model, work, engine="sglang", dcp=8)

    def gain(requests: float) -> float:
        found = []
        for dcp in (1, 8):
            swept = sweep(replace(where, dcp=dcp), batches=[requests / 8])
            rows = (swept.tp == 8) & (swept.gpus == 8) & (swept.ep == 8) & (swept.batch == requests / 8)
            found.append(float(swept.step_s[rows].min()))
        return found[0] / found[1] - 1

    assert gain(low / 2) <= 0.02
    assert gain(2 * high) > 0
