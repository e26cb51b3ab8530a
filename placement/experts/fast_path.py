"""The fast placement of one load: greedy counts, largest first, best swaps; other counts where that falls short."""

from __future__ import annotations

import numpy as np

from placement.arrays import Experts, Floats
from placement.experts.bounds import copy_under, of_one_load
from placement.experts.counts import fold_counts, folded_peak, folds, other_counts, replicate
from placement.experts.excess import relieve
from placement.experts.local_search import swap_down
from placement.experts.pack import in_order, pack
from placement.experts.problem import WIDE, Problem, keep_better

NEAR = 1.5e-3
"""To the mean load: where the fast path stops swapping, and what no engine can measure."""

_STEPS = 60  # of swaps and exchanges of copies, where GPUs differ in speed


def fast_placement(problem: Problem) -> tuple[Experts, Floats, Floats, tuple[str, ...]]:
    """Greedy counts, largest first, best swaps; other counts where that falls short.

    Returns ``[layers, slots]``, its objective and the bound, ``[layers]``, and what ran, in words. Deterministic, and
    layer by layer.
    """
    copies = replicate(problem)
    log = ["greedy counts, largest first, best swaps"]
    if int(problem.slots_per_gpu.max()) <= 1 and problem.equal_speeds:
        log.append("one slot per GPU: greedy counts are provably optimal")
        placed = in_order(problem, copies).astype(np.int32) if problem.each_alone else pack(problem, copies)
        bound = copy_under(problem, copies)
        return placed, bound, bound, tuple(log)
    bound = of_one_load(problem, copies)
    searched = folds(problem) and problem.slots > problem.experts
    first = fold_counts(problem, copies, enough=bound * (1 + NEAR)) if searched else copies
    slot_expert = swap_down(problem, pack(problem, first), close=NEAR)
    load = problem.evaluate(slot_expert)
    wide = np.flatnonzero(load > bound * (1 + WIDE))
    if searched and wide.size:
        log.append("counts searched by the fold of two copies a GPU")
        # the fold is not to be had where copies of an expert would meet
        wide = wide[load[wide] > folded_peak(problem.rows(wide), copies[wide])]
    elif wide.size:
        log.append(f"other copy counts tried in {wide.size} layers with a gap above {WIDE:.1%}")
    if wide.size:
        part = problem.rows(wide)
        for counts in [copies[wide]] if searched else other_counts(part, copies[wide]):
            keep_better(problem, slot_expert, wide, swap_down(part, pack(part, counts), close=NEAR))
        load = problem.evaluate(slot_expert)
    if not problem.equal_speeds:
        for layer in np.flatnonzero(load > bound * (1 + WIDE)):  # each alone: others do not change its draws
            one = np.array([layer])
            part = problem.rows(one)
            found = relieve(part, slot_expert[one], bound[one] * (1 + NEAR), steps=_STEPS)
            keep_better(problem, slot_expert, one, swap_down(part, found, close=NEAR))
        load = problem.evaluate(slot_expert)
    return slot_expert, load, bound, tuple(log)
