"""Dispatch and combine as parts of a step: even loads against placed ones, and what each kernel adds."""

from dataclasses import replace

import numpy as np
import pytest

from cost.calibration.alltoall import load_kernels
from cost.experts.tokens.reach import balanced_use
from cost.experts.tokens.volumes import Volumes
from cost.inputs.machine import kernels_for
from cost.inputs.workload import StepShape
from cost.terms.alltoall import alltoall_parts, even_alltoall_parts
from cost.terms.alltoall_kernel import alltoall_seconds
from topology.base.errors import InputError


def test_one_attention_group_sends_nothing(toy):
    machine = toy.machine(toy.cluster(4))
    shape = StepShape(tp=4, attention_dp=1, ep=4, sequences=10, domain_gpus=4)
    assert even_alltoall_parts(toy.model(), toy.moe.ffn, shape, machine) == []
    use = balanced_use(1, np.array([8]), 8, 2)
    assert (
        alltoall_parts(toy.model(), use, tokens=10, domain=np.zeros(1, dtype=np.int64), machine=machine) == []
    )


def test_experts_cut_in_parts_get_every_token(toy):
    # an all-gather: 3 other GPUs' 10 tokens of 128 bytes arrive, at 100 GB/s
    machine = toy.machine(toy.cluster(4))
    shape = StepShape(attention_dp=4, ep=1, moe_tp=4, sequences=10, domain_gpus=4)
    for part in even_alltoall_parts(toy.model(), toy.moe.ffn, shape, machine):
        assert part.up_s == pytest.approx(30 * 128 / 1e11)


def test_domains_that_nothing_joins_are_refused(toy):
    machine = toy.machine(toy.cluster(4, 4, out=0))
    shape = StepShape(attention_dp=8, ep=8, sequences=10, domain_gpus=4)
    with pytest.raises(InputError, match="no `fabric:`"):
        even_alltoall_parts(toy.model(), toy.moe.ffn, shape, machine)
    use = balanced_use(1, np.ones(8, dtype=np.int64), 8, 2)
    with pytest.raises(InputError, match="no `fabric:`"):
        alltoall_parts(toy.model(), use, tokens=1, domain=np.repeat([0, 1], 4), machine=machine)


def test_the_exchange_of_counts_is_paid_both_ways(toy):
    kernel = next(kernel for kernel in load_kernels().values() if kernel.notify_s is not None)
    machine = toy.machine(toy.cluster(4, 4), efficiency=toy.fitted())
    rates = machine.rates
    machine = replace(machine, kernels=kernels_for(rates, "decode", kernel.name))
    shape = StepShape(attention_dp=8, ep=8, sequences=10.0, slots=8, domain_gpus=4)
    even = even_alltoall_parts(toy.model(), toy.moe.ffn, shape, machine)
    for part, leg in zip(even, (kernel.dispatch, kernel.combine), strict=True):
        assert leg.scale_s is leg.unpack_s is None  # so what a GPU receives plays no part
        alone = alltoall_seconds(
            leg,
            Volumes(
                part.up_s * rates.alltoall_bytes_per_s / 128,
                part.out_s * rates.out_bytes_per_s / 128,
                np.zeros(()),
            ),
            vector_bytes=128,
            up_bytes_per_s=rates.alltoall_bytes_per_s,
            out_bytes_per_s=rates.out_bytes_per_s,
            ep=8,
        )
        assert part.expected_s == pytest.approx(float(alone) + kernel.notify_s.value)


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
