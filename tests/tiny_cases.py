"""Tiny placement problems of every kind, and all legal answers of each, apart from the code that is tested."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from placement.experts.counts import replicate
from placement.experts.pack import pack
from placement.experts.problem import Problem, make_problem
from placement.verify import verify_experts

if TYPE_CHECKING:
    from placement.options import Objective

MOST_WAYS = 5000


def unlike_gpus(objective: Objective, *, fast: float = 1.0) -> tuple[Problem, np.ndarray]:
    """Return three loads of four layers on five GPUs of other sizes and speeds, and a placement to start from."""
    tokens = np.random.default_rng(0).lognormal(0, 0.7, (3, 4, 14))
    speed = np.array([1.0, fast, 1.0, fast, 1.0])
    problem = make_problem(tokens, np.array([4, 3, 4, 5, 2]), speed=speed, objective=objective)
    return problem, pack(problem.average, replicate(problem.highest))


def tiny_problem(seed: int) -> Problem:
    """Return a problem of one layer: 1 to 7 experts, 1 to 6 GPUs; some have no legal placement."""
    rng = np.random.default_rng(seed)
    while True:
        experts, gpus, kind = int(rng.integers(1, 8)), int(rng.integers(1, 7)), rng.integers(4)
        most = min(experts, 4)
        slots = rng.integers(0, most + 1, gpus)
        if kind < 2:
            slots[:] = 1 if kind else rng.integers(1, most + 1)
        ways = math.prod(math.comb(experts, held) for held in slots.tolist())
        if slots.sum() >= experts and ways <= MOST_WAYS:
            break
    spread = None if rng.random() < 0.15 else rng.integers(0, rng.integers(1, gpus + 1), gpus)
    speed = rng.uniform(0.5, 2, gpus) if rng.random() < 0.4 else None
    shape = (int(rng.integers(1, 4)), 1, experts)
    loads = rng.lognormal(0, 1.2, shape) if rng.random() < 0.6 else rng.integers(0, 12, shape).astype(float)
    loads[:, :, 0] += loads.sum(axis=2) == 0
    return make_problem(
        loads,
        slots,
        speed,
        spread,
        objective=("mean", "worst")[rng.integers(2)],
        split=("even", "even", "source" if seed % 3 else "rank", "lp")[rng.integers(4)],
        nodes=None if rng.random() < 0.5 else rng.integers(0, rng.integers(1, gpus + 1), gpus),
    )


def ways_to_fill(experts: int, slots: np.ndarray) -> np.ndarray:
    """Return every way to fill the slots, no GPU with two copies of one and no expert without a copy."""
    sets = [np.array(list(combinations(range(experts), held)), dtype=np.int32) for held in slots.tolist()]
    which = np.indices([len(each) for each in sets]).reshape(slots.size, -1)
    rows = np.concatenate([each[picked] for each, picked in zip(sets, which, strict=True)], axis=1)
    there = (rows[:, :, None] == np.arange(experts)).any(axis=1).all(axis=1)
    kept: np.ndarray = rows[there]
    return kept


def keeps_the_rule(row: np.ndarray, problem: Problem) -> bool:
    """Whether a way to fill the slots has its copies spread over failure domains as docs/replan.md says."""
    domain = problem.failure_domain[problem.slot_gpu].tolist()
    used, copies = len(set(domain)), Counter(row.tolist())
    return all(
        count <= (math.ceil(copies[expert] / used) if used > 1 else 1)
        for (expert, _), count in Counter(zip(row.tolist(), domain, strict=True)).items()
    )


def legal_placements(problem: Problem) -> np.ndarray:
    """Return every legal placement of one layer, ``[ways, slots]``, by the rule of every search.

    The rule is held against the words of the documentation and against verify on some of the rows.
    """
    rows = ways_to_fill(problem.experts, problem.slots_per_gpu)
    legal = problem.legal(rows)
    one = problem.rows(np.array([0]))
    for way in np.linspace(0, len(rows) - 1, min(len(rows), 12), dtype=int).tolist():
        assert legal[way] == keeps_the_rule(rows[way], problem)
        assert legal[way] == (verify_experts(one.assignment(rows[[way]]), one) == [])
    kept: np.ndarray = rows[legal]
    return kept


def least_objective(problem: Problem, *, second_first: bool = True) -> float | None:
    """Return the smallest objective of any legal placement of a problem of one layer; None where none is legal.

    ``second_first``: where copies are spread no expert has a third copy before all have two.
    """
    rows = legal_placements(problem)
    if len(rows) == 0:
        return None
    if problem.spread is not None and second_first:
        copies = [np.bincount(row, minlength=problem.experts) for row in rows]
        in_turn = [each.max() < 3 or each.min() > 1 for each in copies]
        rows = rows[in_turn] if any(in_turn) else rows
    return float(problem.rows(np.zeros(len(rows), dtype=int)).evaluate(rows).min())
