"""Placements for an engine that splits load by an LP: many GPUs must share the experts that may grow hot.

With given copies the LP reaches ``max over sets S of GPUs: load of the experts with all copies in S / speed of S``
(:mod:`cost.dispatch`). Drift hurts where an expert has too few copies, or where those that cannot leave a few GPUs
grow together. So counts come from loads drawn towards their mean, which leaves few experts with one copy, and packing
balances what cannot leave a GPU easily: the load per copy, less of it the more other copies there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from cost.dispatch import lp_level
from placement.arrays import Experts, Floats
from placement.local_search import swap_down
from placement.pack import pack
from placement.problem import ExpertProblem
from placement.replication import replicate

TOWARDS_MEAN = (0.5, 0.2)
"""How far loads are drawn to their mean before copies are counted, tried in this order. Planned on one of eight real
workloads and split by LP under the other seven, 576 slots on 72 GPUs: 0.2 to 0.5 are alike, 0 and 0.8 worse."""

STAYS = 1.5
"""A copy of an expert with c of them weighs ``load / c ** STAYS`` in packing."""

SLACK = 1e-3
"""Of the largest load on the loads planned for, given away for copies that bear other loads."""


def place_for_lp(
    problem: ExpertProblem,
    others: Iterable[Experts] = (),
    scenarios: Sequence[Floats] = (),
    *,
    worst: bool = False,
    bound: Floats | None = None,
) -> Experts:
    """Return the expert of each slot, int32 ``[layers, slots]``, for an engine that splits load by an LP.

    Of several placements each layer takes the one that bears drift best, of those whose largest load under the
    best split is within :data:`SLACK` of the smallest. Deterministic.

    Parameters
    ----------
    others:
        Other legal placements ``[layers, slots]``, taken where those that bear drift are not good enough; read no
        further than needed. The plain greedy one comes after them.
    scenarios:
        Loads ``[layers, experts]`` each that the largest load is judged by, the mean or the ``worst`` of them;
        none: those of ``problem``.
    bound:
        What no largest load can be below, ``[layers]``; None: the mean load.
    """
    judged = [replace(problem, loads=loads) for loads in scenarios] or [problem]
    least = np.ones(problem.layers) if bound is None else bound
    level = np.full((1, problem.layers), np.inf)
    tried: list[Experts] = [np.zeros((problem.layers, problem.slots), dtype=np.int32)]
    for slot_expert in _tried(problem, others):
        open_layers = np.flatnonzero(level.min(axis=0) > least * (1 + SLACK))
        if open_layers.size == 0:
            break
        found = np.full(problem.layers, np.inf)
        parts = [part.rows(open_layers) for part in judged]
        found[open_layers] = _over(parts, slot_expert[open_layers], worst=worst)
        level, tried = np.vstack((level, found)), [*tried, slot_expert]
    chosen = np.argmax(level <= level.min(axis=0) * (1 + SLACK), axis=0)
    return np.stack([tried[which][layer] for layer, which in enumerate(chosen.tolist())])


def _tried(problem: ExpertProblem, others: Iterable[Experts]) -> Iterator[Experts]:
    """Yield placements, those that bear drift best first."""
    for towards_mean in TOWARDS_MEAN:
        yield connected_copies(problem, towards_mean)
    yield from others
    yield swap_down(problem, pack(problem, replicate(problem)))


def connected_copies(problem: ExpertProblem, towards_mean: float) -> Experts:
    """Return one placement ``[layers, slots]`` whose counts bear drift, see the module's description."""
    mean = problem.loads.mean(axis=1, keepdims=True)
    drawn = (1 - towards_mean) * problem.loads + towards_mean * mean
    copies = replicate(replace(problem, loads=drawn))
    held = replace(problem, loads=problem.loads / copies ** (STAYS - 1))
    return swap_down(held, pack(held, copies))


def lp_max_load(problem: ExpertProblem, slot_expert: Experts) -> Floats:
    """Largest over mean GPU load under the best split, ``[layers]``; of unequal GPUs, of load over speed."""
    level = lp_level(problem.assignment(slot_expert), problem.loads, problem.speed)
    ratio: Floats = level * problem.gpus / problem.loads.sum(axis=1)
    return ratio


def _over(judged: Sequence[ExpertProblem], slot_expert: Experts, *, worst: bool) -> Floats:
    each = np.stack([lp_max_load(problem, slot_expert) for problem in judged])
    over: Floats = each.max(axis=0) if worst else each.mean(axis=0)
    return over
