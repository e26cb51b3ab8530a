"""Parts of a step added up: what kernels lose, all-to-all, prompts beside decoding, what binds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cost.experts.tokens.reach import balanced_use
from cost.inputs.machine import Unit, kernels_for
from cost.inputs.workload import CHUNK_TOKENS, StepShape
from cost.step.score import Score
from cost.step.step import busiest, priced
from cost.terms.alltoall import alltoall_parts, even_alltoall_parts
from cost.terms.work import (
    LinkPart,
    Parts,
    StepCost,
    Work,
    kernel_seconds,
)
from topology.base.figures import Evidence


def work(compute=2.0, memory=3.0, *, fraction="gemm.bf16", hbm="hbm.weights", layers=1.0, columns=np.inf):
    return Work("a part", (Unit(fraction),), hbm, compute, memory, layers, columns)


def some(parts):
    """The parts that take any time."""
    return {name: seconds for name, seconds in parts.items() if np.any(seconds)}


def test_narrow_slices_use_multipliers_badly(toy):
    # 100 columns where 300 reach half of the fraction: a quarter
    narrow = toy.coefficients(columns__gemm=300.0, columns__experts=900.0)
    assert work(columns=100.0).seconds(narrow) == (8.0, 3.0)
    assert work(fraction="experts.bf16", columns=100.0).seconds(narrow) == (20.0, 3.0)
    assert work(fraction="attention.decode.bf16").seconds(narrow) == (2.0, 3.0)
    # at peak the larger of computing and reading counts, else both do
    assert kernel_seconds(3.0, 4.0, toy.coefficients()) == 4.0
    assert kernel_seconds(3.0, 4.0, toy.coefficients(ideal=False)) == 5.0


def test_ranks_wait_for_the_one_with_most_to_do(toy):
    uneven = replace(work(2.0, 3.0, layers=2), uneven=0.4)
    cost = StepCost()
    cost.add_work(uneven, toy.coefficients(ranks__uneven=0.5))
    assert some(cost.terms_s) == {"a part": 6.0, "rank_imbalance": pytest.approx(0.5 * 0.4 * 6.0)}
    assert some(cost.limits_s) == {"HBM bandwidth": pytest.approx(7.2)}
    assert cost.floor_s["HBM bandwidth"] == 6.0, "a floor knows no chance"
    peak = StepCost()
    peak.add_work(uneven, toy.coefficients())
    assert peak.total_s == 6.0


def test_the_engine_loses_a_share_of_the_time_of_kernels(toy):
    parts = Parts(works=[replace(work(2.0, 3.0), uneven=1.0), work(1.0, 1.0)], counts={"delay.step": 1})
    parts.links.append(LinkPart("dispatch", 1.0, 0.0, 5.0))
    efficiency = toy.coefficients(engine__share=0.1, ranks__uneven=1.0, delay__step=7.0)
    cost = priced(parts, efficiency, toy.machine(toy.cluster(4)).rates)
    # 3 s and 3 s of waiting and 1 s; neither links nor delays
    assert cost.parts_s["engine", "fixed overhead"] == pytest.approx(0.7)
    assert cost.total_s == pytest.approx(7.0 + 0.7 + 5.0 + 7.0)


def test_one_attention_group_sends_nothing(toy):
    machine = toy.machine(toy.cluster(4))
    shape = StepShape(tp=4, attention_dp=1, ep=4, sequences=10, domain_gpus=4)
    assert even_alltoall_parts(toy.model(), toy.moe.ffn, shape, machine) == []
    use = balanced_use(1, np.array([8]), 8, 2)
    domain = np.zeros(1, dtype=np.int64)
    assert alltoall_parts(toy.model(), use, tokens=10, domain=domain, machine=machine) == []
    # experts cut in parts get every token by an all-gather: 3 other GPUs' 10 tokens of 128 bytes, at 100 GB/s
    cut = StepShape(attention_dp=4, ep=1, moe_tp=4, sequences=10, domain_gpus=4)
    for part in even_alltoall_parts(toy.model(), toy.moe.ffn, cut, machine):
        assert part.up_s == pytest.approx(30 * 128 / 1e11)


def test_few_tokens_on_many_gpus_of_a_domain_take_the_kernel_with_no_cost_of_peers(toy):
    machine = toy.machine(toy.cluster(toy.domain(64)), efficiency=toy.fitted())
    kernels = machine.kernels
    assert (kernels.inside.name, kernels.instead.name) == ("nvlink-one-sided", "deepep-ll")
    tokens = np.array([1e-3, 4000.0])
    shape = StepShape(attention_dp=64, ep=64, sequences=tokens, slots=64, domain_gpus=64)

    def seconds(able):
        with_them = replace(machine, kernels=able)
        return sum(
            part.expected_s for part in even_alltoall_parts(toy.model(), toy.moe.ffn, shape, with_them)
        )

    usual, other = seconds(replace(kernels, instead=None)), seconds(replace(kernels, inside=kernels.instead))
    # 24.44 + 25.81 us against 16.07 + 32.08 and 64 peers of 149.5 ns
    assert other[0] == pytest.approx(50.25e-6, rel=1e-3)
    assert usual[0] == pytest.approx(57.72e-6, rel=1e-3)
    assert seconds(kernels).tolist() == [other[0], usual[1]]
    assert kernels_for(machine.rates, "decode", "per-copy").instead is None, "whoever names a kernel gets it"


@pytest.mark.parametrize("sequences", [0.5, 4.0, 64.0, 1000.0])
@pytest.mark.parametrize(("tp", "groups", "stages"), [(1, 8, 1), (8, 1, 1), (2, 4, 2)])
def test_chunks_of_a_cycle_are_the_prompts_of_its_requests(sequences, tp, groups, stages):
    shape = StepShape(
        tp=float(tp), attention_dp=float(groups), stages=float(stages), sequences=sequences / tp, queries=1.0
    )
    mixed = shape.with_prompts(3000.0, 1000.0, steps=200.0)
    chunk = mixed.prompt_tokens * tp
    assert chunk <= max(CHUNK_TOKENS - sequences, 32.0)
    # in 200 steps each group prefills what its sequences have new
    assert 200 * mixed.prompt_share * chunk == pytest.approx(sequences * 2000)
    assert mixed.others == pytest.approx(1 - min(1.0, 1 / (sequences * groups * stages)))
    assert mixed.waits == 1
    assert replace(mixed, waits=0.0).prompt_share == mixed.prompt_share


def test_the_busiest_of_many_groups_has_more_than_the_mean():
    random = np.random.default_rng(0)
    for mean, groups in ((0.1, 8), (1.0, 8), (3.0, 64), (20.0, 16)):
        drawn = random.poisson(mean, (40_000, groups)).max(axis=1).mean() / mean
        assert float(busiest(mean, groups)) == pytest.approx(drawn, rel=0.03)
    assert float(busiest(0.3, 1)) == 1
    assert np.all(np.diff(busiest(0.5, np.array([1.0, 2.0, 8.0, 72.0]))) > 0)


def test_a_graph_takes_the_next_size_and_its_padding_has_no_cache():
    shape = StepShape(tp=2.0, sequences=np.array([0.5, 2.5, 129.0, 2000.0]), context=1000.0).padded
    assert (shape.sequences * 2).tolist() == [1, 8, 384, 4000]  # beyond the largest: as many as there are
    assert (shape.sequences * shape.context).tolist() == pytest.approx([500.0, 2500.0, 129_000.0, 2e6])


def score(parts_s: dict[tuple[str, str], float]) -> Score:
    step_s = sum(parts_s.values())
    return Score(step_s, step_s, 1.0, 1.0, 1.0, parts_s, {}, {}, 1, 1, Evidence.ASSUMED)


def test_what_binds_a_part_comes_with_the_most_first() -> None:
    parts = {
        ("experts", "HBM"): 1e-3,
        ("experts", "compute"): 2e-3,
        ("experts", "idle"): 0.0,
        ("dispatch", ""): 1e-3,
    }
    assert list(score(parts).bounds_of("experts").items()) == [("compute", 2e-3), ("HBM", 1e-3)]
    assert score(parts).bounds_of("dispatch") == {}


def test_half_of_the_shorter_of_computing_and_sending_is_hidden() -> None:
    longer = score({("experts", "compute"): 10e-3, ("dispatch", "nvlink"): 4e-3})
    assert longer.hidden_s(0.5) == pytest.approx({"dispatch": 4e-3})  # 8 ms are sent, 4 of them are seen
    shorter = score({("experts", "compute"): 2e-3, ("dispatch", "nvlink"): 3e-3, ("combine", "nvlink"): 1e-3})
    assert shorter.hidden_s(0.5) == pytest.approx(
        {"dispatch": 0.75e-3, "combine": 0.25e-3}
    )  # half of computing
    assert longer.hidden_s(0.0) == {}
    assert score({("experts", "compute"): 1e-3}).hidden_s(0.5) == {}
