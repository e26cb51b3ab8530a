"""Dispatch refinement: a placement found for even shares, fitted to the policy by which the engine splits tokens.

With given copies an LP split reaches ``max over sets S of GPUs: load of the experts with all copies in S / speed of
S`` (:mod:`cost.experts.best_split`). Drift hurts where an expert has too few copies, or where those that cannot leave
a few GPUs grow together. So counts come from loads drawn towards their mean, which leaves few experts with one
copy, and packing balances what cannot leave a GPU easily: the load per copy, less of it the more other copies there
are.

Where source ranks use one copy each, the split depends on where the copies are: swaps are judged by splitting anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from cost.experts.dispatch import slot_shares
from placement.arrays import Experts, Floats, Index, least_of_each
from placement.experts.bounds import lower_bound
from placement.experts.counts import replicate
from placement.experts.local_search import swap_down
from placement.experts.pack import pack
from placement.experts.problem import Problem

TOWARDS_MEAN = (0.5, 0.2)
"""How far loads are drawn to their mean before copies are counted, tried in this order. Planned on one of eight real
workloads and split by LP under the other seven, 576 slots on 72 GPUs: 0.2 to 0.5 are alike, 0 and 0.8 worse."""

STAYS = 1.5
"""A copy of an expert with c of them weighs ``load / c ** STAYS`` in packing."""

SLACK = 1e-3
"""Of the largest load on the loads planned for, given away for copies that bear other loads."""

_ROUNDS, _TRIED = 60, 8
_LEAST_GAIN = 1e-9


def fit_to_split(own: Experts, problem: Problem, log: list[str] | None = None) -> Experts:
    """Return ``own`` ``[layers, slots]``, found for even shares, fitted to the split of ``problem``.

    ``even``: returned as it is. ``source`` and ``rank``: best swaps under the shares by source rank, until within the
    slack. ``lp``: copies that bear drift. What ran is added to ``log``.
    """
    log = [] if log is None else log
    if problem.split == "even":
        return own
    bound = lower_bound(problem)
    if problem.split == "lp":
        log.append(f"copies for an LP split: the most connected within {SLACK:.1%} of the best")
        slot_expert = own.copy()  # kept where copies are too many to lie apart
        rows = np.flatnonzero(problem.apart(own)) if problem.can_be_apart else np.zeros(0, dtype=np.intp)
        if rows.size:
            slot_expert[rows] = place_for_lp(problem.rows(rows), [own[rows]], bound=bound[rows])
        return slot_expert
    slot_expert = swap_under_source(problem, own, enough=bound * (1 + SLACK))
    better = int((problem.evaluate(slot_expert) < problem.evaluate(own)).sum())
    log.append(f"swaps with shares by source rank: {better} layers improved")
    return slot_expert


def place_for_lp(problem: Problem, others: Iterable[Experts] = (), *, bound: Floats | None = None) -> Experts:
    """Return the expert of each slot, int32 ``[layers, slots]``, for an engine that splits load by an LP.

    Of several placements each layer takes the one that bears drift best, of those whose largest load under the
    best split is within :data:`SLACK` of the smallest. Deterministic.

    Parameters
    ----------
    others:
        Other legal placements ``[layers, slots]``, taken where those that bear drift are not good enough; read no
        further than needed. The plain greedy one comes after them.
    bound:
        What no largest load can be below, ``[layers]``; None: the mean load.
    """
    judge = replace(problem, split="lp")
    least = np.ones(problem.layers) if bound is None else bound
    level = np.full((1, problem.layers), np.inf)
    tried: list[Experts] = [np.zeros((problem.layers, problem.slots), dtype=np.int32)]
    for slot_expert in _tried(problem.average, others):
        open_layers = np.flatnonzero(level.min(axis=0) > least * (1 + SLACK))
        if open_layers.size == 0:
            break
        reached = np.full(problem.layers, np.inf)
        reached[open_layers] = judge.rows(open_layers).evaluate(slot_expert[open_layers])
        level, tried = np.vstack((level, reached)), [*tried, slot_expert]
    chosen = np.argmax(level <= level.min(axis=0) * (1 + SLACK), axis=0)
    return np.stack([tried[which][layer] for layer, which in enumerate(chosen.tolist())])


def _tried(problem: Problem, others: Iterable[Experts]) -> Iterator[Experts]:
    """Yield placements, those whose counts and packing bear drift first, see the module's description."""
    mean = problem.mean.mean(axis=1, keepdims=True)
    for towards_mean in TOWARDS_MEAN:
        drawn = (1 - towards_mean) * problem.mean + towards_mean * mean
        copies = replicate(replace(problem, loads=drawn))
        held = replace(problem, loads=problem.mean / copies ** (STAYS - 1))
        yield swap_down(held, pack(held, copies))
    yield from others
    yield swap_down(problem, pack(problem, replicate(problem)))


