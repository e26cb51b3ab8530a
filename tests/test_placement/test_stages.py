"""Layers to stages: against all splits, then by hand."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.partition import StageProblem, StageResult, solve_stages
from topology.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

KIB = 1024.0


def problem(
    seconds: object,
    memory: object = 0.0,
    capacity: object = 1e9,
    fixed_seconds: object = 0.0,
    fixed_memory: object = 0.0,
) -> StageProblem:
    table = np.array(seconds, dtype=np.float64)
    count = table.shape[1]
    return StageProblem(
        table,
        np.broadcast_to(np.array(fixed_seconds, dtype=np.float64), (count,)),
        np.broadcast_to(np.array(memory, dtype=np.float64), table.shape),
        np.broadcast_to(np.array(fixed_memory, dtype=np.float64), (count,)),
        np.broadcast_to(np.array(capacity, dtype=np.float64), (count,)),
    )


def splits(layers: int, count: int) -> Iterator[tuple[range, ...]]:
    for cuts in combinations(range(1, layers), count - 1):
        yield tuple(range(a, b) for a, b in pairwise((0, *cuts, layers)))


def best_split(what: StageProblem) -> float | None:
    """The fastest slowest stage over every contiguous split that fits, in the solver's whole kibibytes."""
    need = np.ceil(what.memory / KIB)
    room = (what.capacity - what.fixed_memory) // KIB
    times = [
        float(what.stage_seconds(ranges).max())
        for ranges in splits(what.layers, what.stages)
        if all(need[list(run), s].sum() <= room[s] for s, run in enumerate(ranges))
    ]
    return min(times) if times else None


def check(what: StageProblem, result: StageResult) -> None:
    """A result is a split into runs, within memory, with figures that follow from it."""
    assert [layer for run in result.ranges for layer in run] == list(range(what.layers))
    assert all(result.ranges)
    assert (what.stage_memory(result.ranges) <= what.capacity).all()
    assert result.largest_s == pytest.approx(what.stage_seconds(result.ranges).max())
    assert result.bound_s <= result.largest_s


tenths = st.integers(0, 40).map(lambda n: n / 10)


@st.composite
def problems(draw: st.DrawFn) -> StageProblem:
    layers = draw(st.integers(1, 7))
    count = draw(st.integers(1, min(layers, 4)))

    def table(of: st.SearchStrategy[float], rows: int) -> np.ndarray:
        return np.array(draw(st.lists(of, min_size=rows * count, max_size=rows * count))).reshape(rows, count)

    kib = st.integers(0, 9).map(lambda n: n * KIB)
    return problem(
        table(tenths, layers),
        table(kib, layers),
        table(kib, 1)[0] * 4,
        table(tenths, 1)[0],
        table(kib, 1)[0] / 3,
    )


@settings(deadline=None, max_examples=120)
@given(problems())
def test_as_good_as_the_best_of_all_splits(what: StageProblem) -> None:
    best = best_split(what)
    if best is None:
        with pytest.raises(InfeasibleError, match="consecutive stages fits in HBM"):
            solve_stages(what)
        return
    result = solve_stages(what)
    check(what, result)
    assert result.status == "OPTIMAL"
    assert result.largest_s == pytest.approx(best, abs=1e-12)
    assert result.bound_s <= best + 1e-12


def test_unequal_stages_get_unequal_layers() -> None:
    """A stage three times as fast takes three times the layers."""
    result = solve_stages(problem(np.tile([1.0, 3.0], (8, 1))))
    assert result.ranges == (range(6), range(6, 8))
    assert result.largest_s == 6.0


def test_memory_overrules_time() -> None:
    small_second = problem(np.ones((8, 2)), memory=KIB, capacity=[8 * KIB, 2 * KIB])
    assert solve_stages(small_second).ranges == (range(6), range(6, 8))


def test_the_head_is_paid_for_by_the_last_stage() -> None:
    assert solve_stages(problem(np.ones((8, 2)), fixed_seconds=[0.0, 4.0])).ranges == (range(6), range(6, 8))


def test_no_time_at_all_still_splits() -> None:
    result = solve_stages(problem(np.zeros((5, 3))))
    check(problem(np.zeros((5, 3))), result)
    assert result.largest_s == 0.0


def test_a_model_of_many_layers_is_proven() -> None:
    """61 layers over 8 stages: the answer is the ceiling of 61 / 8."""
    result = solve_stages(problem(np.ones((61, 8))))
    assert (result.largest_s, result.status) == (8.0, "OPTIMAL")
    assert result.bound_s == pytest.approx(8.0, rel=1e-3)


def test_more_stages_than_layers_is_refused() -> None:
    with pytest.raises(InputError, match="3 stages for 2 layers"):
        problem(np.ones((2, 3)))


def test_no_room_at_all_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match=r"0\.0 GB usable on the smallest GPU"):
        solve_stages(problem(np.ones((3, 2)), fixed_memory=10 * KIB, capacity=KIB))


def test_bytes_are_rounded_up() -> None:
    """Two layers of 1.9 KiB do not fit in 3 KiB."""
    with pytest.raises(InfeasibleError):
        solve_stages(problem(np.ones((2, 1)), memory=1.9 * KIB, capacity=3 * KIB))
