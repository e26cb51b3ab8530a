"""Heterogeneous GPUs: bounds and placements against brute force, legality, invariance, speeds that differ much."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.budget import Budget
from placement.experts.bounds import largest_copy, lower_bound, mean_load, neighbours, priced
from placement.experts.counts import replicate
from placement.experts.local_search import swap_down
from placement.experts.pack import pack
from placement.experts.problem import Problem, make_problem, spread_slots
from placement.experts.solve import solve
from placement.verify import verify_experts
from topology.base.errors import InfeasibleError

pytestmark = pytest.mark.wide


def exact(problem: Problem, load: np.ndarray, *, once: bool = False) -> float:
    """The smallest possible largest load over speed, over the mean load; infinite if nothing is legal.

    ``once``: of placements with no expert twice in a failure domain, and second copies before third ones.
    """
    per_gpu = [list(combinations(range(problem.experts), s)) for s in problem.slots_per_gpu.tolist()]
    domain, best = problem.failure_domain, np.inf
    for sets in product(*per_gpu):
        held = [(domain[gpu], expert) for gpu, here in enumerate(sets) for expert in here]
        copies = np.bincount([expert for _, expert in held], minlength=problem.experts)
        if once and problem.spread is not None and copies.max() > 2 > copies.min():
            continue
        if copies.min() > 0 and (len(set(held)) == len(held) or (not once and evenly(problem, held, copies))):
            share = load / copies
            worst = max(share[list(here)].sum() / problem.speed[gpu] for gpu, here in enumerate(sets))
            best = min(best, float(worst))
    return best * problem.gpus / float(load.sum())


def evenly(problem: Problem, held: list[tuple[int, int]], copies: np.ndarray) -> bool:
    """Whether copies are spread over failure domains with slots as evenly as can be, over two at least."""
    used = len({domain for domain, _ in held})
    most = {expert: max(held.count((d, expert)) for d in range(problem.gpus)) for _, expert in held}
    return used > 1 and all(count <= np.ceil(copies[expert] / used) for expert, count in most.items())


def random_problem(seed: int) -> Problem | None:
    """A tiny problem; None if there are too many placements or none at all."""
    rng = np.random.default_rng(seed)
    gpus, experts = int(rng.integers(1, 5)), int(rng.integers(2, 6))
    most = min(experts, 3)
    slots = rng.integers(0, most + 1, gpus) if seed % 2 else np.full(gpus, int(rng.integers(1, most + 1)))
    ways = np.prod([len(list(combinations(range(experts), s))) for s in slots])
    if slots.sum() < experts or ways > 3000:
        return None
    speed = rng.choice([0.5, 1.0, 1.0, 1.3], gpus) if seed % 3 else None
    spread = rng.integers(0, gpus, gpus) if seed % 5 > 2 else None
    loads = [
        rng.integers(0, 12, (1, experts)).astype(float),
        rng.lognormal(0, 1.5, (1, experts)),
        rng.integers(0, 2, (1, experts)) * 1e18,
    ][int(rng.integers(3))]
    loads[:, 0] += loads.sum(axis=1) == 0
    return make_problem(loads, slots, speed, spread)


def test_against_brute_force() -> None:
    checked = optimal = alone = best_alone = 0
    for seed in range(400):
        problem = random_problem(seed)
        if problem is None:
            continue
        best = exact(problem, problem.mean[0])
        try:
            result = solve(problem)
        except InfeasibleError:
            assert np.isinf(best), seed
            continue
        assert verify_experts(result.assignment, problem) == []
        assert result.bound[0] <= best * (1 + 1e-9), seed
        assert result.max_load[0] >= best * (1 - 1e-9), seed
        checked += 1
        optimal += result.max_load[0] <= best * (1 + 1e-9)
        alone += problem.each_alone
        best_alone += problem.each_alone and result.max_load[0] <= best * (1 + 1e-9)
        if not problem.can_be_apart:
            continue
        apart = exact(problem, problem.mean[0], once=True)
        assert result.max_load[0] <= apart * 1.05
        quick = lower_bound(problem)
        bounds = {
            "mean": mean_load(problem),
            "copy": largest_copy(problem),
            "neighbours": neighbours(problem),
            "priced": priced(problem, quick, np.maximum(result.max_load, quick)),
        }
        for name, bound in bounds.items():
            assert bound[0] <= apart * (1 + 1e-9), (seed, name)
    assert checked > 150
    assert optimal >= 0.94 * checked  # over few domains two copies of every expert come first
    assert best_alone >= 0.98 * alone > 50


def test_prices_prove_what_means_and_copies_do_not() -> None:
    """Zipf loads, four slots a GPU, one copy in nine spare: 1.123 is reached, and nothing below 1.11 can be."""
    problem = make_problem(1 / np.arange(1.0, 257)[None], spread_slots(256, 72))
    low = lower_bound(problem)
    assert low[0] == pytest.approx(1.0)
    assert 1.11 < priced(problem, low, np.array([1.13]))[0] < 1.1227
    assert priced(problem, low, low)[0] == low[0]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_exchanges_of_pairs_and_copies_stay_legal_and_never_worsen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus = int(rng.integers(2, 10))
    experts = int(rng.integers(6, 20))
    slots = rng.integers(0, 4, gpus) if seed % 2 else np.full(gpus, int(rng.integers(1, 7)))
    slots[0] += max(0, experts - int(slots.sum()))
    spread = rng.integers(0, gpus, gpus) if seed % 3 else None
    speed = rng.uniform(0.5, 1.5, gpus) if seed % 5 else None
    try:
        problem = make_problem(rng.lognormal(0, 1, (3, experts)), np.minimum(slots, experts), speed, spread)
        copies = replicate(problem)
    except InfeasibleError:
        return
    start = pack(problem, copies)
    end = swap_down(problem, start)
    assert problem.legal(start).all()
    assert problem.legal(end).all()
    assert (problem.assignment(end).copies == copies).all()
    assert (problem.evaluate(end) <= problem.evaluate(start) * (1 + 1e-12)).all()


def test_copies_in_other_nodes() -> None:
    """Eight GPUs of a node fail together: an expert's copies lie in different nodes, or evenly in all four."""
    loads = np.random.default_rng(0).lognormal(0, 1.0, (4, 64))
    node = np.arange(32) // 8
    problem = make_problem(loads, spread_slots(64, 32, 96), spread=node)
    result = solve(problem, Budget(0.5))
    assert result.assignment.copies.min() == 2
    assert result.assignment.copies.max() > 4
    assert result.max_load.max() < 1.12
    for row in result.assignment.slot_expert:
        for expert in range(64):
            there = np.bincount(node[result.assignment.slot_gpu[row == expert]], minlength=4)
            assert there.max() <= np.ceil(there.sum() / 4)


@pytest.mark.parametrize("sigma", [1.0, 1.5])
def test_speeds_far_apart_are_used(sigma: float) -> None:
    """Greedy counts make all copies alike: with equal slots the slowest GPU then sets the pace (1.7 to 2.4)."""
    rng = np.random.default_rng(0)
    speed = rng.choice([0.5, 0.7, 1.0, 1.0, 3.0], 144)
    problem = make_problem(rng.lognormal(0, sigma, (2, 256)), np.full(144, 6), speed)
    found = solve(problem)
    assert verify_experts(found.assignment, problem) == []
    assert found.max_load.max() < 1.25
