"""Search of small problems: every change of one slot and every swap of two is judged as it is, step by step.

Where all placements are too many to try (:mod:`placement.exhaustive`) but a layer has a few dozen slots, there is
time to judge every neighbour of a placement under the loads, objective and split that count, and to begin again from
a placement shaken up a little. The searches made for hundreds of GPUs see a stand-in of that alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placement.arrays import Experts, Floats, Index
from placement.dispatch_refinement import SLACK
from placement.exhaustive import STEP_US, best_of_few, few_placements, judging_us, layer_us
from placement.problem import EQUAL, Problem
from placement.result import ExpertResult, checked_result
from placement.budget import Budget

_TIMED_S = 0.5  # of a search where no seconds are asked for, at most
_FEWEST_STEPS = 8  # that all neighbours of a layer are judged: else the problem is not small
_SHAKES = (2, 3, 4)
_TIE = 1e-3
_DRAWN = 128
_STEP_US = 20_000.0  # between two looks at the work that is left
_CLOSE = 2e-3  # to the bound, as on the fast path


def is_small(problem: Problem) -> bool:
    """Whether all neighbours of a placement can be judged often enough."""
    ways = problem.slots * (problem.experts + problem.slots // 2)
    return (STEP_US + ways * judging_us(problem)) * _FEWEST_STEPS <= layer_us(problem)


def finish_small(
    result: ExpertResult, problem: Problem, budget: Budget | None = None, *, seed: int = 0
) -> ExpertResult:
    """Return ``result``; of a tiny problem the best of all placements, of a small one what the search makes of it."""
    if few_placements(problem):
        return best_of_few(result, problem)
    return search_small(result, problem, budget or Budget(), seed=seed) if is_small(problem) else result


def search_small(result: ExpertResult, problem: Problem, budget: Budget, *, seed: int) -> ExpertResult:
    """Return ``result`` with better placements of the layers with a gap to their bound, where some are found.

    A ``budget`` without seconds is a fixed amount of work; with seconds it goes on until then, its draws by ``seed``.
    """
    until = budget.search(_TIMED_S)
    timed = until.goes_on()
    layers = np.flatnonzero(result.max_load > result.bound * (1 + (EQUAL if timed else _CLOSE)))
    if layers.size == 0:
        return result
    work_us = layer_us(problem.rows(layers))
    slot_expert = result.assignment.slot_expert.copy()
    better = 0
    with budget, budget.stepwise():
        for layer in layers.tolist():
            order = np.argsort(-problem.mean[layer], kind="stable")  # names of experts decide nothing
            ranked = replace(problem, loads=problem.loads[:, [layer]][:, :, order])
            start = np.argsort(order)[slot_expert[layer]].astype(np.int32)
            part = until.part(1 / layers.size) if timed else None
            neighbours = _Neighbours(ranked, work_us, seed if timed else 0, part)
            row, value = neighbours.search(start, float(result.bound[layer]))
            if value * (1 + (SLACK if problem.split == "lp" else EQUAL)) < result.max_load[layer]:
                slot_expert[layer] = order[row]
                better += 1
    log = (*result.log, f"every change of a slot and every swap judged: {better} layers better")
    found = checked_result(
        problem, slot_expert, result.bound, log, result.baselines, interrupted=budget.interrupted
    )
    return replace(found, search=result.search)


class _Neighbours:
    """One layer of a small problem, its experts by falling load."""

    def __init__(self, problem: Problem, work_us: float, seed: int, until: Budget | None) -> None:
        self.problem, self.left_us, self.until = problem, work_us, until
        self.counted_us = work_us
        self.rng = np.random.default_rng(seed)
        slots, experts = problem.slots, problem.experts
        slot, new = (each.ravel() for each in np.indices((slots, experts)))
        one, two = np.triu_indices(slots, 1)
        apart = problem.slot_gpu[one] != problem.slot_gpu[two]
        first, second = np.triu_indices(experts, 1)
        # kind, and what changes: a slot and its new expert; two slots; two experts that trade all their copies
        self.moves = np.concatenate(
            [
                np.stack([np.full(a.size, kind), a, b], axis=1)
                for kind, a, b in ((0, slot, new), (1, one[apart], two[apart]), (2, first, second))
            ]
        )
        self.row_us = judging_us(problem)

    def goes_on(self) -> bool:
        """Whether there is work left: what is counted at least, and with more time what that is worth."""
        if self.until is None:
            return self.left_us > 0
        if self.counted_us - self.left_us >= _STEP_US:
            self.until.spend((self.counted_us - self.left_us) / 1000)
            self.counted_us = self.left_us
        return not self.until.work.over and (self.left_us > 0 or self.until.goes_on())

    def search(self, row: Experts, bound: float) -> tuple[Experts, float]:
        """Descend from ``row`` and from it shaken up, until the work is spent; return the best and its objective."""
        best, key = self.descend(row)
        value = float(self.problem.evaluate(best[None])[0])
        while self.goes_on() and value > bound * (1 + EQUAL):
            again, found = self.descend(self.shaken(best))
            if found < key:
                best, key = again, found
                value = float(self.problem.evaluate(best[None])[0])
        return best, value

    def descend(self, row: Experts) -> tuple[Experts, float]:
        """Take a better neighbour, the best of some drawn, while there is one."""
        key = float(self.judge(row[None])[0])
        order = self.rng.permutation(len(self.moves))
        since, at = 0, 0
        while self.goes_on() and since < order.size:
            part = order[at : at + _DRAWN]
            at = (at + _DRAWN) if at + _DRAWN < order.size else 0
            since += part.size
            rows = self.after(row, part)
            if len(rows) == 0:
                continue
            keys = self.judge(rows)
            least = int(np.argmin(keys))
            if keys[least] < key * (1 - EQUAL):
                row, key, since = rows[least], float(keys[least]), 0
        return row, key

    def shaken(self, row: Experts) -> Experts:
        """Return ``row`` after a few legal changes, drawn."""
        for _ in range(int(self.rng.choice(_SHAKES))):
            rows = self.after(row, self.rng.integers(len(self.moves), size=32))
            if len(rows):
                row = rows[0]
        return row

    def after(self, row: Experts, which: Index) -> Experts:
        """Return the legal placements after some of the moves, ``[ways, slots]``."""
        self.left_us -= STEP_US / 2 + which.size * 0.04 * row.size
        kind, a, b = self.moves[which].T
        rows = np.tile(row, (which.size, 1))
        at = np.flatnonzero(kind == 0)
        rows[at, a[at]] = b[at]
        at = np.flatnonzero(kind == 1)
        rows[at, a[at]], rows[at, b[at]] = row[b[at]], row[a[at]]
        at = np.flatnonzero(kind == 2)
        mine, first, second = rows[at], a[at, None], b[at, None]
        rows[at] = np.where(mine == first, second, np.where(mine == second, first, mine))
        legal: Experts = rows[(rows != row).any(axis=1) & self.problem.legal(rows)]
        return legal

    def judge(self, rows: Experts) -> Floats:
        """Return the objective, and a little of how unequal GPUs are under the mean load, ``[ways]``."""
        self.left_us -= STEP_US / 2 + len(rows) * self.row_us
        many = self.problem.rows(np.zeros(len(rows), dtype=np.intp))
        busy = many.assignment(rows).gpu_load(many.mean) / self.problem.speed
        unequal = np.sqrt(np.sqrt(np.square(np.square(busy)).mean(axis=1)))
        judged: Floats = many.evaluate(rows) + _TIE * unequal
        return judged
