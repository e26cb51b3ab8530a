"""Anti-affinity over few failure domains: different domains where possible at low cost, else even spreading.

With as many domains as an expert wants copies, all lie in different ones. Over fewer a hot expert needs more copies
than there are domains: then copies are counted as if there were none and dealt out, an even part to each domain, and
exchanges that keep the rule follow. Whether there is any legal placement is decided before
(:mod:`placement.experts.failure_domains`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from placement.arrays import Experts, Floats, Ints, falling
from placement.budget import Budget
from placement.experts.bounds import lower_bound
from placement.experts.counts import divided
from placement.experts.failure_domains import require_apart, spread_row
from placement.experts.local_search import swap_down
from placement.experts.problem import Problem
from placement.experts.soft_max import descend

Place = Callable[[Problem, Budget], Experts]

LEAST_GAIN = 0.01
"""Of the largest load: for less, copies stay in different failure domains."""


def place_spread(problem: Problem, place: Place, budget: Budget, log: list[str]) -> Experts:
    """Return ``[layers, slots]`` with copies spread over the failure domains of ``problem``.

    ``place`` makes a placement with no expert twice in a domain, until ``budget``. Where that cannot be, or could be
    better by more than :data:`LEAST_GAIN` with more copies of an expert than domains, copies are spread evenly.

    Raises
    ------
    InfeasibleError
        If the slots cannot be filled with copies spread evenly.
    """
    require_apart(problem.experts, problem.slots_per_gpu, problem.spread)
    if problem.can_be_apart:
        apart = place(problem, budget)
        if problem.each_alone or problem.domains_used == 1:
            return apart
        load = problem.evaluate(apart)
        rows = np.flatnonzero(load > lower_bound(problem) * (1 + LEAST_GAIN))
    else:
        apart = np.zeros((problem.layers, problem.slots), dtype=np.int32)
        load, rows = np.full(problem.layers, np.inf), np.arange(problem.layers)
    if rows.size:
        part = problem.rows(rows)
        evenly = _swapped(part, any_spread(part.highest))
        better = part.evaluate(evenly) < load[rows] * (1 - LEAST_GAIN)
        apart[rows[better]] = evenly[better]
        if better.any():
            words = f"{problem.domains_used} failure domains in {int(better.sum())} layers"
            log.append(f"copies spread evenly over {words}")
    return apart


def any_spread(problem: Problem) -> Experts:
    """Return a legal placement ``[layers, slots]``, the experts with most load with most copies; there is one.

    Of each expert every domain gets an even part of the copies; what is left of the division goes where most slots
    are left, which ends well wherever it can. In a domain copies go round the GPUs by falling load. A layer whose
    GPUs are too unlike for that gets copies by the level of its experts alone.
    """
    order = falling(problem.mean)
    row = spread_row(problem.experts, problem.slots_per_gpu, problem.failure_domain)
    levelled = order[:, row].astype(np.int32)
    ranked = replace(problem, loads=np.take_along_axis(problem.mean, order, axis=1), spread=None, votes=None)
    fewest = problem.copies_range[0]
    most = problem.gpus if fewest > 1 else 2
    copies = divided(ranked, ranked.mean, np.zeros(problem.layers), (fewest, most))
    dealt = np.take_along_axis(order, _dealt(problem, ranked.mean, copies), axis=1).astype(np.int32)
    return np.where(problem.legal(dealt)[:, None], dealt, levelled)


def _dealt(problem: Problem, load: Floats, copies: Ints) -> Ints:
    """Deal out ``copies`` ``[layers, experts]`` of experts by falling ``load``; ``[layers, slots]``, legal or not."""
    offset = np.arange(problem.slots) - problem.first_slot[problem.slot_gpu]
    turns = [
        turn[np.argsort(offset[turn], kind="stable")]
        for domain in range(problem.domains)
        if (turn := np.flatnonzero(problem.failure_domain[problem.slot_gpu] == domain)).size
    ]
    left = np.array([turn.size for turn in turns]) - (copies // len(turns)).sum(axis=1)[:, None]
    there = np.repeat(copies[:, None] // len(turns), len(turns), axis=1)  # [layers, domains, experts]
    extra = copies % len(turns)
    rows = np.arange(problem.layers)
    for expert in np.argsort(-extra, axis=1, kind="stable").T:
        fullest = np.argsort(np.argsort(-left, axis=1, kind="stable"), axis=1, kind="stable")
        takes = fullest < extra[rows, expert][:, None]
        there[rows, :, expert] += takes
        left -= takes
    slot_expert = np.zeros((problem.layers, problem.slots), dtype=np.int64)
    by_share = falling(load / copies)
    for domain, turn in enumerate(turns):
        for layer in np.flatnonzero((left == 0).all(axis=1)):
            experts = by_share[layer]
            slot_expert[layer, turn] = np.repeat(experts, there[layer, domain, experts])
    return slot_expert


def _swapped(problem: Problem, slot_expert: Experts) -> Experts:
    return (
        swap_down(problem, slot_expert) if problem.scenarios == 1 else descend(problem.searched, slot_expert)
    )
