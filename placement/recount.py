"""Change copy counts where packing alone falls short: a copy of one expert becomes a copy of another.

Greedy counts are optimal for the largest copy, not for the largest GPU load; with two or three slots per GPU,
or very skewed loads, other counts pack better.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placement.problem import ExpertProblem
from placement.swap import swap_down

_POWER = 32  # of the norm of GPU loads that ranks exchanges: near the largest load, but sees the others
_LEAST_GAIN = 1e-9
_PAIR_CELLS = 1 << 21  # loads of all GPUs after each exchange that a layer looks at
_CELLS = 1 << 25  # of the table of who holds what, [layers, GPUs, experts]: more layers go in several parts


def recount(
    problem: ExpertProblem,
    slot_expert: NDArray[np.int32],
    layers: NDArray[np.intp],
    *,
    rounds: int,
    tried: int = 6,
    keep_on: Callable[[], bool] = lambda: True,
) -> None:
    """Exchange copies in some ``layers`` of ``slot_expert`` ``[layers, slots]`` while it helps, in place.

    Each round tries, in each layer still improving, the ``tried`` best exchanges that relieve its hottest GPU: one
    more copy of an expert there, or one fewer, at the cost or to the good of another; swaps follow. Legal and
    never worse in any layer, also when interrupted. Deterministic for given ``rounds`` while ``keep_on`` says
    yes.
    """
    size = max(1, _CELLS // (tried * problem.gpus * problem.experts))
    for start in range(0, layers.size, size):
        part = layers[start : start + size]
        for _ in range(rounds):
            if part.size == 0 or not keep_on():
                break
            part = _round(problem, slot_expert, part, tried)


def _round(
    problem: ExpertProblem, slot_expert: NDArray[np.int32], layers: NDArray[np.intp], tried: int
) -> NDArray[np.intp]:
    """Take the best exchange in each of ``layers``, in place; return the layers where one helped."""
    starts = [_exchanges(problem, slot_expert, int(layer), tried) for layer in layers]
    owner = np.repeat(np.arange(layers.size), [len(rows) for rows in starts])
    if owner.size == 0:
        return layers[:0]
    many = problem.rows(layers[owner])
    ends = swap_down(many, np.concatenate(starts))
    after = _norm(many.assignment(ends).gpu_load(many.loads) / many.speed)
    here = problem.rows(layers)
    before = _norm(here.assignment(slot_expert[layers]).gpu_load(here.loads) / here.speed)
    peak_before = here.max_load(here.assignment(slot_expert[layers]))
    peak_after = many.max_load(many.assignment(ends))
    helped = []
    for i, layer in enumerate(layers):
        mine = np.flatnonzero(owner == i)
        if mine.size == 0:
            continue
        best = mine[np.argmin(after[mine])]
        if after[best] < before[i] * (1 - _LEAST_GAIN) and peak_after[best] <= peak_before[i]:
            slot_expert[layer] = ends[best]
            helped.append(int(layer))
    return np.array(helped, dtype=np.intp)


def _exchanges(
    problem: ExpertProblem, slot_expert: NDArray[np.int32], layer: int, tried: int
) -> NDArray[np.int32]:
    """Return the rows ``[up to tried, slots]`` after the exchanges in one layer that promise most."""
    row, load = slot_expert[layer], problem.loads[layer]
    gpu = problem.slot_gpu
    copies = np.bincount(row, minlength=problem.experts)
    holds = np.zeros((problem.gpus, problem.experts), dtype=bool)
    holds[gpu, row] = True
    domain = problem.failure_domain
    held = np.zeros((int(domain.max()) + 1, problem.experts), dtype=bool)
    held[domain[gpu], row] = True
    gpu_load = np.bincount(gpu, weights=(load / copies)[row], minlength=problem.gpus)
    busy = gpu_load / problem.speed
    hot = int(np.argmax(busy))
    spare = np.flatnonzero(copies[row] > 1)
    on_hot = row[gpu == hot]
    most = _PAIR_CELLS // (problem.gpus * on_hot.size)
    if spare.size > most:  # those of the least busy GPUs, and all of the hottest
        gain = np.where(gpu[spare] == hot, -np.inf, busy[gpu[spare]])
        spare = np.sort(spare[np.argsort(gain, kind="stable")[:most]])
    # One more copy of an expert of the hottest GPU, elsewhere; or any expert instead of a copy on it.
    more = np.array([(expert, slot) for expert in on_hot for slot in spare if gpu[slot] != hot]).reshape(
        -1, 2
    )
    fewer = np.array(
        [(expert, slot) for slot in spare if gpu[slot] == hot for expert in range(problem.experts)]
    ).reshape(-1, 2)
    pairs = np.concatenate([more, fewer]).astype(np.int64)
    new, slot = pairs[:, 0], pairs[:, 1]
    fine = ~held[domain[gpu[slot]], new]
    new, slot = new[fine], slot[fine]
    if new.size == 0:
        return np.empty((0, row.size), dtype=np.int32)
    old, at = row[slot], gpu[slot]
    share = load / copies
    thinner, thicker = load / (copies + 1), load / np.maximum(copies - 1, 1)
    less, extra = (thinner - share)[new], (thicker - share)[old]
    after = gpu_load + holds.T[new] * less[:, None] + holds.T[old] * extra[:, None]
    after[np.arange(new.size), at] = gpu_load[at] - share[old] + thinner[new]
    best = np.argsort(_norm(after / problem.speed), kind="stable")[:tried]
    rows = np.tile(row, (best.size, 1))
    rows[np.arange(best.size), slot[best]] = new[best]
    return rows


def _norm(gpu_load: NDArray[np.float64]) -> NDArray[np.float64]:
    peak = gpu_load.max(axis=1)
    norm: NDArray[np.float64] = peak * ((gpu_load / peak[:, None]) ** _POWER).sum(axis=1) ** (1 / _POWER)
    return norm
