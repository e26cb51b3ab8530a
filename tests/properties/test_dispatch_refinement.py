"""Placements for the split that runs: legal, never behind, proven bounds, and LP plans that bear drift."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.experts.best_split import lp_level
from placement.experts.bounds import lower_bound
from placement.experts.dispatch_refinement import SLACK, fit_to_split, place_for_lp
from placement.experts.problem import make_problem, spread_slots
from placement.experts.solve import solve
from placement.verify import verify_experts
from tiny_cases import ways_to_fill

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "expert_loads"


def lognormal(seed, layers, experts, sigma=0.8):
    return np.random.default_rng(seed).lognormal(0, sigma, (layers, experts))


def fitted(result, problem):
    slot_expert = fit_to_split(result.assignment.slot_expert, problem)
    return replace(result.under(problem), assignment=problem.assignment(slot_expert)).under(problem)


def under(problem, split, nodes=None):
    return replace(problem, split=split, nodes=nodes)


@pytest.mark.parametrize("split", ["even", "source", "lp", "rank", "rank-tp2"])
def test_bound_holds_for_every_placement_of_tiny_cases(split):
    for seed in range(4):
        for slots in ((2, 2, 2), (3, 2)):
            problem = make_problem(lognormal(seed, 1, 4, 1.5), slots)
            nodes = np.array([0, 0, 1])[: len(slots)]
            rows = ways_to_fill(4, problem.slots_per_gpu)
            many = problem.rows(np.zeros(len(rows), dtype=int))
            best = under(many, split, nodes).evaluate(rows).min()
            bound = lower_bound(under(problem, "lp"))[0]
            assert bound <= best * (1 + 1e-9), (seed, slots)
            found = fitted(solve(problem), under(problem, split, nodes))
            assert found.max_load[0] >= best * (1 - 1e-9)
            assert found.max_load[0] <= best * 1.25


@given(
    seed=st.integers(0, 10**6),
    split=st.sampled_from(["source", "lp", "rank", "rank-tp2"]),
    gpus=st.integers(2, 8),
    more=st.integers(0, 8),
    unequal=st.booleans(),
    apart=st.booleans(),
    per_node=st.integers(1, 3),
)
@settings(max_examples=8)
def test_legal_and_never_worse_than_the_start(seed, split, gpus, more, unequal, apart, per_node):
    speed = np.random.default_rng(seed).uniform(0.5, 2, gpus) if unequal else None
    nodes = np.arange(gpus) // per_node
    spread = nodes if apart and gpus > per_node else None
    problem = make_problem(lognormal(seed, 2, 12), spread_slots(12, gpus, more), speed, spread)
    start = solve(problem)
    found = fitted(start, under(problem, split, nodes))
    assert not verify_experts(found.assignment, problem)
    before = under(problem, split, nodes).evaluate(start.assignment.slot_expert)
    after = under(problem, split, nodes).evaluate(found.assignment.slot_expert)
    slack = SLACK if split == "lp" else 0.0
    assert (after <= before * (1 + slack + 1e-12)).all()
    np.testing.assert_allclose(found.max_load, after)
    assert (found.bound <= found.max_load).all()
    assert (found.status == "OPTIMAL") == bool((found.max_load <= found.bound * (1 + 1e-9)).all())


def test_exchanges_under_source_repair_what_nodes_do_to_a_placement():
    problem = make_problem(lognormal(1, 4, 64), spread_slots(64, 16, 16))
    nodes = np.arange(16) // 4
    start = solve(problem)
    before = under(problem, "source", nodes).evaluate(start.assignment.slot_expert)
    found = fitted(start, under(problem, "source", nodes))
    assert found.max_load.mean() < 0.5 * before.mean() + 0.5 * start.max_load.mean()


@pytest.mark.skipif(not REAL.is_dir(), reason="the reference loads are not beside the repository")
def test_a_stale_plan_recovers_under_an_lp_split():
    files = sorted(REAL.glob("*.npy"))
    tokens = [np.load(path)[::6].astype(float) for path in files]
    reached = []
    for planned in (0, 4):
        problem = make_problem(tokens[planned], spread_slots(256, 72, 320))
        assignment = problem.assignment(place_for_lp(problem))
        reached += [
            (other.sum(axis=1) / 72 / lp_level(assignment, other)).mean()
            for index, other in enumerate(tokens)
            if index != planned
        ]
    assert np.mean(reached) > 0.99
