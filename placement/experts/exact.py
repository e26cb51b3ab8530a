"""Layers with few placements, to the optimum, with the proof: by CP-SAT, with one of two models.

*Sets of GPUs*: each expert chooses the GPUs that hold its copies. What it then asks of each GPU follows from that set
alone, under any split of tokens: ``1 / copies`` of its load (``even``), or what source ranks choose (``source``,
``rank``). Under ``lp`` the largest load is that of some set of GPUs whose experts cannot leave it
(:mod:`cost.experts.best_split`), so that loads are those of sets there. So it holds for several loads, any split,
failure domains, unequal slots and speeds, but there are ``2**gpus`` sets.

*Patterns of a GPU* (:mod:`placement.experts.columns`): for more GPUs; one load, an even split, no failure domains.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.dispatch import depends_on_placement, slot_shares
from placement.arrays import Bools, Experts, Floats, Ints
from placement.budget import CUT, Budget
from placement.cp_solver import solve_within
from placement.experts.columns import fits_columns, lowered
from placement.experts.dispatch_refinement import SLACK
from placement.experts.problem import EQUAL, Problem, proven, search_state, second_copies_first

STEPS = 1_000_000_000
"""Integer steps to the mean GPU load."""

_MOST_GPUS, _MOST_CHOICES = 8, 450  # of a layer by sets of GPUs, and of experts and sets...
_MOST_NUMBERS = 20_000  # ... and loads in its model
_MOST_WAYS = 13.0  # logarithm of the ways to fill its slots
_SETS_S = 0.05  # of CP-SAT's own seconds for a layer by sets of GPUs, whatever was asked for


def few_sets(problem: Problem) -> bool:
    """Whether a layer has few enough experts, sets of GPUs and placements; quota slots have no model."""
    if problem.split == "quota":
        return False
    slots = problem.slots_per_gpu[problem.slots_per_gpu > 0].tolist()
    gpus, most = len(slots), min(len(slots), problem.slots - problem.experts + 1)
    if most < 1 or gpus > _MOST_GPUS:
        return False
    choices = problem.experts * sum(math.comb(gpus, copies) for copies in range(1, most + 1))
    loads = problem.scenarios * (2**gpus if problem.split == "lp" else gpus)
    ways = sum(math.log(math.comb(problem.experts, held)) for held in slots)
    ways -= sum(math.lgamma(slots.count(held) + 1) for held in set(slots))  # GPUs change places
    return choices <= _MOST_CHOICES and choices * loads <= _MOST_NUMBERS and ways <= _MOST_WAYS


def can_finish(problem: Problem) -> bool:
    """Whether :func:`finish` has a model for the layers of ``problem``."""
    return few_sets(problem) or fits_columns(problem)


def finish(
    problem: Problem, slot_expert: Experts, bound: Floats, budget: Budget, *, worth_s: float, seed: int
) -> tuple[Experts, Floats, str]:
    """Return placements ``[layers, slots]`` no worse, a bound ``[layers]``, and what ran in words.

    Layers that are not proven to be as good as any are solved one by one, by sets of GPUs where there are few: those
    get some work where no time is asked for too, others the work of ``worth_s`` seconds together. Under an LP split a
    placement within :data:`placement.experts.dispatch_refinement.SLACK` of the best stays: it bears other loads
    better.
    """
    placement, bound = slot_expert.copy(), bound.copy()
    value = problem.evaluate(placement)
    layers = np.flatnonzero(~proven(value, bound))
    if layers.size == 0:
        return placement, bound, ""
    by_sets = few_sets(problem)
    least_s = _SETS_S if by_sets else 0.0
    fast = by_sets and not budget.seconds
    until = budget.always(least_s * layers.size) if fast else budget.search(worth_s)
    slack = SLACK if problem.split == "lp" else EQUAL
    better = optimal = 0
    with budget, budget.keeping():
        for done, layer in enumerate(layers.tolist()):
            part, row = problem.rows(np.array([layer])), placement[layer]
            own = until.always(max(least_s, until.left() / 1000 / (layers.size - done)))
            if not own.goes_on():
                break
            rounding = 0.0
            if by_sets:
                row, least, rounding = _best_sets(
                    part, row, float(bound[layer]), own, seed=0 if fast else seed
                )
            else:
                row, least = lowered(part, row, float(bound[layer]), own, seed=seed)
            bound[layer] = max(bound[layer], least)
            reached = float(part.evaluate(row[None])[0])
            if reached * (1 + slack) < value[layer]:
                placement[layer], value[layer], better = row, reached, better + 1
            if value[layer] <= bound[layer] * (1 + EQUAL) + rounding:
                bound[layer], optimal = value[layer], optimal + 1
            budget.tell(lambda: search_state(value, bound))
    words = f"CP-SAT on {layers.size} whole layers: {better} improved, {optimal} proven optimal"
    return placement, bound, words + f"; {CUT}" * budget.cut


def _best_sets(
    problem: Problem, row: Experts, bound: float, budget: Budget, *, seed: int
) -> tuple[Experts, float, float]:
    """Return the one layer of ``problem`` no worse than ``row`` ``[slots]``, a bound, and the rounding of that."""
    order = np.argsort(-problem.mean[0], kind="stable")  # names of experts decide nothing
    ranked = replace(problem, loads=problem.loads[:, :, order])
    used = np.flatnonzero(problem.slots_per_gpu > 0)
    sets = _gpu_sets(ranked, used)
    loads = ranked.loads[:, 0] * (problem.gpus / ranked.loads[:, 0].sum(axis=1, keepdims=True))
    # what each expert asks with each set, in steps, [scenarios, rows, experts, sets]; rounded down: a bound holds
    asked = loads[:, None, :, None] * _weights(ranked, sets, used).transpose(2, 0, 1)
    steps = np.floor(asked * STEPS).astype(np.int64)
    held = problem.on_gpus(row[None])[0][used].T[order]
    start = (sets == held[:, None]).all(axis=2).argmax(axis=1)
    chosen, least = _chosen_sets(ranked, sets, steps, start, bound, budget, seed)
    if chosen is not None and problem.spread is not None:
        copies = np.stack([sets[own].sum(axis=1) for own in (start, chosen)])
        fine = second_copies_first(copies)
        if fine[0] and not fine[1]:
            chosen = _chosen_sets(ranked, sets, steps, start, bound, budget, seed, second_first=True)[0]
    if chosen is not None:
        row = order[np.nonzero(sets[chosen].T)[1]].astype(np.int32)
    return row, least, problem.experts * used.size / STEPS


def _chosen_sets(
    problem: Problem,
    sets: Bools,
    steps: Ints,
    start: Ints,
    bound: float,
    budget: Budget,
    seed: int,
    *,
    second_first: bool = False,
) -> tuple[Ints | None, float]:
    """Return a set of GPUs for each expert, ``[experts]``, if any is no worse than ``start``; and a bound.

    Parameters
    ----------
    sets:
        bool ``[sets, GPUs with slots]``.
    steps:
        int64 ``[scenarios, rows, experts, sets]``: what is asked of a GPU (``lp``: of a set).
    start:
        The set of each expert in the incumbent, ``[experts]``; no hint, so that it decides no ties.
    bound:
        Nothing is below it.
    second_first:
        Whether no expert may have three copies while another has one.
    """
    from ortools.sat.python import cp_model

    model, slots = cp_model.CpModel(), problem.slots_per_gpu[problem.slots_per_gpu > 0]
    takes = np.array([[model.new_bool_var("") for _ in sets] for _ in range(problem.experts)])
    for own in takes:
        model.add_exactly_one(own.tolist())
    for gpu, count in enumerate(slots.tolist()):
        model.add(cp_model.LinearExpr.sum(takes[:, sets[:, gpu]].ravel().tolist()) == count)
    # the worst scenario is all rows under one peak
    peaks = steps.reshape(1, -1, *steps.shape[2:]) if problem.objective == "worst" else steps
    votes = np.ones(1, dtype=np.int64) if problem.objective == "worst" else _whole_votes(problem)
    heaviest = int(steps.max(axis=3).sum(axis=2).max())
    peak = [model.new_int_var(0, heaviest, "") for _ in peaks]
    for highest, rows in zip(peak, peaks, strict=True):
        for asked in rows:
            some = asked > 0
            model.add(cp_model.LinearExpr.weighted_sum(takes[some].tolist(), asked[some].tolist()) <= highest)
    copies = sets.sum(axis=1)
    if second_first:
        third = model.new_bool_var("")
        for variable in takes[:, copies >= 3].flat:
            model.add_implication(variable, third)
        for variable in takes[:, copies == 1].flat:
            model.add_implication(variable, ~third)
    alike = problem.equal_speeds and bool((slots == slots[0]).all()) and problem.each_alone
    if alike and not depends_on_placement(
        problem.split
    ):  # GPUs change places: the heaviest expert is on the first
        for variable in takes[0, (np.diff(sets.astype(int), axis=1) > 0).any(axis=1)]:
            model.add(variable == 0)
    objective = cp_model.LinearExpr.weighted_sum(peak, votes.tolist())
    whole = int(votes.sum())
    known = int(votes @ peaks[:, :, np.arange(start.size), start].sum(axis=2).max(axis=1))
    lowest = math.floor(bound * (1 - EQUAL) * STEPS * whole) - whole * problem.slots
    model.add_linear_constraint(objective, min(lowest, known), known)
    model.minimize(objective)
    # without the linear relaxation 16 copies on 4 GPUs are proven in a third of the time, in whole numbers alone
    solver, status = solve_within(model, budget, seed=seed, linear=0)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return None, lowest / STEPS / whole
    chosen = np.array([[solver.boolean_value(variable) for variable in own] for own in takes])
    return chosen.argmax(axis=1), solver.best_objective_bound / STEPS / whole


def _gpu_sets(problem: Problem, used: Ints) -> Bools:
    """Return the sets of GPUs with slots that an expert may be on, ``[sets, used]``: spread over failure domains."""
    most = min(used.size, problem.slots - problem.experts + 1)
    every = [held for copies in range(1, most + 1) for held in combinations(range(used.size), copies)]
    sets = np.zeros((len(every), used.size), dtype=bool)
    for own, gpus in zip(sets, every, strict=True):
        own[list(gpus)] = True
    domain = np.unique(problem.failure_domain[used], return_inverse=True)[1]
    there = sets.astype(np.int64) @ (domain[:, None] == np.arange(domain.max() + 1)).astype(np.int64)
    spread: Bools = sets[there.max(axis=1) <= problem.most_in_domain(sets.sum(axis=1))]
    return spread


def _weights(problem: Problem, sets: Bools, used: Ints) -> Floats:
    """What an expert's load is multiplied by on each row, ``[experts, sets, rows]``."""
    speed = problem.speed[used]
    if problem.split == "lp":
        rows = (np.arange(1, 2**used.size)[:, None] >> np.arange(used.size)) & 1
        inside = ~(sets[:, None, :] & (rows == 0)).any(axis=2)
        weight: Floats = (inside / (rows @ speed))[None]
    elif not depends_on_placement(problem.split):
        weight = (sets / sets.sum(axis=1, keepdims=True) / speed)[None]
    else:
        held = np.zeros((len(sets), problem.gpus), dtype=bool)
        held[:, used] = sets
        gpu = np.arange(problem.gpus, dtype=np.int32)
        shares = []
        for expert in range(problem.experts):
            rows = np.where(held, expert, problem.experts).astype(np.int32)  # whoever has the other GPUs
            placed = Assignment(rows, gpu, problem.experts + 1, problem.gpus)
            shares.append(
                np.where(held, slot_shares(placed, problem.split, nodes=problem.nodes), 0.0)[:, used]
            )
        weight = np.stack(shares) / speed
    return np.broadcast_to(weight, (problem.experts, *weight.shape[1:]))


def _whole_votes(problem: Problem) -> Ints:
    """Votes of the scenarios as whole numbers."""
    if problem.votes is None:
        return np.ones(problem.scenarios, dtype=np.int64)
    parts = [Fraction(vote).limit_denominator(10_000) for vote in problem.votes.tolist()]
    scale = math.lcm(*(part.denominator for part in parts))
    return np.array([int(part * scale) for part in parts], dtype=np.int64)
