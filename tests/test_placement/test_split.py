"""Splitting layers over stages: the problem agrees with the memory model, the batch with all splits."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.deployment import Deployment
from cost.memory import replica_max_batch, replica_memory
from cost.resolve import resolve_model
from cost.workload import Workload
from helpers import few_layers
from placement.partition import equal_ranges, largest_batch, split_layers, stage_problem, stage_specs
from placement.problem import spread_slots
from topology import resolve_cluster

if TYPE_CHECKING:
    from numpy.typing import NDArray

Groups = list[tuple[int, ...]]


def setting_of(model: str, cluster: str, *, context: int = 4096, layers: int | None = None) -> Deployment:
    found = resolve_model(model)
    if layers:
        found = few_layers(model, layers)
    return Deployment(resolve_cluster(cluster), found, Workload(context=context, batch=1))


def slots_of(deployment: Deployment, groups: Groups) -> list[NDArray[np.int64]]:
    moe = deployment.model.moe
    if moe is None:
        return [np.zeros(len(group), dtype=np.int64) for group in groups]
    return [spread_slots(moe.experts, len(group)) for group in groups]


def best_over_splits(deployment: Deployment, groups: Groups, tp: int) -> int:
    count, sums = len(deployment.model.layers), [int(row.sum()) for row in slots_of(deployment, groups)]
    best = 0
    for cuts in combinations(range(1, count), len(groups) - 1):
        ranges = [range(a, b) for a, b in pairwise((0, *cuts, count))]
        best = max(
            best,
            replica_max_batch(replica_memory(deployment, stage_specs(groups, ranges), tp=tp, slots=sums)),
        )
    return best


@given(st.integers(1, 200), st.integers(1, 20))
def test_equal_ranges_cover_every_layer(layers: int, stages: int) -> None:
    ranges = equal_ranges(layers, stages)
    assert [layer for run in ranges for layer in run] == list(range(layers))
    assert len(ranges) == stages
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


CASES = [
    ("mixtral-8x7b", "hgx-h100", [(0, 1, 2, 3), (4, 5, 6, 7)], 1),
    ("mixtral-8x7b", "hgx-h100", [(0, 1, 2, 3), (4, 5, 6, 7)], 4),
    ("mixtral-8x7b", "hgx-h100", [(0, 1), (2, 3), (4, 5)], 2),
    ("llama-3.1-70b", "hgx-h100", [(0, 1), (2, 3)], 2),
    ("deepseek-v3", "hgx-h100@16", [tuple(range(8)), tuple(range(8, 16))], 1),
    ("deepseek-v3", "gb200-nvl72@116", [tuple(range(72)), tuple(range(72, 116))], 1),
    ("gpt-oss-20b", "hgx-h100", [(0, 1, 2, 3, 4, 5), (6, 7)], 1),
]


@pytest.mark.parametrize(("model", "cluster", "groups", "tp"), CASES)
def test_largest_batch_is_that_of_the_best_split(model: str, cluster: str, groups: Groups, tp: int) -> None:
    deployment = setting_of(model, cluster)
    assert largest_batch(deployment, groups, tp=tp, slots=slots_of(deployment, groups)) == best_over_splits(
        deployment, groups, tp
    )


def test_largest_batch_of_one_stage_is_that_of_the_memory_model() -> None:
    deployment, groups = setting_of("mixtral-8x7b", "hgx-h100"), [tuple(range(8))]
    assert largest_batch(deployment, groups, tp=1, slots=slots_of(deployment, groups)) == best_over_splits(
        deployment, groups, 1
    )


def test_a_stage_leaves_a_layer_for_those_after_it() -> None:
    """At one token of context the logits fill the last GPU, and the first could hold every layer."""
    deployment, groups = setting_of("llama-3.1-8b", "hgx-h100", context=1), [(0,), (1,)]
    found = largest_batch(deployment, groups, tp=1, slots=slots_of(deployment, groups))
    assert found == best_over_splits(deployment, groups, 1)


def test_what_never_fits_has_batch_zero() -> None:
    deployment, groups = setting_of("deepseek-v3", "hgx-h100"), [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert largest_batch(deployment, groups, tp=1, slots=slots_of(deployment, groups)) == 0
    assert best_over_splits(deployment, groups, 1) == 0


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize(("model", "cluster", "groups", "tp"), CASES)
def test_the_problem_counts_memory_as_the_cost_model_does(
    model: str, cluster: str, groups: Groups, tp: int, batch: int
) -> None:
    deployment = setting_of(model, cluster).with_batch(batch)
    slots = slots_of(deployment, groups)
    problem = stage_problem(deployment, groups, tp=tp, slots=slots, times=False)
    ranges = equal_ranges(problem.layers, problem.stages)
    memories = replica_memory(
        deployment, stage_specs(groups, ranges), tp=tp, slots=[int(row.sum()) for row in slots]
    )
    np.testing.assert_allclose(problem.stage_memory(ranges), [part.used(batch) for part in memories])
    np.testing.assert_allclose(problem.capacity, [part.usable for part in memories])
    assert not problem.seconds.any()


def test_one_stage_takes_every_layer() -> None:
    deployment, groups = setting_of("mixtral-8x7b", "hgx-h100"), [tuple(range(8))]
    assert split_layers(deployment, groups, tp=1, slots=slots_of(deployment, groups)) == (range(32),)


def test_the_split_is_the_fastest_that_fits() -> None:
    """Against every cut of the small model, on two groups of unequal size."""
    deployment = setting_of("mixtral-8x7b", "hgx-h100", layers=9).with_batch(50)
    groups: Groups = [(0, 1, 2, 3, 4, 5), (6, 7)]
    slots = slots_of(deployment, groups)
    problem = stage_problem(deployment, groups, tp=1, slots=slots)
    times = {
        cut: float(problem.stage_seconds((range(cut), range(cut, 9))).max())
        for cut in range(1, 9)
        if (problem.stage_memory((range(cut), range(cut, 9))) <= problem.capacity).all()
    }
    chosen = split_layers(deployment, groups, tp=1, slots=slots)
    assert times[len(chosen[0])] == pytest.approx(min(times.values()), rel=1e-4)
    assert len(chosen[0]) > len(chosen[1]), "six GPUs take more layers than two"


def test_the_last_stage_pays_for_the_head() -> None:
    deployment, groups = setting_of("llama-3.1-8b", "hgx-h100"), [(0,), (1,)]
    problem = stage_problem(deployment, groups, tp=1, slots=slots_of(deployment, groups))
    assert problem.fixed_seconds[0] == 0.0
    assert problem.fixed_seconds[1] > 0.0
