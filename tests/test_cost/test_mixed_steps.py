"""Steps that decode and carry chunks of prompts: what a chunk is, whom it delays, and what kernels reach on it."""

from dataclasses import replace

import numpy as np
import pytest

from cost.calibration.serving import calibrated
from cost.inputs.machine import PEAK, on_prompts
from cost.inputs.workload import CHUNK_TOKENS, GRAPHS, StepShape
from cost.step.step import busiest
from topology import load_gpu


@pytest.mark.parametrize("sequences", [0.5, 4.0, 64.0, 1000.0])
@pytest.mark.parametrize(("tp", "groups", "stages"), [(1, 8, 1), (8, 1, 1), (2, 4, 2)])
def test_chunks_of_a_cycle_are_the_prompts_of_its_requests(sequences, tp, groups, stages):
    shape = StepShape(
        tp=float(tp), attention_dp=float(groups), stages=float(stages), sequences=sequences / tp, queries=1.0
    )
    found = shape.with_prompts(3000.0, 1000.0, steps=200.0)
    chunk = found.prompt_tokens * tp
    assert chunk <= max(CHUNK_TOKENS - sequences, 32.0)
    # in 200 steps each group prefills what its sequences have new
    assert 200 * found.prompt_share * chunk == pytest.approx(sequences * 2000)
    assert found.others == pytest.approx(1 - min(1.0, 1 / (sequences * groups * stages)))


def test_the_busiest_of_many_groups_has_more_than_the_mean():
    random = np.random.default_rng(0)
    for mean, groups in ((0.1, 8), (1.0, 8), (3.0, 64), (20.0, 16)):
        drawn = random.poisson(mean, (40_000, groups)).max(axis=1).mean() / mean
        assert float(busiest(mean, groups)) == pytest.approx(drawn, rel=0.03)
    assert float(busiest(0.3, 1)) == 1
    assert np.all(np.diff(busiest(0.5, np.array([1.0, 2.0, 8.0, 72.0]))) > 0)


def test_a_graph_takes_the_next_size_and_its_padding_has_no_cache():
    shape = StepShape(tp=2.0, sequences=np.array([0.5, 2.5, 129.0, 2000.0]), context=1000.0).padded
    assert (shape.sequences * 2).tolist() == [
        1.0,
        8.0,
        384.0,
        4000.0,
    ]  # beyond the largest: as many as there are
    assert (shape.sequences * shape.context).tolist() == pytest.approx([500.0, 2500.0, 129_000.0, 2e6])
    assert np.all(np.diff(GRAPHS) > 0)


def test_kernels_reach_more_on_prompts_but_for_experts_beside_decoding():
    table = {name: figure.value for name, figure in calibrated(load_gpu("h100-sxm")).table.items()}
    beside, alone = (
        {name: on_prompts(name, value, table.__getitem__, mixed=mixed) for name, value in table.items()}
        for mixed in (True, False)
    )
    assert table["gemm.fp8"] < beside["gemm.fp8"] <= 0.85
    assert beside["gemm.bf16"] == table["gemm.bf16"]
    assert table["attention.prefill"] < beside["attention.prefill"] <= 0.75
    assert beside["experts.fp8"] == pytest.approx(table["experts.fp8"] / 1.5)
    assert alone["experts.fp8"] == table["experts.fp8"]
    assert on_prompts("attention.prefill", 0.9, table.__getitem__) == 0.9, "never less than what decodes"
    assert PEAK["prompts.gemm"] == 0


def test_prompts_that_a_request_waits_for_are_not_between_its_tokens():
    shape = StepShape(sequences=8.0).with_prompts(1000.0, 0.0, 100.0)
    assert shape.waits == 1
    assert replace(shape, waits=0.0).prompt_share == shape.prompt_share
