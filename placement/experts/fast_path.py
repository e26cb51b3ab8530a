"""The fast placement of one load: greedy counts, largest first, best swaps; other counts where that falls short."""

from __future__ import annotations

import numpy as np

from placement.arrays import Experts, Floats
from placement.experts.bounds import of_one_load
from placement.experts.counts import fold_counts, folded_peak, folds, other_counts, replicate
from placement.experts.excess import relieve
from placement.experts.local_search import swap_down
from placement.experts.pack import pack
from placement.experts.problem import WIDE, Problem, keep_better

NEAR = 1.5e-3
"""To the mean load: where the fast path stops swapping, and what no engine can measure."""

_STEPS = 60  # of swaps and exchanges of copies, where GPUs differ in speed


def fast_placement(problem: Problem) -> tuple[Experts, Floats, tuple[str, ...]]:
    """Greedy counts, largest first, best swaps; other counts where that falls short.

    Returns ``[layers, slots]``, the bound ``[layers]`` and what ran, in words. Deterministic, and layer by layer.
    """
    copies = replicate(problem)
    bound = of_one_load(problem, copies)
    log = ["greedy counts, largest first, best swaps"]
    if int(problem.slots_per_gpu.max()) <= 1 and problem.equal_speeds:
        return pack(problem, copies), bound, (*log, "one slot per GPU: greedy counts are provably optimal")
    searched = folds(problem) and problem.slots > problem.experts
    first = fold_counts(problem, copies) if searched else copies
    slot_expert = swap_down(problem, pack(problem, first), close=NEAR)
    wide = np.flatnonzero(problem.evaluate(slot_expert) > bound * (1 + WIDE))
    if searched and wide.size:
        log.append("counts searched by the fold of two copies a GPU")
        # the fold is not to be had where copies of an expert would meet
        wide = wide[problem.evaluate(slot_expert)[wide] > folded_peak(problem.rows(wide), copies[wide])]
    elif wide.size:
        log.append(f"other copy counts tried in {wide.size} layers with a gap above {WIDE:.1%}")
    if wide.size:
        part = problem.rows(wide)
        for counts in [copies[wide]] if searched else other_counts(part, copies[wide]):
            keep_better(problem, slot_expert, wide, swap_down(part, pack(part, counts), close=NEAR))
    if not problem.equal_speeds:
        load = problem.evaluate(slot_expert)
        for layer in np.flatnonzero(load > bound * (1 + WIDE)):  # each alone: others do not change its draws
            one = np.array([layer])
            part = problem.rows(one)
            found = relieve(part, slot_expert[one], bound[one] * (1 + NEAR), steps=_STEPS)
            keep_better(problem, slot_expert, one, swap_down(part, found, close=NEAR))
    return slot_expert, bound, tuple(log)
