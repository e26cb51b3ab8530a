"""The fewest moves that any placement as balanced as an answer needs: what each GPU keeps as columns, priced by GLOP.

Notes
-----
A column of a GPU is a set of its copies that stay, each with the number c of copies that its expert e shall have: a
copy of load w / c. Their loads sum to T times the GPU's speed at most; what is left is room for the copies that come
to its open slots. With T the largest load of the answer, a linear program asks for the least

    sum of n[e, c]                                          copies that come, where
    n[e, c] + columns that keep (e, c) = c z[e, c],         sum over c of z[e, c] = 1,
    columns of one GPU that keep (e, c) <= z[e, c],         columns of a GPU sum to 1,
    sum of n[e, c] w / c <= room of columns that have an open slot,
    sum of n[e, c] = open slots of the columns.

Every placement with no GPU above T is a solution, whatever its counts; left out is which copy comes to which GPU.
Whatever the price of room (p, not negative), of a slot (q) and of keeping (v, by copy and c), the optimum of every
expert by itself and of every GPU by itself add up to a bound (Lagrange). Both are computed for all counts and all
columns, so that a program which ended early proves something too, and float errors of GLOP nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np

from placement.arrays import Bools, Experts, Floats, Ints
from placement.budget import Budget
from placement.migrate.fewest import least_moves
from placement.migrate.task import MigrationTask

_WORK_S = 10.0  # seconds' worth for all layers
_COST = 0.5, 0.1  # units of work in a round, and for each copy that a GPU may keep
_ROUNDS = 24  # of pricing in a layer at most
_DONE_GAP = 0.25, 0.01  # moves and part: so near to the program's value a layer is done
_MANY, _GRID = 64, 512  # columns of a GPU of which the dominated go; of more, loads are rounded down
_ROUNDING = 1e-6  # of T, and moves

_Kept = tuple[tuple[int, int], ...]  # numbers of held copies, and how many copies their experts shall have


@dataclass(frozen=True)
class LeastMoves:
    """No placement in which each layer is as balanced as in the answer does with fewer ``moves``.

    ``layers`` are those that were looked at; of the others only empty slots and experts without a copy count.
    """

    moves: int
    layers: int


def proven_moves(
    tasks: Sequence[MigrationTask], placed: Sequence[Experts], times: Sequence[int], budget: Budget
) -> LeastMoves:
    """Return a bound of the moves to anything as balanced as ``placed``, over the replicas ``times`` of each task.

    Layers take turns over all of the model, until about :data:`_WORK_S` are spent or ``budget`` is interrupted.
    """
    layers = [(i, layer) for i, task in enumerate(tasks) for layer in range(task.problem.layers)]
    bound = [least_moves(task) for task in tasks]
    until, looked = budget.always(_WORK_S), 0
    stride = max(1, round(len(layers) ** 0.5))
    with budget:
        for i, layer in chain.from_iterable(layers[first::stride] for first in range(stride)):
            task = tasks[i].rows(np.array([layer]))
            if task.problem.split != "even" or not until.goes_on():
                continue
            value = float(task.problem.evaluate(placed[i][[layer]])[0])
            proof = _Layer(task, value * (1 + _ROUNDING)).solve(placed[i][layer], until)
            bound[i][layer] = max(bound[i][layer], np.ceil(proof - _ROUNDING))
            looked += 1
    return LeastMoves(sum(int(own.sum()) * count for own, count in zip(bound, times, strict=True)), looked)


def _glop() -> Any:
    from ortools.linear_solver import pywraplp

    solver: Any = pywraplp.Solver
    return solver.CreateSolver("GLOP")


class _Layer:
    """The linear program of one layer, and the bound that follows from its prices."""

    def __init__(self, task: MigrationTask, target: float) -> None:
        problem = task.problem
        self.problem, self.held = problem, task.held[0]
        load = problem.mean[0] * (problem.gpus / problem.mean[0].sum())
        self.counts = np.arange(1, problem.without_spread().most_copies + 1)
        self.share = load[:, None] / self.counts
        self.room = target * problem.speed
        self.fits: Bools = self.share <= self.room[problem.slots_per_gpu > 0].max()
        self.gpu, self.expert = np.nonzero(self.held)
        self.now = self.held.sum(axis=0)
        first = np.cumsum(self.now) - self.now
        self.place = (
            np.argsort(np.argsort(self.expert, kind="stable")) - first[self.expert]
        )  # among its copies
        self.of_gpu = [np.flatnonzero(self.gpu == gpu).tolist() for gpu in range(problem.gpus)]
        self.of_expert = [np.flatnonzero(self.expert == e).tolist() for e in range(problem.experts)]
        self.solver = _glop()
        self.goal, self.inf = self.solver.Objective(), self.solver.infinity()
        row = self.solver.Constraint
        self.one_count = [row(1, 1) for _ in load]
        self.one_column = [row(1, 1) for _ in range(problem.gpus)]
        self.bears, self.slots = row(-self.inf, 0), row(0, 0)
        self.copies: dict[tuple[int, int], Any] = {}
        self.keeps: dict[tuple[int, int], Any] = {}
        self.columns: set[tuple[int, _Kept]] = set()

    def solve(self, answer: Experts, budget: Budget) -> float:
        """Return a bound of the moves; the columns of ``answer`` ``[slots]`` make the program feasible."""
        count = np.bincount(answer, minlength=self.problem.experts)
        on = self.problem.on_gpus(answer[None])[0]
        usual = np.clip(self.now, 1, self.counts.size)
        if not self.fits.any(axis=1).all():
            return 0.0
        for expert, copies in enumerate(count.tolist()):
            self._add_count(expert, copies)
            self._add_count(expert, int(usual[expert]))
        for gpu, held in enumerate(self.of_gpu):
            self._add(gpu, tuple((h, int(count[self.expert[h]])) for h in held if on[gpu, self.expert[h]]))
            for kept in chain(
                *(combinations(held, len(held) - gone) for gone in range(min(2, len(held) + 1)))
            ):
                own = tuple((h, int(usual[self.expert[h]])) for h in kept)
                if sum(self.share[self.expert[h], c - 1] for h, c in own) <= self.room[gpu]:
                    self._add(gpu, own)
        best = 0.0
        for _ in range(_ROUNDS):
            budget.spend(_COST[0] + _COST[1] * self.gpu.size)
            if self.solver.Solve() != self.solver.OPTIMAL:
                break
            value = self.goal.Value()
            bound, columns = self._priced()
            best = max(best, bound)
            new = [self._add(*column) for column in columns]
            if not any(new) or value - best < max(_DONE_GAP[0], _DONE_GAP[1] * value):
                break
        return best

    def _add_count(self, expert: int, copies: int) -> None:
        """Let an expert have so many copies."""
        if (expert, copies) in self.copies or not self.fits[expert, copies - 1]:
            return
        self.copies[expert, copies] = row = self.solver.Constraint(0, 0)
        has, come = (self.solver.NumVar(0, self.inf, "") for _ in range(2))
        row.SetCoefficient(has, -copies)
        self.one_count[expert].SetCoefficient(has, 1)
        self.goal.SetCoefficient(come, 1)
        self.bears.SetCoefficient(come, float(self.share[expert, copies - 1]))
        for total in (row, self.slots):
            total.SetCoefficient(come, 1)
        for held in self.of_expert[expert]:
            self.keeps[held, copies] = keeps = self.solver.Constraint(-self.inf, 0)
            keeps.SetCoefficient(has, -1)

    def _add(self, gpu: int, kept: _Kept) -> bool:
        """Add a column of a GPU; return whether it is new."""
        if (gpu, kept) in self.columns:
            return False
        self.columns.add((gpu, kept))
        column, room = self.solver.NumVar(0, self.inf, ""), self.room[gpu]
        self.one_column[gpu].SetCoefficient(column, 1)
        for held, copies in kept:
            expert = int(self.expert[held])
            self._add_count(expert, copies)
            for row in (self.copies[expert, copies], self.keeps[held, copies]):
                row.SetCoefficient(column, 1)
            room -= self.share[expert, copies - 1]
        opened = int(self.problem.slots_per_gpu[gpu]) - len(kept)
        if opened:
            self.bears.SetCoefficient(column, -float(room))
            self.slots.SetCoefficient(column, -opened)
        return True

    def _priced(self) -> tuple[float, list[tuple[int, _Kept]]]:
        """Return the bound of the present prices, and the best columns of each GPU."""
        room, slot = max(0.0, -self.bears.dual_value()), -self.slots.dual_value()
        keep = np.full((self.gpu.size, self.counts.size), np.nan)
        for (held, copies), row in self.keeps.items():
            keep[held, copies - 1] = (
                row.dual_value() + self.copies[int(self.expert[held]), copies].dual_value()
            )
        come = 1 + slot + room * self.share  # what a copy costs that comes
        least = self._experts(come, np.where(np.isnan(keep), np.inf, keep))
        known = np.zeros(least.shape, dtype=bool)
        known[tuple(np.array([*self.copies]).T - [[0], [1]])] = True
        least = np.where(known, least, np.inf).min(axis=1)
        # other counts: the lowest price of keeping with which they are no cheaper
        spared = np.maximum(0.0, self.counts * come - least[:, None])
        price = come - spared / np.clip(self.counts, 1, np.maximum(self.now, 1)[:, None])
        keep = np.where(np.isnan(keep), price[self.expert], keep)
        bound, priced = float(self._experts(come, keep).min(axis=1).sum()), []
        for gpu in range(self.problem.gpus):
            value, columns = self._columns(gpu, room, slot, keep)
            bound -= value
            priced += [(gpu, column) for column in columns]
        return bound, priced

    def _experts(self, come: Floats, keep: Floats) -> Floats:
        """Return the least cost of each expert with each number of copies, ``[experts, counts]``."""
        copies = int(max(1, self.now.max()))
        saved = np.zeros((self.now.size, copies, self.counts.size))
        saved[self.expert, self.place] = np.minimum(0.0, keep - come[self.expert])
        saved = np.cumsum(np.sort(saved, axis=1), axis=1)
        total = self.counts * come + saved[:, np.minimum(self.counts, copies) - 1, self.counts - 1]
        return np.where(self.fits, total, np.inf)

    def _columns(self, gpu: int, room: float, slot: float, keep: Floats) -> tuple[float, list[_Kept]]:
        """Return the value of the best column of a GPU, and it, and the best that keeps all."""
        limit = self.room[gpu] * (1 + _ROUNDING)
        empty = int(self.problem.slots_per_gpu[gpu]) - len(self.of_gpu[gpu])
        value, load, opened = np.array([slot * empty]), np.zeros(1), np.array([empty > 0])
        stages: list[tuple[int, list[int], Ints]] = []
        for held in self.of_gpu[gpu]:
            share = self.share[self.expert[held]]
            counts = np.flatnonzero((keep[held] > slot) & (share <= limit))  # else an open slot is no worse
            before = np.repeat(np.arange(value.size), 1 + counts.size)
            choice = np.tile(np.append(-1, counts), value.size)
            value = value[before] + np.where(choice < 0, slot, keep[held][choice])
            load = load[before] + np.where(choice < 0, 0.0, share[choice])
            opened = opened[before] | (choice < 0)
            stay = np.flatnonzero(load <= limit)
            if stay.size > _GRID:
                load = np.floor(load / limit * _GRID) * (limit / _GRID)
            if stay.size > _MANY:
                stay = stay[np.lexsort((-value[stay], load[stay], opened[stay]))]
                rank = value[stay] + 1e9 * opened[stay]
                stay = stay[np.append(True, rank[1:] > np.maximum.accumulate(rank)[:-1])]
            value, load, opened = value[stay], load[stay], opened[stay]
            stages.append((held, (choice[stay] + 1).tolist(), before[stay]))
        total = value + np.where(opened, room * (limit - load), 0.0)
        ends = {int(total.argmax()), int(np.where(opened, -np.inf, total).argmax())}
        columns = []
        for at in ends:
            kept, here = [], at
            for held, copies, before in reversed(stages):
                kept += [(held, copies[here])] if copies[here] else []
                here = int(before[here])
            columns.append(tuple(kept[::-1]))
        return float(total.max()), columns
