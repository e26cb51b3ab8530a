"""The fast placement of one load: greedy counts, largest first, best swaps; other counts where that falls short."""

from __future__ import annotations

import numpy as np

from placement.arrays import Experts, Floats, Index, Ints
from placement.experts.bounds import copy_under, of_one_load
from placement.experts.counts import (
    divided_counts,
    fold_counts,
    folded_peak,
    folds,
    powered_counts,
    replicate,
)
from placement.experts.excess import relieve
from placement.experts.local_search import exchange_down, swap_down
from placement.experts.pack import pack
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
        every = np.tile(np.arange(problem.experts, dtype=np.int32), problem.layers)
        anywhere = np.repeat(every, copies.ravel()).reshape(problem.layers, -1)
        placed = anywhere if problem.each_alone else pack(problem, copies)
        bound = copy_under(problem, copies)
        return placed, bound, bound, tuple(log)
    bound = of_one_load(problem, copies)
    enough = bound * (1 + NEAR)
    searched = folds(problem) and problem.slots > problem.experts
    counts = (fold_counts if searched else divided_counts)(problem, copies, enough)
    slot_expert = swap_down(problem, exchange_down(problem, pack(problem, counts), enough), close=NEAR)
    load = problem.evaluate(slot_expert)
    wide = np.flatnonzero(load > bound * (1 + WIDE))
    if searched and wide.size:
        log.append("counts searched by folding two copies per GPU")
        # the fold is not to be had where copies of an expert would meet
        wide = wide[load[wide] > folded_peak(problem.rows(wide), copies[wide])]
        _keep_packed(problem, slot_expert, wide, copies[wide])
        load = problem.evaluate(slot_expert)
    if not problem.equal_speeds:
        for counts in powered_counts(problem):
            _keep_packed(problem, slot_expert, wide, counts[wide])
        load = problem.evaluate(slot_expert)
        for layer in np.flatnonzero(load > bound * (1 + WIDE)):  # each alone: others do not change its draws
            one = np.array([layer])
            part = problem.rows(one)
            found = relieve(part, slot_expert[one], bound[one] * (1 + NEAR), steps=_STEPS)
            keep_better(problem, slot_expert, one, swap_down(part, found, close=NEAR))
        load = problem.evaluate(slot_expert)
    return slot_expert, load, bound, tuple(log)


def _keep_packed(problem: Problem, slot_expert: Experts, layers: Index, copies: Ints) -> None:
    """Pack ``copies`` of some layers and take what is better, in place."""
    if layers.size:
        part = problem.rows(layers)
        keep_better(problem, slot_expert, layers, swap_down(part, pack(part, copies), close=NEAR))