def swap_under_source(problem: Problem, slot_expert: Experts, *, enough: Floats) -> Experts:
    """Swap copies off the hottest GPU while it helps under shares by source rank; return ``[layers, slots]``.

    Each round takes the swaps that promise most if shares stayed with the copies, splits anew for each of them,
    and keeps the best where ``problem`` finds it better. A layer whose largest load is no more than ``enough``
    ``[layers]`` is left alone. Never worse in any layer; legal where the start was. Deterministic.
    """
    best = slot_expert.copy()
    value = problem.evaluate(best)
    active = np.flatnonzero(value > enough)
    for _ in range(_ROUNDS):
        if active.size == 0:
            break
        better = swap_round(problem, best, value, active)
        active = better[value[better] > enough[better]]
    return best


def swap_round(problem: Problem, slot_expert: Experts, value: Floats, active: Index) -> Index:
    """Make the swap that relieves most in each of the ``active`` layers, in place; return those that are better.

    ``value`` ``[layers]``, the objective of ``slot_expert`` ``[layers, slots]`` under shares by source rank, is kept.
    """
    part = problem.rows(active)
    assignment = part.assignment(slot_expert[active])
    load = assignment.slot_load(part.mean, slot_shares(assignment, part.split, nodes=part.nodes))
    tries = [promising_swaps(part, *layer) for layer in zip(slot_expert[active], load, strict=True)]
    owner = np.repeat(np.arange(active.size), [len(rows) for rows in tries])
    if owner.size == 0:
        return active[:0]
    rows = np.concatenate(tries)
    after = part.rows(owner).evaluate(rows)
    least = least_of_each(owner, after)
    least = least[after[least] < value[active[owner[least]]] * (1 - _LEAST_GAIN)]
    better: Index = active[owner[least]]
    slot_expert[better], value[better] = rows[least], after[least]
    return better


def promising_swaps(problem: Problem, row: Experts, slot_load: Floats) -> Experts:
    """Return one layer after each of the swaps with its hottest GPU that promise most, ``[few, slots]``.

    ``row`` and ``slot_load`` ``[slots]``: what the slots hold, and the load of each. Of ``problem`` slots, speeds and
    failure domains are read. Legal where ``row`` is.
    """
    gpu, speed = problem.slot_gpu, problem.speed
    busy = np.bincount(gpu, weights=slot_load, minlength=problem.gpus)
    hot = int(np.argmax(busy / speed))
    mine = np.flatnonzero(gpu == hot)
    other = np.flatnonzero(gpu != hot)
    domain = problem.failure_domain[gpu]
    there = problem.in_domains(row[None, :])[0]
    full = there >= problem.most_in_domain(there.sum(axis=0))
    moved = slot_load[mine][:, None] - slot_load[other][None, :]
    cold, here = gpu[other], domain[mine][:, None]
    peak = np.maximum((busy[hot] - moved) / speed[hot], (busy[cold] + moved) / speed[cold])
    apart = here != domain[other][None, :]  # a swap inside a domain brings nothing new to it
    clash = apart & (full[domain[other]][:, row[mine]].T | full[domain[mine]][:, row[other]])
    holds = problem.on_gpus(row[None, :])[0]
    clash |= holds[gpu[other]][:, row[mine]].T | holds[gpu[mine]][:, row[other]]
    peak = np.where(clash | (row[mine][:, None] == row[other][None, :]), np.inf, peak)
    promising = np.argsort(peak, axis=None, kind="stable")[:_TRIED]
    promising = promising[peak.ravel()[promising] < busy[hot] / speed[hot]]
    left, right = mine[promising // other.size], other[promising % other.size]
    rows = np.tile(row, (promising.size, 1))
    at = np.arange(promising.size)
    rows[at, left], rows[at, right] = row[right], row[left]
    return rows
