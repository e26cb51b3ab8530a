"""The fast placement of one load: greedy counts, largest first, best swaps; other counts where that falls short."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from placement.arrays import Experts, Floats, Index, Ints
from placement.experts.bounds import of_one_load, priced
from placement.experts.copy_exchange import recount
from placement.experts.count_search import (
    best_divided,
    best_of_all_counts,
    exact_fold,
    few_counts,
    search_counts,
)
from placement.experts.local_search import swap_down
from placement.experts.pack import pack
from placement.experts.problem import WIDE, Problem, keep_better
from placement.experts.replication import replicate

TRIED = 6
"""Exchanges of copies that a step of the count search looks at in each layer."""
NEAR = 1.5e-3
"""To the mean load: where the fast path stops swapping, and what no engine can measure."""

_ROOTS = 3  # square roots of the load, one of the other, for counts where GPUs differ in speed
# All work is counted by layer, so that the other layers of a call change nothing.
_WORK = 70_000  # slots of all counts that a layer's search looks at...
_FEWEST_STEPS, _MOST_STEPS = 80, 400  # ... but so many steps at least and at most
_PATIENCE = 16  # steps without a gain, or a quarter of all
_MOST_ROUNDS, _EXCHANGE_WORK = 20, 16_000  # of exchanges in the placement itself: slots squared


def fast_placement(problem: Problem) -> tuple[Experts, Floats, tuple[str, ...]]:
    """Greedy counts, largest first, best swaps; other counts where that falls short.

    Returns ``[layers, slots]``, the bound ``[layers]`` (raised where a gap was wide and prices prove more) and
    what ran, in words. Deterministic, and layer by layer.
    """
    copies = replicate(problem)
    slot_expert = swap_down(problem, pack(problem, copies), close=NEAR)
    bound = of_one_load(problem, copies)
    log = ["greedy counts, largest first, best swaps"]
    if int(problem.slots_per_gpu.max()) <= 1 and problem.equal_speeds:
        return slot_expert, bound, (*log, "one slot per GPU: greedy counts are provably optimal")
    load = problem.evaluate(slot_expert)
    wide = np.flatnonzero(load > bound * (1 + WIDE))
    if wide.size and not problem.equal_speeds:
        log.append(_unlike_copies(problem, slot_expert, copies, wide))
        load = problem.evaluate(slot_expert)
        wide = np.flatnonzero(load > bound * (1 + WIDE))
    if wide.size:
        bound[wide] = priced(problem.rows(wide), bound[wide], load[wide])
        wide = np.flatnonzero(load > bound * (1 + WIDE))
    if wide.size:
        log.append(_other_counts(problem, slot_expert, copies, wide))
        wide = np.flatnonzero(problem.evaluate(slot_expert) > bound * (1 + WIDE))
        recount(problem, slot_expert, wide, rounds=min(_MOST_ROUNDS, _EXCHANGE_WORK // problem.slots**2))
    return slot_expert, bound, tuple(log)


def _unlike_copies(problem: Problem, slot_expert: Experts, copies: Ints, wide: Index) -> str:
    """Look at counts by powers of the load in the ``wide`` layers, in place; return what ran, in words.

    Greedy counts make copies alike, so that GPUs with equally many slots get equal loads however fast they are.
    Lower powers leave heavy copies for fast GPUs and light ones for slow GPUs. ``copies`` follow
    what is kept.
    """
    part = problem.rows(wide)
    flat = part.mean
    for _ in range(_ROOTS):
        flat = np.sqrt(flat)  # which all CPUs round alike
        counts = replicate(replace(part, loads=flat))
        trial = swap_down(part, pack(part, counts), close=NEAR)
        better = part.evaluate(trial) < part.evaluate(slot_expert[wide])
        slot_expert[wide[better]], copies[wide[better]] = trial[better], counts[better]
    return f"counts by powers of the load tried in {wide.size} layers, for GPUs of unlike speed"


def _other_counts(problem: Problem, slot_expert: Experts, copies: Ints, wide: Index) -> str:
    """Look at other copy counts in the ``wide`` layers, in place; return what ran, in words."""
    part = problem.rows(wide)
    if few_counts(part):
        keep_better(problem, slot_expert, wide, best_of_all_counts(part))
        return f"all copy counts tried in {wide.size} layers with a gap above {WIDE:.1%}"
    spare = problem.slots - problem.experts
    steps = min(_MOST_STEPS, max(_FEWEST_STEPS, spare // 3, _WORK // (TRIED * problem.slots)))
    start = best_divided(part, copies[wide])
    patience = max(_PATIENCE, steps // 4)
    found = search_counts(part, start, tried=TRIED, spent=step_counter(steps), patience=patience)
    # Where the fold is exact, the last is the best of them.
    for counts, before in (
        ((found, copies[wide]),) if exact_fold(problem) else ((start, copies[wide]), (found, start))
    ):
        other = np.flatnonzero((counts != before).any(axis=1))
        if other.size == 0:
            continue
        trial = part.rows(other)
        keep_better(
            problem, slot_expert, wide[other], swap_down(trial, pack(trial, counts[other]), close=NEAR)
        )
    return f"other copy counts tried in {wide.size} layers with a gap above {WIDE:.1%}: {steps} steps"


def step_counter(steps: int) -> Callable[[], float]:
    """Return what counts up from 0 to 1 in ``steps`` calls."""
    count = iter(range(steps + 1))
    return lambda: next(count, steps) / steps if steps else 1.0
