"""Counts, bounds and placements against an exact brute force on hundreds of tiny cases."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from placement.experts.baselines import Baselines
from placement.experts.bounds import largest_copy, lower_bound, mean_load, neighbours
from placement.experts.counts import replicate
from placement.experts.problem import Problem, make_problem
from placement.experts.solve import solve

SHAPES = [  # experts, slots of each GPU
    (3, (2, 2)),
    (4, (3, 3)),
    (3, (2, 2, 2)),
    (4, (2, 2, 2)),
    (5, (2, 2, 2)),
    (4, (3, 2, 2)),
    (3, (1, 1, 1, 1)),
    (3, (1, 1, 1, 1, 0)),
    (4, (3, 1, 1)),
    (3, (2, 2, 1, 0)),
    (4, (1, 1, 1, 1)),
    (4, (4,)),
]


def legal_assignments(experts: int, slots: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    """Every way to give each GPU a set of distinct experts so that every expert is somewhere."""
    per_gpu = [list(combinations(range(experts), s)) for s in slots]
    return [sets for sets in product(*per_gpu) if len({e for held in sets for e in held}) == experts]


def exact(load: np.ndarray, slots: tuple[int, ...]) -> tuple[float, float]:
    """The smallest possible largest GPU load and, apart from it, the smallest possible largest copy."""
    best_load = best_copy = np.inf
    for sets in legal_assignments(load.size, slots):
        copies = np.bincount([e for held in sets for e in held], minlength=load.size)
        share = load / copies
        best_copy = min(best_copy, float(share.max()))
        best_load = min(best_load, max(float(share[list(held)].sum()) for held in sets))
    return best_load, best_copy


def random_loads(seed: int, experts: int, layers: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kinds = [
        rng.integers(0, 12, (layers, experts)).astype(float),
        np.exp(rng.normal(0, 1.5, (layers, experts))),
        rng.integers(1, 3, (layers, experts)).astype(float),
    ]
    load = kinds[seed % 3]
    load[:, 0] += load.sum(axis=1) == 0
    return load


@pytest.mark.parametrize(("experts", "slots"), SHAPES)
def test_against_brute_force(experts: int, slots: tuple[int, ...]) -> None:
    loads = np.concatenate([random_loads(seed, experts, 9) for seed in range(3)])
    problem = Problem(loads, np.array(slots))
    scale = problem.gpus / loads.sum(axis=1)
    answers = [exact(load, slots) for load in loads]
    best = np.array([load for load, _ in answers]) * scale
    copy = np.array([copy for _, copy in answers]) * scale

    assert largest_copy(problem) == pytest.approx(copy)  # greedy counts are optimal for the largest copy
    for bound in (mean_load, largest_copy, neighbours, lower_bound):
        assert (bound(problem) <= best * (1 + 1e-12)).all(), bound.__name__

    result = solve(problem)
    assert (result.max_load >= best * (1 - 1e-12)).all()
    proven = result.max_load <= result.bound * (1 + 1e-9)
    assert result.max_load[proven] == pytest.approx(best[proven])
    assert (result.status == "OPTIMAL") == proven.all()
    if max(slots) == 1 or len(slots) == 1:
        assert result.status == "OPTIMAL"


@pytest.mark.parametrize(("experts", "slots"), SHAPES)
def test_counts_fit_is_exact(experts: int, slots: tuple[int, ...]) -> None:
    placed = {
        tuple(np.bincount([e for held in sets for e in held], minlength=experts))
        for sets in legal_assignments(experts, slots)
    }
    every = [c for c in product(range(1, len(slots) + 2), repeat=experts) if sum(c) == sum(slots)]
    fits = Problem(np.ones((1, experts)), np.array(slots)).counts_fit(np.array(every))
    assert {c for c, fit in zip(every, fits, strict=True) if fit} == placed


def test_the_joint_bound_is_not_only_the_mean_or_the_largest_copy() -> None:
    problem = Problem(np.array([[9.0, 5.0, 1.0, 1.0, 1.0, 1.0]]), np.array([2, 2, 2]))
    # The largest expert cannot have two copies, and something sits beside it: 10 of a mean of 6.
    assert neighbours(problem)[0] == pytest.approx(10 / 6)
    assert mean_load(problem)[0] == pytest.approx(1.0)
    assert largest_copy(problem)[0] == pytest.approx(9 / 6)
    assert exact(problem.mean[0], (2, 2, 2))[0] == 10.0


def test_greedy_counts_are_not_optimal_for_the_largest_gpu_load() -> None:
    """Two GPUs of two slots, loads 4, 4, 1: the notes' example, 5 with greedy counts and 4.5 at best."""
    problem = Problem(np.array([[4.0, 4.0, 1.0]]), np.array([2, 2]))
    assert replicate(problem)[0].tolist() == [2, 1, 1]
    assert exact(problem.mean[0], (2, 2))[0] == 4.5
    assert lower_bound(problem)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(8))
def test_not_behind_a_legal_eplb(seed: int) -> None:
    """Wherever EPLB keeps copies apart, ours is at least as balanced in every layer; else the log says so."""
    rng = np.random.default_rng(seed)
    gpus, slots = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    experts = int(rng.integers(slots, gpus * slots + 1))
    problem = make_problem(np.exp(rng.normal(0, rng.uniform(0.2, 2), (20, experts))), np.full(gpus, slots))
    result = solve(problem)
    rivals = Baselines(problem, eplb_groups=None, nodes=1)
    for name in ("eplb_global", "eplb_hierarchical", "linear"):
        assignment = rivals[name].assignment
        assert assignment is not None
        per_gpu = assignment.slot_expert.reshape(20, gpus, slots)
        legal = np.array([all(len(set(gpu)) == slots for gpu in layer) for layer in per_gpu.tolist()])
        behind = result.max_load > problem.evaluate(assignment) * (1 + 1e-9)
        assert not (behind & legal).any()
        assert not behind.any() or any(line.startswith(f"{name} is ahead") for line in result.log)
