"""The pipeline partition: against all partitions, by hand, in agreement with the memory model; its bisection."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.memory.stages import replica_max_batch, replica_memory
from cost.resolve import resolve_model
from placement.experts.problem import spread_slots
from placement.layouts.partition import (
    StageProblem,
    equal_ranges,
    largest_batch,
    solve_stages,
    stage_problem,
    stage_specs,
)
from topology import resolve_cluster
from topology.base.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

KIB = 1024.0


def seconds_of(what: StageProblem, ranges: tuple[range, ...]) -> np.ndarray:
    """Time of each stage for these runs of layers, ``[stages]``."""
    return np.array([what.seconds[list(r), s].sum() for s, r in enumerate(ranges)]) + what.fixed_seconds


def memory_of(what: StageProblem, ranges: tuple[range, ...]) -> np.ndarray:
    """Bytes per GPU of each stage for these runs of layers, ``[stages]``."""
    return np.array([what.memory[list(r), s].sum() for s, r in enumerate(ranges)]) + what.fixed_memory


def splits(layers: int, count: int) -> Iterator[tuple[range, ...]]:
    for cuts in combinations(range(1, layers), count - 1):
        yield tuple(range(a, b) for a, b in pairwise((0, *cuts, layers)))


def best_split(what: StageProblem) -> float | None:
    """The fastest slowest stage over every contiguous split that fits, in the solver's whole kibibytes."""
    need = np.ceil(what.memory / KIB)
    room = (what.capacity - what.fixed_memory) // KIB
    times = [
        float(seconds_of(what, ranges).max())
        for ranges in splits(what.layers, what.stages)
        if all(need[list(run), s].sum() <= room[s] for s, run in enumerate(ranges))
    ]
    return min(times) if times else None


tenths = st.integers(0, 40).map(lambda n: n / 10)


@st.composite
def problems(draw: st.DrawFn) -> StageProblem:
    layers = draw(st.integers(1, 7))
    count = draw(st.integers(1, min(layers, 4)))

    def table(of: st.SearchStrategy[float], rows: int) -> np.ndarray:
        return np.array(draw(st.lists(of, min_size=rows * count, max_size=rows * count))).reshape(rows, count)

    kib = st.integers(0, 9).map(lambda n: n * KIB)
    return StageProblem(
        table(tenths, layers),
        table(tenths, 1)[0],
        table(kib, layers),
        table(kib, 1)[0] / 3,
        table(kib, 1)[0] * 4,
    )


@settings(deadline=None, max_examples=25)
@given(problems())
def test_as_good_as_the_best_of_all_splits(what: StageProblem) -> None:
    best = best_split(what)
    if best is None:
        with pytest.raises(InfeasibleError, match="consecutive stages fits in HBM"):
            solve_stages(what)
        return
    ranges = solve_stages(what)
    assert [layer for run in ranges for layer in run] == list(range(what.layers))
    assert all(ranges)
    assert (memory_of(what, ranges) <= what.capacity).all()
    assert seconds_of(what, ranges).max() == pytest.approx(best, abs=1e-11)


def test_what_cannot_be_split_is_refused() -> None:
    room, none = np.full(2, KIB), np.zeros(2)
    with pytest.raises(InfeasibleError, match=r"0\.0 GB usable on the smallest GPU"):
        solve_stages(StageProblem(np.ones((3, 2)), none, np.zeros((3, 2)), 10 * room, room))
    with pytest.raises(InputError, match="2 stages for 1 layers"):
        StageProblem(np.ones((1, 2)), none, np.zeros((1, 2)), none, room)


Groups = list[tuple[int, ...]]


def setting_of(model: str, cluster: str, context: int = 4096) -> Deployment:
    return Deployment(resolve_cluster(cluster), resolve_model(model), Workload(context=context, batch=1))


def slots_of(deployment: Deployment, groups: Groups) -> list[NDArray[np.int64]]:
    moe = deployment.model.moe
    if moe is None:
        return [np.zeros(len(group), dtype=np.int64) for group in groups]
    return [spread_slots(moe.experts, len(group)) for group in groups]


def best_over_splits(deployment: Deployment, groups: Groups, tp: int) -> float:
    slots = [int(row.sum()) for row in slots_of(deployment, groups)]
    return max(
        replica_max_batch(replica_memory(deployment, stage_specs(groups, ranges), tp=tp, slots=slots), tp)
        for ranges in splits(len(deployment.model.layers), len(groups))
    )


CASES = [
    ("mixtral-8x7b", "hgx-h100", [(0, 1, 2, 3), (4, 5, 6, 7)], 4),
    ("llama-3.1-70b", "hgx-h100", [(0, 1), (2, 3)], 2),
    ("deepseek-v3", "gb200-nvl72@116", [tuple(range(72)), tuple(range(72, 116))], 1),
    ("gpt-oss-20b", "hgx-h100", [(0, 1, 2, 3, 4, 5), (6, 7)], 1),
    ("deepseek-v3", "hgx-h100", [(0, 1, 2, 3), (4, 5, 6, 7)], 1),  # never fits
]


@pytest.mark.parametrize(("model", "cluster", "groups", "tp"), CASES)
@pytest.mark.parametrize("context", [4096, 1])
def test_largest_batch_is_that_of_the_best_split(
    model: str, cluster: str, groups: Groups, tp: int, context: int
) -> None:
    """At one token of context the logits fill the last GPU, and the first could hold every layer."""
    deployment = setting_of(model, cluster, context)
    slots = slots_of(deployment, groups)
    assert largest_batch(deployment, groups, tp=tp, slots=slots) == best_over_splits(deployment, groups, tp)


@pytest.mark.parametrize(("model", "cluster", "groups", "tp"), CASES)
def test_the_problem_counts_memory_as_the_cost_model_does(
    model: str, cluster: str, groups: Groups, tp: int
) -> None:
    deployment = setting_of(model, cluster).with_batch(7)
    slots = slots_of(deployment, groups)
    problem = stage_problem(deployment, groups, tp=tp, slots=slots)
    ranges = equal_ranges(problem.layers, problem.stages)
    memories = replica_memory(
        deployment, stage_specs(groups, ranges), tp=tp, slots=[int(row.sum()) for row in slots]
    )
    np.testing.assert_allclose(memory_of(problem, ranges), [part.filled(7) for part in memories])
    np.testing.assert_allclose(problem.capacity, [part.budget.usable for part in memories])
