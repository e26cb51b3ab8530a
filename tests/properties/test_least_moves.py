"""The bound of moves: against all placements of tiny cases, and against another solver over all columns."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import linprog

from placement.budget import Budget
from placement.experts.pack import EMPTY
from placement.experts.problem import make_problem
from placement.migrate.fewest import least_moves
from placement.migrate.least import proven_moves
from placement.migrate.task import MigrationTask
from tiny_cases import legal_placements, tiny_problem


def case(seed: int) -> tuple[MigrationTask, np.ndarray] | None:
    """A task with an even split, of unequal GPUs and failure domains too, and all legal placements."""
    problem, rng = tiny_problem(seed).even, np.random.default_rng(seed)
    legal = legal_placements(problem)
    if len(legal) == 0:
        return None
    old = legal[rng.integers(len(legal))].copy()
    if seed % 3 == 0:
        old[rng.random(old.size) < 0.3] = EMPTY
    return MigrationTask(problem, old[None]), legal


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(1000, 1190), marks=pytest.mark.wide)])
def test_no_placement_as_balanced_moves_less(seeds: range) -> None:
    sharp = above = 0
    for seed in seeds:
        if (found := case(seed)) is None:
            continue
        task, legal = found
        every = task.rows(np.zeros(len(legal), dtype=int))
        moves, value = every.moves(legal), every.problem.evaluate(legal)
        for answer in (int(value.argmin()), int(np.random.default_rng(seed).integers(len(legal)))):
            proof = proven_moves([task], [legal[[answer]]], [1], Budget())
            fewest = moves[value <= value[answer] * (1 + 1e-9)].min()
            assert proof.moves <= fewest, seed
            assert proof.layers == 1
            sharp += proof.moves == fewest
            above += proof.moves > least_moves(task)[0]
    assert sharp > 0.5 * len(seeds)
    assert above > 0.2 * len(seeds)


def by_highs(task: MigrationTask, target: float) -> float:
    """The program of the module's notes with all columns and counts written out."""
    problem, held = task.problem, task.held[0]
    load = problem.mean[0] * problem.gpus / problem.mean[0].sum()
    counts = range(1, problem.most_copies + 1)
    kinds = [(e, c) for e in range(problem.experts) for c in counts if load[e] / c <= target]
    number = {kind: i for i, kind in enumerate(kinds)}
    columns = []
    for gpu in range(problem.gpus):
        mine = np.flatnonzero(held[gpu]).tolist()
        for kept in (part for size in range(len(mine) + 1) for part in combinations(mine, size)):
            for chosen in product(*([number[e, c] for c in counts if (e, c) in number] for e in kept)):
                room = target - sum(load[kinds[i][0]] / kinds[i][1] for i in chosen)
                if room >= 0:
                    columns.append((gpu, chosen, room, int(problem.slots_per_gpu[gpu]) - len(kept)))
    size, total = len(kinds), len(columns) + 2 * len(kinds)
    equal, most = np.zeros((size + problem.experts + problem.gpus + 1, total)), [np.zeros(total)]
    for i, (expert, count) in enumerate(kinds):
        come, has = len(columns) + i, len(columns) + size + i
        equal[i, come], equal[i, has], equal[-1, come] = 1, -count, 1
        equal[size + expert, has] = 1
        most[0][come] = load[expert] / count
        for gpu in np.flatnonzero(held[:, expert]).tolist():
            row = np.zeros(total)
            row[has] = -1
            row[[j for j, column in enumerate(columns) if column[0] == gpu and i in column[1]]] = 1
            most.append(row)
    for j, (gpu, chosen, room, opened) in enumerate(columns):
        equal[list(chosen), j] = 1
        equal[size + problem.experts + gpu, j] = 1
        equal[-1, j] = -opened
        most[0][j] = -room if opened else 0
    right = np.concatenate([np.zeros(size), np.ones(problem.experts + problem.gpus), [0]])
    cost = np.concatenate([np.zeros(len(columns)), np.ones(size), np.zeros(size)])
    found = linprog(cost, A_ub=np.array(most), b_ub=np.zeros(len(most)), A_eq=equal, b_eq=right)
    return float(found.fun)


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_is_that_of_another_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = make_problem(rng.lognormal(0, 0.8, (1, 8)), np.full(5, 2))
    old = np.concatenate([rng.permutation(8), [0, 1]]).astype(np.int32)
    task = MigrationTask(problem, old[None])
    legal = legal_placements(problem)
    answer = legal[[int(problem.rows(np.zeros(len(legal), dtype=int)).evaluate(legal).argmin())]]
    proof = proven_moves([task], [answer], [1], Budget())
    outside = by_highs(task, float(problem.evaluate(answer)[0]) * (1 + 1e-6))
    assert outside - 0.25 - 1e-6 <= proof.moves <= np.ceil(outside - 1e-6)
