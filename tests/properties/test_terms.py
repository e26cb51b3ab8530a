"""Terms of a step by hand, on round figures: attention, dense weights and experts, all-reduces, all-to-alls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from cost.calibration.alltoall import load_kernels
from cost.experts.tokens.reach import Routing
from cost.experts.tokens.volumes import Volumes, alltoall_volumes
from cost.inputs.machine import Unit, stage_rates
from cost.inputs.workload import StepShape
from cost.model import MoeFfn
from cost.terms.all_reduce import all_reduce_part
from cost.terms.alltoall_kernel import Leg, alltoall_seconds, vector_bytes, wire_bytes
from cost.terms.attention import attention_works
from cost.terms.dense import dense_work
from cost.terms.experts import even_expert_work
from topology.base.errors import InputError
from toys import figure


@pytest.fixture
def rates(toy):
    return stage_rates(toy.cluster(4), range(4), ["bf16", "fp8"])


def works_of(toy, shape, rates, *, kv="bf16", weights="bf16"):
    return attention_works(toy.attention, shape, hidden=64, kv_dtype=kv, weights=weights, rates=rates)


def test_scores_multiply_in_the_format_of_the_cache_where_the_chip_can(toy):
    shape = StepShape(sequences=3, context=100)
    both = stage_rates(toy.cluster(4), range(4), ["bf16", "fp8"])
    projections, scores = works_of(toy, shape, both, kv="fp8", weights="fp8")
    assert projections.compute_s == pytest.approx(2 * 12_288 * 3 / 2e14)
    assert projections.memory_s == pytest.approx(12_288 * (1 + 4 / 128**2) / 1e12)
    assert scores.compute_s == pytest.approx(76_800 / 2e14)
    assert scores.memory_s == pytest.approx(19_200 / 1e12)
    # BF16 kernels on the same cache: half of the peak
    assert scores.units == (Unit("attention.decode.fp8", (("attention.decode.bf16", 0.5),)),)
    old = stage_rates(toy.cluster(toy.domain(4, chip=toy.gpu(fp8=0))), range(4), ["bf16", "fp8"])
    assert works_of(toy, shape, old, kv="fp8")[1].compute_s == pytest.approx(76_800 / 1e14)


@pytest.mark.parametrize(
    ("changed", "pairs", "read", "columns"),
    [
        # 2 groups of 2 GPUs: 4 experts a group, each cut in two
        ({"ep": 2, "moe_tp": 2}, 12 / 2, 4 * (1 - 0.75**12) / 2, 3 * 16 / 2),
        # flop of the busiest GPU
        ({"ep": 4, "imbalance": 1.5}, 1.5 * 6, 2 * (1 - 0.75**12), 3 * 16),
    ],
)
def test_even_experts_compute_and_read(toy, rates, changed, pairs, read, columns):
    shape = StepShape(attention_dp=4, sequences=3, **changed)
    work = even_expert_work(toy.moe.ffn, shape, weights="bf16", rates=rates)
    assert work.compute_s == pytest.approx(2 * 3_000 * pairs / 1e14)
    assert work.memory_s == pytest.approx(read * 3_000 * 2 / 1e12)
    assert work.columns == columns


def test_the_rest_of_a_prompt_attends_to_its_cached_part(toy, rates):
    # 40 new tokens after 60 cached ones see 60.5 to 99.5 of them, 80 on average; 2 x 4 heads x 32 flop for each
    shape = StepShape(prompt_tokens=40.0, prompt_length=100.0, prompt_cached=60.0)
    scores = works_of(toy, shape, rates)[-1]
    assert scores.compute_s == pytest.approx(40 * 80 * 4 * 2 * 32 / 1e14)
    # the 60 are read once: 2 heads x 32 elements x 2 bytes
    assert scores.memory_s == pytest.approx(60 * 2 * 32 * 2 / 1e12)
    whole = works_of(toy, StepShape(prompt_tokens=100.0, prompt_length=100.0), rates)[-1]
    first = works_of(toy, StepShape(prompt_tokens=60.0, prompt_length=60.0), rates)[-1]
    assert scores.compute_s == pytest.approx(whole.compute_s - first.compute_s)


@pytest.mark.parametrize(("skew", "queries"), [(0.63, 1), (1.0, 3), (1.4, 1)])
@pytest.mark.parametrize("tokens", [1, 8, 64, 1000, 30_000])
def test_experts_of_unequal_use_as_by_brute_force(rates, skew, queries, tokens):
    """100,000 experts at even steps of the normal distribution: each token uses each with its own chance.

    The second and third token of a sequence use half as many further experts.
    """
    moe = MoeFfn(experts=256, top_k=8, expert_params=3_000, shared_params=0, router_params=0, columns=16)
    shape = StepShape(sequences=tokens, queries=queries, skew=skew)
    work = even_expert_work(moe, shape, weights="bf16", rates=rates)
    use = np.exp(skew * norm.ppf((np.arange(100_000) + 0.5) / 100_000) - skew**2 / 2)
    fresh = tokens * (1 + 0.5 * (queries - 1))
    touched = np.mean(1 - (1 - np.minimum(8 / 256 * use, 1.0)) ** fresh)
    assert work.memory_s == pytest.approx(256 * touched * 6_000 / 1e12, rel=1e-3 if skew <= 1 else 0.01)
    assert work.compute_s == pytest.approx(2 * 3_000 * 8 * tokens * queries / 1e14), "all tokens are computed"


@pytest.mark.parametrize("share", [0.25, 0.96875])
def test_a_mixture_takes_the_time_of_its_formats_one_after_the_other(toy, share):
    name = f"fp8*{share}+bf16*{1 - share}"
    rates = stage_rates(toy.cluster(4), range(4), [name, "fp8", "bf16"])
    reach = toy.coefficients(gemm__fp8=0.4, gemm__bf16=0.7, hbm__weights=0.8)

    def seconds(weights, params):
        work = dense_work(params, tokens=10, tp=1, hidden=64, weights=weights, rates=rates)
        return [*work.seconds(reach), work.least_compute_s]

    parts = zip(seconds("fp8", share * 1e6), seconds("bf16", (1 - share) * 1e6), strict=True)
    assert seconds(name, 1e6) == pytest.approx([fp8 + bf16 for fp8, bf16 in parts])


def reduced(toy, shape, *, times=2.0, layers=3, **cluster):
    rates = stage_rates(
        toy.cluster(toy.domain(4, latency=1e-6), 4, latency=1e-5, **cluster), range(8), ["bf16"]
    )
    return all_reduce_part(64, shape, times=times, rates=rates, layers=layers), rates


@pytest.mark.parametrize(
    ("tp", "up_s", "out_s", "crossing", "latency_s"),
    [
        (1, 0, 0, 0, 2e-6),
        # 20 vectors of 128 bytes; reduce-scatter and all-gather send 3/4 of them each, in two calls
        (4, 2 * 2 * 3 / 4 * 20 * 128 / 1e11, 0, 0, 2e-6),
        # 40 vectors over domains of 4: each GPU holds a quarter and reduces it with one other
        (8, 2 * 2 * 3 / 4 * 40 * 128 / 1e11, 2 * 2 * 1 / 2 * 40 * 128 / 4 / 1e10, 2, 2e-6 + 4e-5),
    ],
)
def test_twice_what_a_rank_lacks_inside_domains_and_between_them(toy, tp, up_s, out_s, crossing, latency_s):
    part, _ = reduced(toy, StepShape(tp=tp, sequences=5, domain_gpus=4))
    assert (part.up_s, part.out_s) == (pytest.approx(up_s), pytest.approx(out_s))
    assert (part.calls, part.crossing, part.layers) == (2 * (tp > 1), crossing, 3)
    assert part.latency_s == pytest.approx(latency_s)


def test_domains_that_nothing_joins_are_refused(toy):
    with pytest.raises(InputError, match="no `fabric:`"):
        reduced(toy, StepShape(tp=8, sequences=5, domain_gpus=4), out=0)


def volumes(up, out=0.0, received=0.0):
    return Volumes(*(np.asarray(value, dtype=float) for value in (up, out, received)))


def seconds(leg, what, *, size=1000.0, up=1e9, out=1e8, ep=8, scaled=False):
    return alltoall_seconds(
        leg, what, vector_bytes=size, up_bytes_per_s=up, out_bytes_per_s=out, ep=ep, scaled=scaled
    )


LEG = {"alpha_up_s": 1.0, "up": 1.0}
OUT = {"alpha_out_s": 2.0, "out": 0.8}


@pytest.mark.parametrize(
    ("leg", "moved", "options", "expected_s"),
    [
        ({"up": 0.5}, (5e6,), {}, 1 + 5e9 / 0.5e9),
        (OUT | {"up": 0.5}, (5e6, 4e6), {}, 2 + 50),
        ({"floor_s": 3.0, "peer_s": 0.25}, (1e6,), {"ep": 4}, 1 + 3),  # 1 + 1 + 1 is less than the floor
        (OUT | {"copy_bytes_per_s": 1e9}, (1e6, 1.0), {}, 2 + 1 + 2),
        # scales are made while links work, and what comes is unpacked after
        ({"scale_s": 1e-6, "unpack_s": 2e-6}, (1e6, 0.0, 3e6), {"ep": 2, "scaled": True}, 1 + 6 + 6),
    ],
)
def test_seconds_of_an_all_to_all_by_hand(leg, moved, options, expected_s):
    made = Leg(**{name: figure(value, "") for name, value in (LEG | leg).items()})
    assert seconds(made, volumes(*moved), **options) == pytest.approx(expected_s)


@settings(max_examples=60)
@given(
    kernel=st.sampled_from(list(load_kernels().values())),
    name=st.sampled_from(["dispatch", "combine"]),
    tokens=st.floats(0.5, 16384),
    ep=st.sampled_from([2, 8, 16, 24, 32, 72, 256]),
    up=st.floats(1e9, 2e12),
    slower=st.floats(1.0, 8.0),
)
def test_never_faster_than_bytes_over_the_peak_rate(kernel, name, tokens, ep, up, slower):
    leg, out, size = getattr(kernel, name), up / slower, wire_bytes(7168, "fp8")
    inside = ep if leg.out is None else 8
    moved = alltoall_volumes(kernel.family, Routing(256, 8, 8, 4), tokens=tokens, ep=ep, domain_gpus=inside)
    shortest = max(float(moved.up) * size / up, float(moved.out) * size / out)
    assert float(seconds(leg, moved, size=size, up=up, out=out, ep=ep)) >= shortest


@pytest.mark.parametrize(
    ("weights", "dispatch"),
    [
        ("fp8", 7_392),  # 7,168 values and 56 scales of 4 bytes
        ("nvfp4", 7_392),
        ("bf16", 14_336),
        ("nvfp4*0.3+bf16*0.7", 14_336),
    ],
)
def test_bytes_of_a_hidden_vector(weights, dispatch):
    assert vector_bytes(7168, weights) == (dispatch, 14_336)
    with pytest.raises(InputError, match="bf16, fp16, fp8"):
        wire_bytes(7168, "int3")
