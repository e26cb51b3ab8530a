"""Speeds of GPUs that differ: by chip and by throttling, and the experts' part of a step at each one's own rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cost.experts.tokens.reach import ExpertUse, balanced_use
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.machine import PEAK, Efficiency
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.step.score import LayoutScorer
from cost.terms.experts import expert_speed
from topology import Fault, build_cluster, resolve_cluster

MODEL = resolve_model("mixtral-8x7b")
STAGE = StageSpec(tuple(range(8)), range(32))
EVEN = balanced_use(32, np.ones(8, dtype=np.int64), 8, 2)


def throttled(factors: dict[int, float], efficiency: Efficiency | None = None) -> Deployment:
    faults = tuple(Fault(gpu=f"d0.n0.g{gpu}", factor=factor) for gpu, factor in factors.items())
    spec = replace(resolve_cluster("hgx-h100").spec, faults=faults)
    return Deployment(build_cluster(spec), MODEL, Workload(batch=64), efficiency)


def shared(parts: Sequence[float]) -> ExpertUse:
    share = np.array(parts) / sum(parts)
    return replace(EVEN, share=share[None, None], slot_share=share[None, None])


def seconds_of_experts(deployment: Deployment, use: ExpertUse) -> float:
    scorer = LayoutScorer(deployment, Layout(((STAGE,),), 1), [[use]])
    return scorer.at(64).terms_s["experts"]


def test_a_throttled_gpu_is_as_slow_as_it_is_throttled() -> None:
    deployment = throttled({3: 0.5})
    rates = deployment.gpu_rates(STAGE)
    expected = [2.0, 2.0, 2.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    for found in (rates.compute, rates.read, rates.peak_compute, rates.peak_read):
        assert found == pytest.approx(expected)
    speed = expert_speed(deployment, STAGE, MODEL.moe, EVEN, 64.0)
    assert speed == pytest.approx(np.array(expected) / np.mean(expected))


@pytest.mark.parametrize("efficiency", [None, PEAK])
def test_experts_wait_for_the_gpu_that_takes_longest_at_its_own_rates(efficiency: Efficiency | None) -> None:
    whole, slow = throttled({}, efficiency), throttled({3: 0.5}, efficiency)
    uneven = shared([1.0, 1, 1, 0.5, 1, 1, 1, 1])
    # an even share takes the slow GPU twice as long as the others
    assert seconds_of_experts(slow, EVEN) == pytest.approx(2 * seconds_of_experts(whole, EVEN))
    # at peaks its slot's weights take as long to read whatever the load
    less = seconds_of_experts(slow, uneven)
    assert less < seconds_of_experts(slow, EVEN) or efficiency is PEAK
    assert less <= seconds_of_experts(slow, EVEN)
    # and nothing given to it, the others go at their own pace
    none = shared([1.0, 1, 1, 0, 1, 1, 1, 1])
    assert seconds_of_experts(slow, none) == pytest.approx(seconds_of_experts(whole, none))


def test_chips_that_differ() -> None:
    joined = replace(
        resolve_cluster("hgx-h200@16").spec,
        domains=(resolve_cluster("hgx-h20").spec.domains[0], resolve_cluster("hgx-h200").spec.domains[0]),
    )
    deployment = Deployment(build_cluster(joined), MODEL, Workload(batch=64), PEAK)
    stage = StageSpec(tuple(range(16)), range(32))
    use = balanced_use(32, np.ones(16, dtype=np.int64), 16, 2)
    rates = deployment.gpu_rates(stage)
    speed = expert_speed(deployment, stage, MODEL.moe, use, 4096.0)
    h20, h200 = (domain.gpu for domain in joined.domains)
    assert rates.compute[:8] == pytest.approx(1.0)
    assert rates.compute[8:] == pytest.approx(h200.dense_flop_per_s("bf16") / h20.dense_flop_per_s("bf16"))
    assert speed.mean() == pytest.approx(1.0)
    assert speed[8:].min() > 2 * speed[:8].max()


def test_the_ideal_use_follows_the_speeds() -> None:
    use = balanced_use(2, np.array([2, 1, 0]), 3, 1, speed=np.array([2.0, 0.5, 0.5]))
    assert use.share[0, 0] == pytest.approx([0.8, 0.2, 0.0])
    assert use.slot_share[0, 0] == pytest.approx([0.4, 0.4, 0.2])
