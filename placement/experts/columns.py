"""Small groups under one load, to the optimum: patterns of a GPU as columns, the same for GPUs of a kind.

A pattern is a set of copies, each an expert and the number of copies that it shall have, that fits the slots of a
GPU of some kind. How many GPUs take each pattern is what is decided, so that GPUs of a kind never change places. No
GPU is above T, so that none is far below it either: whatever T is asked for, few patterns are left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from placement.arrays import Experts, Floats, Ints
from placement.budget import Budget
from placement.cp_solver import solve_within
from placement.experts.problem import EQUAL, Problem

_MOST_COLUMNS = 30_000  # of a model, 3 s to read
_FEW_COLUMNS = 2_000  # with which anything better than the answer is asked for at once...
_PAIRS = 30_000  # ... and with two slots a GPU, where the linear program is nearly whole
_MOST_SETS = 400_000  # of copies that are looked at for it
_WHOLE = 0.3  # of the work that is left: for that at first; then targets rise
_STEP = 1 / 32  # of the gap: the first target above the bound; twice as much after each that is out of reach


@dataclass(frozen=True, eq=False)
class Columns:
    """Patterns of the GPUs of all kinds.

    Attributes
    ----------
    expert, copies:
        Of each copy, ``[copies]``: what it is of, and how many of them there are.
    members:
        Copies of each pattern, ``[columns][slots]``.
    kind:
        ``[columns]``; ``gpus`` are the GPUs of each kind.
    peak:
        What some GPU has at least where a pattern is taken, over its speed, in multiples of the mean GPU load,
        ``[columns]``: the pattern's own load, or what is left to all other GPUs.
    """

    expert: Ints
    copies: Ints
    members: list[Ints]
    kind: Ints
    gpus: list[Ints]
    peak: Floats

    def within(self, target: float) -> Columns:
        """Return those with which no GPU is above ``target``."""
        fine = np.flatnonzero(self.peak <= target)
        members = [self.members[i] for i in fine.tolist()]
        return replace(self, members=members, kind=self.kind[fine], peak=self.peak[fine])


def fits_columns(problem: Problem) -> bool:
    """Whether a problem has one load, an even split and no failure domains, and sets of copies are few."""
    if problem.scenarios > 1 or problem.split != "even" or not problem.each_alone:
        return False
    copies, slots = problem.experts * problem.most_copies, np.unique(problem.slots_per_gpu)
    return sum(math.comb(copies, held) for held in slots.tolist()) <= _MOST_SETS


def columns_within(problem: Problem, target: float) -> Columns:
    """Return the patterns of the one layer of ``problem`` with which no GPU is above ``target`` mean GPU loads."""
    load = problem.mean[0] * (problem.gpus / problem.mean[0].sum())
    used = problem.slots_per_gpu > 0
    pairs = np.stack([problem.slots_per_gpu, problem.speed], axis=1)
    kinds = np.unique(pairs[used], axis=0)
    expert, copies = np.divmod(np.arange(problem.experts * problem.most_copies), problem.most_copies)
    share = load[expert] / (copies + 1)
    small = share <= target * problem.speed.max()
    expert, copies, share = expert[small], copies[small] + 1, share[small]
    members: list[Ints] = []
    kind, peaks = [], []
    for number, (slots, speed) in enumerate(kinds.tolist()):
        sets = np.array([*combinations(range(expert.size), int(slots))], dtype=np.int64).reshape(
            -1, int(slots)
        )
        sets = sets[(np.diff(expert[sets], axis=1) > 0).all(axis=1)]  # experts rise along a set
        total = share[sets].sum(axis=1)
        others = float(problem.speed[used].sum()) - speed
        # loads have a fixed sum: the others must bear what a GPU does not
        peak = np.maximum(total / speed, (problem.gpus - total) / others if others else 0.0)
        fine = peak <= target
        members.extend(sets[fine])
        kind.append(np.full(int(fine.sum()), number))
        peaks.append(peak[fine])
    gpus = [np.flatnonzero((pairs == own).all(axis=1)) for own in kinds]
    return Columns(expert, copies, members, np.concatenate(kind), gpus, np.concatenate(peaks))


def choose_columns(
    problem: Problem, columns: Columns, budget: Budget, *, seed: int, most_s: float
) -> tuple[Experts | None, bool]:
    """Return a placement ``[slots]`` with patterns of ``columns``, and whether it is proven that none has them."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    taken = [
        model.new_int_var(0, int(min(columns.gpus[kind].size, *columns.copies[copies])), "")
        for kind, copies in zip(columns.kind.tolist(), columns.members, strict=True)
    ]
    has = [model.new_bool_var("") for _ in columns.expert]
    there: list[list[cp_model.IntVar]] = [[] for _ in columns.expert]
    for variable, copies in zip(taken, columns.members, strict=True):
        for copy in copies.tolist():
            there[copy].append(variable)
    for variable, places, count in zip(has, there, columns.copies.tolist(), strict=True):
        model.add(cp_model.LinearExpr.sum(places) == count * variable)
    for expert in range(problem.experts):
        model.add_exactly_one(has[copy] for copy in np.flatnonzero(columns.expert == expert).tolist())
    # follows from the others, and is what CP-SAT proves most with
    every = cp_model.LinearExpr.weighted_sum(has, columns.copies.tolist())
    model.add(every == problem.slots)
    for kind, gpus in enumerate(columns.gpus):
        model.add(sum(taken[i] for i in np.flatnonzero(columns.kind == kind).tolist()) == gpus.size)
    solver, status = solve_within(model, budget, seed=seed, most_s=most_s, linear=2)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return None, status == cp_model.INFEASIBLE
    row = np.zeros(problem.slots, dtype=np.int32)
    free = [iter(gpus.tolist()) for gpus in columns.gpus]
    for variable, copies, kind in zip(taken, columns.members, columns.kind.tolist(), strict=True):
        for _ in range(solver.value(variable)):
            first = problem.first_slot[next(free[kind])]
            row[first : first + copies.size] = columns.expert[copies]
    return row, False


def lowered(
    problem: Problem, row: Experts, bound: float, budget: Budget, *, seed: int
) -> tuple[Experts, float]:
    """Return the one layer of ``problem`` no worse than ``row`` ``[slots]``, and a bound of it.

    Targets rise from ``bound``: what is out of reach is a bound, and is quickly proven where a GPU has few patterns.
    """
    value = float(problem.evaluate(row[None])[0])
    many, first = (_FEW_COLUMNS, _STEP) if problem.slots_per_gpu.max() > 2 else (_PAIRS, 0.5)
    step, tried = first, np.inf  # the least value below which nothing was there in time
    columns = columns_within(problem, value)
    while budget.goes_on() and value > bound * (1 + EQUAL):
        # what is equal but for rounding is not sought
        target, below, most_s = value, columns.within(value * (1 - EQUAL)), budget.left() / 1000
        if len(below.members) <= many and value < tried:
            most_s *= _WHOLE if tried == np.inf else 1.0
        else:
            target = bound + step * (value - bound)
            below = columns.within(target)
        if len(below.members) > _MOST_COLUMNS:
            break
        better, none = choose_columns(problem, below, budget, seed=seed, most_s=most_s)
        if better is not None:
            row, value, step = better, float(problem.evaluate(better[None])[0]), first
        elif none:
            bound, step = target, min(0.5, 2 * step)
        elif target == value:
            tried = target
        else:
            break
    return row, bound
