"""The free order of stages: against all orders and all splits, rule by rule, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.layouts.order_search import split_in_order
from cost.layouts.stage_order import OrderProblem, StageOrder
from placement.budget import Budget
from placement.layouts.order import solve_order
from topology.base.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    Ordered = tuple[tuple[int, ...], tuple[range, ...]]


def random_problem(
    seed: int, layers: int, groups: int, stages: int, *, kind_of: object = None, tight: bool = False
) -> OrderProblem:
    """Groups of three speeds in two places, two kinds of layers, the first of which comes first."""
    rng = np.random.default_rng(seed)
    kinds = np.minimum(np.arange(layers) // 2, 1) if kind_of is None else np.array(kind_of)
    speed = rng.choice([1.0, 1.6, 3.0], groups) * rng.uniform(0.9, 1.1, groups)
    weight = rng.uniform(0.5, 1.5, int(kinds.max()) + 1)
    memory = weight[:, None] * rng.uniform(0.8, 1.2, groups)[None, :]
    place = rng.integers(0, 2, groups)
    hops = np.where(place[:, None] == place[None, :], 0.05, rng.choice([0.2, 1.0]))
    room = layers / stages * weight.mean() * (1.3 if tight else 100.0)
    return OrderProblem(
        kind_of=kinds,
        seconds=weight[:, None] / speed[None, :],
        first_seconds=0.1 / speed,
        last_seconds=rng.uniform(0.0, 1.0) / speed,
        memory=memory,
        fixed_memory=np.full(groups, 0.1),
        first_memory=np.full(groups, 0.2),
        last_memory=np.full(groups, 0.4),
        capacity=rng.uniform(1.0, 2.0, groups) * room,
        hop_seconds=hops,
        back_seconds=hops / 10,
        stages=stages,
    )


def every(problem: OrderProblem) -> Iterator[Ordered]:
    """All orders of the groups and all splits of the layers that have room."""
    for order in permutations(range(problem.groups), problem.stages):
        for cuts in combinations(range(1, problem.layers), problem.stages - 1):
            ranges = tuple(range(a, b) for a, b in pairwise((0, *cuts, problem.layers)))
            if problem.fits(order, ranges):
                yield order, ranges


def brute_force(problem: OrderProblem) -> float | None:
    return min((problem.step_seconds(*ordered) for ordered in every(problem)), default=None)


def check(problem: OrderProblem, answer: StageOrder) -> float:
    """An answer is an order of unlike groups, runs that hold every layer once, and fits; its step."""
    assert len(set(answer.order)) == len(answer.order) == problem.stages
    assert [layer for run in answer.ranges for layer in run] == list(range(problem.layers))
    assert all(answer.ranges)
    assert problem.fits(answer.order, answer.ranges)
    assert answer.step_s == problem.step_seconds(answer.order, answer.ranges)
    assert answer.bound_s <= answer.step_s
    return answer.step_s


SHAPES = [(5, 3, 3, False), (6, 4, 2, False), (7, 3, 3, True), (6, 4, 4, True), (6, 5, 3, True)]
SHAPES += [(10, 3, 3, False), (10, 4, 3, True), (10, 4, 2, True)]  # whose kinds of layers come in turn


@pytest.mark.parametrize(("layers", "groups", "stages", "tight"), SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_best_of_all_orders_and_splits(seed, layers, groups, stages, tight):
    kinds = [0, 1] * 5 if layers == 10 else None
    problem = random_problem(seed, layers, groups, stages, kind_of=kinds, tight=tight)
    best = brute_force(problem)
    if best is None:
        with pytest.raises(InfeasibleError, match=r"no split of .* fits in HBM"):
            solve_order(problem, Budget(10.0))
        return
    answer = solve_order(problem, Budget(10.0))
    assert check(problem, answer) == pytest.approx(best, rel=1e-6)
    assert answer.status == "OPTIMAL"
    assert answer.gap < 1e-6


@given(st.integers(0, 10**6), st.integers(3, 7), st.integers(1, 3), st.booleans())
def test_a_split_in_a_given_order_is_exact(seed, layers, stages, tight):
    problem = random_problem(seed, layers, stages, stages, tight=tight)
    order = tuple(np.random.default_rng(seed).permutation(stages).tolist())
    steps = [problem.step_seconds(*ordered) for ordered in every(problem) if ordered[0] == order]
    ranges = split_in_order(problem, order)
    if not steps:
        assert ranges is None
    else:
        assert ranges is not None
        assert problem.fits(order, ranges)
        assert problem.step_seconds(order, ranges) == pytest.approx(min(steps), rel=1e-9)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"stages": 4}, "4 stages on 3 groups"),
        ({"seconds": np.full((2, 3), np.nan)}, "seconds: figures must be finite"),
        ({"kind_of": np.full(6, 3)}, "kinds are 0 to 1"),
        ({"kind_of": np.zeros(2, dtype=np.int64)}, "3 stages for 2 layers"),
    ],
)
def test_what_makes_no_sense_is_refused(change, says):
    with pytest.raises(InputError, match=says):
        replace(random_problem(0, 6, 3, 3), **change)
