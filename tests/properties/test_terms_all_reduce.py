"""Tensor-parallel all-reduce: bytes by hand on 100 GB/s inside a domain and 10 GB/s out of it."""

import pytest

from cost.inputs.machine import stage_rates
from cost.inputs.workload import StepShape
from cost.terms.all_reduce import all_reduce_part
from cost.terms.work import StepCost
from topology.base.errors import InputError


def part_of(toy, shape, *, times=2.0, layers=3, **cluster):
    rates = stage_rates(
        toy.cluster(toy.domain(4, latency=1e-6), 4, latency=1e-5, **cluster), range(8), ["bf16"]
    )
    return all_reduce_part(64, shape, times=times, rates=rates, layers=layers), rates


def test_inside_a_domain_twice_what_one_rank_lacks(toy):
    # tp 4, 5 tokens a GPU: 20 vectors of 128 bytes; reduce-scatter and all-gather send 3/4 of them each, twice
    part, _ = part_of(toy, StepShape(tp=4, sequences=5, domain_gpus=4))
    assert part.up_s == pytest.approx(2 * 2 * 3 / 4 * 20 * 128 / 1e11)
    assert part.out_s == 0
    assert (part.calls, part.crossing, part.layers) == (2, 0, 3)
    assert part.latency_s == pytest.approx(2e-6)


def test_across_domains_each_gpu_sends_its_part_out(toy):
    # tp 8 over domains of 4: 40 vectors; each of 4 GPUs holds a quarter and reduces it with one other
    part, _ = part_of(toy, StepShape(tp=8, sequences=5, domain_gpus=4))
    assert part.up_s == pytest.approx(2 * 2 * 3 / 4 * 40 * 128 / 1e11)
    assert part.out_s == pytest.approx(2 * 2 * 1 / 2 * 40 * 128 / 4 / 1e10)
    assert part.crossing == 2
    assert part.latency_s == pytest.approx(2e-6 + 4e-5)


def test_a_tree_over_more_domains_is_deeper(toy):
    # tp 16 over 2, 3 (as wide as 4), 4 and 8 domains: 1, 2, 2 and 3 rounds of 40 us and of the delay of crossing
    for domains, rounds in ((2, 1), (4, 2), (8, 3), (16, 4)):
        part, _ = part_of(toy, StepShape(tp=16, sequences=5, domain_gpus=16 / domains))
        assert part.crossing == 2 * rounds
        assert part.latency_s == pytest.approx(2e-6 + rounds * 4e-5)
    part, _ = part_of(toy, StepShape(tp=12, sequences=5, domain_gpus=4))
    assert part.crossing == 4


def test_one_rank_has_nothing_to_reduce(toy):
    part, _ = part_of(toy, StepShape(tp=1, sequences=5, domain_gpus=4))
    assert (part.up_s, part.out_s, part.calls) == (0, 0, 0)


def test_domains_that_nothing_joins_are_refused(toy):
    with pytest.raises(InputError, match="no `fabric:`"):
        part_of(toy, StepShape(tp=8, sequences=5, domain_gpus=4), out=0)


def test_seconds_of_calls_are_paid_where_kernels_lose(toy):
    part, rates = part_of(toy, StepShape(tp=8, sequences=5, domain_gpus=4))
    moved = 3 * (part.up_s + part.out_s)
    ideal, real = StepCost(), StepCost()
    changed = {"delay__all_reduce": 1e-3, "delay__all_reduce_out": 1e-2, "links__all_reduce": 0.5}
    ideal.add_reduce(part, toy.coefficients(links__all_reduce=0.5), rates)
    real.add_reduce(part, toy.coefficients(ideal=False, **changed), rates)
    assert ideal.total_s == pytest.approx(2 * moved)
    # 3 layers of 2 calls, each with both latencies and both delays
    assert real.total_s == pytest.approx(2 * moved + 6 * (1e-3 + 1e-2 + 4.2e-5))
    assert real.floor_s == ideal.floor_s == {"up": 3 * part.up_s, "out": 3 * part.out_s}
