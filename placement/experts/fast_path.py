"""The fast placement of one load: greedy counts, copies matched to GPUs, other counts where that falls short."""

from __future__ import annotations

import numpy as np

from placement.arrays import Experts, Floats, Index, Ints
from placement.experts.bounds import copy_under, of_one_load
from placement.experts.counts import (
    even_domains,
    fold_counts,
    folds,
    least_peak,
    other_counts,
    powered_counts,
    replicate,
)
from placement.experts.excess import relieve
from placement.experts.local_search import exchange_down, swap_down
from placement.experts.matching import ROUNDS, matched
from placement.experts.pack import pack
from placement.experts.problem import WIDE_GAP, Problem, keep_better

NEAR_GAP = 1.5e-3
"""To the mean load: where the fast path stops swapping, and what no engine can measure."""

_MATCHING_ROUNDS = 4  # rounds of matching for each slot, with other counts
_EXCHANGE_GAP = (
    0.02  # above the bound: where other counts are tried; above what counts allow: where copies are exchanged
)
_STEPS = 60  # of swaps and exchanges of copies, where GPUs differ in speed


def fast_placement(problem: Problem) -> tuple[Experts, Floats, Floats, tuple[str, ...]]:
    """Greedy counts, copies matched to GPUs, pairs dealt out again; other counts where that falls short.

    Loads fall with the expert, so that names decide nothing. Returns ``[layers, slots]``, its objective and the
    bound, ``[layers]``, and what ran, in words. Deterministic, and layer by layer.
    """
    copies = greedy = replicate(problem)
    log = ["greedy counts, copies matched to GPUs by sorting, pairs dealt out again"]
    if int(problem.slots_per_gpu.max()) <= 1 and problem.equal_speeds:
        log.append("one slot per GPU: greedy counts are provably optimal")
        experts = np.tile(np.arange(problem.experts, dtype=np.int32), problem.layers)
        anywhere = np.repeat(experts, copies.ravel()).reshape(problem.layers, -1)
        placed = anywhere if problem.each_alone else pack(problem, copies)
        bound = copy_under(problem, copies)
        return placed, bound, bound, tuple(log)
    bound = of_one_load(problem, copies)
    enough = bound * (1 + NEAR_GAP)
    two, lowest = folds(problem), enough.copy()  # what the counts placed allow
    if two:
        copies, least = fold_counts(problem, copies, enough)
        lowest = np.maximum(enough, least * (1 + NEAR_GAP))
    slot_expert = _packed(problem, copies, lowest)
    load = problem.evaluate(slot_expert)
    if not problem.equal_speeds:
        _on_unequal_gpus(problem, slot_expert, bound)
        return slot_expert, problem.evaluate(slot_expert), bound, tuple(log)
    wide = np.flatnonzero(load > bound * (1 + WIDE_GAP))
    if two and wide.size:
        log.append("counts searched by folding two copies per GPU")
    elif wide.size:
        lowest[wide] = np.maximum(enough[wide], least_peak(problem.rows(wide), copies[wide]) * (1 + NEAR_GAP))
        _try_other_counts(
            problem, slot_expert, load, np.flatnonzero(load > bound * (1 + _EXCHANGE_GAP)), lowest
        )
    _deal(problem, slot_expert, load, lowest)
    rows = np.flatnonzero(load > lowest) if two else wide[:0]
    if rows.size:  # a fold is not to be had where copies of an expert would meet
        _keep_packed(problem, slot_expert, rows, greedy, lowest)
        load[rows] = problem.rows(rows).evaluate(slot_expert[rows])
    far = np.flatnonzero(load > lowest * (1 + _EXCHANGE_GAP))
    if far.size and problem.slots > problem.experts:
        part = problem.rows(far)
        candidate = swap_down(part, exchange_down(part, slot_expert[far], enough[far]), enough[far])
        keep_better(problem, slot_expert, far, candidate)
        load[far] = part.evaluate(slot_expert[far])
    return slot_expert, load, bound, tuple(log)


def _on_unequal_gpus(problem: Problem, slot_expert: Experts, bound: Floats) -> None:
    """Deal out pairs of GPUs of unequal speed, and try other counts, in place."""
    enough = bound * (1 + NEAR_GAP)
    _deal(problem, slot_expert, problem.evaluate(slot_expert), enough)
    wide = np.flatnonzero(problem.evaluate(slot_expert) > bound * (1 + WIDE_GAP))
    for counts in powered_counts(problem) if wide.size else ():
        _keep_packed(problem, slot_expert, wide, counts, enough)
    for layer in wide[problem.evaluate(slot_expert)[wide] > bound[wide] * (1 + WIDE_GAP)]:
        alone = np.array([layer])  # each alone: others do not change its draws
        part = problem.rows(alone)
        candidate = relieve(part, slot_expert[alone], enough[alone], steps=_STEPS)
        keep_better(problem, slot_expert, alone, swap_down(part, candidate, enough[alone]))


def _keep_packed(problem: Problem, slot_expert: Experts, rows: Index, copies: Ints, enough: Floats) -> None:
    """Pack ``copies`` of some layers and take what is better, in place."""
    part = problem.rows(rows)
    candidate = swap_down(part, _packed(part, copies[rows], enough[rows]), enough[rows])
    keep_better(problem, slot_expert, rows, candidate)


def _packed(problem: Problem, copies: Ints, enough: Floats, rounds: int = ROUNDS) -> Experts:
    return matched(problem, copies, enough, rounds) if problem.each_alone else pack(problem, copies)


def _deal(problem: Problem, slot_expert: Experts, load: Floats, enough: Floats) -> None:
    """Deal out pairs of GPUs in layers whose ``load`` is above ``enough``, both ``[layers]``, in place."""
    rows = np.flatnonzero(load > enough)
    if rows.size:
        part = problem.rows(rows)
        slot_expert[rows] = swap_down(part, slot_expert[rows], enough[rows])
        load[rows] = part.evaluate(slot_expert[rows])


def _try_other_counts(
    problem: Problem, slot_expert: Experts, load: Floats, wide: Index, lowest: Floats
) -> None:
    """Take placements with other counts in the ``wide`` layers where they are better, in place.

    ``lowest`` ``[layers]`` becomes what those counts allow.
    """
    if (
        not wide.size
        or problem.slots == problem.experts
        or problem.seconds_first
        or not even_domains(problem)
    ):
        return
    part = problem.rows(wide)
    variants = other_counts(part)
    which, row = np.indices(variants.shape[:2]).reshape(2, -1)
    many, counts = part.rows(row), variants.reshape(row.size, -1)
    least = least_peak(many, counts)
    some = np.flatnonzero(least < load[wide[row]] * (1 - WIDE_GAP))
    if not some.size:
        return
    which, row, least, many = which[some], row[some], least[some], many.rows(some)
    candidate = _packed(many, counts[some], np.ones(some.size), _MATCHING_ROUNDS)
    value = many.evaluate(candidate)
    for way in range(len(variants)):
        mine = np.flatnonzero(which == way)
        mine = mine[value[mine] < load[wide[row[mine]]]]
        better = wide[row[mine]]
        slot_expert[better], load[better] = candidate[mine], value[mine]
        lowest[better] = np.maximum(least[mine], 1.0) * (1 + NEAR_GAP)
