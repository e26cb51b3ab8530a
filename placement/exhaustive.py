"""Every legal placement of a tiny problem: where they are few, the best of them is the answer, and its own proof.

With few slots the searches that serve hundreds of GPUs are at their weakest: one exchange of copies changes a large
part of the load, and what needs two at once is not seen. All placements of a dozen slots are tried in a few
milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, combinations_with_replacement

import numpy as np

from cost.dispatch import hangs_on_places
from placement.arrays import Experts, Floats, Index
from placement.dispatch_refinement import SLACK
from placement.problem import EQUAL, Problem, proven
from placement.result import ExpertResult, checked_result

_LAYER_US, _ALL_US, _NAMED_US = 10_000.0, 50_000.0, 100_000.0
STEP_US = 300.0
"""What judging many placements of a layer takes, however few they are."""


def judging_us(problem: Problem) -> float:
    """Return about how many microseconds it takes to make and judge one of many placements of a layer."""
    each = (0.2 if hangs_on_places(problem.split) else 0.04) + 0.03 * problem.scenarios
    sets = 2 ** min(problem.gpus, 16) if problem.split == "lp" else 0
    return problem.slots * each + 0.02 * problem.scenarios * sets


def layer_us(problem: Problem) -> float:
    """Return how many microseconds a layer may take, by a fixed estimate: answers depend on no clock.

    Nor on the other layers where engines ask for some of them: under one load, an even split and no failure domains.
    Else all layers share a little more.
    """
    plain = problem.scenarios == 1 and problem.split == "even" and problem.each_alone
    return _LAYER_US if plain else _ALL_US / problem.layers


def few_placements(problem: Problem, *, named: bool = False) -> bool:
    """Whether the ways to fill the slots are few enough to try all, orders of GPUs that are alike counted once.

    ``named``: every order counts, as where it matters which GPU holds what now; a search takes longer there.
    """
    most = int(((_NAMED_US if named else layer_us(problem)) - STEP_US) / judging_us(problem))
    ways = 1
    for gpus in _alike(problem, named=named):
        held = math.comb(problem.experts, int(problem.slots_per_gpu[gpus[0]]))
        ways *= math.comb(held + len(gpus) - 1, len(gpus))
        if ways > most:
            return False
    return True


def best_of_few(result: ExpertResult, problem: Problem) -> ExpertResult:
    """Return ``result`` with the best of all placements in each layer that is not proven to be as good.

    Under an LP split one within :data:`placement.dispatch_refinement.SLACK` of it stays: it bears other loads better.
    """
    layers = np.flatnonzero(~proven(result.max_load, result.bound))
    if layers.size == 0:
        return result
    best, least = best_of_all(problem.rows(layers))
    slack = SLACK if problem.split == "lp" else EQUAL
    better = result.max_load[layers] > least * (1 + slack)
    slot_expert, bound = result.assignment.slot_expert.copy(), result.bound.copy()
    slot_expert[layers[better]], bound[layers] = best[better], least
    log = (*result.log, f"all placements tried in {layers.size} layers: {int(better.sum())} better")
    found = checked_result(problem, slot_expert, bound, log, result.baselines, interrupted=result.interrupted)
    return replace(found, search=result.search)


def best_of_all(problem: Problem) -> tuple[Experts, Floats]:
    """Return the best legal placement of each layer, ``[layers, slots]``, and its objective, ``[layers]``.

    Of several the one whose GPU loads have the smallest sum of squares. For a problem with :func:`few_placements`
    that has a legal one.
    """
    rows = all_placements(problem)
    order = np.argsort(-problem.mean, axis=1, kind="stable")  # names of experts decide no ties
    best = np.empty((problem.layers, problem.slots), dtype=np.int32)
    least = np.empty(problem.layers)
    for layer in range(problem.layers):
        tried = order[layer].astype(np.int32)[rows]
        many = problem.rows(np.full(len(tried), layer))
        value = many.evaluate(tried)
        tied = np.flatnonzero(value <= value.min() * (1 + EQUAL))
        busy = many.assignment(tried[tied]).gpu_load(many.mean[tied]) / problem.speed
        best[layer] = tried[tied[int(np.argmin((busy**2).sum(axis=1)))]]
        least[layer] = value.min()
    return best, least


def all_placements(problem: Problem, *, named: bool = False) -> Experts:
    """Return every legal placement of one layer, int32 ``[ways, slots]``; ``named`` as of :func:`few_placements`."""
    groups = _alike(problem, named=named)
    choices = [_held_by(problem, gpus) for gpus in groups]
    which = np.indices([len(each) for each in choices]).reshape(len(groups), -1)
    rows = np.empty((which.shape[1], problem.slots), dtype=np.int32)
    for gpus, each, picked in zip(groups, choices, which, strict=True):
        slots = np.concatenate([np.arange(*problem.first_slot[gpu : gpu + 2]) for gpu in gpus])
        rows[:, slots] = each[picked]
    return rows[problem.legal(rows)]


def _held_by(problem: Problem, gpus: Index) -> Experts:
    """Ways to fill the slots of GPUs that are alike, ``[ways, slots of all]``."""
    slots = int(problem.slots_per_gpu[gpus[0]])
    sets = np.array(list(combinations(range(problem.experts), slots)), dtype=np.int32).reshape(-1, slots)
    picked = np.array(list(combinations_with_replacement(range(len(sets)), len(gpus))))
    held: Experts = sets[picked].reshape(len(picked), -1)
    return held


def _alike(problem: Problem, *, named: bool) -> list[Index]:
    """GPUs that may change places without any difference, each in one group; ``named``: none may."""
    domain = problem.failure_domain
    single = np.bincount(domain[problem.slots_per_gpu > 0], minlength=problem.domains)[domain] <= 1
    groups: dict[tuple[float, ...], list[int]] = {}
    for gpu in range(problem.gpus):
        if problem.slots_per_gpu[gpu] == 0:
            continue
        # a source rank's copy depends on the order of the GPUs
        whole = named or hangs_on_places(problem.split)
        place = gpu if whole else -1 if single[gpu] else int(domain[gpu])
        key = (float(problem.slots_per_gpu[gpu]), float(problem.speed[gpu]), float(place))
        groups.setdefault(key, []).append(gpu)
    return [np.array(gpus) for gpus in groups.values()]
