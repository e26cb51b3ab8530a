"""Swaps for an engine whose source ranks use one copy each: the split depends on where the copies are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cost.dispatch import source_shares
from placement.arrays import Bools, Experts, Floats, Index, Ints
from placement.failure_domains import domains_used, in_domains, most_in_domain
from placement.problem import ExpertProblem

Judge = Callable[[Experts, Index], Floats]


_ROUNDS, _TRIED = 60, 8
_LEAST_GAIN = 1e-9


def swap_under_source(
    problem: ExpertProblem,
    slot_expert: Experts,
    judge: Judge,
    *,
    nodes: Ints | None,
    enough: Floats,
    rounds: int = _ROUNDS,
) -> Experts:
    """Swap copies off the hottest GPU while it helps under shares by source rank; return ``[layers, slots]``.

    Each round takes the swaps that promise most if shares stayed with the copies, splits anew for each of them,
    and keeps the best where ``judge`` finds it better. Never worse in any layer; legal where the start was.
    Deterministic.

    Parameters
    ----------
    judge:
        Largest load of rows ``[rows, slots]`` of the layers named, ``[rows]``.
    enough:
        A layer whose largest load is no more than this is left alone, ``[layers]``.
    """
    best = slot_expert.copy()
    value = judge(best, np.arange(problem.layers))
    active = np.flatnonzero(value > enough)
    for _ in range(rounds):
        if active.size == 0:
            break
        assignment = problem.assignment(best[active])
        load = assignment.slot_load(problem.loads[active], source_shares(assignment, nodes))
        starts = [promising_swaps(problem, best[layer], load[i]) for i, layer in enumerate(active)]
        owner = np.repeat(np.arange(active.size), [len(rows) for rows in starts])
        if owner.size == 0:
            break
        rows = np.concatenate(starts)
        after = judge(rows, active[owner])
        better = []
        for i, layer in enumerate(active):
            mine = np.flatnonzero(owner == i)
            if mine.size == 0:
                continue
            least = mine[np.argmin(after[mine])]
            if after[least] < value[layer] * (1 - _LEAST_GAIN):
                best[layer], value[layer] = rows[least], after[least]
                better.append(layer)
        active = np.array([layer for layer in better if value[layer] > enough[layer]], dtype=np.intp)
    return best


def promising_swaps(
    problem: ExpertProblem, row: Experts, slot_load: Floats, *, most: int = _TRIED
) -> Experts:
    """Return one layer after each of the swaps with its hottest GPU that promise most, ``[up to most, slots]``.

    ``row`` and ``slot_load`` ``[slots]``: what the slots hold, and the load of each. Of ``problem`` slots, speeds and
    failure domains are read. Legal where ``row`` is.
    """
    gpu, speed = problem.slot_gpu, problem.speed
    busy = np.bincount(gpu, weights=slot_load, minlength=problem.gpus)
    hot = int(np.argmax(busy / speed))
    mine = np.flatnonzero(gpu == hot)
    other = np.flatnonzero(gpu != hot)
    domain = problem.failure_domain[gpu]
    there = in_domains(problem, row[None, :])[0]
    full = there >= most_in_domain(there.sum(axis=0), domains_used(problem))
    moved = slot_load[mine][:, None] - slot_load[other][None, :]
    cold, here = gpu[other], domain[mine][:, None]
    peak = np.maximum((busy[hot] - moved) / speed[hot], (busy[cold] + moved) / speed[cold])
    apart = here != domain[other][None, :]  # a swap inside a domain brings nothing new to it
    clash = apart & (full[domain[other]][:, row[mine]].T | full[domain[mine]][:, row[other]])
    clash |= _met(gpu, row, mine, other)
    peak = np.where(clash | (row[mine][:, None] == row[other][None, :]), np.inf, peak)
    promising = np.argsort(peak, axis=None, kind="stable")[:most]
    promising = promising[peak.ravel()[promising] < busy[hot] / speed[hot]]
    left, right = mine[promising // other.size], other[promising % other.size]
    rows = np.tile(row, (promising.size, 1))
    at = np.arange(promising.size)
    rows[at, left], rows[at, right] = row[right], row[left]
    return rows


def _met(gpu: Experts, row: Experts, mine: Index, other: Index) -> Bools:
    """Whether a swap brings a copy to a GPU that has one of its expert, ``[mine, other]``."""
    holds = np.zeros((int(gpu.max()) + 1, int(row.max()) + 1), dtype=bool)
    holds[gpu, row] = True
    met: Bools = holds[gpu[other]][:, row[mine]].T | holds[gpu[mine]][:, row[other]]
    return met
