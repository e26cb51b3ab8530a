"""The fast placement: greedy counts, largest first, best swaps; other counts where that falls short."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from cost.assignment import Assignment
from placement.arrays import Experts, Floats, Index, Ints
from placement.baselines import Baseline
from placement.bounds import priced
from placement.copy_exchange import best_of_all_counts, few_counts, recount
from placement.local_search import swap_down
from placement.pack import distinct_copies, pack
from placement.problem import EQUAL, WIDE, Problem, keep_better
from placement.replication import exact_fold, replicate, search_counts

TRIED = 16
"""Exchanges of copies that a step of the count search looks at in each layer."""

_POWERS = (0.8, 0.6, 0.4, 0.2)  # of the load, for counts where GPUs differ in speed
_ROUNDING = 1e-12  # a rival is not ahead by less
_CLOSE = 2e-3  # to the mean load: where the fast path stops swapping, and what no engine can measure
_WORK = 32_000_000  # copies packed by the count search, all layers together...
_FIXED_ROWS = (
    2500  # ... where a step of NumPy costs as much as so many rows (largest first, one copy at a time)
)
_FEWEST_STEPS, _MOST_STEPS = 12, 400  # ... but so many steps at least and at most
_MOST_ROUNDS, _EXCHANGE_WORK = 20, 16_000  # of exchanges in the placement itself: slots a round
_HARD_ROUNDS, _HARD_TRIED = 100, 24  # where a rival is ahead


def fast_placement(
    problem: Problem, rivals: Mapping[str, Baseline], bound: Floats
) -> tuple[Experts, Floats, tuple[str, ...]]:
    """Greedy counts, largest first, best swaps; other counts, and a rival's start, where that falls short.

    Returns ``[layers, slots]``, the bound ``[layers]`` (raised where a gap was wide and prices prove more) and
    what ran, in words. Deterministic.
    """
    copies = replicate(problem)
    slot_expert = swap_down(problem, pack(problem, copies), close=_CLOSE)
    log = ["greedy counts, largest first, best swaps"]
    if int(problem.slots_per_gpu.max()) <= 1 and problem.equal_speeds:
        log.append("one slot per GPU: greedy counts are provably optimal")
    load = problem.evaluate(slot_expert)
    wide = np.flatnonzero(load > bound * (1 + WIDE))
    if wide.size and not problem.equal_speeds:
        log.append(_unlike_copies(problem, slot_expert, copies, wide))
        load = problem.evaluate(slot_expert)
        wide = np.flatnonzero(load > bound * (1 + WIDE))
    if wide.size:
        bound = bound.copy()
        bound[wide] = priced(problem.rows(wide), bound[wide], load[wide])
        wide = np.flatnonzero(load > bound * (1 + WIDE))
    if wide.size:
        log.append(_other_counts(problem, slot_expert, copies, wide))
        wide = np.flatnonzero(problem.evaluate(slot_expert) > bound * (1 + WIDE))
        rounds = min(_MOST_ROUNDS, _EXCHANGE_WORK // max(1, wide.size * problem.slots))
        recount(problem, slot_expert, wide, rounds=rounds)
        load = problem.evaluate(slot_expert)
    for name, rival in rivals.items():
        if rival.assignment is not None:
            log += _not_behind(problem, slot_expert, load, name, rival.assignment)
    return slot_expert, bound, tuple(log)


def _unlike_copies(problem: Problem, slot_expert: Experts, copies: Ints, wide: Index) -> str:
    """Look at counts by powers of the load in the ``wide`` layers, in place; return what ran, in words.

    Greedy counts make copies alike, so that GPUs with equally many slots get equal loads however fast they are.
    Lower powers leave heavy copies for fast GPUs and light ones for slow GPUs. ``copies`` follow
    what is kept.
    """
    part = problem.rows(wide)
    for power in _POWERS:
        counts = replicate(replace(part, loads=part.mean**power))
        trial = swap_down(part, pack(part, counts), close=_CLOSE)
        better = part.evaluate(trial) < part.evaluate(slot_expert[wide])
        slot_expert[wide[better]], copies[wide[better]] = trial[better], counts[better]
    return f"counts by powers of the load tried in {wide.size} layers, for GPUs of unlike speed"


def _other_counts(problem: Problem, slot_expert: Experts, copies: Ints, wide: Index) -> str:
    """Look at other copy counts in the ``wide`` layers, in place; return what ran, in words."""
    part = problem.rows(wide)
    if few_counts(part):
        keep_better(problem, slot_expert, wide, best_of_all_counts(part))
        return f"all copy counts tried in {wide.size} layers with a gap above {WIDE:.1%}"
    steps = _fast_steps(problem, wide.size)
    found = search_counts(part, copies[wide], tried=TRIED, spent=_counter(steps))
    keep_better(problem, slot_expert, wide, swap_down(part, pack(part, found), close=_CLOSE))
    return f"other copy counts tried in {wide.size} layers with a gap above {WIDE:.1%}: {steps} steps"


def _not_behind(
    problem: Problem, slot_expert: Experts, load: Floats, name: str, rival: Assignment
) -> list[str]:
    """Search on in the layers where a rival is ahead of ``load``, in place; return what ran, in words."""
    log: list[str] = []
    rival_load = problem.evaluate(rival)
    ahead = load > rival_load * (1 + _ROUNDING)
    if not ahead.any():
        return log
    # A rival that knows nothing of failure domains is not worth a hard search where it breaks them.
    behind = np.flatnonzero(ahead & (problem.apart(rival.slot_expert) | problem.each_alone))
    if behind.size:
        better = _descend_from(problem, slot_expert, rival.slot_expert, behind)
        recount(problem, slot_expert, behind, rounds=_HARD_ROUNDS, tried=_HARD_TRIED)
        log.append(f"best swaps from {name}: {better} layers better")
        load[behind] = problem.rows(behind).evaluate(slot_expert[behind])
    rows = np.flatnonzero(load > rival_load * (1 + EQUAL))
    if rows.size:
        log.append(
            f"{name} is ahead with two copies of an expert in one failure domain in rows {rows.tolist()}"
        )
    return log


def _descend_from(problem: Problem, slot_expert: Experts, rival: Experts, layers: Index) -> int:
    """Start again from ``rival`` in some layers, its copies moved apart; keep and count what is better."""
    start, fits = distinct_copies(problem.rows(layers), rival[layers])
    layers, start = layers[fits], start[fits]
    if layers.size == 0:
        return 0
    part = problem.rows(layers)
    again = swap_down(part, start)
    recount(part, again, np.arange(layers.size), rounds=_HARD_ROUNDS, tried=_HARD_TRIED)
    return keep_better(problem, slot_expert, layers, again)


def _fast_steps(problem: Problem, layers: int) -> int:
    """Return how many steps of the count search the fast path affords."""
    rows = layers * TRIED + (0 if exact_fold(problem) else _FIXED_ROWS)
    return int(np.clip(_WORK // (rows * problem.slots), _FEWEST_STEPS, _MOST_STEPS))


def _counter(steps: int) -> Callable[[], float]:
    """Return what counts up from 0 to 1 in ``steps`` calls."""
    count = iter(range(steps + 1))
    return lambda: next(count, steps) / steps
